/** What the publish panel tells of a change list before it is published. */
import type { PreviewAsk, PreviewKind } from '../../lib/api/schema.ts';
import { type Grammar } from '../../lib/policy/form.ts';
import { valueOf } from '../../lib/policy/value.ts';
import type { Entry } from '../../lib/state/changes/entry.ts';
import { trafficOf, usualTraffic, type TrafficForm } from './preview.ts';

export interface Previewed {
  kind: PreviewKind;
  id: string;
  traffic: TrafficForm;
  ask: PreviewAsk;
}

/** The tiers and rules whose limits can be shown beside those that are in force. */
export function previewsOf(entries: Entry[], grammar: Grammar): Previewed[] {
  return entries.flatMap(({ kind, domain, id, op, base, form }) => {
    if ((kind !== 'tier' && kind !== 'rule') || op !== 'put') return [];
    const [published, draft] = [base, form].map((one) => valueOf(kind, id, one, grammar));
    if (!published || !draft) return [];
    const traffic = usualTraffic(published.limits ?? []);
    const sent = trafficOf(traffic, grammar.bounds.number_max);
    return sent ? [{ kind, id, traffic, ask: { kind, domain, published, draft, traffic: sent } }] : [];
  });
}
