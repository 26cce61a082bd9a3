/** The Inspector: why somebody is refused, when they are free, on which node; watching, and freeing them. */
import type { Page } from '@playwright/test';
import { clear as test, expect, PASSWORD, readOnly } from './fixtures.ts';
import { FleetNode, nodeToken } from './nodes.ts';
import type { Server } from './server.ts';
import { within } from './within.ts';

/** Sets the limit to 100 a day, so that no token comes back during a test: one does every 14 minutes. */
async function slow(page: Page): Promise<void> {
  const headers = await csrf(page);
  const tier = await (await page.request.get('/api/v1/tiers/free')).json();
  const value = { id: 'free', limits: [{ ...tier.value.limits[0], period: '1d' }] };
  const answer = await page.request.post('/api/v1/policy/changes', {
    headers,
    data: {
      base_version: 1,
      message: 'slower',
      changes: [{ op: 'put', kind: 'tier', domain: 'default', id: 'free', value }],
      if_match: { 'tier:free': tier.etag },
    },
  });
  expect(answer.status(), await answer.text()).toBe(201);
}

async function csrf(page: Page): Promise<Record<string, string>> {
  const session = (await (await page.request.get('/api/v1/session')).json()) as { csrf: string };
  return { 'x-csrf-token': session.csrf };
}

/** Until it is refused. */
async function exhaust(server: Server, user: string): Promise<void> {
  while ((await server.check(user)).status === 200);
}

const limits = (page: Page) => page.getByRole('region', { name: 'Limits' });

test('why is this client refused: Ctrl K, paste, Enter', async ({ admin, server }) => {
  await slow(admin);
  await exhaust(server, 'ada');
  await admin.goto('/');
  await expect(admin.getByRole('heading', { name: 'Overview' })).toBeVisible();
  await admin.keyboard.press('Control+k');
  await admin.getByRole('combobox', { name: 'Find' }).fill('user:ada');
  await expect(admin.getByRole('option', { name: /user/ }).first()).toBeVisible();
  await admin.keyboard.press('Enter');
  await expect(admin.getByRole('heading', { name: 'Inspector' })).toBeFocused();
  await expect(
    admin.getByText(/^It would be refused now, by tier:free\/minute; it may pass at/),
  ).toBeVisible();
  await expect(admin.getByText(/tier free, the default of its kind/)).toBeVisible();
  const row = limits(admin).getByRole('row', { name: /tier:free\/minute/ });
  await expect(row).toContainText('100 of 100');
  await expect(row).toContainText('100 / 1d');
  await expect(row).toContainText(/in 1?\d:\d\d/);
  await expect(row).toContainText('1 node');
  await expect(row).toContainText(
    /Token bucket: none of 100 tokens is left; one comes back every 14.4 min; full in/,
  );
  const headers = admin.getByRole('region', { name: 'Headers of the answer' });
  await expect(headers).toContainText('x-ratelimit-limit: 100');
  await expect(headers).toContainText('x-ratelimit-remaining: 0');
  await expect(headers).toContainText(/retry-after: [1-9]\d\d/);
  await admin.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await admin.getByRole('button', { name: 'Copy', exact: true }).click();
  await expect(admin.getByText('Copied')).toBeVisible();
  expect(await admin.evaluate(() => navigator.clipboard.readText())).toBe(await headers.textContent());
  const wait = await row.textContent();
  await expect(row).not.toHaveText(wait ?? '');
});

