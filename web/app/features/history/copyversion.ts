/** Builds the change list that turns the present policy into an older version. */
import { getObject } from '../../lib/api/calls.ts';
import { hasStatus } from '../../lib/api/faults.ts';
import type { ChangeList, Difference, Kind, Policy } from '../../lib/api/schema.ts';
import { valueIn } from '../../lib/state/changes/drafts.ts';
import { nameOf, type EntryKey } from '../../lib/state/changes/entry.ts';

/** So many objects are looked at one by one. */
export const MANY = 100;

/** The objects that differ, each once. */
export function keysOf(differences: Difference[]): EntryKey[] {
  const keys = new Map<string, EntryKey>();
  for (const { kind, domain, id } of differences) {
    const key = { kind: kind as Kind, domain, id };
    keys.set(nameOf(key), key);
  }
  return [...keys.values()];
}

/** `now` is the version that the differences were told from; what is not in it by now, publishing will tell. */
export async function listFor(document: Policy, keys: EntryKey[], now: number): Promise<ChangeList> {
  const list: ChangeList = { base_version: now, message: '', changes: [], if_match: {} };
  const present = await Promise.all(keys.map(({ kind, domain, id }) => etagOf(kind, domain, id)));
  keys.forEach((key, at) => {
    const etag = present[at] ?? null;
    const value = valueIn(document, key);
    const { kind, domain, id } = key;
    if (etag === null && value) list.changes.push({ op: 'create', kind, domain, id, value });
    if (etag === null) return;
    list.if_match = { ...list.if_match, [nameOf(key)]: etag };
    list.changes.push(value ? { op: 'put', kind, domain, id, value } : { op: 'delete', kind, domain, id });
  });
  return list;
}

async function etagOf(kind: Kind, domain: string, id: string): Promise<string | null> {
  try {
    return (await getObject(kind, domain, id)).etag;
  } catch (error) {
    if (hasStatus(error, 404)) return null;
    throw error;
  }
}
