/** The end of a token's life, and the choices for it. */
import { age, type Zone } from '../../lib/format/format.ts';
import { fromField } from '../../lib/format/instant.ts';
import * as words from '../../lib/text/access.ts';

const SOON_MS = 14 * 24 * 3_600_000;

export interface Expiry {
  words: string;
  /** The end is near. */
  soon: boolean;
}

/** Null: it has no end. */
export function expiryOf(instant: string | null, nowMs: number): Expiry {
  if (instant === null) return { words: words.tokens.noEnd, soon: false };
  const at = Date.parse(instant);
  const left = age(nowMs, at);
  return {
    words: left === null ? words.tokens.soon : words.tokens.in(left),
    soon: at - nowMs < SOON_MS,
  };
}

export type ExpiryChoice = 'month' | 'usual' | 'year' | 'day' | 'none';

const DAY_MS = 24 * 3_600_000;

/** Returns the end for the server: null for none, undefined for the server's default. A day counts to its end. */
export function expiresAt(
  ending: ExpiryChoice,
  day: string,
  zone: Zone,
  nowMs: number,
): string | null | undefined {
  if (ending === 'none') return null;
  if (ending === 'usual') return undefined;
  if (ending === 'day') return fromField(`${day}T23:59`, zone);
  return new Date(nowMs + (ending === 'month' ? 30 : 365) * DAY_MS).toISOString();
}
