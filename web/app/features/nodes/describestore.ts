/** Describes the store that a node shares limits through. */
import type { NodeRow, Overshoot, StoreFault, StoreReport } from '../../lib/api/schema.ts';
import { count, perSecond } from '../../lib/format/format.ts';
import { nodes as t } from '../../lib/text/nodes.ts';

/** In a few words; empty: it has none. */
export function storeWords(node: NodeRow): string {
  const { store } = node;
  const alone = node.degraded_per_second > 0 ? [t.alone(perSecond(node.degraded_per_second))] : [];
  if (!store) return alone.join();
  const words = [storeTrouble(store) ?? storeAnswers(store), ...alone];
  if (store.leased_out > 0) words.push(t.leased(count(store.leased_out)));
  if (store.sync_lag_ms > 0) words.push(t.told(count(store.sync_lag_ms)));
  return words.join(', ');
}

/** Faults by which a store may lose keys, and refuses nothing. */
const RISKS: StoreFault[] = ['evicts', 'keys_lost'];

/** Faults by which a store does not answer. */
const SILENCES: StoreFault[] = ['unreachable', 'timeout', 'tls'];

/** What is the matter with a store, in a few words; null: nothing is. */
export function storeTrouble({ is_away: isAway, faults = [] }: StoreReport): string | null {
  const refusals = faults.filter(({ code }) => !RISKS.includes(code) && code !== 'unwatched');
  if (refusals.some(({ code }) => code === 'no_secret')) return t.storeWaits;
  if (refusals.some(({ code }) => !SILENCES.includes(code))) return t.storeRefuses;
  if (isAway || refusals.length > 0) return t.storeAway;
  return faults.some(({ code }) => RISKS.includes(code)) ? t.storeRisk : null;
}

export function storeAnswers({ latency_us: took }: StoreReport): string {
  return took === null || took === undefined ? t.storeIdle : t.storeAnswers(t.micro(count(took)));
}

/** What it came to since the start of its process. */
export function storeTitle(store: StoreReport): string {
  const { failed, faults = [], untold_max: spent } = store;
  const words = [
    ...faults.map(({ code, message }) => t.storeFault(message, code)),
    t.storeFailed(count(failed)),
  ];
  if (spent > 0) words.push(t.untold(count(spent)));
  return words.join('. ');
}

/** How far synced limits were above what they allow, beside by how far they can be, of all nodes of this store. */
export function overshootWords({ measured, bound, nodes }: Overshoot): string {
  if (bound === 0 && measured === 0) return t.overshoot.unused;
  return t.overshoot.words(count(measured), count(bound), nodes);
}
