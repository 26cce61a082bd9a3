/** How the clients on screen stand: asked for the rows that are seen, and no others, all in one call. */
import { SvelteMap } from 'svelte/reactivity';
import type { Attachment } from 'svelte/attachments';
import { getStandings, type Standing } from '../../lib/api/calls/clients.ts';
import type { Client } from '../../lib/api/types.ts';
import { afterPress } from '../../lib/dom/afterpress.ts';
import { Age } from '../../lib/state/live/age.svelte.ts';
import { isSingle } from './clientfilter.ts';

/** With the round that follows, before what is shown is old. */
const FRESH_MS = 2_000;
const ROUND_MS = 1_000;
/** The server takes no more. */
const AT_ONCE = 100;

export class ClientStandings {
  /** By id of the client; absent before the first answer. */
  readonly byId = new SvelteMap<string, Standing>();
  /** Nodes of which nothing was known at the last answer. */
  silent = $state.raw<string[]>([]);
  /** When the last answer came, or the waiting for the first began; null while there is nobody to ask about. */
  #heardAt = $state<number | null>(null);
  readonly age = new Age(() => this.#heardAt);
  readonly #domain: () => string;
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

  constructor(domain: () => string) {
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

  /** What was known was of another domain. */
  forget(): void {
    this.byId.clear();
    this.again();
    [this.silent, this.#heardAt] = [[], null];
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#observer.disconnect();
    this.#call.abort();
  }

  async #ask(): Promise<void> {
    if (document.hidden || this.#asking) return;
    const [now, domain] = [Date.now(), this.#domain()];
    if (this.#seen.size === 0) this.#heardAt = null;
    else this.#heardAt ??= now;
    const old = [...this.#seen.values()].filter((id) => now - (this.#askedAt.get(id) ?? 0) > FRESH_MS);
    const ids = old.slice(0, AT_ONCE);
    if (ids.length === 0) return;
    this.#asking = true;
    for (const id of ids) this.#askedAt.set(id, now);
    try {
      const { items, did_not_answer } = await getStandings(domain, ids, this.#call.signal);
      // Rows may grow by it, and what is being pressed below them must stay there.
      if (domain === this.#domain()) {
        afterPress(() => items.forEach((item) => this.byId.set(item.id, item)));
        [this.silent, this.#heardAt] = [did_not_answer, Date.now()];
      }
    } catch {
      // Another round asks again; what was known stays, and says how old it is.
    }
    this.#asking = false;
    if (!this.#call.signal.aborted && old.length > ids.length) void this.#ask();
  }
}
