/** Maps addresses to pages. Pure: the browser's history is in `navigation.svelte.ts`. */

export type PageName =
  | 'overview'
  | 'inspector'
  | 'nodes'
  | 'node'
  | 'tiers'
  | 'tier'
  | 'rules'
  | 'rule'
  | 'clients'
  | 'client'
  | 'domain'
  | 'simulator'
  | 'run'
  | 'history'
  | 'audit'
  | 'comparison'
  | 'version'
  | 'access'
  | 'login'
  | 'signed-in'
  | 'setup'
  | 'missing';

export interface Route {
  page: PageName;
  /** The decoded id in the path, of the pages that have one. */
  id: string;
}

const PATTERNS: [pattern: RegExp, page: PageName][] = [
  [/^\/$/, 'overview'],
  [/^\/inspect$/, 'inspector'],
  [/^\/nodes$/, 'nodes'],
  [/^\/nodes\/([^/]+)$/, 'node'],
  [/^\/tiers$/, 'tiers'],
  [/^\/tiers\/([^/]+)$/, 'tier'],
  [/^\/rules$/, 'rules'],
  [/^\/rules\/([^/]+)$/, 'rule'],
  [/^\/clients$/, 'clients'],
  [/^\/clients\/([^/]+)$/, 'client'],
  [/^\/domain$/, 'domain'],
  [/^\/simulate$/, 'simulator'],
  [/^\/simulate\/([^/]+)$/, 'run'],
  [/^\/history$/, 'history'],
  [/^\/history\/audit$/, 'audit'],
  [/^\/history\/(\d+\.\.\d+)$/, 'comparison'],
  [/^\/history\/(\d+)$/, 'version'],
  [/^\/access\/(users|roles|tokens|me)$/, 'access'],
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

/** The path of an object of the policy. */
export function pathOf(kind: 'tier' | 'rule' | 'client', id: string): string {
  return `/${kind}s/${encodeURIComponent(id)}`;
}

/** Where to go after signing in: only ever a path of this site. */
export function safeReturn(asked: string | null): string {
  if (asked === null || !/^\/(?![/\\])/.test(asked) || /[\\\n\r\t]/.test(asked)) return '/';
  const { page } = routeOf(asked.split(/[?#]/)[0] ?? '/');
  return page === 'login' || page === 'signed-in' || page === 'setup' ? '/' : asked;
}
