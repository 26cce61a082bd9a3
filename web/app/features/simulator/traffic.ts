/** Rows of made-up traffic as text in fields, and what is asked of them. */
import type { Pattern, Row } from '../../lib/api/schema.ts';
import { parsePeriod } from '../../lib/policy/period.ts';
import { formatRate, isRate, parseNumber, parseRate } from '../../lib/policy/rate.ts';

export interface TrafficRow {
  /** Tells rows apart. */
  key: number;
  clients: string;
  kind: string;
  value: string;
  tier: string;
  pattern: PatternName;
  /** Of the pattern, in the order of its parameters. */
  parameters: string[];
  rate: string;
  for: string;
  request: string;
  cost: string;
}

export type FaultName =
  | 'clients'
  | 'whole'
  | 'rate'
  | 'length'
  | 'request'
  | 'seed'
  | 'start'
  | 'upload'
  | 'json'
  | 'changes'
  | 'identity'
  | 'rows';
/** By pointer. */
export type RunFaults = Record<string, FaultName>;

type Parameter = 'requests' | 'to' | 'on' | 'off' | 'period' | 'back_off' | 'tries';

export const PATTERNS = {
  steady: [],
  poisson: [],
  burst: ['requests'],
  ramp: ['to'],
  on_off: ['on', 'off'],
  waves: ['period'],
  retry: ['back_off', 'tries'],
} as const satisfies Record<string, readonly Parameter[]>;
export type PatternName = keyof typeof PATTERNS;
export const PATTERN_NAMES = Object.keys(PATTERNS) as PatternName[];

const USUAL: Record<Parameter, string> = {
  requests: '50',
  to: '20',
  on: '10s',
  off: '20s',
  period: '1m',
  back_off: '1s',
  tries: '5',
};
const LENGTHS: Parameter[] = ['on', 'off', 'period', 'back_off'];
const NUMBER_MAX = Number.MAX_SAFE_INTEGER;
export const ROWS = '/traffic/made/rows';

export function usual(pattern: PatternName): string[] {
  return PATTERNS[pattern].map((parameter) => USUAL[parameter]);
}

export function newRow(rows: TrafficRow[], like: Partial<TrafficRow> = {}): TrafficRow {
  return {
    clients: '1',
    kind: 'user',
    value: '',
    tier: '',
    pattern: 'steady',
    parameters: [],
    rate: '1 / 1s',
    for: '2m',
    request: '',
    cost: '1',
    ...like,
    key: Math.max(0, ...rows.map((row) => row.key)) + 1,
  };
}

/** Where a field of a row stands in the question. */
export function pointerOf(row: number, field: string): string {
  return `${ROWS}/${row}/${field}`;
}

export function rowFaults(row: TrafficRow, at: number, faults: RunFaults): void {
  const note = (field: string, fault: FaultName) => (faults[pointerOf(at, field)] = fault);
  if (!isCount(row.clients, 1)) note('clients', 'clients');
  if (!isRate(parseRate(row.rate, NUMBER_MAX, ''))) note('rate', 'rate');
  if (parsePeriod(row.for, '') === null) note('for', 'length');
  if (requestOf(row.request) === null) note('request', 'request');
  if (!isCount(row.cost, 1)) note('cost', 'whole');
  Object.assign(faults, patternFaults(row, `${ROWS}/${at}`));
}

/** What is wrong with the parameters of a pattern that stands in the object at `pointer`. */
export function patternFaults(
  { pattern, parameters }: Pick<TrafficRow, 'pattern' | 'parameters'>,
  pointer: string,
): RunFaults {
  const faults: RunFaults = {};
  PATTERNS[pattern].forEach((parameter, at) => {
    const text = parameters[at] ?? '';
    const isLength = LENGTHS.includes(parameter);
    if (isLength ? parsePeriod(text, '') === null : !isCount(text, 1))
      faults[`${pointer}/pattern/${parameter}`] = isLength ? 'length' : 'whole';
  });
  return faults;
}

export function isCount(text: string, least: number): boolean {
  const number = parseNumber(text, NUMBER_MAX);
  return typeof number === 'number' && number >= least;
}

export const count = (text: string) => Number(parseNumber(text, NUMBER_MAX));

/** `POST /v1/search`, `/v1/search`, `POST` or nothing. */
function requestOf(text: string): { method?: string; path?: string } | null {
  const match = /^(?:([a-z]+)\s+(?=\/)|([A-Z]+)$)?(\/\S*)?$/i.exec(text.trim());
  const alone = match?.[2];
  if (!match || (alone && alone !== alone.toUpperCase())) return null;
  const method = (match[1] ?? alone)?.toUpperCase();
  return { ...(method ? { method } : {}), ...(match[3] ? { path: match[3] } : {}) };
}

export function rowOf(row: TrafficRow): Row {
  const rate = parseRate(row.rate, NUMBER_MAX, '');
  if (!isRate(rate)) throw new Error('a row with faults is not asked');
  const optional = { value: row.value.trim(), tier: row.tier.trim() };
  return {
    clients: count(row.clients),
    kind: row.kind.trim(),
    ...Object.fromEntries(Object.entries(optional).filter(([, text]) => text !== '')),
    pattern: patternOf(row.pattern, row.parameters),
    rate: rate.limit,
    per: rate.period,
    for: parsePeriod(row.for, '') ?? '',
    ...requestOf(row.request),
    cost: count(row.cost),
  };
}

/** The server's pattern, of parameters without faults. */
export function patternOf(name: PatternName, parameters: string[]): Pattern {
  if (name === 'steady' || name === 'poisson') return name;
  const given = PATTERNS[name].map((parameter, at) => {
    const text = parameters[at] ?? USUAL[parameter];
    return [parameter, LENGTHS.includes(parameter) ? parsePeriod(text, '') : count(text)];
  });
  return { [name]: Object.fromEntries(given) } as Pattern;
}

export function rowForm(row: Row): Omit<TrafficRow, 'key'> {
  const pattern = row.pattern ?? 'steady';
  const name = (typeof pattern === 'string' ? pattern : Object.keys(pattern)[0]) as PatternName;
  const given = typeof pattern === 'string' ? {} : Object.values(pattern)[0];
  const numbers = given as Partial<Record<Parameter, string | number>>;
  return {
    clients: String(row.clients ?? 1),
    kind: row.kind ?? 'user',
    value: row.value ?? '',
    tier: row.tier ?? '',
    pattern: name,
    parameters: PATTERNS[name].map((parameter) => String(numbers[parameter] ?? '')),
    rate: formatRate({ limit: row.rate, period: row.per ?? '1s' }),
    for: row.for,
    request: [row.method, row.path].filter(Boolean).join(' '),
    cost: String(row.cost ?? 1),
  };
}
