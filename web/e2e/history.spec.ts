/** Versions: their list, what differs, and the way back. */
import type { Locator, Page } from '@playwright/test';
import { expect, test } from './fixtures.ts';
import { addUser, call, publishPro, signedIn } from './people.ts';
import { expectInForce, expectLive, limitField, openTier, panel } from './steps.ts';

const row = (page: Page, version: number) => page.locator(`tr[data-version="${version}"]`);
const panelOf = (page: Page, version: number) => page.getByRole('dialog', { name: `Roll back, v${version}` });
const meant = (dialog: Locator) => dialog.getByRole('checkbox', { name: 'Yes, that is meant' });
const section = (within: Locator | Page, name: string) => within.getByRole('table', { name });

async function publishThree(admin: Page): Promise<void> {
  expect(await publishPro(admin, 20_000, 'twice as much for pro')).toBe(2);
  await call(admin, 'POST', '/rules?message=a%20rule%20for%20exports', {
    id: 'export',
    endpoint: '/export',
    per: 'user',
    limits: [{ id: 'hour', algorithm: 'token_bucket', limit: 10, period: '1h' }],
  });
  expect(await publishPro(admin, 30_000, 'thrice as much for pro')).toBe(4);
}

test('the list tells who did what to which objects, and where it is in force', async ({ admin }) => {
  await publishThree(admin);
  await admin.goto('/history');
  await expect(row(admin, 4)).toContainText('thrice as much for pro');
  await expect(row(admin, 4)).toContainText('tier pro');
  await expect(row(admin, 4)).toContainText('newest');
  await expect(row(admin, 4)).toContainText('1 of 1');
  await expect(row(admin, 3)).toContainText('rule export');
  await expect(row(admin, 3)).not.toContainText('1 of 1');
  await expect(row(admin, 1)).toContainText('tidegate');
  await row(admin, 3).getByRole('button', { name: 'Roll back, v3…' }).click();
  await expect(panelOf(admin, 3)).toBeVisible();
  await admin.keyboard.press('Escape');
  await expect(panelOf(admin, 3)).toHaveCount(0);

  await row(admin, 4).getByRole('link', { name: 'tier pro' }).click();
  await expect(admin).toHaveURL(/\/history\?object=tier%3Apro$/);
  await expect(row(admin, 3)).toHaveCount(0);
  await expect(row(admin, 2)).toBeVisible();
  await expect(row(admin, 4)).toBeVisible();
  await admin.getByRole('link', { name: 'Lines of the audit log' }).click();
  await expect(admin).toHaveURL(/\/history\/audit\?object=tier%3Apro$/);
  await expect(admin.getByRole('cell', { name: 'object.change' })).toHaveCount(2);
  await admin.goBack();
  await expect(admin.getByLabel('Object', { exact: true })).toHaveValue('tier:pro');
  await admin.getByLabel('Object', { exact: true }).fill('rule:export');
  await admin.getByLabel('Object', { exact: true }).press('Enter');
  await expect(row(admin, 4)).toHaveCount(0);
  await expect(row(admin, 3)).toBeVisible();
  await admin.getByRole('button', { name: 'Clear filters' }).click();
  await expect(row(admin, 4)).toBeVisible();

  await admin.keyboard.press('/');
  await admin.keyboard.type('TWICE');
  await expect(row(admin, 4)).toHaveCount(0);
  await expect(row(admin, 2)).toBeVisible();
  await admin.reload();
  await expect(row(admin, 2)).toBeVisible();
  await expect(row(admin, 4)).toHaveCount(0);
  await admin.getByLabel('Filter').fill('nobody wrote this');
  await expect(admin.getByText('No version matches “nobody wrote this”')).toBeVisible();
  await admin.getByRole('button', { name: 'Clear filter' }).click();
  await expect(row(admin, 4)).toBeVisible();
  await admin.getByLabel('Until').fill('2020-01-01T00:00');
  await expect(admin.getByText('No version is like this.')).toBeVisible();
  await expect(admin).toHaveURL(/to=2020-01-01/);
  await admin.reload();
  await admin.getByRole('button', { name: 'Clear filters' }).click();
  await expect(row(admin, 4)).toBeVisible();
});

