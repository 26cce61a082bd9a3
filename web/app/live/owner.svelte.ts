/** The live figures of a tier or rule, from those of its limits. */
import { limitName } from '../policy/limitname.ts';
import { live } from './live.svelte.ts';

export interface OwnerFigures {
  allowed: number;
  denied: number;
}

/**
 * What a tier or rule lets through and denies a second; null while nothing is known. A check that passes is counted
 * by each of the limits, one that is denied by the limit that denied it: so the most allowed, and all denied.
 */
export function ownerFigures(
  domain: string,
  kind: 'tier' | 'rule',
  id: string,
  limits: { id: string }[],
): OwnerFigures | null {
  const figures = limits.flatMap((limit) => live.limit(limitName(domain, kind, id, limit.id)) ?? []);
  if (figures.length === 0) return null;
  return {
    allowed: Math.max(...figures.map((limit) => limit.allowedRate)),
    denied: figures.reduce((sum, limit) => sum + limit.deniedRate, 0),
  };
}
