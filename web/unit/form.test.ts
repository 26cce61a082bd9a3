/** The form: a tier to text and back, what is wrong, and what it does not know. */
import { expect, test } from 'vitest';
import { asSent, faultsOf, formOf, newRow, tierOf } from '../app/policy/form.ts';
import { edited, form, grammar, layered, row } from './samples.ts';

test('a tier survives the form', () => {
  expect(tierOf('layered', form(), grammar)).toEqual(layered);
  const unlimited = { id: 'internal', unlimited: true };
  expect(tierOf('internal', formOf(unlimited), grammar)).toEqual(unlimited);
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
  const changed = formOf(strange);
  row(changed, 'a').rate = '5 per minute';
  expect(tierOf('pro', changed, grammar)).toEqual({
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
  expect(faultsOf(wrong, grammar)).toEqual({ [`1/${field}`]: { why } });
  expect(tierOf('layered', wrong, grammar)).toBeNull();
});

test('two limits of one name are one too many', () => {
  const twice = edited((form) => (row(form, 'minute').id = 'second'));
  expect(faultsOf(twice, grammar)).toEqual({ '2/id': { why: 'id-twice' } });
});

test('some limits, but not too many; none when unlimited', () => {
  const none = edited((form) => (form.limits = []));
  expect(faultsOf(none, grammar)).toEqual({ limits: { why: 'no-limits' } });
  const many = edited((form) => {
    for (const id of ['c', 'd']) form.limits.push({ ...newRow(form, 'fixed_window'), id, rate: '1/s' });
  });
  expect(faultsOf(many, grammar)).toEqual({ limits: { why: 'many-limits' } });
  expect(faultsOf({ ...none, unlimited: true }, grammar)).toEqual({});
});

test('a burst goes only with an algorithm that has one', () => {
  const other = edited((form) => (row(form, 'second').algorithm = 'fixed_window'));
  expect(tierOf('layered', other, grammar)?.limits?.[0]).not.toHaveProperty('burst');
  expect(row(asSent(other, grammar), 'second').burst).toBe('');
});
