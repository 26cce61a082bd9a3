/**
 * The memory of a page that is left open: the Overview under live traffic, for TIDEGATE_SOAK_MINUTES (1 unless told).
 * What is kept after a twelfth of the time, five minutes of an hour, is compared with what is kept at its end.
 */
import type { CDPSession } from '@playwright/test';
import { expect, test } from './fixtures.ts';
import { expectLive } from './steps.ts';

const MINUTES = Number(process.env['TIDEGATE_SOAK_MINUTES'] ?? 1);
const PARTS = 12;
/** In its first minute a page still learns. */
const GROWTH_MAX = MINUTES >= 60 ? 1.1 : 1.15;

interface Kept {
  heap: number;
  nodes: number;
  listeners: number;
}

/** What is left after everything that can go is gone. */
async function kept(devtools: CDPSession): Promise<Kept> {
  for (let at = 0; at < 3; at += 1) await devtools.send('HeapProfiler.collectGarbage');
  const { usedSize: heap } = await devtools.send('Runtime.getHeapUsage');
  const { nodes, jsEventListeners: listeners } = await devtools.send('Memory.getDOMCounters');
  return { heap, nodes, listeners };
}

test(
  'a page that is left open keeps no more than it did',
  { tag: '@all' },
  async ({ admin, server }, info) => {
    test.setTimeout((MINUTES + 2) * 60_000);
    await admin.goto('/');
    await expectLive(admin);
    const devtools = await admin.context().newCDPSession(admin);
    let asked = 0;
    const flow = setInterval(() => {
      asked += 1;
      for (const user of ['ada', 'ada', `visitor-${asked % 50}`])
        void server.check(user).catch(() => undefined);
    }, 100);
    try {
      const measured: Kept[] = [];
      const begun = Date.now();
      for (let part = 1; part <= PARTS; part += 1) {
        await admin.waitForTimeout(begun + (part * MINUTES * 60_000) / PARTS - Date.now());
        const now = await kept(devtools);
        measured.push(now);
        const told = `${Math.round((Date.now() - begun) / 1000)} s: ${now.heap} bytes, ${now.nodes} nodes, ${now.listeners} listeners`;
        process.stdout.write(`${told}\n`);
        info.annotations.push({ type: 'measured', description: told });
      }
      await expectLive(admin);
      const [first, last] = [measured[0], measured.at(-1)];
      if (!first || !last) throw new Error('nothing was measured');
      expect(last.heap / first.heap).toBeLessThanOrEqual(GROWTH_MAX);
      expect(last.listeners).toBeLessThanOrEqual(first.listeners * GROWTH_MAX);
    } finally {
      clearInterval(flow);
    }
  },
);
