/** Rules: the list in the order in which they win, the editor, on and off, and endpoints that no rule is for. */
import type { Page } from '@playwright/test';
import { expect, readOnly, test } from './fixtures.ts';
import { expectInForce, limitField, panel, publishChange, review } from './steps.ts';
import type { Server } from './server.ts';
import { within } from './within.ts';

async function newRule(page: Page, name: string): Promise<void> {
  await page.goto('/rules');
  await page.getByRole('button', { name: 'New rule' }).click();
  const dialog = page.getByRole('dialog', { name: 'New rule' });
  await dialog.getByLabel('Name').fill(name);
  await dialog.getByRole('button', { name: 'Create' }).click();
  await expect(page.getByRole('heading', { level: 1, name: `Rule ${name}` })).toBeVisible();
}

async function write(page: Page, fields: Record<string, string>): Promise<void> {
  for (const [label, value] of Object.entries(fields))
    await page.getByLabel(label, { exact: true }).fill(value);
}

async function firstLimit(page: Page, id: string, rate: string): Promise<void> {
  await page.getByRole('group', { name: 'Limit 1' }).getByLabel('Limit', { exact: true }).fill(id);
  await limitField(page, id, 'Rate').fill(rate);
}

/** A request by an address to a path. */
async function ask(server: Server, path: string, ip = '192.0.2.7'): Promise<string | null> {
  const answer = await fetch(`${server.checks}/v1/check`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ identities: [{ kind: 'ip', value: ip }], endpoint: path, method: 'POST' }),
  });
  return ((await answer.json()) as { limit_id: string | null }).limit_id;
}

test('a rule is made, says itself in a sentence, and decides', async ({ admin, server }) => {
  await newRule(admin, 'export');
  await admin.getByRole('button', { name: 'Review and publish' }).click();
  await expect(admin.getByRole('alert')).toContainText('endpoint: This is needed');
  await write(admin, { Endpoint: '/v1/export', Method: 'POST', 'Counts per': 'ip + user' });
  await expect(admin.getByLabel('Counts per')).toHaveValue('ip + user');
  await admin.getByLabel('Counts per').fill('ip');
  await firstLimit(admin, 'hour', '2 / 1h');
  await expect(admin.getByText('Each ip may POST /v1/export 2 times an hour.')).toBeVisible();
  await publishChange(admin, 'exports are dear', 2);
  expect(await ask(server, '/v1/export')).toBe('default/rule:export/hour');

  await admin.getByLabel('Cost', { exact: true }).fill('x');
  await admin.getByLabel('Cost', { exact: true }).blur();
  await expect(admin.getByText('A whole number from 1', { exact: true })).toBeVisible();
  await admin.getByLabel('Cost', { exact: true }).fill('2');
  await admin.getByLabel('free', { exact: true }).check();
  await admin.getByRole('button', { name: 'Add a condition' }).click();
  await admin.getByLabel('Kind of condition 1').fill('ip');
  await admin.getByRole('button', { name: 'Review and publish' }).click();
  await expect(admin.getByRole('alert')).toContainText('only where ip: This is needed');
  await expect(admin.getByLabel('Value of condition 1')).toBeFocused();
  await admin.getByRole('button', { name: 'Add a condition' }).click();
  await admin.getByLabel('Kind of condition 2').fill('ip');
  await expect(admin.getByText('A later condition has the same kind')).toBeVisible();
  await admin.getByLabel('Kind of condition 2').fill('');
  await admin.getByLabel('Value of condition 1').fill('192.0.2.*');
  await expect(
    admin.getByText(
      'Each ip in tier free may POST /v1/export 2 times an hour, where ip is 192.0.2.*. A request counts 2 times.',
    ),
  ).toBeVisible();
  await publishChange(admin, 'for some', 3, 'is no longer for all requests that it was for');
  expect(await ask(server, '/v1/export', '198.51.100.9')).not.toBe('default/rule:export/hour');
  await admin.reload();
  await expect(admin.getByLabel('Value of condition 1')).toHaveValue('192.0.2.*');
  await admin.getByRole('button', { name: 'Remove condition ip' }).click();
  await publishChange(admin, 'for all addresses', 4);
});

