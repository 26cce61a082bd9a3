/**
 * Two people changed one tier: what both left alone stays, what one changed is taken, what both changed alike is no
 * conflict, and only a field that both changed differently is for a person to decide.
 */
import { fieldsOf, formText, rowOf, rowText, sameForm } from './fields.ts';
import { copyForm, type LimitRow, type TierForm } from './form.ts';

export interface Clash {
  /** A field's path; `limits/ID` for a limit that one side removed; empty when one side made the tier unlimited. */
  path: string;
  base: string | null;
  theirs: string | null;
  yours: string | null;
}

export interface Merged {
  form: TierForm;
  clashes: Clash[];
  /** Paths that were taken over from them. */
  taken: string[];
}

/** `yours` stands in the merged form wherever the two clash. */
export function merge(base: TierForm, theirs: TierForm, yours: TierForm): Merged {
  if (theirs.unlimited !== yours.unlimited) return mergeUnlimited(base, theirs, yours);
  const clashes: Clash[] = [];
  const taken: string[] = [];
  const kept = mergeKept('', base.kept, theirs.kept, yours.kept, clashes, taken);
  if (yours.unlimited) return { form: { ...yours, kept }, clashes, taken };
  const limits: LimitRow[] = [];
  const met = new Set<LimitRow>();
  for (const theirRow of theirs.limits) {
    const id = theirRow.id.trim();
    const yourRow = rowOf(yours, id);
    if (yourRow) {
      met.add(yourRow);
      limits.push(mergeRow(id, base, theirRow, yourRow, clashes, taken));
    } else if (!rowOf(base, id)) limits.push(take(`limits/${id}`, theirRow, taken));
    else if (!sameRow(base, theirs, id)) clashes.push(clash(`limits/${id}`, base, theirs, yours, id));
  }
  for (const yourRow of yours.limits) {
    const id = yourRow.id.trim();
    if (met.has(yourRow)) continue;
    if (!rowOf(theirs, id) && rowOf(base, id) && sameRow(base, yours, id)) {
      taken.push(`limits/${id}`);
      continue;
    }
    if (rowOf(base, id) && !rowOf(theirs, id)) clashes.push(clash(`limits/${id}`, base, theirs, yours, id));
    limits.push(yourRow);
  }
  return { form: { ...yours, kept, limits: withOwnKeys(limits) }, clashes, taken };
}

/** One side has no limits any more: where the other changed any, the tier as a whole is the question. */
function mergeUnlimited(base: TierForm, theirs: TierForm, yours: TierForm): Merged {
  if (sameForm(base, yours)) return { form: theirs, clashes: [], taken: [''] };
  if (sameForm(base, theirs)) return { form: yours, clashes: [], taken: [] };
  const clash: Clash = { path: '', base: formText(base), theirs: formText(theirs), yours: formText(yours) };
  return { form: yours, clashes: [clash], taken: [] };
}

function mergeRow(
  id: string,
  base: TierForm,
  theirRow: LimitRow,
  yourRow: LimitRow,
  clashes: Clash[],
  taken: string[],
): LimitRow {
  const path = `limits/${id}`;
  const baseRow = rowOf(base, id);
  const [baseFields, theirFields, yourFields] = [baseRow, theirRow, yourRow].map(rowFields);
  const merged: LimitRow = { ...yourRow };
  for (const field of ['algorithm', 'rate', 'burst'] as const) {
    const [was, their, your] = [baseFields, theirFields, yourFields].map(
      (fields) => fields?.[`${path}/${field}`],
    );
    if (their === your || their === was) continue;
    if (your === was) {
      merged[field] = theirRow[field];
      taken.push(`${path}/${field}`);
    } else {
      clashes.push({
        path: `${path}/${field}`,
        base: was ?? null,
        theirs: their ?? null,
        yours: your ?? null,
      });
    }
  }
  merged.kept = mergeKept(`${path}/`, baseRow?.kept ?? {}, theirRow.kept, yourRow.kept, clashes, taken);
  return merged;
}

