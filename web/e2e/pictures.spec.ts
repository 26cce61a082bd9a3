/**
 * The pictures of README and docs. A run of the tests makes them in screenshots/docs/, of the first seconds; `npm run pictures`
 * makes them where the documents have them, of two minutes of traffic.
 */
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import type { Page } from '@playwright/test';
import { clear as test, expect, readOnly } from './fixtures.ts';
import type { Server } from './server.ts';
import { expectLive, limitField, openTier, publishChange, review, runReviewed } from './steps.ts';
import { within } from './within.ts';

const KEPT = path.resolve(import.meta.dirname, '../../docs/images');
const isKept = process.env['TIDEGATE_PICTURES'] === 'keep';
const TRAFFIC_S = isKept ? 130 : 60;

async function picture(page: Page, name: string): Promise<void> {
  // What stands there has been made so before: the documents' names and those here are the same.
  expect(existsSync(path.join(KEPT, `${name}.png`)), `docs/images has ${name}.png`).toBe(true);
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.screenshot({ path: path.join(isKept ? KEPT : 'screenshots/docs', `${name}.png`) });
}

/** Some clients ask evenly, one in bursts, one far too often. */
async function flow(server: Server, until: AbortSignal): Promise<void> {
  const end = Date.now() + TRAFFIC_S * 1000;
  for (let tick = 0; Date.now() < end && !until.aborted; tick += 1) {
    const wave = 6 + Math.round(5 * Math.sin(tick / 17));
    const users = Array.from(
      { length: wave },
      (_, at) => `acct_${(((tick * 7 + at) % 40) + 0x9f00).toString(16)}`,
    );
    if (tick % 60 < 24) users.push(...Array.from({ length: 6 }, () => 'acct_9f31'));
    users.push('acct_77c0', 'acct_77c0');
    await Promise.all(users.map((user) => server.check(user, '/v1/search')));
    await Promise.all(['acct_51de', 'acct_77c0'].map((user) => server.check(user, '/login')));
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

readOnly('the names of pictures here and in docs/images', () => {
  const made = readdirSync(KEPT).filter((name) => name.endsWith('.png'));
  expect(made.sort()).toEqual(['overview.png', 'simulator.png', 'tier.png']);
});

test('pictures: the Overview under traffic', { tag: '@all' }, async ({ admin, server }) => {
  test.setTimeout(300_000);
  const stop = new AbortController();
  const traffic = flow(server, stop.signal);
  try {
    if (isKept) await admin.waitForTimeout((TRAFFIC_S * 1000) / 2);
    await openTier(admin, 'layered');
    await limitField(admin, 'second', 'Burst').fill('30');
    await publishChange(admin, 'larger bursts for the layered tier', 2);
    await admin.goto('/');
    await expectLive(admin);
    await expect(admin.locator('canvas')).toBeVisible();
    if (isKept) await admin.waitForTimeout((TRAFFIC_S * 1000) / 2 - 8_000);
    await expect(admin.getByRole('link', { name: /^user:acct_/ }).first()).toBeVisible({
      timeout: within(40_000),
    });
    await picture(admin, 'overview');
  } finally {
    stop.abort();
    await traffic;
  }
});

test('pictures: a tier that is edited, and a run', { tag: '@all' }, async ({ admin }) => {
  await openTier(admin, 'free');
  await limitField(admin, 'minute', 'Rate').fill('60 / 1m');
  await expect(admin.getByRole('row', { name: /^Draft/ })).toBeVisible();
  await picture(admin, 'tier');
  await review(admin, 'less for everyone');
  await runReviewed(admin);
  await picture(admin, 'simulator');
});
