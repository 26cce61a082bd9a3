/** The filter of the list of clients: from the fields above it to the query that the server takes. */
import type { ClientFilter } from '../../lib/api/calls/clients.ts';

export type Show = 'all' | 'with' | 'without' | 'denied';
const SHOWS: Show[] = ['all', 'with', 'without', 'denied'];

const KIND = /^([a-z][a-z0-9_]{0,31}):(.*)$/s;
/** What stands before the first colon of an IPv6 address. */
const GROUP = /^[0-9a-f]{1,4}$/;

/** `user:ad` is the kind and how the value begins, anything else a part of a value or label. */
export function filterOf(typed: string, tier: string, show: Show, tag = ''): ClientFilter {
  const [, kind = '', value = ''] = KIND.exec(typed.trim()) ?? [];
  const named = kind === '' || GROUP.test(kind) ? { q: typed.trim() } : { kind, prefix: value };
  return {
    ...named,
    ...(tier === '' ? {} : { tier }),
    ...(tag === '' ? {} : { tag }),
    ...(show === 'with' || show === 'without' ? { has_override: show === 'with' } : {}),
  };
}

export function showOf(asked: string | null): Show {
  return SHOWS.find((show) => show === asked) ?? 'all';
}

/** Where each client had to be looked at, the server counts so far and no further. */
const COUNTED_MAX = 10_000;

/** How many match; null when they are only known to be many. */
export function exactly(matching: number, filter: ClientFilter): number | null {
  const { q = '', tier, tag, has_override } = filter;
  const isByName = q === '' && [tier, tag, has_override].every((one) => one === undefined);
  return isByName || matching <= COUNTED_MAX ? matching : null;
}

/** Kind and value of an id; the value may have colons of its own. */
export function partsOf(id: string): { kind: string; value: string } {
  const at = id.indexOf(':');
  return { kind: id.slice(0, Math.max(0, at)), value: id.slice(at + 1) };
}

/** Is it one identity? Otherwise it stands for all that begin so, or for a network. */
export function isSingle(kind: string, value: string): boolean {
  return !value.endsWith('*') && !(kind === 'ip' && value.includes('/'));
}
