/**
 * Starts the calls and scripts of the first page before the page is built: they arrive while the browser reads its
 * storage, which takes as long.
 */
import { startInitialCalls } from './lib/api/initial.ts';
import { routeOf } from './lib/state/router.ts';
import { loadPage } from './shell/pages.ts';

const { page } = routeOf(location.pathname);
if (page !== 'setup') startInitialCalls();
void loadPage(page).catch(() => undefined);
