/** What a person chose of the fields that later versions changed again. */
import type { Choice, Clash, Take } from '../api/schema.ts';

/** By which a choice is kept. */
export function clashName({ at }: Clash): string {
  return JSON.stringify([at.kind, at.domain, at.id, at.limit ?? null, at.field ?? null]);
}

export function choicesOf(clashes: Clash[], choices: Record<string, Take>): Choice[] {
  return clashes.flatMap((clash) => {
    const take = choices[clashName(clash)];
    return take ? [{ at: clash.at, take }] : [];
  });
}
