/** Addresses. */
import { expect, test } from 'vitest';
import { pathOf, routeOf, safeReturn } from '../app/lib/state/router.ts';

test.each([
  ['/', 'overview', ''],
  ['/tiers', 'tiers', ''],
  ['/tiers/', 'tiers', ''],
  ['/tiers/pro', 'tier', 'pro'],
  ['/tiers/a%2Fb', 'tier', 'a/b'],
  ['/rules/search', 'rule', 'search'],
  ['/history', 'history', ''],
  ['/login', 'login', ''],
  ['/signed-in', 'signed-in', ''],
  ['/setup', 'setup', ''],
  ['/tiers/pro/more', 'missing', ''],
  ['/tiers/%', 'missing', ''],
  ['/inspect', 'inspector', ''],
  ['/nodes', 'nodes', ''],
  ['/nodes/node-1', 'node', 'node-1'],
  ['/clients', 'clients', ''],
  ['/clients/user%3Aada%2Fb', 'client', 'user:ada/b'],
  ['/simulate', 'simulator', ''],
  ['/simulate/7', 'run', '7'],
  ['/history/audit', 'audit', ''],
  ['/history/12', 'version', '12'],
  ['/history/12..14', 'comparison', '12..14'],
  ['/history/x', 'missing', ''],
  ['/access/tokens', 'access', 'tokens'],
  ['/access/else', 'missing', ''],
  ['//', 'overview', ''],
])('%s', (path, page, id) => {
  expect(routeOf(path)).toEqual({ page, id });
});

test('an id survives its path', () => {
  for (const id of ['pro', 'a/b', '%', 'ü ?#']) expect(routeOf(pathOf('tier', id)).id).toBe(id);
});

test('the way back after signing in stays on this site', () => {
  expect(safeReturn('/tiers/pro?filter=x')).toBe('/tiers/pro?filter=x');
  for (const asked of [
    null,
    '',
    'https://elsewhere',
    '//elsewhere',
    '/\\elsewhere',
    '/a\\b',
    '/\n/x',
    'javascript:1',
  ]) {
    expect(safeReturn(asked)).toBe('/');
  }
  for (const asked of ['/login', '/login?return=/login', '/signed-in', '/setup#code=1'])
    expect(safeReturn(asked)).toBe('/');
});
