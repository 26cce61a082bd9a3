/** Connects the session with the change list and the event stream, which know nothing of one another. */
import { changes } from './lib/state/changes/changes.svelte.ts';
import { follow } from './lib/state/changes/follow.ts';
import { live } from './lib/state/live/live.svelte.ts';
import { session } from './lib/state/session.svelte.ts';

export function connectSession(): void {
  session.attach({
    enter: ({ environment, name }) => {
      changes.load(environment, name);
      live.start(name);
      follow.start((listener) => live.onPublished(listener));
    },
    leave: (dropChanges) => {
      live.stop();
      if (dropChanges) changes.clear();
      changes.leave();
    },
  });
}
