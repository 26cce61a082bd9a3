/** A form as a flat list of fields, which is how differences are shown and merges are made. */
import { fields as fieldsText } from '../text/fields.ts';
import { isObject, isUnlimited, stated, type Form, type LimitFormRow } from './form.ts';
import { formatRate, isRate, parseNumber, parseRate } from './rate.ts';

/** The path of the order of the limits. */
export const ORDER = 'order';

/** Text by path: `FIELD`, `limits/ID`, `limits/ID/rate`, `limits/ID/FIELD`. */
export type Fields = Record<string, string>;

export function fieldsOf(form: Form): Fields {
  const fields: Fields = {};
  for (const [name, value] of Object.entries(form.fields)) fields[name] = textOf(value);
  if (isUnlimited(form)) return fields;
  for (const row of form.limits) {
    const path = `limits/${row.id.trim()}`;
    fields[path] = 'yes';
    fields[`${path}/algorithm`] = row.algorithm;
    fields[`${path}/rate`] = plainRate(row);
    if (row.burst.trim() !== '') fields[`${path}/burst`] = plainNumber(row.burst);
    for (const [name, value] of Object.entries(row.fields)) fields[`${path}/${name}`] = textOf(value);
  }
  return fields;
}

export function textOf(value: unknown): string {
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'string') return value;
  if (value === null) return fieldsText.noEnd;
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return value.join(' + ');
  if (isObject(value)) {
    const parts = Object.entries(value).map(([name, one]) => `${name} ${textOf(one)}`);
    return parts.join(', ');
  }
  return JSON.stringify(value);
}

/** Two ways of writing one rate are one rate. */
function plainRate(row: LimitFormRow): string {
  const rate = parseRate(row.rate, Number.MAX_SAFE_INTEGER, row.algorithm);
  return isRate(rate) ? formatRate(rate) : row.rate.trim();
}

function plainNumber(text: string): string {
  const number = parseNumber(text, Number.MAX_SAFE_INTEGER);
  return typeof number === 'number' ? String(number) : text.trim();
}

export interface FieldPath {
  /** The limit's id, or null for a field of the object itself. */
  limit: string | null;
  /** The field's name, or null for the limit as a whole. */
  field: string | null;
}

export function parsePath(path: string): FieldPath {
  const [first = '', limit, ...rest] = path.split('/');
  if (first !== 'limits' || limit === undefined) return { limit: null, field: path };
  return { limit, field: rest.length === 0 ? null : rest.join('/') };
}

export interface FieldDifference extends FieldPath {
  path: string;
  from: string | null;
  to: string | null;
}

/** What differs, in the order of the fields. A limit that came or went is one difference. */
export function differences(from: Form, to: Form): FieldDifference[] {
  const [before, after] = [fieldsOf(from), fieldsOf(to)];
  const found: FieldDifference[] = [];
  for (const path of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (before[path] === after[path]) continue;
    const place = parsePath(path);
    const whole = place.limit === null ? null : `limits/${place.limit}`;
    if (whole !== null && path !== whole && before[whole] !== after[whole]) continue;
    if (path === whole) {
      found.push({ path, ...place, from: rowText(from, place.limit), to: rowText(to, place.limit) });
    } else {
      found.push({ path, ...place, from: before[path] ?? null, to: after[path] ?? null });
    }
  }
  const [wasOrder, isOrder] = [orderOf(from, to), orderOf(to, from)];
  if (wasOrder !== isOrder)
    found.push({ path: ORDER, limit: null, field: ORDER, from: wasOrder, to: isOrder });
  return found;
}

/** The limits that both forms have, in the order of the first. */
export function orderOf(form: Form, other: Form): string {
  if (isUnlimited(form) || isUnlimited(other)) return '';
  const ids = form.limits.map(({ id }) => id.trim());
  return [...new Set(ids)].filter((id) => rowOf(other, id)).join(', ');
}

/** A limit in one line; null where the form has no such limit. */
export function rowText(form: Form, id: string | null): string | null {
  const row = isUnlimited(form) ? undefined : rowOf(form, id);
  return row ? lineOf(row) : null;
}

function lineOf(row: LimitFormRow): string {
  const burst = row.burst.trim() === '' ? [] : [`burst ${plainNumber(row.burst)}`];
  return [`${row.algorithm} ${plainRate(row)}`, ...burst, ...othersText(stated(row.fields))].join(', ');
}

export function rowOf(form: Form, id: string | null): LimitFormRow | undefined {
  return form.limits.find((row) => row.id.trim() === id);
}

/** The whole form in one line, without what is as it is by itself. */
export function formText(form: Form): string {
  const rows = isUnlimited(form) ? [] : form.limits.map((row) => `${row.id.trim()} ${lineOf(row)}`);
  return [...rows, ...othersText(form.fields)].join('; ');
}

function othersText(fields: Record<string, unknown>): string[] {
  return Object.entries(fields)
    .filter(([, value]) => value !== false)
    .map(([name, value]) => (value === true ? name : `${name} ${textOf(value)}`));
}

export function sameForm(one: Form, other: Form): boolean {
  return exactText(one) === exactText(other);
}

function exactText(form: Form): string {
  const sorted = (fields: Record<string, unknown>) =>
    Object.entries(fields).sort(([first], [second]) => (first < second ? -1 : 1));
  const rows = isUnlimited(form)
    ? []
    : form.limits.map((row) => [row.id.trim(), lineOf(row), sorted(row.fields)]);
  return JSON.stringify([sorted(form.fields), rows]);
}

/** What a form says at a path: of a field, of a limit, or, for the empty path, as a whole. */
export function textAt(form: Form, path: string): string | null {
  if (path === '') return formText(form);
  if (path === ORDER) return form.limits.map(({ id }) => id.trim()).join(', ');
  const { limit, field } = parsePath(path);
  return field === null ? rowText(form, limit) : (fieldsOf(form)[path] ?? null);
}
