/** Watching a key: what the stream tells, also where it is opened anew in between. */
// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Watch } from '../app/features/inspector/watch.svelte.ts';
import type { WatchedDecision } from '../app/lib/api/types.ts';
import { live, type Listener } from '../app/lib/state/live/live.svelte.ts';

let say: Listener;
let left: number;
let answer: { since: number | null; load: () => Promise<void> };
beforeEach(() => {
  vi.useFakeTimers();
  left = 0;
  answer = { since: null, load: vi.fn(() => Promise.resolve()) };
  vi.spyOn(live, 'listen').mockImplementation((topic, _names, listener) => {
    expect(topic).toBe('key:user:ada');
    say = listener;
    return () => (left += 1);
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const seen = (number: number): WatchedDecision => ({
  number,
  node: 'a',
  at_ms: number,
  allowed: true,
  limit_id: null,
  remaining: null,
  identities: [],
  endpoint: null,
  method: 'GET',
  cost: 1,
});
const numbers = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, at) => seen(from + at));

/** Numbers of decisions, and of a time in which nobody watched from when to when. */
const shown = (watch: Watch) =>
  watch.calm.rows.map((line) => ('seen' in line ? line.seen.number : [line.fromMs, line.toMs]));

function watching(): Watch {
  const watch = new Watch(answer);
  watch.start({ kind: 'user', value: 'ada' });
  say({ since_ms: 5, nodes: { a: 5, b: 9_000 }, silent: ['c'], failed: { d: 'so' } }, 'key');
  return watch;
}

test('what came is shown, the newest first, and what had no room is counted', () => {
  const watch = watching();
  expect([watch.since, watch.silent, watch.later]).toEqual([5, ['c'], [['b', 9_000]]]);
  expect(watch.failed[0]).toContain('so');
  say({ decisions: numbers(1, 2), missed: 0 }, 'decision');
  say({ decisions: numbers(6, 7), missed: 3 }, 'decision');
  expect(shown(watch)).toEqual([7, 6, 2, 1]);
  expect(watch.missed).toBe(3);
});

test('a stream that was opened anew repeats nothing', () => {
  const watch = watching();
  say({ decisions: numbers(1, 60), missed: 0 }, 'decision');
  expect(watch.calm.rows).toHaveLength(50);
  say({ since_ms: 5, nodes: { a: 5 }, silent: [], failed: {} }, 'key');
  say({ decisions: numbers(12, 61), missed: 11 }, 'decision');
  expect([shown(watch)[0], watch.missed]).toEqual([61, 0]);
});

test('after ten minutes it ends, and where too many are watched it does not begin', async () => {
  const watch = watching();
  await vi.advanceTimersByTimeAsync(600_000);
  expect([watch.state, left]).toEqual(['ended', 1]);
  watch.start({ kind: 'user', value: 'ada' });
  say({ refused: 'too many' }, 'key');
  expect([watch.state, watch.failed, left]).toEqual(['off', ['too many'], 2]);
});

test('the answer is read again each round, but never while it is being read', () => {
  watching();
  vi.advanceTimersByTime(1_500);
  expect(answer.load).toHaveBeenCalledTimes(1);
  answer.since = Date.now();
  vi.advanceTimersByTime(6_000);
  expect(answer.load).toHaveBeenCalledTimes(1);
  answer.since = null;
  vi.advanceTimersByTime(1_500);
  expect(answer.load).toHaveBeenCalledTimes(2);
});

test('a watch that was lost begins anew under what is known, and says when nobody watched', () => {
  vi.setSystemTime(0);
  live.clockOffsetMs = 1_000;
  live.heardAt = 0;
  const watch = watching();
  say({ decisions: numbers(1, 4), missed: 0 }, 'decision');
  say({ decisions: numbers(7, 7), missed: 2 }, 'decision');
  live.heardAt = 3_000;
  vi.advanceTimersByTime(60_000);
  live.heardAt = 60_000;
  say({}, 'hello');
  vi.advanceTimersByTime(1_500);
  say({ since_ms: 62_000, nodes: { a: 62_000 }, silent: [], failed: {} }, 'key');
  expect(watch.since).toBe(62_000);
  expect(shown(watch)).toEqual([[4_000, 62_000], 7, 4, 3, 2, 1]);
  say({ decisions: numbers(1, 2), missed: 0 }, 'decision');
  expect(shown(watch)).toEqual([2, 1, [4_000, 62_000], 7, 4, 3, 2, 1]);
  expect(new Set(watch.calm.rows.map(({ key }) => key)).size).toBe(8);
  expect(watch.missed).toBe(2);
  watch.start({ kind: 'user', value: 'ada' });
  expect([shown(watch), watch.missed]).toEqual([[], 0]);
});
