/** One edited object of the change list: where it started, what was typed, and what others did to it meanwhile. */
import type { TierItem } from '../api/types.ts';
import { sameForm, textAt } from '../policy/fields.ts';
import { copyForm, formOf, type TierForm } from '../policy/form.ts';
import { merge, takeTheirs, type Clash } from '../policy/merge.ts';

export interface Entry {
  kind: 'tier';
  domain: string;
  id: string;
  /** The policy version that `base` was read from. */
  version: number;
  etag: string;
  /** The policy version that made `base` what it is. */
  revision: number;
  base: TierForm;
  form: TierForm;
  /** Fields that both sides changed, until someone decides. */
  clashes: Clash[];
  /** Who changed the fields that were taken over, by path. */
  taken: Record<string, string>;
  /** The newest change by someone else. */
  theirs: { by: string; version: number } | null;
  deleted: boolean;
  /** What the server refused, by place in the form: `KEY/FIELD`, or `limits`. */
  refused: Record<string, string>;
}

/** A tier as the server has it. */
export type PresentTier = Pick<TierItem, 'etag' | 'value' | 'revision'>;

export function entryOf(domain: string, item: TierItem, version: number): Entry {
  return {
    kind: 'tier',
    domain,
    id: item.value.id,
    version,
    etag: item.etag,
    revision: item.revision,
    base: formOf(item.value),
    form: formOf(item.value),
    clashes: [],
    taken: {},
    theirs: null,
    deleted: false,
    refused: {},
  };
}

export function isChanged(entry: Entry): boolean {
  return !sameForm(entry.base, entry.form);
}

/** What is still to be decided: a field that by now says the same on both sides is not. */
export function openClashes(entry: Entry): Clash[] {
  return entry.clashes
    .map((clash) => ({ ...clash, yours: textAt(entry.form, clash.path) }))
    .filter((clash) => clash.yours !== clash.theirs);
}

/** Puts the edits of `entry` on top of what the server has now; an answer that came late is not that. */
export function rebase(entry: Entry, present: PresentTier | null, by: string, version: number): Entry {
  if (present === null) return { ...entry, deleted: true, theirs: { by, version } };
  if (present.revision < entry.revision) return entry;
  if (present.etag === entry.etag) return { ...entry, version: Math.max(version, entry.version) };
  const theirs = formOf(present.value);
  const merged = merge(entry.base, copyForm(theirs), entry.form);
  const touched = merged.taken.length > 0 || merged.clashes.length > 0;
  const taken = { ...entry.taken };
  for (const path of merged.taken) taken[path] = by;
  return {
    ...entry,
    version,
    etag: present.etag,
    revision: present.revision,
    base: theirs,
    form: merged.form,
    clashes: joined(entry.clashes, merged.clashes, theirs),
    taken,
    theirs: touched ? { by, version } : entry.theirs,
    deleted: false,
    refused: {},
  };
}

/** Clashes of before, as far as they are still open, with the ones of now; each keeps its first base. */
function joined(before: Clash[], now: Clash[], theirs: TierForm): Clash[] {
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
  const form = side === 'theirs' ? takeTheirs(entry.form, entry.base, path) : entry.form;
  return { ...entry, form, clashes: entry.clashes.filter((clash) => clash.path !== path) };
}

/**
 * The entry after what was `sent` came into force: what was typed since is a change of its own. When something newer
 * was heard of meanwhile, that already stands on top of what was sent.
 */
export function settled(entry: Entry, sent: TierForm, etag: string, version: number): Entry {
  if (version < entry.revision) return entry;
  return {
    ...entry,
    version,
    etag,
    revision: version,
    base: sent,
    clashes: [],
    taken: {},
    theirs: null,
    deleted: false,
    refused: {},
  };
}

export function nameOf(entry: Pick<Entry, 'kind' | 'domain' | 'id'>): string {
  const name = `${entry.kind}:${entry.id}`;
  return entry.domain === 'default' ? name : `${entry.domain}/${name}`;
}

/** An entry that an older page may have kept: null when it is not one. */
export function parseEntry(text: string): Entry | null {
  try {
    const entry = JSON.parse(text) as Partial<Entry> | null;
    const whole =
      entry?.kind === 'tier' &&
      typeof entry.id === 'string' &&
      typeof entry.domain === 'string' &&
      typeof entry.version === 'number' &&
      typeof entry.etag === 'string' &&
      Array.isArray(entry.base?.limits) &&
      Array.isArray(entry.form?.limits) &&
      Array.isArray(entry.clashes);
    return whole ? { ...(entry as Entry), revision: entry?.revision ?? 0 } : null;
  } catch {
    return null;
  }
}

/** Where in the form a pointer into a tier points. */
export function placeAt(form: TierForm, pointer: string): string | null {
  const match = /^\/limits(?:\/(\d+)(?:\/(\w+))?)?$/.exec(pointer);
  if (!match) return null;
  const [, at, name] = match;
  const row = at === undefined ? undefined : form.limits[Number(at)];
  if (!row) return 'limits';
  const field = name === 'limit' || name === 'period' ? 'rate' : name;
  return field === 'id' || field === 'algorithm' || field === 'rate' || field === 'burst'
    ? `${row.key}/${field}`
    : `${row.key}/rate`;
}
