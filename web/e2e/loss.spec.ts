/** Nothing typed is ever lost: not to a reload, an ended session, a dead server, or signing out. */
import type { Page } from '@playwright/test';
import { CLIENTS, importClients } from './clientsteps.ts';
import { expect, PASSWORD, readOnly, test } from './fixtures.ts';
import { expectInForce, expectLive, limitField, openTier, review } from './steps.ts';
import { within } from './within.ts';

const type = (page: Page, text: string) => limitField(page, 'minute', 'Rate').fill(text);
const typed = (page: Page) => limitField(page, 'minute', 'Rate');

readOnly('a reload keeps the change list, also what is half typed', async ({ admin }) => {
  await openTier(admin, 'pro');
  await type(admin, '250 /');
  await admin.reload();
  await expect(admin.getByRole('button', { name: '1 change' })).toBeVisible();
  await expect(typed(admin)).toHaveValue('250 /');
  await admin.getByRole('button', { name: 'Review and publish' }).click();
  await expect(typed(admin)).toBeFocused();
  await expect(admin.getByRole('alert')).toContainText('One field needs a look');
  await typed(admin).fill('250 / 1m');
  await admin.goto('/history');
  await admin.getByRole('button', { name: '1 change' }).click();
  await expect(admin.getByRole('dialog').getByRole('row', { name: /minute rate/ })).toContainText('250 / 1m');
  await admin.getByRole('button', { name: 'Drop the change of tier pro' }).click();
  await expect(admin.getByText('Nothing is changed.')).toBeVisible();
});

test('a session that ends while editing: sign in over the page, and publish', async ({ admin, watch }) => {
  watch.allow(/status of 401/);
  await openTier(admin, 'pro');
  await type(admin, '250 / 1m');
  const validated = admin.waitForResponse(/policy\/validate$/);
  const dialog = await review(admin, 'after the session');
  // What the panel asks by itself would be the first to find out.
  await validated;
  await expect(dialog.getByRole('region', { name: 'Impact' })).toContainText('Denied');
  await admin.context().clearCookies();
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  const again = admin.getByRole('dialog', { name: 'Sign in again' });
  await expect(again.getByLabel('Name')).toHaveValue('admin');
  await again.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await again.getByRole('button', { name: 'Sign in' }).click();
  await expect(again).toBeHidden();
  await expectInForce(admin, 2);
});

test('a session ended by the server is noticed without a click', async ({ admin, watch }) => {
  watch.allow(/status of 401/);
  await openTier(admin, 'pro');
  await expectLive(admin);
  await type(admin, '250 / 1m');
  const who = (await (await admin.request.get('/api/v1/session')).json()) as { csrf: string };
  const ended = await admin.request.delete('/api/v1/session', { headers: { 'x-csrf-token': who.csrf } });
  expect(ended.status()).toBe(204);
  const again = admin.getByRole('dialog', { name: 'Sign in again' });
  // The server ends the session's streams at once.
  await expect(again).toBeVisible({ timeout: within(5_000) });
  await again.getByLabel('Password', { exact: true }).fill('wrong and long enough');
  await again.getByRole('button', { name: 'Sign in' }).click();
  await expect(again.getByRole('alert')).toContainText('Wrong name or password');
  await expect(again.getByLabel('Password', { exact: true })).toBeFocused();
  await admin.evaluate(() => (document.activeElement as HTMLElement).blur());
  await admin.keyboard.press('Escape');
  await admin.keyboard.press('Escape');
  await expect(again).toBeVisible();
  await again.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await again.getByRole('button', { name: 'Sign in' }).click();
  await expect(again).toBeHidden();
  await expectLive(admin);
  await expect(typed(admin)).toHaveValue('250 / 1m');
});

/** In the page: have all scripts and styles come that were asked for, among them one of this name? */
function isReadAhead(name: string): boolean {
  const come = new Set(performance.getEntriesByType('resource').map((entry) => entry.name));
  const links = document.querySelectorAll<HTMLLinkElement>('link[rel=modulepreload], link[rel=stylesheet]');
  const asked = [...links].map(({ href }) => href);
  return asked.some((href) => href.includes(name)) && asked.every((href) => come.has(href));
}

