/** Two browsers edit at once. */
import type { Page } from '@playwright/test';
import { expect, test } from './fixtures.ts';
import { expectInForce, expectLive, limitField, openTier, publishChange, review } from './steps.ts';

test.beforeEach(({ watch }) => watch.allow(/status of 412/));

test('different fields of one tier: both stand, nobody is asked', async ({ admin, other }) => {
  await openTier(admin, 'layered');
  await openTier(other, 'layered');
  await limitField(admin, 'second', 'Burst').fill('30');
  await limitField(other, 'second', 'Rate').fill('15 / 1s');
  await expectLive(other);
  await publishChange(admin, 'burst', 2);

  await expect(other.getByText(/admin published v2 while you edited/)).toBeVisible();
  await expect(limitField(other, 'second', 'Burst')).toHaveValue('30');
  await expect(other.getByText('changed by admin')).toBeVisible();
  await expect(limitField(other, 'second', 'Rate')).toHaveValue('15 / 1s');
  await publishChange(other, 'rate', 3);
  await openTier(admin, 'layered');
  await expect(limitField(admin, 'second', 'Burst')).toHaveValue('30');
  await expect(limitField(admin, 'second', 'Rate')).toHaveValue('15 / 1s');
});

test('the same field: three-way, and nothing is lost', async ({ admin, other }) => {
  await openTier(admin, 'layered');
  await openTier(other, 'layered');
  await limitField(other, 'minute', 'Rate').fill('250 / 1m');
  await limitField(admin, 'minute', 'Rate').fill('300 / 1m');
  await publishChange(admin, 'three hundred', 2);

  await expect(other.getByText('now 300 / 1m (admin), yours 250 / 1m')).toBeVisible();
  await expect(limitField(other, 'minute', 'Rate')).toHaveValue('250 / 1m');
  const dialog = await review(other, 'two fifty');
  const clash = dialog.getByRole('group', { name: 'tier layered, minute rate' });
  await expect(clash).toContainText('Before: 1000 / 1m');
  await dialog.getByRole('button', { name: 'Publish on top of v2' }).click();
  await expect(dialog.getByText('Choose for each field first')).toBeVisible();
  await clash.getByRole('radio', { name: /^Yours/ }).check();
  await dialog.getByRole('button', { name: 'Publish on top of v2' }).click();
  await expectInForce(other, 3);

  await limitField(admin, 'second', 'Rate').fill('11 / 1s');
  await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('250 / 1m');
  await publishChange(admin, 'mine again', 4);
  await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('250 / 1m');
});

/** From here on this browser hears of nothing: only publishing can find out. */
async function deafen(page: Page): Promise<void> {
  await page.route('**/api/v1/tiers/**', (route) => route.abort());
  await page.route('**/api/v1/stream**', (route) => route.abort());
}

test('a conflict that only publishing finds is solved in the panel', async ({ admin, other, watch }) => {
  watch.allow(/ERR_FAILED/);
  await openTier(admin, 'layered');
  await openTier(other, 'layered');
  await limitField(other, 'minute', 'Rate').fill('250 / 1m');
  const dialog = await review(other, 'two fifty');
  await deafen(other);
  await limitField(admin, 'minute', 'Rate').fill('300 / 1m');
  await publishChange(admin, 'three hundred', 2);
  const refused = other.waitForResponse((answer) => answer.status() === 412);
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await refused;
  const clash = dialog.getByRole('group', { name: 'tier layered, minute rate' });
  await clash.getByRole('radio', { name: /^Theirs v2 \(admin\)/ }).check();
  await dialog.getByRole('button', { name: 'Publish on top of v2' }).click();
  await expect(dialog.getByText('Nothing is changed.')).toBeVisible();
});

test('other fields that only publishing finds are merged without a question', async ({
  admin,
  other,
  watch,
}) => {
  watch.allow(/ERR_FAILED/);
  await openTier(admin, 'layered');
  await openTier(other, 'layered');
  await limitField(other, 'minute', 'Rate').fill('250 / 1m');
  const dialog = await review(other, 'two fifty');
  await deafen(other);
  await limitField(admin, 'second', 'Burst').fill('30');
  await publishChange(admin, 'burst', 2);
  const refused = other.waitForResponse((answer) => answer.status() === 412);
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await refused;
  await expectInForce(other, 3);
  await openTier(admin, 'layered');
  await expect(limitField(admin, 'second', 'Burst')).toHaveValue('30');
  await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('250 / 1m');
});

