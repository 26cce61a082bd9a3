/** Which page an address means. Pure: the browser's history is in `place.svelte.ts`. */

export type PageName =
  'overview' | 'tiers' | 'tier' | 'rules' | 'rule' | 'history' | 'login' | 'signed-in' | 'setup' | 'missing';

export interface Route {
  page: PageName;
  /** The decoded id in the path, of the pages that have one. */
  id: string;
}

const PATTERNS: [pattern: RegExp, page: PageName][] = [
  [/^\/$/, 'overview'],
  [/^\/tiers$/, 'tiers'],
  [/^\/tiers\/([^/]+)$/, 'tier'],
  [/^\/rules$/, 'rules'],
  [/^\/rules\/([^/]+)$/, 'rule'],
  [/^\/history$/, 'history'],
  [/^\/login$/, 'login'],
  [/^\/signed-in$/, 'signed-in'],
  [/^\/setup$/, 'setup'],
];

export function routeOf(path: string): Route {
  const trimmed = path.length > 1 ? path.replace(/\/+$/, '') || '/' : path;
  for (const [pattern, page] of PATTERNS) {
    const match = pattern.exec(trimmed);
    if (!match) continue;
    const id = decoded(match[1] ?? '');
    return id === null ? { page: 'missing', id: '' } : { page, id };
  }
  return { page: 'missing', id: '' };
}

function decoded(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

/** The path of a tier or rule. */
export function pathOf(kind: 'tier' | 'rule', id: string): string {
  return `/${kind}s/${encodeURIComponent(id)}`;
}

/** Where to go after signing in: only ever a path of this site. */
export function safeReturn(asked: string | null): string {
  if (asked === null || !/^\/(?![/\\])/.test(asked) || /[\\\n\r\t]/.test(asked)) return '/';
  const { page } = routeOf(asked.split(/[?#]/)[0] ?? '/');
  return page === 'login' || page === 'signed-in' || page === 'setup' ? '/' : asked;
}
