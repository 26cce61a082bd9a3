/**
 * What the preview of a tier or rule asks for: the traffic of one client, made so that the limits have something to say, or
 * as it was recorded.
 */
import type { PreviewTraffic } from '../../lib/api/schema.ts';
import { parseIdentity } from '../../lib/policy/inspection.ts';
import { parsePeriod, periodMs } from '../../lib/policy/period.ts';
import { formatRate, isRate, parseRate } from '../../lib/policy/rate.ts';
import type { Entry } from '../../lib/state/changes/entry.ts';
import type { Bar } from './strips.ts';
import {
  patternFaults,
  patternOf,
  usual,
  type PatternName,
  type RunFaults,
  type TrafficRow,
} from './traffic.ts';

export interface TrafficForm {
  pattern: PatternName;
  parameters: string[];
  rate: string;
  for: string;
  /** The recorded requests of this client, `KIND:VALUE`, instead. */
  isRecorded: boolean;
  client: string;
}

/** The most that the server takes. */
const RATE_MAX = 1_000_000;

export const PREVIEW_PATTERNS: PatternName[] = ['steady', 'poisson', 'burst', 'waves', 'on_off'];

/** Twice what the first limit lets through, for three of its periods. */
export function usualTraffic(limits: { limit: number; period: string }[]): TrafficForm {
  const first = limits[0];
  const steady: TrafficForm = {
    pattern: 'steady',
    parameters: usual('steady'),
    rate: '10 / 1s',
    for: '20s',
    isRecorded: false,
    client: '',
  };
  const lengthMs = first ? periodMs(parsePeriod(first.period, '') ?? '') : null;
  if (!first || lengthMs === null) return steady;
  const [period = '', number = '', unit = ''] = /^(\d+)(.*)$/.exec(parsePeriod(first.period, '') ?? '') ?? [];
  const rate = formatRate({ limit: Math.min(RATE_MAX, Math.max(1, first.limit * 2)), period });
  return { ...steady, rate, for: `${3 * Number(number)}${unit}` };
}

/** By the pointer into the question, as the server names what is wrong. */
export function trafficFaults(form: TrafficForm, numberMax: number): RunFaults {
  if (form.isRecorded) return parseIdentity(form.client) ? {} : { '/traffic/recorded/client': 'identity' };
  const faults = patternFaults(form, '/traffic');
  if (!isRate(parseRate(form.rate, numberMax, ''))) faults['/traffic/rate'] = 'rate';
  if (parsePeriod(form.for, '') === null) faults['/traffic/for'] = 'length';
  return faults;
}

/** Of a form without faults. */
export function trafficOf(form: TrafficForm, numberMax: number): PreviewTraffic | null {
  if (form.isRecorded) return { recorded: { client: form.client.trim() } };
  const rate = parseRate(form.rate, numberMax, '');
  const length = parsePeriod(form.for, '');
  if (!isRate(rate) || length === null) return null;
  return {
    pattern: patternOf(form.pattern, form.parameters),
    rate: rate.limit,
    per: rate.period,
    for: length,
  };
}

export function barsOf(buckets: number[][]): Bar[] {
  return buckets.map(([allowed = 0, denied = 0], at) => ({
    from: at / buckets.length,
    to: (at + 1) / buckets.length,
    allowed,
    denied,
  }));
}

/** Somebody whose requests meet a tier or a rule. */
export function sourceOf({ kind, id, form }: Pick<Entry, 'kind' | 'id' | 'form'>): Partial<TrafficRow> {
  if (kind === 'tier') return { tier: id };
  const { method, endpoint, per } = form.fields;
  const path = typeof endpoint === 'string' ? endpoint.replace(/\{[^}]*\}/g, 'x').replace(/\*$/, '') : '';
  const whom = Array.isArray(per) ? (per as unknown[])[0] : per;
  return {
    request: [method, path].filter((part) => typeof part === 'string' && part !== '').join(' '),
    ...(typeof whom === 'string' && whom !== 'everyone' ? { kind: whom } : {}),
  };
}
