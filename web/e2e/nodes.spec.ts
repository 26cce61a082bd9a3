/** Nodes: real ones that join, follow, hang and go, one that refuses, and a version that goes to some first. */
import type { Page } from '@playwright/test';
import { CLIENTS, importClients } from './clientsteps.ts';
import { expect, readOnly, test as base } from './fixtures.ts';
import { FleetNode, nodeToken, Redis, RefusingNode } from './nodes.ts';
import { addUser, signedIn } from './people.ts';
import { expectLive, limitField, openTier, publishChange, review } from './steps.ts';
import { within } from './within.ts';

interface Fleet {
  join(name: string, more?: Record<string, string>): Promise<FleetNode>;
  token: string;
}

const test = base.extend<{ fleet: Fleet }>({
  fleet: async ({ admin, server }, use) => {
    const nodes: FleetNode[] = [];
    const token = await nodeToken(admin.request);
    await use({
      token,
      async join(name, more) {
        const node = new FleetNode(server.dashboard, token, name, more);
        nodes.push(node);
        await node.start();
        return node;
      },
    });
    await Promise.all(nodes.map((node) => node.remove()));
  },
});

const row = (page: Page, name: string) =>
  page.getByRole('region', { name: 'Nodes' }).getByRole('row', { name });

async function csrf(page: Page): Promise<Record<string, string>> {
  const session = (await (await page.request.get('/api/v1/session')).json()) as { csrf: string };
  return { 'x-csrf-token': session.csrf };
}

async function smaller(page: Page, message: string, version: number, burst: string): Promise<void> {
  await openTier(page, 'pro');
  await limitField(page, 'minute', 'Burst').fill(burst);
  await publishChange(page, message, version);
}

test('alone: the page says how a node joins, and it appears by itself', async ({ admin, fleet, server }) => {
  await admin.goto('/nodes');
  await expect(admin.getByText('1 connected')).toBeVisible();
  await expect(admin.getByRole('region', { name: 'Command' })).toContainText(
    `tidegate node --admin ${server.dashboard} --token-file`,
  );
  await fleet.join('node-1');
  await expect(row(admin, 'node-1')).toContainText('v1');
  await expect(admin.getByRole('columnheader', { name: 'Keys' })).toBeVisible();
  await expect(row(admin, 'node-1')).toContainText(/[+−]?\d+ ms/);
  await expect(admin.getByText('2 connected')).toBeVisible();
  await expect(admin.getByRole('link', { name: 'Policy v1 on 2 of 2 nodes' })).toBeVisible();
  await admin.getByRole('button', { name: 'Join command…' }).click();
  await expect(admin.getByRole('dialog').getByRole('region', { name: 'Command' })).toBeVisible();
});

readOnly(
  'the nodes are read before the stream tells of them, and a failure is said',
  async ({ admin, watch }) => {
    watch.allow(/status of 503/);
    // It is asked for and never answers.
    await admin.route(/\/api\/v1\/stream/, () => undefined);
    await admin.goto('/nodes');
    await expect(row(admin, 'this server')).toContainText('v1');
    await row(admin, 'this server').getByRole('link').click();
    await expect(admin.getByRole('heading', { name: 'What it told last' })).toBeVisible();
    const silence = await admin.context().newPage();
    await silence.route(/\/api\/v1\/stream/, () => undefined);
    await silence.route(/\/api\/v1\/nodes$/, (route) => route.fulfill({ status: 503 }));
    await silence.goto('/nodes');
    await expect(silence.getByRole('alert')).toContainText('503');
    await silence.unroute(/\/api\/v1\/nodes$/);
    await silence.getByRole('button', { name: 'Try again' }).click();
    await expect(row(silence, 'this server')).toBeVisible();
  },
);

