/** Does a change let much more through? Then the publish panel asks once more, in a plain sentence. */
import { rowOf } from './fields.ts';
import type { TierForm } from './form.ts';
import { isRate, parseRate, ratio } from './rate.ts';

const MUCH_MORE = 10;

export type Loosening =
  { what: 'unlimited' } | { what: 'raised'; limit: string; from: string; to: string; times: number };

export function loosenings(from: TierForm, to: TierForm): Loosening[] {
  if (to.unlimited) return from.unlimited ? [] : [{ what: 'unlimited' }];
  if (from.unlimited) return [];
  return to.limits.flatMap((row): Loosening[] => {
    const before = rowOf(from, row.id.trim());
    if (!before) return [];
    const [was, is] = [before.rate, row.rate].map((text) => parseRate(text, Number.MAX_SAFE_INTEGER));
    if (!was || !is || !isRate(was) || !isRate(is)) return [];
    const times = ratio(was, is);
    if (times === null || times < MUCH_MORE) return [];
    return [{ what: 'raised', limit: row.id.trim(), from: before.rate, to: row.rate, times }];
  });
}
