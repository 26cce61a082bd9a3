/** The allowed and denied rates of each tier or each rule, from the event stream. */
import type { LimitCounts } from '../../api/schema.ts';
import { ownerName } from '../../policy/limitname.ts';
import { live } from './live.svelte.ts';

type Figures = Pick<LimitCounts, 'allowed_rate' | 'denied_rate' | 'shadow_denied_rate'>;

export class OwnerRates {
  readonly #kind: 'tier' | 'rule';
  /** By full name; null before the first event. */
  #figures = $state.raw<Record<string, Figures> | null>(null);

  constructor(kind: 'tier' | 'rule') {
    this.#kind = kind;
  }

  listen(): () => void {
    const topic = `metrics.${this.#kind}`;
    return live.listen(topic, [topic], (data) => {
      const { items } = data as { items: (Figures & { id: string })[] };
      this.#figures = Object.fromEntries(items.map((item) => [item.id, item]));
    });
  }

  of(domain: string, id: string): Figures | undefined {
    return this.#figures?.[ownerName(domain, this.#kind, id)];
  }
}