test('a server that dies and comes back: text kept, and live again by itself', async ({
  admin,
  server,
  watch,
}) => {
  watch.allow(/net::ERR_|dynamically imported/);
  await openTier(admin, 'pro');
  await expectLive(admin);
  await type(admin, '250 / 1m');
  // Its script is read ahead with all that it imports, and is not asked for again.
  await expect.poll(() => admin.evaluate(isReadAhead, '/Publish-')).toBe(true);
  await server.kill();
  await expect(admin.getByText(/^○ ?Not live since \d\d:\d\d:\d\d$/)).toBeVisible({
    timeout: within(15_000),
  });
  await expect(admin.getByText(/the server does not answer/)).toBeVisible({ timeout: within(15_000) });
  const dialog = await review(admin, 'while it is down');
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await expect(dialog.getByRole('alert')).toContainText('No answer came');
  await server.start();
  await expect(admin.getByText(/^● ?Live$/)).toBeVisible({ timeout: within(5_000) });
  await expect(admin.getByText(/the server does not answer/)).toBeHidden();
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await expectInForce(admin, 2);
  await expect(typed(admin)).toHaveValue('250 / 1m');
});

test('figures of a server that hangs say how old they are, then of when, until it goes on', async ({
  admin,
  other,
  server,
  watch,
}) => {
  watch.allow(/net::ERR_|dynamically imported/);
  await importClients(admin, CLIENTS);
  await server.check('whale');
  const [clients, tiers] = [await other.context().newPage(), await other.context().newPage()];
  await admin.goto('/');
  await other.goto('/nodes');
  await tiers.goto('/tiers');
  await clients.goto('/clients');
  const chart = admin
    .locator('section')
    .filter({ has: admin.getByRole('heading', { name: 'Decisions a second' }) });
  const row = other.getByRole('region', { name: 'Nodes' }).getByRole('row').nth(1);
  const pages = [admin, other, tiers, clients];
  await Promise.all(pages.map(expectLive));
  await expect(chart).toBeVisible();
  await expect(row).toContainText(/now\s*$/);
  for (const page of pages) await expect(page.getByText(/^(\d+ s old|last figures .*)$/)).toHaveCount(0);

  server.freeze();
  // It holds for a few seconds.
  await Promise.all([
    ...pages.map((page) => expect(page.getByText(/^\d+ s old$/).first()).toBeVisible()),
    expect(row).toContainText(/\d+ s old\s*$/),
  ]);
  for (const page of pages) {
    await expect(page.getByText(/^last figures \d\d:\d\d:\d\d$/).first()).toBeVisible({
      timeout: within(15_000),
    });
    await expect(page.locator('.pale').first()).toBeVisible();
  }
  await expect(chart).toContainText(/last figures \d\d:\d\d:\d\d/);
  await expect(row).toContainText(/last figures \d\d:\d\d:\d\d\s*$/);

  server.thaw();
  for (const page of pages) {
    await expect(page.getByText(/^(\d+ s old|last figures .*)$/)).toHaveCount(0, { timeout: within(15_000) });
    await expect(page.locator('.pale')).toHaveCount(0);
  }
  await expect(row).toContainText(/now\s*$/);
});

const AWAY_MS = 16_000;

/** In the page: for how much of the chart's width the line of what is allowed is away, at most, between its ends. */
function widestGap(drawing: HTMLCanvasElement): number {
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [drawing.width, drawing.height];
  const context = copy.getContext('2d', { willReadFrequently: true });
  if (!context) throw new Error('no drawing');
  context.drawImage(drawing, 0, 0);
  const ink = getComputedStyle(document.documentElement).getPropertyValue('--allow').trim();
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(ink.slice(at, at + 2), 16));
  const { data, width, height } = context.getImageData(0, 0, copy.width, copy.height);
  const close = (at: number, to: number | undefined) => Math.abs((data[at] ?? 0) - (to ?? 0)) < 60;
  const isDrawn = (x: number) => {
    for (let y = 0; y < height; y += 1) {
      const at = 4 * (y * width + x);
      if ((data[at + 3] ?? 0) > 100 && close(at, red) && close(at + 1, green) && close(at + 2, blue))
        return true;
    }
    return false;
  };
  const inked = Array.from({ length: width }, (_, x) => x).filter(isDrawn);
  return Math.max(0, ...inked.map((x, at) => x - (inked[at - 1] ?? x))) / width;
}

