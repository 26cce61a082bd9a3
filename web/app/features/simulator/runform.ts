/**
 * The input of a simulation run as text in fields, so that incomplete input survives, and its conversion to the API's
 * question. A fault stands at the JSON pointer that the server would name.
 */
import type { Ask, Chosen, TriedList } from '../../lib/api/schema.ts';
import {
  count,
  isCount,
  newRow,
  PATTERNS,
  rowFaults,
  rowForm,
  rowOf,
  ROWS,
  type RunFaults,
  type TrafficRow,
} from './traffic.ts';

export type TrafficKind = 'made' | 'log' | 'recorded';

export interface PolicyForm {
  /** `live`, `none`, `mine`, `given`, `document`, `version:N` or `draft:ID`. */
  choice: string;
  document: string;
  /** What a run was asked with that is shown in no field. */
  given: Chosen | null;
}

export interface RunFields {
  source: TrafficKind;
  rows: TrafficRow[];
  seed: string;
  start: string;
  domain: string;
  upload: string;
  /** Of a log: by kind of identity, the tier of all of that kind; looked up where it is absent or empty. */
  tiers: Record<string, string>;
  a: PolicyForm;
  b: PolicyForm;
}

export type Side = 'a' | 'b';
/** A question that is ready to be asked: many in the default tier, and one that comes with a burst. */
export function example(domain: string, b: string): RunFields {
  const many = newRow([], { clients: '200', pattern: 'poisson', rate: '3 / 1s', request: 'POST /v1/search' });
  const one = newRow([many], {
    pattern: 'burst',
    parameters: ['500'],
    rate: '90 / 1s',
    request: 'GET /v1/list',
  });
  return {
    source: 'made',
    rows: [many, one],
    seed: '42',
    start: '',
    domain,
    upload: '',
    tiers: {},
    a: { choice: b === 'live' ? 'none' : 'live', document: '', given: null },
    b: { choice: b, document: '', given: null },
  };
}

export function runFaults(form: RunFields, mine: TriedList | null): RunFaults {
  const faults: RunFaults = {};
  for (const side of ['a', 'b'] as const) {
    const { choice, document } = form[side];
    if (choice === 'document' && parseJson(document) === undefined) faults[`/${side}/document`] = 'json';
    if (choice === 'mine' && !mine) faults[`/${side}/changes`] = 'changes';
  }
  if (form.source === 'log' && form.upload === '') faults['/traffic/log/upload'] = 'upload';
  if (form.source !== 'made') return faults;
  if (form.rows.length === 0) faults[ROWS] = 'rows';
  form.rows.forEach((row, at) => rowFaults(row, at, faults));
  if (!isCount(form.seed, 0)) faults['/traffic/made/seed'] = 'seed';
  if (form.start.trim() !== '' && instantOf(form.start) === null) faults['/traffic/made/start'] = 'start';
  return faults;
}

/** An instant of RFC 3339; `2026-11-21 00:00` is meant in UTC. */
function instantOf(text: string): string | null {
  const plain = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(:\d\d)?)?$/.exec(text.trim());
  const full = plain
    ? `${plain[1]}T${plain[2] ?? '00:00'}${plain[3] ?? ':00'}Z`
    : text.trim().replace(' ', 'T');
  return Number.isNaN(Date.parse(full)) || !/[zZ]|[+-]\d\d:\d\d$/.test(full) ? null : full;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What is asked; null while the text has faults. `mine` is the change list of this browser. */
export function askOf(form: RunFields, mine: TriedList | null): Ask | null {
  if (Object.keys(runFaults(form, mine)).length > 0) return null;
  const policy = (side: Side) => chosenOf(form[side], mine);
  return { a: policy('a'), b: policy('b'), traffic: trafficOf(form) };
}

function chosenOf({ choice, document, given }: PolicyForm, mine: TriedList | null): Chosen {
  const [kind, id = ''] = choice.split(/:(.*)/s);
  if (kind === 'version') return { version: Number(id) };
  if (kind === 'draft') return { draft: id };
  if (kind === 'document') return { document: parseJson(document) } as Chosen;
  if (kind === 'mine' && mine) return { changes: mine };
  if (kind === 'given' && given) return given;
  return kind === 'none' ? 'none' : 'live';
}

function trafficOf(form: RunFields): Ask['traffic'] {
  const { domain } = form;
  if (form.source === 'recorded') return 'recorded';
  if (form.source === 'log') {
    const tiers = Object.fromEntries(Object.entries(form.tiers).filter(([, tier]) => tier !== ''));
    return { log: { upload: form.upload, domain, ...(Object.keys(tiers).length > 0 ? { tiers } : {}) } };
  }
  const start = instantOf(form.start);
  return {
    made: {
      rows: form.rows.map(rowOf),
      seed: count(form.seed),
      domain,
      ...(start === null ? {} : { start }),
    },
  };
}

/** A question that an older page may have kept: null when it is not one. */
export function parseRunForm(text: string): RunFields | null {
  const form = parseJson(text) as Partial<RunFields> | null | undefined;
  const isWhole =
    Array.isArray(form?.rows) &&
    form.rows.every((row) => row.pattern in PATTERNS && Array.isArray(row.parameters)) &&
    [form.source, form.a?.choice, form.b?.choice, form.seed, form.upload].every(
      (one) => typeof one === 'string',
    );
  return isWhole ? { tiers: {}, ...(form as Omit<RunFields, 'tiers'>) } : null;
}

/** The fields of a question that was asked. */
export function formOfAsk(ask: Ask): RunFields {
  const form = { ...example('default', 'live'), a: policyForm(ask.a ?? 'live'), b: policyForm(ask.b) };
  if (ask.traffic === 'recorded') return { ...form, source: 'recorded' };
  if ('log' in ask.traffic) {
    const { upload, domain = 'default', tiers = {} } = ask.traffic.log;
    return { ...form, source: 'log', upload, domain, tiers };
  }
  const { rows, seed = 1, start, domain = 'default' } = ask.traffic.made;
  return {
    ...form,
    rows: rows.map((row, at) => ({ ...rowForm(row), key: at + 1 })),
    seed: String(seed),
    start: start ?? '',
    domain,
  };
}

function policyForm(chosen: Chosen): PolicyForm {
  const form = (choice: string): PolicyForm => ({ choice, document: '', given: null });
  if (typeof chosen === 'string') return form(chosen);
  if ('version' in chosen) return form(`version:${chosen.version}`);
  if ('draft' in chosen) return form(`draft:${chosen.draft}`);
  if ('document' in chosen)
    return { ...form('document'), document: JSON.stringify(chosen.document, null, 2) };
  return { ...form('given'), given: chosen };
}
