/** What the record makes of the server's answers. */
import { describe, expect, test } from 'vitest';
import type { AuditLine, Difference, FiguresPoint } from '../app/api/schema.ts';
import { withQuery } from '../app/api/query.ts';
import { sharesAround } from '../app/history/around.ts';
import { filterOf, matches } from '../app/history/auditfilter.ts';
import { byObject, fieldOf, linesOf } from '../app/history/differences.ts';
import { fromField, toField } from '../app/instant.ts';
import { objectsByVersion, versionIn } from '../app/history/objects.ts';

const line = (id: number, object: string, result: string, action = 'object.change'): AuditLine => ({
  id,
  at: '2026-11-23T03:12:40.5Z',
  actor: 'ana',
  address: '10.0.0.7',
  action,
  object,
  result,
  request_id: 'abc1',
});

describe('objects of a version', () => {
  const lines = [
    line(9, 'tier:pro', 'version:3'),
    line(8, 'web/rule:export', 'version:3', 'object.remove'),
    line(7, 'client:user:bob', 'version:2'),
    line(6, 'domain:web', 'version:2'),
  ];

  test('are named in words', () => {
    const found = objectsByVersion(lines, true);
    expect(found.get(3)).toEqual([
      { key: 'tier:pro', name: 'tier pro', removed: false },
      { key: 'web/rule:export', name: 'rule export of web', removed: true },
    ]);
    expect(found.get(2)?.map(({ name }) => name)).toEqual(['client user:bob', 'domain web']);
  });

  test('are left out where there may be more of them', () => {
    expect([...objectsByVersion(lines, false).keys()]).toEqual([3]);
    expect(objectsByVersion([], false).size).toBe(0);
  });

  test('only a version is a version', () => {
    expect(versionIn('version:12')).toBe(12);
    for (const other of ['done', 'version:', 'tier:version:1', 'done: version:1'])
      expect(versionIn(other)).toBeNull();
  });
});

describe('differences', () => {
  const of = (one: Partial<Difference>): Difference => ({
    domain: 'default',
    kind: 'tier',
    id: 'pro',
    ...one,
  });

  test('stand together by object, and whole ones say so', () => {
    const found = byObject([
      of({ limit: 'minute', field: 'burst', from: 200, to: 300 }),
      of({ limit: 'hour', to: {} }),
      of({ kind: 'rule', id: 'export', from: {} }),
      of({ kind: 'domain', id: 'web', domain: 'web', field: 'tier_hint', from: false, to: true }),
    ]);
    expect(found.map(({ name, whole, differences }) => [name, whole, differences.length])).toEqual([
      ['tier pro', null, 2],
      ['rule export', 'gone', 1],
      ['domain web', null, 1],
    ]);
  });

  test('fields are named with their limit', () => {
    expect(fieldOf(of({ limit: 'minute', field: 'burst' }))).toBe('minute burst');
    expect(fieldOf(of({ limit: 'minute' }))).toBe('limit minute');
    expect(fieldOf(of({ field: 'unlimited' }))).toBe('unlimited');
  });

  test('as text, each line of a value has a sign', () => {
    expect(linesOf(of({ field: 'burst', from: 1, to: { a: 2 } }))).toEqual([
      { sign: '-', text: '"burst": 1' },
      { sign: '+', text: '"burst": {' },
      { sign: '+', text: '  "a": 2' },
      { sign: '+', text: '}' },
    ]);
    expect(linesOf(of({ to: null }))).toEqual([{ sign: '+', text: 'null' }]);
  });
});

test('shares before and after leave out the minute of the publish', () => {
  const at = Date.parse('2026-11-23T03:10:30Z');
  const point = (minute: number, allowed: number, denied: number): FiguresPoint => ({
    t: Date.parse('2026-11-23T03:00:00Z') + minute * 60_000,
    allowed,
    denied,
    shadow_denied: 0,
  });
  const points = [point(8, 90, 10), point(9, 90, 10), point(10, 0, 1_000), point(11, 999, 1)];
  expect(sharesAround(points, at)).toEqual({ before: '10 %', after: '0.1 %' });
  expect(sharesAround([], at)).toEqual({ before: null, after: null });
});

describe('filters of the audit log', () => {
  const none = filterOf(new URLSearchParams());
  const one = line(9, 'tier:pro', 'version:3');

  test('stand in the address', () => {
    const filter = filterOf(new URLSearchParams('actor=%20ana&q=x&from=2026-11-23T00:00:00Z&other=1'));
    expect(filter).toEqual({ ...none, actor: 'ana', q: 'x', from: '2026-11-23T00:00:00Z' });
    expect(withQuery('/audit', { ...filter, cursor: null })).toBe(
      '/audit?actor=ana&q=x&from=2026-11-23T00%3A00%3A00Z',
    );
    expect(withQuery('/audit', { ...none, cursor: null })).toBe('/audit');
  });

  test('a line matches as the server looks for it', () => {
    expect(matches(one, none)).toBe(true);
    for (const [name, yes, no] of [
      ['actor', 'ana', 'an'],
      ['action', 'object', 'obj'],
      ['action', 'object.change', 'object.remove'],
      ['object', 'tier:pro', 'tier:p'],
      ['q', 'VERSION:3', 'version:4'],
      ['q', 'ABC1', 'abc2'],
      ['request', 'abc1', 'abc'],
      ['result', 'done', 'refused'],
      ['from', '2026-11-23T03:12:40Z', '2026-11-23T03:12:41Z'],
      ['to', '2026-11-23T03:12:41Z', '2026-11-23T03:12:40Z'],
    ] as const) {
      expect(matches(one, { ...none, [name]: yes }), `${name} ${yes}`).toBe(true);
      expect(matches(one, { ...none, [name]: no }), `${name} ${no}`).toBe(false);
    }
  });

  test('what was done says so, or what came of it', () => {
    const refused = { ...none, result: 'refused' as const };
    for (const result of [
      'done',
      'done: viewer',
      'done on 1 of 2 nodes: why',
      'version:3',
      'first of the day',
    ]) {
      expect(matches({ ...one, result }, refused), result).toBe(false);
    }
    expect(matches({ ...one, result: 'wrong name or password' }, refused)).toBe(true);
    expect(filterOf(new URLSearchParams('result=some'))).toEqual(none);
  });

  test('times of a field are read in the zone that is shown', () => {
    expect(fromField('2026-11-23T03:12', 'utc')).toBe('2026-11-23T03:12:00.000Z');
    expect(toField('2026-11-23T03:12:40Z', 'utc')).toBe('2026-11-23T03:12');
    expect(toField(fromField('2026-11-23T03:12', 'local'), 'local')).toBe('2026-11-23T03:12');
    expect(fromField('', 'utc')).toBe('');
    expect(toField('soon', 'utc')).toBe('');
  });
});
