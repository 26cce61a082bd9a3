/** Many tabs of one browser, which has six connections to a host: each stream takes one. */
import type { Page } from '@playwright/test';
import { expect, readOnly } from './fixtures.ts';
import { expectLive } from './steps.ts';
import { within } from './within.ts';

/** A tab that is hidden keeps its stream for ten seconds. */
const HIDDEN_MS = 10_000;
const TABS = ['/', '/tiers', '/rules', '/clients', '/nodes', '/history', '/inspect'];

/** Whether the page is seen, as the browser would tell it: a page of Chromium without a window is never hidden. */
async function see(page: Page, seen: boolean): Promise<void> {
  const set = (hidden: boolean) => {
    Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  };
  await page.evaluate(set, !seen);
}

/** Follows the streams of a page: how many are open. */
function streamsOf(page: Page): () => number {
  const open = new Set<object>();
  const isStream = (url: string) => url.includes('/api/v1/stream');
  page.on('request', (request) => isStream(request.url()) && open.add(request));
  page.on('requestfinished', (request) => open.delete(request));
  page.on('requestfailed', (request) => open.delete(request));
  return () => open.size;
}

readOnly('seven tabs are open: all load, and only the one that is seen holds a stream', async ({ admin }) => {
  const tabs: { page: Page; streams: () => number }[] = [];
  for (const path of TABS) {
    const before = tabs.at(-1);
    if (before) await see(before.page, false);
    const page = await admin.context().newPage();
    tabs.push({ page, streams: streamsOf(page) });
    await page.goto(path, { waitUntil: 'commit' });
  }
  for (const { page } of tabs)
    await expect(page.locator('h1')).toBeVisible({ timeout: within(HIDDEN_MS + 10_000) });
  const [first, last] = [tabs[0], tabs.at(-1)];
  if (!first || !last) throw new Error('no tab');
  await expectLive(last.page);
  const open = () => tabs.map(({ streams }) => streams());
  await expect.poll(open, { timeout: within(HIDDEN_MS + 5_000) }).toEqual([0, 0, 0, 0, 0, 0, 1]);

  await see(last.page, false);
  await see(first.page, true);
  await expectLive(first.page);
  await expect.poll(open, { timeout: within(HIDDEN_MS + 5_000) }).toEqual([1, 0, 0, 0, 0, 0, 0]);
});

readOnly('a tab that is opened behind others takes no stream until it is seen', async ({ admin }) => {
  const context = admin.context();
  await admin.goto('/');
  await expectLive(admin);
  for (const path of TABS) {
    const page = await context.newPage();
    const streams = streamsOf(page);
    let asked = 0;
    page.on('request', (request) => (asked += Number(request.url().includes('/api/v1/stream'))));
    await page.addInitScript(() =>
      Object.defineProperty(document, 'hidden', { value: true, configurable: true }),
    );
    await page.goto(path);
    await expect(page.locator('h1')).toBeVisible();
    expect(asked, path).toBe(0);
    if (path !== '/nodes') continue;
    await see(page, true);
    await expectLive(page);
    expect(streams()).toBe(1);
  }
});
