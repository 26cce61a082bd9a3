/** Nothing typed is ever lost: not to a reload, an ended session, a dead server, or signing out. */
import type { Page } from '@playwright/test';
import { expect, PASSWORD, test } from './fixtures.ts';
import { expectInForce, expectLive, limitField, openTier, review } from './steps.ts';

const type = (page: Page, text: string) => limitField(page, 'minute', 'Rate').fill(text);
const typed = (page: Page) => limitField(page, 'minute', 'Rate');

test('a reload keeps the change list, also what is half typed', async ({ admin }) => {
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
  await expect(again).toBeVisible({ timeout: 5_000 });
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

test('a server that dies and comes back: text kept, and live again by itself', async ({
  admin,
  server,
  watch,
}) => {
  watch.allow(/net::ERR_|dynamically imported/);
  await openTier(admin, 'pro');
  await expectLive(admin);
  await type(admin, '250 / 1m');
  // Its script is read ahead, and is not asked for again.
  const read = () => performance.getEntriesByType('resource').map(({ name }) => name);
  await expect.poll(() => admin.evaluate(read)).toContainEqual(expect.stringContaining('/PublishPanel-'));
  await server.kill();
  await expect(admin.getByText(/^○ ?Not live since \d\d:\d\d:\d\d$/)).toBeVisible({ timeout: 15_000 });
  await expect(admin.getByText(/the server does not answer/)).toBeVisible({ timeout: 15_000 });
  const dialog = await review(admin, 'while it is down');
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await expect(dialog.getByRole('alert')).toContainText('No answer came');
  await server.start();
  await expect(admin.getByText(/^● ?Live$/)).toBeVisible({ timeout: 5_000 });
  await expect(admin.getByText(/the server does not answer/)).toBeHidden();
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await expectInForce(admin, 2);
  await expect(typed(admin)).toHaveValue('250 / 1m');
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