test('different tiers: both stand', async ({ admin, other }) => {
  await openTier(admin, 'layered');
  await openTier(other, 'pro');
  await limitField(other, 'minute', 'Rate').fill('20000 / 1m');
  await limitField(admin, 'minute', 'Rate').fill('300 / 1m');
  await publishChange(admin, 'layered', 2);
  const dialog = await review(other, 'pro');
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await expectInForce(other, 3);
  await openTier(admin, 'layered');
  await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('300 / 1m');
  await openTier(admin, 'pro');
  await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('20000 / 1m');
});

/** Sends a tier to its end from its page. */
async function deleteTier(page: Page, id: string): Promise<void> {
  await openTier(page, id);
  await page.getByRole('button', { name: 'Delete' }).click();
  await expect(page.getByText('This goes with the next version')).toBeVisible();
}

test('what others deleted is created anew, or dropped', async ({ admin, other, watch }) => {
  watch.allow(/status of 404/);
  await openTier(other, 'pro');
  await limitField(other, 'minute', 'Rate').fill('20000 / 1m');
  await expectLive(other);
  await deleteTier(admin, 'pro');
  await publishChange(admin, 'no pro any more', 2);
  await expect(other.getByText('admin deleted tier pro while you edited')).toBeVisible();
  const dialog = await review(other, 'pro again');
  await dialog.getByRole('button', { name: 'Publish on top of v2' }).click();
  await expect(dialog.getByText('Choose for each field first')).toBeVisible();
  await dialog.getByRole('button', { name: 'Create it anew' }).click();
  await expect(dialog.getByRole('row', { name: /limit minute/ })).toContainText('20000 / 1m');
  await dialog.getByRole('button', { name: 'Publish v3' }).click();
  await expectInForce(other, 3);
  await openTier(admin, 'pro');
  await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('20000 / 1m');

  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await limitField(other, 'minute', 'Rate').fill('30000 / 1m');
  await deleteTier(admin, 'pro');
  await publishChange(admin, 'really', 4);
  await expect(other.getByText('admin deleted tier pro while you edited')).toBeVisible();
  const again = await review(other, 'drop it');
  await again.getByRole('button', { name: 'Drop my change' }).click();
  await expect(again.getByText('Nothing is changed.')).toBeVisible();
});

test('a deletion of what others changed meanwhile is asked about', async ({ admin, other, watch }) => {
  watch.allow(/status of 404/);
  await deleteTier(other, 'pro');
  await openTier(admin, 'pro');
  await limitField(admin, 'minute', 'Rate').fill('9000 / 1m');
  await publishChange(admin, 'slower', 2);
  const dialog = await review(other, 'pro is not used');
  await expect(dialog.getByText('admin changed tier pro, which you delete')).toBeVisible();
  const clash = dialog.getByRole('group', { name: 'tier pro' });
  await expect(clash.getByRole('radio', { name: /^Theirs v2/ })).toBeVisible();
  await clash.getByRole('radio', { name: /^Yours: delete it/ }).check();
  await dialog.getByRole('button', { name: 'Publish on top of v2' }).click();
  await expectInForce(other, 3);
});

test('two make a tier of one name: both are put together', async ({ admin, other }) => {
  for (const [page, rate] of [
    [admin, '100 / 1m'],
    [other, '200 / 1m'],
  ] as const) {
    await page.goto('/tiers');
    await page.getByRole('button', { name: 'New tier' }).click();
    const dialog = page.getByRole('dialog', { name: 'New tier' });
    await dialog.getByLabel('Name').fill('gold');
    await dialog.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('group', { name: 'Limit 1' }).getByLabel('Limit', { exact: true }).fill('minute');
    await limitField(page, 'minute', 'Rate').fill(rate);
  }
  await publishChange(admin, 'gold', 2);
  await expect(other.getByText('now 100 / 1m (admin), yours 200 / 1m')).toBeVisible();
  const dialog = await review(other, 'gold too');
  await dialog.getByRole('radio', { name: /^Yours/ }).check();
  await dialog.getByRole('button', { name: 'Publish on top of v2' }).click();
  await expectInForce(other, 3);
});

test('a rule that two edit in different fields', async ({ admin, other }) => {
  await admin.goto('/rules/sign-in');
  await other.goto('/rules/sign-in');
  await other.getByLabel('Cost', { exact: true }).fill('2');
  await expectLive(other);
  await admin.getByLabel('Method', { exact: true }).fill('PUT');
  await publishChange(admin, 'another method', 2, 'is no longer for all requests that it was for');
  await expect(other.getByLabel('Method', { exact: true })).toHaveValue('PUT');
  await expect(other.getByText('changed by admin')).toBeVisible();
  await expect(other.getByLabel('Cost', { exact: true })).toHaveValue('2');
  await publishChange(other, 'dearer', 3);
});
