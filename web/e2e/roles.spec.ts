/** Every page as each role sees it: what a role may not do is absent, and no page asks what it may not. */
import type { Locator, Page } from '@playwright/test';
import { expect, test } from './fixtures.ts';
import { addUser, call, publishPro, signedIn, type Role } from './people.ts';

const ROLES: Role[] = ['viewer', 'operator', 'editor', 'admin'];

interface Seen {
  path: string;
  /** The page's title. */
  title: string;
  /** What only this role and those above it are offered: the name of a button or link, and the role. */
  offers?: [name: string | RegExp, from: Role][];
}

const PAGES: Seen[] = [
  { path: '/', title: 'Overview' },
  { path: '/inspect', title: 'Inspector' },
  { path: '/nodes', title: 'Nodes' },
  { path: '/tiers', title: 'Tiers', offers: [['New tier', 'editor']] },
  { path: '/tiers/pro', title: 'Tier pro', offers: [['Review and publish', 'editor']] },
  { path: '/rules', title: 'Rules', offers: [['New rule', 'editor']] },
  { path: '/rules/sign-in', title: 'Rule sign-in', offers: [['Review and publish', 'editor']] },
  {
    path: '/clients',
    title: 'Clients',
    offers: [
      ['Export', 'viewer'],
      [/^(New client|Temporary override)$/, 'operator'],
      ['Import', 'editor'],
    ],
  },
  {
    path: '/clients/user%3Aada',
    title: 'Client user:ada',
    offers: [
      ['Inspect', 'viewer'],
      ['Review and publish', 'editor'],
    ],
  },
  { path: '/simulate', title: 'Simulator' },
  { path: '/history', title: 'History', offers: [['Roll back, v1…', 'editor']] },
  {
    path: '/history/1',
    title: 'Version v1',
    offers: [
      ['Roll back…', 'editor'],
      ['Copy as change list…', 'editor'],
    ],
  },
  { path: '/history/1..2', title: 'v1 → v2', offers: [['Roll back to v1…', 'editor']] },
  { path: '/history/audit', title: 'Audit log', offers: [['Export CSV', 'admin']] },
  {
    path: '/access/users',
    title: '(Users|Access)',
    offers: [
      ['New user', 'admin'],
      ['Tokens', 'admin'],
    ],
  },
  { path: '/access/roles', title: 'Roles', offers: [['Users', 'admin']] },
  { path: '/access/tokens', title: '(Tokens|Access)', offers: [[/^New token$/, 'admin']] },
  { path: '/access/me', title: 'My account', offers: [['Change password', 'viewer']] },
];

/** Buttons and links of the page that are called so. */
function offered(page: Page, name: string | RegExp): Locator {
  const content = page.locator('#content');
  const options = typeof name === 'string' ? { name, exact: true } : { name };
  return content.getByRole('button', options).or(content.getByRole('link', options));
}

for (const role of ROLES) {
  test(`all pages as ${role}`, async ({ admin, browser, server }) => {
    test.setTimeout(120_000);
    await publishPro(admin, 20_000, 'twice');
    await call(admin, 'POST', '/clients', { kind: 'user', value: 'ada', tier: 'pro' });
    await addUser(admin, 'vera', role);
    const context = await signedIn(browser, server, 'vera');
    const page = await context.newPage();
    const refused: string[] = [];
    page.on('response', (answer) => {
      if (answer.status() === 403) refused.push(`${page.url()}: ${answer.url()}`);
    });
    for (const { path, title, offers = [] } of PAGES) {
      await page.goto(path);
      const heading = page.getByRole('heading', { level: 1, name: new RegExp(`^${title}`) });
      await expect(heading, path).toBeVisible();
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
