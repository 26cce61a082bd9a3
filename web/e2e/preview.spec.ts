/** The preview of a tier while it is edited. */
import type { Locator, Page } from '@playwright/test';
import { expect, readOnly, test, withSettings } from './fixtures.ts';
import { limitField, openTier } from './steps.ts';
import { within } from './within.ts';

/** Every caller is in the sample. */
const recording = withSettings('--record', '1/1');

const table = (page: Page) => page.getByRole('region', { name: 'Preview: one client' });
const row = (page: Page, policy: string) => table(page).getByRole('row', { name: new RegExp(`^${policy}`) });

/** Allowed and denied. */
async function numbers(of: Locator, first = 0): Promise<number[]> {
  const cells = await of.getByRole('cell').allTextContents();
  return cells.slice(first, first + 2).map((text) => Number(/[\d,]+/.exec(text)?.[0].replaceAll(',', '')));
}

readOnly('follows what is typed, and waits while a field is wrong', async ({ admin }) => {
  await openTier(admin, 'free');
  await expect(row(admin, 'Published')).toBeVisible();
  await expect(row(admin, 'Draft')).toHaveCount(0);
  const [, before = 0] = await numbers(row(admin, 'Published'));
  expect(before).toBeGreaterThan(0);

  await limitField(admin, 'minute', 'Rate').fill('150 / 1m');
  await expect(row(admin, 'Draft')).toBeVisible();
  const [, after = 0] = await numbers(row(admin, 'Draft'));
  expect(after).toBeGreaterThan(0);
  expect(after).toBeLessThan(before);
  await expect(admin.getByRole('img', { name: `Draft: ` })).toBeVisible();

  await limitField(admin, 'minute', 'Rate').fill('many');
  await expect(admin.getByText('Fix the fields that need a look')).toBeVisible();
  expect(await numbers(row(admin, 'Draft'))).toEqual([600 - after, after]);
  await limitField(admin, 'minute', 'Rate').fill('200 / 1m');
  await expect(row(admin, 'Draft').getByRole('cell').nth(1)).toHaveText('0');
  await expect(row(admin, 'Draft').getByRole('cell').nth(2)).toHaveText('–');

  await admin.getByLabel('Traffic').selectOption('burst, then steady');
  await admin.getByLabel('At once').fill('1000');
  await expect(row(admin, 'Draft').getByRole('cell').nth(1)).toHaveText(/^[1-9],?\d+$/);
  await admin.getByLabel('For', { exact: true }).fill('a while');
  await expect(admin.getByText('A length: 250ms')).toBeVisible();
});

readOnly('an answer to what was typed before is dropped', async ({ admin }) => {
  await openTier(admin, 'free');
  await expect(row(admin, 'Published')).toBeVisible();
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  const seen: string[] = [];
  await admin.route('**/simulations/preview', async (route) => {
    const body = route.request().postData() ?? '';
    seen.push(body);
    if (body.includes('"limit":1,')) await held;
    await route.continue().catch(() => undefined);
  });
  const asked = (part: string) => expect.poll(() => seen.some((body) => body.includes(part))).toBe(true);
  await limitField(admin, 'minute', 'Rate').fill('1 / 1m');
  await asked('"limit":1,');
  await limitField(admin, 'minute', 'Rate').fill('200 / 1m');
  await asked('"limit":200,');
  await expect(row(admin, 'Draft').getByRole('cell').nth(1)).toHaveText('0');
  release();
  await admin.unrouteAll({ behavior: 'wait' });
  await expect(row(admin, 'Draft').getByRole('cell').nth(1)).toHaveText('0');
});

for (const [algorithm, traffic] of [
  ['Token bucket', 'burst, then steady'],
  ['Fixed window', 'at random'],
  ['Sliding window counter', 'waves'],
] as const) {
  test(`says what a run says: ${algorithm}, ${traffic}`, async ({ admin }) => {
    await openTier(admin, 'free');
    await limitField(admin, 'minute', 'Algorithm').selectOption({ label: algorithm });
    await limitField(admin, 'minute', 'Rate').fill('70 / 1m');
    await admin.getByLabel('Traffic').selectOption(traffic);
    const answered = admin.waitForResponse(async (answer) => {
      if (!answer.url().endsWith('/preview') || !answer.ok()) return false;
      return (answer.request().postData() ?? '').includes('"rate":170,');
    });
    await admin.locator('#preview-rate').fill('170 / 1m');
    const told = (await (await answered).json()) as Record<string, { allowed: number; denied: number }>;
    const [draft, published] = ['draft', 'published'].map((side) => [
      told[side]?.allowed,
      told[side]?.denied,
    ]);
    await expect.poll(() => numbers(row(admin, 'Draft'))).toEqual(draft);
    expect(await numbers(row(admin, 'Published'))).toEqual(published);
    expect(draft).not.toEqual(published);

    await admin.getByRole('link', { name: 'Open in Simulator' }).click();
    await admin.getByLabel('Seed').fill('1');
    // When previews begin, a Monday that is the first of a year.
    await admin.getByLabel('Start').fill('2024-01-01');
    await admin.getByRole('button', { name: 'Run', exact: true }).click();
    const result = admin.getByRole('region', { name: 'Result' });
    await expect(result).toBeVisible({ timeout: within(30_000) });
    expect(await numbers(result.getByRole('row', { name: /^A/ }), 1)).toEqual(published);
    expect(await numbers(result.getByRole('row', { name: /^B 1 change/ }), 1)).toEqual(draft);
  });
}

recording('a client’s own last requests, as they were recorded', async ({ admin, server, watch }) => {
  watch.allow(/status of 422/);
  for (let at = 0; at < 12; at++) await server.check('ada');
  await openTier(admin, 'free');
  await expect(row(admin, 'Published')).toBeVisible();
  await limitField(admin, 'minute', 'Rate').fill('5 / 1h');
  await admin.getByLabel('Traffic').selectOption('as recorded');
  await expect(admin.getByText('A kind and a value: user:ada')).toBeVisible();
  await admin.getByLabel('Client', { exact: true }).fill('user:nobody');
  await expect(
    admin.getByText(/`user:nobody` sent no request to the domain `default`/).first(),
  ).toBeVisible();
  await admin.getByLabel('Client', { exact: true }).fill('user:ada');
  await expect(admin.getByText(/^12 requests as recorded, from/)).toBeVisible();
  expect(await numbers(row(admin, 'Draft'))).toEqual([5, 7]);
  expect(await numbers(row(admin, 'Published'))).toEqual([12, 0]);
  await admin.getByLabel('Traffic').selectOption('steady');
  await expect(admin.getByText(/requests as recorded/)).toHaveCount(0);
});

readOnly('without a recorder it says why there is nothing to show', async ({ admin, watch }) => {
  watch.allow(/status of 422/);
  await openTier(admin, 'free');
  await admin.getByLabel('Traffic').selectOption('as recorded');
  await admin.getByLabel('Client', { exact: true }).fill('user:ada');
  await expect(admin.getByText(/nothing is recorded; start the server with --record/).first()).toBeVisible();
});