readOnly(
  'a request: the rules that count it, why others do not, and what it would cost',
  async ({ admin, watch }) => {
    watch.allow(/status of 422/);
    await admin.goto('/inspect');
    await expect(admin.getByText(/Why is somebody refused/)).toBeVisible();
    await admin.getByRole('button', { name: 'Look up' }).click();
    await expect(admin.getByText('Whom?')).toBeVisible();
    await expect(admin.getByLabel('Value')).toBeFocused();
    await admin.getByLabel('Kind').fill('ip');
    await admin.getByLabel('Value').fill('10.2.8.9');
    await admin.getByRole('button', { name: 'Add an identity' }).click();
    await admin.getByLabel('Value').nth(1).fill('ada');
    await admin.getByLabel('Method').selectOption('POST');
    await admin.getByLabel('Path').fill('/login');
    await admin.getByLabel('Cost').fill('2');
    await admin.getByRole('button', { name: 'Look up' }).click();
    await expect(admin).toHaveURL(/key=ip%3A10\.2\.8\.9&key=\w+%3Aada&method=POST&path=%2Flogin&cost=2/);
    await expect(
      admin.getByText('It would pass now; tightest: rule:sign-in/minute, 3 left afterwards.'),
    ).toBeVisible();
    const rules = admin.getByRole('region', { name: 'Rules' });
    await expect(rules.getByRole('row', { name: /sign-in/ })).toContainText('yes');
    await admin.getByLabel('Method').selectOption('GET');
    await admin.getByRole('button', { name: /^Look up/ }).click();
    await expect(rules.getByRole('row', { name: /sign-in/ })).toContainText('it is for POST');
    await admin.goBack();
    await expect(admin.getByLabel('Method')).toHaveValue('POST');
    await expect(rules.getByRole('row', { name: /sign-in/ })).toContainText('yes');
    await admin.reload();
    await expect(rules.getByRole('row', { name: /sign-in/ })).toContainText('yes');

    await admin.goto('/inspect?key=user%3Aada&cost=0');
    await expect(admin.getByRole('alert')).toContainText('could not be loaded');
  },
);

test('nothing used is an answer; the keys denied most are links', async ({ admin, server }) => {
  await admin.goto('/inspect?key=user%3Agrace');
  await expect(admin.getByText('Nothing of it is used: every counter is full.')).toBeVisible();
  await slow(admin);
  await exhaust(server, 'ada');
  const denied = setInterval(() => void server.check('ada').catch(() => undefined), 10);
  try {
    // The sketch of heavy keys samples one decision in 16.
    await expect
      .poll(async () => (await admin.request.get('/api/v1/metrics/top?by=key&of=denied&limit=5')).text(), {
        timeout: within(30_000),
      })
      .toContain('"value":"ada"');
    await admin.goto('/inspect');
    await admin.getByRole('link', { name: 'user:ada', exact: true }).click();
    await expect(admin.getByText(/^It would be refused now/)).toBeVisible();
  } finally {
    clearInterval(denied);
  }
});

