/** What a publish would loosen, as the server says it, and whether that is meant: this, and nothing that comes later. */
import type { Loosened } from '../api/types.ts';

export class Loosens {
  items = $state.raw<Loosened[]>([]);
  #ticked = $state('');

  get meant(): boolean {
    return this.#ticked === JSON.stringify(this.items);
  }

  set meant(is: boolean) {
    this.#ticked = is ? JSON.stringify(this.items) : '';
  }

  /** Is it still to be asked for? */
  get asks(): boolean {
    return this.items.length > 0 && !this.meant;
  }
}
