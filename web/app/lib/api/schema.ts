/** Generated from the OpenAPI document by `npm run types`. */

/** What is known of the recorded requests of a client. */
export type AboutRecorded = {
  /** False: some requests of the sample were lost or too long, perhaps of this client. */
  complete: boolean;
  /** Time of the first of them, where the preview begins. */
  from: string;
  /** Time of the last. */
  to: string;
};

/** What is known of a run's traffic beside. */
export type AboutTraffic = {
  /** Did made-up traffic end early, because more requests do not fit? */
  cut?: boolean | null;
  /** Requests of the log that came too late for their place in time, and were asked at the newest one. */
  late?: number | null;
  /** What the recorder had kept. */
  recorded?: Recorded | null;
  /** Lines of the log that were left out, because they could not be read. */
  refused?: number | null;
};

/** A node's acknowledgement of a snapshot or a delta. */
export type Acknowledgement = {
  /** The time of the acknowledgement by the node's clock, Unix milliseconds. */
  at_ms: number;
  /** The instance of the node. */
  instance: string;
  /** The name of the node. */
  name: string;
  /** The reason why the policy is in force, but was not saved for the next start. */
  not_kept?: string | null;
  /** The reason why the policy is not in force, if it is not. */
  refused?: string | null;
  /** The time from the last byte of the policy to the swap, milliseconds. */
  took_ms: number;
  /** The version of the policy. */
  version: number;
};

/** Something that needs a look. */
export type Alert = {
  /** Stable: `override_ends`, `long_shadow`, `rule_unmatched`, `token_ends`, `table_full`, `reservations_refused`, `request_ids_forgotten`, `unknown_domain`, `without_store`, `figures_not_kept`, `sign_ins_limited`, `certificate_unusable`, `clock_set`, `limits_full`, `node_silent`, `node_gone`, `node_behind`, `node_refused`, `node_store_away`, `node_store_refuses`, `node_store_evicts`, `node_store_lost_keys`, `node_clock_apart`, or the code of a warning of the policy. */
  code: string;
  /** For people: what is the matter, and with what. */
  message: string;
  /** The node that it is about, if it is about one that follows this server. */
  node: string | null;
  /** What of the policy it is about; `null`: a node, a token, or this server. */
  object: AlertObject | null;
  /** RFC 3339: since when it is so, as far as that is known. */
  since: string;
  /** Name of the token that it is about, if it is about one. */
  token: string | null;
};

export type AlertObject = {
  domain: string;
  id: string;
  kind: Kind;
  /** Where it is about one limit. */
  limit: string | null;
};

/** The algorithm of a limit. */
export type Algorithm =
  'token_bucket' | 'leaky_bucket' | 'fixed_window' | 'sliding_window_counter' | 'sliding_window_log';

export type AlgorithmInfo = {
  help: string;
  id: Algorithm;
  label: string;
  /** Fields of a limit that it takes. */
  parameters: string[];
};

export type AllTotals = {
  allowed: number;
  /** Decided without the store that a limit is shared over; estimated from one decision in 16. */
  degraded: number;
  denied: number;
  no_limit: number;
  /** What shadow limits would have denied. */
  shadow_denied: number;
  unknown_domain: number;
};

/** The message that carries a node's reply to the admin server. */
export type Answer = {
  /** The ID of the query. */
  id: string;
  /** The instance of the node: another one for each start of its process. */
  instance: string;
  /** The name of the node. */
  name: string;
  /** The reply. */
  told: Told;
};

export type AppCode = {
  /** What the app shows now. */
  code: string;
};

/** What an authenticator app takes over. */
export type AppSecret = {
  /** Base32, to be typed. */
  secret: string;
  /** An `otpauth` address, to be drawn as a QR code. */
  uri: string;
};

/** What a run is asked for. */
export type Ask = {
  /** The policy that is compared with; the one in force unless given. */
  a?: Chosen;
  /** The policy in question. */
  b: Chosen;
  /** What both are asked with. */
  traffic: AskedTraffic;
};

/** A request, and whom to ask about it. */
export type AskedKeys = {
  /** Names of nodes; all unless given. */
  nodes?: string[] | null;
  request: Question;
};

/** What is to be done with keys, and why. */
export type AskedOfKeys = {
  /** Names of nodes; all unless given. */
  nodes?: string[] | null;
  /** One line, for the audit log. */
  reason?: string;
  request: Question;
};

/** A request, as `POST /v1/check` takes it; it charges nothing anyway, so there is no `peek`. */
export type AskedRequest = {
  cost?: number | null;
  domain?: string;
  endpoint?: string | null;
  identities: Identity[];
  method?: string | null;
  tier?: string | null;
};

/** Some traffic. */
export type AskedTraffic =
  | {
      made: MadeAsk;
    }
  | {
      log: LogAsk;
    }
  | 'recorded';

/** A line that was written. */
export type AuditLine = {
  /** Such as `policy.publish`. */
  action: string;
  /** A user's name, or `token:NAME`; `tidegate`: the server itself, or a command on its machine; empty: nobody has shown who he is. */
  actor: string;
  /** Of the connection; empty: there was none. */
  address: string;
  /** RFC 3339. */
  at: string;
  id: number;
  object: string;
  /** `X-Request-Id` of the answer to the request that it is about; empty: there was none, or the line is older than these ids. */
  request_id: string;
  /** `done`, or why it was refused. */
  result: string;
};

export type Bounds = {
  /** The longest description of a tier. */
  description_characters_max: number;
  /** A regular expression that the ids of tiers, rules and limits match whole. */
  id_pattern: string;
  /** How many limits one request may meet. */
  limits_max: number;
  /** The longest message of a version. */
  message_bytes_max: number;
  /** The largest whole number. */
  number_max: number;
  /** The shortest password. */
  password_characters_min: number;
  /** The most requests of a preview. */
  preview_requests_max: number;
  /** The most clients of made-up traffic. */
  simulation_clients_max: number;
  /** The most runs that wait. */
  simulation_queue_max: number;
  /** The most requests of made-up traffic. */
  simulation_requests_max: number;
  /** The most rows of made-up traffic. */
  simulation_rows_max: number;
  /** How long a run is kept. */
  simulations_kept_max_ms: number;
  /** The most runs that are kept. */
  simulations_max: number;
  /** The longest log that can be sent. */
  upload_bytes_max: number;
  /** The most lines of a log. */
  upload_lines_max: number;
  /** The most logs at a time. */
  uploads_max: number;
};

/** Counts of a bucket of time. */
export type Bucket = {
  /** Start of the bucket. */
  at: string;
  /** Requests that A denied. */
  denied_a: number;
  /** Requests that B denied. */
  denied_b: number;
  /** Requests. */
  requests: number;
};

/** One change for all clients that match. */
export type BulkChange = {
  domain?: string;
  /** So many match, as far as the caller knows. */
  expected: number;
  /** Whom it is for; everybody unless given. */
  matching?: ClientFilter;
  /** Of the version: a line that says what changes and why. */
  message: string;
  /** A JSON merge patch of each. */
  patch?: unknown;
  /** Instead of a patch: takes them out. */
  remove?: boolean;
};

/** A change of many clients that was only tried. */
export type BulkTried = {
  /** Where it lets much more through: ten times as much, or without a limit that held. */
  loosens: Loosened[];
  /** What was there and denied nothing, and would deny. */
  starts_to_refuse: StartsToRefuse[];
  /** That of the policy in force. */
  version: number;
};

/** What becomes of used quota where a version changes a limit's numbers, by full name of the limit; kept unless said. */
export type Carries = Record<string, Carry>;

/** The rule by which used quota carries over to a limit's new numbers. In documents: `keep`, `proportional`, `reset`. */
export type Carry = 'keep' | 'proportional' | 'reset';

export type Change = {
  domain?: string;
  id: string;
  kind: Kind;
  op: Op;
  /** The new name of a tier or a rule that is replaced; `value` has the old one. What names the tier names it by the new one then, in the same version. Counters belong to full names of limits, so those of its limits begin anew. */
  rename?: string | null;
  /** The whole object, or what of it is to be otherwise; none for a deletion. */
  value?: unknown;
};

/** What a person is about to publish. */
export type ChangeList = {
  /** The version that the list was made on. */
  base_version: number;
  /** What becomes of used quota where a limit's numbers change, by full name of the limit; kept unless said. */
  carry?: Record<string, Carry>;
  /** At least one, to be published. */
  changes: Change[];
  /** Publish what a node that is connected cannot read: it keeps the policy that it has. */
  force?: boolean;
  /** Entity tags of the objects that the list changes, by key. */
  if_match?: Record<string, string>;
  /** A line that says what changes and why. A draft may be without. */
  message: string;
  /** The nodes that it goes to first, by their names; all unless given. */
  nodes?: string[] | null;
};

/** Numbers of changed requests and clients. */
export type Changed = {
  /** Clients. */
  clients: number;
  /** Requests. */
  requests: number;
};

/** An object that a version changed. */
export type ChangedObject = {
  domain: string;
  /** `null`: it is gone. */
  etag: string | null;
  id: string;
  kind: Kind;
};

/** What a person says of a field. */
export type Choice = {
  at: FieldKey;
  take: Take;
};

/** A policy. */
export type Chosen =
  | 'live'
  | 'none'
  | {
      version: number;
    }
  | {
      changes: TriedList;
    }
  | {
      draft: string;
    }
  | {
      document: Policy;
    };

/** A field that the version changed, and a later one changed again. A value that is absent: there was nothing. */
export type Clash = {
  /** What the version made of it. */
  after?: unknown;
  at: FieldKey;
  before?: unknown;
  now?: unknown;
  /** What was chosen; without, it stays as it is now. */
  take?: Take | null;
};