test('a reset names what is lost, frees the key, and is in the audit log', async ({ admin, server }) => {
  await slow(admin);
  await exhaust(server, 'ada');
  await admin.goto('/inspect?key=user%3Aada');
  await admin.getByRole('button', { name: 'Reset key…' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Reset user:ada?' });
  await expect(dialog).toContainText(/tier:free\/minute: (99|100) of 100 used/);
  await expect(dialog.getByRole('button', { name: 'Leave it as it is' })).toBeFocused();
  await dialog.getByLabel('Reason').fill('a loop is mended');
  await dialog.getByRole('button', { name: 'Reset key' }).click();
  await expect(dialog).toBeHidden();
  await expect(admin.getByText(/^Reset by you at \d\d:\d\d:\d\d: 1 counter on 1 node\./)).toBeVisible();
  await expect(limits(admin).getByRole('row', { name: /tier:free\/minute/ })).toContainText('0 of 100');
  expect((await server.check('ada')).status).toBe(200);
  const log = (await (await admin.request.get('/api/v1/audit?action=keys.reset')).json()) as {
    items: { object: string; result: string }[];
  };
  const result: unknown = expect.stringMatching(
    /^done: default\/tier:free\/minute had (99|100) of 100 used: a loop is mended$/,
  );
  expect(log.items[0]).toMatchObject({ object: 'key:user:ada', result });
});

test('watching shows decisions as they are made, and the state with them', async ({ admin, server }) => {
  await slow(admin);
  await admin.goto('/inspect?key=user%3Aada');
  await expect(admin.getByText('Nothing of it is used: every counter is full.')).toBeVisible();
  await admin.getByRole('button', { name: 'Watch', exact: true }).click();
  await admin.mouse.move(0, 0);
  const seen = admin.getByRole('region', { name: 'Decisions while you watch' });
  await expect(seen).toContainText('No decision about it yet.');
  const flowing = setInterval(() => void server.check('ada', '/v1/export').catch(() => undefined), 40);
  try {
    await expect(seen.getByRole('row', { name: /\/v1\/export.*allowed/ }).first()).toBeVisible();
    await expect(seen.getByRole('row', { name: /\/v1\/export.*denied/ }).first()).toBeVisible({
      timeout: within(15_000),
    });
    await expect(limits(admin).getByRole('row', { name: /tier:free\/minute/ })).toContainText(
      /(9\d|100) of 100/,
    );
    await expect(seen.getByRole('columnheader', { name: 'Cost' })).toBeVisible();
    await expect(seen.getByRole('row', { name: /\/v1\/export 1 (allowed|denied)/ }).first()).toBeVisible();
  } finally {
    clearInterval(flowing);
  }
  await admin.getByRole('button', { name: 'Stop watching' }).click();
  await expect(admin.getByRole('button', { name: 'Watch', exact: true })).toBeVisible();
});

test('nodes that count apart stand apart, and one that hangs is named', async ({ admin, server }) => {
  const token = await nodeToken(admin.request);
  const node = new FleetNode(server.dashboard, token, 'node-1');
  try {
    await node.start();
    await slow(admin);
    await exhaust(server, 'ada');
    await expect
      .poll(async () => JSON.stringify(await (await admin.request.get('/api/v1/nodes')).json()))
      .toContain('"connected"');
    await admin.goto('/inspect?key=user%3Aada');
    await expect(limits(admin).getByRole('row', { name: /\D0 of 100.*node-1/ })).toHaveCount(1);
    await expect(limits(admin).getByRole('row', { name: /100 of 100/ })).toHaveCount(1);
    // Each decides by what it counted; what is left to wait is that of its own limit, not of the whole.
    await expect(
      admin.getByText('node-1: It would pass now; tightest: tier:free/minute, 99 left'),
    ).toBeVisible();
    await expect(
      admin.getByText(/^\S+: It would be refused now, by tier:free\/minute; it may/),
    ).toBeVisible();
    const refused = limits(admin).getByRole('row', { name: /100 of 100/ });
    await expect(refused.getByRole('cell').nth(4)).toHaveText(/^in 1?\d:\d\d$/);
    node.freeze();
    await admin.getByRole('button', { name: 'Look up again' }).click();
    await expect(admin.getByText('node-1 did not answer: of these nothing is known.')).toBeVisible();
  } finally {
    await node.remove();
  }
});

test('nodes that could not be asked are an alert beside the explanation', async ({ admin, watch }) => {
  watch.allow(/status of 503/);
  await admin.route('**/api/v1/keys/peek', (route) =>
    route.fulfill({
      status: 503,
      json: { code: 'busy', title: 'Busy', status: 503, detail: 'Come back later.' },
    }),
  );
  await admin.goto('/inspect?key=user%3Aada');
  await expect(admin.getByRole('alert')).toContainText('What the nodes count could not be loaded.');
  await expect(admin.getByRole('alert')).toContainText('Come back later.');
  await expect(admin.getByText('Nothing of it is used')).toHaveCount(0);
  await expect(limits(admin).getByRole('row', { name: /tier:free\/minute/ })).toContainText('0 of');
  await admin.unroute('**/api/v1/keys/peek');
  await admin.getByRole('button', { name: 'Try again' }).click();
  await expect(admin.getByRole('alert')).toHaveCount(0);
  await expect(admin.getByText('Nothing of it is used: every counter is full.')).toBeVisible();
});

test('a viewer looks, and neither watches nor resets', async ({ admin, browser, server }) => {
  const made = await admin.request.post('/api/v1/users', {
    headers: await csrf(admin),
    data: { name: 'vera', role: 'viewer', password: PASSWORD },
  });
  expect(made.status(), await made.text()).toBe(201);
  const context = await browser.newContext({ baseURL: server.dashboard });
  await context.request.post('/api/v1/session', { data: { name: 'vera', password: PASSWORD } });
  const page = await context.newPage();
  await page.goto('/inspect?key=user%3Aada');
  await expect(limits(page)).toContainText('0 of 100');
  await expect(page.getByRole('button', { name: 'Reset key…' })).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Watch', exact: true })).toHaveCount(0);
  await context.close();
});
