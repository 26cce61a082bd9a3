/** A hundred thousand clients: imported, found, scrolled, and changed at once. What is measured is told. */
import { chooseFile } from './clientsteps.ts';
import { expect, test } from './fixtures.ts';
import { drawnMs, scrollMs } from './frames.ts';

const CLIENTS = 100_000;
/** Of what is asked of the server. */
const LIST = '/api/v1/clients?';

test('a hundred thousand clients', { tag: '@all' }, async ({ admin, watch }, info) => {
  test.setTimeout(300_000);
  watch.allow(/status of 412/);
  const tell = (what: string, ms: number) => {
    const description = `${what}: ${Math.round(ms)} ms`;
    process.stdout.write(`${description}\n`);
    info.annotations.push({ type: 'measured', description });
  };
  await admin.goto('/clients');
  await admin.getByRole('button', { name: 'Import' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Import clients' });
  const lines = Array.from({ length: CLIENTS }, (_, at) => {
    const id = String(at).padStart(5, '0');
    return `user,u-${id},${at % 2 === 0 ? 'pro' : 'free'},Client ${id}`;
  });
  let begun = Date.now();
  await chooseFile(admin, ['kind,value,tier,label', ...lines]);
  await expect(dialog.getByLabel('New 100,000')).toBeChecked({ timeout: 60_000 });
  tell('a file of 100,000 tried', Date.now() - begun);
  await dialog.getByLabel('Type 100,000 to confirm').fill('100k');
  begun = Date.now();
  await dialog.getByRole('button', { name: 'Publish v2' }).click();
  await expect(dialog.getByText('v2 in force')).toBeVisible({ timeout: 60_000 });
  tell('and imported', Date.now() - begun);
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await expect(admin.getByText('100,000 clients')).toBeVisible();

  await admin.getByRole('link', { name: 'Rules' }).click();
  await expect(admin.getByRole('link', { name: 'sign-in' })).toBeVisible();
  const open = () => admin.getByRole('link', { name: 'Clients' }).click();
  tell('the list drawn after the answer', await drawnMs(admin, open, LIST));
  await expect(admin.getByRole('link', { name: 'user:u-00099' })).toBeVisible();
  const filter = admin.getByLabel('Filter');
  const find = () => filter.fill('user:u-99');
  tell('what was looked for drawn after the answer', await drawnMs(admin, find, LIST));
  await expect(admin.getByText('1,000 clients')).toBeVisible();
  await expect(admin.getByRole('link', { name: 'user:u-99000' })).toBeVisible();
  const more = () => admin.getByRole('button', { name: 'Show more' }).click();
  for (let rows = 200; rows < 1_000; rows += 100) {
    await more();
    await expect(admin.getByRole('link', { name: /user:u-/ })).toHaveCount(rows);
  }
  tell('the tenth page drawn after the answer', await drawnMs(admin, more, LIST));
  await expect(admin.getByRole('link', { name: /user:u-/ })).toHaveCount(1_000);
  tell('the longest frame while 1,000 rows were scrolled', await scrollMs(admin));

  // More than the server counts in a list: their number is asked for when it is known.
  await filter.fill('');
  await admin.getByLabel('Tier', { exact: true }).selectOption('pro');
  await expect(admin.getByText('more than 10,000 clients')).toBeVisible();
  await admin.getByRole('checkbox', { name: 'Select user:u-00000' }).check();
  await admin.getByRole('button', { name: 'Change all that match…' }).click();
  const bulk = admin.getByRole('dialog', { name: 'Change many clients' });
  await bulk.getByLabel('Tier', { exact: true }).selectOption('layered');
  await bulk.getByLabel('Message').fill('all of pro are layered');
  await bulk.getByRole('button', { name: 'Publish v3' }).click();
  await expect(bulk.getByText('50,000 clients match by now. Nothing was changed')).toBeVisible();
  await bulk.getByLabel('Type 50,000 to confirm').fill('50,000');
  begun = Date.now();
  await bulk.getByRole('button', { name: 'Publish v3' }).click();
  await expect(bulk.getByText('v3 in force')).toBeVisible({ timeout: 60_000 });
  tell('50,000 clients changed at once', Date.now() - begun);
});
