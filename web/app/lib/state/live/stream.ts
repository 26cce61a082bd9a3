/**
 * The tab's one event stream. The browser sees neither the status of a refused stream nor a silence, so an error is
 * followed by a look at the session, and 20 s without an event count as an error. A hidden tab gives its connection
 * back after 10 s: a browser has six to a host.
 */

export type Connection = 'connecting' | 'live' | 'reconnecting' | 'signed-out' | 'paused';

export interface StreamHooks {
  /** `last`: the id of the last event of the stream that was lost, to go on from there. */
  open(last: string | null): EventSource;
  /** Is there a session, none, or no answer? */
  probe(): Promise<'in' | 'out' | 'down'>;
  onEvent(name: string, data: unknown): void;
  onConnection(connection: Connection): void;
}

export const EVENTS = [
  'hello',
  'metrics',
  'metrics.tier',
  'metrics.rule',
  'top',
  'node',
  'alert',
  'audit',
  'key',
  'decision',
  'policy.published',
  'policy.applied',
  'policy.rollout',
  'sim.progress',
  'sim.done',
  'bye',
];

const SILENCE_MS = 20_000;
const RETRY_MS = 2_000;
/** When the server answers; twice as long each time that it is in vain. */
const RETRY_SOON_MS = 500;
const RETRY_MAX_MS = 16_000;
const HIDDEN_MS = 10_000;

type Timer = ReturnType<typeof setTimeout>;

export class Stream {
  readonly #hooks: StreamHooks;
  #source: EventSource | null = null;
  #connection: Connection = 'paused';
  #watchdog: Timer | undefined;
  #retry: Timer | undefined;
  #hiding: Timer | undefined;
  /** Counts openings and closings: an answer to a question of before is not heard. */
  #epoch = 0;
  #last: string | null = null;
  /** Openings since the last event. */
  #inVain = 0;

  constructor(hooks: StreamHooks) {
    this.#hooks = hooks;
  }

  /** Opens the stream, also after signing in again. */
  start(): void {
    this.#close();
    this.#last = null;
    this.#become('connecting');
    this.#connect();
  }

  /** Opens it anew, for other topics: what is seen stays live meanwhile. One that is not open will be opened so. */
  renew(): void {
    // Whoever listens from now on is to be told how things are.
    this.#last = null;
    if (this.#source === null) return;
    this.#close();
    this.#connect();
  }

  stop(): void {
    clearTimeout(this.#hiding);
    this.#close();
    this.#become('paused');
  }

  setVisible(visible: boolean): void {
    clearTimeout(this.#hiding);
    if (this.#connection === 'signed-out') return;
    if (visible && this.#connection === 'paused') this.start();
    if (!visible) {
      this.#hiding = setTimeout(() => this.stop(), HIDDEN_MS);
    }
  }

  #connect(): void {
    const source = this.#hooks.open(this.#last);
    this.#source = source;
    this.#watch();
    source.addEventListener('error', () => void this.#lost(source));
    for (const name of EVENTS) {
      source.addEventListener(name, (event: MessageEvent<string>) => this.#receive(source, name, event));
    }
  }

  #receive(source: EventSource, name: string, { data, lastEventId }: MessageEvent<string>): void {
    if (source !== this.#source) return;
    this.#last = lastEventId || this.#last;
    this.#watch();
    this.#inVain = 0;
    this.#become('live');
    this.#hooks.onEvent(name, JSON.parse(data));
    if (name === 'bye') void this.#lost(source);
  }

  /** Starts the wait for the next event anew. */
  #watch(): void {
    clearTimeout(this.#watchdog);
    const source = this.#source;
    if (source) this.#watchdog = setTimeout(() => void this.#lost(source), SILENCE_MS);
  }

  async #lost(source: EventSource): Promise<void> {
    if (source !== this.#source) return;
    this.#close();
    this.#become('reconnecting');
    const epoch = this.#epoch;
    const found = await this.#hooks.probe();
    if (epoch !== this.#epoch) return;
    if (found === 'out') {
      this.#become('signed-out');
      return;
    }
    const soon = Math.min(RETRY_MAX_MS, RETRY_SOON_MS * 2 ** this.#inVain);
    if (found === 'in') this.#inVain += 1;
    this.#retry = setTimeout(() => this.#connect(), found === 'in' ? soon : RETRY_MS);
  }

  #close(): void {
    this.#epoch += 1;
    clearTimeout(this.#watchdog);
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }

  #become(connection: Connection): void {
    if (connection === this.#connection) return;
    this.#connection = connection;
    this.#hooks.onConnection(connection);
  }
}
