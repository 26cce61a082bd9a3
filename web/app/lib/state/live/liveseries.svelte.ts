/**
 * A series that grows while its history is being read: the history comes first, then the points that arrived
 * meanwhile.
 */
import type { Point } from '../../api/types.ts';
import { Series } from './series.ts';

export class LiveSeries {
  readonly series: Series;
  /** Counts the additions to `series`. */
  tick = $state(0);
  #early: Point[] | null = null;

  constructor(series = new Series()) {
    this.series = series;
  }

  add(point: Point, gap = false): void {
    if (this.#early) {
      this.#early.push(point);
      return;
    }
    this.series.add([point], gap);
    this.tick += 1;
  }

  /** Without an answer the series starts here, after a gap. */
  async fill(read: () => Promise<Point[]>): Promise<void> {
    const early: Point[] = [];
    this.#early = early;
    try {
      this.series.add(await read());
    } catch {
      // As said.
    }
    if (this.#early !== early) return;
    this.series.add(early);
    this.#early = null;
    this.tick += 1;
  }
}
