/** Numbers and times as the dashboard writes them. */

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export function count(number: number): string {
  return whole.format(number);
}

/** A rate a second: tenths while it is small. */
export function perSecond(rate: number): string {
  return rate === 0 || rate >= 10 ? whole.format(rate) : tenths.format(rate);
}

/** The share of `part` in `part + rest`, in percent; null when there is nothing to share. */
export function share(part: number, rest: number): string | null {
  const all = part + rest;
  if (all === 0) return null;
  const percent = (100 * part) / all;
  return percent > 0 && percent < 10 ? `${tenths.format(percent)} %` : `${whole.format(percent)} %`;
}

export type Zone = 'local' | 'utc';

/** `03:12:40`, with the date when it is not today's. */
export function time(ms: number, nowMs: number, zone: Zone): string {
  const clock = part(ms, zone, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
  return day(ms, zone) === day(nowMs, zone) ? clock : `${day(ms, zone)} ${clock}`;
}

function day(ms: number, zone: Zone): string {
  return part(ms, zone, { year: 'numeric', month: 'short', day: 'numeric' });
}

function part(ms: number, zone: Zone, options: Intl.DateTimeFormatOptions): string {
  return new Intl.DateTimeFormat('en-GB', zone === 'utc' ? { ...options, timeZone: 'UTC' } : options).format(
    ms,
  );
}

/** Returns the age in one unit; null if it is under a minute. */
export function age(ms: number, nowMs: number): string | null {
  const minutes = Math.floor((nowMs - ms) / 60_000);
  if (minutes < 1) return null;
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 60 * 48) return `${Math.floor(minutes / 60)} h`;
  return `${Math.floor(minutes / 1440)} d`;
}
