/** Differences as they are shown, loosening, names of limits and fields. */
import { expect, test } from 'vitest';
import { differences, sameForm, textAt } from '../app/policy/fields.ts';
import { fieldName } from '../app/policy/fieldname.ts';
import { entryOf, type Entry } from '../app/changes/entry.ts';
import { formOf, newRow } from '../app/policy/form.ts';
import { limitName, parseLimitName } from '../app/policy/limitname.ts';
import { loosenings, looseningsOf } from '../app/policy/loosening.ts';
import { edited, form, layered, row } from './samples.ts';

test('a field that changed is one line, a limit that came or went too', () => {
  const changed = edited((form) => {
    row(form, 'second').burst = '';
    row(form, 'second').rate = '20/s';
    form.limits = form.limits.filter(({ id }) => id !== 'minute');
    form.limits.push({ ...newRow(form, 'fixed_window'), id: 'day', rate: '1k/d' });
  });
  expect(differences(form(), changed).map(({ path, from, to }) => [path, from, to])).toEqual([
    ['limits/second/rate', '10 / 1s', '20 / 1s'],
    ['limits/second/burst', '20', null],
    ['limits/minute', 'fixed_window 1000 / 1m', null],
    ['limits/day', null, 'fixed_window 1000 / 1d'],
  ]);
});

test('another way of writing it is no difference', () => {
  const same = edited((form) => (row(form, 'minute').rate = '1k per minute'));
  expect(differences(form(), same)).toEqual([]);
  expect(sameForm(form(), same)).toBe(true);
});

test('what a form says at a path', () => {
  expect(textAt(form(), 'limits/second/burst')).toBe('20');
  expect(textAt(form(), 'limits/second')).toBe('token_bucket 10 / 1s, burst 20');
  expect(textAt(form(), 'limits/none')).toBeNull();
  expect(textAt(form(), '')).toContain('minute fixed_window 1000 / 1m');
});

test('paths have names', () => {
  expect(fieldName('limits/minute/rate')).toBe('minute rate');
  expect(fieldName('limits/minute')).toBe('limit minute');
  expect(fieldName('limits/minute/mode')).toBe('minute mode');
  expect(fieldName('unlimited')).toBe('unlimited');
});

test('ten times as much is loosening, nine times is not', () => {
  const to = (rate: string) => edited((form) => (row(form, 'minute').rate = rate));
  expect(loosenings(form(), to('9999 / 1m'))).toEqual([]);
  expect(loosenings(form(), to('10000 / 1m'))).toMatchObject([
    { what: 'raised', limit: 'minute', times: 10 },
  ]);
  expect(loosenings(form(), to('1000 / 1s'))).toMatchObject([{ times: 60 }]);
  expect(loosenings(form(), to('not a rate'))).toEqual([]);
  const unlimited = edited((form) => (form.fields['unlimited'] = true));
  expect(loosenings(form(), unlimited)).toEqual([{ what: 'unlimited' }]);
  expect(loosenings(unlimited, unlimited)).toEqual([]);
});

test('what no longer holds, or cannot be told, is loosening too', () => {
  const removed = edited((form) => (form.limits = form.limits.filter(({ id }) => id !== 'minute')));
  expect(loosenings(form(), removed)).toEqual([{ what: 'removed', limit: 'minute' }]);
  const renamed = edited((form) => Object.assign(row(form, 'minute'), { id: 'm', rate: '1M / 1m' }));
  expect(loosenings(form(), renamed)).toEqual([{ what: 'removed', limit: 'minute' }]);
  const burst = (typed: string) => edited((form) => (row(form, 'second').burst = typed));
  expect(loosenings(form(), burst('1000000'))).toEqual([{ what: 'burst', limit: 'second', times: 50_000 }]);
  expect(loosenings(form(), burst('199'))).toEqual([]);
  expect(loosenings(form(), burst(''))).toEqual([]);
  const monthly = edited((form) => (row(form, 'minute').rate = '5 / month'));
  expect(loosenings(monthly, form())).toMatchObject([{ what: 'unknown', limit: 'minute' }]);
  const none = edited((form) => (row(form, 'minute').rate = '0 / 1m'));
  expect(loosenings(none, none)).toEqual([]);
});

test('another order is a difference that is shown', () => {
  const turned = edited((form) => form.limits.reverse());
  expect(sameForm(form(), turned)).toBe(false);
  expect(differences(form(), turned)).toMatchObject([
    { path: 'order', from: 'second, minute', to: 'minute, second' },
  ]);
});

test('full names of limits', () => {
  expect(parseLimitName('default/tier:pro/minute')).toEqual({
    domain: 'default',
    kind: 'tier',
    owner: 'pro',
    limit: 'minute',
  });
  expect(parseLimitName('default/client:ip:10.0.0.0/8/minute')).toMatchObject({ owner: 'ip:10.0.0.0/8' });
  expect(parseLimitName('nonsense')).toBeNull();
  expect(limitName('a', 'rule', 'b', 'c')).toBe('a/rule:b/c');
});

test('what loosens is told of all kinds', () => {
  const rule = formOf('rule', { id: 'x', endpoint: '/x', per: 'ip', limits: layered.limits ?? [] });
  const key = { kind: 'rule', domain: 'default', id: 'x' } as const;
  const item = { id: 'x', etag: '', revision: 1, changed_by: '', changed_at: '' };
  const entry = entryOf(key, { ...item, value: { id: 'x', endpoint: '/x', per: 'ip', limits: [] } }, 1);
  const of = (change: Partial<Entry>) => looseningsOf({ ...entry, base: rule, form: rule, ...change });
  expect(of({})).toEqual([]);
  expect(of({ op: 'delete' })).toEqual([{ what: 'off' }]);
  const off = { ...rule, fields: { ...rule.fields, enabled: false } };
  expect(of({ form: off })).toEqual([{ what: 'off' }]);
  expect(of({ base: off, op: 'delete' })).toEqual([]);
  const watched = edited((form) => Object.assign(row(form, 'minute').fields, { mode: 'shadow' }));
  expect(loosenings(form(), watched)).toEqual([{ what: 'shadow', limit: 'minute' }]);
  const open = edited((form) => Object.assign(row(form, 'minute').fields, { on_failure: 'open' }));
  expect(loosenings(form(), open)).toEqual([{ what: 'open', limit: 'minute' }]);
  const client = (fields: Record<string, unknown>) =>
    of({ kind: 'client', base: { fields: {}, limits: [] }, form: { fields, limits: [] } });
  expect(client({ 'override.blocked': true })).toEqual([]);
  expect(client({ 'override.unlimited': true })).toEqual([{ what: 'unlimited' }]);
  const domain = (fields: Record<string, unknown>) =>
    of({
      kind: 'domain',
      base: { fields: { on_error: 'closed' }, limits: [] },
      form: { fields, limits: [] },
    });
  expect(domain({ on_error: 'open' })).toEqual([{ what: 'doors' }]);
  expect(domain({ on_error: 'closed', reset: 'delta' })).toEqual([]);
});
