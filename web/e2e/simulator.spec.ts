/** What would a policy have done to some traffic? */
import type { APIRequestContext, Page } from '@playwright/test';
import { expect, PASSWORD, readOnly, test, withSettings } from './fixtures.ts';
import { expectLive, limitField, openTier, panel, review } from './steps.ts';
import { within } from './within.ts';

/** Every caller is in the sample. */
const recording = withSettings('--record', '1/1', '--keys', 'clear');

async function openSimulator(page: Page): Promise<void> {
  await page.goto('/simulate');
  await expect(page.getByRole('group', { name: 'Source 1' })).toBeVisible();
}
function source(page: Page, at: number) {
  return page.getByRole('group', { name: `Source ${at}` });
}
/** One source alone, that the tier `free` denies something. */
async function askLittle(page: Page): Promise<void> {
  await openSimulator(page);
  await page.getByRole('button', { name: 'Remove source 2' }).click();
  await source(page, 1).getByLabel('Clients').fill('3');
  await source(page, 1).getByLabel('Rate each').fill('300 / 1m');
  await page.getByLabel('Start').fill('2026-01-05 09:00');
}
async function run(page: Page): Promise<string> {
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'Simulation' })).toBeVisible();
  return new URL(page.url()).pathname.replace('/simulate/', '');
}
async function runToEnd(page: Page): Promise<string> {
  const id = await run(page);
  await expect(page.getByRole('heading', { name: 'Result' })).toBeVisible({ timeout: within(30_000) });
  return id;
}
const result = (page: Page) => page.getByRole('region', { name: 'Result' });
const clients = (page: Page) => page.getByRole('region', { name: 'Clients' });

/** All that a run found, as the server tells it. */
async function found(request: APIRequestContext, id: string): Promise<string> {
  const at = `/api/v1/simulations/${id}`;
  const { summary } = (await (await request.get(at)).json()) as { summary: unknown };
  const parts = await Promise.all(
    [`${at}/timeline?limit=500`, `${at}/decisions?limit=500`].map(async (path) =>
      (await request.get(path)).text(),
    ),
  );
  return [JSON.stringify(summary), ...parts].join('\n');
}

test('a run: result, clients, decisions, a link that holds, files', async ({ admin }) => {
  await askLittle(admin);
  await admin.keyboard.press('Control+Enter');
  await expect(admin.getByRole('heading', { name: 'Result' })).toBeVisible({ timeout: within(30_000) });
  await expect(result(admin).getByRole('row', { name: /^A no limits/ })).toContainText('0');
  const denied = result(admin).getByRole('row', { name: /^B v1/ });
  await expect(denied.getByRole('cell').nth(3)).toHaveText('3');
  await expect(admin.getByRole('img', { name: /Denied a second over the run: A at most 0/ })).toBeVisible();
  const rows = clients(admin).getByRole('link');
  await expect(rows).toHaveCount(3);
  await expect(admin.getByRole('region', { name: 'Limits' })).toContainText('default/tier:free/minute');

  // Arrows walk the clients, Enter shows the decisions of one.
  await rows.first().focus();
  await admin.keyboard.press('ArrowDown');
  await expect(rows.nth(1)).toBeFocused();
  const key = (await rows.nth(1).textContent()) ?? '';
  await admin.keyboard.press('Enter');
  const dialog = admin.getByRole('dialog', { name: `Decisions of ${key}` });
  await expect(dialog.getByText('#', { exact: false }).first()).toBeVisible();
  await expect(dialog.getByRole('row').nth(1)).toContainText('allow');
  await dialog.getByLabel('Show').selectOption('newly denied');
  await expect(dialog.getByRole('row').nth(1)).toContainText('again after');
  await expect(dialog.getByRole('row').nth(1)).toContainText(/used 100 of 100/);
  await admin.reload();
  await expect(dialog.getByRole('row').nth(1)).toContainText('again after');
  await dialog.getByLabel('Show').selectOption('all');
  await expect(dialog.getByRole('row').nth(1)).not.toContainText('deny');
  await expect(dialog.getByRole('row').nth(1)).toContainText('used 0 → 1 of 100');
  await dialog.getByRole('region', { name: 'Decisions' }).focus();
  await admin.keyboard.press('.');
  await expect(dialog.getByRole('row').and(admin.locator(':focus'))).toContainText('deny');
  await admin.keyboard.press('Escape');
  await expect(dialog).toBeHidden();

  // A part of the time, and back; a click on the chart shows the decisions from there on.
  const chart = admin.getByRole('img', { name: /Denied a second/ });
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.locator('.u-over').boundingBox();
  const drawn = box ?? { x: 0, y: 0, width: 0, height: 0 };
  const middle = drawn.y + drawn.height / 2;
  await admin.mouse.move(drawn.x + drawn.width / 2, middle);
  await admin.mouse.down();
  await admin.mouse.move(drawn.x + drawn.width * 0.75, middle, { steps: 5 });
  await admin.mouse.up();
  await expect(clients(admin).getByText(/^00:(00:5|01:0)\d.* – 00:01:[23]\d/)).toBeVisible();
  await admin.getByRole('button', { name: 'Show the whole time' }).click();
  await expect(clients(admin).getByText(/^00:00:00 – 00:01:5/)).toBeVisible();
  await chart.focus();
  await admin.keyboard.press('ArrowLeft');
  await admin.keyboard.press('Enter');
  const late = admin.getByRole('dialog', { name: 'Decisions' });
  await expect(late.getByText(/^from 00:01:\d\d.* on$/)).toBeVisible();
  await expect(late.getByRole('row').nth(1)).toContainText(/00:01:\d\d/);
  await admin.keyboard.press('Escape');
  await admin.getByRole('button', { name: 'Show as table' }).click();
  const table = admin.getByRole('region', { name: 'Denied a second' });
  await expect.poll(() => table.getByRole('row').count()).toBeGreaterThan(60);

  const saved = admin.waitForEvent('download');
  await admin.getByRole('button', { name: 'Export CSV' }).click();
  const csv = await (await saved).createReadStream();
  const lines = (await csv.toArray()).join('').trim().split('\r\n');
  expect(lines).toHaveLength(4);
  expect(lines[0]).toMatch(/^key,requests,denied_a,denied_b/);
  expect(lines.some((line) => line.startsWith(`${key},`))).toBe(true);
  const whole = admin.waitForEvent('download');
  await admin.getByRole('button', { name: 'Export JSON' }).click();
  const json = (await (await (await whole).createReadStream()).toArray()).join('');
  expect((JSON.parse(json) as { clients: unknown[] }).clients).toHaveLength(3);
});

