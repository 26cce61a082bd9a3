/** The find box: what is closest comes first, every group has its share, and no more than twelve lines. */
import { expect, test } from 'vitest';
import { isName, LINES_MAX, search, versionOf, type SearchSource } from '../app/features/find/search.ts';

const source = (group: string, ...names: string[]): SearchSource => ({
  group,
  items: names.map((name) => ({ name, go: `/${name}` })),
});
const names = (typed: string, ...sources: SearchSource[]) => search(sources, typed).map(({ name }) => name);

test('a name that begins so comes before one that has it elsewhere', () => {
  expect(names('pro', source('tiers', 'unpro', 'old-pro', 'professional', 'pro', 'free'))).toEqual([
    'pro',
    'professional',
    'old-pro',
    'unpro',
  ]);
});

test('case and spaces around do not matter, and nothing is everything', () => {
  expect(names(' PRO ', source('tiers', 'pro'))).toEqual(['pro']);
  expect(names('', source('pages', 'Nodes', 'Tiers'))).toEqual(['Nodes', 'Tiers']);
});

test('what is found already is not looked through again', () => {
  const clients: SearchSource = { ...source('clients', 'user:ada'), found: true };
  expect(names('zzz', clients, source('tiers', 'pro'))).toEqual(['user:ada']);
});

test('twelve lines at most, and none of the groups takes all', () => {
  const many = Array.from({ length: 30 }, (_, at) => `a${at}`);
  const all = search([source('clients', ...many), source('tiers', ...many), source('rules', 'a')], 'a');
  expect(all).toHaveLength(LINES_MAX);
  expect(all.filter(({ group }) => group === 'rules')).toHaveLength(1);
  expect(all.filter(({ group }) => group === 'tiers')).toHaveLength(4);
  expect(all.filter(({ group }) => group === 'clients')).toHaveLength(7);
});

test('versions are those that there are', () => {
  expect([versionOf('v12', 12), versionOf('12', 12), versionOf('V3', 12)]).toEqual([12, 12, 3]);
  expect([versionOf('13', 12), versionOf('v0', 12), versionOf('v', 12), versionOf('1.5', 12)]).toEqual([
    null,
    null,
    null,
    null,
  ]);
});

test('a name is one as a whole', () => {
  const sources = [source('tiers', 'pro'), { ...source('versions', 'v12'), found: true }];
  expect(['PRO ', 'v12', 'pr', 'profound', ''].map((typed) => isName(sources, typed))).toEqual([
    true,
    true,
    false,
    false,
    false,
  ]);
});
