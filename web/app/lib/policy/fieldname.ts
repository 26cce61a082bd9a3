/** What a field is called on the screen. */
import { fields as t } from '../text/fields.ts';
import { parsePath } from './fields.ts';

export function fieldName(path: string): string {
  if (path === '') return t.whole;
  const { limit, field } = parsePath(path);
  if (field === null) return t.limit(limit ?? '');
  const name = t.known[field] ?? nameByKind(field) ?? field;
  return limit === null ? name : t.ofLimit(limit, name);
}

/** Fields of which there is one for each kind of identity: `defaults.KIND`, `where.KIND`. */
function nameByKind(field: string): string | null {
  const at = field.indexOf('.');
  const kind = field.slice(at + 1);
  if (at < 0 || kind === '') return null;
  return { defaults: t.defaultOf(kind), where: t.condition(kind) }[field.slice(0, at)] ?? null;
}