function mergeKept(
  path: string,
  base: Record<string, unknown>,
  theirs: Record<string, unknown>,
  yours: Record<string, unknown>,
  clashes: Clash[],
  taken: string[],
): Record<string, unknown> {
  const merged = { ...yours };
  for (const name of new Set([...Object.keys(theirs), ...Object.keys(yours), ...Object.keys(base)])) {
    const [was, their, your] = [base, theirs, yours].map((kept) => asText(kept[name]));
    if (their === your || their === was) continue;
    if (your === was) {
      if (name in theirs) merged[name] = theirs[name];
      else Reflect.deleteProperty(merged, name);
      taken.push(`${path}+${name}`);
    } else {
      clashes.push({
        path: `${path}+${name}`,
        base: was ?? null,
        theirs: their ?? null,
        yours: your ?? null,
      });
    }
  }
  return merged;
}

/** The form after a clash was decided for them. It shares nothing with theirs: both are edited on. */
export function takeTheirs(form: TierForm, present: TierForm, path: string): TierForm {
  const theirs = copyForm(present);
  if (path === '') return theirs;
  const [first = '', id = '', field] = path.split('/');
  if (first !== 'limits') return { ...form, kept: keptWith(form.kept, theirs.kept, first.slice(1)) };
  const theirRow = rowOf(theirs, id);
  // A field of a limit that is no longer there brings the limit back.
  if (field === undefined || !rowOf(form, id)) {
    const others = form.limits.filter((row) => row.id.trim() !== id);
    return { ...form, limits: theirRow ? placed(others, theirRow, theirs.limits) : others };
  }
  const limits = form.limits.map((row) => {
    if (row.id.trim() !== id || !theirRow) return row;
    if (field.startsWith('+')) return { ...row, kept: keptWith(row.kept, theirRow.kept, field.slice(1)) };
    return { ...row, [field]: theirRow[field as 'algorithm' | 'rate' | 'burst'] };
  });
  return { ...form, limits };
}

/** The rows with one of theirs among them: after the one that it follows with them, because order counts. */
function placed(rows: LimitRow[], theirRow: LimitRow, theirs: LimitRow[]): LimitRow[] {
  const before = theirs.slice(0, theirs.indexOf(theirRow)).map(({ id }) => id.trim());
  const at = Math.max(0, ...rows.map(({ id }, place) => (before.includes(id.trim()) ? place + 1 : 0)));
  const taken = rows.some(({ key }) => key === theirRow.key);
  const key = taken ? Math.max(...rows.map((row) => row.key)) + 1 : theirRow.key;
  return [...rows.slice(0, at), { ...theirRow, key }, ...rows.slice(at)];
}

function keptWith(yours: Record<string, unknown>, theirs: Record<string, unknown>, name: string) {
  const kept = { ...yours };
  if (name in theirs) kept[name] = theirs[name];
  else Reflect.deleteProperty(kept, name);
  return kept;
}

function sameRow(one: TierForm, other: TierForm, id: string): boolean {
  return asText(rowFields(rowOf(one, id))) === asText(rowFields(rowOf(other, id)));
}

function rowFields(row: LimitRow | undefined): Record<string, string> | undefined {
  return row && fieldsOf({ unlimited: false, limits: [row], kept: {} });
}

function clash(path: string, base: TierForm, theirs: TierForm, yours: TierForm, id: string): Clash {
  return { path, base: rowText(base, id), theirs: rowText(theirs, id), yours: rowText(yours, id) };
}

function take(path: string, row: LimitRow, taken: string[]): LimitRow {
  taken.push(path);
  return row;
}

/** Rows that come from two lists may have equal keys; those of the first stay as they are. */
function withOwnKeys(rows: LimitRow[]): LimitRow[] {
  const used = new Set<number>();
  return rows.map((row) => {
    let key = row.key;
    while (used.has(key)) key = Math.max(...used) + 1;
    used.add(key);
    return key === row.key ? row : { ...row, key };
  });
}

function asText(value: unknown): string | undefined {
  return value === undefined ? undefined : JSON.stringify(value);
}
