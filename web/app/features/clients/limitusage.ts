/** The used share of a client's limits, by the answers of the nodes. */
import type { Peeked, PeekedLimit } from '../../lib/api/calls/clients.ts';

export interface LimitUsage {
  limitId: string;
  used: number;
  limit: number;
  /** From 0 to 1. */
  share: number;
  /** Milliseconds until all of it is free again. */
  resetMs: number;
}

/** Of one limit, on the node where it is nearest to denying. */
export function nearest(peeked: Peeked, limitId: string): LimitUsage | null {
  return most(limitsOf(peeked).filter((limit) => limit.limit_id === limitId));
}

function limitsOf(peeked: Peeked): PeekedLimit[] {
  return Object.values(peeked.answers).flatMap((told) => (told.what === 'peek' ? told.limits : []));
}

function most(limits: PeekedLimit[]): LimitUsage | null {
  const all = limits.map(usedOf);
  return all.reduce<LimitUsage | null>((most, one) => (most && most.share >= one.share ? most : one), null);
}

function usedOf({ limit_id, limit, remaining, reset_after_ms }: PeekedLimit): LimitUsage {
  const used = Math.max(0, limit - remaining);
  return { limitId: limit_id, used, limit, share: limit === 0 ? 1 : used / limit, resetMs: reset_after_ms };
}
