/**
 * Two people changed one object: what both left alone stays, what one changed is taken, what both changed alike is no
 * conflict, and only a field that both changed differently is for a person to decide.
 */
import { fieldsOf, formText, ORDER, orderOf, rowOf, rowText, textAt, textOf } from './fields.ts';
import { copyForm, isUnlimited, type Form, type LimitFormRow } from './form.ts';

export interface FieldConflict {
  /** A field's path; `order`; `limits/ID` for a limit that one side removed; empty when one side made it unlimited. */
  path: string;
  base: string | null;
  theirs: string | null;
  yours: string | null;
}

export interface Merged {
  form: Form;
  clashes: FieldConflict[];
  /** Paths that were taken over from them. */
  taken: string[];
}

/** `yours` stands in the merged form wherever the two clash. */
export function merge(base: Form, theirs: Form, yours: Form): Merged {
  if (isUnlimited(theirs) !== isUnlimited(yours)) return mergeUnlimited(base, theirs, yours);
  const clashes: FieldConflict[] = [];
  const taken: string[] = [];
  const fields = mergeFields('', base.fields, theirs.fields, yours.fields, clashes, taken);
  if (isUnlimited(yours)) return { form: { ...yours, fields }, clashes, taken };
  const limits: LimitFormRow[] = [];
  const met = new Set<LimitFormRow>();
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
  const merged = { fields, limits: withOwnKeys(limits) };
  return { form: mergeOrder(merged, base, theirs, yours, clashes), clashes, taken };
}

/** The merged limits stand as theirs; where you moved any, as yours. */
function mergeOrder(merged: Form, base: Form, theirs: Form, yours: Form, clashes: FieldConflict[]): Form {
  if (orderOf(yours, base) === orderOf(base, yours)) return merged;
  if (orderOf(theirs, yours) === orderOf(yours, theirs)) return merged;
  if (orderOf(theirs, base) !== orderOf(base, theirs)) {
    const [was, their, your] = [base, theirs, yours].map((form) => textAt(form, ORDER));
    clashes.push({ path: ORDER, base: was ?? null, theirs: their ?? null, yours: your ?? null });
  }
  return orderedAs(yours, merged);
}

/** The limits in the order of `model`; those that it does not have stay behind the one that they follow. */
function orderedAs(model: Form, form: Form): Form {
  const ids = model.limits.map(({ id }) => id.trim());
  const placeOf = ({ id }: LimitFormRow) => ids.indexOf(id.trim());
  const limits = form.limits.filter((row) => placeOf(row) >= 0);
  limits.sort((one, other) => placeOf(one) - placeOf(other));
  form.limits.forEach((row, at) => {
    const before = form.limits[at - 1];
    if (placeOf(row) < 0) limits.splice(before ? limits.indexOf(before) + 1 : 0, 0, row);
  });
  return { ...form, limits };
}

/** One side has no limits any more: where the other changed any, the object as a whole is the question. */
function mergeUnlimited(base: Form, theirs: Form, yours: Form): Merged {
  const [was, their, your] = [base, theirs, yours].map((form) => formText(limitsOnly(form)));
  if (was !== their && was !== your) {
    const clash: FieldConflict = {
      path: '',
      base: formText(base),
      theirs: formText(theirs),
      yours: formText(yours),
    };
    return { form: yours, clashes: [clash], taken: [] };
  }
  const clashes: FieldConflict[] = [];
  const taken: string[] = [];
  const fields = mergeFields('', base.fields, theirs.fields, yours.fields, clashes, taken);
  return { form: { fields, limits: was === your ? theirs.limits : yours.limits }, clashes, taken };
}

/** Its limits, or that it has none. */
function limitsOnly(form: Form): Form {
  return isUnlimited(form)
    ? { fields: { unlimited: true }, limits: [] }
    : { fields: {}, limits: form.limits };
}

function mergeRow(
  id: string,
  base: Form,
  theirRow: LimitFormRow,
  yourRow: LimitFormRow,
  clashes: FieldConflict[],
  taken: string[],
): LimitFormRow {
  const path = `limits/${id}`;
  const baseRow = rowOf(base, id);
  const [baseFields, theirFields, yourFields] = [baseRow, theirRow, yourRow].map(rowFields);
  const merged: LimitFormRow = { ...yourRow };
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
  merged.fields = mergeFields(
    `${path}/`,
    baseRow?.fields ?? {},
    theirRow.fields,
    yourRow.fields,
    clashes,
    taken,
  );
  return merged;
}

