/** What was denied just before and just after an instant. */
import type { FiguresPoint } from '../api/schema.ts';
import { share } from '../format.ts';

export const AROUND_MS = 15 * 60_000;
const MINUTE_MS = 60_000;

export interface Around {
  before: string | null;
  after: string | null;
}

/** From figures of whole minutes; the one with the instant in it is neither. */
export function sharesAround(points: FiguresPoint[], at: number): Around {
  return {
    before: deniedShare(points.filter(({ t }) => t + MINUTE_MS <= at)),
    after: deniedShare(points.filter(({ t }) => t >= at)),
  };
}

function deniedShare(points: FiguresPoint[]): string | null {
  const sum = (what: 'allowed' | 'denied') => points.reduce((all, point) => all + point[what], 0);
  return share(sum('denied'), sum('allowed'));
}
