/** Pages are read when they are first gone to. */
import { docs } from '../app/lib/text/states.ts';
import { expect, readOnly } from './fixtures.ts';

readOnly(
  'a page whose script does not come says so, and comes with a second try',
  async ({ admin, watch }) => {
    watch.allow(/ERR_FAILED/);
    await admin.goto('/');
    await expect(admin.getByRole('heading', { name: 'Overview' })).toBeVisible();
    await admin.route('**/assets/Tiers-*.js', (route) => route.abort());
    await admin.getByRole('link', { name: 'Tiers' }).click();
    await expect(admin.getByRole('alert')).toContainText('This page could not be read');
    await expect(admin.getByRole('button', { name: 'Reload' })).toBeVisible();
    await admin.getByRole('link', { name: 'Overview' }).click();
    await expect(admin.getByRole('heading', { name: 'Overview' })).toBeVisible();
    await admin.getByRole('link', { name: 'Tiers' }).click();
    await expect(admin.getByRole('alert')).toBeVisible();
    await admin.unroute('**/assets/Tiers-*.js');
    await admin.getByRole('button', { name: 'Try again' }).click();
    await expect(admin.getByRole('heading', { name: 'Tiers' })).toBeFocused();
    await expect(admin.getByRole('row', { name: /\bpro\b/ })).toBeVisible();
  },
);

readOnly('a page whose script takes its time is loading', async ({ admin }) => {
  await admin.goto('/');
  await expect(admin.getByRole('heading', { name: 'Overview' })).toBeVisible();
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  await admin.route('**/assets/History-*.js', async (route) => {
    await held;
    await route.continue();
  });
  await admin.getByRole('link', { name: 'History' }).click();
  await expect(admin.getByText('Loading…')).toBeVisible();
  release();
  await expect(admin.getByRole('heading', { name: 'History' })).toBeVisible();
});

readOnly('what is empty leads to a part of the documents that there is', async ({ admin }) => {
  const documents = await (await admin.request.get('/docs/api')).text();
  for (const about of Object.keys(docs)) expect(documents).toContain(`id="${about}"`);
  await admin.goto('/clients');
  const link = admin.getByRole('link', { name: 'REST calls for clients' });
  await expect(link).toHaveAttribute('href', '/docs/api#clients');
});
