/** Every page as each role sees it: what a role may not do is absent, and no page asks what it may not. */
import type { Locator, Page } from '@playwright/test';
import { expect, test } from './fixtures.ts';
import { addUser, call, publishPro, signedIn, type Role } from './people.ts';

const ROLES: Role[] = ['viewer', 'operator', 'editor', 'admin'];

interface Seen {
  path: string;
  /** The page's title. */
  title: string;
  /** What stands there once it is whole: before, everything is absent. */
  there: string | RegExp;
  /** What only this role and those above it are offered: the name of a button or link, and the role. */
  offers?: [name: string | RegExp, from: Role][];
}

const PAGES: Seen[] = [
  { path: '/', title: 'Overview', there: 'No decision yet', offers: [['Send a test request', 'operator']] },
  { path: '/inspect', title: 'Inspector', there: 'Nobody is being denied just now.' },
  { path: '/nodes', title: 'Nodes', there: 'this server' },
  { path: '/tiers', title: 'Tiers', there: '20000 / 1m', offers: [['New tier', 'editor']] },
  {
    path: '/tiers/pro',
    title: 'Tier pro',
    there: /^A client that was idle/,
    offers: [['Review and publish', 'editor']],
  },
  { path: '/rules', title: 'Rules', there: 'POST /login', offers: [['New rule', 'editor']] },
  {
    path: '/rules/sign-in',
    title: 'Rule sign-in',
    there: /^Each ip may/,
    offers: [['Review and publish', 'editor']],
  },
  {
    path: '/clients',
    title: 'Clients',
    there: 'user:ada',
    offers: [
      ['Export', 'viewer'],
      [/^(New client|Temporary override)$/, 'operator'],
      ['Import', 'editor'],
    ],
  },
  {
    path: '/clients/user%3Aada',
    title: 'Client user:ada',
    there: /^Of a request that names/,
    offers: [
      ['Inspect', 'viewer'],
      ['Review and publish', 'editor'],
    ],
  },
  { path: '/simulate', title: 'Simulator', there: /^No run yet/ },
  { path: '/history', title: 'History', there: 'twice', offers: [['Roll back, v1…', 'editor']] },
  {
    path: '/history/1',
    title: 'Version v1',
    there: 'SHA-256',
    offers: [
      ['Roll back…', 'editor'],
      ['Copy as change list…', 'editor'],
    ],
  },
  {
    path: '/history/1..2',
    title: 'v1 → v2',
    there: 'minute limit',
    offers: [['Roll back to v1…', 'editor']],
  },
  { path: '/history/audit', title: 'Audit log', there: 'vera', offers: [['Export CSV', 'admin']] },
  {
    path: '/access/users',
    title: '(Users|Access)',
    there: /^vera|your role is/,
    offers: [
      ['New user', 'admin'],
      ['Tokens', 'admin'],
    ],
  },
  { path: '/access/roles', title: 'Roles', there: 'yours', offers: [['Users', 'admin']] },
  {
    path: '/access/tokens',
    title: '(Tokens|Access)',
    there: /There is none yet|your role is/,
    offers: [[/^New token$/, 'admin']],
  },
  { path: '/access/me', title: 'My account', there: 'this one', offers: [['Change password', 'viewer']] },
];

/** Buttons and links of the page that are called so. */
function offered(page: Page, name: string | RegExp): Locator {
  const content = page.locator('#content');
  const options = typeof name === 'string' ? { name, exact: true } : { name };
  return content.getByRole('button', options).or(content.getByRole('link', options));
}

for (const role of ROLES) {
  test(`all pages as ${role}`, async ({ admin, browser, server }) => {
    await publishPro(admin, 20_000, 'twice');
    await call(admin, 'POST', '/clients', { kind: 'user', value: 'ada', tier: 'pro' });
    await addUser(admin, 'vera', role);
    const context = await signedIn(browser, server, 'vera');
    const page = await context.newPage();
    const refused: string[] = [];
    page.on('response', (answer) => {
      if (answer.status() === 403) refused.push(`${page.url()}: ${answer.url()}`);
    });
    for (const { path, title, there, offers = [] } of PAGES) {
      await page.goto(path);
      const heading = page.getByRole('heading', { level: 1, name: new RegExp(`^${title}`) });
      await expect(heading, path).toBeVisible();
      await expect(page.locator('#content').getByText(there).first(), path).toBeVisible();
      await expect(page.getByText('Loading…'), path).toHaveCount(0);
      for (const [name, from] of offers) {
        const may = ROLES.indexOf(role) >= ROLES.indexOf(from);
        if (may) await expect(offered(page, name).first(), `${path} offers ${String(name)}`).toBeVisible();
        else await expect(offered(page, name), `${path} offers ${String(name)}`).toHaveCount(0);
      }
    }
    expect(refused, 'calls that the role may not make').toEqual([]);
    await context.close();
  });
}
