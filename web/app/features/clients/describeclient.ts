/** Describes clients, overrides and filters in a few words. */
import type { ClientFilter } from '../../lib/api/calls/clients.ts';
import type { Client, Override } from '../../lib/api/types.ts';
import { count } from '../../lib/format/format.ts';
import { describeLimits } from '../../lib/policy/describe.ts';
import * as words from '../../lib/text/clients.ts';

export function describeOverride(override: Override): string {
  if (override.blocked) return words.override.blocked;
  if (override.unlimited) return words.override.unlimited;
  return describeLimits(override.limits ?? []);
}

/** The tier that it is in, and whether that is only the default of its kind; null where its kind has none. */
export function tierOf(
  client: Pick<Client, 'kind' | 'tier'>,
  tiers: { default_of: string[]; value: { id: string } }[],
): { id: string; isDefault: boolean } | null {
  if (client.tier) return { id: client.tier, isDefault: false };
  const fallback = tiers.find((tier) => tier.default_of.includes(client.kind));
  return fallback ? { id: fallback.value.id, isDefault: true } : null;
}

/** Empty where everybody is meant. */
export function describeFilter({ kind, prefix, q, tier, tag, has_override }: ClientFilter): string {
  const t = words.filters;
  return [
    kind ? t.kind(kind) : '',
    prefix ? t.typed(prefix) : '',
    q ? t.typed(q) : '',
    tier ? t.tier(tier) : '',
    tag ? t.tag(tag) : '',
    has_override === undefined || has_override === null ? '' : has_override ? t.with : t.without,
  ]
    .filter(Boolean)
    .join(', ');
}

export function describeCount(number: number): string {
  return words.clients.count(count(number), number === 1);
}
