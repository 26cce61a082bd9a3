/** A table is one stop of Tab, and arrows walk its rows. */
// @vitest-environment happy-dom
import { expect, test } from 'vitest';
import { navigateRows } from '../app/lib/components/rownavigation.ts';

const row = (name: string) =>
  `<tr><td><input type="checkbox"></td><td><a href="/${name}">${name}</a></td><td><button>End</button></td></tr>`;

function table(...names: string[]) {
  document.body.innerHTML = `<div tabindex="0"><table><tbody>${names.map(row).join('')}</tbody></table></div>`;
  const region = document.body.firstElementChild as HTMLElement;
  const end = navigateRows(region) as () => void;
  const stops = () =>
    [...region.querySelectorAll<HTMLElement>('tr')]
      .filter((one) =>
        [...one.querySelectorAll<HTMLElement>('a, input, button')].every((it) => it.tabIndex === 0),
      )
      .map((one) => one.querySelector('a')?.textContent);
  const press = (key: string) =>
    (region.contains(document.activeElement) ? (document.activeElement ?? region) : region).dispatchEvent(
      new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }),
    );
  return { region, end, stops, press };
}
const focused = () => document.activeElement?.textContent;

test('one row is on the way of Tab, with all its controls', () => {
  const { region, stops, press } = table('a', 'b', 'c');
  expect([stops(), region.tabIndex]).toEqual([['a'], -1]);
  press('ArrowDown');
  press('j');
  expect([focused(), stops()]).toEqual(['b', ['b']]);
  press('ArrowDown');
  press('ArrowDown');
  expect([focused(), stops()]).toEqual(['c', ['c']]);
  press('k');
  press('ArrowUp');
  press('ArrowUp');
  expect([focused(), stops()]).toEqual(['a', ['a']]);
});

test('from whatever control of a row arrows go to the next', () => {
  const { region, stops, press } = table('a', 'b', 'c');
  region.querySelectorAll<HTMLElement>('input')[1]?.focus();
  expect(stops()).toEqual(['b']);
  press('ArrowDown');
  expect(focused()).toBe('c');
});

test('where the row is gone, the first is the stop', async () => {
  const { region, stops, press } = table('a', 'b');
  press('ArrowDown');
  press('ArrowDown');
  expect(stops()).toEqual(['b']);
  region.querySelectorAll('tr')[1]?.remove();
  region.querySelector('tbody')?.insertAdjacentHTML('beforeend', row('c'));
  await new Promise((resolve) => setTimeout(resolve));
  expect(stops()).toEqual(['a']);
});

test('a table without controls can be scrolled, and arrows are its own', async () => {
  const { region } = table();
  expect(region.tabIndex).toBe(0);
  const event = new KeyboardEvent('keydown', { key: 'ArrowDown', bubbles: true, cancelable: true });
  region.dispatchEvent(event);
  expect(event.defaultPrevented).toBe(false);
  const body = region.querySelector('tbody');
  if (body) body.innerHTML = row('a');
  await new Promise((resolve) => setTimeout(resolve));
  expect(region.tabIndex).toBe(-1);
});

test('arrows stay in a field', () => {
  const { region, press } = table('a', 'b');
  region.querySelector('td')?.insertAdjacentHTML('beforeend', '<input value="3">');
  region.querySelector<HTMLElement>('input[value]')?.focus();
  press('ArrowDown');
  expect((document.activeElement as HTMLInputElement).value).toBe('3');
});