test('a publish reaches every node, and each says so', async ({ admin, fleet }) => {
  await fleet.join('node-1');
  await fleet.join('node-2');
  await admin.goto('/nodes');
  await expect(row(admin, 'node-1')).toContainText('v1');
  await expect(row(admin, 'node-2')).toContainText('v1');
  await smaller(admin, 'smaller bursts', 2, '300');
  await expect(admin.getByRole('link', { name: 'Policy v2 on 3 of 3 nodes' })).toBeVisible();
  await admin.getByRole('link', { name: 'Nodes', exact: true }).click();
  await expect(admin.getByText('v2 on 3 of 3 nodes', { exact: true })).toBeVisible();
  await expect(admin.getByText(/^applied, (\d+ ms|\d+\.\d s)$/)).toHaveCount(3);
  await expect(row(admin, 'node-1')).toContainText('v2');
});

test('a node that hangs is silent, one that died is gone and can be removed by its name', async ({
  admin,
  fleet,
  watch,
}) => {
  watch.allow(/status of 409/);
  const hangs = await fleet.join('hangs');
  const dies = await fleet.join('dies');
  const falls = await fleet.join('falls');
  await admin.goto('/nodes');
  await expect(row(admin, 'dies')).toContainText('v1');
  await expect(row(admin, 'hangs')).toContainText('v1');
  await expect(row(admin, 'falls')).toContainText('v1');
  await Promise.all([dies.kill(), falls.kill()]);
  hangs.freeze();
  await expect(row(admin, 'hangs')).toContainText('silent', { timeout: within(15_000) });
  await expect(admin.getByText('2 gone')).toBeVisible({ timeout: within(25_000) });
  await admin.getByRole('button', { name: 'Remove dies' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Remove dies?' });
  await dialog.getByRole('button', { name: 'Remove node' }).click();
  await expect(dialog.getByText('That is not its name')).toBeVisible();
  await dialog.getByLabel('Type dies').fill('dies');
  await dialog.getByRole('button', { name: 'Remove node' }).click();
  await expect(dialog).toBeHidden();
  await expect(row(admin, 'dies')).toHaveCount(0);
  await expect(row(admin, 'hangs')).toBeVisible();
  await expect(admin.getByText('dies was removed.')).toBeVisible();
  // From its own page too, and only as long as it is true.
  await row(admin, 'falls').getByRole('link').click();
  await admin.getByRole('button', { name: 'Remove…' }).click();
  await admin.getByLabel('Type falls').fill('falls');
  await admin.getByRole('dialog').getByRole('button', { name: 'Remove node' }).click();
  await expect(admin.getByText('falls was removed.')).toBeVisible();
  await expect(row(admin, 'falls')).toHaveCount(0);
  await admin.goto('/nodes?removed=hangs');
  await expect(row(admin, 'hangs')).toBeVisible();
  await expect(admin.getByText('was removed.')).toBeHidden();
  await admin.goto('/nodes?removed=dies');
  await expect(admin.getByText('dies was removed.')).toBeVisible();
  await admin.getByRole('link', { name: 'Line of the audit log' }).click();
  await expect(admin.getByRole('row', { name: /node\.remove.*node:dies.*done/ })).toBeVisible();
});

test('a node that refuses a version names its reason everywhere', async ({ admin, fleet, server }) => {
  const node = new RefusingNode(server.dashboard, fleet.token, 'old-build', 'field cost_header is not known');
  await node.start();
  try {
    await admin.goto('/nodes');
    await expect(row(admin, 'old-build')).toContainText('v1');
    await openTier(admin, 'pro');
    await limitField(admin, 'minute', 'Burst').fill('300');
    const publish = await review(admin, 'too new for one');
    await publish.getByRole('button', { name: 'Publish v2' }).click();
    await expect(publish.getByText('refused it: field cost_header is not known')).toBeVisible();
    await expect(publish.getByText('v2 on 1 of 2 nodes')).toBeVisible();
    await publish.getByRole('button', { name: 'Close' }).last().click();
    await expect(admin.getByRole('link', { name: /v2 on 1 of 2, old-build refused it/ })).toBeVisible();
    await admin.getByRole('link', { name: 'Nodes', exact: true }).click();
    await expect(row(admin, 'old-build')).toContainText('refused v2');
    await expect(admin.getByText('refused it: field cost_header is not known')).toBeVisible();
    await expect(admin.getByText('v2 on 1 of 2 nodes', { exact: true })).toBeVisible();
    await row(admin, 'old-build').getByRole('link').click();
    await expect(admin.getByRole('heading', { name: 'old-build' })).toBeFocused();
    await expect(admin.getByText(/It did not take v2: field cost_header is not known/)).toBeVisible();
  } finally {
    node.stop();
  }
});

test('one node: what it told, its rates, and its policy sent again', async ({ admin, fleet }) => {
  const node = await fleet.join('node-1');
  await admin.goto('/nodes/node-1');
  await expect(admin.getByText('connected', { exact: true })).toBeVisible();
  const panel = (title: string) =>
    admin.locator('section').filter({ has: admin.getByRole('heading', { name: title, exact: true }) });
  await expect(panel('What it told last').getByText(/^(0|[+−]\d+) ms$/)).toBeVisible();
  await expect(panel('What it told last').getByText(/^[1-9][\d,]* MiB$/)).toBeVisible();
  await expect.poll(() => node.checks).not.toBe('');
  for (let at = 0; at < 30; at += 1) {
    await fetch(`${node.checks}/v1/check`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ identities: [{ kind: 'user', value: 'ada' }] }),
    });
  }
  await expect(panel('What it told last').getByText(/^[\d,]+, [\d.]+ % of the table$/)).toBeVisible();
  for (const [title, table] of [
    ['Decisions a second', 'Decisions a second, table'],
    ['Decision latency, p99, µs', 'Decision latency, p99, µs, table'],
    [
      'Lag behind the version that it should have, seconds',
      'Lag behind the version that it should have, seconds, table',
    ],
  ] as const) {
    await panel(title).getByRole('button', { name: 'Show as table' }).click();
    const rows = admin.getByRole('region', { name: table }).getByRole('row');
    await expect.poll(() => rows.count(), table).toBeGreaterThan(1);
  }
  await expect(panel('What it runs with').getByText(node.checks)).toBeVisible();
  await expect(panel('What it runs with').getByText('1 decision in 16')).toBeVisible();
  await expect(admin.getByRole('region', { name: 'Last events' }).getByRole('row')).toContainText([
    'What',
    /Version 1 was in force after \d+ ms/,
    'It connected',
  ]);
  await fetch(`${node.checks}/v1/check`, { method: 'POST', body: '{' });
  const errors = admin.getByRole('region', { name: 'Errors since it started' });
  await expect(errors.getByRole('row', { name: /[a-z_]+ 1/ })).toBeVisible({ timeout: within(15_000) });
  await admin.getByRole('button', { name: 'Send the policy again' }).click();
  await expect(admin.getByText('It was sent the policy again.')).toBeVisible();
  const log = admin.getByRole('region', { name: 'What was done to it' });
  await expect(log.getByRole('row', { name: /sent the policy again/ })).toContainText('done');

  await admin.goto('/nodes/nobody');
  await expect(admin.getByText('There is no node nobody')).toBeVisible();
});

