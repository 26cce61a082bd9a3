/**
 * Dialogs that are read before they are opened, so that they open at once: not with the page, which most visits want
 * alone, but at the first sign that they will be.
 */
import { changes } from '../lib/state/changes/changes.svelte.ts';
import { session } from '../lib/state/session.svelte.ts';
import { readAhead } from './pages.ts';

let typed = $state(false);

/** Of any event: a button that opens one is come near to, Ctrl is pressed, something is typed. */
export function onHint(event: Event): void {
  if (event instanceof KeyboardEvent) {
    if (event.key === 'Control' || event.key === 'Meta') readAhead('find');
    return;
  }
  if (event.type === 'input') {
    if (typed) return;
    typed = true;
    // A session that ends must not take along what is typed, whatever has become of the server's files.
    readAhead('signed-out');
    return;
  }
  const opens = event.target instanceof Element && event.target.closest<HTMLElement>('[data-opens]');
  if (!opens) return;
  if (opens.dataset['opens'] === 'find') readAhead('find');
  if (opens.dataset['opens'] === 'publish') readAhead('publish');
}

/** Whoever edits publishes, perhaps while the server is away. A list of changes from before is no edit yet. */
export function readForEdits(): void {
  const before = changes.changed.length;
  $effect(() => {
    const { length } = changes.changed;
    if (session.may('editor') && (length > before || (typed && length > 0)))
      readAhead('signed-out', 'publish');
  });
}
