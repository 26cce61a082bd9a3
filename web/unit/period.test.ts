/** Periods: what people type, and what the document keeps. */
import { expect, test } from 'vitest';
import { parsePeriod, periodMs } from '../app/lib/policy/period.ts';

test.each([
  ['250ms', '250ms'],
  ['1s', '1s'],
  ['s', '1s'],
  ['15m', '15m'],
  ['15 min', '15m'],
  ['1h', '1h'],
  ['hour', '1h'],
  ['2 hours', '2h'],
  ['1d', '1d'],
  ['2 days', '2d'],
  ['1 day', '1d'],
  ['366d', '366d'],
  [' 1M ', '1m'],
  ['day', '1d'],
  ['week', '7d'],
])('%s is %s', (typed, period) => {
  expect(parsePeriod(typed, 'token_bucket')).toBe(period);
});

test.each([
  ['day', 'day'],
  [' Week ', 'week'],
  ['month', 'month'],
  ['1 day', '1d'],
  ['7d', '7d'],
  ['hour', '1h'],
])('of a fixed window %s is %s', (typed, period) => {
  expect(parsePeriod(typed, 'fixed_window')).toBe(period);
});

test.each(['months', '1 month', '2 weeks', 'year'])('nor is %s a period of a fixed window', (typed) => {
  expect(parsePeriod(typed, 'fixed_window')).toBeNull();
});

test.each([
  '',
  '0s',
  '1',
  '1.5s',
  '-1s',
  '1w',
  'month',
  '2 weeks',
  '367d',
  '1 fortnight',
  '١s',
  '99999999999999999999d',
])('%s is no period', (typed) => {
  expect(parsePeriod(typed, 'token_bucket')).toBeNull();
});

test('what is no period has no length', () => {
  expect(periodMs('15m')).toBe(900_000);
  expect(periodMs('month')).toBeNull();
  expect(periodMs('nonsense')).toBeNull();
});
