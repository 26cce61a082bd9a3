/** The first story: from the printed link to a limit that holds. */
import { expect, fromNothing, PASSWORD, test } from './fixtures.ts';
import type { Server } from './server.ts';
import { expectInForce, expectLive, limitField, openTier, review } from './steps.ts';

/** Asks as one user until the process denies: what it admits is a full bucket of so many a minute. */
async function expectBucket(server: Server, user: string, limit: number): Promise<void> {
  const begun = Date.now();
  let allowed = 0;
  let status;
  while ((status = (await server.check(user)).status) === 200) allowed += 1;
  expect(status).toBe(429);
  expect(allowed).toBeGreaterThanOrEqual(limit);
  // It refills meanwhile.
  expect(allowed).toBeLessThanOrEqual(Math.ceil(limit + ((Date.now() - begun) / 1000) * (limit / 60)));
}

fromNothing(
  'first administrator, first edit, its preview, what was used stays used, and the way back',
  async ({ server, browser, watch }) => {
    watch.allow(/status of 422/);
    const context = await browser.newContext({ baseURL: server.dashboard });
    const page = await context.newPage();
    await page.goto(server.signInLink);
    await expect(page.getByLabel('Name')).toHaveValue('admin');
    await page.getByLabel('Password', { exact: true }).fill('short');
    await page.getByRole('button', { name: 'Create and sign in' }).click();
    await expect(page.getByLabel('Password', { exact: true })).toHaveAttribute('aria-invalid', 'true');
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Create and sign in' }).click();

    await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
    expect(page.url()).toBe(`${server.dashboard}/`);
    await expectLive(page);
    await expect(page.getByText('No decision yet')).toBeVisible();
    await expect(page.getByRole('region', { name: 'Command' })).toContainText(`${server.checks}/v1/check`);

    await expectBucket(server, 'ada', 100);
    const spent = Date.now();

    await page.getByRole('link', { name: 'Tiers' }).click();
    await expect(page.getByRole('row', { name: /\bfree\b/ })).toContainText('100 / 1m');
    await page.getByRole('link', { name: 'free', exact: true }).click();
    await limitField(page, 'minute', 'Rate').fill('1000 per minute');
    await expect(page.getByText('draft', { exact: true })).toBeVisible();
    const preview = page.getByRole('region', { name: 'Preview: one client' });
    const denied = (policy: RegExp) => preview.getByRole('row', { name: policy }).getByRole('cell').nth(1);
    await expect(denied(/^Draft/)).toHaveText('0');
    await expect(denied(/^Published/)).toHaveText(/^[1-9]/);
    const dialog = await review(page, 'more for everyone');
    await expect(dialog.getByRole('row', { name: /minute rate/ })).toContainText('1000 / 1m');
    await dialog.getByRole('button', { name: 'Publish v2' }).click();
    await expect(dialog.getByText('Tick the box if that is meant')).toBeVisible();
    await dialog.getByLabel('Yes, that is meant').check();
    await dialog.getByRole('button', { name: 'Publish v2' }).click();
    await expectInForce(page, 2);

    const { status, decision } = await server.check('ada');
    expect(status).toBe(200);
    // 900 were left when it was published, less the one just asked; refilled since at most as fast as the new rate.
    const refilled = ((Date.now() - spent) / 1000) * (1000 / 60) + 1;
    expect(decision.remaining).toBeGreaterThanOrEqual(899);
    expect(decision.remaining).toBeLessThanOrEqual(Math.ceil(899 + refilled));

    await dialog.getByRole('link', { name: 'See it in History' }).click();
    await expect(page.getByRole('heading', { level: 1, name: 'Version v2' })).toBeVisible();
    await page.getByRole('link', { name: 'History' }).first().click();
    const row = page.getByRole('row', { name: /v2/ });
    await expect(row).toContainText('more for everyone');
    await expect(row).toContainText('newest');
    await expect(row).toContainText('admin');

    await page.getByRole('button', { name: 'Roll back, v1…' }).click();
    const back = page.getByRole('dialog', { name: 'Roll back, v1' });
    await back.getByRole('button', { name: 'Publish v3' }).click();
    await expect(back.getByText('v3 in force')).toBeVisible();
    await expectBucket(server, 'grace', 100);
    await context.close();
  },
);

