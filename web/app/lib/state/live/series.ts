/** The points of a chart: the newest 15 minutes unless told otherwise, in order, with a gap wherever steps are missing. */
import type { Point } from '../../api/types.ts';

/** Times in seconds, and rates; null is a gap. */
export type SeriesColumns = [times: number[], allowed: (number | null)[], denied: (number | null)[]];

const KEPT_S = 900;
/** Steps that may pass until a point is missed. */
const GAP_STEPS = 2.5;

export class Series {
  #columns: SeriesColumns = [[], [], []];
  readonly stepS: number;
  readonly keptS: number;

  constructor(stepS = 1, keptS = KEPT_S) {
    this.stepS = stepS;
    this.keptS = keptS;
  }

  get columns(): SeriesColumns {
    return this.#columns;
  }

  /** Adds points that are newer than the last one. `gap` says that some before the first were dropped. */
  add(points: Point[], gap = false): void {
    const [times, allowed, denied] = this.#columns;
    for (const [at, point] of points.entries()) {
      const time = point.t / 1000;
      const last = times.at(-1);
      if (last !== undefined && time <= last) continue;
      if (last !== undefined && (time - last > GAP_STEPS * this.stepS || (gap && at === 0))) {
        times.push((last + time) / 2);
        allowed.push(null);
        denied.push(null);
      }
      times.push(time);
      allowed.push(point.allowed);
      denied.push(point.denied);
    }
    const oldest = (times.at(-1) ?? 0) - this.keptS;
    const stale = times.findIndex((time) => time >= oldest);
    for (const column of this.#columns) column.splice(0, Math.max(0, stale));
  }

  /** The points as rows, newest first, without the gaps. */
  rows(): Point[] {
    const [times, allowed, denied] = this.#columns;
    return times
      .map((time, at) => ({ t: time * 1000, allowed: allowed[at] ?? null, denied: denied[at] ?? null }))
      .filter((row): row is Point => row.allowed !== null && row.denied !== null)
      .reverse();
  }

  newest(): Point | null {
    const [times, allowed, denied] = this.#columns;
    const t = times.at(-1);
    return t === undefined ? null : { t: t * 1000, allowed: allowed.at(-1) ?? 0, denied: denied.at(-1) ?? 0 };
  }
}
