/** The chart's points: in order, no doubles, gaps where seconds are missing, 15 minutes at most. */
import { expect, test } from 'vitest';
import { Series } from '../app/lib/state/live/series.ts';

const point = (second: number) => ({ t: second * 1000, allowed: second, denied: 0 });

test('points come in order and once', () => {
  const series = new Series();
  series.add([point(1), point(2)]);
  series.add([point(2), point(1), point(3)]);
  expect(series.columns[0]).toEqual([1, 2, 3]);
  expect(series.rows().map(({ t }) => t)).toEqual([3000, 2000, 1000]);
});

test('missing seconds are a gap, never a line', () => {
  const series = new Series();
  series.add([point(1), point(2)]);
  series.add([point(10)]);
  expect(series.columns[1]).toEqual([1, 2, null, 10]);
  series.add([point(11)], true);
  expect(series.columns[1]).toEqual([1, 2, null, 10, null, 11]);
  expect(series.rows()).toHaveLength(4);
});

test('what is older than 15 minutes goes', () => {
  const series = new Series();
  series.add(Array.from({ length: 1000 }, (_, at) => point(at + 1)));
  expect(series.columns[0][0]).toBe(100);
  expect(series.columns.map((column) => column.length)).toEqual([901, 901, 901]);
});