test('another algorithm decides the next check', async ({ admin, server }) => {
  await openTier(admin, 'free');
  await limitField(admin, 'minute', 'Algorithm').selectOption({ label: 'Fixed window' });
  const dialog = await review(admin, 'windows are easier to explain');
  await expect(dialog.getByRole('row', { name: /minute algorithm/ })).toContainText('fixed_window');
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await expectInForce(admin, 2);
  const untilMinute = () => 60_000 - (Date.now() % 60_000);
  const before = untilMinute();
  const { decision } = await server.check('grace');
  // A bucket would need less than a second to be full again.
  expect(decision.remaining).toBe(99);
  const untilFull = Number(decision.reset_after_ms);
  const after = untilMinute();
  const [isAfter, isBefore] = [untilFull <= before + 1_000, untilFull >= after - 1_000];
  // The next minute may have begun meanwhile.
  const isUntilMinute = after <= before ? isAfter && isBefore : isAfter || isBefore;
  expect(isUntilMinute, `${before} ms to the minute, full in ${untilFull}, then ${after}`).toBe(true);
});

fromNothing('a setup link works once', async ({ admin, server, watch }) => {
  watch.allow(/status of 404/);
  await admin.goto(server.signInLink);
  await expect(admin.getByRole('alert')).toContainText('An administrator exists already');
  await admin.getByRole('link', { name: 'Go to sign-in' }).click();
  await expect(admin.getByRole('heading', { name: 'Overview' })).toBeVisible();
});

fromNothing('a wrong setup code says how to get a new one', async ({ server, browser, watch }) => {
  watch.allow(/status of 404/);
  const page = await browser.newPage({ baseURL: server.dashboard });
  await page.goto('/setup#code=wrong');
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.getByRole('button', { name: 'Create and sign in' }).click();
  await expect(page.getByRole('alert')).toContainText('restart tidegate');
  // The new link into the same tab, which does not load the page anew.
  await page.evaluate((link) => (location.href = link), server.signInLink);
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.getByRole('button', { name: 'Create and sign in' }).click();
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
  await page.close();
});

test('sign-in goes where it was asked for, and says one thing for both faults', async ({ admin, watch }) => {
  watch.allow(/status of (401|404)/);
  await admin.context().clearCookies();
  await admin.goto('/tiers/pro?filter=x');
  await admin.getByLabel('Name').fill('admin');
  await admin.getByLabel('Password', { exact: true }).fill('wrong and long enough');
  await admin.getByRole('button', { name: 'Sign in' }).click();
  await expect(admin.getByRole('alert')).toContainText(
    /Wrong name or password\. \d tries left before a wait\./,
  );
  await admin.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await admin.getByRole('button', { name: 'Sign in' }).click();
  await expect(admin.getByRole('heading', { name: 'Tier pro' })).toBeVisible();
  expect(new URL(admin.url()).pathname).toBe('/tiers/pro');
});

test('counts move while traffic flows, and the rows stand still', async ({ admin, server }) => {
  await admin.goto('/');
  await expectLive(admin);
  const row = admin.locator('[data-limit="default/tier:free/minute"]');
  await expect(row).toBeVisible();
  const names = () =>
    admin.locator('[data-limit]').evaluateAll((rows) => rows.map((one) => one.getAttribute('data-limit')));
  const order = await names();
  const flow = setInterval(() => void server.check('grace').catch(() => undefined), 20);
  try {
    const count = async () =>
      Number((await row.locator('[data-figure=allowed]').textContent())?.replaceAll(',', ''));
    await expect.poll(count).toBeGreaterThan(0);
    const first = await count();
    await expect.poll(count).toBeGreaterThan(first);
    await expect(admin.getByRole('img', { name: /Allowed .* a second/ })).toBeVisible();
    await admin.getByRole('button', { name: 'Show as table' }).click();
    const table = admin.getByRole('region', { name: 'Decisions a second, table' });
    await expect.poll(() => table.getByRole('row').count()).toBeGreaterThan(1);
  } finally {
    clearInterval(flow);
  }
  expect(await names()).toEqual(order);
  await row.getByRole('link').click();
  await expect(admin.getByRole('heading', { name: 'Tier free' })).toBeFocused();
});

test('the server has the last word, at the field', async ({ admin, watch }) => {
  watch.allow(/status of 422/);
  await openTier(admin, 'layered');
  await limitField(admin, 'second', 'Burst').fill('9007199254740991');
  const dialog = await review(admin, 'too much');
  await dialog.getByRole('button', { name: 'Publish v2' }).click();
  await expect(dialog.getByRole('alert')).toBeVisible();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await expect(limitField(admin, 'second', 'Burst')).toHaveAttribute('aria-invalid', 'true');
  await expect(limitField(admin, 'second', 'Burst')).toHaveValue('9007199254740991');
});
