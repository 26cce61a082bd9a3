/**
 * A tier as text in fields: what the editor shows, and what the change list keeps, so that also what is not yet
 * right survives. Fields that the form does not know stay as they came.
 */
import type { AlgorithmInfo, Bounds, Limit, Tier } from '../api/types.ts';
import { formatRate, isRate, parseNumber, parseRate, type WrongRate } from './rate.ts';

export interface LimitRow {
  /** Tells rows apart while their ids are being typed. */
  key: number;
  id: string;
  algorithm: string;
  rate: string;
  burst: string;
  kept: Record<string, unknown>;
}

export interface TierForm {
  unlimited: boolean;
  limits: LimitRow[];
  kept: Record<string, unknown>;
}

export type RowField = 'id' | 'algorithm' | 'rate' | 'burst';

export type Fault =
  | { why: WrongRate }
  | { why: 'id' | 'id-twice' | 'burst-number' | 'burst-zero' | 'algorithm' | 'no-limits' | 'many-limits' };

/** Faults by place: `KEY/FIELD` of a row, or `limits` for the list as a whole. */
export type Faults = Record<string, Fault>;

export interface Grammar {
  algorithms: AlgorithmInfo[];
  bounds: Bounds;
}

export function formOf(tier: Tier): TierForm {
  const kept: Record<string, unknown> = { ...tier };
  for (const known of ['id', 'limits', 'unlimited']) Reflect.deleteProperty(kept, known);
  const { limits, unlimited } = tier;
  return { unlimited: unlimited === true, limits: (limits ?? []).map(rowOf), kept };
}

/** A form that shares nothing with the one it was made from, which may be reactive. */
export function copyForm(form: TierForm): TierForm {
  return JSON.parse(JSON.stringify(form)) as TierForm;
}

function rowOf(limit: Limit, at: number): LimitRow {
  const { id, algorithm, limit: number, period, burst, ...kept } = limit;
  return {
    key: at + 1,
    id,
    algorithm,
    rate: formatRate({ limit: number, period }),
    burst: burst === undefined ? '' : String(burst),
    kept,
  };
}

export function newRow(form: TierForm, algorithm: string): LimitRow {
  const key = Math.max(0, ...form.limits.map((row) => row.key)) + 1;
  return { key, id: '', algorithm, rate: '', burst: '', kept: {} };
}

export function takes(grammar: Grammar, algorithm: string, parameter: string): boolean {
  const known = grammar.algorithms.find(({ id }) => id === algorithm);
  return known?.parameters.includes(parameter) ?? false;
}

/** What is wrong with the text, by place. The server has the last word on everything else. */
export function faultsOf(form: TierForm, grammar: Grammar): Faults {
  if (form.unlimited) return {};
  const { bounds } = grammar;
  const faults: Faults = {};
  if (form.limits.length === 0) faults['limits'] = { why: 'no-limits' };
  if (form.limits.length > bounds.limits_max) faults['limits'] = { why: 'many-limits' };
  const idPattern = new RegExp(`^(?:${bounds.id_pattern})$`);
  for (const row of form.limits) {
    const note = (field: RowField, fault: Fault) => (faults[`${row.key}/${field}`] = fault);
    const id = row.id.trim();
    if (!idPattern.test(id)) note('id', { why: 'id' });
    else if (form.limits.some((other) => other.key < row.key && other.id.trim() === id))
      note('id', { why: 'id-twice' });
    if (row.algorithm === '') note('algorithm', { why: 'algorithm' });
    const rate = parseRate(row.rate, bounds.number_max, row.algorithm);
    if (!isRate(rate)) note('rate', { why: rate });
    if (row.burst.trim() !== '' && takes(grammar, row.algorithm, 'burst')) {
      const burst = parseNumber(row.burst, bounds.number_max);
      if (typeof burst === 'string') note('burst', { why: 'burst-number' });
      else if (burst === 0) note('burst', { why: 'burst-zero' });
    }
  }
  return faults;
}

/** As it will be sent: a burst stands only where the algorithm has one. */
export function asSent(form: TierForm, grammar: Grammar): TierForm {
  const limits = form.limits.map((row) =>
    takes(grammar, row.algorithm, 'burst') ? row : { ...row, burst: '' },
  );
  return { ...form, limits };
}

/** The document's tier; null while the text has faults. */
export function tierOf(id: string, form: TierForm, grammar: Grammar): Tier | null {
  if (Object.keys(faultsOf(form, grammar)).length > 0) return null;
  if (form.unlimited) return { id, ...form.kept, unlimited: true };
  return { id, ...form.kept, limits: form.limits.map((row) => limitOf(row, grammar)) };
}

function limitOf(row: LimitRow, grammar: Grammar): Limit {
  const rate = parseRate(row.rate, grammar.bounds.number_max, row.algorithm);
  if (!isRate(rate)) throw new Error('a row with faults has no limit');
  const limit: Limit = { id: row.id.trim(), algorithm: row.algorithm, ...rate, ...row.kept };
  const burst = parseNumber(row.burst, grammar.bounds.number_max);
  if (typeof burst === 'number' && takes(grammar, row.algorithm, 'burst')) limit.burst = burst;
  return limit;
}
