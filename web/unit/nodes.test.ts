/** What a node's row means for a version. */
import { expect, test } from 'vitest';
import type { NodeRow } from '../app/api/schema.ts';
import { duration, lagS, standing } from '../app/nodes/words.ts';

const row = (over: Partial<NodeRow>): NodeRow => ({
  node: 'a',
  presence: 'connected',
  address: '',
  version: '1',
  schema: 1,
  target_version: 5,
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

test('lag counts from the publish, as far as that is known', () => {
  const newest = { version: 5, publishedAt: 1_000 };
  expect(lagS(row({}), newest, 9_000)).toBe(0);
  expect(lagS(row({ policy_version: 4 }), newest, 9_500)).toBe(8);
  expect(lagS(row({ policy_version: 4 }), { ...newest, publishedAt: null }, 9_000)).toBeNull();
  expect(lagS(row({ policy_version: 3, target_version: 4 }), newest, 9_000)).toBeNull();
  expect(lagS(row({ policy_version: 4, presence: 'gone' }), newest, 9_000)).toBeNull();
  expect([duration(119), duration(120), duration(7_200), duration(200_000)]).toEqual([
    '119 s',
    '2 min',
    '2 h',
    '2 d',
  ]);
});
