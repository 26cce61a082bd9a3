/** Publishing the change list: one call, and again on top of what others published where nothing clashes. */
import { publish } from '../../api/calls.ts';
import { randomId } from '../../api/randomid.ts';
import { RefusedError, UnreachableError } from '../../api/request.ts';
import type { ChangeList, Conflict, Problem, Published } from '../../api/types.ts';
import { copyForm, type Form, type Grammar } from '../../policy/form.ts';
import { changeListOf } from './changelist.ts';
import { changes } from './changes.svelte.ts';
import { isClashing, rebase, settled, type Entry, type EntryKey, type ServerObject } from './entry.ts';
import { listFaults, type ListFault } from './listfaults.ts';

export type Outcome =
  /** `merged` are those that were put together with what others published meanwhile. */
  | { what: 'published'; answer: Published; merged: EntryKey[] }
  | { what: 'clash' }
  | { what: 'nothing' }
  /** Putting both together left fields that need a look. */
  | { what: 'unready' }
  /** It would let much more through, and nobody said that this is meant. */
  | { what: 'unmeant' }
  /** Others were faster each time. */
  | { what: 'outrun' }
  | { what: 'refused'; problem: Problem; faults: ListFault[] }
  | { what: 'unreachable' }
  | { what: 'failed' };

/** How often others may be faster before the person is told. */
const ATTEMPTS = 5;

/** A key is used again only for the same list whose answer was lost. */
let attempt = { body: '', key: '' };

export async function publishAll(
  message: string,
  grammar: Grammar,
  isMeant: (list: ChangeList) => Promise<boolean>,
): Promise<Outcome> {
  const merged = new Set<Entry>();
  for (let tries = 0; tries < ATTEMPTS; tries += 1) {
    const entries = changes.changed;
    if (entries.length === 0) return { what: 'nothing' };
    if (entries.some(isClashing)) return { what: 'clash' };
    const list = changeListOf(entries, message, grammar);
    if (list === null) return { what: 'unready' };
    const sent = entries.map((entry) => copyForm(entry.form));
    try {
      if (!(await isMeant(list))) return { what: 'unmeant' };
      const answer = await publish(list, keyFor(list));
      attempt = { body: '', key: '' };
      entries.forEach((entry, at) => settle(entry, sent[at] ?? entry.form, answer));
      return { what: 'published', answer, merged: [...merged] };
    } catch (error) {
      if (error instanceof UnreachableError) return { what: 'unreachable' };
      if (!(error instanceof RefusedError)) throw error;
      if (error.problem.status < 500) attempt = { body: '', key: '' };
      if (error.problem.status !== 412 || !error.problem.conflicts?.length) {
        return refuse(entries, error.problem);
      }
      for (const conflict of error.problem.conflicts) {
        const entry = entries.find((one) => isOf(one, conflict));
        if (!entry) continue;
        const version = conflict.version ?? entry.version;
        changes.set(entry, rebase(entry, presentOf(conflict, version), conflict.changed_by ?? '', version));
        merged.add(entry);
      }
    }
  }
  return { what: 'outrun' };
}

function presentOf(conflict: Conflict, version: number): ServerObject | null {
  return conflict.present && { ...conflict.present, revision: version };
}

function isOf(key: EntryKey, one: Partial<Record<keyof EntryKey, string | null>>): boolean {
  return one.kind === key.kind && one.domain === key.domain && one.id === key.id;
}

function keyFor(list: ChangeList): string {
  const body = JSON.stringify(list);
  if (attempt.body !== body) attempt = { body, key: randomId() };
  return attempt.key;
}

function settle(entry: Entry, sent: Form, answer: Published): void {
  const touched = answer.changes?.find((one) => isOf(entry, one));
  if (entry.op === 'delete' || touched?.etag === null) changes.drop(entry);
  else changes.set(entry, settled(entry, sent, touched?.etag ?? entry.etag, answer.version));
}

/** Puts the server's words at the fields that they are about. */
function refuse(entries: Entry[], problem: Problem): Outcome {
  const faults = listFaults(problem, entries);
  for (const { entry, place, message } of faults) {
    if (entry && place !== null) entry.refused[place] = message;
  }
  return { what: 'refused', problem, faults };
}
