/** Whom a rule counts, as it is typed. */
import { expect, test } from 'vitest';
import { parsePer, perWhom } from '../app/lib/policy/ruletext.ts';

test('one kind is a word, several are a list', () => {
  expect(parsePer(' ip ')).toBe('ip');
  expect(parsePer('ip + user')).toEqual(['ip', 'user']);
  expect(parsePer('ip, user')).toEqual(['ip', 'user']);
  expect(parsePer('ip +')).toEqual(['ip']);
  expect(perWhom(['ip', 'user'])).toBe('ip + user');
});
