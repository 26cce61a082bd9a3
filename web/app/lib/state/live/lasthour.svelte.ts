/** The last hour of each tier or each rule, minute by minute. */
import { getRange } from '../../api/calls/live.ts';
import type { FiguresOfRange, FiguresPoint } from '../../api/schema.ts';
import { ownerName } from '../../policy/limitname.ts';
import { Loading } from '../loading.svelte.ts';
import { live } from './live.svelte.ts';

const HOUR_MS = 3_600_000;

export class LastHour extends Loading<FiguresOfRange> {
  readonly #kind: 'tier' | 'rule';
  readonly #points: Record<string, FiguresPoint[]> = $derived(
    Object.fromEntries((this.data?.series ?? []).map(({ id, points }) => [id, points])),
  );

  constructor(kind: 'tier' | 'rule') {
    super((signal) => {
      const to = Date.now() + live.clockOffsetMs;
      return getRange({ from: to - HOUR_MS, to, step: '1m', by: kind }, signal);
    });
    this.#kind = kind;
  }

  of(domain: string, id: string): FiguresPoint[] {
    return this.#points[ownerName(domain, this.#kind, id)] ?? [];
  }
}
