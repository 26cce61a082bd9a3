/** A test request: whom it is about, and what is said of what nodes told. */
import { expect, test } from 'vitest';
import { whoOf, wordsOf } from '../app/features/overview/testrequest.ts';
import type { NodeAnswers, Told } from '../app/lib/api/schema.ts';

const told = (over: object): Told => ({
  what: 'charge',
  policy_version: 1,
  allowed: true,
  limit_id: 'default/tier:free/minute',
  unknown_domain: false,
  retry_after_ms: 0,
  ...over,
});
const denied = told({ allowed: false, retry_after_ms: 5 });

function words(answers: NodeAnswers['answers'], ...silent: string[]): string[] {
  const request = { domain: 'eu', identities: [whoOf([])] };
  return wordsOf({ request, outcome: { answers, did_not_answer: silent } });
}

test('nodes that say the same stand together', () => {
  expect(words({ a: told({}), b: denied, c: told({}) })).toEqual([
    'user:ada was allowed on a, c, and charged; closest: tier:free/minute.',
    'user:ada was denied on b, by tier:free/minute.',
  ]);
});

test('where nothing was charged it is not said to be', () => {
  expect(words({ a: told({ limit_id: null }) })).toEqual([
    'user:ada was allowed on a: no limit applied, and nothing was charged.',
  ]);
  expect(words({ a: told({ limit_id: null, unknown_domain: true }) })).toEqual([
    'user:ada was allowed on a: the policy there has no domain eu, and nothing was charged.',
  ]);
});

test('nodes that did not answer, or cannot, are named; where there is none it is said', () => {
  const why = 'this build does not know the question';
  expect(words({ a: told({}), b: { what: 'failed', why } }, 'c')).toEqual([
    'user:ada was allowed on a, and charged; closest: tier:free/minute.',
    `b: ${why}`,
    'c did not answer: of these nothing is known.',
  ]);
  expect(words({})).toEqual(['There is no node that could decide it. Let one join first.']);
});

test('whom it is about is of a kind that the policy knows', () => {
  const kind = (...kinds: string[]) => whoOf(kinds).kind;
  expect([kind(), kind('ip', 'user'), kind('api_key', 'ip')]).toEqual(['user', 'user', 'api_key']);
  expect(whoOf(['ip'])).toEqual({ kind: 'ip', value: '192.0.2.1' });
});
