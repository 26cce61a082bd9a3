/** The Overview: ranges, filter, marks, the heaviest keys, rules, what needs a look; and rows that stand still. */
import type { Page } from '@playwright/test';
import { clear as test, expect, readOnly, test as withCutKeys } from './fixtures.ts';
import { look } from './look.ts';
import type { Server } from './server.ts';
import { call } from './people.ts';
import { expectLive, limitField, openTier, publishChange } from './steps.ts';

/** One client that is denied most of the time, and another that is not. */
async function flow(server: Server): Promise<void> {
  for (let at = 0; at < 160; at += 1) {
    await Promise.all([
      server.check('ada'),
      server.check('ada'),
      at % 8 === 0 ? server.check('grace') : null,
    ]);
  }
}

const figure = (page: Page, name: string) =>
  page.locator('dl > div').filter({ hasText: name }).locator('.value');

test('the heaviest key leads to the Inspector, and rows stand still under the pointer', async ({
  admin,
  server,
  watch,
}) => {
  // The client that the override is for is not there yet.
  watch.allow(/status of 404/);
  await call(admin, 'POST', '/rules', {
    id: 'export',
    endpoint: '/x',
    per: 'user',
    tiers: ['free', 'pro'],
    limits: [{ id: 'hour', algorithm: 'token_bucket', limit: 1_000_000, period: '1h' }],
  });
  await admin.goto('/');
  await expectLive(admin);
  await flow(server);
  await expect(
    admin.getByRole('region', { name: 'By rule' }).getByRole('row', { name: /^export/ }),
  ).toContainText('free, pro');
  // The rules follow the choice of a tier: those for it, and for all tiers.
  const byRule = admin.getByRole('region', { name: 'By rule' }).getByRole('row', { name: /^export/ });
  await admin.getByLabel('Tier', { exact: true }).selectOption('layered');
  await expect(byRule).toHaveCount(0);
  await admin.getByLabel('Tier', { exact: true }).selectOption('pro');
  await expect(byRule).toBeVisible();
  await admin.getByLabel('Tier', { exact: true }).selectOption('');
  const table = admin.getByRole('region', { name: 'Most denied keys' });
  const link = table.getByRole('link', { name: 'user:ada', exact: true });
  await expect(link).toBeVisible();
  await expect(table.getByRole('row', { name: /user:ada/ })).toContainText('tier:free/minute');
  await expect
    .poll(async () => Number(await figure(admin, 'Keys limited now').textContent()))
    .toBeGreaterThan(0);
  await expect(figure(admin, 'Decision p99')).toHaveText(/µs$/);

  await link.hover();
  for (let at = 0; at < 300; at += 1) await server.check('mallory');
  await expect(admin.getByText(/rows? would move/)).toBeVisible();
  await expect(table.getByRole('row', { name: /mallory/ })).toHaveCount(0);
  await admin.mouse.move(0, 0);
  await expect(table.getByRole('row', { name: /mallory/ })).toBeVisible();

  await table.getByRole('link', { name: 'Override… of user:ada' }).click();
  await expect(admin.getByRole('heading', { name: 'Client user:ada' })).toBeFocused();
  await expect(admin.getByRole('radio', { name: /^blocked/ })).toBeVisible();
  await admin.goBack();
  await link.click();
  await expect(admin).toHaveURL(/\/inspect\?key=user%3Aada$/);
});

test('ranges, a filter, the table and earlier times by keys; all in the address', async ({
  admin,
  server,
}) => {
  await admin.goto('/');
  await expectLive(admin);
  await flow(server);
  await expect(admin.locator('canvas')).toBeVisible();
  const pressed = admin.getByRole('group', { name: 'Range of time' }).locator('[aria-pressed=true]');
  await expect(pressed).toHaveText('15m');
  await admin.keyboard.press('1');
  await expect(pressed).toHaveText('5m');
  await admin.keyboard.press('5');
  await expect(pressed).toHaveText('24h');
  await expect(admin).toHaveURL(/range=24h/);
  await admin.reload();
  await expect(pressed).toHaveText('24h');
  await admin.getByRole('heading', { name: 'Overview' }).focus();
  await admin.keyboard.press('1');

  await admin.keyboard.press('[');
  await expect(admin.getByText(/^The chart ends at/)).toBeVisible();
  await expect(admin).toHaveURL(/to=\d+/);
  await admin.keyboard.press(']');
  await expect(admin.getByText(/^The chart ends at/)).toBeHidden();

  const table = admin.getByRole('region', { name: 'Decisions a second, table' });
  // It stands still, as it is when it is opened; the key opens and closes it.
  await expect(async () => {
    await admin.keyboard.press('t');
    expect(await table.getByRole('row').count()).toBeGreaterThan(2);
  }).toPass();
  await admin.keyboard.press('t');
  await expect(table).toBeHidden();

  await admin.getByLabel('Rule', { exact: true }).selectOption('sign-in');
  await expect(admin).toHaveURL(/rule=sign-in/);
  await expect(admin.locator('dl')).toContainText('sign-in');
  await expect(admin.getByRole('region', { name: 'Most denied keys' })).toContainText(
    'None of the keys that are denied most of all is of this one',
  );
  const byLimit = admin.getByRole('region', { name: 'By limit' }).locator('[data-limit]');
  await expect(byLimit).toHaveCount(1);
  await expect(byLimit).toContainText('rule:sign-in/');
  await admin.getByLabel('Tier', { exact: true }).selectOption('free');
  await expect(admin).toHaveURL(/tier=free/);
  await expect(admin).not.toHaveURL(/rule=/);
  await expect(admin.getByRole('link', { name: 'user:ada', exact: true })).toBeVisible();
  await expect(byLimit.filter({ hasNotText: 'tier:free/' })).toHaveCount(0);
  await expect(byLimit.first()).toContainText('tier:free/');
  const flowing = setInterval(() => void server.check('grace').catch(() => undefined), 25);
  try {
    await expect
      .poll(async () => Number(await figure(admin, 'Decisions a second').textContent()))
      .toBeGreaterThan(5);
  } finally {
    clearInterval(flowing);
  }
});

