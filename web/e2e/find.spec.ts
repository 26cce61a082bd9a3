/** The top bar: what can be found, what it says of the policy, and the settings of the menu. */
import type { Locator, Page } from '@playwright/test';
import { expect, readOnly, test } from './fixtures.ts';
import { call } from './people.ts';
import { expectLive } from './steps.ts';

/** Opens Find, and holds the answers with this list until `go` is called. */
async function findBefore(admin: Page, list: 'tiers' | 'rules'): Promise<{ box: Locator; go: () => void }> {
  await admin.goto('/');
  await expectLive(admin);
  let go = () => {};
  const held = new Promise<void>((resolve) => (go = resolve));
  await admin.route(`**/api/v1/${list}?*`, async (route) => {
    await held;
    await route.continue();
  });
  await admin.keyboard.press('Control+k');
  return { box: admin.getByRole('combobox', { name: 'Find' }), go };
}

readOnly('Ctrl K finds tiers, rules, nodes, versions and pages by keys alone', async ({ admin }) => {
  await admin.goto('/');
  await expectLive(admin);
  await admin.keyboard.press('Control+k');
  const box = admin.getByRole('combobox', { name: 'Find' });
  await expect(box).toBeFocused();
  const lines = admin.getByRole('listbox', { name: 'Found' }).getByRole('option');
  await expect(lines.first()).toContainText('Overview');
  expect(await lines.count()).toBeLessThanOrEqual(12);

  await box.fill('pro');
  await expect(lines.first()).toHaveText(/^pro\s*Tier$/);
  await expect(lines.first()).toHaveAttribute('aria-selected', 'true');
  await box.press('Enter');
  await expect(admin.getByRole('heading', { name: 'Tier pro' })).toBeFocused();

  await admin.keyboard.press('Control+k');
  await box.fill('sign-in');
  await expect(lines.first()).toContainText('sign-in');
  await box.press('ArrowDown');
  await box.press('ArrowUp');
  await box.press('Enter');
  await expect(admin.getByRole('heading', { name: 'Rule sign-in' })).toBeVisible();

  await admin.keyboard.press('Control+k');
  await box.fill('v1');
  await expect(lines.filter({ hasText: 'Version' })).toHaveText(/^v1\s*Version$/);
  await box.fill('v2');
  await expect(lines.filter({ hasText: 'Version' })).toHaveCount(0);
  await box.fill('audit');
  await box.press('Enter');
  await expect(admin).toHaveURL(/\/history\/audit$/);
});

readOnly(
  'what is no name is offered to the Inspector, as each kind that the policy knows',
  async ({ admin }) => {
    await admin.goto('/tiers');
    await expect(admin.getByRole('heading', { name: 'Tiers' })).toBeVisible();
    await admin.getByRole('button', { name: /^Find/ }).click();
    await admin.getByRole('combobox', { name: 'Find' }).fill('acct_77c0');
    const line = admin.getByRole('option', { name: 'Inspect “acct_77c0” as user' });
    await expect(line).toBeVisible();
    await line.click();
    await expect(admin).toHaveURL(/\/inspect\?key=user%3Aacct_77c0$/);
    await admin.keyboard.press('Control+k');
    await admin.getByRole('combobox', { name: 'Find' }).fill('user:acct_1');
    await expect(admin.getByRole('option', { name: /^Inspect/ })).toHaveCount(1);
    await admin.keyboard.press('Enter');
    await expect(admin).toHaveURL(/\/inspect\?key=user%3Aacct_1$/);
  },
);

readOnly('a key of a kind that is not known yet is taken at its word', async ({ admin }) => {
  const { box, go } = await findBefore(admin, 'tiers');
  await box.fill('user:acct_1');
  await expect(admin.getByRole('option', { name: 'Inspect “acct_1” as user' })).toBeVisible();
  await expect(admin.getByRole('option', { name: /^Inspect “/ })).toHaveCount(1);
  await admin.keyboard.press('Enter');
  await expect(admin).toHaveURL(/\/inspect\?key=user%3Aacct_1$/);
  go();
});

for (const [list, text, heading] of [
  ['tiers', 'pro', 'Tier pro'],
  ['rules', 'sign-in', 'Rule sign-in'],
] as const) {
  readOnly(`Enter waits for the ${list} that the text may name`, async ({ admin }) => {
    const { box, go } = await findBefore(admin, list);
    await box.fill(text);
    await box.press('Enter');
    await expect(box).toBeVisible();
    go();
    await expect(admin.getByRole('heading', { name: heading })).toBeFocused();
  });
}

