/** The server's validation of a change list before it is published. */
import { validate } from '../../lib/api/calls.ts';
import { RefusedError } from '../../lib/api/request.ts';
import type { ChangeList, Problem, Warned } from '../../lib/api/types.ts';
import { Effects } from '../../lib/state/changes/effects.svelte.ts';

const PAUSE_MS = 250;

export class Validation {
  /** Warnings that the list causes. */
  warnings = $state.raw<Warned[]>([]);
  /** The reason why the server would refuse the list. */
  refused = $state.raw<Problem | null>(null);
  readonly effects = new Effects();

  /** Asks about a list that holds for a moment. Answers how to give that up. */
  follow(list: ChangeList | null): () => void {
    const call = new AbortController();
    // What cannot be asked now is told when it is published.
    const ask = () => this.ask(list, call.signal).catch(() => undefined);
    const timer = setTimeout(() => void ask(), PAUSE_MS);
    return () => {
      clearTimeout(timer);
      call.abort();
    };
  }

  /** Asks now. What is in conflict stays as it was told: publishing solves that. */
  async ask(list: ChangeList | null, signal = new AbortController().signal): Promise<void> {
    try {
      const found = list && (await validate(list, signal));
      if (signal.aborted) return;
      [this.warnings, this.refused] = [found?.warnings.filter(({ is_new }) => is_new) ?? [], null];
      this.effects.tell(found);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof RefusedError)) throw error;
      const { problem } = error;
      if (problem.status === 412) return;
      // A server that is busy says nothing of the list.
      [this.warnings, this.refused] = [[], problem.status < 500 && problem.status !== 429 ? problem : null];
      this.effects.tell(null);
    }
  }
}
