/** Publishing the change list: one call, and again on top of what others published where nothing clashes. */
import { publish } from '../api/calls.ts';
import { Refused, Unreachable } from '../api/request.ts';
import type { ChangeList, Conflict, Problem, Published, Tier } from '../api/types.ts';
import { copyForm, tierOf, type Grammar, type TierForm } from '../policy/form.ts';
import { changes } from './changes.svelte.ts';
import { nameOf, openClashes, placeAt, rebase, settled, type Entry, type PresentTier } from './entry.ts';
import { randomId } from './randomid.ts';

export type Outcome =
  /** `merged` are those that were put together with what others published meanwhile. */
  | { what: 'published'; answer: Published; merged: Entry[] }
  | { what: 'clash' }
  | { what: 'nothing' }
  /** Putting both together left fields that need a look. */
  | { what: 'unready' }
  /** Others were faster each time. */
  | { what: 'outrun' }
  | { what: 'refused'; problem: Problem }
  | { what: 'unreachable' }
  | { what: 'failed' };

/** How often others may be faster before the person is told. */
const ATTEMPTS = 5;

/** A key is used again only for the same list whose answer was lost. */
let attempt = { body: '', key: '' };

export async function publishAll(message: string, grammar: Grammar): Promise<Outcome> {
  const merged = new Set<Entry>();
  for (let tries = 0; tries < ATTEMPTS; tries += 1) {
    const entries = changes.changed;
    if (entries.length === 0) return { what: 'nothing' };
    if (entries.some((entry) => entry.deleted || openClashes(entry).length > 0)) return { what: 'clash' };
    const list = listOf(entries, message, grammar);
    if (list === null) return { what: 'unready' };
    const sent = entries.map((entry) => copyForm(entry.form));
    try {
      const answer = await publish(list, keyFor(list));
      attempt = { body: '', key: '' };
      entries.forEach((entry, at) => settle(entry, sent[at] ?? entry.form, answer));
      return { what: 'published', answer, merged: [...merged] };
    } catch (error) {
      if (error instanceof Unreachable) return { what: 'unreachable' };
      if (!(error instanceof Refused)) throw error;
      if (error.problem.status < 500) attempt = { body: '', key: '' };
      if (error.problem.status !== 412 || !error.problem.conflicts?.length) {
        return refuse(entries, error.problem);
      }
      for (const conflict of error.problem.conflicts) {
        const entry = entries.find((one) => one.domain === conflict.domain && one.id === conflict.id);
        if (!entry) continue;
        const version = conflict.version ?? entry.version;
        changes.set(entry, rebase(entry, presentOf(conflict, version), conflict.changed_by ?? '', version));
        merged.add(entry);
      }
    }
  }
  return { what: 'outrun' };
}

function presentOf(conflict: Conflict, version: number): PresentTier | null {
  if (!conflict.present) return null;
  const { etag, value } = conflict.present;
  return { etag, value: value as Tier, revision: version };
}

/** Null when an entry has faults. */
function listOf(entries: Entry[], message: string, grammar: Grammar): ChangeList | null {
  const list: ChangeList = {
    base_version: Math.min(...entries.map((entry) => entry.version)),
    message,
    changes: [],
    if_match: {},
  };
  for (const entry of entries) {
    const value = tierOf(entry.id, entry.form, grammar);
    if (value === null) return null;
    list.changes.push({ op: 'put', kind: entry.kind, domain: entry.domain, id: entry.id, value });
    list.if_match[nameOf(entry)] = entry.etag;
  }
  return list;
}

function keyFor(list: ChangeList): string {
  const body = JSON.stringify(list);
  if (attempt.body !== body) attempt = { body, key: randomId() };
  return attempt.key;
}

function settle(entry: Entry, sent: TierForm, answer: Published): void {
  const touched = answer.changes.find((one) => one.domain === entry.domain && one.id === entry.id);
  changes.set(entry, settled(entry, sent, touched?.etag ?? entry.etag, answer.version));
}

/** Puts the server's words at the fields that they are about. */
function refuse(entries: Entry[], problem: Problem): Outcome {
  for (const fault of problem.errors ?? []) {
    const match = /^\/changes\/(\d+)\/value(\/.*)?$/.exec(fault.pointer ?? '');
    const entry = match ? entries[Number(match[1])] : undefined;
    const place = entry ? placeAt(entry.form, match?.[2] ?? '') : null;
    if (entry && place !== null) entry.refused[place] = fault.message;
  }
  return { what: 'refused', problem };
}
