/** Tiers by a column of their list. */
import type { TierItem } from '../api/types.ts';
import { ratio } from '../policy/rate.ts';

type By = (one: TierItem, other: TierItem) => number;

const names = new Intl.Collator();
const COLUMNS: Record<string, By> = {
  name: (one, other) => names.compare(one.id, other.id),
  limits: (one, other) => quota(one) - quota(other),
  burst: (one, other) => burst(one) - burst(other),
  used: (one, other) => one.clients - other.clients || one.rules.length - other.rules.length,
  changed: (one, other) => one.revision - other.revision,
};

/** In the policy's order unless it is said; `-name` the other way. */
export function ordered(items: TierItem[], by: string): TierItem[] {
  const compare = COLUMNS[by.replace(/^-/, '')];
  if (!compare) return items;
  const sign = by.startsWith('-') ? -1 : 1;
  return items.toSorted((one, other) => sign * compare(one, other));
}

/** Of the first limit, for a day; what has none comes last. */
function quota({ value }: TierItem): number {
  const [first] = value.limits ?? [];
  return first ? (ratio({ limit: 1, period: '1d' }, first) ?? 0) : Infinity;
}

function burst({ value }: TierItem): number {
  const [first] = value.limits ?? [];
  return first ? (first.burst ?? first.limit) : Infinity;
}