test('the same question twice has the same bytes, another seed has others', async ({ admin }) => {
  await askLittle(admin);
  const first = await runToEnd(admin);
  await admin.getByRole('button', { name: 'Change and run again' }).click();
  await expect(admin.getByLabel('Start')).toHaveValue(/^2026-01-05/);
  const second = await runToEnd(admin);
  expect(second).not.toBe(first);
  const bytes = await found(admin.request, first);
  expect(bytes.length).toBeGreaterThan(1_000);
  expect(await found(admin.request, second)).toBe(bytes);

  await admin.getByRole('button', { name: 'Change and run again' }).click();
  await admin.getByLabel('Seed').fill('43');
  expect(await found(admin.request, await runToEnd(admin))).not.toBe(bytes);
});

test('a question outlives a reload, and that of another run is taken from its page', async ({ admin }) => {
  await askLittle(admin);
  await admin.reload();
  await expect(source(admin, 1).getByLabel('Rate each')).toHaveValue('300 / 1m');
  await expect(source(admin, 2)).toHaveCount(0);
  const id = await runToEnd(admin);
  await admin.goto('/simulate');
  await admin.getByRole('button', { name: 'Start with the example' }).click();
  await expect(source(admin, 2)).toBeVisible();
  await admin.getByRole('region', { name: 'Runs' }).getByRole('link').first().click();
  await expect(admin).toHaveURL(new RegExp(`/simulate/${id}$`));
  await admin.getByRole('button', { name: 'Change and run again' }).click();
  await expect(source(admin, 1).getByLabel('Clients')).toHaveValue('3');
  await expect(source(admin, 2)).toHaveCount(0);
  await admin.getByRole('button', { name: /^Forget/ }).click();
  await expect(admin.getByText('No run yet')).toBeVisible();
});

readOnly('what is wrong stands at its field, of this page and of the server', async ({ admin, watch }) => {
  watch.allow(/status of 422/);
  await openSimulator(admin);
  await source(admin, 2).getByLabel('Rate each').fill('fast');
  await source(admin, 1).getByLabel('For').fill('a while');
  await admin.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(admin.getByRole('alert')).toContainText('2 fields need a look');
  await expect(source(admin, 1).getByLabel('For')).toBeFocused();
  await source(admin, 1).getByLabel('For').fill('1m');
  await source(admin, 2).getByLabel('Rate each').fill('1 / 1s');
  await expect(admin.getByRole('alert')).toBeHidden();
  await source(admin, 2).getByLabel('Kind').fill('No kind');
  await admin.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(source(admin, 2).getByLabel('Kind')).toHaveAttribute('aria-invalid', 'true');
  await expect(source(admin, 2)).toContainText('is not a kind');
  await expect(source(admin, 2).getByLabel('Kind')).toBeFocused();
});