test('what the server has against a list leads to its field', async ({ admin, watch }) => {
  watch.allow(/status of 422/);
  await admin.goto('/rules/sign-in');
  const endpoint = admin.getByLabel('Endpoint', { exact: true });
  await endpoint.fill('login');
  const dialog = await review(admin, 'without its slash');
  await expect(dialog.getByText('The server would refuse this list.')).toBeVisible();
  await dialog.getByRole('link', { name: /^rule sign-in, endpoint/ }).click();
  await expect(dialog).toBeHidden();
  await expect(endpoint).toBeFocused();
  await expect(endpoint).toHaveAttribute('aria-invalid', 'true');

  await admin.getByRole('link', { name: 'Tiers', exact: true }).click();
  await admin.getByRole('button', { name: '1 change' }).click();
  await dialog.getByRole('button', { name: 'Publish v2' }).click();
  await dialog
    .getByRole('alert')
    .getByRole('link', { name: /^rule sign-in, endpoint/ })
    .click();
  await expect(admin).toHaveURL(/\/rules\/sign-in$/);
  await expect(endpoint).toBeFocused();
  await endpoint.fill('*');
  await publishChange(admin, 'on all paths', 2);
});

test('switched off in the list, with what that means, and on again', async ({ admin, server }) => {
  await admin.goto('/rules');
  const row = admin.getByRole('row', { name: /sign-in/ });
  await expect(row).toContainText('POST /login');
  const traffic = setInterval(() => void ask(server, '/login'), 50);
  await expect(row.getByRole('cell').nth(6)).not.toHaveText(/^(–|0)$/);
  await row.getByLabel('Rule sign-in is on').uncheck();
  await expect(row).toContainText('draft');
  await admin.getByRole('button', { name: '1 change' }).click();
  const dialog = panel(admin);
  await expect(dialog.getByText('Rule sign-in: no longer limits anything.')).toBeVisible();
  await expect(dialog.getByText('requests a second would no longer be limited')).toBeVisible();
  clearInterval(traffic);
  await dialog.getByLabel('Message').fill('sign-in is free');
  await dialog.getByLabel('Yes, that is meant').check();
  await dialog.getByRole('button', { name: 'Publish v2' }).click();
  await expectInForce(admin, 2);
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  expect(await ask(server, '/login')).not.toBe('default/rule:sign-in/minute');
  await row.getByLabel('Rule sign-in is on').check();
  await expect(row).toContainText('draft');
  await row.getByLabel('Rule sign-in is on').uncheck();
  await expect(row).not.toContainText('draft');
});

test('a rule is deleted, and taken back', async ({ admin, watch }) => {
  watch.allow(/status of 404/);
  await admin.goto('/rules/sign-in');
  await admin.getByRole('button', { name: 'Delete' }).click();
  const dialog = await review(admin, 'no rule for signing in');
  await expect(dialog.getByText('It goes with this version.')).toBeVisible();
  await dialog.getByLabel('Yes, that is meant').check();
  await dialog.getByRole('button', { name: 'Publish v2' }).click();
  await expectInForce(admin, 2);
  await dialog.getByRole('button', { name: 'Roll back…' }).click();
  const back = admin.getByRole('dialog', { name: /v2/ });
  await back.getByRole('button', { name: /v3/ }).click();
  await expect(back.getByText('v3 in force')).toBeVisible();
  await admin.goto('/rules');
  await expect(admin.getByRole('link', { name: 'sign-in' })).toBeVisible();
});

