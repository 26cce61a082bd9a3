/** The question of a run: what is asked of the fields, and the fields of what was asked. */
import { describe, expect, it } from 'vitest';
import { describeTraffic } from '../app/features/simulator/describerun.ts';
import { kindsOfLog } from '../app/features/simulator/logkinds.ts';
import {
  askOf,
  example,
  formOfAsk,
  parseRunForm,
  runFaults,
  type RunFields,
} from '../app/features/simulator/runform.ts';
import { newRow, PATTERN_NAMES, usual, type TrafficRow } from '../app/features/simulator/traffic.ts';
import type { Ask } from '../app/lib/api/schema.ts';

const LIST = { changes: [{ op: 'delete' as const, kind: 'tier' as const, id: 'free' }] };

function withRow(like: Partial<TrafficRow>): RunFields {
  return { ...example('default', 'live'), rows: [newRow([], like)] };
}

describe('what is asked', () => {
  it('the example is ready to run', () => {
    expect(runFaults(example('default', 'live'), null)).toEqual({});
    expect(askOf(example('web', 'live'), null)).toMatchObject({
      a: 'none',
      b: 'live',
      traffic: { made: { seed: 42, domain: 'web' } },
    });
  });

  it('a row, as it was typed', () => {
    const form = withRow({ clients: '1', value: ' ada ', tier: 'pro', rate: '6k per minute', for: '10 min' });
    Object.assign(form.rows[0] ?? {}, {
      request: 'post /v1/search',
      pattern: 'retry',
      parameters: ['1s', '5'],
    });
    const ask = askOf(form, null);
    expect(ask?.traffic).toEqual({
      made: {
        rows: [
          {
            clients: 1,
            kind: 'user',
            value: 'ada',
            tier: 'pro',
            pattern: { retry: { back_off: '1s', tries: 5 } },
            rate: 6000,
            per: '1m',
            for: '10m',
            method: 'POST',
            path: '/v1/search',
            cost: 1,
          },
        ],
        seed: 42,
        domain: 'default',
      },
    });
  });

  it.each([
    ['live', 'live'],
    ['none', 'none'],
    ['version:3', { version: 3 }],
    ['draft:a:b', { draft: 'a:b' }],
    ['mine', { changes: LIST }],
    ['document', { document: { domains: {} } }],
  ])('policy %s', (choice, asked) => {
    const form = example('default', 'live');
    form.b = { choice, document: '{"domains": {}}', given: null };
    expect(askOf(form, LIST)?.b).toEqual(asked);
  });

  it.each([
    ['2026-11-21', '2026-11-21T00:00:00Z'],
    ['2026-11-21 06:30', '2026-11-21T06:30:00Z'],
    ['2026-11-21T06:30:00+02:00', '2026-11-21T06:30:00+02:00'],
  ])('start %s', (start, asked) => {
    expect(askOf({ ...example('default', 'live'), start }, null)?.traffic).toMatchObject({
      made: { start: asked },
    });
  });

  it('the kinds of a log are its addresses and whom its field names', () => {
    expect(kindsOfLog({ clients: 2, users: 1, key: null })).toEqual(['ip', 'user']);
    expect(kindsOfLog({ clients: 0, users: 1, key: { field: 'k', kind: 'api_key' } })).toEqual(['api_key']);
    expect(kindsOfLog({ clients: 3, users: 0, key: { field: 'k', kind: 'ip' } })).toEqual(['ip']);
  });

  it('a log, and what was recorded', () => {
    const log: RunFields = { ...example('default', 'live'), source: 'log', upload: 'x' };
    expect(askOf(log, null)?.traffic).toEqual({ log: { upload: 'x', domain: 'default' } });
    expect(askOf({ ...log, source: 'recorded' }, null)?.traffic).toBe('recorded');
    const fixed = { ...log, tiers: { user: 'pro', ip: '' } };
    const ask = askOf(fixed, null);
    expect(ask?.traffic).toEqual({ log: { upload: 'x', domain: 'default', tiers: { user: 'pro' } } });
    expect(ask && formOfAsk(ask).tiers).toEqual({ user: 'pro' });
    expect(describeTraffic(ask)).toBe('a log, each user in tier pro');
  });
});

describe('faults stand where the server would name them', () => {
  it.each<[Partial<TrafficRow>, string, string]>([
    [{ clients: '0' }, '/traffic/made/rows/0/clients', 'clients'],
    [{ rate: 'fast' }, '/traffic/made/rows/0/rate', 'rate'],
    [{ for: '' }, '/traffic/made/rows/0/for', 'length'],
    [{ request: 'search' }, '/traffic/made/rows/0/request', 'request'],
    [{ cost: '1.5' }, '/traffic/made/rows/0/cost', 'whole'],
    [{ pattern: 'burst', parameters: ['x'] }, '/traffic/made/rows/0/pattern/requests', 'whole'],
    [{ pattern: 'on_off', parameters: ['1s', '2'] }, '/traffic/made/rows/0/pattern/off', 'length'],
  ])('%o', (like, pointer, fault) => {
    expect(runFaults(withRow(like), null)).toEqual({ [pointer]: fault });
    expect(askOf(withRow(like), null)).toBeNull();
  });

  it('of the rest', () => {
    const form = { ...example('default', 'mine'), rows: [], seed: 'x', start: 'soon' };
    form.a = { choice: 'document', document: '{', given: null };
    expect(runFaults(form, null)).toEqual({
      '/a/document': 'json',
      '/b/changes': 'changes',
      '/traffic/made/rows': 'rows',
      '/traffic/made/seed': 'seed',
      '/traffic/made/start': 'start',
    });
    expect(runFaults({ ...form, source: 'log' }, LIST)).toEqual({
      '/a/document': 'json',
      '/traffic/log/upload': 'upload',
    });
  });
});

describe('asked again', () => {
  it.each(PATTERN_NAMES)('pattern %s', (pattern) => {
    const form = withRow({ pattern, parameters: usual(pattern) });
    const ask = askOf({ ...form, start: '2026-11-21' }, null) as Ask;
    expect(askOf(formOfAsk(ask), null)).toEqual(ask);
  });

  it('a list of changes that is nobody’s any more', () => {
    const ask: Ask = { a: { version: 2 }, b: { changes: LIST }, traffic: 'recorded' };
    const form = formOfAsk(ask);
    expect(form.b.choice).toBe('given');
    expect(askOf(form, null)).toEqual(ask);
  });
});

it('what is kept is read again, and what is no question is not', () => {
  const form = example('default', 'live');
  expect(parseRunForm(JSON.stringify(form))).toEqual(form);
  // Of before there were tiers of a log.
  expect(parseRunForm(JSON.stringify({ ...form, tiers: undefined }))?.tiers).toEqual({});
  for (const text of ['', 'null', '{}', '{"rows":[{}]}', '[]']) expect(parseRunForm(text)).toBeNull();
});