test('my changes as B, then the panel shows that run', async ({ admin }) => {
  await openTier(admin, 'free');
  await limitField(admin, 'minute', 'Rate').fill('30 / 1m');
  await askLittle(admin);
  await expect(admin.getByLabel('B, in question')).toHaveValue('mine');
  await expect(admin.getByLabel('A, to compare with')).toHaveValue('live');
  await runToEnd(admin);
  await expect(result(admin).getByRole('row', { name: /^B 1 change of v1/ })).toBeVisible();
  await admin.getByRole('button', { name: 'Open in publish panel' }).click();
  await expect(panel(admin).getByText('Of the run in the Simulator:')).toBeVisible();
  await expect(panel(admin).getByText(/^Denied \d.* → \d/)).toBeVisible();
});

test('versions, drafts and documents are policies too', async ({ admin, watch }) => {
  watch.allow(/status of 422/);
  const { csrf } = (await (await admin.request.get('/api/v1/session')).json()) as { csrf: string };
  const limit = { id: 'minute', algorithm: 'token_bucket', limit: 0, period: '1m' };
  const saved = await admin.request.post('/api/v1/drafts', {
    data: {
      base_version: 1,
      message: 'nothing for nobody',
      changes: [{ op: 'patch', kind: 'tier', id: 'free', value: { limits: [limit] } }],
      if_match: {},
    },
    headers: { 'x-csrf-token': csrf },
  });
  expect(saved.status()).toBe(201);
  await admin.goto('/simulate?a=none&b=version:1');
  await expect(admin.getByLabel('A, to compare with')).toHaveValue('none');
  await expect(admin.getByLabel('B, in question')).toHaveValue('version:1');
  await askLittle(admin);
  await admin
    .getByLabel('A, to compare with')
    .selectOption({ label: 'v1 The example policy of a first start' });
  await admin.getByLabel('B, in question').selectOption({ label: 'draft of admin: nothing for nobody' });
  await runToEnd(admin);
  await expect(result(admin).getByRole('row', { name: /^A v1/ })).toBeVisible();
  await expect(result(admin).getByRole('row', { name: /^B draft/ })).toContainText('100 %');

  await admin.getByRole('button', { name: 'Change and run again' }).click();
  await expect(admin.getByLabel('B, in question')).toHaveValue(/^draft:/);
  await admin.getByLabel('B, in question').selectOption('a document…');
  await admin.getByLabel('Document, as JSON').fill('{');
  await admin.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(admin.getByText('This is not JSON')).toBeVisible();
  const tier = { id: 'free', limits: [{ ...limit, period: '1q' }] };
  const document = { domains: { default: { defaults: { user: 'free' }, tiers: [tier] } } };
  await admin.getByLabel('Document, as JSON').fill(JSON.stringify(document));
  await admin.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(admin.getByLabel('Document, as JSON')).toHaveAttribute('aria-invalid', 'true');
  await expect(admin.getByText(/is not a period/).first()).toBeVisible();
  await admin.getByLabel('Document, as JSON').fill(JSON.stringify(document).replace('1q', '1h'));
  await runToEnd(admin);
  await expect(result(admin).getByRole('row', { name: /^B a document/ })).toContainText('100 %');
});

test('a log: what was understood of it, its run, and then it is gone', async ({ admin }) => {
  const line = (at: number) =>
    `192.0.2.${at % 2} - ada [12/Oct/2026:06:25:${String(at % 60).padStart(2, '0')} +0000] "GET /v1/x HTTP/1.1" 200 1`;
  const log = [...Array.from({ length: 150 }, (_, at) => line(Math.floor(at / 3))), 'no line', ''].join('\n');
  await openSimulator(admin);
  await admin.getByRole('radio', { name: 'Log file' }).check();
  await admin.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(admin.getByText('Send a log, or choose one that is here')).toBeVisible();
  await admin
    .getByRole('group', { name: 'Log file' })
    .getByLabel('Log file')
    .setInputFiles({ name: 'access.log', mimeType: 'text/plain', buffer: Buffer.from(log) });
  await expect(admin.getByText('150 requests of 2 addresses and 1 user')).toBeVisible();
  await expect(admin.getByRole('region', { name: 'The first lines' }).getByRole('row')).toHaveCount(21);
  await admin.getByText('1 line could not be read').click();
  await expect(admin.getByRole('region', { name: '1 line' }).getByRole('row').nth(1)).toContainText('151');
  await runToEnd(admin);
  await expect(result(admin).getByRole('row', { name: /^B v1/ })).toContainText('150');
  await admin.getByRole('button', { name: 'Change and run again' }).click();
  await expect(admin.getByRole('group', { name: 'Log file' })).toBeVisible();
  await expect(admin.getByLabel('Which log')).toHaveCount(0);
});

