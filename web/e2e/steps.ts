/** Steps that several stories share, in the words of the page. */
import { expect, type Locator, type Page } from '@playwright/test';
import { within } from './within.ts';

export function limitField(
  page: Page,
  limit: string,
  field: 'Rate' | 'Burst' | 'Limit' | 'Algorithm',
): Locator {
  return page.getByRole('group', { name: `Limit ${limit}` }).getByLabel(field, { exact: true });
}

export async function openTier(page: Page, id: string): Promise<void> {
  await page.goto(`/tiers/${id}`);
  await expect(page.getByRole('heading', { level: 1, name: `Tier ${id}` })).toBeVisible();
  await expect(page.getByRole('checkbox', { name: 'Unlimited' })).toBeVisible();
}

export function panel(page: Page): Locator {
  return page.getByRole('dialog', { name: 'Publish' });
}

export async function review(page: Page, message: string): Promise<Locator> {
  await page.getByRole('button', { name: 'Review and publish' }).click();
  const dialog = panel(page);
  await dialog.getByLabel('Message').fill(message);
  return dialog;
}

export async function expectInForce(page: Page, version: number): Promise<void> {
  await expect(panel(page).getByText(`v${version} in force`)).toBeVisible();
}

/** What lets much more through is asked for, in these words. */
export async function mean(dialog: Locator, said: string): Promise<void> {
  await expect(dialog.getByText(said)).toBeVisible();
  await dialog.getByLabel('Yes, that is meant').check();
}

export async function publishChange(
  page: Page,
  message: string,
  version: number,
  loosens?: string,
): Promise<void> {
  const dialog = await review(page, message);
  if (loosens !== undefined) await mean(dialog, loosens);
  await dialog.getByRole('button', { name: /^Publish/ }).click();
  await expectInForce(page, version);
  await dialog.getByRole('button', { name: 'Close' }).last().click();
}

export async function expectLive(page: Page): Promise<void> {
  await expect(page.getByRole('status').filter({ hasText: /^● ?Live$/ })).toBeVisible();
}

/** From the publish panel: what is reviewed, run on the example's traffic of fewer clients. */
export async function runReviewed(page: Page): Promise<void> {
  await panel(page).getByRole('button', { name: 'Open in Simulator' }).click();
  await page.getByRole('button', { name: 'Start with the example' }).click();
  for (const clients of await page.getByLabel('Clients', { exact: true }).all()) {
    if ((await clients.inputValue()) === '200') await clients.fill('30');
  }
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'Result' })).toBeVisible({ timeout: within(30_000) });
  await expect(page.getByRole('link', { name: /^user:made/ }).first()).toBeVisible();
}
