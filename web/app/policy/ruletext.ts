/** A rule's conditions in words. */
import type { Rule } from '../api/types.ts';
import { text } from '../text.ts';

export function perWhom(rule: Rule): string {
  return Array.isArray(rule.per) ? rule.per.join(' + ') : rule.per;
}

/** Empty when the rule is for everybody. */
export function onlyFor(rule: Rule): string {
  const tiers = rule.tiers ? [text.rules.tierIs(rule.tiers.join(', '))] : [];
  const where = Object.entries(rule.where ?? {}).map(([kind, value]) => `${kind} ${value}`);
  return [...tiers, ...where].join('; ');
}
