/** A rule in words. */
import { rule, rules } from '../text/rules.ts';
import { count } from '../format.ts';
import { isUnlimited, type Form, type LimitRow } from './form.ts';
import { isRate, parseRate } from './rate.ts';

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

/** The whole of it as a sentence. */
export function sentence({ fields, limits }: Form): string {
  const t = rule.sentence;
  const per = perWhom(fields['per']);
  const endpoint = String(fields['endpoint'] ?? '').trim();
  const method = String(fields['method'] ?? '').trim();
  const rates = isUnlimited({ fields, limits })
    ? []
    : limits
        .filter(({ rate }) => rate.trim() !== '')
        .map((row) => t.rate(rateInWords(row), row.fields['mode'] === 'shadow'));
  const tiers = Array.isArray(fields['tiers']) ? t.tiers(fields['tiers'].join(t.or)) : '';
  const where = conditionsOf(fields).map(([kind, value]) => t.where(kind, value));
  const cost = typeof fields['cost'] === 'number' && fields['cost'] > 1 ? t.cost(fields['cost']) : '';
  const who = per === '' ? t.nobody : per === 'everyone' ? t.everyone : t.each(per);
  const what = endpoint === '*' ? t.anywhere(method) : t.there(method, endpoint || '…');
  const only = where.length > 0 ? t.only(where.join(t.and)) : '';
  const said = `${who}${tiers} ${what} ${rates.length > 0 ? rates.join(t.and) : '…'}${only}.`;
  return [fields['enabled'] === false ? t.off : '', said, cost].filter(Boolean).join(' ');
}

/** As it was typed where that is no rate yet. */
function rateInWords(row: LimitRow): string {
  const rate = parseRate(row.rate, Number.MAX_SAFE_INTEGER, row.algorithm);
  return isRate(rate) ? rule.sentence.times(count(rate.limit), rate.period) : row.rate.trim();
}
