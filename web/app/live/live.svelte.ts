/** What the event stream says, as reactive state: a figure that changes touches the one text node that shows it. */
import { getMetrics, getSession } from '../api/calls.ts';
import { Refused } from '../api/request.ts';
import type { HelloEvent, LimitFigures, MetricsEvent, Point, PublishedEvent, Totals } from '../api/types.ts';
import { Series } from './series.ts';
import { Stream, type Connection } from './stream.ts';

/** The figures of one limit. */
class LimitLive {
  readonly limitId: string;
  allowed = $state(0);
  denied = $state(0);
  allowedRate = $state(0);
  deniedRate = $state(0);

  constructor(limitId: string) {
    this.limitId = limitId;
  }

  set(figures: LimitFigures): void {
    this.allowed = figures.allowed;
    this.denied = figures.denied;
    this.allowedRate = figures.allowed_rate;
    this.deniedRate = figures.denied_rate;
  }
}

export type { LimitLive };

class Live {
  connection = $state<Connection>('connecting');
  /** When the last event came, or the waiting for the first began, by this machine's clock. */
  heardAt = $state<number | null>(null);
  /** Since when a connection is wanted that was not wanted before: at the start, after hiding, after signing in. */
  wantedAt = $state(0);
  /** Server time minus this machine's. */
  clockOffsetMs = $state(0);
  policyVersion = $state<number | null>(null);
  totals = $state.raw<Totals | null>(null);
  rates = $state<{ allowed: number; denied: number }>({ allowed: 0, denied: 0 });
  /** In the order of the document. */
  limits = $state.raw<LimitLive[]>([]);
  /** Counts the additions to `series`. */
  seriesTick = $state(0);
  readonly series = new Series();
  /** A newer build of the dashboard is being served. */
  outdated = $state(false);
  #wanted = false;
  #user = '';
  #build: string | null = null;
  #early: Point[] | null = null;
  #listeners = new Set<(event: PublishedEvent | null) => void>();
  #byId = new Map<string, LimitLive>();
  readonly #stream = new Stream({
    open: () => new EventSource('/api/v1/stream?topics=metrics'),
    probe: () => probe(this.#user),
    onEvent: (name, data) => this.#receive(name, data),
    onConnection: (connection) => {
      if (connection === 'connecting') this.wantedAt = Date.now();
      this.connection = connection;
    },
  });

  constructor() {
    document.addEventListener('visibilitychange', this.#see);
  }

  start(user: string): void {
    this.#user = user;
    this.#wanted = true;
    this.heardAt ??= Date.now();
    this.#stream.start();
    this.#see();
  }

  stop(): void {
    this.#wanted = false;
    this.#stream.stop();
  }

  limit(limitId: string): LimitLive | undefined {
    // The list is replaced when limits come or go: reading it makes this answer follow.
    return this.limits.length === 0 ? undefined : this.#byId.get(limitId);
  }

  /** Called with each publish; with null after a reconnect, when some may have been missed. */
  onPublished(listener: (event: PublishedEvent | null) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #see = (): void => {
    if (this.#wanted) this.#stream.setVisible(!document.hidden);
  };

  #receive(name: string, data: unknown): void {
    this.heardAt = Date.now();
    if (name === 'hello') this.#hello(data as HelloEvent);
    if (name === 'metrics') this.#metrics(data as MetricsEvent);
    if (name === 'policy.published') {
      const event = data as PublishedEvent;
      this.policyVersion = event.version;
      for (const listener of this.#listeners) listener(event);
    }
  }

  #hello(hello: HelloEvent): void {
    this.clockOffsetMs = hello.server_time_ms - Date.now();
    this.#build ??= hello.build;
    this.outdated = this.#build !== hello.build;
    const missed = this.policyVersion !== null && this.policyVersion !== hello.policy_version;
    this.policyVersion = hello.policy_version;
    if (missed) for (const listener of this.#listeners) listener(null);
    void this.#catchUp();
  }

  /** The history first, then what came while it was on its way. */
  async #catchUp(): Promise<void> {
    const early: Point[] = [];
    this.#early = early;
    try {
      const { history } = await getMetrics();
      this.series.add(history);
    } catch {
      // The chart then starts here, after a gap.
    }
    if (this.#early !== early) return;
    this.series.add(early);
    this.#early = null;
    this.seriesTick += 1;
  }

  #metrics(event: MetricsEvent): void {
    this.totals = event.totals;
    this.rates.allowed = event.rates.allowed;
    this.rates.denied = event.rates.denied;
    this.policyVersion = Math.max(event.policy_version, this.policyVersion ?? 0);
    this.#setLimits(event.limits);
    const point = { t: event.t, ...event.rates };
    if (this.#early) this.#early.push(point);
    else {
      this.series.add([point], event.gap);
      this.seriesTick += 1;
    }
  }

  #setLimits(figures: LimitFigures[]): void {
    const same =
      figures.length === this.limits.length &&
      figures.every((one, at) => one.limit_id === this.limits[at]?.limitId);
    for (const one of figures) {
      let limit = this.#byId.get(one.limit_id);
      if (!limit) this.#byId.set(one.limit_id, (limit = new LimitLive(one.limit_id)));
      limit.set(one);
    }
    if (same) return;
    this.limits = figures.flatMap(({ limit_id }) => this.#byId.get(limit_id) ?? []);
    this.#byId = new Map(this.limits.map((limit) => [limit.limitId, limit]));
  }
}

/** A session of somebody else is none. */
async function probe(user: string): Promise<'in' | 'out' | 'down'> {
  try {
    const { name } = await getSession();
    return name === user ? 'in' : 'out';
  } catch (error) {
    return error instanceof Refused && error.problem.status === 401 ? 'out' : 'down';
  }
}

export const live = new Live();
