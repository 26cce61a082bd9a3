/** A shared change list becomes one's own, on top of what is in force by now. */
import { getObject } from '../../api/calls.ts';
import { getVersion } from '../../api/calls/history.ts';
import { RefusedError } from '../../api/request.ts';
import type { Policy } from '../../api/schema.ts';
import type { ChangeList, Domain, DraftWithList, Kind, Objects } from '../../api/types.ts';
import { formOf, isObject, RENAME } from '../../policy/form.ts';
import { limitName } from '../../policy/limitname.ts';
import { changes } from './changes.svelte.ts';
import { entryOf, nameOf, newEntry, rebase, type CarryOver, type Entry, type EntryKey } from './entry.ts';

type Change = ChangeList['changes'][number];
type Base = Parameters<typeof entryOf>[1];

export function keyOf({ kind, domain, id }: Change): EntryKey {
  return { kind, domain: kind === 'domain' ? id : (domain ?? 'default'), id };
}

/** All of its changes, each in place of one's own of the same object. */
export async function takeOver({ list, message }: Pick<DraftWithList, 'list' | 'message'>): Promise<void> {
  const entries = await Promise.all(list.changes.map((change) => entryFor(change, list)));
  for (const entry of entries) {
    const mine = changes.find(entry.kind, entry.domain, entry.id);
    if (mine) changes.drop(mine);
    changes.entries.push(entry);
  }
  if (changes.message === '') changes.message = message;
}

async function entryFor(change: Change, list: ChangeList): Promise<Entry> {
  const key = keyOf(change);
  const formOfValue = (value: unknown) => formOf(key.kind, value as Objects[Kind]);
  // Whether it is there by now, publishing will tell.
  if (change.op === 'create')
    return carried(newEntry(key, formOfValue(change.value), list.base_version), list);
  const present = await presentOf(key);
  const etag = list.if_match?.[nameOf(key)] ?? '';
  const base = present?.etag === etag ? present : await baseOf(key, etag, list.base_version);
  const entry = entryOf(key, base, list.base_version);
  if (change.op === 'delete') entry.op = 'delete';
  else entry.form = formOfValue(change.op === 'patch' ? patched(base.value, change.value) : change.value);
  if (change.rename) entry.form.fields[RENAME] = change.rename;
  const by = present?.changed_by ?? '';
  return rebase(carried(entry, list), present, by, present?.revision ?? list.base_version);
}

function carried(entry: Entry, list: ChangeList): Entry {
  for (const { id } of entry.form.limits) {
    const how = list.carry?.[limitName(entry.domain, entry.kind, entry.id, id)];
    if (how && how !== 'keep') entry.carry[id] = how satisfies CarryOver;
  }
  return entry;
}

async function presentOf({ kind, domain, id }: EntryKey): Promise<Base | null> {
  try {
    return await getObject(kind, domain, id);
  } catch (error) {
    if (error instanceof RefusedError && error.problem.status === 404) return null;
    throw error;
  }
}

/** As it was in the version that the list was made on. */
async function baseOf(key: EntryKey, etag: string, version: number): Promise<Base> {
  const { document } = await getVersion(version, new AbortController().signal);
  const value = (valueIn(document, key) ?? {}) as Objects[Kind];
  return { id: key.id, etag, revision: 0, changed_by: '', changed_at: '', value };
}

/** An object of a whole policy; undefined where it is not in it. */
export function valueIn(document: Policy, { kind, domain, id }: EntryKey): Objects[Kind] | undefined {
  const whole = document.domains[domain];
  if (!whole) return undefined;
  const { tiers = [], rules = [], clients = [], ...settings } = whole;
  const found = {
    tier: () => tiers.find((tier) => tier.id === id),
    rule: () => rules.find((rule) => rule.id === id),
    client: () => clients.find((client) => `${client.kind}:${client.value}` === id),
    domain: () => settings as Domain,
  };
  return found[kind]() as Objects[Kind] | undefined;
}

/** A JSON merge patch. */
function patched(value: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const merged: Record<string, unknown> = isObject(value) ? { ...value } : {};
  for (const [name, change] of Object.entries(patch)) {
    if (change === null) Reflect.deleteProperty(merged, name);
    else merged[name] = patched(merged[name], change);
  }
  return merged;
}
