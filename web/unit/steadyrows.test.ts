/** Rows that stand still while somebody is at them. */
// @vitest-environment happy-dom
import { expect, test } from 'vitest';
import type { Heaviest } from '../app/lib/api/schema.ts';
import { heavyHitterRows } from '../app/lib/state/live/heavyhitters.ts';
import { SteadyRows } from '../app/lib/state/live/steadyrows.svelte.ts';

const row = (id: string, count = 0) => ({ id, count });

function calmWith(...ids: string[]) {
  const calm = new SteadyRows<{ id: string; count: number }>(({ id }) => id);
  const element = document.createElement('div');
  const leave = calm.region(element);
  calm.update(ids.map((id) => row(id)));
  return { calm, element, leave, ids: () => calm.rows.map(({ id }) => id) };
}

test('nobody is there: the newest order is shown', () => {
  const { calm, ids } = calmWith('a', 'b');
  calm.update([row('b'), row('c')]);
  expect(ids()).toEqual(['b', 'c']);
  expect(calm.waiting).toBe(0);
});

test('under the pointer numbers change, and rows do not move until it leaves', () => {
  const { calm, element, ids } = calmWith('a', 'b');
  element.dispatchEvent(new Event('pointerenter'));
  calm.update([row('b', 7), row('a', 5), row('c')]);
  expect(ids()).toEqual(['a', 'b']);
  expect(calm.rows.map(({ count }) => count)).toEqual([5, 7]);
  expect(calm.waiting).toBe(3);
  element.dispatchEvent(new Event('pointerleave'));
  expect(ids()).toEqual(['b', 'a', 'c']);
  expect(calm.waiting).toBe(0);
});

test('the first rows come also to somebody who is there already', () => {
  const { calm, element, ids } = calmWith();
  element.dispatchEvent(new Event('pointerenter'));
  calm.update([row('a')]);
  expect(ids()).toEqual(['a']);
  calm.update([row('b'), row('a')]);
  expect(ids()).toEqual(['a']);
});

test('one that is gone stays to be read, with its last numbers', () => {
  const { calm, element, ids } = calmWith('a', 'b');
  element.dispatchEvent(new Event('focusin'));
  calm.update([row('a', 1)]);
  expect(ids()).toEqual(['a', 'b']);
  expect(calm.waiting).toBe(1);
  element.dispatchEvent(new Event('focusout'));
  expect(ids()).toEqual(['a']);
});

test('what was asked for is shown at once, also to somebody who is there', () => {
  const { calm, element, ids } = calmWith('a', 'b');
  element.dispatchEvent(new Event('pointerenter'));
  calm.show([row('b'), row('a')]);
  expect(ids()).toEqual(['b', 'a']);
  expect(calm.waiting).toBe(0);
});

test('keys that are shown cut and look alike are rows of their own', () => {
  const cut = (id: string) => ({ id, identities: [{ kind: 'user', value: 'v…' }] }) as unknown as Heaviest;
  const rows = heavyHitterRows([
    cut('default/tier:free/minute'),
    cut('default/tier:free/minute'),
    cut('default/tier:pro/minute'),
  ]);
  expect(new Set(rows.map(({ key }) => key)).size).toBe(3);
});
