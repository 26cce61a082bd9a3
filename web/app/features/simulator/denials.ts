/** The denials of a run over time, as columns of a chart and as rows of a table. */
import type { Bucket, Summary } from '../../lib/api/schema.ts';
import type { Bar } from './strips.ts';

/** Times in seconds after the first bucket, and denials a second of A and B. */
export type DenialColumns = [times: number[], a: number[], b: number[]];

/** Buckets that are left out had no request, and so no denial. */
export function columnsOf({
  timeline,
  bucket_ms: stepMs,
}: Pick<Summary, 'timeline' | 'bucket_ms'>): DenialColumns {
  const columns: DenialColumns = [[], [], []];
  const put = (ms: number, a: number, b: number) => {
    [ms / 1000, (1000 * a) / stepMs, (1000 * b) / stepMs].forEach((value, at) => columns[at]?.push(value));
  };
  const begin = Date.parse(timeline[0]?.at ?? '');
  let next: number | null = null;
  for (const bucket of timeline) {
    const ms = Date.parse(bucket.at) - begin;
    if (next !== null && ms > next) {
      put(next, 0, 0);
      if (ms - stepMs > next) put(ms - stepMs, 0, 0);
    }
    put(ms, bucket.denied_a, bucket.denied_b);
    next = ms + stepMs;
  }
  return columns;
}

/** A client's buckets as a strip of one side, over a part of the time. */
export function barsOf(
  buckets: Bucket[],
  side: 'denied_a' | 'denied_b',
  stepMs: number,
  [fromMs, toMs]: [number, number],
): Bar[] {
  const share = (ms: number) => Math.min(1, Math.max(0, (ms - fromMs) / (toMs - fromMs)));
  return buckets.flatMap((bucket) => {
    const ms = Date.parse(bucket.at);
    if (ms + stepMs <= fromMs || ms >= toMs) return [];
    const denied = bucket[side];
    return [{ from: share(ms), to: share(ms + stepMs), allowed: bucket.requests - denied, denied }];
  });
}
