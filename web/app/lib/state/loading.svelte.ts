/** Something that is read from the server: its state, and the old answer while a newer one is on its way. */
import { RefusedError } from '../api/request.ts';

export class Loading<Answer> {
  data = $state.raw<Answer | null>(null);
  error = $state.raw<unknown>(null);
  /** Since when an answer is being waited for. */
  since = $state<number | null>(null);
  /** When `data` came. */
  at = $state<number | null>(null);
  stopped = $state(false);
  gone = $derived(this.error instanceof RefusedError && this.error.problem.status === 404);
  readonly #ask: (signal: AbortSignal) => Promise<Answer>;
  #call: AbortController | null = null;
  /** Undefined before the first load. */
  #version: number | null | undefined;

  constructor(ask: (signal: AbortSignal) => Promise<Answer>) {
    this.#ask = ask;
  }

  /** Loads, and again whenever the policy has moved on; learning its version in the first place is no move. */
  follow(version: number | null): void {
    const known = this.#version;
    this.#version = version;
    if (known !== null || version === null) void this.load();
  }

  async load(): Promise<void> {
    this.#call?.abort();
    const call = new AbortController();
    this.#call = call;
    this.since = Date.now();
    this.stopped = false;
    try {
      const data = await this.#ask(call.signal);
      if (this.#call !== call) return;
      this.data = data;
      this.at = Date.now();
      this.error = null;
    } catch (error) {
      if (this.#call !== call) return;
      this.error = error;
    }
    this.since = null;
  }

  stop(): void {
    this.#call?.abort();
    this.#call = null;
    this.since = null;
    this.stopped = true;
  }
}
