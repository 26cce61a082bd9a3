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
