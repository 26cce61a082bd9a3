/** Windows without room for all columns of a table. */
import { expect, test } from './fixtures.ts';
import { look } from './look.ts';
import { addUser, call, publishPro } from './people.ts';

test('columns that are dropped are under the row, and go on telling what is so', async ({ admin }) => {
  await call(admin, 'POST', '/clients', { kind: 'user', value: 'ada', tier: 'pro', label: 'Ada Ltd.' });
  await admin.setViewportSize({ width: 700, height: 900 });
  await admin.goto('/clients');
  const row = admin.getByRole('row', { name: /user:ada/ });
  const more = row.getByRole('button', { name: 'More of user:ada' });
  const rest = row.locator('.rest');
  await more.click();
  await expect(more).toHaveAttribute('aria-expanded', 'true');
  await expect(rest.getByRole('term')).toHaveText(['Label', 'Last denied', 'Changed']);
  await expect(rest).toContainText('Ada Ltd.');
  await look(admin, 'clients-rest');
  await admin.setViewportSize({ width: 1200, height: 900 });
  await expect(more).toHaveCount(0);
  await expect(rest).toHaveCount(0);
  await admin.setViewportSize({ width: 700, height: 900 });
  await expect(more).toHaveAttribute('aria-expanded', 'false');

  // What it says follows the row.
  await more.press('Enter');
  await expect(rest).toContainText('admin');
  await addUser(admin, 'ben', 'admin');
  await call(admin, 'PATCH', '/clients/user%3Aada', { label: 'Ada and sons' }, { 'if-match': '*' });
  await expect(rest).toContainText('Ada and sons');
  await more.click();
  await expect(rest).toHaveCount(0);
});

test('on the smallest, and what a button of a dropped column does it does there too', async ({ admin }) => {
  await admin.setViewportSize({ width: 360, height: 780 });
  await admin.goto('/nodes');
  const node = admin.getByRole('row', { name: /this server/ });
  await node.getByRole('button', { name: /^More of/ }).click();
  await expect(node.getByRole('term').filter({ hasText: 'Dec/s' })).toBeVisible();
  await expect(node.getByRole('term').filter({ hasText: 'Keys' })).toBeVisible();
  await look(admin, 'nodes-rest');
  await publishPro(admin, 20_000, 'twice');
  await admin.setViewportSize({ width: 360, height: 780 });
  await admin.goto('/tiers');
  // The name, and nothing of what is said of it.
  await expect(admin.getByRole('button', { name: 'More of layered', exact: true })).toBeVisible();
  await admin.goto('/history');
  const version = admin.getByRole('row', { name: /v1\b.*first start/ });
  await version.getByRole('button', { name: /^More of/ }).click();
  await version.getByRole('button', { name: 'Roll back, v1…' }).click();
  await expect(admin.getByRole('dialog')).toContainText('v1');
});