test('the table of another range waits for its figures', async ({ admin, server }) => {
  await admin.goto('/');
  await expectLive(admin);
  await flow(server);
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  await admin.route(/metrics\?.*by=total/, async (route) => {
    await held;
    await route.continue();
  });
  const ranges = admin.getByRole('group', { name: 'Range of time' });
  await ranges.getByText('1h').click();
  await admin.getByRole('button', { name: 'Show as table' }).click();
  const table = admin.getByRole('region', { name: 'Decisions a second, table' });
  const waiting = admin.locator('main').getByRole('status').filter({ hasText: 'Loading…' });
  await expect(waiting.last()).toBeVisible();
  await expect(table).toBeHidden();
  release();
  await expect(table.or(admin.getByText('Nothing to draw yet'))).toBeVisible();
  // By minutes, if one is over: seconds are all nought.
  const times = table.getByRole('row').locator('td:first-child');
  for (const time of await times.allTextContents()) expect(time).toMatch(/:00$/);
});

test('a version is marked in the chart and told when it is pointed at', async ({ admin, server }) => {
  await openTier(admin, 'pro');
  await limitField(admin, 'minute', 'Burst').fill('9000');
  await publishChange(admin, 'smaller bursts', 2);
  await flow(server);
  await admin.goto('/');
  await expect(admin.locator('canvas')).toBeVisible();
  await expect(admin.getByRole('link', { name: 'v2', exact: true })).toHaveAttribute('href', '/history/2');
  const chart = admin.getByRole('img', { name: /^Allowed/ });
  await chart.focus();
  const told = admin.getByText('v2 smaller bursts, admin');
  await expect(async () => {
    for (let at = 0; at < 40 && !(await told.isVisible()); at += 1) await admin.keyboard.press('ArrowLeft');
    expect(await told.isVisible()).toBe(true);
  }).toPass();
});

readOnly('what needs a look is listed, with a way there', async ({ admin }) => {
  await admin.goto('/');
  const panel = admin
    .locator('section')
    .filter({ has: admin.getByRole('heading', { name: 'Needs a look' }) });
  const link = panel.getByRole('link', { name: /^Tier pro: no kind has it as its default/ });
  await expect(link).toBeVisible();
  await link.click();
  await expect(admin.getByRole('heading', { name: 'Tier pro' })).toBeVisible();
});

withCutKeys('where keys are cut they lead nowhere', async ({ admin, server }) => {
  await admin.goto('/');
  await flow(server);
  const table = admin.getByRole('region', { name: 'Most denied keys' });
  await expect(table.getByRole('row', { name: /user:a/ })).toBeVisible();
  await expect(table.getByRole('link')).toHaveCount(0);
  await expect(admin.getByText('values are shown cut')).toBeVisible();
});

test('before the first decision a test request makes one, and what became of it stays', async ({ admin }) => {
  await admin.goto('/');
  await admin.getByRole('button', { name: 'Send a test request' }).click();
  const told = admin.getByRole('group', { name: 'Test request' });
  const words = /^user:ada was allowed on \S+, and charged; closest: tier:free\/minute\./;
  await expect(told).toHaveText(words);
  // A moment later the figures stand where the button was.
  await expect(admin.getByRole('img', { name: /^Allowed/ })).toBeVisible();
  await expect(admin.getByRole('heading', { name: 'No decision yet' })).toHaveCount(0);
  await expect(told).toHaveText(words);
  // What was pressed is gone.
  await expect(told).toBeFocused();
  await look(admin, 'overview-test-request');
  const log = (await (await admin.request.get('/api/v1/audit?action=keys.charge')).json()) as {
    items: { result: string }[];
  };
  expect(log.items).toMatchObject([{ result: 'done: allowed on 1 of 1 node' }]);
  await expect(told.getByRole('link')).toHaveAttribute('href', '/history/audit?action=keys.charge');
  await told.getByRole('button', { name: 'Close' }).click();
  await expect(told).toHaveCount(0);
  await expect(admin.getByRole('heading', { name: 'Overview', level: 1 })).toBeFocused();
});

test('a server that decided before it was restarted shows the chart', async ({ admin, server, watch }) => {
  watch.allow(/net::ERR_/);
  await admin.goto('/');
  await expect(admin.getByRole('heading', { name: 'No decision yet' })).toBeVisible();
  await server.check('ada');
  await expect(admin.getByRole('img', { name: /^Allowed/ })).toBeVisible();
  await admin.goto('about:blank');
  await server.stop();
  await server.start();
  await admin.goto('/');
  await expectLive(admin);
  await expect(admin.getByText(/^0 decisions since the start/)).toBeVisible();
  await expect(admin.getByRole('img', { name: /^Allowed/ })).toBeVisible();
  await expect(admin.getByRole('heading', { name: 'No decision yet' })).toHaveCount(0);
});
