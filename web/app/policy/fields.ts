/** A form as a flat list of fields, which is how differences are shown and merges are made. */
import { formatRate, isRate, parseNumber, parseRate } from './rate.ts';
import type { LimitRow, TierForm } from './form.ts';

/** Text by path: `unlimited`, `+FIELD`, `limits/ID`, `limits/ID/rate`, `limits/ID/+FIELD`. */
export type Fields = Record<string, string>;

export function fieldsOf(form: TierForm): Fields {
  const fields: Fields = { unlimited: form.unlimited ? 'yes' : 'no' };
  for (const [name, value] of Object.entries(form.kept)) fields[`+${name}`] = JSON.stringify(value);
  if (form.unlimited) return fields;
  for (const row of form.limits) {
    const path = `limits/${row.id.trim()}`;
    fields[path] = 'yes';
    fields[`${path}/algorithm`] = row.algorithm;
    fields[`${path}/rate`] = plainRate(row);
    if (row.burst.trim() !== '') fields[`${path}/burst`] = plainNumber(row.burst);
    for (const [name, value] of Object.entries(row.kept)) fields[`${path}/+${name}`] = JSON.stringify(value);
  }
  return fields;
}

/** Two ways of writing one rate are one rate. */
function plainRate(row: LimitRow): string {
  const rate = parseRate(row.rate, Number.MAX_SAFE_INTEGER, row.algorithm);
  return isRate(rate) ? formatRate(rate) : row.rate.trim();
}

function plainNumber(text: string): string {
  const number = parseNumber(text, Number.MAX_SAFE_INTEGER);
  return typeof number === 'number' ? String(number) : text.trim();
}

export interface Place {
  /** The limit's id, or null for a field of the tier itself. */
  limit: string | null;
  /** The field's name, or null for the limit as a whole. */
  field: string | null;
}

export function placeOf(path: string): Place {
  const [first = '', limit, ...rest] = path.split('/');
  if (first !== 'limits' || limit === undefined) return { limit: null, field: path };
  return { limit, field: rest.length === 0 ? null : rest.join('/') };
}

export interface Difference extends Place {
  path: string;
  from: string | null;
  to: string | null;
}

/** What differs, in the order of the fields. A limit that came or went is one difference. */
export function differences(from: TierForm, to: TierForm): Difference[] {
  const [before, after] = [fieldsOf(from), fieldsOf(to)];
  const found: Difference[] = [];
  for (const path of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (before[path] === after[path]) continue;
    const place = placeOf(path);
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
    found.push({ path: 'order', limit: null, field: 'order', from: wasOrder, to: isOrder });
  return found;
}

/** The limits that both forms have, in the order of the first. */
function orderOf(form: TierForm, other: TierForm): string {
  if (form.unlimited || other.unlimited) return '';
  const ids = form.limits.map(({ id }) => id.trim());
  return ids.filter((id) => rowOf(other, id)).join(', ');
}

/** A limit in one line; null where the form has no such limit. */
export function rowText(form: TierForm, id: string | null): string | null {
  const row = form.unlimited ? undefined : rowOf(form, id);
  return row ? lineOf(row) : null;
}

function lineOf(row: LimitRow): string {
  const burst = row.burst.trim() === '' ? '' : `, burst ${plainNumber(row.burst)}`;
  return `${row.algorithm} ${plainRate(row)}${burst}`;
}

export function rowOf(form: TierForm, id: string | null): LimitRow | undefined {
  return form.limits.find((row) => row.id.trim() === id);
}

/** The whole form in one line. */
export function formText(form: TierForm): string {
  if (form.unlimited) return ['unlimited', ...keptText(form.kept)].join('; ');
  const rows = form.limits.flatMap((row) => [`${row.id.trim()} ${lineOf(row)}`, ...keptText(row.kept)]);
  return [...rows, ...keptText(form.kept)].join('; ');
}

function keptText(kept: Record<string, unknown>): string[] {
  return Object.entries(kept).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
}

export function sameForm(one: TierForm, other: TierForm): boolean {
  return formText(one) === formText(other);
}

/** What a form says at a path: of a field, of a limit, or, for the empty path, as a whole. */
export function textAt(form: TierForm, path: string): string | null {
  if (path === '') return formText(form);
  const { limit, field } = placeOf(path);
  return field === null ? rowText(form, limit) : (fieldsOf(form)[path] ?? null);
}
