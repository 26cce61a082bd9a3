/** Differences as they are shown, names of limits and fields. */
import { expect, test } from 'vitest';
import { fieldName } from '../app/lib/policy/fieldname.ts';
import { differences, sameForm, textAt } from '../app/lib/policy/fields.ts';
import { newRow } from '../app/lib/policy/form.ts';
import { limitName, parseLimitName } from '../app/lib/policy/limitname.ts';
import { edited, form, row } from './samples.ts';

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
  expect(fieldName('limits/second/max_debt')).toBe('second largest debt');
  expect(fieldName('unlimited')).toBe('unlimited');
  expect(fieldName('where.api_key')).toBe('only where api_key');
  expect(fieldName('defaults.user')).toBe('default tier of user');
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
