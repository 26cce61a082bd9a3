/** Does a change let much more through? Then the publish panel asks once more, in a plain sentence. */
import { rowOf } from './fields.ts';
import type { LimitRow, TierForm } from './form.ts';
import { isRate, parseNumber, parseRate, ratio, type Rate } from './rate.ts';

const MUCH_MORE = 10;

export type Loosening =
  | { what: 'unlimited' }
  /** Also when it was given another name: the old one no longer holds. */
  | { what: 'removed'; limit: string }
  | { what: 'raised' | 'burst'; limit: string; times: number }
  | { what: 'unknown'; limit: string; from: string; to: string };

export function loosenings(from: TierForm, to: TierForm): Loosening[] {
  if (to.unlimited) return from.unlimited ? [] : [{ what: 'unlimited' }];
  if (from.unlimited) return [];
  return from.limits.flatMap((before): Loosening[] => {
    const limit = before.id.trim();
    const after = rowOf(to, limit);
    return after ? loosened(limit, before, after) : [{ what: 'removed', limit }];
  });
}

function loosened(limit: string, before: LimitRow, after: LimitRow): Loosening[] {
  if (before.rate.trim() === after.rate.trim() && before.burst.trim() === after.burst.trim()) return [];
  const [was, is] = [before, after].map((row) => parseRate(row.rate, Number.MAX_SAFE_INTEGER, row.algorithm));
  // What is not yet a rate cannot be published.
  if (!is || !isRate(is)) return [];
  const times = was && isRate(was) ? ratio(was, is) : null;
  if (!was || !isRate(was) || times === null) {
    return [{ what: 'unknown', limit, from: before.rate, to: after.rate }];
  }
  if (times >= MUCH_MORE) return [{ what: 'raised', limit, times }];
  if (before.burst.trim() === after.burst.trim()) return [];
  const larger = burstOf(after, is) / burstOf(before, was);
  return larger >= MUCH_MORE ? [{ what: 'burst', limit, times: larger }] : [];
}

/** No burst means the limit itself. */
function burstOf(row: LimitRow, rate: Rate): number {
  const burst = parseNumber(row.burst, Number.MAX_SAFE_INTEGER);
  return typeof burst === 'number' ? burst : rate.limit;
}
