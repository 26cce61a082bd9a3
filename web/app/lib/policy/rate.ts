/** Rates as people write them: `100/s`, `6000 / 1m`, `10k per hour`. */
import { parsePeriod, periodMs } from './period.ts';

export interface Rate {
  limit: number;
  period: string;
}

export type WrongRate = 'form' | 'number' | 'whole' | 'large' | 'period';

const MULTIPLIERS: Record<string, bigint> = { '': 1n, k: 1_000n, K: 1_000n, M: 1_000_000n };

export function parseRate(text: string, numberMax: number, algorithm: string): Rate | WrongRate {
  const match = /^(.*?)\s*(?:\/|\bper\b)\s*(.*)$/i.exec(text.trim());
  if (!match) return 'form';
  const limit = parseNumber(match[1] ?? '', numberMax);
  if (typeof limit === 'string') return limit;
  const period = parsePeriod(match[2] ?? '', algorithm);
  return period === null ? 'period' : { limit, period };
}

/** A whole number, with `k` or `M` for short and commas, spaces or underscores between thousands. */
export function parseNumber(text: string, numberMax: number): number | 'number' | 'whole' | 'large' {
  const match = /^(\d+|\d{1,3}(?:[,_ \u2009\u202f\u00a0]\d{3})+)(?:\.(\d+))?\s?([kKM]?)$/.exec(text.trim());
  if (!match) return 'number';
  const [, whole = '', fraction = '', suffix = ''] = match;
  // `1.000` is one to some and a thousand to others.
  if (fraction !== '' && suffix === '') return 'whole';
  const scale = 10n ** BigInt(fraction.length);
  const scaled = BigInt(whole.replace(/\D/g, '') + fraction) * (MULTIPLIERS[suffix] ?? 1n);
  if (scaled % scale !== 0n) return 'whole';
  const number = scaled / scale;
  return number > BigInt(numberMax) ? 'large' : Number(number);
}

export function isRate(parsed: Rate | WrongRate): parsed is Rate {
  return typeof parsed !== 'string';
}

/** As the dashboard writes it. */
export function formatRate(rate: Rate): string {
  return `${rate.limit} / ${rate.period}`;
}

/** How many times as much `to` lets through as `from`; null when a period whose length is unknown hides it. */
export function ratio(from: Rate, to: Rate): number | null {
  if (from.limit === 0) return to.limit === 0 ? 1 : Infinity;
  if (from.period === to.period) return to.limit / from.limit;
  const [fromMs, toMs] = [periodMs(from.period), periodMs(to.period)];
  if (fromMs === null || toMs === null) return null;
  return (to.limit * fromMs) / (toMs * from.limit);
}

/** The number that the text begins with, a tenth up or down by the key; null for other keys and texts. */
export function stepped(text: string, key: string): string | null {
  const by = { ArrowUp: 1, ArrowDown: -1 }[key];
  const match = /^(\s*)([\d,_ ]*\d)(.*)$/.exec(text);
  const number = match ? parseNumber(match[2] ?? '', Number.MAX_SAFE_INTEGER) : '';
  if (by === undefined || typeof number !== 'number') return null;
  return `${Math.max(0, number + by * Math.max(1, Math.round(number / 10)))}${match?.[3] ?? ''}`;
}
