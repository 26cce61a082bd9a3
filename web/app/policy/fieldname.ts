/** What a field is called on the screen. */
import { text } from '../text.ts';
import { placeOf } from './fields.ts';

const t = text.fields;
const KNOWN: Record<string, string> = {
  algorithm: t.algorithm,
  rate: t.rate,
  burst: t.burst,
  unlimited: t.unlimited,
  order: t.order,
};

export function fieldName(path: string): string {
  if (path === '') return t.whole;
  const { limit, field } = placeOf(path);
  if (field === null) return t.limit(limit ?? '');
  const name = KNOWN[field] ?? field.replace(/^\+/, '');
  return limit === null ? name : t.ofLimit(limit, name);
}