/** A client: the identities of one value, prefix or address block, with a tier or an override of their own. */
export type Client = {
  /** The kind of identity. */
  kind: string;
  /** A name for people. */
  label?: string | null;
  /** A note for people. */
  note?: string | null;
  /** The override of the tier's limits. */
  override?: Override | null;
  /** Labels to search by, in any order, each once. They do not affect decisions. */
  tags?: string[];
  /** The tier; the default of the kind unless given. */
  tier?: string | null;
  /** The value of the identity, a prefix with `*` at the end, or for `ip` a CIDR block. The longest wins. */
  value: string;
};

/** Which clients of a domain. */
export type ClientFilter = {
  has_override?: boolean | null;
  /** Only these. */
  ids?: string[] | null;
  kind?: string | null;
  /** Of the value. */
  prefix?: string;
  /** A text in the value or the label; A to Z and a to z are the same. */
  q?: string;
  /** Among those of the client. */
  tag?: string | null;
  tier?: string | null;
};

/** An object as it is now. */
export type ClientItem = {
  changed_at?: string;
  changed_by?: string;
  /** How many configured clients have it. */
  clients?: number;
  /** Kinds of identity whose default it is. */
  default_of?: string[];
  etag: string;
  id: string;
  revision?: number;
  /** Rules that are only for some tiers, this one among them. */
  rules?: string[];
  value: Client;
};

/** Counts of one client under both policies. */
export type ClientRow = {
  /** Requests that A denied. */
  denied_a: number;
  /** Requests that B denied. */
  denied_b: number;
  /** Time of the first denial by A. */
  first_denied_a: string | null;
  /** Time of the first denial by B. */
  first_denied_b: string | null;
  /** Time of the first request that B denied and A allowed. */
  first_newly_denied: string | null;
  /** The client as `KIND:VALUE`, formatted for display. */
  key: string;
  /** Requests that A denied and B allowed. */
  newly_allowed: number;
  /** Requests that B denied and A allowed. */
  newly_denied: number;
  /** Requests of the client. */
  requests: number;
};

export type ClientsAsked = {
  /** The domain that the clients are in. */
  domain?: string;
  ids: string[];
};

/** Numbers of listed clients with more or fewer denials. A client with as many, though other, denials counts as neither. */
export type ClientsChanged = {
  /** Clients of which B denies fewer requests than A. */
  gaining: number;
  /** Clients of which B denies more requests than A. */
  losing: number;
};

/** An object that is not as it was read. */
export type Conflicting = {
  /** RFC 3339. */
  changed_at: string | null;
  changed_by: string | null;
  domain?: string | null;
  /** How many clients were meant to match. */
  expected?: number | null;
  id?: string | null;
  /** `tier`, `rule`, `client`, `domain` or `user`; `policy` where the whole was to be replaced, `clients` where many were meant. */
  kind: string;
  /** How many do. */
  matching?: number | null;
  /** As it is now; `null`: it is gone. */
  present: Present | null;
  /** In which version it changed last, as far as that is known. */
  version: number | null;
};

export type Credentials = {
  /** A code of the user's authenticator app, or a recovery code; only for a user with a second factor. */
  code?: string | null;
  name: string;
  password: string;
};

/** What a check would answer now. */
export type Decided = {
  allowed: boolean;
  /** When all limits would let it pass, if nobody else comes: 0 now, null never. */
  allowed_after_ms: number | null;
  /** Why limits that nodes share were decided without their store, where there are some. */
  degraded?: string | null;
  /** What the caller would be told in headers, as the domain sets them. `retry-after` is up to a tenth later, by chance: another answer may say another number. */
  headers: Header[];
  limit_id: string | null;
};

/** What was decided in the quarter of an hour before an instant, and in that after it, in whole minutes: the one with the instant in it is neither. `null`: nothing, or it is not known any more. */
export type DecidedAround = {
  after: DecidedThen | null;
  before: DecidedThen | null;
};

/** Decision of a policy, with the fields of the reply to a check. */
export type DecidedBy = {
  /** Whether the request is allowed. */
  allowed: boolean;
  /** Time for which the request should be delayed. */
  delay_ms: number;
  /** The most that the limit allows at once. */
  limit: number | null;
  /** Full name of the limit that decided; `None` if no limit applied. */
  limit_id: string | null;
  /** Remaining quota. */
  remaining: number | null;
  /** Time until the whole quota is available. */
  reset_after_ms: number | null;
  /** Time until a retry can succeed: 0 if allowed, `None` if never. */
  retry_after_ms: number | null;
  /** Used quota after the request; the same as before if it was denied. */
  used: number | null;
  /** Used quota before the request, if it was inspected. */
  used_before: number | null;
};

export type DecidedThen = {
  allowed: number;
  denied: number;
};

/** The decisions of both policies about a request. */
export type DecisionRow = {
  /** Decision of A; `None` if there is no such policy. */
  a: DecidedBy | null;
  /** Time of the request. */
  at: string;
  /** Decision of B. */
  b: DecidedBy | null;
  /** The cost. */
  cost: number;
  /** The path. */
  endpoint: string | null;
  /** The identities, as `KIND:VALUE`. */
  identities: string[];
  /** The method. */
  method: string | null;
  /** The request's number, from 1. */
  number: number;
};

/** The decisions that a watch saw. */
export type Decisions = {
  /** The decisions, oldest first: 100 at most, and as many as fit into one message. */
  decisions: SeenDecision[];
  /** The number of the last decision that this reply has or counts, for a watch that continues. */
  last?: number;
  /** The number of decisions that were made, those without room included. */
  seen: number;
  /** The time since which the node watches, by its clock, Unix milliseconds. A value other than in the previous reply means that the watch had ended and a new one began. */
  since_ms?: number;
};

/** Number of stored decisions, which are the first ones. */
export type DecisionsKept = {
  /** Stored decisions. */
  kept: number;
  /** All decisions. */
  of: number;
};

/** The part of a request that the entries `path`, `endpoint` and `method` of a descriptor of Envoy give. */
export type DescriptorPaths = 'endpoint' | 'identity';

/** The limits that apply to a descriptor of Envoy. To a request over another API, those of all its identities apply. */
export type Descriptors = 'exact' | 'subset';

/** One difference of two policies. Without `field`, the whole object or limit is new (`from` is absent) or removed (`to` is absent). */
export type Difference = {
  /** The domain that the object is in. */
  domain: string;
  /** The field, with `override.` before fields of an override whose limits are compared; `order` where only the order of limits differs. */
  field?: string | null;
  /** The former value. */
  from?: unknown;
  /** The id of the object; for a client `KIND:VALUE`, for a domain its name. */
  id: string;
  /** `tier`, `rule`, `client`, or `domain` for the settings of one. */
  kind: string;
  /** The id of the limit that has the difference. */
  limit?: string | null;
  /** The present value. */
  to?: unknown;
};

/** What differs between two versions. */
export type Differences = {
  differences: Difference[];
  from: number;
  to: number;
};

/** A domain: a name space of tiers, clients and rules. */
export type Domain = {
  /** Clients with a tier or an override of their own. */
  clients?: Client[];
  /** The default tier of each kind of identity, for identities without a tier of their own. */
  defaults?: Record<string, string>;
  /** The part of a request that the path and the method in a descriptor of Envoy give. */
  descriptor_paths?: DescriptorPaths;
  /** The limits that apply to a descriptor of Envoy. */
  descriptors?: Descriptors;
  /** The family of response headers. */
  headers?: Headers;
  /** The answer of the server when it cannot decide. */
  on_error?: OnError;
  /** The content of `X-RateLimit-Reset`. */
  reset?: Reset;
  /** Rules. */
  rules?: Rule[];
  /** Whether a request may name its own tier. */
  tier_hint?: boolean;
  /** Tiers. */
  tiers?: Tier[];
  /** The IANA name of the time zone of calendar periods, such as `Europe/Berlin`; UTC unless given. */
  timezone?: string | null;
};

/** An object as it is now. */
export type DomainItem = {
  changed_at?: string;
  changed_by?: string;
  /** How many configured clients have it. */
  clients?: number;
  /** Kinds of identity whose default it is. */
  default_of?: string[];
  etag: string;
  id: string;
  revision?: number;
  /** Rules that are only for some tiers, this one among them. */
  rules?: string[];
  value: Domain;
};

/** A listener and its address. */
export type DoorAddress = {
  /** The address, with scheme and port. */
  address: string;
  /** The protocol: `http`, `grpc` or `resp`. */
  protocol: string;
};

/** A change list that was saved. */
export type Draft = {
  author: string;
  /** When it is forgotten; RFC 3339. */
  ends_at: string;
  id: string;
  /** Of the list. */
  message: string;
  /** RFC 3339. */
  saved_at: string;
};

/** A draft as it is sent. */
export type DraftWithList = {
  author: string;
  /** When it is forgotten; RFC 3339. */
  ends_at: string;
  id: string;
  list: ChangeList;
  /** Of the list. */
  message: string;
  /** RFC 3339. */
  saved_at: string;
};

/** The count of one kind of errors. */
export type ErrorCount = {
  /** The count since the start of the process. */
  count: number;
  /** The kind: the reason why a check was not decided as usual, such as `overload`, or the error code of a request that was refused or failed, such as `bad_request`. */
  kind: string;
};

export type Explained = {
  decision: Decided;
  domain: string;
  identities: Known[];
  /** Those that the request meets, in the order in which they are checked. */
  limits: LimitState[];
  policy_version: number;
  /** All of the domain, by path, and the closest first of those that match the same path. */
  rules: RuleSays[];
};

/** One part of a request that is wrong: where it is, and what is wrong with it. */
export type FieldError = (
  | {
      pointer: string;
    }
  | {
      parameter: string;
    }
  | {
      header: string;
    }
) & {
  /** Stable code of what is wrong. */
  code: string;
  /** Description of what is wrong and what to do, for people. */
  message: string;
};

/** A field of the policy, as differences name it: without `limit` and `field` the whole object, without `field` the whole limit. */
export type FieldKey = {
  domain?: string;
  /** With `override.`, `defaults.` or `where.` before what is in these; `order` is that of the limits. */
  field?: string | null;
  id: string;
  kind: Kind;
  /** The id of the limit in which it is. */
  limit?: string | null;
};

