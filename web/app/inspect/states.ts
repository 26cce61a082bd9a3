/** The limits of a request with what of them is used, node by node. */
import type { Explained, LimitState, NodeAnswers, PeekedLimit } from '../api/schema.ts';

export interface NodeState {
  /** One node, or several that say the same; empty: this server, by its own word. */
  nodes: string[];
  limit: number;
  remaining: number;
  resetAfterMs: number;
  /** When it would let the request pass; null: never. */
  retryAfterMs: number | null;
  /** The server's words. */
  says: string;
}

export interface State {
  about: LimitState | null;
  limitId: string;
  isShadow: boolean;
  /** At least one. */
  at: NodeState[];
}

/** In the order in which they are checked. Nodes that say the same stand together. */
export function statesOf(explained: Explained, peeked: NodeAnswers | null): State[] {
  const states = new Map<string, State>();
  for (const about of explained.limits) {
    const { limit_id, mode } = about;
    states.set(limit_id, { about, limitId: limit_id, isShadow: mode === 'shadow', at: [] });
  }
  for (const [node, told] of Object.entries(peeked?.answers ?? {})) {
    if (told.what !== 'peek') continue;
    for (const limit of told.limits) {
      const known = states.get(limit.limit_id);
      const state = known ?? { about: null, limitId: limit.limit_id, isShadow: limit.is_shadow, at: [] };
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
  const same = at.find(
    (one) =>
      one.limit === state.limit &&
      one.remaining === state.remaining &&
      Math.abs(one.resetAfterMs - state.resetAfterMs) < SAME_MS,
  );
  if (same) same.nodes.push(node);
  else at.push({ nodes: [node], ...state });
}

function stateOf(limit: PeekedLimit | LimitState): Omit<NodeState, 'nodes'> {
  const { remaining, reset_after_ms, retry_after_ms = null, says = '' } = limit;
  return { limit: limit.limit, remaining, resetAfterMs: reset_after_ms, retryAfterMs: retry_after_ms, says };
}

export function isUsed(state: State): boolean {
  return state.at.some(({ limit, remaining }) => remaining < limit);
}
