/** What a run found, to be kept elsewhere: all of it as JSON, or its clients as CSV. */
import { getTimeline } from '../../lib/api/calls/simulations.ts';
import type { Run, TimelineRow } from '../../lib/api/schema.ts';

const COLUMNS = [
  'key',
  'requests',
  'denied_a',
  'denied_b',
  'newly_denied',
  'newly_allowed',
  'first_denied_a',
  'first_denied_b',
  'first_newly_denied',
] as const satisfies (keyof TimelineRow)[];

async function clientsOf(run: Run, signal: AbortSignal, bucket?: string): Promise<TimelineRow[]> {
  const query = { sort: 'key', outcome: 'all', limit: '500', ...(bucket ? { bucket } : {}) };
  const rows: TimelineRow[] = [];
  let cursor: string | null = null;
  do {
    const { items, next } = await getTimeline(run.id, { ...query, cursor }, signal);
    rows.push(...items);
    cursor = next;
  } while (cursor !== null);
  return rows;
}

export async function asJson(run: Run, signal: AbortSignal): Promise<Blob> {
  const whole = { ...run, clients: await clientsOf(run, signal) };
  return new Blob([JSON.stringify(whole, null, 2)], { type: 'application/json' });
}

/** Without buckets: one for all of the time is asked for. */
export async function asCsv(run: Run, signal: AbortSignal): Promise<Blob> {
  const { from, to, kept } = run.summary ?? {};
  const step = kept?.bucket_ms ?? 1;
  const lengthMs = Date.parse(to ?? '') - Date.parse(from ?? '') || 0;
  const bucket = `${step * (Math.ceil(lengthMs / step) + 1)}ms`;
  const rows = await clientsOf(run, signal, bucket);
  const lines = [COLUMNS.join(','), ...rows.map((row) => COLUMNS.map((name) => cell(row[name])).join(','))];
  return new Blob([lines.join('\r\n') + '\r\n'], { type: 'text/csv' });
}

export function cell(value: string | number | null): string {
  const plain = String(value ?? '');
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

export function save(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // Once the browser has begun to read it.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