/** Figures. */
export type Figures =
  | {
      /** A point a second, oldest first. */
      history: Second[];
      newest: Sample;
    }
  | FiguresOfRange;

/** Figures of a range. */
export type FiguresOfRange = {
  /** What figures are told apart by. */
  by: 'total' | 'limit' | 'tier' | 'rule' | 'node';
  /** Unix milliseconds. */
  from: number;
  /** Series that did not fit. Ask for one by its `id`. */
  left_out: number;
  /** Limits, or tiers and rules, of one step at most that are in the total alone: of more than a thousand, the busiest are counted one by one. */
  not_counted: number;
  /** The most requests first. */
  series: FiguresSeries[];
  step: '1s' | '1m' | '1h';
  /** Not included. */
  to: number;
};

/** What was counted in one step. */
export type FiguresPoint = {
  allowed: number;
  /** Decided without the store that a limit is shared over; estimated from one decision in 16. */
  degraded?: number;
  denied: number;
  /** Decisions that were measured: one in 16. */
  measured?: number;
  no_limit?: number;
  /** Half of the decisions took so long at most, and 99 in 100, of those that were measured: whole microseconds, rounded up. */
  p50_us?: number | null;
  p99_us?: number | null;
  /** What shadow limits would have denied. */
  shadow_denied: number;
  /** Unix milliseconds when it began. */
  t: number;
  unknown_domain?: number;
};

export type FiguresSeries = {
  /** `total`, name of the node, or full name of the limit, tier or rule. */
  id: string;
  /** Oldest first. There is none for a time when no node counted. */
  points: FiguresPoint[];
};

export type File = {
  /** By which it is called in the report. */
  name: string;
  /** What stands in it. */
  text: string;
};

export type FirstAdministrator = {
  code: string;
  name: string;
  password: string;
};

/** First denial of a policy. */
export type FirstDenial = {
  /** Time of the denial. */
  at: string;
  /** The client, as `KIND:VALUE`; `None` if there was no room to list it. */
  key: string | null;
};

/** How full a limit is. */
export type Fullest = {
  /** Of tokens. */
  limit: number;
  /** Full name. */
  limit_id: string;
  /** Until all of it is free again, milliseconds. */
  reset_after_ms: number;
  /** Used of the limit, from 0 to 1. */
  share: number;
  used: number;
};

/** Where a rollout goes. */
export type GoOn = {
  /** Give it to nodes that are connected and cannot read it: they keep the policy that they have. */
  force?: boolean;
  to: To;
};

/** The message of a node that stops on purpose, so its absence raises no alert. */
export type Goodbye = {
  /** The instance of the node. */
  instance: string;
  /** The name of the node. */
  name: string;
};

export type Header = {
  /** In lower case. */
  name: string;
  value: string;
};

/** A family of response headers. */
export type Headers = 'x-ratelimit' | 'ietf' | 'none';

/** One of the heaviest. */
export type Heaviest = {
  /** Requests: of a key estimated, halved every ten minutes; else those of the last quarter of an hour. */
  count: number;
  /** By at most so many is the count too high. */
  error: number;
  /** Full name of the limit, tier or rule. */
  id: string;
  /** Of a key: who is counted together, shown as the server's setting `keys` says; nobody: everyone. */
  identities?: ShownIdentity[] | null;
  /** Requests within the last minute: of a key estimated. */
  per_minute: number;
  /** Decisions that were looked at within the last minute, which `per_minute` is worked out from. */
  per_minute_seen: number;
  /** Of all such requests. */
  share: number;
};

/** One of the heaviest keys of a node. */
export type HeavyKey = {
  /** Estimated decisions, halved every ten minutes. */
  count: number;
  /** The largest amount by which `count` may be too high. */
  error: number;
  /** The identities that are counted together; empty: all requests are. */
  identities: SeenIdentity[];
  /** The full name of the limit. */
  limit_id: string;
};

export type Identity = {
  kind: string;
  value: string;
};

/** What an import makes of each line. */
export type ImportReport = {
  changed: number;
  lines: LineReport[];
  new: number;
  /** Clients that the file does not have, where they are to go. */
  removed: number;
  unchanged: number;
  wrong: number;
};

/** An import that published nothing. */
export type ImportTried = {
  /** What the import changes; nothing: there is nothing to publish. */
  differences: Difference[];
  /** Clients whose override in the files has ended, and is not published. */
  ended: string[];
  /** Where it lets much more through: ten times as much, or without a limit that held. */
  loosens: Loosened[];
  /** What is not carried over as it was. */
  notes: Note[];
  /** What was there and denied nothing, and would deny. */
  starts_to_refuse: StartsToRefuse[];
  /** That of the policy in force. */
  version: number;
};

/** An import that published nothing. */
export type Imported = {
  /** Where it lets much more through: ten times as much, or without a limit that held. */
  loosens: Loosened[];
  report: ImportReport;
  /** What was there and denied nothing, and would deny. */
  starts_to_refuse: StartsToRefuse[];
  /** That of the policy in force. */
  version: number;
};

/** What is kept in a file on the server. */
export type InFile = {
  /** None: the server was started without. */
  file: PolicyFile | null;
};

/** Numbers of clients and decisions that are stored for display, and that are missing. */
export type Kept = {
  /** Decisions that both allowed. */
  allowed: DecisionsKept;
  /** The shortest bucket of a client's timeline. */
  bucket_ms: number;
  /** Decisions in which the policies differ. */
  changed: DecisionsKept;
  /** Clients that are listed. */
  clients: number;
  /** Requests of clients that are not listed because there was no room. */
  clients_left_out: number;
  /** Decisions that both denied. */
  denied: DecisionsKept;
};

/** How identities are shown that were seen in traffic, the clearest first. */
export type Keys = 'clear' | 'truncated' | 'hashed';

/** What an object is. */
export type Kind = 'tier' | 'rule' | 'client' | 'domain';

export type Known = {
  /** The configured client that it is. */
  client: string | null;
  kind: string;
  label: string | null;
  override: Override | null;
  /** The override is there, and no longer applied. */
  override_has_ended: boolean;
  tier: string | null;
  /** `client`, `hint` or `default`. */
  tier_from: string | null;
  value: string;
};

/** A limit. */
export type Limit = {
  /** The algorithm. */
  algorithm: Algorithm;
  /** The most tokens at once, for the bucket algorithms; the limit unless given. */
  burst?: number | null;
  /** Unique within the tier, rule or client. */
  id: string;
  /** Tokens per period; 0 denies everything. */
  limit: number;
  /** The most tokens that settlements may charge above the burst, for the bucket algorithms; what one period repays unless given. */
  max_debt?: number | null;
  /** Whether the limit denies, or only counts what it would deny. */
  mode?: Mode;
  /** The behaviour when sharing fails. */
  on_failure?: OnFailure | null;
  /** `250ms`, `1s`, `15m`, `1h`, `1d`; for fixed windows also `day`, `week` (begins on Monday) and `month`, by the calendar in the domain's time zone. */
  period: string;
  /** The way in which nodes share the limit. */
  sharing?: Sharing;
};

/** Since the process started, and per second. */
export type LimitCounts = {
  allowed: number;
  allowed_rate: number;
  denied: number;
  denied_rate: number;
  limit_id: string;
  shadow_denied: number;
  shadow_denied_rate: number;
};

/** Counts of one limit under one policy. */
export type LimitFigures = {
  /** Requests that it checked. */
  checked: number;
  /** Requests that it was the first to deny. */
  denied: number;
  /** Requests that are not counted here because the identities that the limit counts are not in the sample. */
  not_sampled?: number;
  /** The reason, if `sampled` is false. */
  reason?: string | null;
  /** False if the traffic is a sample without data about this limit. */
  sampled: boolean;
  /** Requests that it would have denied if it were not in shadow mode. */
  shadow_denied: number;
};

/** Counts of one limit under both policies. */
export type LimitRow = {
  /** Counts under A; `None` if A does not have the limit. */
  a: LimitFigures | null;
  /** Counts under B. */
  b: LimitFigures | null;
  /** Full name of the limit; in that of a client's override, the client is formatted for display. */
  limit_id: string;
};

export type LimitState = {
  /** Would this limit let it pass? */
  allowed: boolean;
  /** The tokens that the request would take. */
  cost: number;
  /** Who is counted together; nobody: everyone. */
  counted: Identity[];
  /** It is what all nodes together have in the store that they share it through, which this server has too; otherwise what this server counts alone. */
  is_stored: boolean;
  limit: number;
  limit_id: string;
  /** `enforce`, or `shadow`: it counts, and never denies. */
  mode: string;
  period_ms: number;
  remaining: number;
  /** What would be left then. */
  remaining_after: number;
  reset_after_ms: number;
  /** 0 now, null never. */
  retry_after_ms: number | null;
  /** By which algorithm it counts, and how it stands, in words. */
  says: string;
  /** How nodes share it. */
  sharing: Sharing;
  used: number;
};

/** A limit in plain words. */
export type LimitWords = {
  id: string;
  /** What it lets through. */
  says: string;
  /** What holds on all nodes together, and what happens where they cannot share it. */
  sharing: string;
};

export type LineOutcome = 'new' | 'changed' | 'unchanged' | 'wrong';

/** What an import makes of a line. */
export type LineReport = {
  column?: string | null;
  id?: string | null;
  /** From 1, that of the columns' names. */
  line: number;
  message?: string | null;
  outcome: LineOutcome;
};

export type Lint = {
  policy_version: number;
  warnings: Warned[];
};

