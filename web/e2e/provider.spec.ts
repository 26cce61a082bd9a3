/** Sign-in by a provider: there and back in a real browser, whose rules for cookies no other test knows. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from './fixtures.ts';
import { Server } from './server.ts';

const ED = { sub: '1', preferred_username: 'ed', groups: ['ops'] };

test('somebody signs in by a provider, and is where he wanted to be', async ({ browser, watch }) => {
  watch.allow(/request to http:\/\/127\.0\.0\.1/);
  watch.allow(/status of 401/);
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
  const server = new Server(...settings.flat());
  await server.start();
  const page = await browser.newPage({ baseURL: server.dashboard });
  await page.goto('/tiers/pro');
  await page.getByRole('link', { name: 'Sign in with Example ID' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Tier pro' })).toBeVisible();
  expect(new URL(page.url()).pathname).toBe('/tiers/pro');
  await expect(page.getByRole('button', { name: 'Menu of ed' })).toBeVisible();
  await page.close();
  await server.remove();
  provider.stdin.end();
  await once(provider, 'exit');
  await rm(folder, { recursive: true });
});
