/** Rates: what people type, exactly, and what is wrong with what they type. */
import { expect, test } from 'vitest';
import { formatRate, isRate, parseNumber, parseRate, ratio, stepped } from '../app/lib/policy/rate.ts';

const MOST = Number.MAX_SAFE_INTEGER;

test.each([
  ['100/s', 100, '1s'],
  ['6000 / 1m', 6000, '1m'],
  ['10k per hour', 10_000, '1h'],
  ['1.5k/s', 1_500, '1s'],
  ['2M / 1d', 2_000_000, '1d'],
  ['1,000,000 / 1d', 1_000_000, '1d'],
  ['60 000 per minute', 60_000, '1m'],
  ['0 / 1m', 0, '1m'],
  ['9007199254740991 / 1d', MOST, '1d'],
  ['  5/250ms ', 5, '250ms'],
  ['100 PER Second', 100, '1s'],
  ['10k per day', 10_000, '1d'],
])('%s', (typed, limit, period) => {
  expect(parseRate(typed, MOST, 'token_bucket')).toEqual({ limit, period });
});

test.each([
  ['', 'form'],
  ['100', 'form'],
  ['100 s', 'form'],
  ['100perhour', 'form'],
  ['/ 1m', 'number'],
  ['ten / 1m', 'number'],
  ['-1 / 1m', 'number'],
  ['1,00 / 1m', 'number'],
  ['1e3 / 1m', 'number'],
  ['1.5 / 1s', 'whole'],
  ['1.000 / 1m', 'whole'],
  ['1.0005k / s', 'whole'],
  ['9007199254740992 / 1d', 'large'],
  ['9007199254741k / 1d', 'large'],
  ['100 /', 'period'],
  ['100 / 0s', 'period'],
  ['100 / 1 fortnight', 'period'],
  ['100 / 1m / 2', 'period'],
])('%s is wrong: %s', (typed, why) => {
  expect(parseRate(typed, MOST, 'token_bucket')).toBe(why);
});

test('what is written is read back', () => {
  for (const rate of [
    { limit: 100, period: '1s' },
    { limit: MOST, period: '366d' },
    { limit: 7, period: '7d' },
    { limit: 50_000, period: 'day' },
    { limit: 1, period: 'week' },
    { limit: 0, period: 'month' },
  ]) {
    expect(parseRate(formatRate(rate), MOST, 'fixed_window')).toEqual(rate);
  }
});

test('numbers up to the bound and not above', () => {
  expect(parseNumber('64', 64)).toBe(64);
  expect(parseNumber('65', 64)).toBe('large');
  expect(parseNumber('', 64)).toBe('number');
});

test('how many times as much', () => {
  const per = (limit: number, period: string) => ({ limit, period });
  expect(ratio(per(100, '1m'), per(1000, '1m'))).toBe(10);
  expect(ratio(per(60, '1m'), per(10, '1s'))).toBe(10);
  expect(ratio(per(0, '1m'), per(1, '1d'))).toBe(Infinity);
  expect(ratio(per(0, '1m'), per(0, '1m'))).toBe(1);
  expect(ratio(per(1, '1d'), per(1, 'month'))).toBeNull();
  expect(ratio(per(1, 'month'), per(30, 'month'))).toBe(30);
  expect(isRate(parseRate('1/s', MOST, 'token_bucket'))).toBe(true);
});

test('a step is a tenth, and at least one', () => {
  expect(stepped('6,000 / 1m', 'ArrowUp')).toBe('6600 / 1m');
  expect(stepped('300', 'ArrowDown')).toBe('270');
  expect(stepped('3/s', 'ArrowUp')).toBe('4/s');
  expect(stepped('0', 'ArrowDown')).toBe('0');
  expect(stepped('fast', 'ArrowUp')).toBeNull();
  expect(stepped('300', 'a')).toBeNull();
});
