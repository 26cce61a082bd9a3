/** The limits of a request with their use: for each node, and once for what nodes share. */
import type { Explained, LimitState, NodeAnswers, PeekedLimit, Sharing } from '../../lib/api/schema.ts';

export interface NodeState {
  /** One node, or several that say the same; empty: this server, by its own word. */
  nodes: string[];
  /** It is what the store has that nodes share it through. */
  isStored: boolean;
  limit: number;
  remaining: number;
  resetAfterMs: number;
  /** When it would let the request pass; null: never. */
  retryAfterMs: number | null;
  /** The server's words. */
  says: string;
}

export interface MergedLimitState {
  about: LimitState | null;
  limitId: string;
  isShadow: boolean;
  sharing: Sharing;
  /** At least one. */
  at: NodeState[];
}

/** In the order in which they are checked. Nodes that say the same stand together, and so do all that asked the store. */
export function mergeLimitStates(
  explained: Pick<Explained, 'limits'>,
  peeked: NodeAnswers | null,
): MergedLimitState[] {
  const states = new Map<string, MergedLimitState>();
  for (const about of explained.limits) {
    const { limit_id, mode, sharing } = about;
    states.set(limit_id, { about, limitId: limit_id, isShadow: mode === 'shadow', sharing, at: [] });
  }
  for (const [node, told] of Object.entries(peeked?.answers ?? {})) {
    if (told.what !== 'peek') continue;
    for (const limit of told.limits) {
      const known = states.get(limit.limit_id);
      const { limit_id: limitId, is_shadow: isShadow, sharing = 'local' } = limit;
      const state = known ?? { about: null, limitId, isShadow, sharing, at: [] };
      if (!known) states.set(limit.limit_id, state);
      enter(state.at, node, limit);
    }
  }
  for (const state of states.values()) {
    if (state.at.length > 0 || !state.about) continue;
    state.at = [{ nodes: [], ...stateOf(state.about) }];
  }
  return [...states.values()];
}

/** A second that passes between two answers is no difference. */
const SAME_MS = 1_000;

function enter(at: NodeState[], node: string, limit: PeekedLimit): void {
  const state = stateOf(limit);
  const stored = at.find((one) => one.isStored && state.isStored);
  if (stored) {
    // They asked one after the other; of what they saw the fullest is shown.
    const fuller = state.remaining * stored.limit < stored.remaining * state.limit;
    Object.assign(stored, fuller ? state : {}, { nodes: [...stored.nodes, node] });
    return;
  }
  const same = at.find(
    (one) =>
      one.isStored === state.isStored &&
      one.limit === state.limit &&
      one.remaining === state.remaining &&
      Math.abs(one.resetAfterMs - state.resetAfterMs) < SAME_MS,
  );
  if (same) same.nodes.push(node);
  else at.push({ nodes: [node], ...state });
}

function stateOf(limit: PeekedLimit | LimitState): Omit<NodeState, 'nodes'> {
  const { remaining, reset_after_ms, retry_after_ms = null, is_stored = false, says = '' } = limit;
  return {
    isStored: is_stored,
    limit: limit.limit,
    remaining,
    resetAfterMs: reset_after_ms,
    retryAfterMs: retry_after_ms,
    says,
  };
}

export function isUsed(state: MergedLimitState): boolean {
  return state.at.some(({ limit, remaining }) => remaining < limit);
}
