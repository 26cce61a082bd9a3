/** A table under the pointer: its figures go on, its rows stay where they are, and text that is marked stays marked. */
import type { Locator, Page, Request } from '@playwright/test';
import { expect, test } from './fixtures.ts';
import { FleetNode, nodeToken } from './nodes.ts';
import { expectLive } from './steps.ts';
import { within } from './within.ts';

/** A minute, in a run of all tests: every order changes every five seconds. */
const watchedMs = () => (test.info().config.metadata['runsAll'] === true ? 60_000 : 20_000);

/** Where the rows of a table stand, in order, and what they say. */
interface Look {
  rows: string[];
  figures: string;
  marked: string;
}

function lookAt(table: Locator): Promise<Look> {
  return table.evaluate((region) => {
    const rows = [...region.querySelectorAll('tbody tr')];
    const name = (row: Element) => row.querySelector('td')?.textContent?.trim() ?? '';
    return {
      rows: rows.map((row) => `${name(row)} at ${Math.round(row.getBoundingClientRect().top)}`),
      figures: rows.map((row) => row.textContent ?? '').join('\n'),
      marked: getSelection()?.toString() ?? '',
    };
  });
}

interface Watched {
  what: string;
  table: Locator;
  first: Look;
}

/** The calls of a page that are not answered yet, but for its stream, which never is. */
function readsOf(page: Page): Set<Request> {
  const reads = new Set<Request>();
  page.on('request', (request) => {
    const { pathname } = new URL(request.url());
    if (pathname.startsWith('/api/') && !pathname.endsWith('/stream')) reads.add(request);
  });
  page.on('requestfinished', (request) => reads.delete(request));
  page.on('requestfailed', (request) => reads.delete(request));
  return reads;
}

/** Points at a row of the table and marks its name. */
async function pointAt(page: Page, name: string, row: string): Promise<Watched> {
  const table = page.getByRole('region', { name, exact: true });
  const cell = table.getByRole('row', { name: row }).getByRole('cell').first();
  await cell.hover();
  await cell.evaluate((element) => getSelection()?.selectAllChildren(element));
  const first = await lookAt(table);
  expect(first.marked).not.toBe('');
  return { what: `${name}, ${page.url()}`, table, first };
}

test('while figures are live no row moves, and what is marked stays so', async ({ admin, server }) => {
  const token = await nodeToken(admin.request);
  const node = new FleetNode(server.dashboard, token, 'edge-1');
  let at = 0;
  // Of another one most in each five seconds, so that every order that there is changes.
  const flow = setInterval(() => {
    at += 1;
    const [user, path] = [`visitor-${Math.floor(at / 50) % 7}`, at % 100 < 50 ? '/x' : '/v1/sign-in'];
    for (let times = 0; times < 3; times += 1) void server.check(user, path).catch(() => undefined);
  }, 100);
  try {
    await node.start();
    const open = async (path: string, row: string, table: string) => {
      const page = await admin.context().newPage();
      const reads = readsOf(page);
      await page.goto(path);
      await expectLive(page);
      await expect(
        page.getByRole('region', { name: table, exact: true }).getByRole('row', { name: row }),
      ).toBeVisible({ timeout: within(30_000) });
      // A list that is answered later moves the rows below it.
      await expect.poll(() => reads.size).toBe(0);
      return pointAt(page, table, row);
    };
    const watched = [
      await open('/', 'user:v', 'Most denied keys'),
      await open('/', 'free/minute', 'By limit'),
      await open('/tiers?sort=-denied', 'free', 'Tiers'),
      await open('/nodes', 'edge-1', 'Nodes'),
    ];
    const changed = new Set<string>();
    const until = Date.now() + watchedMs();
    while (Date.now() < until) {
      for (const { what, table, first } of watched) {
        const now = await lookAt(table);
        expect(now.rows, what).toEqual(first.rows);
        expect(now.marked, what).toBe(first.marked);
        if (now.figures !== first.figures) changed.add(what);
      }
      await admin.waitForTimeout(500);
    }
    expect([...changed].sort()).toEqual(watched.map(({ what }) => what).sort());
  } finally {
    clearInterval(flow);
    await node.remove();
  }
});
