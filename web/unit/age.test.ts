/** How old live figures are said to be. */
// @vitest-environment happy-dom
import { expect, test } from 'vitest';
import { aged } from '../app/lib/state/live/age.svelte.ts';

const HEARD = Date.parse('2026-11-22T03:12:40.500Z');
const after = (seconds: number) => aged(HEARD, HEARD + seconds * 1000, 'utc');

test('figures of this moment say nothing, also where none are waited for', () => {
  for (const seconds of [-1, 0, 1, 3.9]) expect(after(seconds)).toEqual({ words: '', pale: false });
  expect(aged(null, HEARD, 'utc')).toEqual({ words: '', pale: false });
});

test('older than three seconds they say how old they are', () => {
  expect(after(4)).toEqual({ words: '4 s old', pale: false });
  expect(after(10.9)).toEqual({ words: '10 s old', pale: false });
});

test('older than ten seconds they are pale, and say of when they are', () => {
  expect(after(11)).toEqual({ words: 'last figures 03:12:40', pale: true });
  expect(after(86_400)).toEqual({ words: 'last figures 22 Nov 2026 03:12:40', pale: true });
});