/** The one limit of users that nobody gave a tier. */
async function share(page: Page, sharing: string): Promise<void> {
  const etag = (await page.request.get('/api/v1/tiers/free')).headers()['etag'] ?? '';
  // No window of it ends while a test runs: what was used would be gone.
  const limits = [{ id: 's', algorithm: 'fixed_window', limit: 100, period: '300d', sharing }];
  const changes = [{ op: 'put', kind: 'tier', id: 'free', value: { id: 'free', limits } }];
  const made = await page.request.post('/api/v1/policy/changes', {
    data: { base_version: 1, message: 'shared', if_match: { 'tier:free': etag }, changes },
    headers: await csrf(page),
  });
  expect(made.status()).toBe(201);
}

/** The status of a check. */
async function check(node: FleetNode, user = 'ada'): Promise<number> {
  const answer = await fetch(`${node.checks}/v1/check`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ identities: [{ kind: 'user', value: user }] }),
  });
  return answer.status;
}

/** Publishes the tier `pro` with this burst to node-1 first, on top of this version. */
async function stage(page: Page, burst: number, base: number): Promise<void> {
  const tier = await (await page.request.get('/api/v1/tiers/pro')).json();
  const value = { id: 'pro', limits: [{ ...tier.value.limits[0], burst }] };
  const made = await page.request.post('/api/v1/policy/changes', {
    headers: await csrf(page),
    data: {
      base_version: base,
      message: 'to some first',
      nodes: ['node-1'],
      changes: [{ op: 'put', kind: 'tier', domain: 'default', id: 'pro', value }],
      if_match: { 'tier:pro': tier.etag },
    },
  });
  expect(made.status(), await made.text()).toBe(201);
}

