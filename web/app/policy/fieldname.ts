/** What a field is called on the screen. */
import { fields as t } from '../text/fields.ts';
import { placeOf } from './fields.ts';

export function fieldName(path: string): string {
  if (path === '') return t.whole;
  const { limit, field } = placeOf(path);
  if (field === null) return t.limit(limit ?? '');
  const [outer, kind = ''] = field.split('.');
  const name = t.known[field] ?? (outer === 'defaults' && kind !== '' ? t.defaultOf(kind) : field);
  return limit === null ? name : t.ofLimit(limit, name);
}
