/** Whom a rule counts, and what it is only for, in lists. */
import { rules } from '../text/rules.ts';

/** What a rule counts by, from one kind of identity, several, or `everyone`. */
export function perWhom(per: unknown): string {
  return Array.isArray(per) ? per.join(' + ') : typeof per === 'string' ? per : '';
}

/** What was typed: one kind, or several with commas or plus signs between them. */
export function parsePer(typed: string): string | string[] {
  const kinds = typed.split(/[+,]/).map((kind) => kind.trim());
  return kinds.length > 1 ? kinds.filter(Boolean) : (kinds[0] ?? '');
}

/** Conditions of a form: `where.KIND` by kind. */
export function conditionsOf(fields: Record<string, unknown>): [kind: string, value: string][] {
  return Object.entries(fields)
    .filter(([name]) => name.startsWith('where.'))
    .map(([name, value]) => [name.slice('where.'.length), String(value)]);
}

/** Empty when the rule is for everybody. */
export function onlyFor(fields: Record<string, unknown>): string {
  const tiers = Array.isArray(fields['tiers']) ? [rules.tierIs(fields['tiers'].join(', '))] : [];
  return [...tiers, ...conditionsOf(fields).map(([kind, value]) => `${kind} ${value}`)].join('; ');
}
