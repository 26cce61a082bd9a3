/** What a node's row means for a version. */
import { expect, test } from 'vitest';
import { overshootWords, storeTitle, storeTrouble, storeWords } from '../app/features/nodes/describestore.ts';
import type { NodeRow, NodeSecond, StoreFault } from '../app/lib/api/schema.ts';
import { mergeNodeRows } from '../app/lib/state/fleet/noderows.ts';
import { columnOf, duration, lagS, standing } from '../app/lib/state/fleet/standing.ts';

const row = (over: Partial<NodeRow>): NodeRow => ({
  node: 'a',
  presence: 'connected',
  address: '',
  version: '1',
  schema: 1,
  target_version: 5,
  behind_since: null,
  policy_version: 5,
  refused: null,
  not_kept: null,
  took_ms: null,
  from_last_good: false,
  decisions: 0,
  decisions_per_second: 0,
  denied_share: 0,
  p99_us: null,
  measured: 0,
  fill: 0,
  overflow_charges: 0,
  degraded_per_second: 0,
  clock_ahead_ms: null,
  is_clock_apart: false,
  keys: null,
  memory_bytes: null,
  store: null,
  seen_at: null,
  ...over,
});

test('it has the version when its row or its own word says so', () => {
  expect(standing(row({}), 5)).toEqual({ what: 'has', tookMs: null });
  const told = { version: 5, took_ms: 12, refused: null };
  expect(standing(row({ policy_version: 4 }), 5, told)).toEqual({ what: 'has', tookMs: 12 });
  expect(standing(row({ policy_version: 4 }), 5, { ...told, version: 4 })).toEqual({ what: 'waits' });
  expect(standing(row({ policy_version: 6 }), 5)).toEqual({ what: 'beyond', version: 6 });
});

test('a refusal is told with its reason, of this version alone', () => {
  const refused = { version: 5, why: 'schema 9', since: '' };
  expect(standing(row({ policy_version: 4, refused }), 5)).toEqual({ what: 'refused', why: 'schema 9' });
  expect(standing(row({ policy_version: 4, target_version: 6, refused }), 6)).toEqual({ what: 'waits' });
  const told = { version: 5, took_ms: null, refused: 'no' };
  expect(standing(row({ policy_version: 4 }), 5, told)).toEqual({ what: 'refused', why: 'no' });
});

test('who is not meant, silent or gone is not waited for', () => {
  expect(standing(row({ policy_version: 4, target_version: 4 }), 5)).toEqual({ what: 'keeps', version: 4 });
  expect(standing(row({ policy_version: 4, presence: 'silent' }), 5)).toEqual({ what: 'silent' });
  expect(standing(row({ policy_version: 4, presence: 'gone' }), 5)).toEqual({ what: 'gone' });
});

test('lag counts from when it fell behind, as the server tells it', () => {
  const behind_since = '1970-01-01T00:00:01Z';
  expect(lagS(row({}), 9_000)).toBe(0);
  expect(lagS(row({ policy_version: 4, behind_since }), 9_500)).toBe(8);
  expect(lagS(row({ policy_version: 4, behind_since }), 500)).toBe(0);
  expect(lagS(row({ policy_version: 4, behind_since, presence: 'gone' }), 9_000)).toBeNull();
  expect(lagS(row({ policy_version: 4, behind_since, presence: 'stopped' }), 9_000)).toBeNull();
  expect([duration(119), duration(120), duration(7_200), duration(200_000)]).toEqual([
    '119 s',
    '2 min',
    '2 h',
    '2 d',
  ]);
});

test('rows that changed are put where they belong, and forgotten ones are gone', () => {
  const known = mergeNodeRows(null, {
    items: [row({ node: 'z', presence: 'here' }), row({ node: 'b' })],
    whole: true,
  });
  const names = (rows: NodeRow[]) => rows.map(({ node, decisions }) => `${node}${decisions}`);
  const next = mergeNodeRows(known, {
    items: [row({ node: 'a' }), row({ node: 'b', decisions: 7 })],
    removed: [],
  });
  expect(names(next)).toEqual(['z0', 'a0', 'b7']);
  expect(names(mergeNodeRows(next, { items: [], removed: ['a'] }))).toEqual(['z0', 'b7']);
  expect(names(mergeNodeRows(next, { items: [row({ node: 'c' })], whole: true }))).toEqual(['c0']);
  expect(names(mergeNodeRows(null, { items: [row({ node: 'c' })] }))).toEqual(['c0']);
});

test('a figure of seconds has a gap where the node was not heard, and where nothing was measured', () => {
  const second = (at: number, p99_us: number | null): NodeSecond => ({
    ...{ t: at * 1000, allowed: 0, denied: 0 },
    ...{ p99_us, lag_s: at },
  });
  const seconds = [second(1, 38), second(2, null), second(3, 40), second(9, 41)];
  expect(columnOf(seconds, 'p99_us')).toEqual([
    [1, 2, 3, 6, 9],
    [38, null, 40, null, 41],
  ]);
  expect(columnOf(seconds, 'lag_s')[1]).toEqual([1, 2, 3, null, 9]);
});

test('a store is told in words, first that it is away', () => {
  const store = {
    is_away: false,
    faults: [],
    failed: 0,
    latency_us: 640,
    leased_out: 1200,
    overshoot_max: 0,
    untold_max: 0,
    sync_lag_ms: 0,
  };
  expect(storeWords(row({}))).toBe('');
  expect(storeWords(row({ store }))).toBe('Answers in 640 µs, 1,200 leased');
  expect(storeWords(row({ store: { ...store, latency_us: null, leased_out: 0 } }))).toBe(
    'Not asked just now',
  );
  const away = { ...store, is_away: true, leased_out: 0, sync_lag_ms: 104, untold_max: 30, overshoot_max: 8 };
  expect(storeWords(row({ store: away, degraded_per_second: 12 }))).toBe(
    '! Does not answer, 12/s without it, told after 104 ms',
  );
  const fault = (code: StoreFault) => ({ ...store, faults: [{ code, message: 'it is so; do this' }] });
  expect(storeWords(row({ store: fault('no_permission') }))).toBe('! Refuses, 1,200 leased');
  expect(storeTitle(fault('no_permission'))).toBe(
    'Store: it is so; do this (no_permission). 0 questions without an answer',
  );
  expect(storeTrouble(fault('evicts'))).toBe('! Keys at risk');
  expect(storeTrouble(fault('keys_lost'))).toBe('! Keys at risk');
  expect(storeTrouble(fault('unwatched'))).toBeNull();
  expect(storeTrouble(fault('timeout'))).toBe('! Does not answer');
  expect(storeTrouble(fault('no_secret'))).toBe('! Waits for the secret of its keys');
  expect(storeTitle(away)).toContain('30 tokens of a synced limit were spent here');
  expect(storeTitle(store)).toBe('0 questions without an answer');
});

test('the overshoot stands beside the bound of all nodes', () => {
  expect(overshootWords({ measured: 12, bound: 1_070, nodes: 4 })).toBe(
    '12 tokens at most; bound 1,070, of 4 nodes',
  );
  expect(overshootWords({ measured: 1, bound: 30, nodes: 1 })).toBe('1 token at most; bound 30, of 1 node');
  expect(overshootWords({ measured: 0, bound: 0, nodes: 2 })).toBe('none was used');
});
