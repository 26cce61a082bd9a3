/** How clients are looked for, and what is said of them. */
import { expect, test } from 'vitest';
import { exactly, filterOf, isSingle, partsOf, showOf } from '../app/features/clients/clientfilter.ts';
import { describeFilter, describeOverride, tierOf } from '../app/features/clients/describeclient.ts';
import { nearest } from '../app/features/clients/limitusage.ts';
import { timeLeft, DAY_MS, endIn, fieldOf, HOUR_MS, instantOf } from '../app/features/clients/overrideend.ts';
import { grant, grantOf } from '../app/features/clients/overridegrants.ts';
import { tagsOf, tagsOfAll } from '../app/features/clients/tags.ts';
import type { Peeked } from '../app/lib/api/calls/clients.ts';
import { faultsOf } from '../app/lib/policy/faults.ts';
import { emptyForm, formOf, newRow } from '../app/lib/policy/form.ts';
import { valueOf } from '../app/lib/policy/value.ts';
import { grammar } from './samples.ts';

test('what is typed is a kind and how the value begins, or a part of a value or label', () => {
  expect(filterOf(' ac ', '', 'all')).toEqual({ q: 'ac' });
  expect(filterOf('user:ac', '', 'all')).toEqual({ kind: 'user', prefix: 'ac' });
  expect(filterOf('user:', 'pro', 'with')).toEqual({
    kind: 'user',
    prefix: '',
    tier: 'pro',
    has_override: true,
  });
  expect(filterOf('api_key:a:b', '', 'without')).toEqual({
    kind: 'api_key',
    prefix: 'a:b',
    has_override: false,
  });
  for (const address of ['2001:db8::', 'fe80::1', '10.0.0.0/8', 'URN:x', ':x']) {
    expect(filterOf(address, '', 'all')).toEqual({ q: address });
  }
});

test('a tag is asked for, said, and makes the number one that is counted', () => {
  const filter = filterOf('ac', '', 'all', 'beta');
  expect(filter).toEqual({ q: 'ac', tag: 'beta' });
  expect(describeFilter(filter)).toBe('“ac”, tag beta');
  expect(exactly(10_001, { kind: 'user', tag: 'beta' })).toBeNull();
});

test('tags are written with spaces between them, and each is an id', () => {
  expect(tagsOf('  beta   eu ')).toEqual(['beta', 'eu']);
  expect(tagsOf(' ')).toEqual([]);
  const rows = [{ value: { tags: ['eu', 'beta'] } }, { value: {} }, { value: { tags: ['eu'] } }];
  expect(tagsOfAll(rows)).toEqual(['beta', 'eu']);
  const form = formOf('client', { kind: 'user', value: 'bob', tier: 'pro', tags: ['beta', 'eu'] });
  expect(faultsOf('client', form, grammar)).toEqual({});
  expect(valueOf('client', 'user:bob', form, grammar)).toMatchObject({ tags: ['beta', 'eu'] });
  form.fields['tags'] = ['beta', 'Not'];
  expect(faultsOf('client', form, grammar)).toEqual({ tags: { why: 'tag' } });
  form.fields['tags'] = ['beta', 'beta'];
  expect(faultsOf('client', form, grammar)).toEqual({ tags: { why: 'tag-twice' } });
});

test('an unknown choice in the address is none', () => {
  expect([showOf('with'), showOf('all'), showOf(null), showOf('constructor')]).toEqual([
    'with',
    'all',
    'all',
    'all',
  ]);
});

test('a number that stands for many is no number', () => {
  expect(exactly(100_000, { kind: 'user', prefix: 'a' })).toBe(100_000);
  expect(exactly(10_000, { tier: 'pro' })).toBe(10_000);
  expect(exactly(10_001, { tier: 'pro' })).toBeNull();
  expect(exactly(10_001, { has_override: false })).toBeNull();
  expect(exactly(10_001, { q: 'acme' })).toBeNull();
});

test('an id is a kind and a value, which may have colons', () => {
  expect(partsOf('ip:2001:db8::/32')).toEqual({ kind: 'ip', value: '2001:db8::/32' });
  expect(partsOf('nonsense')).toEqual({ kind: '', value: 'nonsense' });
  expect(isSingle('user', 'ada')).toBe(true);
  expect(isSingle('user', 'a/b')).toBe(true);
  expect(isSingle('user', 'trial-*')).toBe(false);
  expect(isSingle('ip', '10.0.0.0/8')).toBe(false);
});

