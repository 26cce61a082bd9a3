/** The change list of this browser, as an input of a simulation. */
import type { TriedList } from '../../lib/api/schema.ts';
import { changeListOf } from '../../lib/state/changes/changelist.ts';
import { changes } from '../../lib/state/changes/changes.svelte.ts';
import { session } from '../../lib/state/session.svelte.ts';

class OwnList {
  /** Null: there is none, or fields of it need a look. */
  list: TriedList | null = $derived.by(() => {
    const list =
      session.meta && changes.changed.length > 0 && changeListOf(changes.changed, '', session.meta);
    return list ? { changes: list.changes } : null;
  });
  text = $derived(JSON.stringify(this.list));
  /** The run that tried this list last, for the publish panel. */
  tried = $state.raw<{ text: string; run: string } | null>(null);
}

export const ownList = new OwnList();

/** Is a list that a run was asked with this one? The server leaves out what says nothing, and has an order of its own. */
export function isOwnList(asked: unknown[]): boolean {
  return JSON.stringify(plain(asked)) === JSON.stringify(plain(ownList.list?.changes ?? null));
}

function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.entries(value)
    .filter(([, one]) => one !== null)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, one]) => [name, plain(one)]);
}
