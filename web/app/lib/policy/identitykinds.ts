/** The kinds of identity that a policy knows: those with a default tier, and those that rules count. */
import type { RuleItem, TierItem } from '../api/types.ts';

export function kindsOf(tiers: TierItem[], rules: RuleItem[]): string[] {
  const kinds = [
    ...tiers.flatMap(({ default_of }) => default_of ?? []),
    ...rules.flatMap(({ value }) => value.per),
  ];
  return [...new Set(kinds)].filter((kind) => kind !== 'everyone');
}
