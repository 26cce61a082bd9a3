/** Keeps the change list on top of what others publish, while it is being edited. */
import { getObject } from '../../api/calls.ts';
import { RefusedError } from '../../api/request.ts';
import type { PublishedEvent, Touched } from '../../api/types.ts';
import { changes } from './changes.svelte.ts';
import { rebase, type Entry, type EntryKey } from './entry.ts';

type Listener = (event: PublishedEvent | null) => void;

class ChangeListFollower {
  #isListening = false;

  /** Catches up at once, and from then on with each publish that `onPublished` reports. */
  start(onPublished: (listener: Listener) => void): void {
    if (!this.#isListening) onPublished((event) => void this.#catchUp(event));
    this.#isListening = true;
    void this.#catchUp(null);
  }

  async #catchUp(event: PublishedEvent | null): Promise<void> {
    for (const entry of [...changes.entries]) {
      const isIt = (one: EntryKey) =>
        one.kind === entry.kind && one.domain === entry.domain && one.id === entry.id;
      if (event?.removed.some(isIt)) changes.set(entry, rebase(entry, null, event.author, event.version));
      else if (mayDiffer(entry, event, event?.touched.find(isIt))) await this.#look(entry, event);
    }
  }

  async #look(entry: Entry, event: PublishedEvent | null): Promise<void> {
    try {
      const present = await getObject(entry.kind, entry.domain, entry.id);
      if (present.etag === entry.etag) return;
      const version = event?.version ?? present.revision;
      changes.set(entry, rebase(entry, present, present.changed_by, version));
    } catch (error) {
      const gone = error instanceof RefusedError && error.problem.status === 404;
      if (gone) changes.set(entry, rebase(entry, null, event?.author ?? '', event?.version ?? entry.version));
      // Otherwise publishing will find out.
    }
  }
}

/** Did this publish change the object, or may it be among those that it does not name? */
function mayDiffer(entry: Entry, event: PublishedEvent | null, touched: Touched | undefined): boolean {
  if (touched) return touched.etag !== entry.etag;
  const isWhole =
    event?.touched.length === event?.touched_count && event?.removed.length === event?.removed_count;
  // One that is to be new is not there, unless it is said.
  return entry.op !== 'create' && (!event || !isWhole);
}

export const follow = new ChangeListFollower();
