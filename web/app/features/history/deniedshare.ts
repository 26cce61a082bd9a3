/** Describes the share of denials just before and just after a version. */
import type { DecidedAround } from '../../lib/api/schema.ts';
import { share } from '../../lib/format/format.ts';
import * as words from '../../lib/text/history.ts';

/** Null where nothing is known of either. */
export function deniedAround({ before, after }: DecidedAround): string | null {
  if (!before && !after) return null;
  const of = (decided: typeof before) => decided && share(decided.denied, decided.allowed);
  return words.version.to(of(before) ?? words.history.none, of(after) ?? words.history.none);
}