/** A page of a list. */
export type ListOfAlert = {
  items: Alert[];
  /** Alerts that are not listed. */
  left_out: number;
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfAuditLine = {
  items: AuditLine[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfClientItem = {
  /** The one that was asked for. */
  domain?: string | null;
  /** All there are. */
  domains: string[];
  items: ClientItem[];
  /** How many items there are on all pages. Of clients that are looked for by more than kind and prefix, 10001 stands for more than 10,000. */
  matching: number;
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
  policy_version: number;
};

/** A page of a list. */
export type ListOfDecisionRow = {
  items: DecisionRow[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfDomainItem = {
  /** The one that was asked for. */
  domain?: string | null;
  /** All there are. */
  domains: string[];
  items: DomainItem[];
  /** How many items there are on all pages. Of clients that are looked for by more than kind and prefix, 10001 stands for more than 10,000. */
  matching: number;
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
  policy_version: number;
};

/** A page of a list. */
export type ListOfDraft = {
  items: Draft[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfHeaviest = {
  /** What the heaviest are. */
  by: 'key' | 'limit' | 'tier' | 'rule';
  /** No count is too high by a larger share of all. */
  error_max: number;
  /** Counts of keys are halved in this time. */
  half_life_ms: number | null;
  items: Heaviest[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
  /** What the heaviest are the heaviest in. */
  of: 'denied' | 'all';
  /** One decision in so many was looked at. */
  one_in: number;
};

/** A page of a list. */
export type ListOfListedVersion = {
  items: ListedVersion[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfNodeRow = {
  items: NodeRow[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfNodeSecond = {
  items: NodeSecond[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfRoleItem = {
  items: RoleItem[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfRuleItem = {
  /** The one that was asked for. */
  domain?: string | null;
  /** All there are. */
  domains: string[];
  items: RuleItem[];
  /** How many items there are on all pages. Of clients that are looked for by more than kind and prefix, 10001 stands for more than 10,000. */
  matching: number;
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
  policy_version: number;
};

/** A page of a list. */
export type ListOfRun = {
  items: Run[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfSessionItem = {
  items: SessionItem[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfTierItem = {
  /** The one that was asked for. */
  domain?: string | null;
  /** All there are. */
  domains: string[];
  items: TierItem[];
  /** How many items there are on all pages. Of clients that are looked for by more than kind and prefix, 10001 stands for more than 10,000. */
  matching: number;
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
  policy_version: number;
};

/** A page of a list. */
export type ListOfTimelineRow = {
  /** Length of a bucket. */
  bucket_ms: number;
  items: TimelineRow[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
  /** Clients on all pages. */
  of: number;
};

/** A page of a list. */
export type ListOfToken = {
  items: Token[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfUncovered = {
  items: Uncovered[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfUpload = {
  items: Upload[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A page of a list. */
export type ListOfUser = {
  items: User[];
  /** The cursor of the page that follows; `null` after the last one. */
  next: string | null;
};

/** A published version, and what came of it. */
export type ListedVersion = {
  author: string;
  carry: Carries;
  decided: DecidedAround;
  /** The version that it was made on: the one before it, unless a rollout was open; 0: there was none. */
  follows: number;
  message: string;
  objects: TouchedObjects;
  /** RFC 3339. */
  published_at: string;
  sha256: string;
  version: number;
};

/** A published version, and what came of it, with its policy. */
export type ListedVersionWithDocument = {
  author: string;
  carry: Carries;
  decided: DecidedAround;
  document: Policy;
  /** The version that it was made on: the one before it, unless a rollout was open; 0: there was none. */
  follows: number;
  message: string;
  objects: TouchedObjects;
  /** RFC 3339. */
  published_at: string;
  sha256: string;
  version: number;
};

export type LogAsk = {
  /** Where its requests go. */
  domain?: string;
  /** By kind of identity, the tier of all of that kind, as far as a policy has it; of other kinds each is looked up in the policy. */
  tiers?: Record<string, string>;
  /** Id of an upload. */
  upload: string;
};

/** A field of a log, and the kind of identity that it says. */
export type LogKey = {
  field: string;
  kind: string;
};

/** A line as it was parsed. */
export type LogLine = {
  /** Time of the request. */
  at: string;
  /** The path, without its query. */
  endpoint: string | null;
  /** The address, if there is one. */
  ip: string | null;
  /** The line number, from 1. */
  line: number;
  /** The method. */
  method: string | null;
  /** The user, or the value of the chosen field, if there is one. */
  user: string | null;
};

/** A run of consecutive denials of one client. */
export type LongestRun = {
  /** Number of denials. */
  denials: number;
  /** Time of the first denial. */
  from: string;
  /** The client, as `KIND:VALUE`. */
  key: string;
  /** Time from the first to the last denial. */
  length_ms: number;
};

/** Where a change lets much more through than before: whoever publishes it is to be asked whether that is meant. */
export type Loosened = {
  code: string;
  domain: string;
  id: string;
  kind: string;
  limit: string | null;
  message: string;
  /** How many clients it is so for, of which `id` is the first; 1 for whatever is no client. */
  objects: number;
};

/** A token that was made just now. */
export type Made = {
  /** `null`: never. */
  ends_at: string | null;
  id: string;
  /** Of the objects that it may change; `null`: all that its role may. */
  kinds: Kind[] | null;
  last_used_address: string | null;
  /** To the minute; `null`: never. */
  last_used_at: string | null;
  made_at: string;
  made_by: string;
  name: string;
  /** When another of the same name was made in its place; `null`: none was. */
  replaced_at: string | null;
  /** `null`: it has a scope instead. */
  role: Role | null;
  scope: Scope | null;
  /** Shown this once. */
  secret: string;
};

export type MadeAsk = {
  /** Where their requests go. */
  domain?: string;
  /** Clients that do the same. */
  rows: Row[];
  /** Another one makes other chances. */
  seed?: number;
  /** Now unless given; an instant from 1970 to 2554. */
  start?: string | null;
};

/** Made up. */
export type MadeRequests = {
  /** Cost of each. */
  cost?: number;
  /** How long they come, such as `10m`. */
  for: string;
  /** How they lie in time. */
  pattern?: Pattern;
  /** The time that the rate is meant for, such as `1s`. */
  per?: string;
  /** Requests in `per`. */
  rate: number;
  /** Another one makes other chances. */
  seed?: number;
  /** The beginning of a week and a month in the domain's time zone unless given: windows then begin with the traffic. */
  start?: string | null;
};

/** Who asks. */
export type Me = {
  /** Is it one of a node? */
  is_node: boolean;
  /** Of the objects that it may change; `null`: all that the role may. */
  kinds: Kind[] | null;
  /** A user's name, or `token:NAME`. */
  name: string;
  /** `null`: it is a node's token. */
  role: Role | null;
  /** How: his sign-in, or a token. Nobody has several ways, so this is also what his account has. */
  signs_in: SignsIn;
};

export type Meta = {
  algorithms: AlgorithmInfo[];
  bounds: Bounds;
  /** Where checks can be sent. */
  check_url: string | null;
  /** How identities are shown that were seen in traffic. */
  keys: Keys;
  /** What is recorded to try policies on; `null`: nothing is. */
  recorder: Recorded | null;
  sharing: SharingInfo[];
  version: string;
};

/** The mode of a limit. */
export type Mode = 'enforce' | 'shadow';

export type NewPassword = {
  password: string;
  /** The one until now. */
  present: string;
};

/** A token that is to be made. */
export type NewToken = {
  /** RFC 3339; `null`: it has no end. In 90 days unless given. */
  ends_at?: string | null;
  /** Of the objects that it may change, where its role is `editor`; unless given, all. */
  kinds?: Kind[] | null;
  /** What it is for. */
  name: string;
  /** This or a scope. */
  role?: Role | null;
  /** This or a role. */
  scope?: Scope | null;
};

/** A user who is to be added. */
export type NewUser = {
  name: string;
  password: string;
  role: Role;
};

/** What came of a question. */
export type NodeAnswers = {
  /** The nodes that answered, each with what it said. */
  answers: Record<string, Told>;
  /** Those that did not answer within two seconds, are gone, or are connected to another server: of them nothing is known. */
  did_not_answer: string[];
  /** What came of a reset in the store that nodes share limits through: `clear` or `failed`. Absent: no node has one, or some were named, whose own counters a reset is about then. */
  store?: Told | null;
};

/** Counts of a node's decisions. */
export type NodeCounts = {
  /** Decisions that allowed. */
  allowed?: number;
  /** Decisions that were made without the store of a shared limit, estimated. */
  degraded?: number;
  /** Decisions that denied. */
  denied?: number;
  /** Decisions that allowed because no limit applied. */
  no_limit?: number;
  /** Decisions of `no_limit` whose domain the policy does not have. */
  unknown_domain?: number;
};

/** A node, with what is of use of one alone. */
export type NodeDetails = {
  /** Of its connection; empty for this process. */
  address: string;
  /** Since when it has not decided by the version that it should have, whichever that was, without a break; `null`: it does. */
  behind_since: string | null;
  /** By how much its clock is ahead of this server's, of the last ten reports the one that came soonest; `null`: this server, or not known. */
  clock_ahead_ms: number | null;
  /** How many those were. */
  decisions: number;
  decisions_per_second: number;
  /** Decisions without the store that a limit is shared over, per second. */
  degraded_per_second: number;
  /** Of those. */
  denied_share: number;
  /** Errors since the start of its process, by kind: 64 at most. */
  errors: ErrorCount[];
  /** The last 20 things that happened to it since this server started, the newest first. */
  events: NodeEvent[];
  /** How full its table is, estimated: from 0 to 1. */
  fill: number;
  /** It decides by what it had on its disk. */
  from_last_good: boolean;
  /** Its clock is ahead or behind by more than 50 ms, more than messages take. */
  is_clock_apart: boolean;
  /** Keys that are counted there now, estimated; `null`: it does not say. */
  keys: number | null;
  /** Decisions that were measured: one in 16. */
  measured: number;
  /** Memory that its process has from the machine, bytes, in whole MiB; `null`: it does not say. */
  memory_bytes: number | null;
  node: string;
  /** Why its policy is not kept for its next start. */
  not_kept: string | null;
  overflow_charges: number;
  /** How far synced limits were above what they allow, of all nodes that share through its store; `null`: it has none. */
  overshoot: Overshoot | null;
  p99_us: number | null;
  /** In force there; 0: none. */
  policy_version: number;
  presence: Presence;
  /** What process it is; `null`: it has not said so, as builds before this one do not. */
  process: Process | null;
  /** The policy that it was sent last, if it did not take it, and why. */
  refused: RefusedPolicy | null;
  /** The newest schema of policies that it knows. */
  schema: number;
  /** When it was heard last, if it is not connected. */
  seen_at: string | null;
  /** The store that it shares limits through; `null`: it has none, or does not say. */
  store: StoreReport | null;
  /** The version that it should have. */
  target_version: number;
  /** How long it took to put its policy in force, from the last byte of it, milliseconds. */
  took_ms: number | null;
  /** Of its build. */
  version: string;
};

/** Something that happened to a node. */
export type NodeEvent = {
  /** When this server heard of it. */
  at: string;
  /** Stable: `connected`, `silent`, `heard`, `disconnected`, `stopped`, `applied`, `refused` or `not_kept`. */
  code: string;
  /** For people: what happened. */
  message: string;
};

/** A node, as it is now. */
export type NodeRow = {
  /** Of its connection; empty for this process. */
  address: string;
  /** Since when it has not decided by the version that it should have, whichever that was, without a break; `null`: it does. */
  behind_since: string | null;
  /** By how much its clock is ahead of this server's, of the last ten reports the one that came soonest; `null`: this server, or not known. */
  clock_ahead_ms: number | null;
  /** How many those were. */
  decisions: number;
  decisions_per_second: number;
  /** Decisions without the store that a limit is shared over, per second. */
  degraded_per_second: number;
  /** Of those. */
  denied_share: number;
  /** How full its table is, estimated: from 0 to 1. */
  fill: number;
  /** It decides by what it had on its disk. */
  from_last_good: boolean;
  /** Its clock is ahead or behind by more than 50 ms, more than messages take. */
  is_clock_apart: boolean;
  /** Keys that are counted there now, estimated; `null`: it does not say. */
  keys: number | null;
  /** Decisions that were measured: one in 16. */
  measured: number;
  /** Memory that its process has from the machine, bytes, in whole MiB; `null`: it does not say. */
  memory_bytes: number | null;
  node: string;
  /** Why its policy is not kept for its next start. */
  not_kept: string | null;
  overflow_charges: number;
  p99_us: number | null;
  /** In force there; 0: none. */
  policy_version: number;
  presence: Presence;
  /** The policy that it was sent last, if it did not take it, and why. */
  refused: RefusedPolicy | null;
  /** The newest schema of policies that it knows. */
  schema: number;
  /** When it was heard last, if it is not connected. */
  seen_at: string | null;
  /** The store that it shares limits through; `null`: it has none, or does not say. */
  store: StoreReport | null;
  /** The version that it should have. */
  target_version: number;
  /** How long it took to put its policy in force, from the last byte of it, milliseconds. */
  took_ms: number | null;
  /** Of its build. */
  version: string;
};

/** A second of a node. */
export type NodeSecond = {
  /** Decisions per second. */
  allowed: number;
  denied: number;
  /** For how long the node had not decided by the version that it should have, whole seconds; 0: it did. */
  lag_s: number;
  /** `null`: none was measured. */
  p99_us: number | null;
  /** Unix milliseconds when it began. */
  t: number;
};

/** A note on a part of a file that changes when it is imported. */
export type Note = {
  /** Whether a single server decides differently about some descriptor of Envoy. False for notes on denied requests that cost more than 1 or have several descriptors, and on keys in another spelling or order. */
  changes_decisions: boolean;
  /** The file. */
  file: string;
  /** The replacement of the part. */
  instead: string;
  /** The line of the descriptor or limit, from 1; 0: the file as a whole. */
  line: number;
  /** The field in the file, such as `descriptors[2].rate_limit.replaces`; empty for the file as a whole. */
  path: string;
  /** The part of the file. */
  what: string;
};

/** An object, by value. */
export type Object = Tier | Rule | Client | Domain;

/** The answer of the server when it cannot decide. */
export type OnError = 'open' | 'closed';

/** The behaviour of a shared limit while the store is unavailable. */
export type OnFailure =
  | 'open'
  | 'closed'
  | {
      local: number;
    };

export type Op = 'create' | 'put' | 'patch' | 'delete';

/** An open rollout, with what its nodes have. */
export type OpenRollout = {
  /** Who began it. */
  author: string;
  /** Each of `nodes`, with the version in force there. */
  has: RolloutNode[];
  /** The version that all others keep. */
  keeps: number;
  /** Those that it went to. */
  nodes: string[];
  /** When it began, RFC 3339. */
  since: string;
  /** The newest version. */
  version: number;
};

/** An override of a tier's limits for one client: exactly one of `blocked`, `unlimited` and `limits`. */
export type Override = {
  /** Whether every request is denied. */
  blocked?: boolean;
  /** Limits that replace the tier's limits of the same id, or are added to them. */
  limits?: Limit[];
  /** The reason, for people. */
  reason?: string | null;
  /** Whether the tier's limits do not apply. */
  unlimited?: boolean;
  /** The RFC 3339 instant at which the override ends. */
  until?: string | null;
};

/** An object as it is now. */
export type OverrideItem = {
  changed_at?: string;
  changed_by?: string;
  /** How many configured clients have it. */
  clients?: number;
  /** Kinds of identity whose default it is. */
  default_of?: string[];
  etag: string;
  id: string;
  revision?: number;
  /** Rules that are only for some tiers, this one among them. */
  rules?: string[];
  value: Override;
};

/** How far synced limits were above what they allow, beside by how far they can be; since the start of each process. */
export type Overshoot = {
  /** The most tokens of one key that each node spent between two exchanges, all nodes together. */
  bound: number;
  /** The most tokens above a limit that the store had, as nodes saw it. */
  measured: number;
  /** How many nodes those are: the ones that are there, and tell. */
  nodes: number;
};

/** Counts of one limit, tier or rule. */
export type PartCounts = {
  /** Requests that it allowed. */
  allowed: number;
  /** Requests that it denied. */
  denied: number;
  /** The full name of the limit, tier or rule. */
  id: string;
  /** Requests that it would have denied, were it not in shadow mode. */
  shadow_denied: number;
};

/** Pattern of a client's requests over time. */
export type Pattern =
  | 'steady'
  | 'poisson'
  | {
      burst: {
        /** Requests of the burst. */
        requests: number;
      };
    }
  | {
      ramp: {
        /** The rate at the end; `rate` is the one at the start. */
        to: number;
      };
    }
  | {
      on_off: {
        /** Length of a pause. */
        off: string;
        /** Length of the time with requests. */
        on: string;
      };
    }
  | {
      waves: {
        /** Time from crest to crest. */
        period: string;
      };
    }
  | {
      retry: {
        /** Wait before the first retry. */
        back_off: string;
        /** Most retries of a request. */
        tries: number;
      };
    };

/** The state of one limit of a request. */
export type PeekedLimit = {
  /** Whether the limit is in shadow mode: it counts and never denies. */
  is_shadow: boolean;
  /** Whether this is the state in the store, of all nodes together. */
  is_stored?: boolean;
  /** The tokens that the limit has in all. */
  limit: number;
  /** The full name of the limit. */
  limit_id: string;
  /** The tokens that are left. */
  remaining: number;
  /** The tokens that would be left after the request. */
  remaining_after?: number;
  /** The time until all tokens are back, milliseconds. */
  reset_after_ms: number;
  /** The time after which this limit would let the request pass, milliseconds from now; `null`: never. */
  retry_after_ms?: number | null;
  /** The algorithm and the state of the limit, in plain words. Older builds send none. */
  says?: string;
  /** The sharing mode of the limit. Older builds do not send it, and share none. */
  sharing?: Sharing;
};

/** The kinds of identity whose values a rule counts separately. */
export type Per = string | string[];

/** A policy document. */
export type Policy = {
  /** Domains by name. Requests that name none are in `default`. */
  domains: Record<string, Domain>;
};

/** How the file of this server compares with the newest version. */
export type PolicyFile = {
  /** Does it hold another policy? `null`: it cannot be read. */
  differs: boolean | null;
  /** On the machine of the server. */
  path: string;
  /** Why it cannot be read. */
  problem: string | null;
};

/** Is it there? */
export type Presence = 'here' | 'connected' | 'silent' | 'stopped' | 'gone';

/** An object as it is now. */
export type Present = {
  etag: string;
  /** Left out where it is the whole policy. */
  value?: Object | null;
};

export type PresentPassword = {
  password: string;
};

/** What the editor is told. */
export type PreviewAnswer = {
  /** Length of a bucket. */
  bucket_ms: number;
  /** Time after the start at which the traffic was truncated, if it has too many requests. */
  cut_at_ms: number | null;
  /** Results of the draft. */
  draft: PreviewSide | null;
  /** Results of the published limits; `None` if there are none. */
  published: PreviewSide | null;
  /** Of recorded requests. */
  recorded?: AboutRecorded | null;
  /** Requests that were decided. */
  requests: number;
  /** As it was sent. */
  sequence: number | null;
  /** The draft. */
  words: Words;
};

/** What the editor asks. */
export type PreviewAsk = {
  /** Whose time zone calendar windows have. */
  domain?: string;
  /** The object as it is edited. */
  draft: unknown;
  kind: PreviewKind;
  /** The object as it is in force; none while it is new. */
  published?: unknown;
  /** Sent back, so that an answer that comes late is known. */
  sequence?: number | null;
  traffic: PreviewTraffic;
};

export type PreviewKind = 'tier' | 'rule';

/** Results of one set of limits. */
export type PreviewSide = {
  /** Requests that were allowed. */
  allowed: number;
  /** Allowed and denied requests of each bucket. */
  buckets: number[][];
  /** Requests that were denied. */
  denied: number;
  /** Time of the first denial after the start. */
  first_denied_ms: number | null;
  /** Longest delay of an allowed request. */
  longest_delay_ms: number;
  /** Longest retry-after of a denied request: 0 if none was denied, `None` if one is denied permanently. */
  longest_wait_ms: number | null;
};

/** Requests of one client. */
export type PreviewTraffic = MadeRequests | RecordedRequests;

/** Problem details (RFC 9457), with the extension members that some codes have. */
export type Problem = {
  /** Stable code, which programs may rely on. */
  code: string;
  /** Each object that is not as it was read, as it is now. */
  conflicts?: Conflicting[] | null;
  /** Description of this case, for people. */
  detail: string;
  /** Each part of the request that is wrong. */
  errors?: FieldError[];
  /** The version that took the object out, if there was one. */
  removed_in?: RemovedIn | null;
  /** HTTP status of the response; of a check in a batch, the one that it would have by itself. */
  status: number;
  /** Short summary for people: the meaning of the code, or the phrase of the status. */
  title: string;
  /** Tries to sign in, or codes, that there are before a wait. */
  tries_left?: number | null;
  /** URI of the kind of problem; `about:blank` if only the code says what it is. */
  type: string;
  /** Who uses the tier that would go. */
  used_by?: Usage | null;
};

/** A process and its settings. */
export type Process = {
  /** The commit of its build, if that is known. */
  commit?: string | null;
  /** The addresses of its listeners. */
  doors?: DoorAddress[];
  /** Whether its listeners speak TLS. */
  has_tls?: boolean;
  /** Whether it sends traces to a collector. */
  has_traces?: boolean;
  /** The most keys of its table; `null`: it does not send it. */
  max_keys?: number | null;
  /** The fraction of decisions that the metrics sample: one in so many. */
  observed_one_in?: number;
  /** The fraction of identities whose requests are recorded: one in so many; `null`: none are. */
  recorded_one_in?: number | null;
  /** The time at which it started, by its clock, Unix milliseconds. */
  started_at_ms?: number;
  /** The worker threads of each listener; `null`: it has none, or does not send it. */
  workers?: number | null;
};

/** The answer to a publish. */
export type Publication = {
  /** The objects that changed; an import says what it did line by line. */
  changes?: ChangedObject[] | null;
  /** Clients whose override had ended, and was taken away with this version. */
  ended: string[];
  /** The nodes that it went to, if not to all. */
  nodes?: string[] | null;
  /** Of an import: what is not carried over as it was. */
  notes?: Note[];
  /** The version that the list was applied on, where that is not the one that it was made on. */
  on_top_of: number | null;
  /** Where a rollout is open: the version by which all other nodes get the same change. */
  others_version?: number | null;
  report?: ImportReport | null;
  /** Of the document, hex. */
  sha256: string;
  version: number;
};

/** The request that a query is about. */
export type Question = {
  /** The cost in tokens; 1 unless given. */
  cost?: number | null;
  /** `default` unless given. */
  domain?: string | null;
  /** The path of the request. */
  endpoint?: string | null;
  /** One to eight identities, each kind once. */
  identities: Who[];
  /** The method, such as `GET`. */
  method?: string | null;
};

/** Per second. */
export type Rates = {
  allowed: number;
  /** Estimated from one decision in 16. */
  degraded: number;
  denied: number;
  shadow_denied: number;
};

/** What is recorded just now. */
export type Recorded = {
  /** Memory that they take. */
  bytes: number;
  /** Most memory that they take. */
  bytes_max: number;
  /** False: of the time in which requests are kept, some of the sample are missing, for one of the reasons below. */
  complete: boolean;
  /** Time of the first of them. */
  from: string | null;
  /** How long they are kept. */
  kept_max_ms: number;
  /** Requests of the sample that came faster than they could be taken, in that time. */
  lost: number;
  /** One identity of each kind in so many is in the sample. */
  one_in: number;
  /** Requests that are kept. */
  requests: number;
  /** Time of the last. */
  to: string | null;
  /** Requests of the sample that are longer than a record, in that time. */
  too_long: number;
};

export type RecordedClient = {
  /** Who, as `KIND:VALUE`. */
  client: string;
};

/** Those that the recorder has kept. */
export type RecordedRequests = {
  recorded: RecordedClient;
};

/** Codes of which each takes the place of one of the app, once. */
export type RecoveryCodes = {
  /** Shown this once. */
  recovery_codes: string[];
};

/** A line that cannot be read. */
export type RefusedLine = {
  /** The line number, from 1. */
  line: number;
  /** The error. */
  why: string;
};

/** A policy that a node did not take. */
export type RefusedPolicy = {
  /** When this server heard of it. */
  since: string;
  version: number;
  why: string;
};

/** The version without an object that was in the one before it. */
export type RemovedIn = {
  /** RFC 3339. */
  at: string;
  /** Author of the version. */
  by: string;
  version: number;
};

/** A report of a node: its counts since the last report, and its state. The node sends the same report again until it is acknowledged, so that no count is lost. The admin server counts a repeated report once. */
export type Report = {
  /** The time at which the report was made, by the node's clock, Unix milliseconds. */
  at_ms?: number;
  /** The counts of decisions since the last report. */
  counts?: NodeCounts;
  /** The keys that were denied most, heaviest first: as many as fit. */
  denied?: HeavyKey[];
  /** Errors since the start of the process, by kind. */
  errors?: ErrorCount[];
  /** The fill of the key table, estimated: from 0 to 1. */
  fill?: number;
  /** Whether the node decides by its last good policy, because it has not reached the admin server since it started. */
  from_last_good?: boolean;
  /** The keys with the most requests, heaviest first: as many as fit. */
  hot?: HeavyKey[];
  /** The instance of the node: another one for each start of its process. */
  instance?: string;
  /** The keys in the table now, estimated; `null`: the build does not send it. */
  keys?: number | null;
  /** The buckets of the latency histogram that have counts, each with its count. */
  latency?: [number, number][];
  /** The counts of limits of tiers and rules that decided since the last report, 1,000 at most. A request counts once for each limit. */
  limits?: PartCounts[];
  /** The number of further limits that decided; their requests are in `counts` alone. */
  limits_left_out?: number;
  /** The resident memory of the process, bytes; `null`: the system does not tell. */
  memory_bytes?: number | null;
  /** The name of the node. */
  name?: string;
  /** New keys that found no slot in the table, since the start. */
  overflow_charges?: number;
  /** The counts of tiers and rules that decided since the last report, 1,000 at most. A request counts once for each of them. */
  owners?: PartCounts[];
  /** The number of further tiers and rules that decided; their requests are in `counts` alone. */
  owners_left_out?: number;
  /** The version of the policy in force; 0: none. */
  policy_version?: number;
  /** The process, in the first report and in every tenth one after it. */
  process?: Process | null;
  /** The number of the report: from 1, one more for each. */
  sequence?: number;
  /** The state of the store that the node shares limits through; `null`: it has none, or does not send it. */
  store?: StoreReport | null;
};

/** The content of `X-RateLimit-Reset`. */
export type Reset = 'epoch' | 'delta';

/** Of a person or a token. Each may what those before it may. */
export type Role = 'viewer' | 'operator' | 'editor' | 'admin';

/** A role. */
export type RoleItem = {
  id: Role;
  /** What it may beyond those before it. */
  may: string;
};

/** What is taken back. */
export type RollBack = {
  /** Where later versions changed the same field again: what holds. A dry run names these fields. */
  choices?: Choice[];
  /** Publish what a node that is connected cannot read: it keeps the policy that it has. */
  force?: boolean;
  /** Of the version that this makes. */
  message?: string | null;
  mode?: RollBackMode;
  /** The nodes that it goes to first, by their names; all unless given. */
  nodes?: string[] | null;
  /** The version to go back to, or to undo. */
  to: number;
};

export type RollBackMode = 'whole' | 'own';

/** A way back that was only tried. */
export type RollBackTried = {
  /** Fields that later versions changed again: a rollback says in `choices` what holds. */
  clashes: Clash[];
  /** What would be otherwise; nothing: there is nothing to publish. */
  differences: Difference[];
  /** Where it lets much more through: ten times as much, or without a limit that held. */
  loosens: Loosened[];
  /** What was there and denied nothing, and would deny. */
  starts_to_refuse: StartsToRefuse[];
  /** The version that it would be made on. */
  version: number;
};

/** A version that some nodes have, and all others wait for. */
export type Rollout = {
  /** Who began it. */
  author: string;
  /** The version that all others keep. */
  keeps: number;
  /** Those that it went to. */
  nodes: string[];
  /** When it began, RFC 3339. */
  since: string;
  /** The newest version. */
  version: number;
};

export type RolloutNode = {
  node: string;
  /** 0: none; `null`: it is not known. */
  policy_version: number | null;
};

/** A group of clients with the same traffic. */
export type Row = {
  /** Number of clients. */
  clients?: number;
  /** Cost of each request. */
  cost?: number;
  /** Length of the traffic, such as `10m`. */
  for: string;
  /** Kind of the identities. */
  kind?: string;
  /** Method of the requests. */
  method?: string | null;
  /** Path of the requests. */
  path?: string | null;
  /** Pattern of the requests over time. */
  pattern?: Pattern;
  /** Period of the rate, such as `1s`. */
  per?: string;
  /** Requests of each client per `per`. */
  rate: number;
  /** Tier of the clients; by default that of their kind. */
  tier?: string | null;
  /** Value of the identity, for a single client; generated by default. */
  value?: string | null;
};

/** A rule: the limits of an endpoint. */
export type Rule = {
  /** A factor of the request's cost. */
  cost?: number;
  /** Whether the rule applies at all. */
  enabled?: boolean;
  /** `/exact`, `/users/{id}`, `/api/*` or `*`. */
  endpoint: string;
  /** `[a-z][a-z0-9_-]{0,63}`. */
  id: string;
  /** The limits, checked in this order. */
  limits: Limit[];
  /** The method of matching requests; any unless given. */
  method?: string | null;
  /** A note for people. */
  note?: string | null;
  /** The kinds of identity whose values are counted separately. */
  per: Per;
  /** The tiers of matching requests, which have an identity of one of them; any unless given. */
  tiers?: string[] | null;
  /** The values that identities of these kinds have in matching requests; a `*` at the end matches any rest. */
  where?: Record<string, string>;
};

/** An object as it is now. */
export type RuleItem = {
  changed_at?: string;
  changed_by?: string;
  /** How many configured clients have it. */
  clients?: number;
  /** Kinds of identity whose default it is. */
  default_of?: string[];
  etag: string;
  id: string;
  revision?: number;
  /** Rules that are only for some tiers, this one among them. */
  rules?: string[];
  value: Rule;
};

export type RuleSays = {
  applies: boolean;
  /** That in words. */
  detail: string;
  endpoint: string;
  id: string;
  method: string | null;
  /** `applies`, or the first thing that keeps it from that: `disabled`, `endpoint`, `method`, `no_identity`, `tiers`, `where`, `closer`. */
  reason: string;
};

/** A run, as it is told. */
export type Run = {
  about: AboutTraffic;
  /** The question, to be asked again; none where it is too long to be kept. */
  asked: Ask | null;
  /** The time that it has come to on its own clock. */
  at: string | null;
  /** Who asked. */
  author: string;
  created_at: string;
  /** Requests so far. */
  done: number;
  ended_at: string | null;
  /** Why it failed. */
  error: string | null;
  id: string;
  /** How identities are shown in what was found of recorded requests. Where they are to be shown less clearly by now, the run is forgotten at the start. */
  keys?: Keys | null;
  /** About how many there are. */
  of: number;
  /** The version that was in force when it was asked for: what `changes` and `draft` were put on. */
  policy_version: number;
  started_at: string | null;
  state: RunState;
  /** What was found, in short. */
  summary?: Summary | null;
  /** How many runs come before it, while it waits. */
  waits_for: number | null;
};

/** Where a run is. */
export type RunState = 'queued' | 'running' | 'done' | 'stopped' | 'failed';

/** What was counted since the process started, by its engine and by the nodes that tell it, and how fast. */
export type Sample = {
  /** Was anything ever decided: since the process started, or in an hour that the database has, by any server of it? */
  anything_yet: boolean;
  /** Decisions since the sample before, of which the rates are. */
  decisions: number;
  /** Since the sample before, whatever the wall clock did; 0 in the first. */
  interval_ms: number;
  /** Keys that were denied within the last minute, as far as the sketch of the most denied knows: at most 256. */
  keys_limited: number;
  /** The limits of tiers and rules, in the policy's order. */
  limits: LimitCounts[];
  /** Decisions that were measured: one in 16. */
  measured: number;
  /** New keys that found no slot in the engine's table. */
  overflow_charges: number;
  /** How long half of the decisions since the sample before took at most, and 99 in 100, of those that were measured: whole microseconds, rounded up. `null`: none was. */
  p50_us: number | null;
  p99_us: number | null;
  policy_version: number;
  rates: Rates;
  /** Unix milliseconds. */
  t: number;
  totals: AllTotals;
};

export type Sampled = {
  /** Of each node, so many at most. */
  count: number;
  /** Milliseconds. */
  for_ms: number;
  /** Names of nodes; all unless given. */
  nodes?: string[] | null;
};

/** What a token may that is no role. */
export type Scope = 'node';

/** One second of the history. */
export type Second = {
  /** Per second. */
  allowed: number;
  denied: number;
  /** Unix milliseconds. */
  t: number;
};

/** Whether a sign-in by a password takes a code. */
export type SecondFactor = {
  /** Since when it does; `null`: it does not. */
  made_at: string | null;
  /** Recovery codes that were not used yet. */
  recovery_codes: number;
};

/** A decision that a watch saw. */
export type SeenDecision = {
  /** Whether the request was allowed. */
  allowed: boolean;
  /** The time of the decision by the node's clock, Unix milliseconds. */
  at_ms: number;
  /** The cost in tokens; `null`: it was no request, or the node does not send it. */
  cost?: number | null;
  /** The path of the request, if it had one, cut to 512 characters. */
  endpoint?: string | null;
  /** The identities of the request. */
  identities: SeenIdentity[];
  /** The limit that decided; `null`: none applied. */
  limit_id?: string | null;
  /** The method of the request, if it had one. */
  method?: string | null;
  /** The tokens that were left. */
  remaining?: number | null;
};

/** An identity in a report or a decision. */
export type SeenIdentity = {
  /** The kind, such as `user`. */
  kind: string;
  /** The value, such as `ada`. */
  value: string;
};

/** Who is signed in. */
export type Session = {
  /** For the header `X-CSRF-Token`. */
  csrf: string;
  /** Name of this installation, as the page shows it. */
  environment: string | null;
  /** When it ends unless it is used until then; RFC 3339. */
  expires_at: string;
  name: string;
  /** Is it production, by its settings? The page has a stripe then. */
  production: boolean;
  role: Role;
};

/** A session. */
export type SessionItem = {
  /** From where it was used last. */
  address: string;
  began_at: string;
  /** As it called itself when it signed in. */
  browser: string;
  /** When it ends unless it is used until then. */
  expires_at: string;
  id: string;
  /** Is it the one that asks? */
  is_this: boolean;
  /** To the minute. */
  last_seen_at: string;
};

/** The first administrator is to be made. */
export type SetupState = {
  /** A name to begin with. */
  name: string;
  open: boolean;
  /** The shortest password. */
  password_characters_min: number;
};

/** The way in which nodes share a limit. */
export type Sharing = 'local' | 'strict' | 'leased' | 'synced';

/** A way in which nodes share a limit. */
export type SharingInfo = {
  /** What holds on all nodes together. */
  help: string;
  id: Sharing;
};

export type ShownIdentity = {
  kind: string;
  value: string;
};

/** Summary of one policy. */
export type SideSummary = {
  /** Requests that it allowed. */
  allowed: number;
  /** Listed clients with a denial. */
  clients_denied: number;
  /** Requests that it denied. */
  denied: number;
  /** The first request that it denied. */
  first_denial: FirstDenial | null;
  /** The longest time for which it denied every request of a listed client. */
  longest_run: LongestRun | null;
};

/** By which provider people may sign in. */
export type SignInProvider = {
  /** On the button; `null`: there is none. */
  name: string | null;
};

export type SignsIn = 'password' | 'provider' | 'token';

/** The version in which an object changed last: it was as it is since then, and perhaps before. */
export type Since = {
  at: string;
  version: number;
};

/** How a client stands. */
export type Standing = {
  /** Requests that were denied within the last minute: estimated, and 0 for whoever is not among the keys that are denied most. */
  denied_per_minute: number;
  /** The limit that is nearest to denying a request of its alone, on the node where it is nearest; `null`: there is none that can, or no node answered. */
  fullest: Fullest | null;
  id: string;
  /** When one was seen last, RFC 3339; `null`: not as long as it has been among the keys that are denied most. */
  last_denied_at: string | null;
};

/** How clients stand. */
export type Standings = {
  /** Nodes of which nothing is known. */
  did_not_answer: string[];
  items: Standing[];
};

/** What denied nothing until now. */
export type StartsToRefuse = {
  code: string;
  domain: string;
  id: string;
  kind: string;
  limit: string | null;
  message: string;
  /** How many clients it is so for, of which `id` is the first; 1 for whatever is no client. */
  objects: number;
  /** Of a tier or rule: since when it was so at least. */
  since: Since | null;
};

/** The reason why a store refuses or fails, or what endangers its keys. */
export type StoreFault =
  | 'unreachable'
  | 'timeout'
  | 'tls'
  | 'wrong_password'
  | 'no_permission'
  | 'read_only'
  | 'out_of_memory'
  | 'misconfigured'
  | 'no_replicas'
  | 'loading'
  | 'busy'
  | 'master_down'
  | 'cluster_down'
  | 'moved'
  | 'try_again'
  | 'unknown_command'
  | 'refused'
  | 'no_secret'
  | 'evicts'
  | 'keys_lost'
  | 'unwatched'
  | 'unknown';

/** A fault that a node has with its store now. */
export type StoreFaultReport = {
  /** The code of the fault. */
  code: StoreFault;
  /** The meaning of the fault, the text of the store, and the advice: for people. */
  message: string;
};

/** The state of the store that a node shares limits through. Counts are since the start of the node's process. */
export type StoreReport = {
  /** Requests to the store that failed. */
  failed: number;
  /** The faults of the store, and what endangers its keys. */
  faults?: StoreFaultReport[];
  /** Whether the circuit breaker is open: the store did not answer and is skipped for now, and `on_failure` of each limit decides. */
  is_away: boolean;
  /** The mean latency of the store since the last report, microseconds; `null`: it was not asked. */
  latency_us?: number | null;
  /** The tokens that are lent to this node. */
  leased_out: number;
  /** The most tokens above a synced limit that the store has seen. */
  overshoot_max: number;
  /** The time for which the last exchanged charge of a synced limit had waited to be sent, milliseconds. */
  sync_lag_ms: number;
  /** The most tokens of one key that this node spent between two exchanges. The sum over all nodes bounds the overshoot. */
  untold_max: number;
};

/** Summary of a comparison of two policies over the same traffic. A missing policy allows everything, and its part is `null`. */
export type Summary = {
  /** Summary of A. */
  a: SideSummary | null;
  /** Summary of B. */
  b: SideSummary | null;
  /** Length of a bucket of `timeline`. */
  bucket_ms: number;
  /** Charges for which the engines had no free counter; above 0, some requests may have been denied wrongly. */
  charges_without_room: number;
  /** Clients with more or fewer denials by B than by A; `null` in runs of earlier versions. */
  clients: ClientsChanged | null;
  /** Time of the first request. */
  from: string | null;
  /** Numbers of clients and decisions that are stored for display. */
  kept: Kept;
  /** Limits of A, then those that only B has, then those of client overrides that denied most, if they checked a request. */
  limits: LimitRow[];
  /** Limits of client overrides that checked a request and are not listed. */
  limits_left_out: number;
  /** Requests that A denies and B allows; listed clients with denials by A and none by B. */
  newly_allowed: Changed;
  /** Requests that B denies and A allows; listed clients with denials by B and none by A. */
  newly_denied: Changed;
  /** Requests that both decided. */
  requests: number;
  /** All requests over time, without empty buckets. */
  timeline: Bucket[];
  /** Time of the last request. */
  to: string | null;
  /** Clients with the most changed decisions. */
  top: ClientRow[];
};

/** Which value a field gets that was changed again. */
export type Take = 'before' | 'now';

/** A named list of limits that a class of clients gets. */
export type Tier = {
  /** A description for people, in one line or more, without control characters other than line feeds. */
  description?: string | null;
  /** `[a-z][a-z0-9_-]{0,63}`. */
  id: string;
  /** The limits, checked in this order. */
  limits?: Limit[];
  /** Whether the tier has no limits. */
  unlimited?: boolean;
};

/** An object as it is now. */
export type TierItem = {
  changed_at?: string;
  changed_by?: string;
  /** How many configured clients have it. */
  clients?: number;
  /** Kinds of identity whose default it is. */
  default_of?: string[];
  etag: string;
  id: string;
  revision?: number;
  /** Rules that are only for some tiers, this one among them. */
  rules?: string[];
  value: Tier;
};

/** A client over time. */
export type TimelineRow = {
  /** Requests over time, without empty buckets. */
  buckets: Bucket[];
  /** Requests that A denied. */
  denied_a: number;
  /** Requests that B denied. */
  denied_b: number;
  /** Time of the first denial by A. */
  first_denied_a: string | null;
  /** Time of the first denial by B. */
  first_denied_b: string | null;
  /** Time of the first request that B denied and A allowed. */
  first_newly_denied: string | null;
  /** The client as `KIND:VALUE`, formatted for display. */
  key: string;
  /** Requests that A denied and B allowed. */
  newly_allowed: number;
  /** Requests that B denied and A allowed. */
  newly_denied: number;
  /** Requests of the client. */
  requests: number;
};

export type To = Whole | string[];

/** Files to import. */
export type ToImport = {
  /** A policy document is one. */
  files: File[];
};

/** A token. */
export type Token = {
  /** `null`: never. */
  ends_at: string | null;
  id: string;
  /** Of the objects that it may change; `null`: all that its role may. */
  kinds: Kind[] | null;
  last_used_address: string | null;
  /** To the minute; `null`: never. */
  last_used_at: string | null;
  made_at: string;
  made_by: string;
  name: string;
  /** When another of the same name was made in its place; `null`: none was. */
  replaced_at: string | null;
  /** `null`: it has a scope instead. */
  role: Role | null;
  scope: Scope | null;
};

/** A node's reply to a query. */
export type Told =
  | {
      /** Whether the request would be allowed. */
      allowed: boolean;
      /** The limit that would deny it. */
      limit_id?: string | null;
      /** The limits, in the order in which they are checked. */
      limits: PeekedLimit[];
      /** The version of the policy that decides. */
      policy_version: number;
      /** The time after which it would be allowed, milliseconds from now; `null`: never. */
      retry_after_ms?: number | null;
      what: 'peek';
    }
  | {
      /** One entry for each identity of the query, in the same order; `null`: no limit of this identity can deny it. */
      each: (PeekedLimit | null)[];
      what: 'fullest';
    }
  | {
      /** The limits that had been used, with their state before the reset. Older builds send none. */
      cleared?: PeekedLimit[];
      /** The number of keys that had something to clear. */
      keys: number;
      what: 'reset';
    }
  | {
      /** The limits that had been used, with their state before they were cleared. */
      cleared: PeekedLimit[];
      /** The number of keys that had something to clear. */
      keys: number;
      what: 'clear';
    }
  | {
      /** Whether the request was allowed. */
      allowed: boolean;
      /** The limit that denied it, or the one with the least left; `null`: no limit applied, so nothing was charged. */
      limit_id?: string | null;
      /** The version of the policy that decided. */
      policy_version: number;
      /** The time after which it would be allowed, milliseconds from now; `null`: never. */
      retry_after_ms?: number | null;
      /** Whether the policy lacks the domain, so that no limit applied. */
      unknown_domain?: boolean;
      what: 'charge';
    }
  | (Decisions & {
      what: 'watch';
    })
  | (Decisions & {
      what: 'sample';
    })
  | {
      what: 'resync';
    }
  | {
      what: 'failed';
      /** The reason, for people. */
      why: string;
    };

/** Names an object of the policy. Written `tier:pro` or `client:api_key:k1`, with `DOMAIN/` before it in a domain that is not `default`. */
export type TouchedObject = {
  domain: string;
  id: string;
  kind: Kind;
  removed: boolean;
};

/** The objects that a version changed. */
export type TouchedObjects = {
  /** How many; `null`: it is not known, as the version is older than this list. */
  count: number | null;
  /** The first ten, those that it removed last. */
  first: TouchedObject[];
};

/** A change list that is only tried: what it leaves out is as it is now. */
export type TriedList = {
  /** The newest one unless given. */
  base_version?: number | null;
  /** Not looked at: what is tried begins with nothing used. */
  carry?: Record<string, Carry>;
  changes: Change[];
  /** Not looked at: what is tried is sent to nobody. */
  force?: boolean;
  /** Entity tags of the objects that the list changes, by key; as they are now unless given. */
  if_match?: Record<string, string>;
  message?: string | null;
  /** Not looked at either. */
  nodes?: string[] | null;
};

/** An endpoint without a rule of its own. */
export type Uncovered = {
  domain: string;
  /** With `{id}` for what looks like one; other segments that no rule of the domain names are shown as the server's setting `keys` says. */
  endpoint: string;
  /** `null`: the requests had none. */
  method: string | null;
  /** Estimated. */
  requests: number;
  /** Rules for all paths that match it; none: no rule does. */
  rules: string[];
  /** Requests that were looked at, which that is estimated from. */
  seen: number;
};

/** A log that was sent. */
export type Upload = {
  author: string;
  /** As it was sent. */
  bytes: number;
  /** Distinct addresses. */
  clients: number;
  expires_at: string;
  /** The field names of the first lines, if their format has names, as JSON and CSV do. */
  fields: string[];
  /** The first requests, as they were parsed. */
  first: LogLine[];
  /** The first lines that cannot be read. */
  first_refused: RefusedLine[];
  /** Time of the earliest request. */
  from: string | null;
  id: string;
  /** The field that says who came, if one was chosen. */
  key: LogKey | null;
  /** Lines that are not blank. */
  lines: number;
  /** Lines that cannot be read. */
  refused: number;
  /** Lines that make a request. */
  requests: number;
  /** Stays after a run, until it expires. */
  saved: boolean;
  /** Time of the latest request. */
  to: string | null;
  /** Distinct users, or values of the chosen field. */
  users: number;
  /** Lines without a client, which no limit counts. */
  without_client: number;
};

/** Who uses a tier. */
export type Usage = {
  /** How many configured clients have it. */
  clients: number;
  /** Kinds of identity whose default it is. */
  default_of: string[];
  /** Rules that are only for some tiers, this one among them. */
  rules: string[];
};

/** A user. */
export type User = {
  etag: string;
  /** Does a sign-in take a code as well? */
  has_second_factor: boolean;
  /** His name. */
  id: string;
  /** To the minute; `null`: never. */
  last_seen_at: string | null;
  made_at: string;
  role: Role;
  /** How many have not ended. */
  sessions: number;
  /** How he signs in. */
  signs_in: SignsIn;
};

/** What of a user is to be other. */
export type UserChange = {
  password?: string | null;
  role?: Role | null;
};

/** What publishing a list would do. */
export type Validated = {
  differences: Difference[];
  /** Where it lets much more through: ten times as much, or without a limit that held. */
  loosens: Loosened[];
  /** The version in force. */
  on_top_of: number;
  /** What was there and denied nothing, and would deny. */
  starts_to_refuse: StartsToRefuse[];
  /** That it would be. */
  version: number;
  warnings: Warned[];
};

/** The newest version, with its policy. */
export type VersionWithDocument = {
  author: string;
  carry: Carries;
  document: Policy;
  /** The version that it was made on: the one before it, unless a rollout was open; 0: there was none. */
  follows: number;
  message: string;
  /** RFC 3339. */
  published_at: string;
  sha256: string;
  version: number;
};

/** A warning as it is sent. */
export type Warned = {
  code: string;
  domain: string;
  id: string;
  /** The policy in force does not have it. */
  is_new?: boolean | null;
  kind: string;
  limit: string | null;
  message: string;
};

export type Watched = {
  /** Milliseconds. */
  for_ms: number;
  /** Names of nodes; all unless given. */
  nodes?: string[] | null;
  who: Who;
};

/** How a rollout went on. */
export type WentOn = {
  /** `null`: every node is to have that one. */
  rollout: Rollout | null;
  /** The newest version. */
  version: number;
};

/** Filter for decisions or clients. */
export type Which = 'all' | 'denied' | 'changed' | 'newly_denied' | 'newly_allowed';

/** The identity that a query is about. */
export type Who = {
  /** The kind, such as `user`. */
  kind: string;
  /** The value, such as `ada`. */
  value: string;
};

export type Whole = 'all' | 'back';

/** An object in plain words. */
export type Words = {
  /** Of each limit, in their order. */
  limits: LimitWords[];
  /** Of a rule: which requests it is for, and how many of them may come. */
  sentence: string | null;
};