test('synced limits: how far they were exceeded, beside the bound of all nodes', async ({ admin, fleet }) => {
  const redis = new Redis();
  await redis.start();
  try {
    const store = { redis: redis.url, 'redis-timeout': '1s', 'redis-pause': '200ms' };
    const nodes = [await fleet.join('node-1', store), await fleet.join('node-2', store)];
    await share(admin, 'synced');
    await admin.goto('/nodes/node-1');
    await expect(async () => {
      for (const node of nodes) await check(node);
      await expect(admin.getByText(/^\d+ tokens? at most; bound [1-9]\d*, of 2 nodes$/)).toBeVisible({
        timeout: 1_000,
      });
    }).toPass({ timeout: within(30_000) });
    // In the Inspector it stands once.
    await admin.goto('/inspect?key=user:ada');
    const limits = admin.getByRole('region', { name: 'Limits' });
    await expect(limits.getByText('the store, for all nodes')).toHaveCount(1);
    await expect(limits.getByText('synced', { exact: true })).toBeVisible();
    await admin.getByRole('button', { name: 'Reset key…' }).click();
    await expect(admin.getByRole('dialog').getByText('in the store, for all nodes')).toBeVisible();
    await admin.getByRole('dialog').getByRole('button', { name: 'Reset key' }).click();
    // A node that waited for the store in vain has counted by itself too.
    await expect(
      admin.getByText(/^Reset by you at .*: [1-3] counters? in the store and on 3 nodes\./),
    ).toBeVisible();
  } finally {
    redis.stop();
  }
});

test('the store of a node: that it is gone, and why', async ({ admin, fleet }) => {
  // There is no server. The node reports it before a limit is shared.
  const node = await fleet.join('node-1', { redis: 'redis://127.0.0.1:9', 'redis-failures': '1' });
  await admin.goto('/nodes');
  await expect(row(admin, 'node-1').getByText('! Does not answer')).toBeVisible();
  await share(admin, 'strict');
  await expect.poll(() => node.checks).not.toBe('');
  await check(node);
  await admin.goto('/nodes');
  await row(admin, 'node-1').getByRole('link').first().click();
  await expect(admin.getByText(/^! Does not answer/)).toBeVisible();
  await expect(admin.getByText(/^! Store: it cannot be reached .* \(unreachable\)$/)).toBeVisible();
  await expect(admin.getByText('none was used')).toBeVisible();
  await admin.goto('/inspect?key=user:ada');
  const limits = admin.getByRole('region', { name: 'Limits' });
  await expect(limits.getByText(/The store does not answer\. On this node alone/)).toBeVisible();
  await admin.getByRole('button', { name: 'Reset key…' }).click();
  await admin.getByRole('dialog').getByRole('button', { name: 'Reset key' }).click();
  await expect(admin.getByText(/Not in the store that nodes share limits through/)).toBeVisible();
  await admin.goto('/');
  await expect(
    admin.getByText('The store that node node-1 shares limits through does not answer it'),
  ).toBeVisible({ timeout: within(40_000) });
});

