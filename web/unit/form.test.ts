/** The form: a tier to text and back, what is wrong, and what it does not know. */
import { expect, test } from 'vitest';
import type { Client, Domain, Rule, Tier } from '../app/lib/api/types.ts';
import { faultsOf } from '../app/lib/policy/faults.ts';
import { differences } from '../app/lib/policy/fields.ts';
import { asSent, copyForm, formOf, newRow } from '../app/lib/policy/form.ts';
import { valueOf } from '../app/lib/policy/value.ts';
import { edited, form, grammar, layered, row, withLimit } from './samples.ts';

test('a tier survives the form', () => {
  expect(valueOf('tier', 'layered', form(), grammar)).toEqual(layered);
  const unlimited = { id: 'internal', unlimited: true };
  expect(valueOf('tier', 'internal', formOf('tier', unlimited), grammar)).toEqual(unlimited);
});

test('fields that the form does not know survive an edit', () => {
  const strange = {
    id: 'pro',
    colour: 'blue',
    limits: [
      {
        id: 'a',
        algorithm: 'token_bucket',
        limit: 1,
        period: '1s',
        mode: 'shadow',
        on_failure: { local: 0.5 },
      },
    ],
  };
  const changed = formOf('tier', strange as Tier);
  row(changed, 'a').rate = '5 per minute';
  expect(valueOf('tier', 'pro', changed, grammar)).toEqual({
    ...strange,
    limits: [{ ...strange.limits[0], limit: 5, period: '1m' }],
  });
});

test.each([
  ['rate', '100', 'form'],
  ['rate', '1.5/s', 'whole'],
  ['id', 'Über', 'id'],
  ['id', '', 'id'],
  ['burst', 'many', 'burst-number'],
  ['burst', '0', 'burst-zero'],
  ['algorithm', '', 'algorithm'],
] as const)('%s “%s” is wrong: %s', (field, typed, why) => {
  const wrong = edited((form) => (row(form, 'second')[field] = typed));
  expect(faultsOf('tier', wrong, grammar)).toEqual({ [`1/${field}`]: { why } });
  expect(valueOf('tier', 'layered', wrong, grammar)).toBeNull();
});

test('two limits of one name are one too many', () => {
  const twice = edited((form) => (row(form, 'minute').id = 'second'));
  expect(faultsOf('tier', twice, grammar)).toEqual({ '2/id': { why: 'id-twice' } });
});

test('some limits, but not too many; none when unlimited', () => {
  const none = edited((form) => (form.limits = []));
  expect(faultsOf('tier', none, grammar)).toEqual({ limits: { why: 'no-limits' } });
  const many = edited((form) => {
    for (const id of ['c', 'd']) form.limits.push({ ...newRow(form, 'fixed_window'), id, rate: '1/s' });
  });
  expect(faultsOf('tier', many, grammar)).toEqual({ limits: { why: 'many-limits' } });
  expect(faultsOf('tier', { ...none, fields: { unlimited: true } }, grammar)).toEqual({});
});

test('a burst goes only with an algorithm that has one', () => {
  const other = edited((form) => (row(form, 'second').algorithm = 'fixed_window'));
  expect(valueOf('tier', 'layered', other, grammar)?.limits?.[0]).not.toHaveProperty('burst');
  expect(row(asSent(other, grammar), 'second').burst).toBe('');
});

test('a largest debt survives an edit, and goes only with an algorithm that has one', () => {
  const before = formOf('tier', withLimit('second', { max_debt: 0 }));
  const owing = copyForm(before);
  row(owing, 'second').rate = '20/s';
  const second = () => valueOf('tier', 'layered', owing, grammar)?.limits?.[0];
  expect(second()).toMatchObject({ limit: 20, max_debt: 0 });
  row(owing, 'second').algorithm = 'fixed_window';
  expect(second()).not.toHaveProperty('max_debt');
  expect(differences(before, asSent(owing, grammar))).toContainEqual({
    path: 'limits/second/max_debt',
    limit: 'second',
    field: 'max_debt',
    from: '0',
    to: null,
  });
});

test('a largest debt that is no number is wrong where the algorithm has one', () => {
  const typed = (id: string) => edited((form) => (row(form, id).fields['max_debt'] = 'many'));
  expect(faultsOf('tier', typed('second'), grammar)).toEqual({ '1/max_debt': { why: 'debt' } });
  expect(valueOf('tier', 'layered', typed('second'), grammar)).toBeNull();
  expect(valueOf('tier', 'layered', typed('minute'), grammar)).toEqual(layered);
});

test('a rule, a client and the settings of a domain survive the form', () => {
  const limits = layered.limits ?? [];
  const rule: Rule = {
    id: 'search',
    endpoint: '/search',
    method: 'GET',
    per: ['ip', 'user'],
    tiers: ['free'],
    where: { user: 'a*', api_key: 'x.y' },
    cost: 3,
    enabled: false,
    limits,
  };
  expect(valueOf('rule', 'search', formOf('rule', rule), grammar)).toEqual(rule);
  const override = { limits, until: '2026-12-01T00:00:00Z', reason: 'migration' };
  const client: Client = { kind: 'ip', value: '2001:db8::/32', tier: 'free', override };
  expect(valueOf('client', 'ip:2001:db8::/32', formOf('client', client), grammar)).toEqual(client);
  // That there is no end is said: else it would get the usual one.
  const blocked: Client = { kind: 'user', value: 'eve', override: { blocked: true } };
  expect(valueOf('client', 'user:eve', formOf('client', blocked), grammar)).toEqual({
    ...blocked,
    override: { blocked: true, until: null },
  });
  const domain: Domain = { defaults: { user: 'free', ip: 'free' }, timezone: 'Europe/Berlin' };
  expect(valueOf('domain', 'eu', formOf('domain', domain), grammar)).toEqual(domain);
});

test('what a rule cannot be without, and numbers that are none', () => {
  const rule = formOf('rule', { id: 'x', endpoint: '', per: [], limits: layered.limits ?? [] });
  rule.fields['cost'] = '1.5';
  rule.fields['where.api_key'] = '';
  rule.fields['where.user'] = 'ada';
  expect(faultsOf('rule', rule, grammar)).toEqual({
    endpoint: { why: 'missing' },
    per: { why: 'missing' },
    'where.api_key': { why: 'missing' },
    cost: { why: 'cost' },
  });
  const share = edited((form) => (row(form, 'second').fields['on_failure'] = { local: 'half' }));
  expect(faultsOf('tier', share, grammar)).toEqual({ '1/on_failure': { why: 'share' } });
});