test('newer versions wait behind a button', async ({ admin, other }) => {
  await admin.goto('/history');
  await expect(row(admin, 1)).toBeVisible();
  await expectLive(admin);
  await expect(row(admin, 1)).toContainText('newest');
  await publishPro(other, 20_000, 'from elsewhere');
  const newer = admin.getByRole('button', { name: '1 newer' });
  await expect(newer).toBeVisible();
  await expect(row(admin, 2)).toHaveCount(0);
  await newer.click();
  await expect(row(admin, 2)).toContainText('from elsewhere');
  await expect(newer).toHaveCount(0);
});

test('older versions come page by page', async ({ admin }) => {
  const versions = Array.from({ length: 101 }, (_, at) => ({
    version: 101 - at,
    sha256: 'a'.repeat(64),
    author: 'ana',
    message: `change ${101 - at}`,
    published_at: '2026-11-01T00:00:00Z',
    carry: {},
    follows: 100 - at,
    objects: { count: null, first: [] },
    decided: { before: null, after: null },
  }));
  await admin.route('**/api/v1/policy/versions*', async (route) => {
    const before = Number(new URL(route.request().url()).searchParams.get('cursor') ?? 102);
    const items = versions.filter(({ version }) => version < before).slice(0, 100);
    const last = items.at(-1)?.version ?? 1;
    await route.fulfill({ json: { items, next: last === 1 ? null : String(last) } });
  });
  await admin.goto('/history');
  await expect(row(admin, 101)).toBeVisible();
  await expect(row(admin, 1)).toHaveCount(0);
  await admin.getByRole('button', { name: 'Show more' }).click();
  await expect(row(admin, 1)).toContainText('change 1');
  await expect(row(admin, 101)).toBeVisible();
  await expect(admin.getByRole('button', { name: 'Show more' })).toHaveCount(0);
});

test('two versions are compared by keys, as fields and as text', async ({ admin }) => {
  await publishThree(admin);
  await admin.goto('/history');
  await expect(row(admin, 4)).toBeVisible();
  await admin.getByRole('link', { name: 'v4', exact: true }).focus();
  await admin.keyboard.press('x');
  await expect(row(admin, 4).getByRole('checkbox')).toBeChecked();
  await admin.keyboard.press('j');
  await admin.keyboard.press('j');
  await admin.keyboard.press('x');
  await expect(admin.getByRole('button', { name: 'Compare v2 and v4' })).toBeEnabled();
  await admin.keyboard.press('c');
  await expect(admin).toHaveURL(/\/history\/2\.\.4$/);
  await expect(admin.getByRole('heading', { level: 1, name: 'v2 → v4' })).toBeVisible();
  await expect(section(admin, 'tier pro')).toContainText(/minute limit.*20000.*30000/);
  await expect(admin.getByRole('region', { name: 'rule export' })).toContainText('+   "endpoint": "/export"');
  await admin.getByRole('button', { name: 'Text', exact: true }).click();
  await expect(admin.getByRole('region', { name: 'tier pro' })).toContainText('- "limit": 20000');
  await expect(admin.getByRole('region', { name: 'tier pro' })).toContainText('+ "limit": 30000');
  await expect(admin).toHaveURL(/view=text/);
  const simulate = admin.getByRole('link', { name: 'Simulate', exact: true });
  await expect(simulate).toHaveAttribute('href', '/simulate?a=version%3A2&b=version%3A4');
  await admin.goto('/history/4..4');
  await expect(admin.getByText('Nothing differs.')).toBeVisible();
});

test('a version shows what it changed and the whole as it was', async ({ admin, watch }) => {
  watch.allow(/status of 404/);
  await publishThree(admin);
  await admin.goto('/history');
  await admin.getByRole('link', { name: 'v2', exact: true }).click();
  await expect(admin.getByRole('heading', { level: 1, name: 'Version v2' })).toBeFocused();
  await expect(admin.getByText('twice as much for pro')).toBeVisible();
  await expect(section(admin, 'tier pro')).toContainText(/minute limit.*10000.*20000/);
  await admin.getByText('Show as JSON').click();
  const whole = admin.getByRole('region', { name: 'The whole policy as it was' });
  await expect(whole).toContainText('"limit": 20000');
  await expect(whole).not.toContainText('"limit": 30000');
  const download = admin.waitForEvent('download');
  await admin.getByRole('link', { name: 'Save as a file' }).click();
  expect((await download).suggestedFilename()).toBe('policy-2.json');
  await admin.getByRole('link', { name: 'Compare with v4' }).click();
  await expect(admin).toHaveURL(/\/history\/2\.\.4$/);
  await admin.goto('/history/1');
  await expect(admin.getByText('The first version')).toBeVisible();
  await admin.goto('/history/99');
  await expect(admin.getByRole('heading', { name: 'There is no version v99' })).toBeVisible();
});

