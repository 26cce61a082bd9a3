/** What people write of tiers and rules, and other names for them. */
import { expect, test } from './fixtures.ts';
import { expectInForce, limitField, openTier, panel, publishChange, review } from './steps.ts';

test('a description and a note are written, shown, found and compared', async ({ admin }) => {
  await openTier(admin, 'free');
  await admin.getByLabel('Description').fill('Whoever signed up.\nNo card was asked for.');
  const dialog = await review(admin, 'say who is free');
  await expect(dialog.getByRole('row', { name: /description/ })).toContainText('No card was asked for.');
  await expect(dialog.getByLabel('Yes, that is meant')).toBeHidden();
  await dialog.getByRole('button', { name: 'Publish v2' }).click();
  await expectInForce(admin, 2);
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await admin.goto('/rules/sign-in');
  await admin.getByLabel('Note').fill('asked for by Security');
  await publishChange(admin, 'why it is there', 3);

  await admin.goto('/tiers');
  const row = admin.getByRole('row', { name: /free/ });
  await expect(row.getByRole('link')).toHaveAttribute('title', /No card was asked for/);
  await admin.setViewportSize({ width: 1440, height: 900 });
  await expect(row.getByText('Whoever signed up.')).toBeVisible();
  const box = await row.boundingBox();
  expect(box?.height, 'it stays one line').toBeLessThan(36);
  await admin.getByLabel('Filter').fill('NO CARD');
  await expect(admin.getByRole('row', { name: /pro/ })).toBeHidden();
  await expect(row).toBeVisible();
  await admin.getByLabel('Filter').fill('');
  await admin.getByLabel('Compare free').check();
  await admin.getByLabel('Compare pro').check();
  await admin.getByRole('button', { name: 'Compare both' }).click();
  await expect(admin.getByRole('dialog').getByRole('row', { name: /≠ description/ })).toContainText(
    'No card',
  );
  await admin.goto('/rules?filter=security');
  await expect(admin.getByRole('row', { name: /sign-in/ })).toContainText('asked for by Security');
  await admin.goto('/rules?filter=sales');
  await expect(admin.getByRole('row', { name: /sign-in/ })).toBeHidden();
});

test('a tier is renamed with all that names it, and its page goes along', async ({
  admin,
  server,
  watch,
}) => {
  // It is looked for where it was.
  watch.allow(/status of 404/);
  for (let at = 0; at < 60; at += 1) await server.check('ada');
  await openTier(admin, 'free');
  await admin.getByRole('button', { name: 'Rename…' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Rename tier free' });
  await expect(dialog.getByText(/Default tier of .*user/)).toBeVisible();
  await expect(dialog.getByText(/Counters belong to names/)).toBeVisible();
  const name = dialog.getByLabel('New name');
  for (const [typed, fault] of [
    ['free', 'That is its name already'],
    ['pro', 'There is a tier of this name'],
    ['Basic', 'Small letters'],
  ] as const) {
    await name.fill(typed);
    await dialog.getByRole('button', { name: 'Add to my changes' }).click();
    await expect(name).toHaveAttribute('aria-invalid', 'true');
    await expect(dialog.getByText(fault)).toBeVisible();
  }
  await name.fill('basic');
  await dialog.getByRole('button', { name: 'Add to my changes' }).click();
  await expect(admin.getByText('It is called basic from the next version')).toBeVisible();
  // Edited in the same step, and after a reload.
  await admin.reload();
  await limitField(admin, 'minute', 'Rate').fill('200 / 1m');
  const publish = await review(admin, 'free is called basic');
  await expect(publish.getByRole('row', { name: /^name/ })).toContainText(/free.*basic/);
  await expect(publish.getByText('What names it follows in this version.')).toBeVisible();
  await publish.getByRole('button', { name: 'Publish v2' }).click();
  await expectInForce(admin, 2);
  await publish.getByRole('button', { name: 'Close' }).last().click();
  await expect(admin.getByRole('heading', { level: 1, name: 'Tier basic' })).toBeVisible();
  await expect(admin.getByText(/Default tier of .*user/)).toBeVisible();
  const { decision } = await server.check('ada');
  expect([decision.limit_id, decision.remaining]).toEqual(['default/tier:basic/minute', 199]);
});

test('a name that somebody else took meanwhile is told, and another one holds', async ({
  admin,
  other,
  watch,
}) => {
  watch.allow(/status of (404|422)/);
  await openTier(admin, 'free');
  await admin.getByRole('button', { name: 'Rename…' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Rename tier free' });
  await dialog.getByLabel('New name').fill('basic');
  await dialog.getByRole('button', { name: 'Add to my changes' }).click();
  const who = (await (await other.request.get('/api/v1/session')).json()) as { csrf: string };
  const made = await other.request.post('/api/v1/tiers', {
    data: { id: 'basic', unlimited: true },
    headers: { 'x-csrf-token': who.csrf },
  });
  expect(made.status()).toBe(201);
  const publish = await review(admin, 'free is called basic');
  await publish.getByRole('button', { name: /^Publish/ }).click();
  await expect(
    panel(admin).getByText('there is a tier `basic` already; choose another name').first(),
  ).toBeVisible();
  await publish.getByRole('button', { name: 'Cancel' }).click();
  await admin.getByRole('button', { name: 'Rename…' }).click();
  await dialog.getByLabel('New name').fill('entry');
  await dialog.getByRole('button', { name: 'Add to my changes' }).click();
  await publishChange(admin, 'free is called entry', 3);
  await expect(admin.getByRole('heading', { level: 1, name: 'Tier entry' })).toBeVisible();
});

test('a rule is renamed', async ({ admin, watch }) => {
  watch.allow(/status of 404/);
  await admin.goto('/rules/sign-in');
  await admin.getByRole('button', { name: 'Rename…' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Rename rule sign-in' });
  await expect(dialog.getByText('Nothing names it.')).toBeVisible();
  await dialog.getByLabel('New name').fill('login');
  await dialog.getByRole('button', { name: 'Add to my changes' }).click();
  await publishChange(admin, 'sign-in is called login', 2);
  await expect(admin.getByRole('heading', { level: 1, name: 'Rule login' })).toBeVisible();
});
