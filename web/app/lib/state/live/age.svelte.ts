/** How old live figures are: from a few seconds on that is said, and later they are pale, with the time of the last ones. */
import { time, type Zone } from '../../format/format.ts';
import { states as t } from '../../text/states.ts';
import { clock } from '../clock.svelte.ts';
import { settings } from '../settings.svelte.ts';
import { live } from './live.svelte.ts';

const SAID_S = 3;
const PALE_S = 10;

/** Null: none are being waited for. */
export function aged(heardAt: number | null, nowMs: number, zone: Zone): { words: string; pale: boolean } {
  const seconds = heardAt === null ? 0 : Math.floor((nowMs - heardAt) / 1000);
  if (heardAt === null || seconds <= SAID_S) return { words: '', pale: false };
  if (seconds <= PALE_S) return { words: t.stale(seconds), pale: false };
  return { words: t.staleSince(time(heardAt, nowMs, zone)), pale: true };
}

export class Age {
  readonly #heardAt: () => number | null;
  readonly #now = $derived.by(() => aged(this.#heardAt(), clock.second, settings.times));

  constructor(heardAt: () => number | null) {
    this.#heardAt = heardAt;
  }

  /** Empty while they are new. */
  get words(): string {
    return this.#now.words;
  }
  get pale(): boolean {
    return this.#now.pale;
  }
}

/** Of what an event brings; before the first one they age since they were asked for. */
export function ageOf(event: () => string | undefined): Age {
  const begun = Date.now();
  return new Age(() => {
    const name = event();
    return name === undefined ? null : (live.heardOf[name] ?? begun);
  });
}
