/** When rows of a list are on the screen, and how long a frame takes. */
import type { Page } from '@playwright/test';

/** A generous limit: rows are drawn within a tenth of a second on an idle machine. */
const DRAWN_MS = 60_000;

/** Returns the time from an action, or from the end of the answer to a call that follows it, to the frame with other rows. */
export async function drawnMs(page: Page, act: () => Promise<unknown>, answer = ''): Promise<number> {
  await page.evaluate((limit) => {
    const names = () => {
      const rows = document.querySelectorAll('tbody tr');
      return `${rows.length} ${rows[0]?.querySelector('a')?.textContent ?? ''} ${rows[rows.length - 1]?.querySelector('a')?.textContent ?? ''}`;
    };
    const noted: { begun: number; drawn: number } = { begun: 0, drawn: 0 };
    Object.assign(window, { noted });
    for (const event of ['input', 'click'])
      addEventListener(event, () => (noted.begun ||= performance.now()), { capture: true, once: true });
    let before = names();
    const seen = new MutationObserver(() => {
      const now = names();
      if (now === before) return;
      before = now;
      // After the frame in which they are drawn; rows that come later are drawn later.
      requestAnimationFrame(() => setTimeout(() => (noted.drawn = performance.now())));
    });
    seen.observe(document, { childList: true, subtree: true });
    setTimeout(() => seen.disconnect(), limit);
  }, DRAWN_MS);
  await act();
  const times = (url: string) => {
    const { noted } = window as unknown as { noted: { begun: number; drawn: number } };
    const answers = performance
      .getEntriesByType('resource')
      .filter(({ name }) => url !== '' && name.includes(url));
    const last = answers.at(-1) as PerformanceResourceTiming | undefined;
    const from = Math.max(noted.begun, last?.responseEnd ?? 0);
    return noted.drawn > from ? noted.drawn - from : 0;
  };
  // Until other rows are drawn.
  return (await page.waitForFunction(times, answer, { timeout: DRAWN_MS, polling: 100 })).jsonValue();
}

/** Scrolls to the end and back. Returns the longest time between two frames. */
export function scrollMs(page: Page): Promise<number> {
  return page.evaluate(
    () =>
      new Promise<number>((resolve) => {
        let [longest, before, at, by] = [0, performance.now(), 0, 400];
        const step = () => {
          const now = performance.now();
          longest = Math.max(longest, now - before);
          before = now;
          at += by;
          // Rows that go make the page shorter meanwhile.
          if (at > document.documentElement.scrollHeight) by = -400;
          scrollTo(0, at);
          if (at < 0) resolve(longest);
          else requestAnimationFrame(step);
        };
        requestAnimationFrame(step);
      }),
  );
}