test('of a limit the node where it is nearest to denying is told', () => {
  const limit = (limit_id: string, limit: number, remaining: number, is_shadow = false) => ({
    limit_id,
    limit,
    remaining,
    is_shadow,
    reset_after_ms: 0,
  });
  const peeked: Peeked = {
    answers: {
      one: {
        what: 'peek',
        policy_version: 1,
        allowed: true,
        limits: [limit('a', 100, 50), limit('b', 10, 10)],
      },
      other: {
        what: 'peek',
        policy_version: 1,
        allowed: true,
        limits: [limit('a', 100, 20), limit('c', 4, 0, true)],
      },
      broken: { what: 'failed', why: 'no' },
    },
    did_not_answer: ['gone'],
  };
  expect(nearest(peeked, 'a')).toEqual({ limitId: 'a', used: 80, limit: 100, share: 0.8, resetMs: 0 });
  expect(nearest({ answers: {}, did_not_answer: ['gone'] }, 'a')).toBeNull();
  const nothing = { what: 'peek' as const, policy_version: 1, allowed: false, limits: [limit('z', 0, 0)] };
  expect(nearest({ answers: { one: nothing }, did_not_answer: [] }, 'z')?.share).toBe(1);
});

test('a client in words', () => {
  expect(describeOverride({ blocked: true })).toBe('blocked');
  expect(describeOverride({ unlimited: true })).toBe('unlimited');
  const limits = [{ id: 'a', algorithm: 'gcra' as const, limit: 9000, period: '1m' }];
  expect(describeOverride({ limits })).toBe('9000 / 1m');
  const tiers = [
    { default_of: ['user'], value: { id: 'free' } },
    { default_of: [], value: { id: 'pro' } },
  ];
  expect(tierOf({ kind: 'user', tier: 'pro' }, tiers)).toEqual({ id: 'pro', isDefault: false });
  expect(tierOf({ kind: 'user' }, tiers)).toEqual({ id: 'free', isDefault: true });
  expect(tierOf({ kind: 'zone', tier: null }, tiers)).toBeNull();
  expect(describeFilter({})).toBe('');
  expect(describeFilter({ kind: 'user', prefix: 'ac', tier: 'pro', has_override: true })).toBe(
    'kind user, “ac”, tier pro, with override',
  );
  expect(describeFilter({ q: 'acme', has_override: false })).toBe('“acme”, without override');
});

test('an end is to the minute, in the zone of the field, and never later than asked for', () => {
  const now = Date.parse('2026-11-23T08:00:59.900Z');
  expect(endIn(DAY_MS, now)).toBe('2026-11-24T08:00:00Z');
  expect(fieldOf('2026-11-24T08:00:12Z', 'utc')).toBe('2026-11-24T08:00');
  expect([fieldOf(null, 'utc'), fieldOf('soon', 'local')]).toEqual(['', '']);
  expect(instantOf('2026-11-24T08:00', 'utc')).toBe('2026-11-24T08:00:00Z');
  expect(instantOf('', 'utc')).toBe('');
  const local = fieldOf('2026-07-24T08:00:00Z', 'local');
  expect(instantOf(local, 'local')).toBe('2026-07-24T08:00:00Z');
  expect([
    timeLeft(29_000),
    timeLeft(60_000),
    timeLeft(3_599_000),
    timeLeft(2 * HOUR_MS - 1),
    timeLeft(7 * DAY_MS - 1),
  ]).toEqual([null, '1 min', '1 h', '2 h', '7 d']);
});

test('another grant keeps end and reason, and none has neither', () => {
  const form = emptyForm('client');
  expect(grantOf(form)).toBe('none');
  grant(form, 'blocked', 'E');
  expect(form.fields).toEqual({ 'override.blocked': true, 'override.until': 'E', 'override.reason': '' });
  form.fields['override.reason'] = 'abuse';
  form.fields['override.until'] = null;
  grant(form, 'unlimited', 'F');
  expect(grantOf(form)).toBe('unlimited');
  expect(form.fields).toEqual({
    'override.unlimited': true,
    'override.until': null,
    'override.reason': 'abuse',
  });
  grant(form, 'limits', 'F');
  expect(grantOf(form)).toBe('limits');
  form.limits.push(newRow(form, 'gcra'));
  grant(form, 'none', 'F');
  expect(form).toEqual(emptyForm('client'));
});

test('an override needs a reason, an end and a grant; its end, or that it has none, is said', () => {
  const value = { kind: 'user', value: 'bob', override: { blocked: true, reason: 'abuse' } };
  const form = formOf('client', value);
  expect(form.fields['override.until']).toBeNull();
  expect(valueOf('client', 'user:bob', form, grammar)).toEqual({
    ...value,
    override: { ...value.override, until: null },
  });
  form.fields['override.reason'] = ' ';
  form.fields['override.until'] = '';
  expect(Object.keys(faultsOf('client', form, grammar))).toEqual(['override.reason', 'override.until']);
  grant(form, 'limits', 'E');
  expect(faultsOf('client', form, grammar)['limits']).toEqual({ why: 'no-limits' });
  grant(form, 'none', 'E');
  expect(faultsOf('client', form, grammar)).toEqual({});
});
