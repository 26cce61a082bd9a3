/** The Inspector: what is typed, how limits stand node by node, how waits are written. */
import { expect, test } from 'vitest';
import { countdown } from '../app/features/inspector/countdown.ts';
import { isUsed, mergeLimitStates } from '../app/features/inspector/limitstates.ts';
import { faultsOf, inspectionFrom, type RequestFields } from '../app/features/inspector/requestfields.ts';
import { verdictsOf } from '../app/features/inspector/verdicts.ts';
import type { Explained, LimitState, NodeAnswers } from '../app/lib/api/schema.ts';
import { toRequest } from '../app/lib/policy/inspection.ts';

const draft = (over: Partial<RequestFields>): RequestFields => ({
  identities: [{ kind: 'user', value: 'ada' }],
  method: '',
  path: '',
  cost: '',
  ...over,
});

test('faults stand at their fields', () => {
  expect(faultsOf(draft({}))).toEqual({});
  const twice = [
    { kind: 'user', value: 'ada' },
    { kind: 'user', value: '' },
  ];
  expect(Object.keys(faultsOf(draft({ identities: twice, path: 'x', cost: '0' })))).toEqual([
    'kind 1',
    'value 1',
    'path',
    'cost',
  ]);
  for (const cost of ['1.5', '-1', 'one']) expect(Object.keys(faultsOf(draft({ cost })))).toEqual(['cost']);
});

test('only what was typed is asked', () => {
  const ask = (over: Partial<RequestFields>) => toRequest(inspectionFrom(draft(over), 'eu'));
  const who = { domain: 'eu', identities: [{ kind: 'user', value: 'ada' }] };
  expect(ask({})).toEqual(who);
  expect(ask({ path: ' /x ', method: 'GET', cost: '3' })).toEqual({
    ...who,
    endpoint: '/x',
    method: 'GET',
    cost: 3,
  });
});

test('waits are written by their size', () => {
  const [s, m, h] = [1_000, 60_000, 3_600_000];
  expect([0, -5, 1, 22 * s, 14 * m + 5 * s, 3 * h + 20 * m, 50 * h].map(countdown)).toEqual([
    null,
    null,
    '0:01',
    '0:22',
    '14:05',
    '3 h 20 min',
    '2 d 2 h',
  ]);
});

const limit = (limit_id: string, remaining: number) => ({
  limit_id,
  limit: 10,
  remaining,
  reset_after_ms: 5_000,
  retry_after_ms: remaining > 0 ? 0 : 600,
  remaining_after: Math.max(0, remaining - 1),
  is_shadow: false,
  says: `${remaining} left`,
});
const about = (limit_id: string) =>
  ({
    limit_id,
    mode: 'enforce',
    limit: 10,
    remaining: 3,
    reset_after_ms: 9_000,
    retry_after_ms: 0,
    says: '3 left',
  }) as LimitState;
const says = (...ids: string[]) => ({ limits: ids.map(about) }) as Explained;
const peeked = (answers: Record<string, [string, number][]>): NodeAnswers => ({
  answers: Object.fromEntries(
    Object.entries(answers).map(([node, limits]) => [
      node,
      { what: 'peek', policy_version: 1, allowed: true, limits: limits.map(([id, left]) => limit(id, left)) },
    ]),
  ),
  did_not_answer: [],
});

test('nodes that say the same stand together, others apart', () => {
  const [state] = mergeLimitStates(says('a'), peeked({ n1: [['a', 4]], n2: [['a', 4]], n3: [['a', 10]] }));
  expect(state?.at.map(({ nodes, remaining, says }) => [nodes, remaining, says])).toEqual([
    [['n1', 'n2'], 4, '4 left'],
    [['n3'], 10, '10 left'],
  ]);
});

test('without an answer of the nodes stands what this server says', () => {
  const [state] = mergeLimitStates(says('a'), null);
  expect(state?.at).toEqual([
    {
      nodes: [],
      isStored: false,
      limit: 10,
      remaining: 3,
      resetAfterMs: 9_000,
      retryAfterMs: 0,
      says: '3 left',
    },
  ]);
});

test('what nodes share stands once, as the store has it; beside it who does not reach the store', () => {
  const shared = (remaining: number, is_stored: boolean) => ({
    what: 'peek' as const,
    policy_version: 1,
    allowed: true,
    limits: [{ ...limit('a', remaining), sharing: 'leased' as const, is_stored }],
  });
  const answers = { n1: shared(7, true), n2: shared(5, true), n3: shared(6, true), n4: shared(9, false) };
  const [state] = mergeLimitStates({ limits: [] }, { answers, did_not_answer: [] });
  expect([
    state?.sharing,
    state?.at.map(({ nodes, isStored, remaining }) => [nodes, isStored, remaining]),
  ]).toEqual([
    'leased',
    [
      [['n1', 'n2', 'n3'], true, 5],
      [['n4'], false, 9],
    ],
  ]);
});

test('a limit that only a node knows is shown too, and unused ones are unused', () => {
  const states = mergeLimitStates(
    says('a'),
    peeked({
      n1: [
        ['a', 10],
        ['b', 10],
      ],
    }),
  );
  expect(states.map(({ limitId }) => limitId)).toEqual(['a', 'b']);
  expect(states.some(isUsed)).toBe(false);
});

test('each node decides by what it has counted; without them this server does', () => {
  const blocked = { allowed: false, limit_id: 'b', allowed_after_ms: 70_000 };
  const here = { ...says('a'), decision: blocked } as Explained;
  const no = (limit_id: string, retry_after_ms: number | null) => ({
    ...{ what: 'peek' as const, policy_version: 1, allowed: false, limit_id, retry_after_ms },
    limits: [limit('a', 0)],
  });
  const yes = (left: number) => ({
    ...{ what: 'peek' as const, policy_version: 1, allowed: true, limit_id: null, retry_after_ms: 0 },
    limits: [limit('a', left), limit('c', 9)],
  });
  const answers = { n1: no('a', 600), n2: yes(5), n3: no('a', 900), n4: yes(3), n5: no('b', null) };
  expect(verdictsOf(here, { answers, did_not_answer: [] })).toMatchObject([
    { nodes: ['n1', 'n3'], allowed: false, limitId: 'a', retryAfterMs: 900 },
    { nodes: ['n2', 'n4'], allowed: true, tightest: { limitId: 'a', left: 2 } },
    { nodes: ['n5'], allowed: false, limitId: 'b', retryAfterMs: 70_000 },
  ]);
  expect(verdictsOf(here, null)).toMatchObject([{ nodes: [], allowed: false, retryAfterMs: 70_000 }]);
});
