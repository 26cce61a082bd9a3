/**
 * Loads dialogs shortly before they are opened, so that they open at once: at the first sign that one will be needed,
 * not with the page.
 */
import { changes } from '../lib/state/changes/changes.svelte.ts';
import { session } from '../lib/state/session.svelte.ts';
import { prefetchOverlays } from './pages.ts';

let typed = $state(false);

/** Of any event: a button that opens one is come near to, Ctrl is pressed, something is typed. */
export function onHint(event: Event): void {
  if (event instanceof KeyboardEvent) {
    if (event.key === 'Control' || event.key === 'Meta') prefetchOverlays('find');
    return;
  }
  if (event.type === 'input') {
    if (typed) return;
    typed = true;
    // A session that ends must not take along what is typed, whatever has become of the server's files.
    prefetchOverlays('signed-out');
    return;
  }
  const opens = event.target instanceof Element && event.target.closest<HTMLElement>('[data-opens]');
  if (!opens) return;
  if (opens.dataset['opens'] === 'find') prefetchOverlays('find');
  if (opens.dataset['opens'] === 'publish') prefetchOverlays('publish');
}

/** Whoever edits publishes, perhaps while the server is away. A list of changes from before is no edit yet. */
export function readForEdits(): void {
  const before = changes.changed.length;
  $effect(() => {
    const { length } = changes.changed;
    if (session.may('editor') && (length > before || (typed && length > 0)))
      prefetchOverlays('signed-out', 'publish');
  });
}
