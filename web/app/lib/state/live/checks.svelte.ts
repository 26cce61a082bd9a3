/** What the server finds wrong with objects of the policy, while a page listens. */
import type { Alert, HelloEvent, Kind } from '../../api/types.ts';
import { fields } from '../../text/fields.ts';
import { live } from './live.svelte.ts';

/** All that is found is told one by one, in one go. */
const TOGETHER_MS = 50;

export class Checks {
  // What follows it is shown as a whole.
  // eslint-disable-next-line svelte/prefer-svelte-reactivity
  readonly #open = new Map<string, Alert>();
  /** By object. */
  #found = $state.raw<Record<string, string[]>>({});
  #timer: ReturnType<typeof setTimeout> | undefined;

  listen(): () => void {
    const stop = live.listen('alerts', ['hello', 'alert'], (data, name) => {
      if (name !== 'hello') this.#hear(data as Alert & { state: 'opened' | 'closed' });
      else if (!(data as HelloEvent).resumed) this.#open.clear();
      this.#timer ??= setTimeout(() => this.#show(), TOGETHER_MS);
    });
    return () => {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      stop();
    };
  }

  of(kind: Kind, domain: string, id: string): string[] {
    return this.#found[nameOf(kind, domain, id)] ?? [];
  }

  #hear(alert: Alert & { state: 'opened' | 'closed' }): void {
    const key = `${alert.code} ${alert.node} ${JSON.stringify(alert.object)}`;
    if (alert.state === 'opened') this.#open.set(key, alert);
    else this.#open.delete(key);
  }

  #show(): void {
    this.#timer = undefined;
    const found: Record<string, string[]> = {};
    for (const { object, message } of this.#open.values()) {
      if (object === null) continue;
      const said = object.limit ? `${fields.limit(object.limit)}: ${message}` : message;
      (found[nameOf(object.kind, object.domain, object.id)] ??= []).push(said);
    }
    this.#found = found;
  }
}

function nameOf(kind: string, domain: string, id: string): string {
  return `${kind} ${domain} ${id}`;
}
