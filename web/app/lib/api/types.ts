/**
 * What the admin server's REST API and event stream carry. The types are those that the OpenAPI document gives; here they
 * are only named, or told more exactly than the document does.
 */
import type * as schema from './schema.ts';

export type {
  Alert,
  AlgorithmInfo,
  Bounds,
  ChangeList,
  Draft,
  DraftWithList,
  Kind,
  ListOfUncovered,
  Loosened,
  Meta,
  Session,
  SetupState,
  SignInProvider,
  StartsToRefuse,
  Uncovered,
  Usage,
  Validated,
  Warned,
} from './schema.ts';
export type { ListOfListedVersion as VersionPage, Second as Point } from './schema.ts';
export type { AllTotals as Totals, LimitCounts as LimitFigures } from './schema.ts';

/** Names of fields that this build does not know: kept as they came. */
type Unknown = Record<string, unknown>;

export interface Problem extends Pick<
  schema.Problem,
  'code' | 'title' | 'status' | 'used_by' | 'tries_left' | 'removed_in'
> {
  detail?: string;
  request_id?: string;
  /** From the header: when to ask again. */
  retry_after_s?: number;
  errors?: FieldProblem[];
  conflicts?: Conflict[];
}

/** Where the request is wrong: a JSON pointer into its body, or the name of a parameter or a header. */
export interface FieldProblem {
  pointer?: string;
  parameter?: string;
  header?: string;
  code: string;
  message: string;
}

export type Limit = Omit<schema.Limit, 'algorithm'> & { algorithm: string } & Unknown;
export type Tier = Omit<schema.Tier, 'limits'> & { limits?: Limit[] } & Unknown;
export type Rule = Omit<schema.Rule, 'limits'> & { limits: Limit[] } & Unknown;
export type Override = Omit<schema.Override, 'limits'> & { limits?: Limit[] } & Unknown;
export type Client = Omit<schema.Client, 'override'> & { override?: Override | null } & Unknown;
/** The settings of a domain: what is in it are objects of their own. */
export type Domain = Omit<schema.Domain, 'tiers' | 'rules' | 'clients'> & Unknown;

/** An object of each kind. */
export interface Objects {
  tier: Tier;
  rule: Rule;
  client: Client;
  domain: Domain;
}

export interface Item<Value> {
  id: string;
  etag: string;
  /** The version that made it what it is. */
  revision: number;
  changed_by: string;
  changed_at: string;
  value: Value;
}
export type TierItem = Item<Tier> & schema.Usage;
export type RuleItem = Item<Rule>;
export type ClientItem = Item<Client>;
export type DomainItem = Item<Domain>;

export type ItemList<Of> = Omit<schema.ListOfTierItem, 'items' | 'domain'> & { domain: string; items: Of[] };

export type Change = Omit<schema.Change, 'domain'> & { domain: string };

/** The answer to a change list. */
export type Published = schema.Publication;

/** Of an object of the policy. */
export interface Conflict extends Omit<schema.Conflicting, 'kind' | 'domain' | 'id' | 'present'> {
  kind: schema.Kind;
  domain: string;
  id: string;
  /** Null when it was deleted. */
  present: { etag: string; value: Objects[schema.Kind] } | null;
}

export type Metrics = Extract<schema.Figures, { newest: unknown }>;

export interface HelloEvent {
  server_time_ms: number;
  build: string;
  policy_version: number;
  role: string;
  session_end: string;
  /** What was missed follows, instead of how things are. */
  resumed: boolean;
}

export type MetricsEvent = schema.Sample & { gap?: boolean };

export interface Touched {
  kind: schema.Kind;
  domain: string;
  id: string;
  etag: string;
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

/** A decision about a key that is watched. */
export interface WatchedDecision extends schema.SeenDecision {
  /** One more for each, over all nodes. */
  number: number;
  node: string;
}

/** Since when a key is watched, and of which nodes not all is seen; or that it is not. */
export type KeyEvent =
  | {
      since_ms: number;
      /** Of those that are seen, since when, Unix milliseconds. */
      nodes: Record<string, number>;
      silent: string[];
      /** By node, why it cannot. */
      failed: Record<string, string>;
    }
  | { refused: string };

export interface DecisionEvent {
  /** In the order of their numbers. */
  decisions: WatchedDecision[];
  /** Since the last such event, beside them. */
  missed: number;
}

export interface ByeEvent {
  reason: string;
}
