/**
 * What is asked of the server before anything of the page is made: answers and scripts are on their way while the
 * browser reads what it has stored, which takes it as long.
 */
import { askAhead } from './lib/api/initial.ts';
import { routeOf } from './lib/state/router.ts';
import { readPage } from './shell/pages.ts';

const { page } = routeOf(location.pathname);
if (page !== 'setup') askAhead();
void readPage(page).catch(() => undefined);
