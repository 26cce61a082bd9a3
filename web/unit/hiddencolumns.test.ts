/** What a narrow window drops, under its row: it does what the original does, and is not made anew for nothing. */
// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { showHiddenColumns } from '../app/lib/components/hiddencolumns.ts';

let measure: () => void;
let region: HTMLElement;
let leave: ReturnType<typeof showHiddenColumns>;
beforeEach(() => {
  vi.stubGlobal(
    'ResizeObserver',
    class {
      constructor(told: () => void) {
        measure = told;
      }
      observe(): void {}
      disconnect(): void {}
    },
  );
  document.body.innerHTML = `<div><table>
    <thead><tr><th>Name</th><th style="display: none">Rate</th><th style="display: none">Choose</th></tr></thead>
    <tbody><tr><td><a href="/tiers/pro">pro</a></td><td>1</td><td class="tick"><input type="checkbox"><button>More</button></td></tr></tbody>
  </table></div>`;
  region = document.querySelector('div') as HTMLElement;
  leave = showHiddenColumns(region);
  measure();
  document.querySelector<HTMLElement>('.unfold')?.click();
});
afterEach(() => {
  leave?.();
  vi.unstubAllGlobals();
});

const settled = () => new Promise((resolve) => setTimeout(resolve));
const one = <Found extends Element>(selector: string) => document.querySelector(selector) as Found;

test('a copied box ticks its original, and follows where that is ticked', async () => {
  const [copy, original] = [one<HTMLInputElement>('.rest input'), one<HTMLInputElement>('.tick input')];
  copy.click();
  await settled();
  expect([original.checked, copy.checked]).toEqual([true, true]);
  original.click();
  await settled();
  expect([original.checked, copy.checked]).toEqual([false, false]);
});

test('the original is looked up when it is needed', async () => {
  const pressed = vi.fn();
  const button = one<HTMLElement>('.tick button').cloneNode(true);
  button.addEventListener('click', pressed);
  one('.tick button').replaceWith(button);
  await settled();
  one<HTMLElement>('.rest button').click();
  expect(pressed).toHaveBeenCalledOnce();
});

test('only what changes is written', async () => {
  const [list, input] = [one('.rest'), one('.rest input')];
  one('td:nth-child(2)').textContent = '2';
  await settled();
  expect([...list.querySelectorAll('dd')].map((said) => said.textContent)).toEqual(['2', 'More']);
  expect(one('.rest')).toBe(list);
  expect(one('.rest input')).toBe(input);
});
