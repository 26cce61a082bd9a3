/** Does a change let much more through? Then the publish panel asks once more, in a plain sentence. */
import type { Entry } from '../changes/entry.ts';
import { rowOf } from './fields.ts';
import { isUnlimited, type Form, type LimitRow } from './form.ts';
import { isRate, parseNumber, parseRate, ratio, type Rate } from './rate.ts';

const MUCH_MORE = 10;

export type Loosening =
  /** `off`: a rule; `doors`: answers of a domain when nothing can be decided. */
  | { what: 'unlimited' | 'off' | 'doors' }
  /** Also when it was given another name: the old one no longer holds. */
  | { what: 'removed' | 'shadow' | 'open'; limit: string }
  | { what: 'raised' | 'burst'; limit: string; times: number }
  | { what: 'unknown'; limit: string; from: string; to: string };

export function looseningsOf({ kind, op, base, form }: Entry): Loosening[] {
  const was = (name: string, value: unknown) => base.fields[name] === value;
  const is = (name: string, value: unknown) => form.fields[name] === value;
  if (kind === 'rule') {
    if (!was('enabled', true) || base.limits.length === 0) return [];
    if (op === 'delete' || is('enabled', false)) return [{ what: 'off' }];
  }
  // Nobody is in a tier that can be deleted, and of a client its tier holds again.
  if (op === 'delete') return [];
  if (kind === 'domain')
    return was('on_error', 'closed') && !is('on_error', 'closed') ? [{ what: 'doors' }] : [];
  const found = loosenings(base, form);
  return kind === 'client' ? found.filter(({ what }) => what !== 'removed') : found;
}

export function loosenings(from: Form, to: Form): Loosening[] {
  if (isFree(to)) return isFree(from) ? [] : [{ what: 'unlimited' }];
  if (isUnlimited(from) || isUnlimited(to)) return [];
  return from.limits.flatMap((before): Loosening[] => {
    const limit = before.id.trim();
    const after = rowOf(to, limit);
    return after ? loosened(limit, before, after) : [{ what: 'removed', limit }];
  });
}

/** Neither limited nor blocked. */
function isFree({ fields }: Form): boolean {
  return fields['unlimited'] === true || fields['override.unlimited'] === true;
}

function loosened(limit: string, before: LimitRow, after: LimitRow): Loosening[] {
  const becomes = (name: string, value: string) =>
    before.fields[name] !== value && after.fields[name] === value;
  const found = numbersLoosened(limit, before, after);
  if (becomes('mode', 'shadow')) found.push({ what: 'shadow', limit });
  if (becomes('on_failure', 'open')) found.push({ what: 'open', limit });
  return found;
}

function numbersLoosened(limit: string, before: LimitRow, after: LimitRow): Loosening[] {
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
