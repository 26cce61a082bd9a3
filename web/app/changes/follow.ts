/** Keeps the change list on top of what others publish, while it is being edited. */
import { getTier } from '../api/calls.ts';
import { Refused } from '../api/request.ts';
import type { PublishedEvent } from '../api/types.ts';
import { live } from '../live/live.svelte.ts';
import { changes } from './changes.svelte.ts';
import { rebase, type Entry } from './entry.ts';

class Follow {
  #stop: (() => void) | null = null;

  start(): void {
    this.#stop ??= live.onPublished((event) => void this.#catchUp(event));
    void this.#catchUp(null);
  }

  async #catchUp(event: PublishedEvent | null): Promise<void> {
    for (const entry of [...changes.entries]) {
      if (!event || mayChange(event, entry)) await this.#look(entry, event);
    }
  }

  async #look(entry: Entry, event: PublishedEvent | null): Promise<void> {
    try {
      const present = await getTier(entry.domain, entry.id);
      if (present.etag === entry.etag) return;
      const version = event?.version ?? present.revision;
      changes.set(entry, rebase(entry, present, present.changed_by, version));
    } catch (error) {
      const gone = error instanceof Refused && error.problem.status === 404;
      if (gone) changes.set(entry, rebase(entry, null, event?.author ?? '', event?.version ?? entry.version));
      // Otherwise publishing will find out.
    }
  }
}

/** Did this publish change the object, or are there objects that it does not name? */
function mayChange(event: PublishedEvent, entry: Entry): boolean {
  const { touched, removed } = event;
  const isIt = (one: { kind: string; domain: string; id: string }) =>
    one.kind === entry.kind && one.domain === entry.domain && one.id === entry.id;
  if (touched.length < event.touched_count || removed.length < event.removed_count) return true;
  return removed.some(isIt) || touched.some((one) => isIt(one) && one.etag !== entry.etag);
}

export const follow = new Follow();
