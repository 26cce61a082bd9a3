/** Sign-in by a provider: there and back in a real browser, whose rules for cookies no other test knows. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, PASSWORD, test as base } from './fixtures.ts';
import { Server } from './server.ts';
import { expectInForce, expectLive, limitField, openTier, review } from './steps.ts';

const ED = { sub: '1', preferred_username: 'ed', groups: ['ops'] };

/** With a server whose people may sign in by a provider, at which ed is. */
const test = base.extend<{ ours: Server }>({
  ours: async ({ watch }, use) => {
    watch.allow(/request to http:\/\/127\.0\.0\.1/);
    // What a page asked under the session before is refused, and asked again.
    watch.allow(/status of (401|403)/);
    const folder = await mkdtemp(join(tmpdir(), 'tidegate-oidc-'));
    const secret = join(folder, 'secret');
    await writeFile(secret, 'a secret: 100% + more/');
    const provider = spawn('node', ['provider.js'], {
      cwd: '../admin/tests/oidc',
      env: { ...process.env, TIDEGATE_TEST_PERSON: JSON.stringify(ED) },
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    let issuer = '';
    for await (const line of createInterface({ input: provider.stdout })) {
      issuer = line;
      if (line.startsWith('http:')) break;
    }
    provider.stdout.resume();
    const settings = [
      ['--oidc-issuer', issuer],
      ['--oidc-client-id', 'tidegate'],
      ['--oidc-client-secret-file', secret],
      ['--oidc-role', 'ops=editor'],
      ['--oidc-name', 'Example ID'],
    ];
    const server = new Server({ settings: settings.flat(), folder: 'empty' });
    await server.start();
    await use(server);
    await server.remove();
    provider.stdin.end();
    await once(provider, 'exit');
    await rm(folder, { recursive: true });
  },
});

test('somebody signs in by a provider, and is where he wanted to be', async ({ browser, ours }) => {
  const page = await browser.newPage({ baseURL: ours.dashboard });
  await page.goto('/tiers/pro');
  await page.getByRole('link', { name: 'Sign in with Example ID' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Tier pro' })).toBeVisible();
  expect(new URL(page.url()).pathname).toBe('/tiers/pro');
  await expect(page.getByRole('button', { name: 'Menu of ed' })).toBeVisible();
  await page.close();
});

test('two tabs sign in beside each other', async ({ browser, ours }) => {
  const context = await browser.newContext({ baseURL: ours.dashboard });
  // Both are sent to the provider before one comes back; what that sets is in the browser.
  const go = async (path: string) => {
    const sent = await context.request.get(`/api/v1/session/oidc?return=${path}`, { maxRedirects: 0 });
    return sent.headers()['location'] ?? '';
  };
  const [there, elsewhere] = [await go('/tiers/pro'), await go('/rules')];
  expect((await context.cookies()).filter((cookie) => cookie.name.includes('_oidc_'))).toHaveLength(2);
  const [first, second] = [await context.newPage(), await context.newPage()];
  await second.goto(elsewhere);
  await first.goto(there);
  await expect(first.getByRole('heading', { level: 1, name: 'Tier pro' })).toBeVisible();
  await expect(second.getByRole('heading', { level: 1, name: 'Rules' })).toBeVisible();
  expect((await context.cookies()).filter((cookie) => cookie.name.includes('_oidc_'))).toEqual([]);
  await context.close();
});

test('a session that ends while editing: sign in by the provider beside the page', async ({
  browser,
  ours,
}) => {
  const context = await browser.newContext({ baseURL: ours.dashboard });
  const page = await context.newPage();
  await page.goto('/');
  await page.getByRole('link', { name: 'Sign in with Example ID' }).click();
  await expect(page.getByRole('button', { name: 'Menu of ed' })).toBeVisible();
  await openTier(page, 'pro');
  await expectLive(page);
  const typed = limitField(page, 'minute', 'Rate');
  await typed.fill('250 / 1m');
  const who = (await (await context.request.get('/api/v1/session')).json()) as { csrf: string };
  const ended = await context.request.delete('/api/v1/session', { headers: { 'x-csrf-token': who.csrf } });
  expect(ended.status()).toBe(204);
  const again = page.getByRole('dialog', { name: 'Sign in again' });
  await expect(again).toBeVisible();
  // Somebody else signs in in another tab: nothing goes on in his name.
  const data = { code: ours.setupCode, name: 'admin', password: PASSWORD };
  await context.request.post('/api/v1/setup', { data });
  const others = await context.newPage();
  await others.goto('/');
  await expect(again.getByRole('alert')).toContainText('admin is signed in in this browser now');
  await expect(again.getByRole('link', { name: 'Go on as admin' })).toBeVisible();
  await others.close();
  const opened = context.waitForEvent('page');
  await again.getByRole('link', { name: 'Sign in with Example ID in a new tab' }).click();
  const tab = await opened;
  await expect(tab.getByText('You are signed in as ed. Close this tab')).toBeVisible();
  expect(await tab.evaluate(() => window.opener as unknown)).toBeNull();
  await expect(again).toBeHidden();
  await tab.close();
  await expect(typed).toHaveValue('250 / 1m');
  await expectLive(page);
  const dialog = await review(page, 'after the session');
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await expectInForce(page, 2);
  await page.goto('/access/me');
  await expect(page.getByText('You sign in by the provider')).toBeVisible();
  await expect(page.getByLabel('Present password')).toHaveCount(0);
  await context.close();
});