test('a version that goes to some nodes first: seen, given on, and taken back', async ({ admin, fleet }) => {
  await fleet.join('node-1');
  await fleet.join('node-2');
  await admin.goto('/nodes');
  await expectLive(admin);
  await expect(row(admin, 'node-2')).toContainText('v1');
  await expect(row(admin, 'node-1')).toContainText('v1');
  await stage(admin, 300, 1);
  await expect(admin.getByRole('heading', { name: 'v2 is on some nodes first' })).toBeVisible();
  await expect(admin.getByText(/keeps v1 until it goes on/)).toHaveCount(2);
  await expect(row(admin, 'node-1')).toContainText('v2');
  await admin.getByLabel('One more node…').selectOption('node-2');
  await admin.getByRole('button', { name: 'Give it', exact: true }).click();
  await admin.getByRole('dialog').getByRole('button', { name: 'Give v2 to one more' }).click();
  await expect(admin.getByText(/keeps v1 until it goes on/)).toHaveCount(1);
  await admin.getByRole('button', { name: 'Give v2 to all nodes' }).click();
  await admin.getByRole('dialog').getByRole('button', { name: 'Give v2 to all nodes' }).click();
  await expect(admin.getByText('v2 goes to all nodes.').getByRole('link')).toHaveAttribute(
    'href',
    '/history/audit?action=rollout.all',
  );
  await expect(admin.getByRole('heading', { name: 'v2 is on some nodes first' })).toBeHidden();
  await expect(admin.getByText('v2 on 3 of 3 nodes', { exact: true })).toBeVisible();

  await stage(admin, 200, 2);
  await admin.getByRole('button', { name: 'Take v3 back' }).click();
  await expect(admin.getByRole('dialog')).toContainText('published again as v4');
  await admin.getByRole('dialog').getByRole('button', { name: 'Take v3 back' }).click();
  await expect(admin.getByText('v4 on 3 of 3 nodes', { exact: true })).toBeVisible();
});

test('a block from the Clients page reaches the nodes of both versions of a rollout, and stays', async ({
  admin,
  browser,
  server,
  fleet,
  watch,
}) => {
  watch.allow(/status of 409/);
  const nodes = [await fleet.join('node-1'), await fleet.join('node-2')];
  await importClients(admin, CLIENTS);
  await addUser(admin, 'olga', 'operator');
  await admin.goto('/nodes');
  await expectLive(admin);
  await expect(row(admin, 'node-1')).toContainText('v2');
  await expect(row(admin, 'node-2')).toContainText('v2');
  await stage(admin, 300, 2);
  await expect(admin.getByRole('heading', { name: 'v3 is on some nodes first' })).toBeVisible();

  const context = await signedIn(browser, server, 'olga');
  const page = await context.newPage();
  await page.goto('/clients');
  await page.getByRole('link', { name: 'user:acme' }).click();
  await page.getByLabel('Reason').fill('a flood');
  await page.getByRole('button', { name: 'Set it now' }).click();
  await expect(page.getByText('v5 in force, and v4 on all other nodes')).toBeVisible();
  await expect(page.getByText('v5 or v4 on 3 of 3 nodes', { exact: true })).toBeVisible();
  for (const node of nodes) expect(await check(node, 'acme')).toBe(429);
  expect((await server.check('acme')).status).toBe(429);
  await context.close();

  // What is no override is refused, and says where the way on is.
  await openTier(admin, 'pro');
  await limitField(admin, 'minute', 'Burst').fill('77');
  const dialog = await review(admin, 'not now');
  await dialog.getByRole('button', { name: 'Publish v7' }).click();
  await expect(dialog.getByText('only overrides of clients can be changed')).toBeVisible();
  await dialog.getByRole('link', { name: 'To the rollout' }).click();
  await expect(admin.getByRole('heading', { name: 'v5 is on some nodes first' })).toBeVisible();
  await admin.getByRole('button', { name: 'Take v5 back' }).click();
  await admin.getByRole('dialog').getByRole('button', { name: 'Take v5 back' }).click();
  await expect(admin.getByText('v6 on 3 of 3 nodes', { exact: true })).toBeVisible();
  for (const node of nodes) expect(await check(node, 'acme')).toBe(429);

  await admin.goto('/history/4');
  await expect(admin.getByText('Made on')).toBeVisible();
  await expect(admin.getByRole('link', { name: 'v2', exact: true })).toBeVisible();
  await expect(admin.getByRole('table', { name: 'client user:acme' })).toContainText('blocked');
});
