/** The settings of a domain, and the file that a policy is kept in. */
import { writeFile } from 'node:fs/promises';
import { expect, test } from './fixtures.ts';
import { limitField, openTier, publishChange, review } from './steps.ts';

const POLICY = `[domains.default]
defaults = { ip = "free", user = "free" }
[[domains.default.tiers]]
id = "free"
limits = [{ id = "minute", algorithm = "token_bucket", limit = 100, period = "1m" }]
`;

test('default tiers and the answers of doors are set by the change list', async ({
  admin,
  server,
  watch,
}) => {
  watch.allow(/status of 422/);
  await admin.goto('/tiers');
  await admin.getByRole('link', { name: 'Domain settings' }).click();
  await expect(admin.getByRole('heading', { level: 1, name: 'Domain default' })).toBeVisible();
  await admin.getByLabel('user', { exact: true }).selectOption('pro');
  await admin.getByLabel('Kind of identity').fill('tenant');
  await admin.keyboard.press('Enter');
  await expect(admin.getByLabel('tenant', { exact: true })).toBeFocused();
  await admin.getByLabel('tenant', { exact: true }).selectOption('layered');
  await admin.getByRole('button', { name: 'Remove the default tier of api_key' }).click();
  await admin.getByLabel('Response headers').selectOption('ietf');
  await admin.getByLabel('Time zone').fill('Europe/Nowhere');
  let dialog = await review(admin, 'pro for users');
  await expect(dialog.getByRole('row', { name: 'default tier of user' })).toContainText('pro');
  await expect(dialog.getByRole('row', { name: 'default tier of api_key' })).toContainText('nothing');
  await dialog.getByRole('button', { name: 'Publish v2' }).click();
  await expect(dialog.getByText('no time zone is called').first()).toBeVisible();
  await dialog.getByRole('button', { name: 'Edit domain default' }).click();
  await expect(admin.getByLabel('Time zone')).toHaveAttribute('aria-invalid', 'true');
  await expect(admin.getByText('no time zone is called')).toBeVisible();
  await admin.getByLabel('Time zone').fill('Europe/Berlin');
  await publishChange(admin, 'pro for users', 2, 'for each api_key without a tier of its own');
  await admin.reload();
  await expect(admin.getByLabel('tenant', { exact: true })).toHaveValue('layered');
  await expect(admin.getByLabel('Time zone')).toHaveValue('Europe/Berlin');
  await expect(admin.getByLabel('api_key', { exact: true })).toBeHidden();
  expect((await server.check('ada')).decision.limit_id).toBe('default/tier:pro/minute');
  // What lets requests through is asked for.
  await admin.getByLabel('When nothing can be decided').selectOption('closed');
  await publishChange(admin, 'closed doors', 3);
  await admin.getByLabel('When nothing can be decided').selectOption('open');
  dialog = await review(admin, 'open doors');
  await expect(dialog.getByLabel('Yes, that is meant')).toBeVisible();
});

test.describe('a policy in a file', () => {
  const inFile = test.extend<{ file: string }>({
    file: async ({}, use, testInfo) => {
      const file = testInfo.outputPath('policy.toml');
      await writeFile(file, POLICY);
      await use(file);
    },
    start: async ({ file }, use) => use({ settings: ['--policy', file] }),
  });

  inFile('that differs from what is in force is told', async ({ admin, file }) => {
    await openTier(admin, 'free');
    await limitField(admin, 'minute', 'Rate').fill('200 / 1m');
    await admin.goto('/tiers');
    await expect(admin.getByRole('row', { name: /free/ })).toBeVisible();
    await expect(admin.getByText(/The policy file/)).toBeHidden();
    await openTier(admin, 'free');
    await publishChange(admin, 'more for free', 3);
    for (const page of ['/tiers', '/history']) {
      await admin.goto(page);
      await expect(admin.getByText(`tidegate policy diff ${file} --live`)).toBeVisible();
    }
    await writeFile(file, POLICY.replace('100', '200'));
    await admin.reload();
    await expect(admin.getByRole('row', { name: /more for free/ })).toBeVisible();
    await expect(admin.getByText(/The policy file/)).toBeHidden();
  });
});
