/** Two domains: which one is looked at stands in the address, and goes along. */
import { expect, test } from './fixtures.ts';
import { call } from './people.ts';

const SHOP = `[domains.shop]
defaults = { user = "pro" }
[[domains.shop.tiers]]
id = "pro"
limits = [{ id = "hour", algorithm = "token_bucket", limit = 7, period = "1h" }]
`;

test('the domain goes along from page to page, and through a reload', async ({ admin }) => {
  await admin.goto('/');
  const domain = admin.getByLabel('Domain');
  await expect(admin.getByRole('heading', { name: 'Overview' })).toBeVisible();
  await expect(domain).toHaveCount(0);
  const files = [{ name: 'shop.toml', text: SHOP }];
  const etag = (await admin.request.get('/api/v1/policy')).headers()['etag'] ?? '';
  await call(admin, 'POST', '/policy/import?missing=keep&message=a%20shop', { files }, { 'if-match': etag });
  await expect(domain).toHaveValue('default');
  await domain.selectOption('shop');
  for (const page of ['Tiers', 'Nodes', 'History', 'Inspector', 'Overview']) {
    await admin.getByRole('link', { name: page, exact: true }).click();
    await expect(admin.getByRole('heading', { level: 1, name: page })).toBeVisible();
    await expect(domain).toHaveValue('shop');
    await admin.reload();
    await expect(domain).toHaveValue('shop');
  }
  await admin.getByRole('link', { name: 'Policy v2 on 1 of 1 node' }).click();
  await admin.getByRole('link', { name: 'Tiers', exact: true }).click();
  await admin.getByRole('link', { name: 'pro', exact: true }).click();
  await expect(admin.getByRole('group', { name: 'Limit hour' })).toBeVisible();
});
