/** Formats offsets and durations on the clock of a run. */

const pad = (number: number, digits = 2) => String(number).padStart(digits, '0');

/** After the beginning: `00:01:12.480`; without the fraction where it is nought. */
export function formatOffset(ms: number): string {
  const whole = Math.floor(ms / 1000);
  const rest = Math.floor(ms) % 1000;
  const clock = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60].map((part) => pad(part));
  return clock.join(':') + (rest === 0 ? '' : `.${pad(rest, 3)}`);
}

/** Between two ticks, in tenths of a second. */
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 150, 300, 600, 1200, 3e3, 6e3, 9e3, 18e3, 36e3, 72e3, 108e3, 216e3, 432e3],
  ...[1, 2, 7, 28, 91, 364].map((days) => days * 864e3),
];

/** Whole steps of time between two moments, in seconds: of steps that give no more than about so many the shortest. */
export function wholeSteps(from: number, to: number, most: number): number[] {
  const step = (STEPS.find((one) => (to - from) * 10 <= most * one) ?? Infinity) / 10;
  const ticks = [];
  for (let at = Math.ceil(Math.max(0, from) / step); at * step <= to; at++) ticks.push(at * step);
  return ticks;
}

const UNITS: [unit: string, ms: number][] = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
];

/** In one unit, with three digits: `0.52 s`, `6.2 s`, `12.5 min`. */
export function formatDuration(ms: number): string {
  const [unit, unitMs] = UNITS.find(([, least]) => ms >= least * 2) ?? ['s', 1_000];
  const many = ms / unitMs;
  return `${Number(many.toFixed(many >= 100 ? 0 : many >= 10 ? 1 : 2))} ${unit}`;
}
