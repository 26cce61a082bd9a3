/** Watches one identity: asks nodes again and again for the decisions about it, for ten minutes at most. */
import { watchKey } from '../api/calls/live.ts';
import type { Identity, SeenDecision } from '../api/schema.ts';
import { Calm } from '../live/calm.svelte.ts';
import { failuresOf } from './states.ts';

export interface Seen extends SeenDecision {
  /** One more for each. */
  id: number;
  node: string;
}

const ROUND_MS = 1_500;
const MOST_MS = 600_000;
const KEPT = 50;

export class Watch {
  state = $state<'off' | 'on' | 'ended'>('off');
  since = $state<number | null>(null);
  failure = $state.raw<unknown>(null);
  /** Came, and had no room. */
  missed = $state(0);
  silent = $state.raw<string[]>([]);
  /** Of nodes that cannot, and why. */
  failed = $state.raw<string[]>([]);
  readonly calm = new Calm<Seen>(({ id }) => String(id));
  readonly #onRound: () => void;
  #call: AbortController | null = null;
  #seen: Seen[] = [];
  #last = 0;

  /** `onRound` is called after each answer. */
  constructor(onRound: () => void) {
    this.#onRound = onRound;
  }

  start(who: Identity): void {
    this.stop();
    [this.#seen, this.missed, this.failure] = [[], 0, null];
    this.calm.update([]);
    this.since = Date.now();
    this.state = 'on';
    const call = new AbortController();
    this.#call = call;
    void this.#run(who, call.signal, Date.now() + MOST_MS);
  }

  stop(): void {
    this.#call?.abort();
    this.#call = null;
    this.state = 'off';
  }

  async #run(who: Identity, signal: AbortSignal, until: number): Promise<void> {
    try {
      while (Date.now() < until) {
        await visible(signal);
        const { answers, did_not_answer } = await watchKey({ who, for_ms: ROUND_MS }, signal);
        if (signal.aborted) return;
        this.silent = did_not_answer;
        this.failed = failuresOf(answers);
        for (const [node, told] of Object.entries(answers)) {
          if (told.what !== 'watch') continue;
          this.missed += told.seen - told.decisions.length;
          for (const decision of told.decisions)
            this.#seen.push({ ...decision, node, id: (this.#last += 1) });
        }
        this.#seen.sort((one, other) => other.at_ms - one.at_ms || other.id - one.id);
        this.#seen = this.#seen.slice(0, KEPT);
        this.calm.update(this.#seen);
        this.#onRound();
      }
      this.state = 'ended';
    } catch (error) {
      if (signal.aborted) return;
      this.failure = error;
      this.state = 'off';
    }
  }
}

/** A tab that nobody sees asks nothing. */
function visible(signal: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener('visibilitychange', () => resolve(), { once: true, signal });
  });
}
