/** One edited object of the change list: where it started, what was typed, and what others did to it meanwhile. */
import type { Item, Kind, Objects } from '../../api/types.ts';
import { formText, sameForm, textAt } from '../../policy/fields.ts';
import { copyForm, emptyForm, formOf, RENAME, type Form } from '../../policy/form.ts';
import { merge, takeTheirs, type FieldConflict } from '../../policy/merge.ts';

/** How used quota carries over to a limit's new numbers; kept unless said. */
export type CarryOver = 'proportional' | 'reset';

export interface Entry {
  kind: Kind;
  domain: string;
  /** Of a client `KIND:VALUE`, of a domain its name. */
  id: string;
  op: 'create' | 'put' | 'delete';
  /** The policy version that `base` was read from. */
  version: number;
  /** Empty when it is to be created. */
  etag: string;
  /** The policy version that made `base` what it is. */
  revision: number;
  base: Form;
  form: Form;
  /** Fields that both sides changed, until someone decides. */
  clashes: FieldConflict[];
  /** Who changed the fields that were taken over, by path. */
  taken: Record<string, string>;
  /** The newest change by someone else. */
  theirs: { by: string; version: number } | null;
  /** Others deleted it. */
  deleted: boolean;
  /** What the server refused, by place in the form: `KEY/FIELD`, `limits`, or a field's name. */
  refused: Record<string, string>;
  /** By id of the limit. */
  carry: Record<string, CarryOver>;
  /** Typed as JSON and not yet right, and the form that it was typed on. */
  json?: { text: string; from: Form };
}

export type EntryKey = Pick<Entry, 'kind' | 'domain' | 'id'>;

/** An object as the server has it. */
export interface ServerObject {
  etag: string;
  revision: number;
  value: Objects[Kind];
}

const UNTOUCHED = { clashes: [], taken: {}, theirs: null, deleted: false, refused: {}, carry: {} };

export function entryOf(key: EntryKey, item: Item<Objects[Kind]>, version: number): Entry {
  const form = formOf(key.kind, item.value);
  const { kind, domain, id } = key;
  const { etag, revision } = item;
  return {
    ...{ kind, domain, id, op: 'put', version, etag, revision },
    ...structuredClone(UNTOUCHED),
    base: form,
    form: copyForm(form),
  };
}

/** An object that is to be new. */
export function newEntry(key: EntryKey, form: Form, version: number): Entry {
  const { kind, domain, id } = key;
  return {
    ...{ kind, domain, id, op: 'create', version, etag: '', revision: 0 },
    ...structuredClone(UNTOUCHED),
    base: emptyForm(kind),
    form,
  };
}

export function isChanged(entry: Entry): boolean {
  return entry.op === 'delete' || entry.json !== undefined || !sameForm(entry.base, entry.form);
}

/** What is still to be decided: a field that by now says the same on both sides is not. */
export function openClashes(entry: Entry): FieldConflict[] {
  if (entry.op === 'delete') return entry.clashes;
  return entry.clashes
    .map((clash) => ({ ...clash, yours: textAt(entry.form, clash.path) }))
    .filter((clash) => clash.yours !== clash.theirs);
}

/** Is there anything that a person has to decide before it can be published? */
export function isClashing(entry: Entry): boolean {
  return entry.deleted || openClashes(entry).length > 0;
}

/** Puts the edits of `entry` on top of what the server has now; an answer that came late is not that. */
export function rebase(entry: Entry, present: ServerObject | null, by: string, version: number): Entry {
  if (present === null) return withoutPresent(entry, by, version);
  if (present.revision < entry.revision) return entry;
  if (present.etag === entry.etag) return { ...entry, version: Math.max(version, entry.version) };
  const theirs = formOf(entry.kind, present.value);
  const { etag, revision } = present;
  const onTop = { ...entry, version, etag, revision, base: theirs, deleted: false, refused: {} };
  if (entry.op === 'delete') {
    const clash = { path: '', base: formText(entry.base), theirs: formText(theirs), yours: null };
    return { ...onTop, form: copyForm(theirs), clashes: [clash], theirs: { by, version } };
  }
  const merged = merge(entry.base, copyForm(theirs), entry.form);
  const touched = merged.taken.length > 0 || merged.clashes.length > 0;
  const taken = { ...entry.taken };
  for (const path of merged.taken) taken[path] = by;
  return {
    ...onTop,
    // Somebody else was first to create it.
    op: 'put',
    form: merged.form,
    clashes: joined(entry.clashes, merged.clashes, theirs),
    taken,
    theirs: touched ? { by, version } : entry.theirs,
  };
}

