/** What a run found, as it is drawn and exported, and what a preview asks. */
import { describe, expect, it } from 'vitest';
import { barsOf, columnsOf } from '../app/features/simulator/denials.ts';
import { formatDuration, formatOffset, wholeSteps } from '../app/features/simulator/durations.ts';
import { cell } from '../app/features/simulator/export.ts';
import { sourceOf, trafficFaults, trafficOf, usualTraffic } from '../app/features/simulator/preview.ts';
import { scaleOf } from '../app/features/simulator/strips.ts';

const bucket = (second: number, requests: number, denied_a: number, denied_b: number) => ({
  at: new Date(second * 1000).toISOString(),
  requests,
  denied_a,
  denied_b,
});

describe('ticks are at whole steps', () => {
  it.each([
    [0, 110, 8, [0, 15, 30, 45, 60, 75, 90, 105]],
    [7.838, 9.1, 8, [8, 8.2, 8.4, 8.6, 8.8, 9]],
    [-0.4, 86_400, 5, [0, 21_600, 43_200, 64_800, 86_400]],
    [0, 0.05, 8, [0]],
    [0, 4_000 * 86_400, 5, []],
  ])('from %d to %d seconds, about %d', (from, to, most, ticks) => {
    const steps = wholeSteps(from, to, most);
    if (ticks.length > 0) expect(steps.map((at) => Math.round(at * 10) / 10)).toEqual(ticks);
    expect(steps.length).toBeLessThanOrEqual(most + 1);
  });
});

describe('denials over time', () => {
  it('are a second, after the first bucket', () => {
    const columns = columnsOf({ bucket_ms: 2000, timeline: [bucket(10, 5, 2, 4), bucket(12, 5, 0, 1)] });
    expect(columns).toEqual([
      [0, 2],
      [1, 0],
      [2, 0.5],
    ]);
  });

  it('are none where no request was', () => {
    const timeline = [bucket(0, 1, 1, 1), bucket(1, 1, 1, 1), bucket(9, 1, 1, 1), bucket(11, 1, 1, 1)];
    const [times, a] = columnsOf({ bucket_ms: 1000, timeline });
    expect(times).toEqual([0, 1, 2, 8, 9, 10, 11]);
    expect(a).toEqual([1, 1, 0, 0, 1, 0, 1]);
  });

  it('bars are the part that is looked at', () => {
    const buckets = [bucket(0, 4, 1, 2), bucket(5, 4, 0, 4), bucket(9, 1, 0, 0)];
    expect(barsOf(buckets, 'denied_b', 1000, [4_000, 8_000])).toEqual([
      { from: 0.25, to: 0.5, allowed: 0, denied: 4 },
    ]);
    expect(barsOf(buckets, 'denied_a', 1000, [500, 10_000])[0]).toMatchObject({
      from: 0,
      allowed: 3,
      denied: 1,
    });
  });

  it('one burst does not flatten all others', () => {
    const bar = (allowed: number) => ({ from: 0, to: 1, allowed, denied: 0 });
    expect(scaleOf([[bar(500), ...Array.from({ length: 20 }, () => bar(2))]])).toEqual({
      allowed: 6,
      denied: 0,
    });
    expect(scaleOf([[bar(3), bar(2)]]).allowed).toBe(3);
    expect(scaleOf([])).toEqual({ allowed: 0, denied: 0 });
  });
});

describe('times', () => {
  it.each([
    [0, '00:00:00'],
    [72_480, '00:01:12.480'],
    [3_600_000, '01:00:00'],
  ])('%d ms after the beginning', (ms, text) => expect(formatOffset(ms)).toBe(text));

  it.each([
    [0, '0 s'],
    [520, '0.52 s'],
    [60_000, '60 s'],
    [180_000, '3 min'],
    [12.5 * 60_000, '12.5 min'],
    [86_400_000, '24 h'],
    [30 * 86_400_000, '30 d'],
  ])('%d ms long', (ms, text) => expect(formatDuration(ms)).toBe(text));
});

it.each([
  ['user:ada', 'user:ada'],
  [null, ''],
  [7, '7'],
  ['user:a,"b"', '"user:a,""b"""'],
])('a cell of CSV: %s', (value, text) => expect(cell(value)).toBe(text));

describe('the traffic of a preview', () => {
  it('is twice what the first limit lets through', () => {
    expect(usualTraffic([{ limit: 100, period: '1m' }])).toMatchObject({ rate: '200 / 1m', for: '3m' });
    expect(usualTraffic([{ limit: 0, period: '1s' }]).rate).toBe('1 / 1s');
    expect(usualTraffic([{ limit: 9_000_000, period: '1s' }]).rate).toBe('1000000 / 1s');
    expect(usualTraffic([{ limit: 5, period: 'day' }])).toMatchObject({ rate: '10 / 1d', for: '3d' });
    for (const limits of [[], [{ limit: 5, period: 'month' }]]) {
      expect(usualTraffic(limits)).toMatchObject({ rate: '10 / 1s', for: '20s' });
    }
  });

  it.each([
    ['tier' as const, {}, { tier: 'x' }],
    ['rule' as const, { endpoint: '*', per: 'everyone' }, { request: '' }],
    [
      'rule' as const,
      { endpoint: '/users/{id}', method: 'GET', per: 'ip' },
      { request: 'GET /users/x', kind: 'ip' },
    ],
    ['rule' as const, { endpoint: '/v1/*', per: ['user', 'ip'] }, { request: '/v1/', kind: 'user' }],
  ])('in the Simulator it meets the %s', (kind, fields, source) => {
    expect(sourceOf({ kind, id: 'x', form: { fields, limits: [] } })).toEqual(source);
  });

  it('as it is sent', () => {
    const made = { pattern: 'burst' as const, parameters: ['50'], rate: '10/s', for: '1 min' };
    const form = { ...made, isRecorded: false, client: '' };
    expect(trafficOf(form, 1e9)).toEqual({
      pattern: { burst: { requests: 50 } },
      rate: 10,
      per: '1s',
      for: '1m',
    });
    expect(trafficFaults({ ...form, parameters: [''], rate: 'x', for: 'y' }, 1e9)).toEqual({
      '/traffic/pattern/requests': 'whole',
      '/traffic/rate': 'rate',
      '/traffic/for': 'length',
    });
    const recorded = { ...form, isRecorded: true, rate: 'x', client: ' user:ada ' };
    expect(trafficFaults(recorded, 1e9)).toEqual({});
    expect(trafficOf(recorded, 1e9)).toEqual({ recorded: { client: 'user:ada' } });
    expect(trafficFaults({ ...recorded, client: 'ada' }, 1e9)).toEqual({
      '/traffic/recorded/client': 'identity',
    });
  });
});
