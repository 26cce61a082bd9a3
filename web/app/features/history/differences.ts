/** What differs between two policies, as it is shown: object by object, as fields or as text. */
import type { Difference } from '../../lib/api/schema.ts';
import { fields as fieldsText } from '../../lib/text/fields.ts';
import { publish } from '../../lib/text/publish.ts';

export interface ObjectChange {
  name: string;
  /** The whole object came or went. */
  whole: 'new' | 'gone' | null;
  differences: Difference[];
}

export function objectName(kind: string, id: string, domain: string): string {
  // The settings of a domain are in no other.
  return publish.object(kind, id, kind === 'domain' ? 'default' : domain);
}

/** In the order in which the server tells them. */
export function byObject(differences: Difference[]): ObjectChange[] {
  const objects = new Map<string, ObjectChange>();
  for (const one of differences) {
    const name = objectName(one.kind, one.id, one.domain);
    const object = objects.get(name) ?? { name, whole: null, differences: [] };
    if (!one.field && !one.limit) object.whole = one.from === undefined ? 'new' : 'gone';
    object.differences.push(one);
    objects.set(name, object);
  }
  return [...objects.values()];
}

/** Where in its object a difference is: `second burst`, `limit second`; empty for all of it. */
export function fieldOf({ limit, field }: Pick<Difference, 'limit' | 'field'>): string {
  if (!limit) return field ?? '';
  return field ? fieldsText.ofLimit(limit, field) : fieldsText.limit(limit);
}

/** A value in one line; null where there is none. */
export function valueText(value: unknown): string | null {
  if (value === undefined) return null;
  return typeof value === 'string' ? value : JSON.stringify(value);
}

export interface DifferenceLine {
  sign: '-' | '+';
  text: string;
}

/** The same as lines of JSON that went and came. */
export function linesOf({ limit, field, from, to }: Difference): DifferenceLine[] {
  const name = field ?? limit ?? '';
  const lines = (sign: DifferenceLine['sign'], value: unknown): DifferenceLine[] => {
    if (value === undefined) return [];
    const written = JSON.stringify(value, null, 2);
    return (name === '' ? written : `${JSON.stringify(name)}: ${written}`)
      .split('\n')
      .map((line) => ({ sign, text: line }));
  };
  return [...lines('-', from), ...lines('+', to)];
}
