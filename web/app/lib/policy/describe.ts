/** Limits in one line each, for lists. */
import type { Limit } from '../api/types.ts';
import { formatRate } from './rate.ts';

export function describeLimits(limits: Limit[]): string {
  return limits.map((limit) => formatRate(limit)).join(', ');
}

/** What all limits share, or null when they differ. */
export function shared(limits: Limit[], field: 'algorithm' | 'burst'): string | number | null {
  const values = new Set(limits.map((limit) => limit[field]));
  return values.size === 1 ? ([...values][0] ?? null) : null;
}

export function bursts(limits: Limit[]): string {
  const found = limits.flatMap(({ burst }) => (burst === undefined ? [] : [String(burst)]));
  return found.join(', ');
}
