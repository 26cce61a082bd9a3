/** What a publish would loosen, and let start to refuse, as the server says it. */
import type { Loosened, StartsToRefuse } from '../../api/types.ts';

export class Effects {
  loosens = $state.raw<Loosened[]>([]);
  /** Told, and not asked about. */
  refuses = $state.raw<StartsToRefuse[]>([]);
  #ticked = $state('');

  /** As an answer has it; null: nothing is known. */
  tell(answer: { loosens: Loosened[]; starts_to_refuse: StartsToRefuse[] } | null | undefined): void {
    [this.loosens, this.refuses] = [answer?.loosens ?? [], answer?.starts_to_refuse ?? []];
  }

  /** Is it meant that it loosens this, and nothing that comes later? */
  get meant(): boolean {
    return this.#ticked === JSON.stringify(this.loosens);
  }

  set meant(is: boolean) {
    this.#ticked = is ? JSON.stringify(this.loosens) : '';
  }

  /** Asks what there is of them. Is it to be looked at before it is published: not meant yet, or not told before? */
  async stopAfter(ask: () => Promise<void>): Promise<boolean> {
    const told = JSON.stringify(this.refuses);
    await ask();
    return this.asks || (this.refuses.length > 0 && JSON.stringify(this.refuses) !== told);
  }

  /** Is it still to be asked for? */
  get asks(): boolean {
    return this.loosens.length > 0 && !this.meant;
  }
}
