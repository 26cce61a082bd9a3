/**
 * Every page and dialog, light and dark: no accessibility violation at 1200 and 360, no page that scrolls sideways
 * (`npm run looks` makes pictures of them, in screenshots/).
 */
import { expect, fromNothing, readOnly, test } from './fixtures.ts';
import { look } from './look.ts';
import { expectLive, limitField, openTier, panel, publishChange, review } from './steps.ts';
import type { Server } from './server.ts';

/** Some traffic, so that charts and tables have something to show. */
async function flow(server: Server): Promise<void> {
  for (let second = 0; second < 4; second += 1) {
    for (let at = 0; at < 20 + 15 * second; at += 1) await server.check('ada');
    await new Promise((resolve) => setTimeout(resolve, 700));
  }
}

fromNothing('looks: outside', async ({ server, browser, watch }) => {
  watch.allow(/status of (401|404)/);
  const context = await browser.newContext({ baseURL: server.dashboard });
  const page = await context.newPage();
  await page.goto(server.signInLink);
  await expect(page.getByLabel('Name')).toBeVisible();
  await look(page, 'setup');
  await page.goto('/login');
  await expect(page.getByText('No administrator exists yet')).toBeVisible();
  await look(page, 'login');
  await page.goto('/setup');
  await expect(page.getByRole('alert')).toBeVisible();
  await look(page, 'setup-dead');
  await context.close();
});

test('looks: pages', async ({ admin, server, watch }) => {
  watch.allow(/status of 404/);
  await admin.goto('/');
  await expect(admin.getByText('No decision yet')).toBeVisible();
  await expectLive(admin);
  await look(admin, 'overview-empty');
  await openTier(admin, 'layered');
  await limitField(admin, 'second', 'Burst').fill('30');
  await publishChange(admin, 'larger bursts for the layered tier', 2);
  await flow(server);
  await admin.goto('/');
  await expect(admin.locator('canvas')).toBeVisible();
  await expect(admin.locator('[data-limit]').first()).toBeVisible();
  await expectLive(admin);
  await expect(admin.locator('[data-limit="default/tier:free/minute"] [data-figure=allowed]')).toHaveText(
    /[1-9]/,
  );
  await look(admin, 'overview');
  await admin.getByRole('button', { name: 'Show as table' }).click();
  await look(admin, 'overview-table');
  await admin.goto('/tiers');
  await expect(admin.getByRole('row', { name: /\bpro\b/ })).toBeVisible();
  await look(admin, 'tiers');
  await openTier(admin, 'layered');
  await look(admin, 'tier');
  await admin.goto('/rules');
  await expect(admin.getByRole('link', { name: 'sign-in' })).toBeVisible();
  await look(admin, 'rules');
  await admin.getByRole('link', { name: 'sign-in' }).click();
  await expect(admin.getByText('Counts per')).toBeVisible();
  await look(admin, 'rule');
  await admin.goto('/history');
  await expect(admin.getByText('larger bursts')).toBeVisible();
  await look(admin, 'history');
  await admin.goto('/nowhere');
  await expect(admin.getByText('There is no such page')).toBeVisible();
  await look(admin, 'missing');
  await admin.goto('/tiers/gone');
  await expect(admin.getByText('There is no tier gone')).toBeVisible();
  await look(admin, 'tier-gone');
});

test('looks: dialogs and faults', async ({ admin, other, watch }) => {
  watch.allow(/status of (401|412)/);
  await openTier(admin, 'layered');
  await admin.getByRole('button', { name: 'Menu of admin' }).click();
  await look(admin, 'menu');
  await admin.getByRole('button', { name: 'List of keys' }).click();
  await expect(admin.getByRole('dialog', { name: 'Keys' })).toBeVisible();
  await look(admin, 'keys');
  await admin.keyboard.press('Escape');

  await limitField(admin, 'second', 'Rate').fill('fast');
  await admin.getByRole('button', { name: 'Add a limit' }).click();
  await admin.getByRole('button', { name: 'Review and publish' }).click();
  await expect(admin.getByRole('alert')).toBeVisible();
  await look(admin, 'tier-faults');
  await admin.getByRole('button', { name: 'Remove the new limit' }).click();
  await limitField(admin, 'second', 'Rate').fill('100 / 1s');
  await limitField(admin, 'minute', 'Rate').fill('250 / 1m');
  await review(admin, 'more bursts, less steady');
  await look(admin, 'publish');
  await panel(admin).getByRole('button', { name: 'Cancel' }).click();

  await openTier(other, 'layered');
  await limitField(other, 'minute', 'Rate').fill('300 / 1m');
  await limitField(other, 'second', 'Burst').fill('40');
  await publishChange(other, 'three hundred', 2);
  await expect(admin.getByText(/while you edited/)).toBeVisible();
  await look(admin, 'tier-meanwhile');
  await admin.getByRole('button', { name: 'Review and publish' }).click();
  await expect(panel(admin).getByText('Both of you changed this')).toBeVisible();
  await look(admin, 'publish-conflict');
  await panel(admin).getByRole('button', { name: 'Back to editing' }).click();

  await admin.getByRole('button', { name: 'Menu of admin' }).click();
  await admin.getByRole('button', { name: 'Sign out', exact: true }).click();
  await expect(admin.getByRole('dialog', { name: 'Keep your changes?' })).toBeVisible();
  await look(admin, 'sign-out');
  await admin.getByRole('button', { name: 'Stay signed in' }).click();
  await admin.context().clearCookies();
  await admin.getByRole('link', { name: 'History' }).click();
  await expect(admin.getByRole('dialog', { name: 'Sign in again' })).toBeVisible();
  await look(admin, 'signed-out');
});

readOnly('a narrow screen has the pages in a menu', async ({ admin }) => {
  await admin.setViewportSize({ width: 360, height: 780 });
  await admin.goto('/');
  await expect(admin.getByRole('link', { name: 'Tiers' })).toBeHidden();
  await admin.getByRole('button', { name: 'Menu', exact: true }).click();
  await admin.getByRole('link', { name: 'Tiers' }).click();
  await expect(admin.getByRole('heading', { name: 'Tiers' })).toBeVisible();
  await expect(admin.getByRole('link', { name: 'Rules' })).toBeHidden();
});

readOnly('a chosen theme stays, whatever the system says', async ({ admin }) => {
  await admin.emulateMedia({ colorScheme: 'light' });
  await admin.goto('/');
  await admin.getByRole('button', { name: 'Menu of admin' }).click();
  await admin.getByLabel('Theme').selectOption('dark');
  await admin.reload();
  await expect(admin.locator('html')).toHaveAttribute('data-theme', 'dark');
  await expect(admin.locator('body')).toHaveCSS('background-color', 'rgb(16, 18, 20)');
});
