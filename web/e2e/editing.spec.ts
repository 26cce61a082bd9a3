/** Tiers are made, copied, compared and deleted; a list is shared; what loosens is asked for. */
import type { Page } from '@playwright/test';
import { expect, readOnly, test } from './fixtures.ts';
import { call } from './people.ts';
import { expectInForce, limitField, mean, openTier, panel, publishChange, review } from './steps.ts';

async function create(page: Page, name: string): Promise<void> {
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill(name);
  await dialog.getByRole('button', { name: 'Create' }).click();
}

test('a new tier: a name, limits, and it is there', async ({ admin }) => {
  await admin.goto('/tiers');
  await expect(admin.getByRole('row', { name: /pro/ })).toBeVisible();
  await admin.getByRole('heading', { level: 1 }).focus();
  await admin.keyboard.press('n');
  const dialog = admin.getByRole('dialog', { name: 'New tier' });
  await dialog.getByRole('button', { name: 'Create' }).click();
  await expect(dialog.getByText('Small letters, digits')).toBeVisible();
  await create(admin, 'pro');
  await expect(dialog.getByText('There is a tier of this name')).toBeVisible();
  await create(admin, 'gold');
  await expect(admin.getByRole('heading', { level: 1, name: 'Tier gold' })).toBeFocused();
  await expect(admin.getByText('draft, new')).toBeVisible();

  // It outlives a reload, and stands in the list.
  await admin.reload();
  await admin.getByRole('group', { name: 'Limit 1' }).getByLabel('Limit', { exact: true }).fill('minute');
  await limitField(admin, 'minute', 'Rate').fill('3k per minute');
  await admin.getByRole('link', { name: 'Tiers' }).click();
  await expect(admin.getByRole('row', { name: /gold/ })).toContainText('draft, new');
  await admin.getByRole('link', { name: 'gold' }).click();
  const publish = await review(admin, 'a tier of gold');
  await expect(publish.getByRole('row', { name: /limit minute/ })).toContainText('3000 / 1m');
  await publish.getByRole('button', { name: 'Publish v2' }).click();
  await expectInForce(admin, 2);
  await publish.getByRole('button', { name: 'Close' }).last().click();
  await expect(admin.getByText('draft, new')).toBeHidden();
  await expect(admin.getByText('Nobody: it is no default')).toBeVisible();
  await limitField(admin, 'minute', 'Rate').fill('4000 / 1m');
  await publishChange(admin, 'more gold', 3);
});