test('no rule at all, a filter that leaves none, and rules of one path together', async ({
  admin,
  watch,
}) => {
  watch.allow(/status of 404/);
  await admin.goto('/rules');
  await expect(admin.getByRole('link', { name: 'sign-in' })).toBeVisible();
  await admin.getByLabel('Filter').fill('nothing');
  await expect(admin.getByText('No rule matches “nothing”')).toBeVisible();
  await admin.getByRole('button', { name: 'Clear filter' }).click();

  await admin.getByRole('link', { name: 'sign-in' }).click();
  await admin.getByRole('button', { name: 'Duplicate' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Duplicate rule sign-in' });
  await dialog.getByLabel('Name').fill('sign-in-all');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await admin.getByLabel('Method', { exact: true }).fill('');
  await admin.getByLabel('Counts per').fill('everyone');
  await expect(admin.getByText('All requests together may ask /login 5 times a minute.')).toBeVisible();
  await publishChange(admin, 'together too', 2);
  await admin.getByRole('link', { name: 'Rules' }).click();
  const groups = admin.getByRole('region', { name: 'Rules' }).locator('tbody');
  await expect(groups).toHaveCount(1);
  await expect(groups.getByRole('row')).toHaveCount(2);

  for (const [id, version] of [
    ['sign-in', 3],
    ['sign-in-all', 4],
  ] as const) {
    await admin.goto(`/rules/${id}`);
    await admin.getByRole('button', { name: 'Delete' }).click();
    const publish = await review(admin, `without ${id}`);
    await publish.getByLabel('Yes, that is meant').check();
    await publish.getByRole('button', { name: /^Publish/ }).click();
    await expectInForce(admin, version);
  }
  await admin.goto('/rules');
  await expect(admin.getByText('No rule yet')).toBeVisible();
});

test('what the server finds stands at the rule', async ({ admin }) => {
  await newRule(admin, 'vain');
  await write(admin, { Endpoint: '/vain', 'Counts per': 'ip' });
  await firstLimit(admin, 'minute', '5 / 1m');
  await admin.getByRole('button', { name: 'Add a limit' }).click();
  await admin.getByRole('group', { name: 'Limit 2' }).getByLabel('Limit', { exact: true }).fill('hour');
  await limitField(admin, 'hour', 'Rate').fill('100000 / 1h');
  const dialog = await review(admin, 'an hour that never binds');
  await expect(dialog.getByRole('listitem').first()).toBeVisible();
  await dialog.getByRole('button', { name: 'Publish v2' }).click();
  await expectInForce(admin, 2);
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await admin.getByRole('link', { name: 'Rules' }).click();
  await expect(admin.getByRole('row', { name: /vain/ }).getByText(/^! /)).toBeVisible();
});

test('an endpoint without a rule gets one', async ({ admin, server }) => {
  const asked = setInterval(() => void ask(server, '/v1/orders'), 10);
  await admin.goto('/rules');
  const row = admin.getByRole('row', { name: /orders|POST/ }).filter({ hasText: 'no rule' });
  await expect(async () => {
    await admin.reload();
    await expect(row.first()).toBeVisible({ timeout: 1_500 });
  }).toPass({ timeout: within(30_000) });
  clearInterval(asked);
  await row
    .first()
    .getByRole('button', { name: /Make a rule for POST/ })
    .click();
  const dialog = admin.getByRole('dialog', { name: 'New rule' });
  await dialog.getByLabel('Name').fill('orders');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await expect(admin.getByLabel('Method', { exact: true })).toHaveValue('POST');
  await expect(admin.getByLabel('Endpoint', { exact: true })).toHaveValue('');
});

test('a viewer reads rules and tiers', async ({ admin, browser, server }) => {
  const who = (await (await admin.request.get('/api/v1/session')).json()) as { csrf: string };
  const password = 'staple battery horse correct';
  const made = await admin.request.post('/api/v1/users', {
    data: { name: 'vera', role: 'viewer', password },
    headers: { 'x-csrf-token': who.csrf },
  });
  expect(made.status()).toBe(201);
  const context = await browser.newContext({ baseURL: server.dashboard });
  await context.request.post('/api/v1/session', { data: { name: 'vera', password } });
  const page = await context.newPage();
  await page.goto('/rules/sign-in');
  await expect(page.getByText('Read only')).toBeVisible();
  await expect(page.getByLabel('Endpoint', { exact: true })).toBeDisabled();
  await expect(page.getByRole('button', { name: /Delete|Duplicate|Review|Discard/ })).toHaveCount(0);
  await page.goto('/rules');
  await expect(page.getByRole('link', { name: 'sign-in' })).toBeVisible();
  await expect(page.getByRole('checkbox')).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'New rule' })).toHaveCount(0);
  await page.goto('/tiers/pro');
  await expect(limitField(page, 'minute', 'Rate')).toBeDisabled();
  await page.goto('/tiers');
  await expect(page.getByRole('link', { name: 'pro' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'New tier' })).toHaveCount(0);
  await context.close();
});

readOnly('a request is tried beside the list', async ({ admin }) => {
  await admin.goto('/rules');
  await admin.getByRole('button', { name: 'Try a request' }).click();
  const tried = admin.getByRole('region', { name: 'Limits' });
  await expect(admin.getByRole('heading', { name: 'Try a request' })).toBeVisible();
  await admin.getByLabel('Value').fill('ada');
  await admin.getByLabel('Path').fill('/v1/things');
  await admin.getByRole('button', { name: 'Try', exact: true }).click();
  await expect(admin.getByText(/^It would pass now; tightest: /)).toBeVisible();
  await expect(admin.getByText(/tier free, the default of its kind/)).toBeVisible();
  await expect(tried.getByRole('row', { name: /tier:free\/minute/ })).toContainText('0 of 100');
  await admin.getByRole('button', { name: 'Try a request' }).click();
  await expect(admin.getByRole('heading', { name: 'Try a request' })).toBeHidden();
});
