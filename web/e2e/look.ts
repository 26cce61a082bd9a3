/** Checks of how a page looks, and pictures of it. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from '@playwright/test';
import { expect, test } from './fixtures.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

interface AxeAnswer {
  violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[];
}

const PICTURED = [360, 700, 1024, 1440];
/** Where the rules of accessibility are checked in a run of all tests; elsewhere at the last of them, light. */
const CHECKED = [360, 1200];
const ALL_WIDTHS = [...new Set([...PICTURED, ...CHECKED])];
/** The rules whose answer depends on the theme. */
const RULES_OF_COLOURS = ['color-contrast', 'link-in-text-block'];
/** `npm run looks` makes pictures; a run of all tests does not, because no step compares them. */
const isPictured = process.env['TIDEGATE_PICTURES'] === 'looks';

/**
 * Checks that a page has no accessibility violation and does not scroll sideways, in the light theme at 1200 and for
 * scrolling at 360 as well. In a run of all tests: accessibility at 1200 and 360, light and dark; scrolling at 360,
 * 700, 1024, 1200 and 1440; and pictures in screenshots/ where they are asked for.
 */
export async function look(page: Page, name: string): Promise<void> {
  const isWhole = test.info().config.metadata['runsAll'] === true;
  await page.evaluate(settled);
  for (const width of isWhole ? ALL_WIDTHS : CHECKED) {
    await page.setViewportSize({ width, height: width < 600 ? 780 : 900 });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(overflow, `${name} at ${width} scrolls sideways`).toBeLessThanOrEqual(0);
    if (!isWhole && width !== CHECKED.at(-1)) continue;
    for (const theme of isWhole ? (['light', 'dark'] as const) : (['light'] as const)) {
      await page.emulateMedia({ colorScheme: theme });
      await page.evaluate(still);
      if (CHECKED.includes(width))
        await expectAccessible(page, `${name} ${theme} ${width}`, theme === 'dark' ? RULES_OF_COLOURS : []);
      if (isPictured && PICTURED.includes(width))
        await page.screenshot({ path: `screenshots/${name}-${theme}-${width}.png` });
    }
  }
}

/** In the page: waits until nothing has come, gone or moved for a moment; a dialog that is still coming is pale. */
async function settled(): Promise<void> {
  let [before, calm] = ['', 0];
  for (let looks = 0; calm < 3 && looks < 60; looks += 1) {
    const now = `${document.querySelectorAll('*').length} ${document.getAnimations().length}`;
    calm = now === before ? calm + 1 : 0;
    before = now;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await Promise.allSettled(document.getAnimations().map(({ finished }) => finished));
}

/** In the page: waits until colours that fade are there. */
async function still(): Promise<void> {
  await new Promise(requestAnimationFrame);
  await Promise.allSettled(document.getAnimations().map(({ finished }) => finished));
}

/** Checks a page by these rules of axe, or by all of them if none is given. */
async function expectAccessible(page: Page, where: string, rules: string[]): Promise<void> {
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(axe);
  const options = { resultTypes: ['violations'], ...(rules.length > 0 ? { runOnly: rules } : {}) };
  // Only the violations are sent from the page: what passes is most of the answer.
  const answer = await page.evaluate<AxeAnswer>(
    `axe.run(document, ${JSON.stringify(options)}).then(({ violations }) => ({ violations }))`,
  );
  const faults = answer.violations.map(({ id, nodes }) => ({
    id,
    nodes: nodes.map(({ html, failureSummary }) => `${html} ${failureSummary ?? ''}`),
  }));
  expect(faults, where).toEqual([]);
}
