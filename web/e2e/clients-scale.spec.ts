/** A hundred thousand clients: imported, found, scrolled, and changed at once. What is measured is told, and held loosely. */
import type { Page } from '@playwright/test';
import { chooseFile } from './clientsteps.ts';
import { expect, test } from './fixtures.ts';

const CLIENTS = 100_000;
const PAINTED_MS = 2_000;
const FRAME_MS = 2_000;

/** Notes when rows of the list were on screen first after each answer. */
async function watchPaint(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const painted: number[] = [];
    Object.assign(window, { painted });
    let rows = '';
    new MutationObserver(() => {
      const all = document.querySelectorAll('tbody tr');
      const now = `${all.length} ${all[0]?.querySelector('a')?.textContent ?? ''}`;
      if (now === rows) return;
      rows = now;
      // After the frame in which they are drawn.
      requestAnimationFrame(() => setTimeout(() => painted.push(performance.now())));
    }).observe(document, { childList: true, subtree: true });
  });
}

/** From the end of the answer to the frame with its rows. */
function paintMs(page: Page): Promise<number> {
  return page.evaluate(() => {
    const answers = performance
      .getEntriesByType('resource')
      .filter(({ name }) => name.includes('/api/v1/clients?'));
    const last = answers.at(-1) as PerformanceResourceTiming;
    const painted = (window as unknown as { painted: number[] }).painted.filter(
      (at) => at >= last.responseEnd,
    );
    return Math.min(...painted) - last.responseEnd;
  });
}

/** Scrolls to the end and back. Answers the longest time between two frames. */
function scrollMs(page: Page): Promise<number> {
  return page.evaluate(
    () =>
      new Promise<number>((resolve) => {
        let [longest, before, at, by] = [0, performance.now(), 0, 400];
        const step = () => {
          const now = performance.now();
          longest = Math.max(longest, now - before);
          before = now;
          at += by;
          if (at > document.documentElement.scrollHeight) by = -by;
          scrollTo(0, at);
          if (at < 0) resolve(longest);
          else requestAnimationFrame(step);
        };
        requestAnimationFrame(step);
      }),
  );
}

test('a hundred thousand clients', async ({ admin, watch }, info) => {
  test.setTimeout(300_000);
  watch.allow(/status of 412/);
  const tell = (what: string, ms: number) => {
    info.annotations.push({ type: 'measured', description: `${what}: ${Math.round(ms)} ms` });
  };
  await watchPaint(admin);
  await admin.goto('/clients');
  await admin.getByRole('button', { name: 'Import' }).click();
  const dialog = admin.getByRole('dialog', { name: 'Import clients' });
  const lines = Array.from({ length: CLIENTS }, (_, at) => {
    const id = String(at).padStart(5, '0');
    return `user,u-${id},${at % 2 === 0 ? 'pro' : 'free'},Client ${id}`;
  });
  let begun = Date.now();
  await chooseFile(admin, ['kind,value,tier,label', ...lines]);
  await expect(dialog.getByLabel('New 100,000')).toBeChecked({ timeout: 60_000 });
  tell('a file of 100,000 tried', Date.now() - begun);
  await dialog.getByLabel('Type 100,000 to confirm').fill('100k');
  begun = Date.now();
  await dialog.getByRole('button', { name: 'Publish v2' }).click();
  await expect(dialog.getByText('v2 in force')).toBeVisible({ timeout: 60_000 });
  tell('and imported', Date.now() - begun);
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await expect(admin.getByText('100,000 clients')).toBeVisible();

  await admin.reload();
  await expect(admin.getByRole('link', { name: 'user:u-00099' })).toBeVisible();
  const opened = await paintMs(admin);
  tell('the list painted after the answer', opened);
  expect(opened).toBeLessThan(PAINTED_MS);
  await admin.getByLabel('Filter').fill('user:u-99');
  await expect(admin.getByText('1,000 clients')).toBeVisible();
  await expect(admin.getByRole('link', { name: 'user:u-99000' })).toBeVisible();
  const found = await paintMs(admin);
  tell('what was looked for painted after the answer', found);
  expect(found).toBeLessThan(PAINTED_MS);
  for (let rows = 200; rows <= 1_000; rows += 100) {
    await admin.getByRole('button', { name: 'Show more' }).click();
    await expect(admin.getByRole('link', { name: /user:u-/ })).toHaveCount(rows);
  }
  const more = await paintMs(admin);
  tell('the tenth page painted after the answer', more);
  expect(more).toBeLessThan(PAINTED_MS);
  const longest = await scrollMs(admin);
  tell('the longest frame while 1,000 rows were scrolled', longest);
  expect(longest).toBeLessThan(FRAME_MS);

  // More than the server counts in a list: their number is asked for when it is known.
  await admin.getByLabel('Filter').fill('');
  await admin.getByLabel('Tier', { exact: true }).selectOption('pro');
  await expect(admin.getByText('more than 10,000 clients')).toBeVisible();
  await admin.getByRole('checkbox', { name: 'Select user:u-00000' }).check();
  await admin.getByRole('button', { name: 'Change all that match…' }).click();
  const bulk = admin.getByRole('dialog', { name: 'Change many clients' });
  await bulk.getByLabel('Tier', { exact: true }).selectOption('layered');
  await bulk.getByLabel('Message').fill('all of pro are layered');
  await bulk.getByRole('button', { name: 'Publish v3' }).click();
  await expect(bulk.getByText('50,000 clients match by now. Nothing was changed')).toBeVisible();
  await bulk.getByLabel('Type 50,000 to confirm').fill('50,000');
  begun = Date.now();
  await bulk.getByRole('button', { name: 'Publish v3' }).click();
  await expect(bulk.getByText('v3 in force')).toBeVisible({ timeout: 60_000 });
  tell('50,000 clients changed at once', Date.now() - begun);
});
