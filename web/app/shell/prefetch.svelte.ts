/**
 * Loads dialogs shortly before they are opened, so that they open at once: at the first sign that one will be needed,
 * not with the page.
 */
import { changes } from '../lib/state/changes/changes.svelte.ts';
import { session } from '../lib/state/session.svelte.ts';
import { prefetchOverlays } from './pages.ts';

let typed = $state(false);

/** Handles events that announce a dialog: the pointer or focus on its button, Ctrl, typing. */
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

/** Loads what publishing needs with the first edit, since the server may be unreachable later. An older change list is no edit. */
export function readForEdits(): void {
  const before = changes.changed.length;
  $effect(() => {
    const { length } = changes.changed;
    if (session.may('editor') && (length > before || (typed && length > 0)))
      prefetchOverlays('signed-out', 'publish');
  });
}
