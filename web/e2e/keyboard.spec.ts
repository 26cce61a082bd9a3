/** Without a mouse. */
import type { Locator, Page } from '@playwright/test';
import { expect, PASSWORD, readOnly, test } from './fixtures.ts';
import { FleetNode, nodeToken } from './nodes.ts';
import { expectInForce, limitField, openTier, panel } from './steps.ts';

/** A control of a row that Tab comes to. */
const STOP = ':is(a, button, input, select):not([tabindex="-1"])';

/** Tab by Tab, until it has the focus. */
async function tabTo(page: Page, target: Locator): Promise<void> {
  await expect(target).toBeVisible();
  for (let at = 0; at < 120; at += 1) {
    if (await target.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press('Tab');
  }
  throw new Error('Tab does not come there');
}

/** Into the table, of which only the controls of one row are stops, and down its rows. */
async function walkTo(page: Page, table: string, target: Locator): Promise<void> {
  await expect(target).toBeVisible();
  await tabTo(page, page.getByRole('region', { name: table }).locator(`tbody ${STOP}`).first());
  for (let at = 0; at < 20; at += 1) {
    if (await target.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press('ArrowDown');
  }
  throw new Error('arrows do not come there');
}

/** Counts from now on how often a form of the page is submitted. */
async function countSubmits(page: Page): Promise<() => Promise<number>> {
  await page.evaluate(() => {
    const counted = { submits: 0 };
    Object.assign(window, { counted });
    addEventListener('submit', () => (counted.submits += 1), { capture: true });
  });
  return () => page.evaluate(() => (window as unknown as { counted: { submits: number } }).counted.submits);
}

test('sign in, a smaller burst, its preview, publish, all nodes, and back: by keys alone', async ({
  admin,
  server,
  watch,
}) => {
  watch.allow(/status of (401|404)/);
  const node = new FleetNode(server.dashboard, await nodeToken(admin.request), 'node-1');
  await node.start();
  try {
    await admin.goto('/nodes');
    await expect(admin.getByText('2 connected')).toBeVisible();
    await admin.getByRole('button', { name: 'Menu of admin' }).focus();
    await admin.keyboard.press('Enter');
    await tabTo(admin, admin.getByRole('button', { name: 'Sign out', exact: true }));
    await admin.keyboard.press('Enter');
    await expect(admin.getByLabel('Name')).toBeFocused();
    await admin.keyboard.type('admin');
    await tabTo(admin, admin.getByLabel('Password', { exact: true }));
    await admin.keyboard.type(PASSWORD);
    await admin.keyboard.press('Enter');
    await expect(admin.getByRole('heading', { name: 'Nodes' })).toBeVisible();

    await admin.keyboard.press('g');
    await admin.keyboard.press('t');
    await expect(admin.getByRole('heading', { name: 'Tiers' })).toBeFocused();
    await walkTo(admin, 'Tiers', admin.getByRole('link', { name: 'pro', exact: true }));
    await admin.keyboard.press('Enter');
    await expect(admin.getByRole('heading', { name: 'Tier pro' })).toBeFocused();
    await tabTo(admin, limitField(admin, 'minute', 'Burst'));
    await admin.keyboard.type('3000');
    await expect(admin.getByRole('row', { name: /^Draft/ })).toBeVisible();
    await admin.keyboard.press('Control+Enter');
    await expect(panel(admin).getByLabel('Message')).toBeFocused();
    await admin.keyboard.type('smaller bursts');
    await tabTo(admin, panel(admin).getByRole('button', { name: 'Publish v2' }));
    await admin.keyboard.press('Enter');
    await expectInForce(admin, 2);
    await expect(panel(admin).getByText('v2 on 2 of 2 nodes')).toBeVisible();
    await expect(panel(admin).getByText(/^applied, (\d+ ms|\d+\.\d s)$/)).toHaveCount(2);
    await admin.keyboard.press('Escape');
    await expect(panel(admin)).toBeHidden();

    await admin.getByRole('heading', { level: 1 }).focus();
    await admin.keyboard.press('g');
    await admin.keyboard.press('h');
    await expect(admin.getByRole('heading', { name: 'History' })).toBeFocused();
    await walkTo(admin, 'Versions', admin.getByRole('link', { name: 'v1', exact: true }));
    await admin.keyboard.press('r');
    const back = admin.getByRole('dialog', { name: 'Roll back, v1' });
    const again = back.getByRole('button', { name: 'Publish v3' });
    await tabTo(admin, again);
    // What it would do is known first.
    await expect(again).toBeEnabled();
    await admin.keyboard.press('Enter');
    await expect(back.getByText('v3 in force')).toBeVisible();
    await admin.keyboard.press('Escape');
    await expect(admin.getByRole('link', { name: 'Policy v3 on 2 of 2 nodes' })).toBeVisible();
    await openTier(admin, 'pro');
    await expect(limitField(admin, 'minute', 'Burst')).not.toHaveValue('3000');
  } finally {
    await node.remove();
  }
});

test('pages, lists, an edit and a publish by keys alone', async ({ admin }) => {
  await admin.goto('/');
  await expect(admin.getByRole('heading', { name: 'Overview' })).toBeVisible();
  await admin.keyboard.press('g');
  await admin.keyboard.press('t');
  await expect(admin.getByRole('heading', { name: 'Tiers' })).toBeFocused();
  await expect(admin.getByRole('row', { name: /\bpro\b/ })).toBeVisible();

  await admin.keyboard.press('/');
  await expect(admin.getByLabel('Filter')).toBeFocused();
  await admin.keyboard.type('prx');
  await expect(admin.getByText('No tier matches “prx”')).toBeVisible();
  await admin.getByRole('button', { name: 'Clear filter' }).press('Enter');
  await admin.getByRole('region', { name: 'Tiers' }).focus();
  await admin.keyboard.press('j');
  await admin.keyboard.press('j');
  await expect(admin.getByRole('link', { name: 'pro', exact: true })).toBeFocused();
  await admin.keyboard.press('k');
  await admin.keyboard.press('ArrowDown');
  await admin.keyboard.press('Enter');
  await expect(admin.getByRole('heading', { name: 'Tier pro' })).toBeFocused();

  const burst = limitField(admin, 'minute', 'Burst');
  while (!(await burst.evaluate((field) => field === document.activeElement)))
    await admin.keyboard.press('Tab');
  await admin.keyboard.type('300');
  await admin.keyboard.press('Control+Enter');
  await expect(panel(admin).getByLabel('Message')).toBeFocused();
  await admin.keyboard.type('smaller bursts');
  // A form is submitted while its key is pressed, so the number is final when that is done.
  const submitted = await countSubmits(admin);
  await admin.keyboard.press('Control+Enter');
  expect(await submitted()).toBe(0);
  await expect(panel(admin).getByRole('button', { name: 'Publish v2' })).toBeVisible();
  await admin.keyboard.press('Enter');
  expect(await submitted()).toBe(1);
  await expectInForce(admin, 2);
  await expect(panel(admin).getByRole('button', { name: 'Close' }).last()).toBeFocused();
  await admin.keyboard.press('Escape');
  await expect(panel(admin)).toBeHidden();
  await expect(burst).toBeFocused();
});

readOnly('Tab goes through the controls of one row, and then out of the rows', async ({ admin }) => {
  await admin.goto('/tiers');
  const rows = admin.getByRole('region', { name: 'Tiers' }).locator('tbody tr');
  await walkTo(admin, 'Tiers', admin.getByRole('link', { name: 'pro', exact: true }));
  const row = rows.filter({ has: admin.getByRole('link', { name: 'pro', exact: true }) });
  const stops = await row.locator(STOP).count();
  expect(stops).toBeGreaterThan(1);
  for (let at = 0; at < stops; at += 1) {
    await expect(row.locator(':focus')).toHaveCount(1);
    await admin.keyboard.press('Tab');
  }
  await expect(rows.locator(':focus')).toHaveCount(0);
});

readOnly('e edits the row one is in, and what is open', async ({ admin }) => {
  for (const [path, row, title] of [
    ['/tiers', 'pro', 'Tier pro'],
    ['/rules', 'sign-in', 'Rule sign-in'],
  ] as const) {
    await admin.goto(path);
    await admin.getByRole('link', { name: row, exact: true }).focus();
    await admin.keyboard.press('e');
    await expect(admin.getByRole('heading', { level: 1, name: title })).toBeVisible();
    const field = admin.locator('main [id^="field-"]:focus');
    await expect(field).toBeVisible();
    await admin.keyboard.press('Escape');
    await expect(field).toHaveCount(0);
    await admin.keyboard.press('e');
    await expect(field).toBeVisible();
  }
});

readOnly('the list of keys, and letters that can be switched off', async ({ admin }) => {
  await openTier(admin, 'pro');
  await admin.keyboard.press('?');
  await expect(admin.getByRole('dialog', { name: 'Keys' })).toBeVisible();
  await admin.keyboard.press('Escape');
  await expect(admin.getByRole('dialog', { name: 'Keys' })).toBeHidden();
  await limitField(admin, 'minute', 'Rate').press('?');
  await expect(admin.getByRole('dialog')).toBeHidden();
  await admin.getByRole('button', { name: 'Menu of admin' }).click();
  await admin.getByLabel('Single-letter shortcuts').uncheck();
  await admin.keyboard.press('Escape');
  await admin.getByRole('heading', { level: 1 }).focus();
  await admin.keyboard.press('?');
  await expect(admin.getByRole('dialog')).toBeHidden();
});

readOnly('a hidden tab gives its stream back and takes it up again', async ({ admin }) => {
  await admin.clock.install();
  await admin.goto('/');
  await admin.clock.runFor(2_000);
  await expect(admin.getByText(/^● ?Live$/)).toBeVisible();
  const hide = (hidden: boolean) =>
    admin.evaluate((now) => {
      Object.defineProperty(document, 'hidden', { value: now, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
  await hide(true);
  await admin.clock.runFor(11_000);
  await expect(admin.getByText(/^● ?Live$/)).toBeHidden();
  await admin.evaluate(() => {
    const seen = new MutationObserver(() => {
      if (document.body.textContent.includes('Not live since')) document.body.dataset['flashed'] = 'yes';
    });
    seen.observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  const reopened = admin.waitForRequest(/\/api\/v1\/stream/);
  await hide(false);
  await reopened;
  await expect(admin.getByText(/^● ?Live$/)).toBeVisible();
  await expect(admin.locator('body')).not.toHaveAttribute('data-flashed');
});