readOnly('an arrow takes Enter back, and what is still awaited is not called missing', async ({ admin }) => {
  const { box, go } = await findBefore(admin, 'tiers');
  const found = admin.getByRole('listbox', { name: 'Found' }).getByRole('option');
  await box.fill('no-such-name');
  await expect(found).toHaveCount(0);
  // Only the tiers are kept back: the rules, which load beside them, have arrived when one line is left.
  const loading = admin.getByRole('dialog').getByRole('status').filter({ hasText: 'Loading' });
  await expect(loading).toHaveCount(1);
  await expect(loading).toBeVisible();
  await expect(admin.getByText(/^Nothing is called/)).toHaveCount(0);
  await box.fill('audit');
  await box.press('Enter');
  await box.press('ArrowDown');
  go();
  await expect(found.filter({ hasText: 'Inspect “audit”' }).first()).toBeVisible();
  await expect(box).toBeFocused();
});

readOnly('Stop ends the wait for a list, and opens what is known', async ({ admin }) => {
  const { box, go } = await findBefore(admin, 'tiers');
  await box.fill('audit');
  await box.press('Enter');
  await admin.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
  await expect(admin).toHaveURL(/\/history\/audit$/);
  go();
});

test('a key that is pasted leads to the Inspector, whatever else there is of the name', async ({ admin }) => {
  await call(admin, 'POST', '/clients', { kind: 'user', value: 'ada', tier: 'pro' });
  await admin.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  const paste = async (key: string) => {
    await admin.goto('/tiers');
    await expectLive(admin);
    await admin.evaluate((text) => navigator.clipboard.writeText(text), key);
    await admin.keyboard.press('Control+k');
    await expect(admin.getByRole('combobox', { name: 'Find' })).toBeFocused();
    await admin.keyboard.press('Control+v');
    await admin.keyboard.press('Enter');
  };
  for (const key of ['user:ada', 'ada']) {
    await paste(key);
    await expect(admin).toHaveURL(/\/inspect\?key=user%3Aada$/);
    await expect(admin.locator('strong', { hasText: 'user:ada' })).toBeVisible();
  }
  // What is called so is meant, and what is typed is looked for as before.
  await paste('pro');
  await expect(admin.getByRole('heading', { name: 'Tier pro' })).toBeFocused();
  await admin.keyboard.press('Control+k');
  await admin.getByRole('combobox', { name: 'Find' }).fill('user:ada');
  const lines = admin.getByRole('listbox', { name: 'Found' }).getByRole('option');
  await expect(lines.first()).toHaveText(/^user:ada\s*Client$/);
});

readOnly('the bar says where the policy is in force', async ({ admin }) => {
  await admin.goto('/tiers');
  await expect(admin.getByRole('link', { name: 'Policy v1 on 1 of 1 node' })).toBeVisible();
  await admin.getByRole('link', { name: 'Policy v1 on 1 of 1 node' }).click();
  await expect(admin.getByRole('heading', { name: 'Nodes' })).toBeFocused();
});

test('a point pauses the live figures, and another goes on', async ({ admin }) => {
  await admin.goto('/tiers');
  await expectLive(admin);
  await admin.keyboard.press('.');
  await expect(admin.getByText(/^○ ?Paused$/)).toBeVisible();
  // The figures stand still, and nothing else: what is published is told, and can be taken back.
  await call(admin, 'DELETE', '/tiers/layered', undefined, { 'if-match': '*' });
  await expect(admin.getByRole('link', { name: 'Policy v2 on 1 of 1 node' })).toBeVisible();
  await expect(admin.getByRole('link', { name: 'layered', exact: true })).toHaveCount(0);
  await expect(admin.getByText(/^○ ?Paused$/)).toBeVisible();
  await admin.keyboard.press('.');
  await expectLive(admin);
});

readOnly('comfortable rows stay', async ({ admin }) => {
  await admin.goto('/nodes');
  const row = admin.getByRole('row', { name: /this server/ });
  const height = async () => (await row.boundingBox())?.height ?? 0;
  await expect(row).toBeVisible();
  const compact = await height();
  await admin.getByRole('button', { name: 'Menu of admin' }).click();
  await admin.getByLabel('Rows').selectOption('comfortable');
  await expect.poll(height).toBeGreaterThan(compact);
  await admin.reload();
  await expect(row).toBeVisible();
  expect(await height()).toBeGreaterThan(compact);
});
