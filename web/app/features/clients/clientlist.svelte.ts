/** The rows of the list of clients that were read so far, page by page. */
import { getClients, type ClientFilter, type ClientPage } from '../../lib/api/calls/clients.ts';
import { Loading } from '../../lib/state/loading.svelte.ts';

const PAGE = 100;
/** The most that the server puts on a page. */
const PAGE_MAX = 500;

export interface ClientListQuery {
  domain: string;
  filter: ClientFilter;
  /** Only who is among the heaviest denied keys. */
  deniedNow: boolean;
  backwards: boolean;
}

export interface ClientListPage extends ClientPage {
  /** What it was asked for. */
  of: ClientListQuery;
}

export class ClientList {
  readonly loading = new Loading((signal) => this.#read(signal));
  readonly #wanted: () => ClientListQuery;
  #rows = PAGE;
  #isMore = false;

  constructor(wanted: () => ClientListQuery) {
    this.#wanted = wanted;
  }

  /** From the beginning, for another question. */
  restart(): void {
    this.#rows = PAGE;
    void this.loading.load();
  }

  more(): void {
    this.#rows = (this.loading.data?.items.length ?? 0) + PAGE;
    this.#isMore = true;
    void this.loading.load();
  }

  /** The next page after what there is; or, where the policy has moved on, all that was there anew. */
  async #read(signal: AbortSignal): Promise<ClientListPage> {
    const of = this.#wanted();
    let part = this.#isMore ? this.loading.data : null;
    this.#isMore = false;
    do {
      const items = part?.items ?? [];
      // Of the heaviest keys there are not many, and they are other ones by the next page.
      const limit = of.deniedNow ? PAGE_MAX : Math.min(PAGE_MAX, this.#rows - items.length);
      const page = { limit, after: part?.next ?? null, backwards: of.backwards };
      const next = await getClients(of, page, signal);
      part = { ...next, of, items: [...items, ...next.items] };
    } while (part.next !== null && part.items.length < this.#rows);
    return part;
  }
}
