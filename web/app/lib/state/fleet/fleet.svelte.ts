/** The nodes, as the stream tells of them, and who decides by the newest version. */
import { getVersions } from '../../api/calls.ts';
import { getNodes } from '../../api/calls/live.ts';
import type { NodeRow, Rollout } from '../../api/schema.ts';
import type { PublishedEvent } from '../../api/types.ts';
import { live } from '../live/live.svelte.ts';
import { Loading } from '../loading.svelte.ts';
import { isAway, mergeNodeRows, type NodesEvent } from './noderows.ts';

/** What became of a version on a node, as far as this tab was told. */
export interface Applied {
  version: number;
  node: string;
  took_ms: number | null;
  refused?: string | null;
}

class Fleet {
  /** By name, this server first if it decides; null until they are known. */
  nodes = $state.raw<NodeRow[] | null>(null);
  /** The version that waits on some nodes. */
  rollout = $state.raw<Rollout | null>(null);
  /** How many versions a publish makes: while a rollout is open, one on top of each of its two. */
  versionsPerPublish: number = $derived(this.rollout === null ? 1 : 2);
  /** When the newest version was published, Unix milliseconds, as far as it is known. */
  publishedAt = $state<number | null>(null);
  /** Of the newest version, by node. */
  applied = $state.raw<Record<string, Applied>>({});
  /** Those that are there. */
  present: NodeRow[] = $derived((this.nodes ?? []).filter((node) => !isAway(node)));
  /** Those that do not decide by the version that they should have. */
  behind: NodeRow[] = $derived(this.present.filter(isBehind));

  /** What a page reads that cannot wait for the stream, which knows them too. */
  readonly first = new Loading(async (signal) => {
    const { items } = await getNodes(signal);
    this.nodes ??= items;
  });

  #publishedOf: number | null = null;

  constructor() {
    live.listen(null, ['node'], (data) => (this.nodes = mergeNodeRows(this.nodes, data as NodesEvent)));
    live.listen(null, ['hello', 'policy.rollout'], (data) => {
      this.rollout = (data as { rollout: Rollout | null }).rollout;
    });
    live.listen(null, ['hello'], () => void this.#askWhen());
    live.listen(null, ['policy.published'], (data) => {
      const { version, published_at } = data as PublishedEvent;
      // One that was missed, and is not the newest any more.
      if (version !== live.policyVersion) return;
      this.publishedAt = Date.parse(published_at);
      this.#publishedOf = version;
      this.applied = {};
    });
    live.listen(null, ['policy.applied'], (data) => {
      const applied = data as Applied;
      this.applied = { ...this.applied, [applied.node]: applied };
    });
  }

  /** Reads them, unless they are known. */
  read(): void {
    if (this.nodes === null) void this.first.load();
  }

  /** Of a version that was published while nobody listened. */
  async #askWhen(): Promise<void> {
    if (this.#publishedOf === live.policyVersion) return;
    try {
      const newest = (await getVersions(1)).items[0];
      if (!newest || newest.version !== live.policyVersion) return;
      // The stream may have told it meanwhile, and what nodes made of it.
      if (this.#publishedOf === newest.version) return;
      this.publishedAt = Date.parse(newest.published_at);
      this.#publishedOf = newest.version;
      this.applied = {};
    } catch {
      // Then it is not known.
    }
  }
}

/** A node of a refused version is behind too, and says why. */
export function isBehind(node: NodeRow): boolean {
  return !isAway(node) && node.policy_version !== node.target_version;
}

export const fleet = new Fleet();
