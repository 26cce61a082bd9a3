/** Tiers and entries that the tests start from. */
import type { Tier, TierItem } from '../app/lib/api/types.ts';
import { formOf, type Form, type Grammar, type LimitFormRow } from '../app/lib/policy/form.ts';
import { entryOf, type Entry } from '../app/lib/state/changes/entry.ts';

export const grammar: Grammar = {
  algorithms: [
    {
      id: 'token_bucket',
      label: 'Token bucket',
      help: '',
      parameters: ['limit', 'period', 'burst', 'max_debt'],
    },
    { id: 'fixed_window', label: 'Fixed window', help: '', parameters: ['limit', 'period'] },
  ],
  bounds: {
    number_max: Number.MAX_SAFE_INTEGER,
    description_characters_max: 200,
    id_pattern: '[a-z][a-z0-9_-]{0,63}',
    limits_max: 3,
    message_bytes_max: 200,
  },
};

export const layered: Tier = {
  id: 'layered',
  limits: [
    { id: 'second', algorithm: 'token_bucket', limit: 10, period: '1s', burst: 20 },
    { id: 'minute', algorithm: 'fixed_window', limit: 1000, period: '1m' },
  ],
};

export const key = { kind: 'tier', domain: 'default', id: 'layered' } as const;

export function form(): Form {
  return formOf('tier', layered);
}

export function row(of: Form, id: string): LimitFormRow {
  const found = of.limits.find((one) => one.id === id);
  if (!found) throw new Error(`no limit ${id}`);
  return found;
}

/** The form after an edit. */
export function edited(edit: (form: Form) => void): Form {
  const changed = form();
  edit(changed);
  return changed;
}

export function item(revision: number, value: Tier): TierItem {
  return {
    id: value.id,
    etag: `"tier:${value.id}:${revision}"`,
    revision,
    changed_by: 'ben',
    changed_at: '2026-11-21T03:12:40Z',
    default_of: [],
    rules: [],
    clients: 0,
    value,
  };
}

export function entry(edit: (form: Form) => void = () => undefined): Entry {
  const started = entryOf(key, item(1, layered), 1);
  edit(started.form);
  return started;
}

/** The sample tier with one limit changed. */
export function withLimit(id: string, numbers: Record<string, unknown>): Tier {
  const limits = (layered.limits ?? []).map((limit) => (limit.id === id ? { ...limit, ...numbers } : limit));
  return { ...layered, limits };
}
