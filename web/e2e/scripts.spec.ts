/** What a visit reads of the page's scripts, as they come over the wire, and what it reads only when it is wanted. */
import type { Page } from '@playwright/test';
import { expect, readOnly, test } from './fixtures.ts';
import { addUser, call, signedIn } from './people.ts';
import { expectLive, limitField, openTier, publishChange } from './steps.ts';

const BYTES_MAX = 80_000;
/** Far longer than anything waits before it reads. */
const QUIET_MS = 1_000;
const OVERLAYS = /\/(FindDialog|Publish|SessionExpiredDialog)-/;

/** The scripts of the document that is open, and their bytes, once no more have come for a while. */
async function scripts(page: Page): Promise<{ names: string[]; bytes: number }> {
  await page.evaluate(
    (quiet) =>
      new Promise<void>((resolve) => {
        let timer = setTimeout(resolve, quiet);
        new PerformanceObserver(() => {
          clearTimeout(timer);
          timer = setTimeout(resolve, quiet);
        }).observe({ type: 'resource' });
        setTimeout(resolve, 5 * quiet);
      }),
    QUIET_MS,
  );
  return page.evaluate(() => {
    const read = performance
      .getEntriesByType('resource')
      .filter(({ name }) => new URL(name).pathname.endsWith('.js')) as PerformanceResourceTiming[];
    const sizes = new Map(read.map((one) => [new URL(one.name).pathname, one.encodedBodySize]));
    return { names: [...sizes.keys()], bytes: [...sizes.values()].reduce((sum, size) => sum + size, 0) };
  });
}

const reads = (page: Page, name: string) =>
  page.evaluate(
    (part) => performance.getEntriesByType('resource').some((entry) => entry.name.includes(`/${part}-`)),
    name,
  );

test('no visit to any page reads more than 80 kB of scripts, nor a dialog that nobody asked for', async ({
  admin,
  server,
}) => {
  await call(admin, 'POST', '/clients', { kind: 'user', value: 'ada', tier: 'pro' });
  await openTier(admin, 'pro');
  await limitField(admin, 'minute', 'Burst').fill('9000');
  await publishChange(admin, 'smaller bursts', 3);
  for (let at = 0; at < 30; at += 1) await server.check('ada');
  await admin.goto('/simulate');
  await admin.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(admin).toHaveURL(/\/simulate\/.+/);
  const run = new URL(admin.url()).pathname;
  const { items } = (await (await admin.request.get('/api/v1/nodes')).json()) as {
    items: { node: string }[];
  };
  const [own] = items;
  if (!own) throw new Error('the server is no node of its own');

  const told: string[] = [];
  for (const path of [
    '/',
    '/inspect?key=user:ada',
    '/nodes',
    `/nodes/${encodeURIComponent(own.node)}`,
    '/tiers',
    '/tiers/pro',
    '/rules',
    '/rules/sign-in',
    '/clients',
    '/clients/user:ada',
    '/domain',
    '/simulate',
    run,
    '/history',
    '/history/audit',
    '/history/1..3',
    '/history/3',
    '/access/users',
    '/access/tokens',
    '/nowhere',
  ]) {
    await admin.goto(path);
    await expect(admin.getByRole('heading', { level: 1 })).toBeVisible();
    await expectLive(admin);
    const { names, bytes } = await scripts(admin);
    told.push(`${path} ${bytes}`);
    expect.soft(bytes, `${path}: ${names.join(' ')}`).toBeLessThanOrEqual(BYTES_MAX);
    // Without this a server that sends no scripts would pass.
    expect.soft(bytes, path).toBeGreaterThan(BYTES_MAX / 4);
    expect
      .soft(
        names.filter((name) => OVERLAYS.test(name)),
        path,
      )
      .toEqual([]);
  }
  test.info().annotations.push({ type: 'measured', description: told.join(', ') });
  process.stdout.write(`${told.join('\n')}\n`);
});

readOnly('Find is read when Ctrl is pressed or its button is come near to', async ({ admin }) => {
  await admin.goto('/tiers');
  await expectLive(admin);
  expect(await reads(admin, 'FindDialog')).toBe(false);
  await admin.keyboard.down('Control');
  await expect.poll(() => reads(admin, 'FindDialog')).toBe(true);
  await admin.keyboard.up('Control');

  await admin.reload();
  await expectLive(admin);
  expect(await reads(admin, 'FindDialog')).toBe(false);
  await admin.getByRole('button', { name: /^Find/ }).hover();
  await expect.poll(() => reads(admin, 'FindDialog')).toBe(true);

  await admin.mouse.move(700, 500);
  await admin.reload();
  await expectLive(admin);
  expect(await reads(admin, 'FindDialog')).toBe(false);
  await admin.getByRole('button', { name: /^Find/ }).focus();
  await expect.poll(() => reads(admin, 'FindDialog')).toBe(true);
});

readOnly(
  'what an edit needs is read with its first letter; a list of changes from before is no edit',
  async ({ admin }) => {
    await openTier(admin, 'pro');
    expect(await reads(admin, 'Publish')).toBe(false);
    await limitField(admin, 'minute', 'Burst').press('End');
    await limitField(admin, 'minute', 'Burst').pressSequentially('1');
    for (const name of ['Publish', 'SessionExpiredDialog'])
      await expect.poll(() => reads(admin, name)).toBe(true);

    await admin.goto('/tiers');
    await expectLive(admin);
    const button = admin.getByRole('button', { name: '1 change' });
    await expect(button).toBeVisible();
    expect((await scripts(admin)).names.filter((name) => OVERLAYS.test(name))).toEqual([]);
    await button.hover();
    await expect.poll(() => reads(admin, 'Publish')).toBe(true);
  },
);

test('a viewer never reads the publish panel', async ({ admin, browser, server }) => {
  await addUser(admin, 'vera', 'viewer');
  const context = await signedIn(browser, server, 'vera');
  const vera = await context.newPage();
  await vera.goto('/tiers');
  await expectLive(vera);
  await vera.getByLabel('Filter').fill('pro');
  await vera.getByRole('link', { name: 'pro', exact: true }).click();
  await expect(vera.getByRole('heading', { name: 'Tier pro' })).toBeVisible();
  await vera.keyboard.press('Control+Enter');
  expect((await scripts(vera)).names.filter((name) => name.includes('/Publish-'))).toEqual([]);
  await context.close();
});
