/** Looks of the live pages and of what stands over every page. */
import { expect, withSettings } from './fixtures.ts';
import { look } from './look.ts';
import { FleetNode, nodeToken, RefusingNode } from './nodes.ts';
import { expectLive, limitField, openTier, publishChange } from './steps.ts';
import { within } from './within.ts';

const test = withSettings('--keys', 'clear', '--environment', 'prod-eu', '--production');

test('looks: Overview, Inspector, find box', async ({ admin, server }) => {
  await openTier(admin, 'pro');
  await limitField(admin, 'minute', 'Burst').fill('9000');
  await publishChange(admin, 'smaller bursts for pro', 2);
  const flowing = setInterval(() => {
    for (const user of ['acct_9f31', 'acct_9f31', 'acct_9f31', 'acct_77c0'])
      void server.check(user, '/v1/export').catch(() => undefined);
  }, 25);
  try {
    await admin.goto('/');
    await expectLive(admin);
    await expect(admin.getByRole('link', { name: 'user:acct_9f31', exact: true })).toBeVisible({
      timeout: within(20_000),
    });
    await look(admin, 'overview-live');
    await admin.getByLabel('Tier', { exact: true }).selectOption('free');
    await admin.getByRole('group', { name: 'Range of time' }).getByText('1h').click();
    await admin.getByRole('button', { name: 'Earlier' }).click();
    await expect(admin.getByText(/^The chart ends at/)).toBeVisible();
    await look(admin, 'overview-earlier');
    await admin.keyboard.press('Control+k');
    await admin.getByRole('combobox', { name: 'Find' }).fill('acct_9f31');
    await expect(admin.getByRole('option', { name: /^Inspect/ }).first()).toBeVisible();
    await look(admin, 'find');
    await admin.keyboard.press('Escape');

    await admin.goto('/inspect');
    await expect(admin.getByRole('link', { name: 'user:acct_9f31', exact: true })).toBeVisible();
    await look(admin, 'inspector-empty');
    await admin.getByRole('link', { name: 'user:acct_9f31', exact: true }).click();
    await admin.getByLabel('Path').fill('/login');
    await admin.getByLabel('Method').selectOption('POST');
    await admin.getByRole('button', { name: /^Look up/ }).click();
    await expect(admin.getByText(/^It would/)).toBeVisible();
    await admin.getByRole('button', { name: 'Watch', exact: true }).click();
    await expect(admin.getByRole('row', { name: /\/v1\/export/ }).first()).toBeVisible();
    await look(admin, 'inspector');
    await admin.getByRole('button', { name: 'Reset key…' }).click();
    await expect(admin.getByRole('dialog')).toContainText('of 100 used');
    await look(admin, 'inspector-reset');
  } finally {
    clearInterval(flowing);
  }
});

test('looks: nodes', async ({ admin, server }) => {
  await admin.goto('/nodes');
  await expect(admin.getByRole('region', { name: 'Command' })).toBeVisible();
  await look(admin, 'nodes-alone');
  const token = await nodeToken(admin.request);
  const nodes = ['edge-fra-1', 'edge-fra-2'].map((name) => new FleetNode(server.dashboard, token, name));
  const old = new RefusingNode(server.dashboard, token, 'edge-old', 'field cost_header is not known');
  try {
    for (const node of nodes) await node.start();
    await old.start();
    await expect(admin.getByText('4 connected')).toBeVisible();
    await openTier(admin, 'pro');
    await limitField(admin, 'minute', 'Burst').fill('9000');
    await publishChange(admin, 'smaller bursts for pro', 2);
    await nodes[1]?.kill();
    await admin.goto('/nodes');
    await expect(admin.getByText('1 gone')).toBeVisible({ timeout: within(30_000) });
    await expect(admin.getByText('refused it: field')).toBeVisible();
    await look(admin, 'nodes');
    await admin.getByRole('button', { name: 'Remove edge-fra-2' }).click();
    await look(admin, 'node-remove');
    await admin.keyboard.press('Escape');
    await admin.goto('/nodes/edge-old');
    await expect(admin.getByText(/It did not take v2/)).toBeVisible();
    await look(admin, 'node-refused');
    await admin.goto('/nodes/edge-fra-1');
    await expect(admin.locator('canvas')).toHaveCount(3);
    await expect(admin.getByText('What it runs with')).toBeVisible();
    await look(admin, 'node');
  } finally {
    old.stop();
    await Promise.all(nodes.map((node) => node.remove()));
  }
});
