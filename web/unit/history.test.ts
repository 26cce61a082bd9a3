/** What the record makes of the server's answers. */
import { describe, expect, test } from 'vitest';
import { filterOf, matches } from '../app/features/history/auditfilter.ts';
import { deniedAround } from '../app/features/history/deniedshare.ts';
import { byObject, fieldOf, linesOf } from '../app/features/history/differences.ts';
import { versionIn } from '../app/features/history/versionname.ts';
import { withQuery } from '../app/lib/api/query.ts';
import type { AuditLine, Difference } from '../app/lib/api/schema.ts';
import { fromField, toField } from '../app/lib/format/instant.ts';

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

test('only a version is a version', () => {
  expect(versionIn('version:12')).toBe(12);
  for (const other of ['done', 'version:', 'tier:version:1', 'done: version:1'])
    expect(versionIn(other)).toBeNull();
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

test('what was denied around a version is said as far as it is known', () => {
  const decided = (allowed: number, denied: number) => ({ allowed, denied });
  expect(deniedAround({ before: decided(90, 10), after: decided(999, 1) })).toBe('10 % → 0.1 %');
  expect(deniedAround({ before: decided(5, 0), after: null })).toBe('0 % → –');
  expect(deniedAround({ before: null, after: null })).toBeNull();
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
