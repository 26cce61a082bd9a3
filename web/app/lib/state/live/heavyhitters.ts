/** The keys with the most denials, as rows of a list. */
import type { Heaviest } from '../../api/schema.ts';
import { identityText } from '../../policy/inspection.ts';

export interface HeavyHitterRow extends Heaviest {
  /** No other row's: values that are shown cut may look alike. */
  key: string;
}

export function heavyHitterRows(items: Heaviest[]): HeavyHitterRow[] {
  const seen: Record<string, number> = {};
  return items.map((one) => {
    const name = `${one.id} ${(one.identities ?? []).map(identityText).join(' ')}`;
    seen[name] = (seen[name] ?? 0) + 1;
    return { ...one, key: `${name} ${seen[name]}` };
  });
}
