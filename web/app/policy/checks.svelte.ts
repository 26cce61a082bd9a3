/** What the server finds wrong with objects of the policy, while a page listens. */
import { SvelteMap } from 'svelte/reactivity';
import type { Alert, Kind } from '../api/types.ts';
import { live } from '../live/live.svelte.ts';
import { fields } from '../text/fields.ts';

export class Checks {
  readonly #open = new SvelteMap<string, Alert>();

  listen(): () => void {
    return live.listen('alerts', ['hello', 'alert'], (data, name) => {
      if (name === 'hello') return this.#open.clear();
      const alert = data as Alert & { state: 'opened' | 'closed' };
      const key = `${alert.code} ${alert.node} ${JSON.stringify(alert.object)}`;
      if (alert.state === 'opened') this.#open.set(key, alert);
      else this.#open.delete(key);
    });
  }

  of(kind: Kind, domain: string, id: string): string[] {
    return [...this.#open.values()]
      .filter(({ object }) => object?.kind === kind && object.domain === domain && object.id === id)
      .map(({ object, message }) => (object?.limit ? `${fields.limit(object.limit)}: ${message}` : message));
  }
}
