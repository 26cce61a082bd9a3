/** What the admin server's REST API and event stream carry, in the server's own names. */

export interface Problem {
  code: string;
  title: string;
  status: number;
  detail?: string;
  request_id?: string;
  /** From the header: when to ask again. */
  retry_after_s?: number;
  errors?: FieldProblem[];
  conflicts?: Conflict[];
}

export interface FieldProblem {
  /** JSON pointer into the request's body, where it is the body that is wrong. */
  pointer?: string;
  /** Name of a parameter of the address. */
  parameter?: string;
  /** Name of a header. */
  header?: string;
  code: string;
  message: string;
}

export interface Session {
  name: string;
  role: string;
  csrf: string;
  expires_at: string;
  environment: string | null;
}

export interface SignInProvider {
  /** On the button; null: there is none. */
  name: string | null;
}

export interface SetupState {
  open: boolean;
  name?: string;
  password_characters_min: number;
}

export interface Meta {
  version: string;
  algorithms: AlgorithmInfo[];
  bounds: Bounds;
  check_url: string | null;
}

export interface AlgorithmInfo {
  id: string;
  label: string;
  help: string;
  parameters: string[];
}

export interface Bounds {
  number_max: number;
  id_pattern: string;
  limits_max: number;
  message_bytes_max: number;
  password_characters_min: number;
}

export interface Limit {
  id: string;
  algorithm: string;
  limit: number;
  period: string;
  burst?: number;
  /** Fields that this page does not know: kept as they came. */
  [field: string]: unknown;
}

export interface Tier {
  id: string;
  limits?: Limit[];
  unlimited?: boolean;
  [field: string]: unknown;
}

export interface Rule {
  id: string;
  endpoint: string;
  method?: string;
  per: string | string[];
  tiers?: string[];
  where?: Record<string, string>;
  cost?: number;
  limits: Limit[];
  enabled?: boolean;
  [field: string]: unknown;
}

export interface Item<Value> {
  etag: string;
  revision: number;
  changed_by: string;
  changed_at: string;
  value: Value;
}

export interface TierItem extends Item<Tier> {
  default_of: string[];
  rules: string[];
  clients: number;
}

export type RuleItem = Item<Rule>;

export interface ItemList<Of> {
  policy_version: number;
  domain: string;
  domains: string[];
  items: Of[];
  /** The cursor of the page that follows. */
  next: string | null;
}

export interface Version {
  version: number;
  sha256: string;
  author: string;
  message: string;
  published_at: string;
}

export interface VersionPage {
  items: Version[];
  next: string | null;
}

export type Kind = 'tier' | 'rule';

export interface Change {
  op: 'put';
  kind: Kind;
  domain: string;
  id: string;
  value: Tier | Rule;
}

export interface ChangeList {
  base_version: number;
  message: string;
  changes: Change[];
  if_match: Record<string, string>;
}

export interface Published {
  version: number;
  sha256: string;
  on_top_of: number | null;
  changes: Touched[];
}

export interface Touched {
  kind: Kind;
  domain: string;
  id: string;
  etag: string;
}

/** An object as it is, without who uses it. */
export interface Present {
  etag: string;
  value: Tier | Rule;
}

export interface Conflict {
  kind: Kind;
  domain: string;
  id: string;
  /** Null when it was deleted. */
  present: Present | null;
  /** Null, like the two that follow, where the server does not know any more. */
  changed_by: string | null;
  changed_at: string | null;
  version: number | null;
}

export interface Totals {
  allowed: number;
  denied: number;
  no_limit: number;
  unknown_domain: number;
}

export interface LimitFigures {
  limit_id: string;
  allowed: number;
  denied: number;
  allowed_rate: number;
  denied_rate: number;
}

export interface Point {
  /** Unix milliseconds. */
  t: number;
  /** Per second. */
  allowed: number;
  denied: number;
}

export interface Metrics {
  newest: MetricsEvent;
  history: Point[];
}

export interface HelloEvent {
  server_time_ms: number;
  build: string;
  policy_version: number;
  role: string;
  session_end: string;
}

export interface MetricsEvent {
  t: number;
  policy_version: number;
  interval_ms: number;
  totals: Totals;
  rates: { allowed: number; denied: number };
  limits: LimitFigures[];
  gap?: boolean;
}

export interface PublishedEvent {
  version: number;
  author: string;
  message: string;
  published_at: string;
  /** The first hundred objects that changed, and how many did. */
  touched: Touched[];
  touched_count: number;
  /** The first hundred that are gone, and how many are. */
  removed: Omit<Touched, 'etag'>[];
  removed_count: number;
}

export interface ByeEvent {
  reason: string;
}
