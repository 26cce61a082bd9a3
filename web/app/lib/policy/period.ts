/** Periods as policies write them: `250ms`, `1s`, `15m`, `1h`, `1d`, and for fixed windows `day`, `week`, `month`. */

const UNIT_MS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const PERIOD_MAX_MS = 366 * 86_400_000;

const WORDS: Record<string, string> = {
  millisecond: 'ms',
  milliseconds: 'ms',
  sec: 's',
  second: 's',
  seconds: 's',
  min: 'm',
  minute: 'm',
  minutes: 'm',
  hr: 'h',
  hour: 'h',
  hours: 'h',
  day: 'd',
  days: 'd',
};

/** Of a fixed window these are by the calendar, in the domain's time zone; elsewhere they are lengths. */
const CALENDAR = ['day', 'week', 'month'];

/** The document's form of what was typed, or null. A unit alone means one of it. */
export function parsePeriod(text: string, algorithm: string): string | null {
  const match = /^(\d+)?\s*([a-z]+)$/.exec(text.trim().toLowerCase());
  if (!match) return null;
  const [, digits, word = ''] = match;
  if (digits === undefined && algorithm === 'fixed_window' && CALENDAR.includes(word)) return word;
  if (digits === undefined && word === 'week') return '7d';
  const unit = WORDS[word] ?? word;
  const unitMs = UNIT_MS[unit];
  const count = Number(digits ?? '1');
  if (unitMs === undefined || count < 1 || count * unitMs > PERIOD_MAX_MS) return null;
  return `${count}${unit}`;
}

/** How long a period of the document lasts; null for what is none, and for one of the calendar. */
export function periodMs(period: string): number | null {
  const match = /^(\d+)(ms|s|m|h|d)$/.exec(period);
  if (!match) return null;
  return Number(match[1]) * (UNIT_MS[match[2] ?? ''] ?? 0);
}
