/** What a load of the dashboard needs to know before it shows anything: who is signed in, and what the server can do. */
import { getMeta, getSession } from './calls.ts';
import type { Meta, Session } from './types.ts';

export interface Known {
  who: Promise<Session>;
  meta: Promise<Meta>;
}

let first: Known | null = null;

function ask(): Known {
  const asked = { who: getSession(), meta: getMeta() };
  // Whoever waits for them learns of it; the second is answered only to whom the server knows.
  for (const one of Object.values(asked)) one.catch(() => undefined);
  return asked;
}

export function askAhead(): void {
  first = ask();
}

/** The first time as it was asked ahead. */
export function known(): Known {
  const asked = first ?? ask();
  first = null;
  return asked;
}
