/** A list that the server returns page by page: the first page, and the pages appended to it. */
import { Loading } from './loading.svelte.ts';

export interface ListPage<Item> {
  items: Item[];
  /** The cursor of the page that follows. */
  next: string | null;
}

export class PagedList<Item> extends Loading<ListPage<Item>> {
  #asksMore = false;

  constructor(ask: (cursor: string | null, signal: AbortSignal) => Promise<ListPage<Item>>) {
    super(async (signal) => {
      const before = this.#asksMore ? this.data : null;
      const page = await ask(before?.next ?? null, signal);
      return before ? { items: [...before.items, ...page.items], next: page.next } : page;
    });
  }

  override load(): Promise<void> {
    this.#asksMore = false;
    return super.load();
  }

  /** Reads the list again for what moves in it, unless more of it is shown than its first page. */
  refresh(): void {
    if (!this.#asksMore && this.since === null && this.data) void this.load();
  }

  more(): Promise<void> {
    this.#asksMore = true;
    return super.load();
  }
}
