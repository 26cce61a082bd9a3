/** The Simulator, light and dark: see looks.spec.ts. */
import { expect, test } from './fixtures.ts';
import { look } from './look.ts';
import { limitField, openTier, panel, review, runReviewed } from './steps.ts';

const LOG = [
  'time,ip,api_key,method,path',
  '2026-10-12T06:25:24Z,192.0.2.7,key-7,GET,/v1/search',
  '2026-10-12T06:25:25Z,192.0.2.8,key-8,POST,"/v1/search?q=x,y"',
  'not a line of a log',
].join('\n');

test('looks: Simulator', async ({ admin, watch }) => {
  watch.allow(/status of 4(04|22)/);
  await admin.goto('/simulate');
  await expect(admin.getByText(/No run yet/)).toBeVisible();
  await look(admin, 'simulator');
  await admin.getByLabel('Rate each').first().fill('fast');
  await admin.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(admin.getByRole('alert')).toBeVisible();
  await look(admin, 'simulator-faults');
  await admin.getByRole('radio', { name: 'Log file' }).check();
  await admin.getByLabel('Client in field').fill('api_key');
  await admin.getByLabel('Kind of identity').fill('api_key');
  await admin
    .getByLabel('Log file', { exact: true })
    .last()
    .setInputFiles({ name: 'requests.csv', mimeType: 'text/csv', buffer: Buffer.from(LOG) });
  await expect(admin.getByText('192.0.2.8')).toBeVisible();
  await look(admin, 'simulator-log');
  await admin.getByRole('radio', { name: 'Recorded sample' }).check();
  await expect(admin.getByText(/Nothing is recorded/)).toBeVisible();
  await look(admin, 'simulator-recorded');

  await openTier(admin, 'free');
  await limitField(admin, 'minute', 'Rate').fill('60 / 1m');
  await expect(admin.getByRole('row', { name: /^Draft/ })).toBeVisible();
  await look(admin, 'tier-preview');
  await admin.getByLabel('Traffic').selectOption('as recorded');
  await admin.getByLabel('Client', { exact: true }).fill('user:ada');
  await expect(admin.getByText(/nothing is recorded/).first()).toBeVisible();
  await look(admin, 'tier-preview-recorded');
  await review(admin, 'less for everyone');
  await expect(
    panel(admin)
      .getByText(/^Denied|denied/)
      .first(),
  ).toBeVisible();
  await look(admin, 'publish-impact');
  await runReviewed(admin);
  await look(admin, 'run');
  await admin
    .getByRole('link', { name: /^user:made/ })
    .first()
    .click();
  await admin.getByRole('dialog').getByLabel('Show').selectOption('newly denied');
  await expect(admin.getByRole('dialog').getByText('deny').first()).toBeVisible();
  await look(admin, 'decisions');
  await admin.keyboard.press('Escape');
  await admin.goto('/simulate/gone');
  await expect(admin.getByText('There is no run gone')).toBeVisible();
  await look(admin, 'run-gone');
});