test('the tiers of a log are looked up, or one for all of a kind', async ({ admin }) => {
  const line = (at: number) =>
    `192.0.2.1 - ada [12/Oct/2026:06:25:${String(at % 60).padStart(2, '0')} +0000] "GET /v1/x HTTP/1.1" 200 1`;
  const log = [...Array.from({ length: 180 }, (_, at) => line(Math.floor(at / 3))), ''].join('\n');
  await openSimulator(admin);
  await admin.getByRole('radio', { name: 'Log file' }).check();
  const group = admin.getByRole('group', { name: 'Log file' });
  await group.getByLabel('Keep it for more runs').check();
  await group
    .getByLabel('Log file')
    .setInputFiles({ name: 'access.log', mimeType: 'text/plain', buffer: Buffer.from(log) });
  await expect(group.getByLabel('Tier of each user')).toHaveValue('');
  await runToEnd(admin);
  await expect(result(admin).getByRole('row', { name: /^B v1/ })).not.toContainText('180 0');
  await admin.getByRole('button', { name: 'Change and run again' }).click();
  for (const kind of ['ip', 'user']) await group.getByLabel(`Tier of each ${kind}`).selectOption('internal');
  await runToEnd(admin);
  await expect(admin.getByText('a log, each ip in tier internal, each user in tier internal')).toBeVisible();
  await expect(result(admin).getByRole('row', { name: /^B v1 .*180 180 0/ })).toBeVisible();
});

test('a log in CSV, of which a field says who came', async ({ admin, watch }) => {
  watch.allow(/status of 422/);
  const line = (at: number) => `2026-10-12T06:25:${String(at).padStart(2, '0')}Z,"/v1/x,${at}",key-${at % 2}`;
  const log = ['Time,Path,API Key', ...Array.from({ length: 40 }, (_, at) => line(at)), 'never,/,key-1', ''];
  await openSimulator(admin);
  await admin.getByRole('radio', { name: 'Log file' }).check();
  const group = admin.getByRole('group', { name: 'Log file' });
  const choose = () =>
    group
      .getByLabel('Log file')
      .setInputFiles({ name: 'a.csv', mimeType: 'text/csv', buffer: Buffer.from(log.join('\n')) });
  await choose();
  await expect(admin.getByText(/no line of the log can be read/i)).toBeVisible();
  await group.getByLabel('Format').selectOption('CSV with a header');
  await group.getByLabel('Client in field').fill('api key');
  await expect(group.getByLabel('Kind of identity')).toHaveValue('user');
  await choose();
  await expect(admin.getByText('40 requests of 0 addresses and 2 values of api key')).toBeVisible();
  await expect(admin.getByText('Fields: api key, path, time.')).toBeVisible();
  const first = admin.getByRole('region', { name: 'The first lines' });
  await expect(first.getByRole('columnheader', { name: 'api key' })).toBeVisible();
  await expect(first.getByRole('row').nth(2)).toContainText('key-1');
  await expect(first.getByRole('row').nth(2)).toContainText('/v1/x,1');
  await admin.getByText('1 line could not be read').click();
  await expect(admin.getByRole('region', { name: '1 line' }).getByRole('row').nth(1)).toContainText(
    'its time',
  );
  await runToEnd(admin);
  await expect(clients(admin).getByRole('link', { name: 'user:key-1' })).toBeVisible();
});

/** Much to be looked at for each request: a run that lasts until it is stopped. */
const SLOW = {
  domains: {
    default: {
      defaults: { user: 'slow' },
      tiers: [
        {
          id: 'slow',
          limits: Array.from({ length: 64 }, (_, at) => ({
            id: `l${at}`,
            algorithm: 'sliding_window_log',
            limit: 4096,
            period: '1s',
          })),
        },
      ],
    },
  },
};

