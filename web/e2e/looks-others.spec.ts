/** What stands over pages or comes seldom: signing in, lost servers, menus, and dialogs that the other looks leave out. */
import { expect, readOnly, test } from './fixtures.ts';
import { look } from './look.ts';
import { FleetNode, nodeToken } from './nodes.ts';
import { call, publishPro } from './people.ts';
import { expectLive, openTier } from './steps.ts';
import { within } from './within.ts';

test('looks: signing in, and without a server', async ({ admin, server, watch }) => {
  watch.allow(/status of (401|404)|net::ERR_|dynamically imported|preload assets/);
  await admin.goto('/');
  await expectLive(admin);
  const cookies = await admin.context().cookies();
  await admin.context().clearCookies();
  await admin.goto('/tiers');
  await expect(admin.getByLabel('Name')).toBeVisible();
  await look(admin, 'sign-in');
  await admin.getByLabel('Name').fill('admin');
  await admin.getByLabel('Password', { exact: true }).fill('wrong and long enough');
  await admin.getByRole('button', { name: 'Sign in' }).click();
  await expect(admin.getByRole('alert')).toBeVisible();
  await look(admin, 'sign-in-refused');
  await admin.context().addCookies(cookies);
  await admin.goto('/tiers');
  await expectLive(admin);
  await admin.setViewportSize({ width: 360, height: 780 });
  await admin.getByRole('button', { name: 'Menu', exact: true }).click();
  await look(admin, 'rail');
  await admin.route('**/assets/Rules-*.js', (route) => route.abort());
  await admin.setViewportSize({ width: 1200, height: 900 });
  await admin.getByRole('link', { name: 'Rules' }).click();
  await expect(admin.getByRole('alert')).toBeVisible();
  await look(admin, 'page-failed');
  await openTier(admin, 'pro');
  await expectLive(admin);
  await server.kill();
  await expect(admin.getByText(/the server does not answer/)).toBeVisible({ timeout: within(25_000) });
  await look(admin, 'not-live');
  await admin.setViewportSize({ width: 1200, height: 900 });
  await admin.getByRole('button', { name: 'Menu of admin' }).click();
  await admin.getByRole('button', { name: 'Sign out', exact: true }).click();
  await expect(admin.getByRole('dialog', { name: 'You are still signed in' })).toBeVisible();
  await look(admin, 'sign-out-failed');
});

test('looks: other dialogs', async ({ admin, server }) => {
  test.setTimeout(240_000);
  await admin.goto('/rules');
  await admin.getByRole('button', { name: 'New rule' }).click();
  await look(admin, 'new-rule');
  await admin.keyboard.press('Escape');
  await admin.getByRole('button', { name: 'Try a request' }).click();
  await admin.getByLabel('Path').fill('/login');
  await admin.getByLabel('Method').selectOption('POST');
  await admin.keyboard.press('Enter');
  await look(admin, 'rules-try');
  await openTier(admin, 'pro');
  await admin.getByRole('button', { name: 'Duplicate' }).click();
  await look(admin, 'tier-duplicate');

  await publishPro(admin, 20_000, 'twice as much for pro');
  await admin.goto('/history/1');
  await admin.getByRole('button', { name: 'Copy as change list' }).click();
  await expect(admin.getByRole('dialog')).toBeVisible();
  await look(admin, 'record-copy');

  await call(admin, 'POST', '/tokens', { name: 'ci', role: 'editor' });
  await admin.goto('/access/tokens');
  await admin.getByRole('button', { name: 'Revoke ci…' }).click();
  await look(admin, 'access-revoke');

  const node = new FleetNode(server.dashboard, await nodeToken(admin.request), 'node-1');
  try {
    await node.start();
    await admin.goto('/nodes');
    await admin.getByRole('button', { name: 'Join command…' }).click();
    await expect(admin.getByRole('dialog')).toBeVisible();
    await look(admin, 'node-join');
    await admin.keyboard.press('Escape');
    const { etag, value } = (await (await admin.request.get('/api/v1/tiers/pro')).json()) as {
      etag: string;
      value: object;
    };
    await call(admin, 'POST', '/policy/changes', {
      base_version: 2,
      message: 'to some first',
      nodes: ['node-1'],
      changes: [
        {
          op: 'put',
          kind: 'tier',
          domain: 'default',
          id: 'pro',
          value: { ...value, unlimited: true, limits: [] },
        },
      ],
      if_match: { 'tier:pro': etag },
    });
    await expect(admin.getByRole('heading', { name: 'v3 is on some nodes first' })).toBeVisible();
    await look(admin, 'nodes-staged');
    await admin.getByRole('button', { name: 'Give v3 to all nodes' }).click();
    await expect(admin.getByRole('dialog')).toBeVisible();
    await look(admin, 'nodes-staged-on');
    await admin.keyboard.press('Escape');
    await admin.getByRole('button', { name: 'Take v3 back' }).click();
    await expect(admin.getByRole('dialog')).toBeVisible();
    await look(admin, 'nodes-staged-back');
  } finally {
    await node.remove();
  }
});

readOnly('what is touched is 40 pixels high', async ({ admin, browser, server }) => {
  await admin.goto('/');
  const context = await browser.newContext({
    baseURL: server.dashboard,
    storageState: await admin.context().storageState(),
    hasTouch: true,
    isMobile: true,
    viewport: { width: 390, height: 800 },
  });
  const page = await context.newPage();
  for (const path of ['/', '/tiers', '/clients', '/history', '/inspect']) {
    await page.goto(path);
    await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
    await expectLive(page);
    // In one step: a page that is filled replaces its buttons, and one that is gone has no height.
    const low = await page.evaluate(() =>
      [...document.querySelectorAll('button, select')].flatMap((one) => {
        const { height } = one.getBoundingClientRect();
        return one.checkVisibility() && height < 40 ? [`${one.textContent.trim()}: ${height}`] : [];
      }),
    );
    expect(low, path).toEqual([]);
  }
  await context.close();
});
