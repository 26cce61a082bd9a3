/** Walking the rows of a table with arrows or j and k, besides Tab; Enter opens, because a row's name is a link. */
import type { Attachment } from 'svelte/attachments';
import { settings } from '../settings.svelte.ts';

export const walkRows: Attachment<HTMLElement> = (region) => {
  function stops(): HTMLElement[] {
    return [...region.querySelectorAll<HTMLElement>('tbody tr a:first-of-type')].filter(
      (link) => link.closest('tr')?.querySelector('a') === link,
    );
  }

  function step(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const letters = settings.shortcuts ? { j: 1, k: -1 } : {};
    const by = ({ ArrowDown: 1, ArrowUp: -1, ...letters } as Record<string, number>)[event.key];
    if (by === undefined) return;
    const rows = stops();
    const here = rows.findIndex((link) => link === document.activeElement);
    const next = rows[here < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, here + by))];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }

  region.addEventListener('keydown', step);
  return () => region.removeEventListener('keydown', step);
};
