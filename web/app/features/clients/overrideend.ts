/** Conversions of an override's end between the document's instants and a date and time field. */
import type { Zone } from '../../lib/format/format.ts';

const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
/** What an override lasts unless something else is chosen. */
export const USUAL_MS = 7 * DAY_MS;

/** So long from now, to the minute, and never longer. */
export function endIn(ms: number, nowMs: number): string {
  return instant(Math.floor((nowMs + ms) / MINUTE_MS) * MINUTE_MS);
}

/** How long it still is, in one unit; null when it is under a minute. */
export function timeLeft(ms: number): string | null {
  const minutes = Math.round(ms / MINUTE_MS);
  if (minutes < 1) return null;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.round(ms / HOUR_MS);
  return hours < 48 ? `${hours} h` : `${Math.round(ms / DAY_MS)} d`;
}

/** `2026-11-30T08:15`, as the field wants it; empty where there is no end. */
export function fieldOf(until: unknown, zone: Zone): string {
  const ms = typeof until === 'string' ? Date.parse(until) : NaN;
  if (Number.isNaN(ms)) return '';
  const offsetMs = zone === 'utc' ? 0 : new Date(ms).getTimezoneOffset() * MINUTE_MS;
  return new Date(ms - offsetMs).toISOString().slice(0, 16);
}

/** The instant that stands in the field; empty when it is none. */
export function instantOf(field: string, zone: Zone): string {
  const ms = Date.parse(zone === 'utc' ? `${field}Z` : field);
  return Number.isNaN(ms) ? '' : instant(ms);
}

function instant(ms: number): string {
  return new Date(ms).toISOString().replace('.000Z', 'Z');
}
