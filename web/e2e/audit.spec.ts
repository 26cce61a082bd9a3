/** The audit log: who did what, looked through and taken out. */
import { readFile } from 'node:fs/promises';
import type { Page } from '@playwright/test';
import { expect, test } from './fixtures.ts';
import { addUser, publishPro, signedIn } from './people.ts';
import { expectLive } from './steps.ts';

const rows = (page: Page) => page.getByRole('region', { name: 'Audit log' }).locator('tbody tr');

test('lines name who, what and what came of it, and lead to the version', async ({ admin }) => {
  await publishPro(admin, 20_000, 'twice');
  await admin.goto('/history');
  await admin.getByRole('link', { name: 'Audit log' }).click();
  await expect(admin.getByRole('heading', { level: 1, name: 'Audit log' })).toBeFocused();
  const publish = rows(admin).filter({ hasText: 'policy.publish' }).first();
  await expect(publish).toContainText('admin');
  await expect(publish).toContainText('127.0.0.1');
  await expect(publish).toContainText('done');
  await publish.getByRole('link', { name: 'v2' }).first().click();
  await expect(admin).toHaveURL(/\/history\/2$/);
});

test('filters find lines, stand in the address, and are cleared', async ({ admin, browser, server }) => {
  await publishPro(admin, 20_000, 'twice');
  await addUser(admin, 'ben', 'editor');
  await (await signedIn(browser, server, 'ben')).close();
  await admin.goto('/history/audit');
  await expect(rows(admin).filter({ hasText: 'user.add' })).toHaveCount(1);
  await admin.getByLabel('Who').fill('ben');
  await expect(rows(admin)).toHaveCount(1);
  await expect(rows(admin)).toContainText('session.begin');
  await admin.reload();
  await expect(rows(admin)).toHaveCount(1);
  await admin.getByRole('button', { name: 'Clear filters' }).click();
  await expect(admin.getByLabel('Who')).toHaveValue('');
  await admin.getByLabel('Action').selectOption('Objects that changed');
  await expect(rows(admin)).toHaveCount(1);
  await expect(rows(admin)).toContainText('object.change');
  await admin.getByLabel('Action').selectOption('All');
  await admin.getByLabel('Object').fill('user:ben');
  await expect(rows(admin)).toHaveCount(1);
  await expect(rows(admin)).toContainText('user.add');
  await rows(admin).getByRole('button', { name: 'user.add' }).click();
  await expect(admin).toHaveURL(/action=user\.add/);
  await expect(admin.getByLabel('Action')).toHaveValue('user.add');
  await admin.getByLabel('Text').fill('nothing says this');
  await expect(admin.getByText('No line is like this.')).toBeVisible();
  await admin.getByRole('button', { name: 'Clear filters' }).click();
  await admin.getByLabel('Text').fill('DONE: EDITOR');
  await expect(rows(admin)).toHaveCount(1);
  await admin.getByRole('button', { name: 'Clear filters' }).click();
  await admin.getByLabel('Until').fill('2020-01-01T00:00');
  await expect(admin.getByText('No line is like this.')).toBeVisible();
  await expect(admin).toHaveURL(/to=2020-01-01T00%3A00%3A00\.000Z/);
});

test('a line is found by its request, and by what came of it', async ({ admin }) => {
  await publishPro(admin, 20_000, 'twice');
  const { request } = admin.context();
  await request.post('/api/v1/session', { data: { name: 'nobody', password: 'wrong' } });
  await admin.goto('/history/audit');
  await expect(rows(admin).filter({ hasText: 'policy.publish' }).first()).toBeVisible();
  await admin.getByLabel('Result').selectOption('Refused or failed');
  await expect(rows(admin)).toHaveCount(1);
  await expect(rows(admin)).toContainText('wrong name or password');
  await expect(admin).toHaveURL(/result=refused/);
  await admin.getByLabel('Result').selectOption('Done');
  await expect(rows(admin).filter({ hasText: 'wrong name' })).toHaveCount(0);
  const publish = rows(admin).filter({ hasText: 'object.change' });
  await publish.getByRole('button').last().click();
  await expect(rows(admin)).toHaveCount(2);
  await expect(rows(admin).first()).toContainText('object.change');
  await expect(rows(admin).last()).toContainText('policy.publish');
  await expect(admin.getByLabel('Request')).not.toHaveValue('');
  await admin.reload();
  await expect(rows(admin)).toHaveCount(2);
});

test('new lines wait behind a button, as far as the filter has them', async ({ admin, other }) => {
  await admin.goto('/history/audit?action=user');
  await expect(admin.getByText('No line is like this.')).toBeVisible();
  await expectLive(admin);
  await publishPro(other, 20_000, 'no line about a user');
  await addUser(other, 'ben', 'editor');
  const newer = admin.getByRole('button', { name: '1 newer' });
  await expect(newer).toBeVisible();
  await expect(rows(admin)).toHaveCount(0);
  await newer.click();
  await expect(rows(admin)).toContainText('user:ben');
  await expect(newer).toHaveCount(0);
});

test('older lines come page by page', async ({ admin }) => {
  // Each is a line.
  for (let at = 0; at < 101; at += 1) {
    const answer = await admin.context().request.get('/api/v1/audit/export?actor=nobody');
    expect(answer.ok()).toBe(true);
  }
  await admin.goto('/history/audit?action=audit');
  await expect(rows(admin)).toHaveCount(100);
  await admin.getByRole('button', { name: 'Show more' }).click();
  await expect(rows(admin)).toHaveCount(101);
  await expect(admin.getByRole('button', { name: 'Show more' })).toHaveCount(0);
});

test('administrators take out what is looked for', async ({ admin, browser, server }) => {
  await addUser(admin, 'ben', 'editor');
  await admin.goto('/history/audit?action=user');
  await expect(rows(admin)).toHaveCount(1);
  for (const [format, begins] of [
    ['CSV', 'id,at,actor,address,action,object,result,request_id\n'],
    ['NDJSON', '{"id":'],
  ] as const) {
    const download = admin.waitForEvent('download');
    await admin.getByRole('link', { name: `Export ${format}` }).click();
    const file = await download;
    expect(file.suggestedFilename()).toBe(`audit.${format.toLowerCase()}`);
    const content = await readFile(await file.path(), 'utf8');
    expect(content.startsWith(begins), content).toBe(true);
    expect(content).toContain('user:ben');
    expect(content).not.toContain('policy.publish');
  }
  const context = await signedIn(browser, server, 'ben');
  const page = await context.newPage();
  await page.goto('/history/audit');
  await expect(rows(page).first()).toBeVisible();
  await expect(page.getByRole('link', { name: /^Export/ })).toHaveCount(0);
  await context.close();
});
