/** The choices for fields that later versions changed again. */
import type { Choice, Clash, Take } from '../../lib/api/schema.ts';

/** By which a choice is kept: it was made of what the field is now. */
export function conflictName({ at, now }: Clash): string {
  return JSON.stringify([at.kind, at.domain, at.id, at.limit ?? null, at.field ?? null, now ?? null]);
}

export function choicesOf(clashes: Clash[], choices: Record<string, Take>): Choice[] {
  return clashes.flatMap((clash) => {
    const take = choices[conflictName(clash)];
    return take ? [{ at: clash.at, take }] : [];
  });
}
