/**
 * Keyboard navigation of tables. A table is one Tab stop: the row that last had the focus, with its controls. Arrows
 * or j and k go to other rows; Enter opens one, because a row's name is a link.
 */
import type { Attachment } from 'svelte/attachments';
import { settings } from '../state/settings.svelte.ts';

const CONTROLS = 'a[href], button, input, select, textarea, summary';
/** Controls that use arrows and letters themselves. */
const FIELDS = 'input:not([type=checkbox], [type=radio]), select, textarea';

export const navigateRows: Attachment<HTMLElement> = (region) => {
  let current: Element | null = null;

  function rows(): { row: Element; controls: HTMLElement[] }[] {
    return [...region.querySelectorAll('tbody tr')]
      .map((row) => ({ row, controls: [...row.querySelectorAll<HTMLElement>(CONTROLS)] }))
      .filter(({ controls }) => controls.length > 0);
  }

  /** Only the current row is on the way of Tab, or the first where that is gone; a table without any can be scrolled. */
  function mark(): void {
    const all = rows();
    if (!all.some(({ row }) => row === current)) current = all[0]?.row ?? null;
    for (const { row, controls } of all) {
      const stop = row === current ? 0 : -1;
      // Most are as they were.
      for (const control of controls) if (control.tabIndex !== stop) control.tabIndex = stop;
    }
    region.tabIndex = all.length > 0 ? -1 : 0;
  }

  function enter(event: FocusEvent): void {
    const row = (event.target as Element).closest('tbody tr');
    if (!row || row === current) return;
    current = row;
    mark();
  }

  function step(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || (event.target as Element).matches(FIELDS)) return;
    const letters = settings.shortcuts ? { j: 1, k: -1 } : {};
    const by = ({ ArrowDown: 1, ArrowUp: -1, ...letters } as Record<string, number>)[event.key];
    if (by === undefined) return;
    const all = rows();
    const here = all.findIndex(({ row }) => row.contains(document.activeElement));
    const next = all[here < 0 ? 0 : Math.min(all.length - 1, Math.max(0, here + by))];
    if (!next) return;
    event.preventDefault();
    (next.controls.find((control) => control.matches('a')) ?? next.controls[0])?.focus();
  }

  const changed = new MutationObserver(mark);
  changed.observe(region, { childList: true, subtree: true });
  region.addEventListener('focusin', enter);
  region.addEventListener('keydown', step);
  mark();
  return () => {
    changed.disconnect();
    region.removeEventListener('focusin', enter);
    region.removeEventListener('keydown', step);
  };
};
