/** Instants as a date and time field of the browser has them, which knows no zone, and as the server has them. */
import type { Zone } from './format.ts';

/** `2026-11-23T03:12` of RFC 3339; empty where it is none. */
export function toField(instant: string, zone: Zone): string {
  const ms = Date.parse(instant);
  if (Number.isNaN(ms)) return '';
  const shift = zone === 'utc' ? 0 : new Date(ms).getTimezoneOffset() * 60_000;
  return new Date(ms - shift).toISOString().slice(0, 16);
}

/** The other way round. */
export function fromField(value: string, zone: Zone): string {
  const ms = Date.parse(zone === 'utc' ? `${value}Z` : value);
  return Number.isNaN(ms) ? '' : new Date(ms).toISOString();
}
