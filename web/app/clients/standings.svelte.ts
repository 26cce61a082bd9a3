/** How the clients on screen stand: asked for the rows that are seen, and no others, all in one call. */
import { SvelteMap } from 'svelte/reactivity';
import type { Attachment } from 'svelte/attachments';
import { getStandings, type Standing } from '../api/calls/clients.ts';
import type { Client } from '../api/types.ts';
import { isSingle } from './find.ts';
import { afterPress } from '../ui/press.ts';

const FRESH_MS = 5_000;
const ROUND_MS = 1_000;
/** The server takes no more. */
const AT_ONCE = 100;

export class StandingNow {
  /** By id of the client; absent before the first answer. */
  readonly byId = new SvelteMap<string, Standing>();
  readonly #domain: string;
  // What is on screen, and when it was asked for, are nothing that is shown.
  // eslint-disable-next-line svelte/prefer-svelte-reactivity
  readonly #seen = new Map<Element, string>();
  // eslint-disable-next-line svelte/prefer-svelte-reactivity
  readonly #askedAt = new Map<string, number>();
  readonly #rows = new WeakMap<Element, string>();
  readonly #call = new AbortController();
  readonly #observer: IntersectionObserver;
  readonly #timer: ReturnType<typeof setInterval>;
  #asking = false;

  constructor(domain: string) {
    this.#domain = domain;
    this.#observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const id = this.#rows.get(target);
        if (id !== undefined && isIntersecting) this.#seen.set(target, id);
        else this.#seen.delete(target);
      }
      void this.#ask();
    });
    this.#timer = setInterval(() => void this.#ask(), ROUND_MS);
  }

  /** On each row of the table. */
  row(id: string, client: Client): Attachment {
    return (element) => {
      if (!isSingle(client.kind, client.value)) return;
      this.#rows.set(element, id);
      this.#observer.observe(element);
      return () => {
        this.#observer.unobserve(element);
        this.#seen.delete(element);
      };
    };
  }

  /** After a publish: what was known may no longer hold. */
  again(): void {
    this.#askedAt.clear();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#observer.disconnect();
    this.#call.abort();
  }

  async #ask(): Promise<void> {
    if (document.hidden || this.#asking) return;
    const now = Date.now();
    const old = [...this.#seen.values()].filter((id) => now - (this.#askedAt.get(id) ?? 0) > FRESH_MS);
    const ids = old.slice(0, AT_ONCE);
    if (ids.length === 0) return;
    this.#asking = true;
    for (const id of ids) this.#askedAt.set(id, now);
    try {
      const { items } = await getStandings(this.#domain, ids, this.#call.signal);
      // Rows may grow by it, and what is being pressed below them must stay there.
      afterPress(() => items.forEach((item) => this.byId.set(item.id, item)));
    } catch {
      // Another round asks again; what was known stays.
    }
    this.#asking = false;
    if (!this.#call.signal.aborted && old.length > ids.length) void this.#ask();
  }
}
