/**
 * An object of the policy as text in fields: what the editors show, and what the change list keeps, so that also what is
 * not yet right survives. Fields that no editor knows stay as they came.
 */
import type { AlgorithmInfo, Bounds, Kind, Limit, Objects } from '../api/types.ts';
import { formatRate } from './rate.ts';

export interface LimitFormRow {
  /** Tells rows apart while their ids are being typed. */
  key: number;
  id: string;
  algorithm: string;
  rate: string;
  burst: string;
  /** All others, by name. */
  fields: Record<string, unknown>;
}

export interface Form {
  /** By name; those of an object in the object as `override.until`. */
  fields: Record<string, unknown>;
  /** Of a client those of its override. */
  limits: LimitFormRow[];
}

export type RowField = 'id' | 'algorithm' | 'rate' | 'burst';

export interface Grammar {
  algorithms: AlgorithmInfo[];
  bounds: Pick<
    Bounds,
    'number_max' | 'id_pattern' | 'limits_max' | 'message_bytes_max' | 'description_characters_max'
  >;
}

/** What a field means that is not there. */
export const ABSENT: Record<Kind | 'limit', Record<string, unknown>> = {
  tier: { unlimited: false },
  rule: { enabled: true, cost: 1 },
  client: {},
  domain: {},
  limit: { mode: 'enforce', sharing: 'local' },
};
/** Beside the fields of a tier or a rule: the name that it is to have. */
export const RENAME = 'rename';
/** Told by the id of the object. */
const IDENTITY = ['id', 'kind', 'value'];
const WITHOUT_LIMITS = ['unlimited', 'override.unlimited', 'override.blocked'];

export function emptyForm(kind: Kind): Form {
  return { fields: { ...ABSENT[kind] }, limits: [] };
}

export function formOf<K extends Kind>(kind: K, value: Objects[K]): Form {
  const form = emptyForm(kind);
  for (const [name, field] of Object.entries(value as Record<string, unknown>)) {
    if (name === 'limits') form.limits = (field as Limit[]).map(rowOf);
    else if (isObject(field)) {
      for (const [inner, one] of Object.entries(field)) {
        if (name === 'override' && inner === 'limits') form.limits = (one as Limit[]).map(rowOf);
        else put(form.fields, `${name}.${inner}`, one);
      }
      // Said, because an override that is sent without an end gets the usual one.
      if (name === 'override') form.fields['override.until'] ??= null;
    } else if (!IDENTITY.includes(name)) put(form.fields, name, field);
  }
  return form;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Can a form be made of it? What its numbers and texts say is looked at afterwards. */
export function hasShape(value: unknown): value is Record<string, unknown> {
  if (!isObject(value)) return false;
  const { override } = value;
  const limits = isObject(override) ? (override['limits'] ?? value['limits']) : value['limits'];
  if (limits === undefined || limits === null) return true;
  return Array.isArray(limits) && limits.every(isLimit);
}

function isLimit(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { limit, burst } = value;
  return (
    ['id', 'algorithm', 'period'].every((name) => typeof value[name] === 'string') &&
    typeof limit === 'number' &&
    (burst === undefined || burst === null || typeof burst === 'number')
  );
}

function put(fields: Record<string, unknown>, name: string, value: unknown): void {
  if (value !== null && value !== undefined) fields[name] = value;
}

/** A form that shares nothing with the one it was made from, which may be reactive. */
export function copyForm(form: Form): Form {
  return JSON.parse(JSON.stringify(form)) as Form;
}

function rowOf(limit: Limit, at: number): LimitFormRow {
  const { id, algorithm, limit: number, period, burst, ...others } = limit;
  const fields: Record<string, unknown> = { ...ABSENT.limit };
  for (const [name, value] of Object.entries(others)) put(fields, name, value);
  return {
    key: at + 1,
    id,
    algorithm,
    rate: formatRate({ limit: number, period }),
    burst: typeof burst === 'number' ? String(burst) : '',
    fields,
  };
}

export function newRow(form: Form, algorithm: string): LimitFormRow {
  const key = Math.max(0, ...form.limits.map((row) => row.key)) + 1;
  return { key, id: '', algorithm, rate: '', burst: '', fields: { ...ABSENT.limit } };
}

/** Without limits by choice: its rows, if there are any, are put aside. */
export function isUnlimited(form: Form): boolean {
  return WITHOUT_LIMITS.some((name) => form.fields[name] === true);
}

/** The name that a tier or a rule is to have; null where it keeps the one that it has. */
export function renamedTo(form: Form): string | null {
  const name = form.fields[RENAME];
  return typeof name === 'string' ? name : null;
}

/** Of a client. */
export function hasOverride(form: Form): boolean {
  return form.limits.length > 0 || Object.keys(form.fields).some((name) => name.startsWith('override.'));
}

export function takes(grammar: Grammar, algorithm: string, parameter: string): boolean {
  const known = grammar.algorithms.find(({ id }) => id === algorithm);
  return known?.parameters.includes(parameter) ?? false;
}

/** As it will be sent: a burst and a largest debt stand only where the algorithm has them. */
export function asSent(form: Form, grammar: Grammar): Form {
  return { ...form, limits: form.limits.map((row) => rowAsSent(row, grammar)) };
}

function rowAsSent(row: LimitFormRow, grammar: Grammar): LimitFormRow {
  const fields = { ...row.fields };
  if (!takes(grammar, row.algorithm, 'max_debt')) Reflect.deleteProperty(fields, 'max_debt');
  return { ...row, burst: takes(grammar, row.algorithm, 'burst') ? row.burst : '', fields };
}

/** Without what says only what its absence says. */
export function stated(
  fields: Record<string, unknown>,
  absent: Record<string, unknown> = ABSENT.limit,
): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([name, value]) => absent[name] !== value));
}
