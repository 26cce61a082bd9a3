/** Table rows that keep their order while the pointer, the focus or a text selection is in them. */
import { untrack } from 'svelte';
import type { Attachment } from 'svelte/attachments';

export class SteadyRows<Row> {
  rows = $state.raw<Row[]>([]);
  /** So many rows would come, go or stand elsewhere. */
  waiting = $state(0);
  readonly #keyOf: (row: Row) => string;
  #newest: Row[] = [];
  #pointed = false;
  #focused = false;
  #element: HTMLElement | null = null;

  constructor(keyOf: (row: Row) => string) {
    this.#keyOf = keyOf;
  }

  /** Whoever asked for these rows wants them now. */
  show(rows: Row[]): void {
    this.#newest = rows;
    this.rows = rows;
    this.waiting = 0;
  }

  update(rows: Row[]): void {
    // Where there is none, none can move.
    if (this.rows.length === 0 || !this.#isBusy()) {
      this.show(rows);
      return;
    }
    this.#newest = rows;
    const newest = Object.fromEntries(rows.map((row) => [this.#keyOf(row), row]));
    const shown = this.rows.map(this.#keyOf);
    this.waiting =
      rows.filter((row, at) => shown[at] !== this.#keyOf(row)).length +
      Math.max(0, shown.length - rows.length);
    this.rows = this.rows.map((row) => newest[this.#keyOf(row)] ?? row);
  }

  /** Where the rows stand. */
  readonly region: Attachment<HTMLElement> = (element) => {
    this.#element = element;
    const set = (change: () => void) => () => {
      change();
      // Rows that are taken away while one is in them lose the focus in the middle of it.
      if (!this.#isBusy()) untrack(() => this.show(this.#newest));
    };
    const listeners: [string, () => void][] = [
      ['pointerenter', set(() => (this.#pointed = true))],
      ['pointerleave', set(() => (this.#pointed = false))],
      ['focusin', set(() => (this.#focused = true))],
      ['focusout', set(() => (this.#focused = false))],
    ];
    for (const [name, listener] of listeners) element.addEventListener(name, listener);
    return () => {
      for (const [name, listener] of listeners) element.removeEventListener(name, listener);
      [this.#pointed, this.#focused, this.#element] = [false, false, null];
    };
  };

  #isBusy(): boolean {
    const marked = getSelection();
    const isMarked =
      marked !== null &&
      !marked.isCollapsed &&
      this.#element !== null &&
      marked.containsNode(this.#element, true);
    return this.#pointed || this.#focused || isMarked;
  }
}
