/** Clients: found, imported, changed one by one and many at once, by those who may. */
import { chooseFile, CLIENTS, importClients } from './clientsteps.ts';
import { clear, expect, test } from './fixtures.ts';
import { addUser, call, signedIn } from './people.ts';
import { limitField, mean, publishChange } from './steps.ts';
import { within } from './within.ts';

test('a file is tried first, line by line, and then imported as one version', async ({ admin, watch }) => {
  watch.allow(/status of 422/);
  await admin.goto('/clients');
  await expect(admin.getByText('No client is configured yet')).toBeVisible();
  await admin.getByRole('button', { name: 'Import' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Import clients' });
  await chooseFile(admin, [...CLIENTS, 'user,eve,gold,,,,', 'user,acme,free,,,,']);
  await expect(dialog.getByLabel('Wrong 2')).toBeChecked();
  await expect(dialog.getByLabel('New 5')).toBeVisible();
  const wrong = dialog.getByRole('region', { name: 'Lines' });
  await expect(wrong.getByRole('row', { name: /^7 user:eve tier: no tier is called/ })).toBeVisible();
  await expect(
    wrong.getByRole('row', { name: /^8 user:acme line 2 is about the same client/ }),
  ).toBeVisible();
  await expect(dialog.getByText('Nothing is imported while lines are wrong.')).toBeVisible();

  await chooseFile(admin, CLIENTS);
  await expect(dialog.getByLabel('New 5')).toBeChecked();
  await mean(dialog, 'Client ip:10.0.0.0/8: is no longer limited');
  await dialog.getByRole('button', { name: 'Publish v2' }).click();
  await expect(dialog.getByText('v2 in force')).toBeVisible();
  await expect(dialog.getByText('v2 on 1 of 1')).toBeVisible();
  await expect(dialog.getByRole('button', { name: 'Roll back…' })).toBeVisible();
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await expect(admin.getByText('5 clients')).toBeVisible();
  await expect(admin.getByRole('row', { name: /user:acme Acme GmbH pro/ })).toBeVisible();
  await expect(admin.getByRole('row', { name: /user:scraper .* blocked no end/ })).toBeVisible();
  await expect(admin.getByRole('row', { name: /user:whale .* 100 \/ 1d in (6|7) d/ })).toBeVisible();

  await admin.getByRole('button', { name: 'Import' }).click();
  await chooseFile(admin, CLIENTS.slice(0, 3));
  await expect(dialog.getByLabel('Unchanged 2')).toBeChecked();
  await expect(dialog.getByText('there is nothing to publish')).toBeVisible();
  await dialog.getByLabel('Clients that the file does not have').selectOption('are removed');
  await expect(dialog.getByText('Removed 3')).toBeVisible();
});

test('what was tried on a policy that is no more is tried again', async ({ admin, other, watch }) => {
  watch.allow(/status of 412/);
  await admin.goto('/clients');
  await admin.getByRole('button', { name: 'Import' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Import clients' });
  await chooseFile(admin, CLIENTS);
  await expect(dialog.getByLabel('New 5')).toBeChecked();
  await mean(dialog, 'Client ip:10.0.0.0/8: is no longer limited');
  await importClients(other, CLIENTS.slice(0, 3));
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await expect(dialog.getByText('this is what it would do now')).toBeVisible();
  await expect(dialog.getByLabel('New 3')).toBeChecked();
  await mean(dialog, 'Client ip:10.0.0.0/8: is no longer limited');
  await dialog.getByRole('button', { name: 'Publish v3' }).click();
  await expect(dialog.getByText('v3 in force')).toBeVisible();
});

test('clients are found by a part of their id or label, by tier and by override', async ({
  admin,
  server,
}) => {
  await importClients(admin, CLIENTS);
  await admin.goto('/clients');
  await expect(admin.getByText('5 clients')).toBeVisible();
  const row = (id: string) => admin.getByRole('row', { name: new RegExp(`^(Select \\S+ )?${id} `) });
  await admin.keyboard.press('/');
  await admin.keyboard.type('ac');
  await expect(admin.getByText('2 clients')).toBeVisible();
  await expect(row('user:acme')).toBeVisible();
  await expect(row('user:whale')).toBeHidden();
  await admin.getByLabel('Filter').fill('GMBH');
  await expect(admin.getByText('1 client', { exact: true })).toBeVisible();
  await expect(row('user:acme')).toBeVisible();
  await admin.getByLabel('Filter').fill('ip:');
  await expect(admin.getByText('1 client', { exact: true })).toBeVisible();
  await expect(row('ip:10.0.0.0/8')).toBeVisible();
  await admin.getByLabel('Filter').fill('');
  await admin.getByLabel('Show', { exact: true }).selectOption('With override');
  await expect(admin.getByText('3 clients')).toBeVisible();
  await admin.getByLabel('Tier', { exact: true }).selectOption('pro');
  await expect(admin.getByText('1 client', { exact: true })).toBeVisible();
  await expect(row('user:whale')).toBeVisible();
  await admin.reload();
  await expect(admin.getByText('1 client', { exact: true })).toBeVisible();
  await admin.getByLabel('Filter').fill('zzz');
  await expect(admin.getByText('No client matches “zzz”, tier pro, with override')).toBeVisible();
  await admin.getByRole('button', { name: 'Clear filters' }).click();
  await expect(admin.getByText('5 clients')).toBeVisible();

  await admin.getByRole('region', { name: 'Clients' }).focus();
  await admin.keyboard.press('j');
  await admin.keyboard.press('j');
  await expect(admin.getByRole('link', { name: 'user:acme' })).toBeFocused();
  await admin.keyboard.press('x');
  await expect(admin.getByRole('checkbox', { name: 'Select user:acme' })).toBeChecked();
  await expect(admin.getByText('1 selected')).toBeVisible();
  await admin.keyboard.press('x');
  await expect(admin.getByText('1 selected')).toBeHidden();

  for (let at = 0; at < 50; at += 1) await server.check('whale');
  await expect(row('user:whale').getByText('50 %')).toBeVisible({ timeout: within(15_000) });
  await admin.getByRole('button', { name: 'Client', exact: true }).dblclick();
  await expect(admin.getByRole('link', { name: /:/ }).first()).toHaveText('user:whale');
});

test('clients have tags: typed, published, filtered by', async ({ admin }) => {
  await importClients(admin, CLIENTS);
  await admin.goto('/clients/user%3Aacme');
  const tags = admin.getByLabel('Tags');
  await tags.pressSequentially('beta  eu Gold');
  await expect(tags).toHaveValue('beta  eu Gold');
  await tags.blur();
  await expect(admin.getByText('Small letters, digits, _ and -, each tag')).toBeVisible();
  await tags.fill('beta eu');
  await publishChange(admin, 'tags for acme', 3);
  await expect(tags).toHaveValue('beta eu');
  await admin.getByRole('link', { name: 'eu', exact: true }).click();
  await expect(admin.getByRole('heading', { level: 1, name: 'Clients' })).toBeVisible();
  await expect(admin.getByText('1 client', { exact: true })).toBeVisible();
  await expect(admin.getByRole('row', { name: /user:acme beta eu/ })).toBeVisible();
  await expect(admin.getByLabel('Tag', { exact: true })).toHaveValue('eu');
  await admin.getByLabel('Tag', { exact: true }).fill('gold');
  await expect(admin.getByText('No client matches tag gold')).toBeVisible();
  await admin.goto('/history/3');
  await expect(admin.getByText('tags', { exact: true })).toBeVisible();
});

test('who is denied now is found; the rows say how they stand, in one call', async ({ admin, server }) => {
  await importClients(admin, CLIENTS);
  for (let at = 0; at < 400; at += 1) await server.check('whale');
  const asked: string[] = [];
  admin.on('request', (request) => {
    if (/keys\/peek|clients\/standings/.test(request.url())) asked.push(new URL(request.url()).pathname);
  });
  await admin.goto('/clients');
  const whale = admin.getByRole('row', { name: /user:whale/ });
  await expect(whale).toContainText('100 %');
  await expect(whale).toContainText(/just now|ago/);
  await expect(admin.getByRole('row', { name: /user:acorn/ })).toContainText('0 %');
  expect(new Set(asked)).toEqual(new Set(['/api/v1/clients/standings']));
  await admin.getByLabel('Show', { exact: true }).selectOption('Denied now');
  await expect(admin.getByText('1 client', { exact: true })).toBeVisible();
  await expect(whale).toBeVisible();
  await expect(admin.getByText('Denied within the last minute, of the heaviest keys')).toBeVisible();
  await admin.getByLabel('Filter').fill('acorn');
  await expect(admin.getByText('No client matches “acorn”')).toBeVisible();
});

test('the keys of a client are reset from its page, with a reason', async ({ admin, server }) => {
  await importClients(admin, CLIENTS);
  for (let at = 0; at < 50; at += 1) await server.check('whale');
  await admin.goto('/clients/user%3Awhale');
  await admin.getByRole('button', { name: 'Reset keys…' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Reset user:whale?' });
  await expect(dialog).toContainText('50 of 100 used');
  await dialog.getByLabel('Reason').fill('its loop is mended');
  await dialog.getByRole('button', { name: 'Reset key' }).click();
  await expect(admin.getByText(/^Reset by you at/)).toBeVisible();
  await admin.goto('/history/audit?action=keys');
  await expect(admin.getByRole('cell', { name: /^done: .*: its loop is mended$/ })).toBeVisible();
});

test('an override is given, edited by others meanwhile, published, and ended', async ({
  admin,
  other,
  server,
}) => {
  await importClients(admin, CLIENTS);
  await admin.goto('/clients');
  await admin.getByRole('link', { name: 'user:acme' }).click();
  await expect(admin.getByRole('heading', { level: 1, name: 'Client user:acme' })).toBeFocused();
  const effective = admin.getByRole('region', { name: 'In force' });
  await expect(effective.getByRole('row', { name: /^minute tier pro 10000 \/ 1m/ })).toBeVisible();
  await expect(admin.getByText('Tier pro, given to this client')).toBeVisible();

  await admin.getByRole('radio', { name: 'limits of its own' }).check();
  await limitField(admin, 'minute', 'Limit').fill('day');
  await admin.getByRole('group', { name: 'Limit day' }).getByLabel('Algorithm').selectOption('Fixed window');
  await limitField(admin, 'day', 'Rate').fill('200 / 1d');
  await admin.getByRole('button', { name: 'Review and publish' }).click();
  await expect(admin.getByLabel('Reason')).toBeFocused();
  await admin.getByLabel('Reason').fill('migration');
  await expect(admin.getByText(/^in (6|7) d$/)).toBeVisible();
  await admin.getByLabel('Ends').selectOption('no end');
  await expect(admin.getByText('It stays until somebody ends it.')).toBeVisible();
  await admin.getByLabel('Ends').selectOption('in 2 days');
  await admin.reload();
  await expect(admin.getByLabel('Reason')).toHaveValue('migration');

  await other.goto('/clients/user%3Aacme');
  await other.getByLabel('Label').fill('Acme Inc.');
  await publishChange(other, 'another name', 3);
  await expect(admin.getByText('published v3 while you edited')).toBeVisible();
  await expect(admin.getByLabel('Label')).toHaveValue('Acme Inc.');

  await publishChange(admin, 'a day of its own', 4);
  await expect(effective.getByRole('row', { name: /^day override 200 \/ 1d/ })).toBeVisible();
  for (let at = 0; at < 20; at += 1) await server.check('acme');
  await expect(effective.getByText('20 of 200 10 %')).toBeVisible();
  await expect(admin.getByRole('link', { name: 'Inspect', exact: true })).toHaveAttribute(
    'href',
    '/inspect?key=user%3Aacme',
  );

  await admin.getByRole('radio', { name: 'none' }).check();
  await publishChange(admin, 'it is over', 5);
  await expect(effective.getByRole('row', { name: /^day/ })).toBeHidden();
  await expect(effective.getByRole('row', { name: /^minute tier pro/ })).toBeVisible();
});

test('a client is made, and deleted', async ({ admin, watch }) => {
  watch.allow(/status of 404/);
  await admin.goto('/clients');
  await admin.getByRole('button', { name: 'New client' }).click();
  const dialog = admin.getByRole('dialog', { name: 'New client' });
  await dialog.getByLabel('Kind').fill('User');
  await dialog.getByRole('button', { name: 'Continue' }).click();
  await expect(dialog.getByLabel('Kind')).toBeFocused();
  await dialog.getByLabel('Kind').fill('user');
  await dialog.getByLabel('Value').fill('a/b:c d');
  await dialog.getByRole('button', { name: 'Continue' }).click();
  await expect(admin.getByRole('heading', { level: 1, name: 'Client user:a/b:c d' })).toBeVisible();
  await expect(admin.getByText('Tier free, the default of user')).toBeVisible();
  await admin.getByLabel('Tier').selectOption('layered');
  await admin.getByLabel('Note').fill('asked for it');
  await publishChange(admin, 'a client with an odd name', 2);
  await expect(admin.getByText('Tier layered, given to this client')).toBeVisible();
  await admin.goto('/clients');
  await admin.getByRole('link', { name: 'user:a/b:c d' }).click();
  await admin.getByRole('button', { name: 'Delete' }).click();
  await expect(admin.getByText('This goes with the next version')).toBeVisible();
  await admin.getByRole('button', { name: 'Discard' }).click();
  await expect(admin.getByLabel('Note')).toHaveValue('asked for it');
  await admin.getByRole('button', { name: 'Delete' }).click();
  await publishChange(admin, 'not any more', 3);
  await expect(
    admin.getByRole('heading', { level: 1, name: 'Client user:a/b:c d was deleted in v3 by admin' }),
  ).toBeVisible();
  await admin.getByRole('link', { name: 'Open v3' }).click();
  await expect(admin.getByRole('heading', { level: 1, name: 'Version v3' })).toBeVisible();
});

test('many are changed at once: the selected, or all that match, whose number is typed', async ({
  admin,
  other,
  watch,
}) => {
  watch.allow(/status of 412|ERR_FAILED/);
  const many = Array.from({ length: 120 }, (_, at) => `user,trial-${at},free,,,,`);
  await importClients(admin, [...CLIENTS, ...many]);
  await admin.goto('/clients');
  await admin.getByRole('checkbox', { name: 'Select user:acme' }).check();
  await admin.getByRole('checkbox', { name: 'Select user:acorn' }).check();
  await admin.getByRole('button', { name: 'Change the selected…' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Change many clients' });
  await expect(dialog.getByText('For 2 clients.')).toBeVisible();
  await dialog.getByRole('radio', { name: 'Give an override' }).check();
  await dialog.getByLabel('Message').fill('slower for a while');
  await dialog.getByRole('button', { name: 'Publish v3' }).click();
  await expect(dialog.getByLabel('Reason')).toBeFocused();
  await dialog.getByLabel('Reason').fill('an incident');
  await dialog.getByRole('button', { name: 'Publish v3' }).click();
  await expect(dialog.getByText('v3 in force')).toBeVisible();
  await expect(dialog.getByText('v3 on 1 of 1')).toBeVisible();
  await dialog.getByRole('button', { name: 'Roll back…' }).click();
  const back = admin.getByRole('dialog', { name: 'Roll back, v3' });
  await expect(back.getByRole('radio', { name: "Only undo v3's own changes" })).toBeChecked();
  await expect(back.getByRole('table', { name: 'client user:acme' })).toContainText('blocked');
  await back.getByRole('button', { name: 'Cancel' }).click();
  await expect(back).toBeHidden();
  await expect(admin.getByRole('row', { name: /user:acme Acme GmbH pro blocked in 7 d/ })).toBeVisible();
  await expect(admin.getByText('2 selected')).toBeHidden();

  await admin.getByLabel('Filter').fill('user:trial-');
  await expect(admin.getByText('120 clients')).toBeVisible();
  await admin.getByRole('checkbox', { name: 'Select user:trial-0', exact: true }).check();
  await importClients(other, [CLIENTS[0] ?? '', 'user,trial-more,free,,,,']);
  await expect(admin.getByText('121 clients')).toBeVisible();
  await admin.getByRole('button', { name: 'Change all 121 that match…' }).click();
  await expect(dialog.getByText('Those that match kind user, “trial-”.')).toBeVisible();
  await dialog.getByLabel('Tier', { exact: true }).selectOption('pro');
  await dialog.getByLabel('Message').fill('trials become pro');
  await dialog.getByRole('button', { name: 'Publish v5' }).click();
  await expect(dialog.getByText('This is for 121 clients: type the number')).toBeVisible();
  // Others add one, and the page does not hear how many there are now.
  await admin.route('**/api/v1/clients?**', (route) => route.abort());
  await importClients(other, [CLIENTS[0] ?? '', 'user,trial-most,free,,,,']);
  await dialog.getByLabel('Type 121 to confirm').fill('121');
  await dialog.getByRole('button', { name: 'Publish v6' }).click();
  await expect(dialog.getByText('122 clients match by now. Nothing was changed')).toBeVisible();
  await admin.unroute('**/api/v1/clients?**');
  await dialog.getByLabel('Type 122 to confirm').fill('122');
  await dialog.getByRole('button', { name: 'Publish v6' }).click();
  await expect(dialog.getByText('v6 in force')).toBeVisible();
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  const listed = admin.waitForResponse((answer) => answer.url().includes('tier=pro'));
  await admin.getByLabel('Tier', { exact: true }).selectOption('pro');
  await listed;
  await expect(admin.getByText('122 clients')).toBeVisible();
  await expect(admin.getByRole('row', { name: /user:trial-/ })).toHaveCount(100);
  await admin.getByRole('button', { name: 'Show more' }).click();
  await expect(admin.getByRole('row', { name: /user:trial-/ })).toHaveCount(122);
});

test('an operator blocks for a day at most, and no more', async ({ admin, browser, server, watch }) => {
  watch.allow(/status of (403|404|412)|ERR_FAILED/);
  await importClients(admin, CLIENTS);
  await addUser(admin, 'olga', 'operator');
  const context = await signedIn(browser, server, 'olga');
  const page = await context.newPage();
  await page.goto('/clients');
  await expect(page.getByRole('link', { name: 'user:acme' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Import' })).toBeHidden();
  await expect(page.getByRole('checkbox')).toHaveCount(0);
  await page.getByRole('link', { name: 'user:acme' }).click();
  await expect(page.getByRole('button', { name: 'Review and publish' })).toBeHidden();
  await expect(page.getByRole('radio', { name: 'blocked' })).toBeChecked();
  await expect(page.getByLabel('Ends').locator('option')).not.toContainText(['no end']);
  await page.getByRole('button', { name: 'Set it now' }).click();
  await expect(page.getByLabel('Reason')).toBeFocused();
  await page.getByLabel('Reason').fill('a flood');
  await page.getByLabel('Time', { exact: true }).fill('2099-01-01T00:00');
  await page.getByRole('button', { name: 'Set it now' }).click();
  await expect(page.getByText(/more than 24 hours needs the role/)).toBeVisible();
  await page.getByLabel('Ends').selectOption('in 4 hours');
  await page.getByRole('button', { name: 'Set it now' }).click();
  await expect(page.getByText('v3 in force')).toBeVisible();
  await expect(page.getByText('v3 on 1 of 1 node', { exact: true })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Roll back…' })).toHaveCount(0);
  await expect(page.getByText('blocked, in 4 h')).toBeVisible();
  expect((await server.check('acme')).status).toBe(429);

  // Others change the client; what he has seen is no more.
  await call(
    admin,
    'PATCH',
    '/clients/user%3Aacme',
    { label: 'Acme Inc.' },
    { 'if-match': '*', 'content-type': 'application/merge-patch+json' },
  );
  await page.getByRole('button', { name: 'Set it now' }).click();
  await expect(page.getByText('admin changed this client meanwhile')).toBeVisible();
  await page.getByRole('button', { name: 'End it now' }).click();
  await expect(page.getByText('None: it has what its tier has.')).toBeVisible();
  expect((await server.check('acme')).status).toBe(200);

  await page.goto('/clients/user%3Ascraper');
  await expect(page.getByText('lasts longer than 24 hours: changing that needs an editor')).toBeVisible();
  await page.goto('/clients');
  await page.getByRole('button', { name: 'Temporary override' }).click();
  await page.getByLabel('Kind').fill('user');
  await page.getByLabel('Value').fill('mallory');
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByLabel('Reason').fill('abuse');
  await page.getByRole('button', { name: 'Set it now' }).click();
  await expect(page.getByText('v6 in force')).toBeVisible();
  expect((await server.check('mallory')).status).toBe(429);
  await context.close();
});

test('a viewer reads, and is offered nothing else', async ({ admin, browser, server }) => {
  await importClients(admin, CLIENTS);
  await addUser(admin, 'vera', 'viewer');
  const context = await signedIn(browser, server, 'vera');
  const page = await context.newPage();
  await page.goto('/clients');
  await expect(page.getByText('Read only: publishing takes an editor.')).toBeVisible();
  await expect(page.getByRole('link', { name: 'user:scraper' })).toBeVisible();
  await expect(page.locator('#content').getByRole('button')).toHaveText(['Client']);
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'Export' }).click(),
  ]);
  expect(file.suggestedFilename()).toBe('clients.csv');
  await page.getByRole('link', { name: 'user:scraper' }).click();
  await expect(page.getByText('blocked, no end')).toBeVisible();
  await expect(page.getByRole('radio')).toHaveCount(0);
  await expect(page.locator('#content').getByRole('button')).toHaveCount(0);
  await context.close();
});

clear('who is denied most is told, and made a client', async ({ admin, server, watch }) => {
  watch.allow(/status of 404/);
  for (let at = 0; at < 400; at += 1) await server.check('mallory');
  await admin.goto('/clients');
  await expect(admin.getByRole('row', { name: /^user:mallory tier free, minute [1-9]/ })).toBeVisible();
  await admin.getByRole('button', { name: 'Make a client of user:mallory' }).click();
  await admin.getByRole('dialog').getByRole('button', { name: 'Continue' }).click();
  await expect(admin.getByRole('heading', { level: 1, name: 'Client user:mallory' })).toBeVisible();
  // Nothing is given yet: leaving leaves nothing behind.
  await expect(admin.getByRole('button', { name: 'Review and publish' })).toBeDisabled();
  await admin.getByLabel('Label').fill('Mallory');
  await expect(admin.getByRole('button', { name: '1 change' })).toBeVisible();
  await admin.getByLabel('Label').fill('');
  await expect(admin.getByRole('button', { name: '1 change' })).toBeHidden();
  await admin.getByRole('radio', { name: 'limits of its own' }).check();
  await limitField(admin, 'minute', 'Rate').fill('10 / 1m');
  await admin.getByLabel('Reason').fill('asked for it');
  await publishChange(admin, 'less for mallory', 2);
  for (let at = 0; at < 100; at += 1) await server.check('mallory');
  await admin.goto('/clients');
  await expect(
    admin.getByRole('row', {
      name: /user:mallory – free, default 10 \/ 1m in 7 d .* [1-9]\d* \S.* v2 admin$/,
    }),
  ).toBeVisible({ timeout: within(20_000) });
  await admin.getByRole('heading', { name: 'Clients' }).focus();
  await admin.keyboard.press('n');
  await expect(admin.getByRole('dialog', { name: 'New client' })).toBeVisible();
});

test('what would let many through is asked for, and of what was chosen last', async ({ admin }) => {
  await importClients(admin, CLIENTS);
  await admin.goto('/clients');
  await admin.getByRole('checkbox', { name: 'Select user:acme', exact: true }).check();
  await admin.getByRole('checkbox', { name: 'Select user:acorn', exact: true }).check();
  await admin.getByRole('button', { name: 'Change the selected…' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Change many clients' });
  await dialog.getByRole('radio', { name: 'Give an override' }).check();
  await dialog.getByRole('radio', { name: 'unlimited', exact: true }).check();
  await dialog.getByLabel('Reason').fill('a load test');
  await dialog.getByLabel('Message').fill('no limits for both');
  await dialog.getByRole('button', { name: 'Publish v3' }).click();
  const said = dialog.getByText('Client user:acme and 1 more: is no longer limited.');
  await expect(said).toBeVisible();
  await expect(dialog.getByText('Tick the box if that is meant')).toBeVisible();
  await dialog.getByRole('radio', { name: 'Set the tier' }).check();
  await expect(said).toBeHidden();
  await dialog.getByRole('radio', { name: 'Give an override' }).check();
  await dialog.getByRole('button', { name: 'Publish v3' }).click();
  await mean(dialog, 'Client user:acme and 1 more: is no longer limited.');
  await dialog.getByRole('button', { name: 'Publish v3' }).click();
  await expect(dialog.getByText('v3 in force')).toBeVisible();
  await expect(admin.getByRole('row', { name: /user:acorn .*unlimited/ })).toBeVisible();
  await dialog.getByRole('button', { name: 'Close' }).last().click();

  // What starts to refuse is told before it is published, and not asked about.
  for (const user of ['acme', 'acorn'])
    await admin.getByRole('checkbox', { name: `Select user:${user}`, exact: true }).check();
  await admin.getByRole('button', { name: 'Change the selected…' }).click();
  await dialog.getByRole('radio', { name: 'End the override' }).check();
  await dialog.getByLabel('Message').fill('the load test is over');
  await dialog.getByRole('button', { name: 'Publish v4' }).click();
  await expect(
    dialog.getByText('Client user:acme and 1 more: starts to refuse: was unlimited'),
  ).toBeVisible();
  await expect(dialog.getByText('v4 in force')).toBeHidden();
  await dialog.getByRole('button', { name: 'Publish v4' }).click();
  await expect(dialog.getByText('v4 in force')).toBeVisible();
});