function mergeFields(
  path: string,
  base: Record<string, unknown>,
  theirs: Record<string, unknown>,
  yours: Record<string, unknown>,
  clashes: FieldConflict[],
  taken: string[],
): Record<string, unknown> {
  const merged = { ...yours };
  for (const name of new Set([...Object.keys(theirs), ...Object.keys(yours), ...Object.keys(base)])) {
    const [was, their, your] = [base, theirs, yours].map((fields) => asText(fields[name]));
    if (their === your || their === was) continue;
    if (your === was) {
      if (name in theirs) merged[name] = theirs[name];
      else Reflect.deleteProperty(merged, name);
      taken.push(path + name);
    } else {
      const [from, there, here] = [base, theirs, yours].map((fields) => shown(fields[name]));
      clashes.push({ path: path + name, base: from ?? null, theirs: there ?? null, yours: here ?? null });
    }
  }
  return merged;
}

function shown(value: unknown): string | null {
  return value === undefined ? null : textOf(value);
}

/** The form after a clash was decided for them. It shares nothing with theirs: both are edited on. */
export function takeTheirs(form: Form, present: Form, path: string): Form {
  const theirs = copyForm(present);
  if (path === '') return theirs;
  if (path === ORDER) return orderedAs(theirs, form);
  const [first = '', id = '', field] = path.split('/');
  if (first !== 'limits') return { ...form, fields: fieldsWith(form.fields, theirs.fields, path) };
  const theirRow = rowOf(theirs, id);
  // A field of a limit that is no longer there brings the limit back.
  if (field === undefined || !rowOf(form, id)) {
    const others = form.limits.filter((row) => row.id.trim() !== id);
    return { ...form, limits: theirRow ? placed(others, theirRow, theirs.limits) : others };
  }
  const limits = form.limits.map((row) => {
    if (row.id.trim() !== id || !theirRow) return row;
    if (field === 'algorithm' || field === 'rate' || field === 'burst')
      return { ...row, [field]: theirRow[field] };
    return { ...row, fields: fieldsWith(row.fields, theirRow.fields, field) };
  });
  return { ...form, limits };
}

/** The rows with one of theirs among them: after the one that it follows with them, because order counts. */
function placed(rows: LimitFormRow[], theirRow: LimitFormRow, theirs: LimitFormRow[]): LimitFormRow[] {
  const before = theirs.slice(0, theirs.indexOf(theirRow)).map(({ id }) => id.trim());
  const at = Math.max(0, ...rows.map(({ id }, place) => (before.includes(id.trim()) ? place + 1 : 0)));
  const taken = rows.some(({ key }) => key === theirRow.key);
  const key = taken ? Math.max(...rows.map((row) => row.key)) + 1 : theirRow.key;
  return [...rows.slice(0, at), { ...theirRow, key }, ...rows.slice(at)];
}

function fieldsWith(yours: Record<string, unknown>, theirs: Record<string, unknown>, name: string) {
  const fields = { ...yours };
  if (name in theirs) fields[name] = theirs[name];
  else Reflect.deleteProperty(fields, name);
  return fields;
}

function sameRow(one: Form, other: Form, id: string): boolean {
  return asText(rowFields(rowOf(one, id))) === asText(rowFields(rowOf(other, id)));
}

function rowFields(row: LimitFormRow | undefined): Record<string, string> | undefined {
  return row && fieldsOf({ fields: {}, limits: [row] });
}

function clash(path: string, base: Form, theirs: Form, yours: Form, id: string): FieldConflict {
  return { path, base: rowText(base, id), theirs: rowText(theirs, id), yours: rowText(yours, id) };
}

function take(path: string, row: LimitFormRow, taken: string[]): LimitFormRow {
  taken.push(path);
  return row;
}

/** Rows that come from two lists may have equal keys; those of the first stay as they are. */
function withOwnKeys(rows: LimitFormRow[]): LimitFormRow[] {
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
