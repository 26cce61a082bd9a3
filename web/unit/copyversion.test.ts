/** What going back to an older version means, as a change list. */
import { describe, expect, test, vi } from 'vitest';
import { keysOf, listFor } from '../app/features/history/copyversion.ts';
import { RefusedError } from '../app/lib/api/request.ts';
import type { Difference, Policy } from '../app/lib/api/schema.ts';

/** What there is now, by kind and id. */
const { present } = vi.hoisted(() => ({ present: new Map<string, string>() }));
vi.mock('../app/lib/api/calls.ts', async (original) => ({
  ...(await original<object>()),
  getObject: (kind: string, _domain: string, id: string) => {
    const etag = present.get(`${kind}:${id}`);
    return etag === undefined
      ? Promise.reject(new RefusedError({ code: 'not_found', title: '', status: 404 }))
      : Promise.resolve({ etag });
  },
}));
vi.stubGlobal('BroadcastChannel', vi.fn());

const tier = (id: string, limit: number) => ({
  id,
  limits: [{ id: 'minute', algorithm: 'token_bucket' as const, limit, period: '1m' }],
});
const policy = (domain: object): Policy => ({ domains: { default: domain } }) as Policy;
const differs = (kind: string, id: string, more: Partial<Difference> = {}): Difference => ({
  domain: 'default',
  kind,
  id,
  ...more,
});

describe('a version as a change list', () => {
  test('names each object once', () => {
    const keys = keysOf([
      differs('tier', 'pro', { field: 'a' }),
      differs('tier', 'pro', { field: 'b' }),
      differs('rule', 'pro'),
    ]);
    expect(keys).toEqual([
      { kind: 'tier', domain: 'default', id: 'pro' },
      { kind: 'rule', domain: 'default', id: 'pro' },
    ]);
  });

  test('creates what is gone, puts what is other, deletes what is new', async () => {
    present.set('tier:pro', '"tier:pro:4"').set('rule:export', '"rule:export:3"');
    const before = policy({ tiers: [tier('pro', 100), tier('old', 1)] });
    const keys = keysOf([differs('tier', 'pro'), differs('tier', 'old'), differs('rule', 'export')]);
    const list = await listFor(before, keys, 4);
    expect(list.changes.map(({ op, kind, id, value }) => [op, kind, id, value])).toEqual([
      ['put', 'tier', 'pro', tier('pro', 100)],
      ['create', 'tier', 'old', tier('old', 1)],
      ['delete', 'rule', 'export', undefined],
    ]);
    expect(list.base_version).toBe(4);
    expect(list.if_match).toEqual({ 'tier:pro': '"tier:pro:4"', 'rule:export': '"rule:export:3"' });
  });
});
