/** What the server has against a change list, at the objects and fields of the list. */
import type { Problem } from '../../api/types.ts';
import { placeAt, type Entry } from './entry.ts';

export interface ListFault {
  message: string;
  /** Null: it is about none of them alone. */
  entry: Entry | null;
  /** In the form of the entry, as `refused` has it; null: the object as a whole. */
  place: string | null;
}

/** `entries` are those that the list was made of. */
export function listFaults(problem: Problem, entries: Entry[]): ListFault[] {
  return (problem.errors ?? []).map(({ pointer, message }) => {
    const match = /^\/changes\/(\d+)(?:\/value)?(\/.*)?$/.exec(pointer ?? '');
    const entry = (match && entries[Number(match[1])]) ?? null;
    return { message, entry, place: entry && placeAt(entry.form, match?.[2] ?? '') };
  });
}
