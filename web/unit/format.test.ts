/** Numbers and times as they are written. */
import { expect, test } from 'vitest';
import { age, count, perSecond, share, time } from '../app/lib/format/format.ts';

test('numbers have thousands, small rates have tenths', () => {
  expect(count(12480)).toBe('12,480');
  expect(perSecond(0)).toBe('0');
  expect(perSecond(0.25)).toBe('0.3');
  expect(perSecond(9.96)).toBe('10.0');
  expect(perSecond(11968.4)).toBe('11,968');
});

test('shares have one decimal under ten', () => {
  expect(share(41, 959)).toBe('4.1 %');
  expect(share(1, 1)).toBe('50 %');
  expect(share(0, 5)).toBe('0 %');
  expect(share(0, 0)).toBeNull();
});

test('times are 24 h, with the date when it is another day', () => {
  const at = Date.UTC(2026, 10, 21, 3, 12, 40);
  expect(time(at, at + 1000, 'utc')).toBe('03:12:40');
  expect(time(at, at + 86_400_000, 'utc')).toBe('21 Nov 2026 03:12:40');
  expect(time(Date.UTC(2026, 10, 21), at, 'utc')).toBe('00:00:00');
});

test('ages have one unit', () => {
  const minute = 60_000;
  expect(age(0, 59_999)).toBeNull();
  expect(age(0, 4 * minute)).toBe('4 min');
  expect(age(0, 125 * minute)).toBe('2 h');
  expect(age(0, 72 * 60 * minute)).toBe('3 d');
  expect(age(1000, 0)).toBeNull();
});
