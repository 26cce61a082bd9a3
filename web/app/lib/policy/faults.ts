/** What is wrong with the text of a form, by place. The server has the last word on everything else. */
import type { Kind } from '../api/types.ts';
import { hasOverride, isUnlimited, takes, type Form, type Grammar, type RowField } from './form.ts';
import { isRate, parseNumber, parseRate, type WrongRate } from './rate.ts';
import { conditionsOf } from './ruletext.ts';

export interface Fault {
  why:
    | WrongRate
    | 'id'
    | 'id-twice'
    | 'tag'
    | 'tag-twice'
    | 'burst-number'
    | 'burst-zero'
    | 'debt'
    | 'algorithm'
    | 'no-limits'
    | 'many-limits'
    | 'missing'
    | 'cost'
    | 'share';
}

/** By place: `KEY/FIELD` of a row, `limits` for the list as a whole, or a field's name. */
export type Faults = Record<string, Fault>;

/** Fields without which there is no object of the kind. */
const REQUIRED: Record<Kind, string[]> = { tier: [], rule: ['endpoint', 'per'], client: [], domain: [] };

export function faultsOf(kind: Kind, form: Form, grammar: Grammar): Faults {
  const faults: Faults = {};
  for (const name of REQUIRED[kind]) {
    const value = form.fields[name] ?? '';
    if (value === '' || (Array.isArray(value) && value.length === 0)) faults[name] = { why: 'missing' };
  }
  // An override that came without them may stay so.
  for (const name of ['override.reason', 'override.until']) {
    const value = form.fields[name];
    if (typeof value === 'string' && value.trim() === '') faults[name] = { why: 'missing' };
  }
  const { cost } = form.fields;
  if (cost !== undefined && (typeof cost !== 'number' || cost < 1)) faults['cost'] = { why: 'cost' };
  // The server refuses a condition without a value, so the preview does not ask while one is typed.
  for (const [identity, value] of conditionsOf(form.fields)) {
    if (value === '') faults[`where.${identity}`] = { why: 'missing' };
  }
  const why = tagFault(form.fields['tags'], grammar);
  if (kind === 'client' && why) faults['tags'] = { why };
  if (!isUnlimited(form)) Object.assign(faults, limitFaults(kind, form, grammar));
  return faults;
}

function tagFault(tags: unknown, { bounds }: Grammar): Fault['why'] | null {
  if (!Array.isArray(tags)) return null;
  const idPattern = idPatternOf(bounds);
  if (!tags.every((tag) => idPattern.test(String(tag)))) return 'tag';
  return new Set(tags).size < tags.length ? 'tag-twice' : null;
}

function idPatternOf({ id_pattern }: Grammar['bounds']): RegExp {
  return new RegExp(`^(?:${id_pattern})$`);
}

function limitFaults(kind: Kind, form: Form, grammar: Grammar): Faults {
  const { bounds } = grammar;
  const faults: Faults = {};
  if (form.limits.length === 0 && (kind === 'tier' || kind === 'rule' || hasOverride(form)))
    faults['limits'] = { why: 'no-limits' };
  if (form.limits.length > bounds.limits_max) faults['limits'] = { why: 'many-limits' };
  const idPattern = idPatternOf(bounds);
  for (const row of form.limits) {
    const note = (field: RowField | 'max_debt' | 'on_failure', why: Fault['why']) =>
      (faults[`${row.key}/${field}`] = { why });
    const id = row.id.trim();
    if (!idPattern.test(id)) note('id', 'id');
    else if (form.limits.some((other) => other.key < row.key && other.id.trim() === id))
      note('id', 'id-twice');
    if (row.algorithm === '') note('algorithm', 'algorithm');
    const rate = parseRate(row.rate, bounds.number_max, row.algorithm);
    if (!isRate(rate)) note('rate', rate);
    if (row.burst.trim() !== '' && takes(grammar, row.algorithm, 'burst')) {
      const burst = parseNumber(row.burst, bounds.number_max);
      if (typeof burst === 'string') note('burst', 'burst-number');
      else if (burst === 0) note('burst', 'burst-zero');
    }
    const debt = row.fields['max_debt'] ?? 0;
    if (typeof debt !== 'number' && takes(grammar, row.algorithm, 'max_debt')) note('max_debt', 'debt');
    const failing = row.fields['on_failure'];
    if (typeof failing === 'object' && failing !== null && 'local' in failing) {
      const share = failing.local;
      if (typeof share !== 'number' || share <= 0 || share > 1) note('on_failure', 'share');
    }
  }
  return faults;
}
