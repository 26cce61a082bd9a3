/** The Overview's address, steps and shifts. */
import { expect, test } from 'vitest';
import { RANGES, shifted, stepOf, viewOf } from '../app/features/overview/range.ts';

const NOW = 1_800_000_000_000;
const view = (query: string) => viewOf(new URLSearchParams(query));

test('the address says range, end and what of, and nonsense is the usual', () => {
  expect(view('').range.id).toBe('15m');
  expect(view('range=9y&to=soon')).toEqual({ range: RANGES[1], to: null, owner: null });
  expect(view('range=6h&to=123&tier=pro')).toEqual({
    range: RANGES[3],
    to: 123,
    owner: { kind: 'tier', id: 'pro' },
  });
  expect(view('rule=sign-in').owner).toEqual({ kind: 'rule', id: 'sign-in' });
});

test('a shift is half a range, and never past now', () => {
  const hour = view('range=1h');
  const earlier = shifted(hour, -1, NOW);
  expect(earlier).toBe(NOW - 1_800_000);
  expect(shifted({ ...hour, to: earlier }, -1, NOW)).toBe(NOW - 3_600_000);
  expect(shifted({ ...hour, to: earlier }, 1, NOW)).toBeNull();
  expect(shifted(hour, 1, NOW)).toBeNull();
  expect(shifted({ ...hour, to: earlier }, 1, NOW + 60_000)).toBeNull();
});

test('seconds are asked for as far as they are kept', () => {
  expect(stepOf(view('range=15m'), NOW)).toBe('1s');
  expect(stepOf(view(`range=5m&to=${NOW - 600_000}`), NOW)).toBe('1s');
  expect(stepOf(view(`range=5m&to=${NOW - 900_000}`), NOW)).toBe('1m');
  expect(stepOf(view('range=24h'), NOW)).toBe('1m');
});
