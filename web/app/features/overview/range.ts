/** Which stretch of time the Overview shows, and of what: from its address. */

export const RANGES = [
  { id: '5m', lastS: 300, step: '1s' },
  { id: '15m', lastS: 900, step: '1s' },
  { id: '1h', lastS: 3_600, step: '1m' },
  { id: '6h', lastS: 21_600, step: '1m' },
  { id: '24h', lastS: 86_400, step: '1m' },
] as const;

export type Range = (typeof RANGES)[number];

export interface View {
  range: Range;
  /** Unix milliseconds; null: now, and on. */
  to: number | null;
  owner: Owner | null;
}

export interface Owner {
  kind: 'tier' | 'rule';
  id: string;
}

export function viewOf(query: URLSearchParams): View {
  const asked = RANGES.find(({ id }) => id === query.get('range')) ?? RANGES[1];
  const to = Number(query.get('to') ?? 0);
  const [tier, rule] = [query.get('tier'), query.get('rule')];
  return {
    range: asked,
    to: Number.isSafeInteger(to) && to > 0 ? to : null,
    owner: tier ? { kind: 'tier', id: tier } : rule ? { kind: 'rule', id: rule } : null,
  };
}

/** What is so close to now, in shares of the range, is now. */
const NOW_SHARE = 0.1;

/** Half a range earlier (-1) or later (1); null is now. Further than now there is nothing. */
export function shifted({ range, to }: View, by: -1 | 1, nowMs: number): number | null {
  const lastMs = range.lastS * 1_000;
  const moved = (to ?? nowMs) + (by * lastMs) / 2;
  return moved >= nowMs - lastMs * NOW_SHARE ? null : Math.round(moved);
}

/** Seconds are known of the last quarter of an hour alone. */
export function stepOf({ range, to }: View, nowMs: number): '1s' | '1m' {
  const oldest = (to ?? nowMs) - range.lastS * 1_000;
  return range.step === '1s' && nowMs - oldest <= 900_500 ? '1s' : '1m';
}

export const STEP_S = { '1s': 1, '1m': 60, '1h': 3_600 };