test('progress, the place in the queue, and Stop', async ({ admin, browser, server, watch }) => {
  watch.allow(/status of 409/);
  const { csrf } = (await (await admin.request.get('/api/v1/session')).json()) as { csrf: string };
  const made = await admin.request.post('/api/v1/users', {
    data: { name: 'vera', password: PASSWORD, role: 'viewer' },
    headers: { 'x-csrf-token': csrf },
  });
  expect(made.status()).toBe(201);
  const context = await browser.newContext({ baseURL: server.dashboard });
  const vera = await context.newPage();
  const signedIn = await context.request.post('/api/v1/session', {
    data: { name: 'vera', password: PASSWORD },
  });
  expect(signedIn.status()).toBe(200);

  await askLittle(admin);
  await source(admin, 1).getByLabel('Clients').fill('10');
  await source(admin, 1).getByLabel('Rate each').fill('1000 / 1s');
  await source(admin, 1).getByLabel('For').fill('180s');
  await admin.getByLabel('B, in question').selectOption('a document…');
  await admin.getByLabel('Document, as JSON').fill(JSON.stringify(SLOW));
  await run(admin);
  await expect(admin.getByRole('progressbar', { name: 'Progress' })).toBeVisible();
  await expect(admin.getByText(/[1-9][\d,]* of about 1,800,000 requests/)).toBeVisible();

  await askLittle(vera);
  await run(vera);
  await expect(vera.getByText('1 run comes before it.')).toBeVisible();
  // One run at a time for each user.
  await vera.goto('/simulate');
  await vera.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(vera.getByRole('alert')).toContainText('has not ended');
  // Of others a viewer stops nothing.
  await expect(vera.getByRole('button', { name: /^Stop/ })).toHaveCount(1);
  await vera.getByRole('region', { name: 'Runs' }).getByRole('link').nth(1).click();
  await expect(vera.getByRole('progressbar')).toBeVisible();
  await expect(vera.getByRole('button', { name: 'Stop' })).toHaveCount(0);
  await vera.goto('/simulate');
  await vera.getByRole('region', { name: 'Runs' }).getByRole('link').first().click();

  await admin.getByRole('button', { name: 'Stop' }).click();
  await expect(admin.getByText('This run was stopped.')).toBeVisible();
  await expect(vera.getByRole('heading', { name: 'Result' })).toBeVisible({ timeout: within(30_000) });
  await context.close();
});

readOnly('a run that is not there says so', async ({ admin, watch }) => {
  watch.allow(/status of 404/);
  await admin.goto('/simulate/nothing');
  await expect(admin.getByRole('heading', { name: 'There is no run nothing' })).toBeVisible();
});

recording('what was recorded, in the Simulator and in the panel', async ({ admin, server }) => {
  await openTier(admin, 'free');
  await expectLive(admin);
  await openSimulator(admin);
  await admin.getByRole('radio', { name: 'Recorded sample' }).check();
  await expect(admin.getByText('Nothing was recorded yet')).toBeVisible();
  for (let at = 0; at < 20; at += 1) await server.check('ada');
  for (let at = 0; at < 3; at += 1) await server.check('bob');

  await openTier(admin, 'free');
  await limitField(admin, 'minute', 'Rate').fill('5 / 1m');
  const recorded = async () => {
    const meta = (await (await admin.request.get('/api/v1/meta')).json()) as {
      recorder: { requests: number };
    };
    return meta.recorder.requests;
  };
  await expect.poll(recorded).toBe(23);
  const dialog = await review(admin, 'less for everyone');
  await expect(dialog.getByText('Denied 0 % → 65 %')).toBeVisible({ timeout: within(20_000) });
  await expect(dialog.getByText('0 clients gain, 1 loses')).toBeVisible();
  await expect(dialog.getByText('user:ada: 0 → 15 denied')).toBeVisible();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  // Nobody looks for a run that only the panel asked for.
  const runs = async () =>
    ((await (await admin.request.get('/api/v1/simulations')).json()) as { items: unknown[] }).items.length;
  await expect.poll(runs).toBe(0);

  await admin.getByRole('button', { name: 'Review and publish' }).click();
  await expect(dialog.getByText('Denied 0 % → 65 %')).toBeVisible({ timeout: within(20_000) });
  await dialog.getByRole('button', { name: 'Open in Simulator' }).click();
  await expect(result(admin).getByRole('row', { name: /^B 1 change of v1/ })).toContainText('15');
  expect(await runs()).toBe(1);
});