test('a copy, compared with what it is of', async ({ admin }) => {
  await openTier(admin, 'layered');
  await admin.getByRole('button', { name: 'Duplicate' }).click();
  await create(admin, 'layers');
  await expect(limitField(admin, 'day', 'Rate')).toHaveValue('50000 / 1d');
  await limitField(admin, 'second', 'Rate').fill('20 / 1s');
  await publishChange(admin, 'like layered, faster', 2);
  await admin.getByRole('link', { name: 'Tiers' }).click();
  await admin.getByLabel('Compare layered').check();
  await expect(admin.getByRole('button', { name: 'Compare: tick a second one' })).toBeDisabled();
  await admin.getByLabel('Compare layers').check();
  await admin.getByRole('button', { name: 'Compare both' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Tiers layered and layers' });
  await expect(dialog.getByRole('row', { name: /≠ second rate/ })).toContainText('10 / 1s20 / 1s');
  await expect(dialog.getByRole('row', { name: /minute rate/ })).not.toContainText('≠');
  await expect(dialog.getByText('1 of these differ')).toBeVisible();
});

test('a tier that nobody uses goes; one in use takes its users elsewhere first', async ({
  admin,
  server,
  watch,
}) => {
  // It is looked for where it was.
  watch.allow(/status of 404/);
  await openTier(admin, 'internal');
  await admin.getByRole('button', { name: 'Delete' }).click();
  await expect(admin.getByText('This goes with the next version')).toBeVisible();
  await expect(admin.getByRole('button', { name: 'Add a limit' })).toBeHidden();
  await admin.getByRole('button', { name: 'Discard' }).click();
  await admin.getByRole('button', { name: 'Delete' }).click();
  await publishChange(admin, 'internal is not used', 2);
  await expect(
    admin.getByRole('heading', { name: 'Tier internal was deleted in v2 by admin' }),
  ).toBeVisible();
  await expect(admin.getByRole('link', { name: 'Open v2' })).toHaveAttribute('href', '/history/2');

  const who = (await (await admin.request.get('/api/v1/session')).json()) as { csrf: string };
  const client = { kind: 'user', value: 'ada', tier: 'free' };
  const made = await admin.request.post('/api/v1/clients', {
    data: client,
    headers: { 'x-csrf-token': who.csrf },
  });
  expect(made.status()).toBe(201);
  await openTier(admin, 'free');
  await expect(admin.getByText('1 client', { exact: true })).toBeVisible();
  await admin.getByRole('button', { name: 'Delete' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Delete tier free' });
  await expect(dialog.getByText(/Default tier of .*user/)).toBeVisible();
  await dialog.getByLabel('To the tier').selectOption('pro');
  await dialog.getByRole('button', { name: 'Move 1 client to pro and delete' }).click();
  await expect(dialog).toBeHidden();
  const publish = await review(admin, 'free becomes pro');
  await expect(publish.getByRole('heading', { name: 'client user:ada' })).toBeVisible();
  await expect(publish.getByRole('row', { name: 'default tier of user' })).toContainText('pro');
  await mean(publish, 'Client user:ada, limit minute: lets 100 times as much through');
  await publish.getByRole('button', { name: 'Publish v4' }).click();
  await expectInForce(admin, 4);
  expect((await server.check('ada')).decision.limit_id).toBe('default/tier:pro/minute');
});

test('mode, sharing and what happens without the store', async ({ admin }) => {
  await openTier(admin, 'pro');
  const limit = admin.getByRole('group', { name: 'Limit minute' });
  await limit.getByText('Shared by nodes: local').click();
  await limit.getByLabel('How nodes share it').selectOption('strict');
  await expect(limit.getByText('never above the limit on all nodes together')).toBeVisible();
  await limit.getByLabel('When the store does not answer').selectOption('local');
  const share = limit.getByLabel('The part that a node counts alone with');
  await share.fill('2');
  await share.blur();
  await expect(limit.getByText('A share above 0')).toBeVisible();
  await share.fill('0.25');
  const publish = await review(admin, 'pro is shared');
  await expect(publish.getByRole('row', { name: 'minute on failure' })).toContainText('local 0.25');
  await publish.getByRole('button', { name: 'Publish v2' }).click();
  await expectInForce(admin, 2);
  await publish.getByRole('button', { name: 'Close' }).last().click();
  await limit.getByLabel('When the store does not answer').selectOption('open');
  const again = await review(admin, 'open without the store');
  await expect(again.getByText('lets everything through when what nodes share')).toBeVisible();
  await again.getByLabel('Yes, that is meant').check();
  await again.getByRole('button', { name: 'Cancel' }).click();
  // What is meant is what was said, nothing else.
  await limit.getByLabel('Mode').selectOption('shadow');
  const watched = await review(admin, 'pro is only watched');
  await expect(watched.getByText('limit minute: no longer denies, it only counts')).toBeVisible();
  await watched.getByRole('button', { name: 'Publish v3' }).click();
  await expect(watched.getByText('Tick the box if that is meant')).toBeVisible();
  await watched.getByLabel('Yes, that is meant').check();
  await watched.getByRole('button', { name: 'Publish v3' }).click();
  await expectInForce(admin, 3);
  await watched.getByRole('button', { name: 'Close' }).last().click();
  // That it denies again is told, and no tick is asked for.
  await limit.getByLabel('Mode').selectOption('enforce');
  await limit.getByLabel('When the store does not answer').selectOption('local');
  const denying = await review(admin, 'pro denies again');
  await expect(
    denying.getByText('! Tier pro, limit minute: starts to refuse: was shadow since v3 at least.'),
  ).toBeVisible();
  await expect(denying.getByLabel('Yes, that is meant')).toBeHidden();
  await denying.getByRole('button', { name: 'Publish v4' }).click();
  await expectInForce(admin, 4);
});

test('what was used is forgotten where that is chosen', async ({ admin, server }) => {
  for (let at = 0; at < 50; at += 1) await server.check('ada');
  await openTier(admin, 'free');
  await limitField(admin, 'minute', 'Rate').fill('200 / 1m');
  const publish = await review(admin, 'all begin anew');
  await publish.getByLabel('What was used of minute').selectOption('reset');
  await publish.getByRole('button', { name: 'Publish v2' }).click();
  await expectInForce(admin, 2);
  const { decision } = await server.check('ada');
  expect(decision.remaining).toBe(199);
  expect(decision.limit_id).toBe('default/tier:free/minute');
});

readOnly('the whole tier as JSON, and an edit in it', async ({ admin }) => {
  await openTier(admin, 'pro');
  await admin.getByRole('button', { name: 'JSON', exact: true }).click();
  const json = admin.getByLabel('As the policy document has it');
  const value = JSON.parse(await json.inputValue()) as { limits: { limit: number }[] };
  expect(value).toMatchObject({ id: 'pro', limits: [{ id: 'minute', limit: 10000 }] });
  // What is not yet right stays, through the form and a reload, and is not published.
  for (const wrong of ['{ "id": "pro", ', '{ "id": "pro", "limits": [{}] }']) {
    await json.fill(wrong);
    await expect(admin.getByText('This is not JSON')).toBeVisible();
    await admin.getByRole('button', { name: 'Form', exact: true }).click();
    await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('10000 / 1m');
    await admin.reload();
    await admin.getByRole('button', { name: 'JSON', exact: true }).click();
    await expect(json).toHaveValue(wrong);
  }
  await admin.getByRole('button', { name: '1 change' }).click();
  const panel = admin.getByRole('dialog', { name: 'Publish' });
  await panel.getByLabel('Message').fill('half an edit');
  await panel.getByRole('button', { name: 'Publish v2' }).click();
  await expect(panel.getByText(/tier pro has fields that need a look/)).toBeVisible();
  await panel.getByRole('button', { name: 'Cancel' }).click();
  await json.fill(JSON.stringify({ ...value, limits: [{ ...value.limits[0], limit: 9000 }] }));
  await admin.getByRole('button', { name: 'Form', exact: true }).click();
  await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('9000 / 1m');
});

test('what others publish while JSON is typed stays', async ({ admin, other }) => {
  await openTier(admin, 'pro');
  await admin.getByRole('button', { name: 'JSON', exact: true }).click();
  const json = admin.getByLabel('As the policy document has it');
  const text = await json.inputValue();
  await json.fill(text.replace('10000', '9000').slice(0, -1));
  await expect(admin.getByText('This is not JSON')).toBeVisible();
  const value = JSON.parse(text) as { limits: object[] };
  const theirs = { ...value, limits: [{ ...value.limits[0], burst: 77 }] };
  await call(other, 'PUT', '/tiers/pro', theirs, { 'if-match': '*' });
  await expect(admin.getByRole('link', { name: 'Policy v2 on 1 of 1 node' })).toBeVisible();
  await json.fill(text.replace('10000', '9000'));
  await expect(json).toHaveValue(/"burst": 77/);
  await admin.getByRole('button', { name: 'Form', exact: true }).click();
  await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('9000 / 1m');
  await expect(limitField(admin, 'minute', 'Burst')).toHaveValue('77');
});

test('fields that the form does not know are shown, and kept by an edit', async ({ admin, watch }) => {
  // This server knows them neither.
  watch.allow(/status of 422/);
  await admin.route(/\/api\/v1\/tiers\/pro(\?|$)/, async (route) => {
    const answer = await route.fetch();
    const item = (await answer.json()) as { value: { limits: object[] } };
    const limits = item.value.limits.map((limit) => ({ ...limit, jitter: '5ms' }));
    await route.fulfill({
      response: answer,
      json: { ...item, value: { ...item.value, limits, colour: 'blue' } },
    });
  });
  await openTier(admin, 'pro');
  // The first ones are of the limits.
  await admin.getByText('Advanced').last().click();
  await expect(admin.getByText('"colour": "blue"')).toBeVisible();
  await limitField(admin, 'minute', 'Burst').fill('300');
  const publish = await review(admin, 'smaller bursts');
  const sent = admin.waitForRequest(
    (one) => one.method() === 'POST' && one.url().includes('/policy/changes'),
  );
  await publish.getByRole('button', { name: 'Publish v2' }).click();
  const { changes } = (await sent).postDataJSON() as { changes: { value: object }[] };
  expect(changes[0]?.value).toMatchObject({
    colour: 'blue',
    limits: [{ id: 'minute', burst: 300, jitter: '5ms' }],
  });
});

readOnly('the order of limits is changed, and told', async ({ admin }) => {
  await openTier(admin, 'layered');
  const second = admin.getByRole('group', { name: 'Limit minute' });
  await second.getByText('Shared by nodes').click();
  await second.getByRole('button', { name: 'Move up' }).click();
  await expect(second.getByLabel('Limit', { exact: true })).toBeFocused();
  const publish = await review(admin, 'the minute first');
  await expect(publish.getByRole('row', { name: /order of the limits/ })).toContainText(
    'minute, second, day',
  );
});

test('a list is shared, and another one goes on with it on top of what is in force by then', async ({
  admin,
  other,
}) => {
  await openTier(admin, 'layered');
  await limitField(admin, 'minute', 'Rate').fill('900 / 1m');
  const publish = await review(admin, 'slower minutes');
  await publish.getByRole('button', { name: 'Share' }).click();
  const link = await publish.getByLabel('Link to the draft').inputValue();
  await publish.getByRole('button', { name: 'Cancel' }).click();
  await admin.getByRole('button', { name: 'Discard' }).click();
  await limitField(admin, 'second', 'Burst').fill('30');
  await publishChange(admin, 'bursts', 2);

  await other.goto(link);
  const draft = other.getByRole('dialog', { name: 'Shared draft' });
  await expect(draft.getByText('Change: tier layered')).toBeVisible();
  await draft.getByRole('button', { name: 'Add to my changes' }).click();
  const theirs = panel(other);
  await expect(theirs.getByLabel('Message')).toHaveValue('slower minutes');
  await expect(theirs.getByRole('row', { name: /minute rate/ })).toContainText('900 / 1m');
  await expect(theirs.getByRole('row', { name: /burst/ })).toBeHidden();
  await theirs.getByRole('button', { name: 'Publish v3' }).click();
  await expectInForce(other, 3);
  await openTier(other, 'layered');
  await expect(limitField(other, 'second', 'Burst')).toHaveValue('30');
  await expect(limitField(other, 'minute', 'Rate')).toHaveValue('900 / 1m');
});

test('roll back stands beside what was published', async ({ admin }) => {
  await openTier(admin, 'layered');
  await limitField(admin, 'minute', 'Rate').fill('900 / 1m');
  const publish = await review(admin, 'slower minutes');
  await publish.getByRole('button', { name: 'Publish v2' }).click();
  await expectInForce(admin, 2);
  await publish.getByRole('button', { name: 'Roll back…' }).click();
  const back = admin.getByRole('dialog', { name: /v2/ });
  await back.getByRole('button', { name: /v3/ }).click();
  await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('1000 / 1m');
});

readOnly('the server warns before it is published', async ({ admin }) => {
  await openTier(admin, 'layered');
  await limitField(admin, 'day', 'Rate').fill('2000000 / 1d');
  const publish = await review(admin, 'a day that never ends');
  await expect(publish.getByText('The server warns of one thing')).toBeVisible();
  await expect(publish.getByRole('listitem').filter({ hasText: 'tier layered' })).toBeVisible();
});
