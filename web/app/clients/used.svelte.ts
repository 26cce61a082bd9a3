/** How much of their limits the clients on screen have used: asked for the rows that are seen, and no others. */
import { SvelteMap } from 'svelte/reactivity';
import type { Attachment } from 'svelte/attachments';
import { peek } from '../api/calls/clients.ts';
import type { Client } from '../api/types.ts';
import { isSingle } from './find.ts';
import { fullestOf, type Fullest } from './fullest.ts';

const FRESH_MS = 10_000;
const ROUND_MS = 1_000;
/** Every question goes to each node. */
const AT_ONCE = 4;

export class UsedNow {
  /** By id of the client; absent before the first answer, null where no limit applies or no node answered. */
  readonly byId = new SvelteMap<string, Fullest | null>();
  readonly #domain: string;
  // What is on screen, and when it was asked for, are nothing that is shown.
  // eslint-disable-next-line svelte/prefer-svelte-reactivity
  readonly #seen = new Map<Element, { id: string; client: Client }>();
  // eslint-disable-next-line svelte/prefer-svelte-reactivity
  readonly #askedAt = new Map<string, number>();
  readonly #rows = new WeakMap<Element, { id: string; client: Client }>();
  readonly #call = new AbortController();
  readonly #observer: IntersectionObserver;
  readonly #timer: ReturnType<typeof setInterval>;
  #asking = 0;

  constructor(domain: string) {
    this.#domain = domain;
    this.#observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const row = this.#rows.get(target);
        if (row && isIntersecting) this.#seen.set(target, row);
        else this.#seen.delete(target);
      }
      this.#ask();
    });
    this.#timer = setInterval(() => this.#ask(), ROUND_MS);
  }

  /** On each row of the table. */
  row(id: string, client: Client): Attachment {
    return (element) => {
      if (!isSingle(client.kind, client.value)) return;
      this.#rows.set(element, { id, client });
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

  #ask(): void {
    if (document.hidden) return;
    for (const row of this.#seen.values()) {
      if (this.#asking >= AT_ONCE) return;
      if (Date.now() - (this.#askedAt.get(row.id) ?? 0) > FRESH_MS) void this.#look(row.id, row.client);
    }
  }

  async #look(id: string, { kind, value }: Client): Promise<void> {
    this.#askedAt.set(id, Date.now());
    this.#asking += 1;
    try {
      const outcome = await peek(this.#domain, kind, value, this.#call.signal);
      this.byId.set(id, fullestOf(outcome));
    } catch {
      // The next round asks again; what was known stays.
    }
    this.#asking -= 1;
    if (!this.#call.signal.aborted) this.#ask();
  }
}
