/** Sorts tiers by a column of their list. */
import type { TierItem } from '../../lib/api/types.ts';
import { shared } from '../../lib/policy/describe.ts';
import { ratio } from '../../lib/policy/rate.ts';
import type { OwnerRates } from '../../lib/state/live/ownerrates.svelte.ts';

type Figures = ReturnType<OwnerRates['of']>;
type By = (one: TierItem, other: TierItem, figuresOf: (item: TierItem) => Figures) => number;

const names = new Intl.Collator();
const COLUMNS: Record<string, By> = {
  name: (one, other) => names.compare(one.id, other.id),
  algorithm: (one, other) => names.compare(algorithm(one), algorithm(other)),
  limits: (one, other) => quota(one) - quota(other),
  burst: (one, other) => burst(one) - burst(other),
  now: (one, other, figuresOf) => rate(figuresOf(one)) - rate(figuresOf(other)),
  denied: (one, other, figuresOf) => deniedShare(figuresOf(one)) - deniedShare(figuresOf(other)),
  default: (one, other) => names.compare(one.default_of.join(), other.default_of.join()),
  used: (one, other) => one.clients - other.clients || one.rules.length - other.rules.length,
  changed: (one, other) => one.revision - other.revision,
};

/** In the policy's order unless it is said; `-name` the other way. */
export function ordered(
  items: TierItem[],
  by: string,
  figuresOf: (item: TierItem) => Figures = () => undefined,
): TierItem[] {
  const compare = COLUMNS[by.replace(/^-/, '')];
  if (!compare) return items;
  const sign = by.startsWith('-') ? -1 : 1;
  return items.toSorted((one, other) => sign * compare(one, other, figuresOf));
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

function algorithm({ value }: TierItem): string {
  return String(shared(value.limits ?? [], 'algorithm') ?? '');
}

/** A second. */
function rate(figures: Figures): number {
  return figures ? figures.allowed_rate + figures.denied_rate : 0;
}

function deniedShare(figures: Figures): number {
  return figures ? figures.denied_rate / (rate(figures) || 1) : 0;
}
