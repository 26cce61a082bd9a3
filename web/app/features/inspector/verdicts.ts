/** What a request would be told, node by node: each decides by what it has counted. */
import type { Explained, NodeAnswers } from '../../lib/api/schema.ts';

export interface VerdictOfNodes {
  /** Those that say the same; empty: this server, by its own word. */
  nodes: string[];
  allowed: boolean;
  /** The limit that denies it. */
  limitId: string | null;
  /** When all of them would let it pass, from when they were asked; null: never. */
  retryAfterMs: number | null;
  /** The limit that would have the least left. */
  tightest: { limitId: string; left: number } | null;
}

interface Left {
  limit_id: string;
  remaining_after?: number;
}

export function verdictsOf(explained: Explained, peeked: NodeAnswers | null): VerdictOfNodes[] {
  const { allowed, limit_id, allowed_after_ms } = explained.decision;
  const found: VerdictOfNodes[] = [];
  for (const [node, told] of Object.entries(peeked?.answers ?? {})) {
    if (told.what !== 'peek') continue;
    const limitId = told.limit_id ?? null;
    // That a block ends is known by the policy alone.
    const ends = limitId !== null && limitId === limit_id ? allowed_after_ms : null;
    const one: VerdictOfNodes = {
      nodes: [node],
      allowed: told.allowed,
      limitId,
      retryAfterMs: told.retry_after_ms ?? ends,
      tightest: tightestOf(told.limits.filter((limit) => !limit.is_shadow)),
    };
    const same = found.find((other) => other.allowed === one.allowed && other.limitId === one.limitId);
    if (same) join(same, one);
    else found.push(one);
  }
  if (found.length > 0) return found;
  const tightest = tightestOf(explained.limits.filter(({ mode }) => mode === 'enforce'));
  return [{ nodes: [], allowed, limitId: limit_id, retryAfterMs: allowed_after_ms, tightest }];
}

function tightestOf(limits: Left[]): VerdictOfNodes['tightest'] {
  const each = limits.map(({ limit_id, remaining_after }) => ({
    limitId: limit_id,
    left: remaining_after ?? 0,
  }));
  return each.reduce<VerdictOfNodes['tightest']>(
    (least, one) => (least && least.left <= one.left ? least : one),
    null,
  );
}

function join(to: VerdictOfNodes, other: VerdictOfNodes): void {
  to.nodes.push(...other.nodes);
  const waits = [to.retryAfterMs, other.retryAfterMs];
  to.retryAfterMs = waits.includes(null) ? null : Math.max(...waits.map((wait) => wait ?? 0));
  if (to.tightest && other.tightest && other.tightest.left < to.tightest.left) to.tightest = other.tightest;
}
