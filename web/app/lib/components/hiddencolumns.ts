/** Columns that a narrow window has no room for: a button in each row shows their cells under the row's name. */
import { tick } from 'svelte';
import type { Attachment } from 'svelte/attachments';
import { text } from '../text/text.ts';

const CONTROLS = 'button, input';

export const showHiddenColumns: Attachment<HTMLElement> = (region) => {
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
    const list = row.querySelector<HTMLElement>('.rest') ?? listed(row, open);
    const wanted = dropped.flatMap(({ at, name }) => {
      const cell = row.cells[at];
      return !cell || (cell.childElementCount === 0 && cell.textContent.trim() === '')
        ? []
        : [{ at, name, cell }];
    });
    const shown = [...list.querySelectorAll<HTMLElement>('dd')];
    const isSame =
      wanted.length === shown.length &&
      wanted.every(({ at }, nth) => shown[nth]?.dataset['at'] === String(at));
    if (!isSame && !isIn(list)) {
      list.replaceChildren(
        ...wanted.flatMap(({ at, name }) => {
          const [term, said] = [document.createElement('dt'), document.createElement('dd')];
          term.textContent = name;
          said.dataset['at'] = String(at);
          return [term, said];
        }),
      );
    }
    for (const { at, cell } of wanted) {
      const said = list.querySelector(`dd[data-at="${at}"]`);
      if (said) copy(cell, said);
    }
  }

  /** Copies only what differs, and keeps a cell that has the focus. */
  function copy(cell: Element, said: Element): void {
    const fresh = document.createElement('dd');
    fresh.append(...[...cell.childNodes].map((node) => node.cloneNode(true)));
    const isSame =
      fresh.childNodes.length === said.childNodes.length &&
      [...fresh.childNodes].every((node, nth) => node.isEqualNode(said.childNodes[nth] ?? null));
    if (!isSame && !isIn(said)) said.replaceChildren(...fresh.childNodes);
    const originals = cell.querySelectorAll('input');
    said.querySelectorAll('input').forEach((input, nth) => {
      input.checked = originals[nth]?.checked ?? false;
    });
  }

  function listed(row: HTMLTableRowElement, open: Element): HTMLElement {
    const list = document.createElement('dl');
    list.className = 'rest';
    // What they do is done by those that are out of sight.
    list.addEventListener('click', ({ target }) => {
      const control = target instanceof Element ? target.closest(CONTROLS) : null;
      const said = control?.closest('dd');
      if (!control || !said) return;
      const nth = [...said.querySelectorAll(CONTROLS)].indexOf(control);
      const original = row.cells[Number(said.dataset['at'])]?.querySelectorAll<HTMLElement>(CONTROLS)[nth];
      original?.click();
    });
    open.parentElement?.append(list);
    return list;
  }

  const isIn = (element: Element) => element.contains(document.activeElement);
  /** One that is ticked may take the tick of another, which no node tells of. */
  const ticked = () => void tick().then(follow);

  const changed = new MutationObserver(follow);
  const sized = new ResizeObserver(measure);
  sized.observe(region);
  region.addEventListener('change', ticked);
  return () => {
    changed.disconnect();
    sized.disconnect();
    region.removeEventListener('change', ticked);
  };
};
