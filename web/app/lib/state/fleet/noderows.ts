/** The table rows of the nodes, and their update by events. */
import type { NodeRow } from '../../api/schema.ts';

export interface NodesEvent {
  items: NodeRow[];
  /** There are no others. */
  whole?: boolean;
  /** Names of those that are forgotten. */
  removed?: string[];
}

/** Stopped, or gone without a word: of such a one nothing is so now. */
export function isAway({ presence }: NodeRow): boolean {
  return presence === 'stopped' || presence === 'gone';
}

/** This server first, then by name, as the list of the API has them. */
export function mergeNodeRows(
  known: NodeRow[] | null,
  { items, whole, removed = [] }: NodesEvent,
): NodeRow[] {
  if (whole || known === null) return items;
  const rows = new Map(known.concat(items).map((row) => [row.node, row]));
  for (const name of removed) rows.delete(name);
  const key = ({ node, presence }: NodeRow) => (presence === 'here' ? '' : node);
  return [...rows.values()].sort((one, other) => (key(one) < key(other) ? -1 : 1));
}
