/** Turns a form into the object that the policy document has. */
import type { Kind, Limit, Objects } from '../api/types.ts';
import { faultsOf } from './faults.ts';
import {
  ABSENT,
  asSent,
  isUnlimited,
  RENAME,
  stated,
  type Form,
  type Grammar,
  type LimitFormRow,
} from './form.ts';
import { isRate, parseNumber, parseRate } from './rate.ts';

/** The document's object; null while the text has faults. */
export function valueOf<K extends Kind>(
  kind: K,
  id: string,
  form: Form,
  grammar: Grammar,
): Objects[K] | null {
  if (Object.keys(faultsOf(kind, form, grammar)).length > 0) return null;
  const fields = { ...form.fields };
  Reflect.deleteProperty(fields, RENAME);
  if (!isUnlimited(form) && (kind === 'tier' || kind === 'rule' || form.limits.length > 0)) {
    const limits = asSent(form, grammar).limits.map((row) => limitOf(row, grammar));
    fields[kind === 'client' ? 'override.limits' : 'limits'] = limits;
  }
  return { ...identityOf(kind, id), ...nested(stated(fields, ABSENT[kind])) } as unknown as Objects[K];
}

function identityOf(kind: Kind, id: string): Record<string, string> {
  if (kind === 'domain') return {};
  if (kind !== 'client') return { id };
  const at = id.indexOf(':');
  return { kind: id.slice(0, at), value: id.slice(at + 1) };
}

function nested(fields: Record<string, unknown>): Record<string, unknown> {
  const value: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(fields)) {
    const at = name.indexOf('.');
    if (at < 0) value[name] = field;
    else {
      const outer = name.slice(0, at);
      value[outer] = { ...(value[outer] as object | undefined), [name.slice(at + 1)]: field };
    }
  }
  return value;
}

function limitOf(row: LimitFormRow, grammar: Grammar): Limit {
  const rate = parseRate(row.rate, grammar.bounds.number_max, row.algorithm);
  if (!isRate(rate)) throw new Error('a row with faults has no limit');
  const limit: Limit = {
    id: row.id.trim(),
    algorithm: row.algorithm,
    ...rate,
    ...stated(row.fields),
  };
  const burst = parseNumber(row.burst, grammar.bounds.number_max);
  if (typeof burst === 'number') limit.burst = burst;
  return limit;
}