test('everything goes back to an older version, and forth again', async ({ admin }) => {
  await publishThree(admin);
  await admin.goto('/history');
  await admin.getByRole('link', { name: 'v2', exact: true }).focus();
  await admin.keyboard.press('r');
  const dialog = panelOf(admin, 2);
  await expect(dialog.getByRole('radio', { name: 'Everything as it was in v2' })).toBeChecked();
  await expect(section(dialog, 'tier pro')).toContainText(/minute limit.*30000.*20000/);
  await expect(dialog.getByRole('region', { name: 'rule export' })).toContainText('- ');
  await expect(dialog.getByLabel('Message')).toHaveValue('back to v2');
  await dialog.getByLabel('Message').fill('');
  await dialog.getByRole('button', { name: 'Publish v5' }).click();
  await expect(dialog.getByText('Write what this is for')).toBeVisible();
  await dialog.getByLabel('Message').fill('the export rule was wrong');
  await dialog.getByRole('button', { name: 'Publish v5' }).click();
  await expect(dialog.getByText('Tick the box if that is meant')).toBeVisible();
  await expect(meant(dialog)).toBeFocused();
  await meant(dialog).check();
  await dialog.getByRole('button', { name: 'Publish v5' }).click();
  await expect(dialog.getByText('v5 in force')).toBeVisible();
  await expect(dialog.getByRole('link', { name: 'Line of the audit log' })).toHaveAttribute(
    'href',
    '/history/audit?object=version%3A5',
  );
  await dialog.getByRole('link', { name: 'See it in History' }).click();
  await expect(admin.getByRole('heading', { level: 1, name: 'Version v5' })).toBeVisible();
  await expect(admin.getByText('the export rule was wrong')).toBeVisible();

  await admin.keyboard.press('r');
  const undo = panelOf(admin, 5);
  await expect(undo.getByRole('radio')).toHaveCount(1);
  await undo.getByRole('button', { name: 'Publish v6' }).click();
  await expect(undo.getByText('v6 in force')).toBeVisible();
  await undo.getByRole('button', { name: 'Close' }).last().click();
  await admin.goto('/history/4..6');
  await expect(admin.getByText('Nothing differs.')).toBeVisible();
});

test("only a version's own changes are undone; what was changed again is a choice", async ({ admin }) => {
  await publishThree(admin);
  await admin.goto('/history/3');
  await admin.getByRole('button', { name: 'Roll back…' }).click();
  const dialog = panelOf(admin, 3);
  await dialog.getByRole('radio', { name: "Only undo v3's own changes" }).check();
  await expect(dialog.getByRole('region', { name: 'rule export' })).toContainText('- ');
  await expect(section(dialog, 'tier pro')).toHaveCount(0);
  await meant(dialog).check();
  await dialog.getByRole('button', { name: 'Publish v5' }).click();
  await expect(dialog.getByText('v5 in force')).toBeVisible();
  await dialog.getByRole('button', { name: 'Close' }).last().click();

  await admin.goto('/history/2');
  await admin.getByRole('button', { name: 'Roll back…' }).click();
  const undo = panelOf(admin, 2);
  await undo.getByRole('radio', { name: "Only undo v2's own changes" }).check();
  await undo.getByLabel('Message').fill('mine');
  const clash = undo.getByRole('group', { name: 'tier pro, minute limit' });
  await expect(clash).toContainText('v2 made it: 20000');
  await undo.getByRole('button', { name: 'Publish v6' }).click();
  await expect(clash.getByRole('radio', { name: 'As before v2: 10000' })).toBeFocused();
  await clash.getByRole('radio', { name: 'As it is now: 30000' }).check();
  await expect(undo.getByText('nothing to publish')).toBeVisible();
  await clash.getByRole('radio', { name: 'As before v2: 10000' }).check();
  await expect(section(undo, 'tier pro')).toContainText(/minute limit.*30000.*10000/);
  await expect(undo.getByLabel('Message')).toHaveValue('mine');
  await undo.getByRole('button', { name: 'Publish v6' }).click();
  await expect(undo.getByText('v6 in force')).toBeVisible();
  await expect(undo.getByText('v6 on 1 of 1')).toBeVisible();

  // And back again from where it stands.
  await undo.getByRole('button', { name: 'Roll back…' }).click();
  const again = panelOf(admin, 6);
  await expect(section(again, 'tier pro')).toContainText(/minute limit.*10000.*30000/);
  await again.getByRole('button', { name: 'Publish v7' }).click();
  await expect(again.getByText('v7 in force')).toBeVisible();
});

