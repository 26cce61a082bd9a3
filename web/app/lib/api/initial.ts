/**
 * The calls that every load of the dashboard needs before it shows anything: the session, and what the server can do.
 */
import { getMeta, getSession } from './calls.ts';
import type { Meta, Session } from './types.ts';

export interface InitialCalls {
  who: Promise<Session>;
  meta: Promise<Meta>;
}

let first: InitialCalls | null = null;

function ask(): InitialCalls {
  const asked = { who: getSession(), meta: getMeta() };
  // Whoever waits for them learns of it; the second is answered only to whom the server knows.
  for (const one of Object.values(asked)) one.catch(() => undefined);
  return asked;
}

export function startInitialCalls(): void {
  first = ask();
}

/** The first time as it was asked ahead. */
export function takeInitialCalls(): InitialCalls {
  const asked = first ?? ask();
  first = null;
  return asked;
}
