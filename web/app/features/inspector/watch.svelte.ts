/** Watches one identity: the stream tells of the decisions about it, for ten minutes at most. */
import type { Identity } from '../../lib/api/schema.ts';
import type { DecisionEvent, KeyEvent, WatchedDecision } from '../../lib/api/types.ts';
import { live } from '../../lib/state/live/live.svelte.ts';
import { SteadyRows } from '../../lib/state/live/steadyrows.svelte.ts';
import type { Loading } from '../../lib/state/loading.svelte.ts';
import { untold } from '../../lib/text/states.ts';

const ROUND_MS = 1_500;
const MOST_MS = 600_000;
const KEPT = 50;
/** A node that joined later than that after the others is named. */
const LATER_MS = 3_000;

/** A decision, or a time in which nobody watched. */
export type WatchLine = { key: string } & ({ seen: WatchedDecision } | { fromMs: number; toMs: number });

export class Watch {
  state = $state<'off' | 'on' | 'ended'>('off');
  /** By the server's clock. */
  since = $state<number | null>(null);
  /** Came, and had no room. */
  missed = $state(0);
  silent = $state.raw<string[]>([]);
  /** Of nodes that cannot, and why. */
  failed = $state.raw<string[]>([]);
  /** Of which not all is seen since then. */
  later = $state.raw<[node: string, sinceMs: number][]>([]);
  readonly calm = new SteadyRows<WatchLine>(({ key }) => key);
  readonly #answer: Pick<Loading<unknown>, 'since' | 'load'>;
  #leave: (() => void) | null = null;
  #end: ReturnType<typeof setTimeout> | undefined;
  #rounds: ReturnType<typeof setInterval> | undefined;
  #seen: WatchedDecision[] = [];
  /** Number of the newest decision. */
  #last = 0;
  /** Of watches before this one, the stream of which was lost. */
  #before: WatchLine[] = [];
  /** When the stream was heard last, by the server's clock, and when it was before it was opened anew. */
  #heardMs = 0;
  #lostMs = 0;

  /** `answer` is read again and again while somebody watches. */
  constructor(answer: Pick<Loading<unknown>, 'since' | 'load'>) {
    this.#answer = answer;
  }

  start({ kind, value }: Identity): void {
    this.stop();
    [this.#before, this.missed] = [[], 0];
    this.#begin(null);
    this.state = 'on';
    this.#leave = live.listen(`key:${kind}:${value}`, ['hello', 'key', 'decision'], (data, name) => {
      if (name === 'hello') this.#lostMs = this.#heardMs;
      else if (name === 'key') this.#know(data as KeyEvent);
      else this.#see(data as DecisionEvent);
    });
    this.#hear();
    this.#rounds = setInterval(() => {
      this.#hear();
      // A load ends the one before: where a node is slow to answer none would ever come to its end.
      if (!document.hidden && this.#answer.since === null) void this.#answer.load();
    }, ROUND_MS);
    this.#end = setTimeout(() => {
      this.stop();
      this.state = 'ended';
    }, MOST_MS);
  }

  stop(): void {
    clearTimeout(this.#end);
    clearInterval(this.#rounds);
    this.#leave?.();
    this.#leave = null;
    this.state = 'off';
  }

  #begin(since: number | null): void {
    [this.#seen, this.#last] = [[], 0];
    [this.since, this.silent, this.failed, this.later] = [since, [], [], []];
    this.calm.show(this.#before);
  }

  #hear(): void {
    this.#heardMs = (live.heardAt ?? Date.now()) + live.clockOffsetMs;
  }

  /** The newest first; numbers begin anew with each watch. */
  #lines(): WatchLine[] {
    const now = this.#seen.map((seen) => ({ key: `${this.since} ${seen.number}`, seen }));
    return [...now, ...this.#before].slice(0, KEPT);
  }

  #know(event: KeyEvent): void {
    if ('refused' in event) {
      this.stop();
      this.failed = [event.refused];
      return;
    }
    const { since_ms, nodes, silent, failed } = event;
    if (since_ms !== this.since) {
      // What is known stays, and that it is not all.
      if (this.since !== null) {
        const gap = { key: `until ${since_ms}`, fromMs: Math.min(this.#lostMs, since_ms), toMs: since_ms };
        this.#before = [gap, ...this.#lines()];
      }
      this.#begin(since_ms);
    }
    this.silent = silent;
    this.failed = Object.entries(failed).map(([node, why]) => untold.failed(node, why));
    this.later = Object.entries(nodes).filter(([, since]) => since - since_ms > LATER_MS);
  }

  #see({ decisions }: DecisionEvent): void {
    // A stream that was opened anew tells again what is known.
    const fresh = decisions.filter(({ number }) => number > this.#last);
    const last = fresh.at(-1)?.number ?? this.#last;
    this.missed += last - this.#last - fresh.length;
    this.#last = last;
    this.#seen = this.#seen
      .concat(fresh)
      .sort((one, other) => other.at_ms - one.at_ms || other.number - one.number)
      .slice(0, KEPT);
    this.calm.update(this.#lines());
  }
}
