/** What one version would loosen that takes the place of another, as the publish panel says it of edits. */
import type { Policy } from '../api/schema.ts';
import type { Kind, Objects } from '../api/types.ts';
import { valueIn } from '../changes/drafts.ts';
import { entryOf, newEntry, type Entry, type EntryKey } from '../changes/entry.ts';
import { formOf } from '../policy/form.ts';
import { looseningsOf, type Loosening } from '../policy/loosening.ts';

export interface Loosened {
  entry: Entry;
  how: Loosening;
}

export function loosenedBetween(from: Policy, to: Policy, keys: EntryKey[]): Loosened[] {
  return keys
    .map((key) => entryBetween(key, valueIn(from, key), valueIn(to, key)))
    .flatMap((entry) => looseningsOf(entry).map((how) => ({ entry, how })));
}

function entryBetween(key: EntryKey, before?: Objects[Kind], after?: Objects[Kind]): Entry {
  const form = after && formOf(key.kind, after);
  if (!before) return newEntry(key, form ?? formOf(key.kind, {} as Objects[Kind]), 0);
  const item = { id: key.id, etag: '', revision: 0, changed_by: '', changed_at: '', value: before };
  const entry = entryOf(key, item, 0);
  return form ? { ...entry, form } : { ...entry, op: 'delete' };
}