test('the chart has a gap where the server was away, and keeps what was before', async ({
  admin,
  server,
  watch,
}) => {
  watch.allow(/net::ERR_|dynamically imported/);
  await admin.goto('/');
  await expectLive(admin);
  let asked = 0;
  const flow = setInterval(() => void server.check(`visitor-${(asked += 1)}`).catch(() => undefined), 50);
  try {
    const chart = admin.locator('canvas');
    await expect(chart).toBeVisible();
    const table = admin.getByRole('region', { name: 'Decisions a second, table' });
    // At most twenty a second are sent: some seconds are drawn by then.
    const allowed = admin.locator('[data-limit="default/tier:free/minute"] [data-figure=allowed]');
    const count = async () => Number((await allowed.textContent())?.replaceAll(',', ''));
    await expect.poll(count, { timeout: 60_000 }).toBeGreaterThan(120);
    expect(await chart.evaluate(widestGap)).toBeLessThan(AWAY_MS / 120_000 / 2);
    await server.kill();
    const gone = Date.now();
    await expect(admin.getByText(/^○ ?Not live since/)).toBeVisible({ timeout: within(15_000) });
    await admin.waitForTimeout(Math.max(0, gone + AWAY_MS - Date.now()));
    await server.start();
    const back = Date.now();
    await expect(admin.getByText(/^● ?Live$/)).toBeVisible({ timeout: within(5_000) });
    // Two minutes are drawn.
    await expect.poll(() => chart.evaluate(widestGap)).toBeGreaterThan(AWAY_MS / 120_000 / 2);
    // The table stands still, as it is when it is opened: the key opens and closes it.
    const readSeconds = async () => {
      await admin.keyboard.press('t');
      await expect(table).toBeVisible();
      const seconds = await table
        .getByRole('row')
        .evaluateAll((rows) =>
          rows.slice(1).map((row) => row.querySelector('td')?.textContent?.trim() ?? ''),
        );
      await admin.keyboard.press('t');
      await expect(table).toBeHidden();
      return seconds;
    };
    const at = (ms: number) => new Date(ms).toISOString().slice(11, 19);
    // A second is told when it is over.
    let seconds: string[] = [];
    await expect(async () => {
      seconds = await readSeconds();
      expect(seconds.filter((time) => time > at(back)).length).toBeGreaterThan(1);
    }).toPass({ timeout: 60_000 });
    const inside = seconds.filter((time) => time > at(gone + 2_000) && time < at(back - 1_000));
    expect(inside).toEqual([]);
    expect(seconds.filter((time) => time < at(gone)).length).toBeGreaterThan(2);
  } finally {
    clearInterval(flow);
  }
});

for (const keep of [true, false]) {
  test(`signing out with changes asks: ${keep ? 'kept' : 'dropped'}`, async ({ admin, watch }) => {
    watch.allow(/status of (401|404)/);
    await openTier(admin, 'pro');
    await type(admin, '250 / 1m');
    await admin.getByRole('button', { name: 'Menu of admin' }).click();
    await admin.getByRole('button', { name: 'Sign out', exact: true }).click();
    const dialog = admin.getByRole('dialog', { name: 'Keep your changes?' });
    await dialog.getByRole('button', { name: keep ? 'Keep and sign out' : 'Drop and sign out' }).click();
    await admin.getByLabel('Name').fill('admin');
    await admin.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await admin.getByRole('button', { name: 'Sign in' }).click();
    await expect(typed(admin)).toHaveValue(keep ? '250 / 1m' : '10000 / 1m');
  });
}

test('signing out that fails says so', async ({ admin, server, watch }) => {
  watch.allow(/net::ERR_|dynamically imported|status of/);
  await openTier(admin, 'pro');
  await server.kill();
  await admin.getByRole('button', { name: 'Menu of admin' }).click();
  await admin.getByRole('button', { name: 'Sign out', exact: true }).click();
  const dialog = admin.getByRole('dialog', { name: 'You are still signed in' });
  await expect(dialog.getByRole('alert')).toContainText('The server does not answer');
  await server.start();
  await dialog.getByRole('button', { name: 'Try again' }).click();
  await expect(admin.getByRole('button', { name: 'Sign in' })).toBeVisible();
});
