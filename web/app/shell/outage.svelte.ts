/** The time since which the page is not live. A moment of reconnecting is no outage; ten seconds get a banner. */
import { clock } from '../lib/state/clock.svelte.ts';
import { live } from '../lib/state/live/live.svelte.ts';

const BANNER_MS = 10_000;
const LONG_MS = 3_000;

class Outage {
  since: number | null = $derived(
    live.connection === 'live' || live.connection === 'paused' || live.heardAt === null
      ? null
      : Math.max(live.heardAt, live.wantedAt),
  );
  #lasts: number = $derived(this.since === null ? 0 : clock.second - this.since);
  long: boolean = $derived(this.#lasts > LONG_MS);
  banner: boolean = $derived(this.#lasts > BANNER_MS);
}

export const outage = new Outage();