test('an older version is copied as a change list, to be edited further', async ({ admin }) => {
  await publishThree(admin);
  await openTier(admin, 'pro');
  await limitField(admin, 'minute', 'Rate').fill('5 / 1m');
  await admin.goto('/history/1');
  await admin.getByRole('button', { name: 'Copy as change list…' }).click();
  const ask = admin.getByRole('dialog', { name: 'Copy v1 as change list?' });
  await expect(ask).toContainText('2 objects are put into your change list');
  await expect(ask).toContainText('This replaces what you changed of tier pro.');
  await ask.getByRole('button', { name: 'Copy', exact: true }).click();
  const dialog = panel(admin);
  await expect(dialog.getByLabel('Message')).toHaveValue('as in v1');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await openTier(admin, 'pro');
  await expect(limitField(admin, 'minute', 'Rate')).toHaveValue('10000 / 1m');
  await limitField(admin, 'minute', 'Rate').fill('15000 / 1m');
  await admin.getByRole('button', { name: 'Review and publish' }).click();
  await expect(dialog.getByText('rule export')).not.toHaveCount(0);
  await meant(dialog).check();
  await dialog.getByRole('button', { name: 'Publish v5' }).click();
  await expectInForce(admin, 5);
  await admin.goto('/history/1..5');
  await expect(section(admin, 'tier pro')).toContainText(/10000.*15000/);
  await expect(admin.getByText('1 object', { exact: true })).toBeVisible();
});

test('a publish meanwhile is told before anything goes back', async ({ admin, other }) => {
  await publishThree(admin);
  await other.goto('/history/2');
  await other.getByRole('button', { name: 'Roll back…' }).click();
  const dialog = panelOf(other, 2);
  await expect(dialog.getByRole('button', { name: 'Publish v5' })).toBeEnabled();
  await dialog.getByLabel('Message').fill('typed before');
  await publishPro(admin, 40_000, 'while it is open');
  await expect(dialog.getByRole('alert')).toContainText('v5 was published since v4 was looked at');
  await expect(section(dialog, 'tier pro')).toContainText(/40000.*20000/);
  await expect(dialog.getByLabel('Message')).toHaveValue('typed before');
});

test('a publish that only publishing finds stops the way back', async ({ admin, other, watch }) => {
  watch.allow(/ERR_FAILED|status of 412/);
  await publishThree(admin);
  await other.route('**/api/v1/stream**', (route) => route.abort());
  await other.goto('/history/2');
  await other.getByRole('button', { name: 'Roll back…' }).click();
  const dialog = panelOf(other, 2);
  await dialog.getByLabel('Message').fill('typed before');
  await meant(dialog).check();
  await publishPro(admin, 40_000, 'while it is open');
  await dialog.getByRole('button', { name: 'Publish v5' }).click();
  await expect(dialog.getByRole('alert')).toContainText('v5 was published since v4 was looked at');
  await expect(section(dialog, 'tier pro')).toContainText(/40000.*20000/);
  await meant(dialog).check();
  await dialog.getByRole('button', { name: 'Publish v6' }).click();
  await expect(dialog.getByText('v6 in force')).toBeVisible();
});

test('versions cannot be rolled back by whoever may not publish', async ({ admin, browser, server }) => {
  await publishPro(admin, 20_000, 'twice');
  await addUser(admin, 'vera', 'viewer');
  const context = await signedIn(browser, server, 'vera');
  const page = await context.newPage();
  await page.goto('/history/1');
  await expect(page.getByRole('link', { name: 'Compare with v2' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Roll back…' })).toHaveCount(0);
  await page.keyboard.press('r');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await context.close();
});
