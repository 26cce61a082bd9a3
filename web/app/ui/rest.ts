/** The columns for which a narrow window has no room: in each row a button shows what they say under the row's name. */
import type { Attachment } from 'svelte/attachments';
import { text } from '../text.ts';

export const showRest: Attachment<HTMLElement> = (region) => {
  let dropped: { at: number; name: string }[] = [];

  function measure(): void {
    dropped = [...region.querySelectorAll('thead th')].flatMap((head, at) =>
      getComputedStyle(head).display === 'none' ? [{ at, name: head.textContent.trim() }] : [],
    );
    if (dropped.length === 0) {
      for (const one of region.querySelectorAll('.unfold, .rest')) one.remove();
      for (const row of region.querySelectorAll('[data-unfolded]')) row.removeAttribute('data-unfolded');
    }
    follow();
  }

  /** Rows come, go and change. */
  function follow(): void {
    changed.disconnect();
    if (dropped.length === 0) return;
    const columns = region.querySelectorAll('thead th').length;
    for (const row of region.querySelectorAll<HTMLTableRowElement>('tbody tr')) {
      if (row.cells.length !== columns) continue;
      const open = row.querySelector('.unfold') ?? added(row);
      if (open?.ariaExpanded === 'true') tell(row, open);
    }
    changed.observe(region, { childList: true, subtree: true, characterData: true });
  }

  function added(row: HTMLTableRowElement): Element | undefined {
    const isShown = (_: unknown, at: number) => dropped.every((column) => column.at !== at);
    const link = row.querySelector('a');
    const cell = link?.closest('td, th') ?? [...row.cells].find(isShown);
    if (!cell) return;
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'plain unfold';
    button.ariaLabel = text.states.rest((link ?? cell).textContent.trim());
    button.ariaExpanded = 'false';
    button.addEventListener('click', () => {
      const isOpen = button.ariaExpanded === 'true';
      button.ariaExpanded = String(!isOpen);
      row.toggleAttribute('data-unfolded', !isOpen);
      if (isOpen) row.querySelector('.rest')?.remove();
      else follow();
    });
    cell.prepend(button);
    return button;
  }

  function tell(row: HTMLTableRowElement, open: Element): void {
    const list = document.createElement('dl');
    list.className = 'rest';
    for (const { at, name } of dropped) {
      const cell = row.cells[at];
      if (!cell || (cell.childElementCount === 0 && cell.textContent.trim() === '')) continue;
      const [term, said] = [document.createElement('dt'), document.createElement('dd')];
      term.textContent = name;
      said.append(...[...cell.childNodes].map((node) => node.cloneNode(true)));
      // What they do is done by those that are out of sight.
      const buttons = cell.querySelectorAll('button');
      said.querySelectorAll('button').forEach((button, nth) => {
        button.addEventListener('click', () => buttons[nth]?.click());
      });
      list.append(term, said);
    }
    const before = row.querySelector('.rest');
    if (before === null) open.parentElement?.append(list);
    // Not from under somebody who is in it.
    else if (!before.isEqualNode(list) && !before.contains(document.activeElement)) before.replaceWith(list);
  }

  const changed = new MutationObserver(follow);
  const sized = new ResizeObserver(measure);
  sized.observe(region);
  return () => {
    changed.disconnect();
    sized.disconnect();
  };
};
