/** A rule as a sentence, and whom it counts as it is typed. */
import { expect, test } from 'vitest';
import { formOf } from '../app/policy/form.ts';
import { parsePer, perWhom, sentence } from '../app/policy/ruletext.ts';
import type { Rule } from '../app/api/types.ts';

const limit = { id: 'm', algorithm: 'token_bucket', limit: 5, period: '1m' };
const rule: Rule = { id: 'x', endpoint: '/login', method: 'POST', per: 'ip', limits: [limit] };
const said = (more: Partial<Rule>) => sentence(formOf('rule', { ...rule, ...more }));

test('a rule says what it does', () => {
  expect(said({})).toBe('Each ip may POST /login 5 times a minute.');
  expect(said({ endpoint: '*', per: 'everyone', limits: [{ ...limit, limit: 1, period: '90s' }] })).toBe(
    'All requests together may POST anything 1 time in 90s.',
  );
  const shadow = {
    ...limit,
    id: 'd',
    algorithm: 'fixed_window',
    limit: 50_000,
    period: 'day',
    mode: 'shadow' as const,
  };
  const more = { tiers: ['free', 'pro'], where: { api_key: 'x*' }, cost: 3, enabled: false };
  expect(said({ ...more, per: ['ip', 'user'], limits: [limit, shadow] })).toBe(
    'Switched off: Each ip + user in tier free or pro may POST /login 5 times a minute and 50,000 times a day (only counted), where api_key is x*. A request counts 3 times.',
  );
});

test('what is not written yet is left open', () => {
  const form = formOf('rule', { id: 'x', endpoint: '', per: '', limits: [] });
  expect(sentence(form)).toBe('… may ask … ….');
});

test('one kind is a word, several are a list', () => {
  expect(parsePer(' ip ')).toBe('ip');
  expect(parsePer('ip + user')).toEqual(['ip', 'user']);
  expect(parsePer('ip, user')).toEqual(['ip', 'user']);
  expect(parsePer('ip +')).toEqual(['ip']);
  expect(perWhom(['ip', 'user'])).toBe('ip + user');
});
