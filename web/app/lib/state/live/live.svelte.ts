/** What the event stream says, as reactive state: a figure that changes touches the one text node that shows it. */
import { getMetrics, getSession } from '../../api/calls.ts';
import { RefusedError } from '../../api/request.ts';
import type { Sample } from '../../api/schema.ts';
import type { HelloEvent, LimitFigures, MetricsEvent, PublishedEvent, Totals } from '../../api/types.ts';
import { LiveSeries } from './liveseries.svelte.ts';
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

export type Listener = (data: unknown, name: string) => void;

/** Topics of every page: figures, and how the nodes are. */
const TOPICS = ['metrics', 'node'];
/** Before the identity that a topic is about. */
const KEY = 'key:';
/** Events of figures: these stand still while somebody looks at them as they were. */
const FIGURES = new Set(['metrics', 'metrics.tier', 'metrics.rule', 'top']);
/** Later than this a chart has a gap that the history may fill. */
const CURRENT_MS = 2_500;

class Live {
  connection = $state<Connection>('connecting');
  /** When the last event came, or the waiting for the first began, by this machine's clock. */
  heardAt = $state<number | null>(null);
  /** When the last event of each name was taken in, by this machine's clock. */
  readonly heardOf = $state<Record<string, number | undefined>>({});
  /** Since when a connection is wanted that was not wanted before: at the start, after hiding, after signing in. */
  wantedAt = $state(0);
  /** Server time minus this machine's. */
  clockOffsetMs = $state(0);
  policyVersion = $state<number | null>(null);
  /** Someone looks at the figures as they were, until they go on. */
  held = $state(false);
  totals = $state.raw<Totals | null>(null);
  sample = $state.raw<Sample | null>(null);
  /** Of the last second in which some decision was measured. */
  p99Us = $state<number | null>(null);
  rates = $state<{ allowed: number; denied: number }>({ allowed: 0, denied: 0 });
  /** In the order of the document. */
  limits = $state.raw<LimitLive[]>([]);
  /** The rates of the last 15 minutes. */
  readonly history = new LiveSeries();
  /** A newer build of the dashboard is being served. */
  outdated = $state(false);
  #wanted = false;
  #user = '';
  #build: string | null = null;
  #listeners = new Set<(event: PublishedEvent | null) => void>();
  #byId = new Map<string, LimitLive>();
  /** Topics that pages want besides, and how many of each. */
  #topics = new Map<string, number>();
  #heard = new Map<string, Set<Listener>>();
  #renewal: ReturnType<typeof setTimeout> | undefined;
  readonly #stream = new Stream({
    open: (last) => new EventSource(`/api/v1/stream?${this.#asked(last)}`),
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
    if (document.hidden) {
      // Tabs that are opened behind one another would take all six connections to the host.
      this.#stream.stop();
      this.connection = 'paused';
    } else this.#stream.start();
  }

  stop(): void {
    this.#wanted = false;
    this.held = false;
    this.#stream.stop();
  }

  /** Stops the figures, so that they can be read, and nothing else: `goOn` fills the gap. */
  hold(): void {
    this.held = true;
  }

  goOn(): void {
    this.held = false;
    this.#fill();
  }

  /**
   * Calls with each event of these names until it is taken back: `$effect(() => live.listen('top', ['top'], …))`. A topic
   * is asked for meanwhile, and its state comes first; some events come without one (null). A key is a topic too, such as
   * `key:user:ada`, and is watched no longer than it is listened for.
   */
  listen(topic: string | null, names: string[], listener: Listener): () => void {
    for (const name of names) {
      const listeners = this.#heard.get(name);
      if (listeners) listeners.add(listener);
      else this.#heard.set(name, new Set([listener]));
    }
    if (topic !== null) {
      // What was heard of it before it was let go of is not of now.
      if (!this.#topics.has(topic)) for (const name of names) this.heardOf[name] = undefined;
      this.#topics.set(topic, (this.#topics.get(topic) ?? 0) + 1);
      this.#renew();
    }
    return () => {
      for (const name of names) this.#heard.get(name)?.delete(listener);
      if (topic === null) return;
      const others = (this.#topics.get(topic) ?? 1) - 1;
      if (others === 0) {
        this.#topics.delete(topic);
        if (topic.startsWith(KEY)) this.#renew();
      } else this.#topics.set(topic, others);
    };
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

  /** Once for all that a page wants. */
  #renew(): void {
    clearTimeout(this.#renewal);
    this.#renewal = setTimeout(() => this.#stream.renew());
  }

  #asked(last: string | null): string {
    const all = [...TOPICS, ...this.#topics.keys()];
    const key = all.find((topic) => topic.startsWith(KEY));
    const topics = all.filter((topic) => !topic.startsWith(KEY)).join(',');
    return [
      `topics=${topics}`,
      ...(key === undefined ? [] : [`key=${encodeURIComponent(key.slice(KEY.length))}`]),
      ...(last === null ? [] : [`last_event_id=${last}`]),
    ].join('&');
  }

  #see = (): void => {
    if (this.#wanted) this.#stream.setVisible(!document.hidden);
  };

  #receive(name: string, data: unknown): void {
    this.heardAt = Date.now();
    if (name === 'hello') this.#hello(data as HelloEvent);
    if (this.held && FIGURES.has(name)) return;
    this.heardOf[name] = this.heardAt;
    if (name === 'metrics') this.#metrics(data as MetricsEvent);
    if (name === 'policy.published') {
      const event = data as PublishedEvent;
      // After `hello` has told the newest, what was missed is told again from the oldest on.
      this.policyVersion = Math.max(event.version, this.policyVersion ?? 0);
      for (const listener of this.#listeners) listener(event);
    }
    for (const listener of this.#heard.get(name) ?? []) listener(data, name);
  }

  #hello(hello: HelloEvent): void {
    this.clockOffsetMs = hello.server_time_ms - Date.now();
    this.#build ??= hello.build;
    this.outdated = this.#build !== hello.build;
    const missed = this.policyVersion !== null && this.policyVersion !== hello.policy_version;
    this.policyVersion = hello.policy_version;
    if (missed) for (const listener of this.#listeners) listener(null);
    const last = this.history.series.columns[0].at(-1);
    if (last !== undefined && hello.server_time_ms - last * 1_000 <= CURRENT_MS) return;
    this.#fill();
  }

  #fill(): void {
    void this.history.fill(async () => (await getMetrics()).history);
  }

  #metrics(event: MetricsEvent): void {
    this.totals = event.totals;
    this.sample = event;
    this.p99Us = event.p99_us ?? this.p99Us;
    this.rates.allowed = event.rates.allowed;
    this.rates.denied = event.rates.denied;
    this.policyVersion = Math.max(event.policy_version, this.policyVersion ?? 0);
    this.#setLimits(event.limits);
    this.history.add({ t: event.t, ...event.rates }, event.gap);
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
    return error instanceof RefusedError && error.problem.status === 401 ? 'out' : 'down';
  }
}

export const live = new Live();
