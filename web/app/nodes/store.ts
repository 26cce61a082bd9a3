/** The store that a node shares limits through, in words. */
import type { NodeRow, StoreReport } from '../api/schema.ts';
import { count, perSecond } from '../format.ts';
import { nodes as t } from '../text/nodes.ts';

/** In a few words; empty: it has none. */
export function storeWords(node: NodeRow): string {
  const { store } = node;
  const alone = node.degraded_per_second > 0 ? [t.alone(perSecond(node.degraded_per_second))] : [];
  if (!store) return alone.join();
  const words = [store.is_away ? t.storeAway : storeAnswers(store), ...alone];
  if (store.leased_out > 0) words.push(t.leased(count(store.leased_out)));
  if (store.sync_lag_ms > 0) words.push(t.told(count(store.sync_lag_ms)));
  return words.join(', ');
}

export function storeAnswers({ latency_us: took }: StoreReport): string {
  return took === null || took === undefined ? t.storeIdle : t.storeAnswers(t.micro(count(took)));
}

/** What it came to since the start of its process. */
export function storeTitle(store: StoreReport): string {
  const { failed, overshoot_max: over, untold_max: bound } = store;
  const words = [t.storeFailed(count(failed))];
  if (bound > 0) words.push(t.over(count(over), count(bound)));
  return words.join('. ');
}
