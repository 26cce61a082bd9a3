/** The rates that the chart shows: live seconds, or steps of a range that are read anew as they come. */
import { getRange } from '../../lib/api/calls/live.ts';
import type { FiguresPoint, LimitCounts as PartFigures } from '../../lib/api/schema.ts';
import { ownerName } from '../../lib/policy/limitname.ts';
import { live } from '../../lib/state/live/live.svelte.ts';
import { LiveSeries } from '../../lib/state/live/liveseries.svelte.ts';
import { Series } from '../../lib/state/live/series.ts';
import { Loading } from '../../lib/state/loading.svelte.ts';
import { STEP_S, stepOf, type View } from './range.ts';

/** What the events `metrics.tier` and `metrics.rule` carry. */
export interface OwnersEvent {
  t: number;
  items: (Omit<PartFigures, 'limit_id'> & { id: string })[];
}

export interface LoadedRates {
  /** What was asked for. */
  view: View;
  of: LiveSeries;
  span: { lastS: number; topic: string } | { from: number; to: number };
}

export class RateHistory extends Loading<LoadedRates> {
  /** `domain` is that of the tier or rule. */
  constructor(view: () => View, domain: () => string) {
    super(async (signal) => {
      const [now, asked] = [Date.now() + live.clockOffsetMs, view()];
      const { range, to, owner } = asked;
      if (range.step === '1s' && to === null && owner === null) {
        return { view: asked, of: live.history, span: { lastS: range.lastS, topic: 'metrics' } };
      }
      const step = stepOf(asked, now);
      const end = to ?? now;
      const from = end - range.lastS * 1_000;
      const by = owner?.kind ?? 'total';
      const id = owner ? { id: ownerName(domain(), owner.kind, owner.id) } : {};
      const found = await getRange({ from, to: Math.ceil(end), step, by, ...id }, signal);
      const of = new LiveSeries(new Series(STEP_S[step], range.lastS + STEP_S[step]));
      of.series.add((found.series[0]?.points ?? []).map((point) => rateOf(point, STEP_S[step])));
      const isLive = to === null && step === '1s';
      return {
        view: asked,
        of,
        span: isLive ? { lastS: range.lastS, topic: `metrics.${by}` } : { from, to: end },
      };
    });
  }

  /** A second of the tier or rule that is shown. */
  grow(event: OwnersEvent, name: string): void {
    if (!this.data || !('lastS' in this.data.span)) return;
    const figures = event.items.find(({ id }) => id === name);
    this.data.of.add({
      t: event.t,
      allowed: figures?.allowed_rate ?? 0,
      denied: figures?.denied_rate ?? 0,
    });
  }
}

function rateOf({ t, allowed, denied }: FiguresPoint, stepS: number) {
  return { t, allowed: allowed / stepS, denied: denied / stepS };
}