/** It is not there: as it should be, or because others deleted it. */
function withoutPresent(entry: Entry, by: string, version: number): Entry {
  if (entry.op === 'create') return { ...entry, version: Math.max(version, entry.version) };
  // What both deleted is nothing to publish.
  if (entry.op === 'delete') return { ...entry, op: 'put', form: copyForm(entry.base), clashes: [] };
  return { ...entry, deleted: true, theirs: { by, version } };
}

/** What others deleted is created anew as it was edited. */
export function anew(entry: Entry): Entry {
  const form = copyForm(entry.form);
  Reflect.deleteProperty(form.fields, RENAME);
  return { ...newEntry(entry, form, entry.version), carry: entry.carry };
}

/** Clashes of before, as far as they are still open, with the ones of now; each keeps its first base. */
function joined(before: FieldConflict[], now: FieldConflict[], theirs: Form): FieldConflict[] {
  const older = before
    .filter((old) => !now.some(({ path }) => path === old.path))
    .map((old) => ({ ...old, theirs: textAt(theirs, old.path) }));
  const newer = now.map((fresh) => ({
    ...fresh,
    base: (before.find(({ path }) => path === fresh.path) ?? fresh).base,
  }));
  return [...older, ...newer];
}

/** Decides one clash. */
export function decide(entry: Entry, path: string, side: 'theirs' | 'yours'): Entry {
  const clashes = entry.clashes.filter((clash) => clash.path !== path);
  if (side === 'yours') return { ...entry, clashes };
  // Of a deletion theirs is that the object stays.
  return { ...entry, op: 'put', form: takeTheirs(entry.form, entry.base, path), clashes };
}

/**
 * The entry after what was `sent` came into force: what was typed since is a change of its own. When something newer
 * was heard of meanwhile, that already stands on top of what was sent.
 */
export function settled(entry: Entry, sent: Form, etag: string, version: number): Entry {
  if (version < entry.revision) return entry;
  return {
    ...entry,
    ...structuredClone(UNTOUCHED),
    op: 'put',
    version,
    etag,
    revision: version,
    base: sent,
  };
}

/** As the server names the object in `if_match`. */
export function nameOf({ kind, domain, id }: EntryKey): string {
  return domain === 'default' || kind === 'domain' ? `${kind}:${id}` : `${domain}/${kind}:${id}`;
}

/** An entry that an older page may have kept: null when it is not one. */
export function parseEntry(text: string): Entry | null {
  try {
    const entry = JSON.parse(text) as Partial<Entry> | null;
    const isForm = (form: Partial<Form> | undefined) =>
      Array.isArray(form?.limits) && typeof form.fields === 'object';
    const whole =
      typeof entry?.kind === 'string' &&
      typeof entry.op === 'string' &&
      typeof entry.id === 'string' &&
      typeof entry.domain === 'string' &&
      typeof entry.version === 'number' &&
      typeof entry.etag === 'string' &&
      typeof entry.carry === 'object' &&
      isForm(entry.base) &&
      isForm(entry.form) &&
      Array.isArray(entry.clashes);
    return whole ? (entry as Entry) : null;
  } catch {
    return null;
  }
}

/** Where in the form a pointer into the object points. */
export function placeAt(form: Form, pointer: string): string | null {
  const inLimits = /^(?:\/override)?\/limits(?:\/(\d+)(?:\/(\w+))?)?/.exec(pointer);
  if (!inLimits) {
    const field = /^\/([^/]+)(?:\/([a-z][^/]*))?/.exec(pointer);
    if (!field || field[1] === 'id') return null;
    return field[2] === undefined ? (field[1] ?? null) : `${field[1]}.${field[2]}`;
  }
  const [, at, name] = inLimits;
  const row = at === undefined ? undefined : form.limits[Number(at)];
  if (!row) return 'limits';
  const shown = ['id', 'algorithm', 'burst', 'max_debt', 'mode', 'sharing', 'on_failure'];
  return `${row.key}/${name !== undefined && shown.includes(name) ? name : 'rate'}`;
}
