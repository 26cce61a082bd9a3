/** How often each client is denied just now, as far as it is among the most denied: estimated. */
import { getMostDenied } from '../api/calls/clients.ts';
import { parseLimitName } from '../policy/limitname.ts';

const KEYS = 100;
const EVERY_MS = 5_000;

export class Denied {
  readonly #domain: () => string;
  readonly #call = new AbortController();
  readonly #timer: ReturnType<typeof setInterval>;
  #byId = $state.raw<Record<string, number>>({});

  constructor(domain: () => string) {
    this.#domain = domain;
    this.#timer = setInterval(() => void this.#read(), EVERY_MS);
    void this.#read();
  }

  perMinute(id: string): number {
    return this.#byId[id] ?? 0;
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#call.abort();
  }

  async #read(): Promise<void> {
    if (document.hidden) return;
    try {
      const { items } = await getMostDenied(KEYS, this.#call.signal);
      const found: Record<string, number> = {};
      for (const { id, identities, per_minute } of items) {
        if (parseLimitName(id)?.domain !== this.#domain()) continue;
        for (const { kind, value } of identities ?? []) {
          const who = `${kind}:${value}`;
          found[who] = (found[who] ?? 0) + per_minute;
        }
      }
      this.#byId = found;
    } catch {
      // The next round asks again.
    }
  }
}
