/** What a page that was never read before waits for, and, reported, how long it takes: the best of several loads. */
import { loadavg } from 'node:os';
import type { Page } from '@playwright/test';
import { expect, readOnly } from './fixtures.ts';
import { expectLive } from './steps.ts';

const LOADS = 5;
/** The answers that suffice: a page that asks in a row, or for more than it shows, needs more. */
const CALLS_MAX = { content: 2, usable: 4 };

type Drawn = Record<'content' | 'usable', { ms: number; calls: number }>;

/** In the page: notes when its title was drawn, and when its figures were live, and the calls that were answered by then. */
function note(): void {
  const drawn: Record<string, { ms: number; calls: number }> = {};
  Object.assign(window, { drawn });
  const calls = () =>
    performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/')).length;
  const seen = {
    content: () => document.querySelector('main h1') !== null,
    usable: () =>
      [...document.querySelectorAll('header [role=status]')].some((one) => one.textContent?.includes('Live')),
  };
  const waiting = new Set(Object.entries(seen));
  const look = () => {
    for (const one of waiting) {
      const [name, isThere] = one;
      if (!isThere()) continue;
      waiting.delete(one);
      // After the frame in which it is drawn.
      requestAnimationFrame(() =>
        setTimeout(() => (drawn[name] = { ms: Math.round(performance.now()), calls: calls() })),
      );
    }
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true });
}

/** Lets the server answer the first calls of a page, and none after them. Event streams are no calls. */
async function answerFirst(page: Page, limit: number): Promise<void> {
  let calls = 0;
  await page.route('**/api/v1/**', (route) => {
    const isStream = route.request().url().includes('/api/v1/stream');
    if (!isStream) calls += 1;
    return isStream || calls <= limit ? route.continue() : undefined;
  });
}

readOnly('the first load: content at once, and figures with it', async ({ admin, browser, server }, info) => {
  const storageState = await admin.context().storageState();
  const loads: Drawn[] = [];
  for (let at = 0; at < LOADS; at += 1) {
    const context = await browser.newContext({ baseURL: server.dashboard, storageState });
    const page = await context.newPage();
    await page.addInitScript(note);
    await page.goto('/');
    const drawn = () => page.evaluate(() => (window as unknown as { drawn: Drawn }).drawn);
    await expect.poll(async () => Object.keys(await drawn()).sort()).toEqual(['content', 'usable']);
    loads.push(await drawn());
    await context.close();
  }
  const best = (name: keyof Drawn) => Math.min(...loads.map((load) => load[name].ms));
  const calls = (name: keyof Drawn) => Math.min(...loads.map((load) => load[name].calls));
  const told = `content ${best('content')} ms (${calls('content')} calls), live ${best('usable')} ms (${calls('usable')} calls), best of ${LOADS}, at a load of ${loadavg()[0]?.toFixed(1)}`;
  process.stdout.write(`${told}\n`);
  info.annotations.push({ type: 'measured', description: told });
  await info.attach('loads', { body: JSON.stringify(loads), contentType: 'application/json' });
  // How many answers were there by then depends on the machine; how many are needed does not.
  const shows = {
    content: (page: Page) => expect(page.locator('main h1')).toBeVisible(),
    usable: expectLive,
  };
  for (const name of ['content', 'usable'] as const) {
    const context = await browser.newContext({ baseURL: server.dashboard, storageState });
    const page = await context.newPage();
    await answerFirst(page, CALLS_MAX[name]);
    await page.goto('/');
    await shows[name](page);
    await context.close();
  }
});
