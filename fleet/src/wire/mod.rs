//! What nodes and the admin server say to each other: plain types, on either side.
//!
//! The admin server speaks in server-sent events on the stream that a node opened, whose names are the constants here; a
//! node speaks by `POST`. Fields may be added to what either tells, and parameters to the query of the stream: whoever does not
//! know one overlooks it. What is asked is no such thing: an event or a question that a node does not know whole is overlooked,
//! or answered so.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::{algorithm::Carry, policy::Sharing};

use crate::counts::totals::{Part, Whole};
use crate::store::{FaultReport, StoreFigures};

pub mod event_reader;
pub mod payload;
pub(crate) mod truncate;

/// The stream of snapshots, below the admin server's address.
pub const STREAM: &str = "/api/v1/snapshots/stream";
/// Where a node acknowledges.
pub const ACKNOWLEDGEMENTS: &str = "/api/v1/nodes/acknowledgements";
/// Where a node tells what it counted.
pub const REPORTS: &str = "/api/v1/nodes/reports";
/// Where a node says that it stops.
pub const GOODBYES: &str = "/api/v1/nodes/goodbyes";
/// Where a node answers.
pub const ANSWERS: &str = "/api/v1/nodes/answers";

/// A [`Snapshot`].
pub const SNAPSHOT: &str = "snapshot";
/// A [`Delta`], to nodes that said that they take some.
pub const DELTA: &str = "delta";
/// The node has what it should have: [`Current`].
pub const CURRENT: &str = "current";
/// A [`Command`].
pub const COMMAND: &str = "command";
/// The node reads too slowly, and is to connect again.
pub const RESTART: &str = "restart";
/// The secret of the keys in the store: [`StoreKeys`]. It comes first, and only to a node that has a store.
pub const STORE_KEYS: &str = "store_keys";
/// The stream ends, and [`Bye`] says why.
pub const BYE: &str = "bye";

/// Bytes of a node's name.
pub const NAME_BYTES_MAX: usize = 64;
/// What a node's name looks like.
pub const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]*$";
/// Deltas in a row, before the policy is sent whole again: what a node has to read at its start is not to grow for ever.
pub const DELTAS_MAX: u32 = 100;
/// Bytes of what a node posts: the admin server takes no more.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Limits of a report, and tiers and rules together.
pub const PARTS_MAX: usize = 1_000;
/// Keys of each list of a report.
pub const HITTERS_MAX: usize = 32;
/// Identities of a question.
pub const FULLEST_MAX: usize = 100;
/// Kinds of errors of a report.
pub const ERROR_KINDS_MAX: usize = 64;
/// Doors that a process tells of.
pub const DOORS_MAX: usize = 8;
/// Bytes of what a process says of itself, word by word: a commit, an address, a kind of errors.
pub const TEXT_BYTES_MAX: usize = 128;
/// Decisions of an answer.
pub const DECISIONS_MAX: usize = 100;
/// How long a node may watch before it answers, milliseconds.
pub const WATCH_MS_MAX: u64 = 1_500;
/// Until when a command must be answered, milliseconds from when it was sent.
pub const DEADLINE_MS: u64 = 2_000;

/// Can this be a node's name?
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric();
    name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || b"._-".contains(&byte))
}

/// What a node says of itself when it connects: the query of the stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Hello {
    /// Its name.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = NAME_BYTES_MAX), regex(pattern = NAME_PATTERN)))]
    pub name: String,
    /// Another for each start of its process.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = NAME_BYTES_MAX), regex(pattern = NAME_PATTERN)))]
    pub instance: String,
    /// Version of its build.
    #[serde(default)]
    pub build: String,
    /// The newest schema of policies that it knows.
    pub schema: u32,
    /// Version of the policy that it has, if any.
    pub version: Option<u64>,
    /// SHA-256 of that policy's document, hex.
    pub sha256: Option<String>,
    /// How many deltas it takes before the policy is sent whole: a hundred at most, and a hundred once those are used up. One
    /// that is some hundredths of the whole counts as so many more. Every policy is sent whole unless given.
    pub deltas: Option<u32>,
    /// The store that it shares limits through: nodes that were given the same addresses and prefix say the same number, below 2^53. Nothing:
    /// it has none, or does not say.
    pub store: Option<u64>,
    /// Does it say so when it stops ([`Goodbye`])? One that does not is not missed when it is gone.
    #[serde(default)]
    pub says_goodbye: bool,
}

/// A node stops because it was told to: nobody has to look after it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Goodbye {
    /// Its name.
    pub name: String,
    /// Which start of it.
    pub instance: String,
}

/// A published policy, on its way to a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Under which it was published.
    pub version: u64,
    /// Of the document, hex.
    pub sha256: String,
    /// RFC 3339.
    pub published_at: String,
    /// What becomes of used quota, by full name of the limit; kept unless said.
    #[serde(default)]
    pub carry: BTreeMap<String, Carry>,
    /// Bytes of the document as JSON.
    pub bytes: u64,
    /// The document: JSON, deflated, in base64.
    pub document: String,
}

/// A published policy, on its way to a node that has the version that it was made on: what differs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Delta {
    /// Under which it was published.
    pub version: u64,
    /// Of its document, hex.
    pub sha256: String,
    /// RFC 3339.
    pub published_at: String,
    /// Of the document that it differs from, hex.
    pub since_sha256: String,
    /// What becomes of used quota, by full name of the limit; kept unless said.
    #[serde(default)]
    pub carry: BTreeMap<String, Carry>,
    /// Bytes of the delta as JSON.
    pub bytes: u64,
    /// Of the delta as JSON, hex.
    pub delta_sha256: String,
    /// [`tidegate::policy::Delta`]: JSON, deflated, in base64.
    pub delta: String,
}

/// The policy that a node has is the one that it should have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Current {
    /// Its version.
    pub version: u64,
}

/// The secret with which the nodes of a fleet derive the names of keys in their store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreKeys {
    /// 32 bytes, base64url without padding.
    pub secret: String,
}

/// The stream ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bye {
    /// Why, for people.
    pub reason: String,
}

/// What became of a snapshot on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Acknowledgement {
    /// Name of the node.
    pub name: String,
    /// Which start of it.
    pub instance: String,
    /// Of the policy.
    pub version: u64,
    /// When, by the node's clock, Unix milliseconds.
    pub at_ms: u64,
    /// From the last byte of the snapshot to the swap, milliseconds.
    pub took_ms: u64,
    /// Why it is not in force, if it is not.
    #[serde(default)]
    pub refused: Option<String>,
    /// Why it is in force, but not kept for the next start, if it should be.
    #[serde(default)]
    pub not_kept: Option<String>,
}

/// What a node counted since its last report, and how it is.
///
/// A report is sent again as it was until it is answered, so that none is lost; one that came twice is counted once.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default)]
pub struct Report {
    /// Name of the node.
    pub name: String,
    /// Which start of it.
    pub instance: String,
    /// From 1, one more for each.
    pub sequence: u64,
    /// When it was made, by the node's clock, Unix milliseconds.
    pub at_ms: u64,
    /// Version of the policy in force; 0: none.
    pub policy_version: u64,
    /// Decisions since the last report.
    pub counts: NodeCounts,
    /// Buckets of the histogram of latencies that have counts, and how many.
    pub latency: Vec<(u16, u64)>,
    /// The limits of tiers and rules that decided since the last report, a thousand at most: each request once for each
    /// limit.
    pub limits: Vec<PartCounts>,
    /// Further limits that decided, and are in `counts` alone.
    pub limits_left_out: u64,
    /// The tiers and rules that decided since the last report, a thousand at most: each request once for each of them.
    pub owners: Vec<PartCounts>,
    /// Further tiers and rules that decided, and are in `counts` alone.
    pub owners_left_out: u64,
    /// How full the table is, estimated: from 0 to 1.
    pub fill: f64,
    /// New keys that found no slot in the table, since the start.
    pub overflow_charges: u64,
    /// It decides by its last good policy, and has not heard the admin server since it started.
    pub from_last_good: bool,
    /// The keys that were denied most, heaviest first: as many as fit.
    pub denied: Vec<HeavyKey>,
    /// The keys that came most, heaviest first: as many as fit.
    pub hot: Vec<HeavyKey>,
    /// Keys that are counted now, estimated; nothing: the build does not tell.
    pub keys: Option<u64>,
    /// Memory that the process has from the machine, bytes; nothing where the system does not say.
    pub memory_bytes: Option<u64>,
    /// The store that it shares limits through; nothing: it has none, or does not say.
    pub store: Option<StoreReport>,
    /// Errors since the start of the process, by kind.
    pub errors: Vec<ErrorCount>,
    /// What process it is: in the first report, and in every tenth one after it.
    pub process: Option<Process>,
}

/// How the store is that a node shares limits through; counts are since the start of its process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct StoreReport {
    /// It did not answer, and is left alone for now: limits do what they say for that case.
    pub is_away: bool,
    /// Why it refuses or fails, and what endangers its keys.
    #[serde(default)]
    pub faults: Vec<FaultReport>,
    /// Questions without an answer.
    pub failed: u64,
    /// What an answer took since the last report, on the average, microseconds; nothing: there was none.
    pub latency_us: Option<u64>,
    /// Tokens that are lent to this node.
    pub leased_out: u64,
    /// The most tokens above a synced limit that the store had.
    pub overshoot_max: u64,
    /// The most tokens of one key that this node spent between two exchanges: the sum of all nodes bounds the overshoot.
    pub untold_max: u64,
    /// For how long a charge of a synced limit was untold, the last one, milliseconds.
    pub sync_lag_ms: u64,
}

/// Errors of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ErrorCount {
    /// Why an answer was not what it should have been, such as `overload`; or the code of a request that was refused or
    /// failed, such as `bad_request`.
    pub kind: String,
    /// How many since the start of the process.
    pub count: u64,
}

/// What a process is, and with what it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default)]
pub struct Process {
    /// When it began, by its clock, Unix milliseconds.
    pub started_at_ms: u64,
    /// Commit of its build, if that is known.
    pub commit: Option<String>,
    /// Where it answers, by protocol.
    pub doors: Vec<DoorAddress>,
    /// Do its doors speak TLS?
    pub has_tls: bool,
    /// Does it send spans of requests to a collector?
    pub has_traces: bool,
    /// Keys that its table has room for; nothing: it does not say.
    pub max_keys: Option<u64>,
    /// Threads that answer at each door; nothing: it has none, or does not say.
    pub workers: Option<u64>,
    /// For the figures one decision in so many is looked at.
    pub observed_one_in: u32,
    /// The requests of one identity in so many are recorded; nothing: none are.
    pub recorded_one_in: Option<u32>,
}

/// A door, and where it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct DoorAddress {
    /// `http`, `grpc` or `resp`.
    pub protocol: String,
    /// With its scheme and port.
    pub address: String,
}

impl StoreReport {
    /// Returns what a node reports of its store, whose figures were `before` at its last report.
    pub(crate) fn of(now: &StoreFigures, before: &StoreFigures) -> Self {
        let answers = (now.asked - now.failed).saturating_sub(before.asked - before.failed);
        let took = now.took.saturating_sub(before.took);
        let latency = u32::try_from(answers).ok().filter(|&answers| answers > 0).map(|answers| took / answers);
        Self {
            is_away: now.is_open,
            faults: now.faults.clone(),
            failed: now.failed,
            latency_us: latency.map(|latency| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)),
            leased_out: now.leased_out,
            overshoot_max: now.overshoot_max,
            untold_max: now.untold_max,
            sync_lag_ms: u64::try_from(now.sync_lag.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Process {
    /// With as many doors, and as much of each text, as the admin server keeps.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.doors.truncate(DOORS_MAX);
        let doors = self.doors.iter_mut().flat_map(|door| [&mut door.protocol, &mut door.address]);
        doors.chain(&mut self.commit).for_each(cut);
        self
    }
}

/// The first errors of a report, as many as the admin server keeps.
#[must_use]
pub fn bounded_errors(mut errors: Vec<ErrorCount>) -> Vec<ErrorCount> {
    errors.truncate(ERROR_KINDS_MAX);
    for error in &mut errors {
        cut(&mut error.kind);
    }
    errors
}

fn cut(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
}

impl Report {
    /// What it says of all decisions.
    #[must_use]
    pub fn whole(&self) -> Whole {
        let NodeCounts { allowed, denied, no_limit, unknown_domain, degraded } = self.counts;
        let mut whole = Whole { allowed, denied, no_limit, unknown_domain, degraded, ..Whole::default() };
        for &(bucket, count) in &self.latency {
            // A bucket that this build does not have is left out.
            let _ = whole.latency.put(bucket.into(), count);
        }
        whole
    }
}

/// Decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default)]
pub struct NodeCounts {
    /// Allowed.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// Of those allowed, the ones that met no limit.
    pub no_limit: u64,
    /// Of those, the ones that named a domain which the policy does not have.
    pub unknown_domain: u64,
    /// Decided without the store that a limit is shared over, estimated.
    pub degraded: u64,
}

/// Decisions of one limit, tier or rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PartCounts {
    /// Full name.
    pub id: String,
    /// Allowed.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// Would have been denied, by a shadow.
    pub shadow_denied: u64,
}

impl PartCounts {
    /// The same, without the name.
    #[must_use]
    pub fn part(&self) -> Part {
        Part { allowed: self.allowed, denied: self.denied, shadow_denied: self.shadow_denied }
    }
}

/// A key that is among the heaviest of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct HeavyKey {
    /// Full name of the limit.
    pub limit_id: String,
    /// Who is counted together; nobody: everyone.
    pub identities: Vec<SeenIdentity>,
    /// Estimated decisions, halved every ten minutes.
    pub count: u64,
    /// By at most so many is the count too high.
    pub error: u64,
}

/// An identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Who"))]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// Such as `user`.
    pub kind: String,
    /// Such as `ada`.
    pub value: String,
}

/// An identity that a node saw.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SeenIdentity {
    /// Such as `user`.
    pub kind: String,
    /// Such as `ada`.
    pub value: String,
}

/// What is asked of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Command {
    /// By which the answer is known.
    pub id: String,
    /// Within so many milliseconds the answer counts.
    pub deadline_ms: u64,
    /// An [`Ask`]; one of a newer build may be none.
    pub ask: Value,
}

/// What can be asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "what", rename_all = "lowercase", deny_unknown_fields)]
pub enum Ask {
    /// How every limit stands that a request would meet. Charges nothing.
    Peek {
        /// The request.
        request: Question,
    },
    /// Of each of several identities, the limit that is nearest to denying its requests, of which nothing else is known. Charges
    /// nothing.
    Fullest {
        /// `default` unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        domain: Option<String>,
        /// A hundred at most.
        #[cfg_attr(feature = "schema", schemars(length(max = FULLEST_MAX)))]
        each: Vec<Who>,
    },
    /// Forget what was used here of the limits of a request, those of everyone too: what this node counted, and what it holds of
    /// limits that nodes share. What their store has of those is forgotten by [`Clear`](Self::Clear) before.
    Reset {
        /// The request.
        request: Question,
    },
    /// Have the store of limits that nodes share forget what was used of those of a request. One node is asked; what it holds
    /// itself it keeps until [`Reset`](Self::Reset).
    Clear {
        /// The request.
        request: Question,
    },
    /// Decide a request, and charge it when it is allowed: a check as the doors make it.
    Charge {
        /// The request.
        request: Question,
    },
    /// The decisions about one identity that are made from now on.
    Watch {
        /// Whom.
        who: Who,
        /// For how long, milliseconds.
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = WATCH_MS_MAX)))]
        for_ms: u64,
        /// Whoever asks again and again misses nothing in between. It is answered as soon as there is something to tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        goes_on: Option<GoesOn>,
    },
    /// The next decisions, whomever they are about.
    Sample {
        /// So many at most.
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = DECISIONS_MAX)))]
        count: usize,
        /// For how long, milliseconds.
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = WATCH_MS_MAX)))]
        for_ms: u64,
    },
    /// Connect again, and take the policy anew.
    Resync {},
}

/// Where a watch is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GoesOn {
    /// Whoever asks chooses it, another for each watch: under it the node goes on to watch for ten seconds after each question.
    pub watch: String,
    /// The `last` of its last answer; 0 at first.
    pub after: u64,
}

/// A request that is asked about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// `default` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// One to eight, each kind once.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = tidegate::IDENTITIES_MAX)))]
    pub identities: Vec<Who>,
    /// Path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Such as `GET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Tokens; 1 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
}

/// A node's answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Answer {
    /// Name of the node.
    pub name: String,
    /// Which start of it.
    pub instance: String,
    /// Of the command.
    pub id: String,
    /// What it has to say.
    pub told: Told,
}

/// What a node has to say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum Told {
    /// How limits stand.
    Peek {
        /// Version of the policy that decides.
        policy_version: u64,
        /// Would it be allowed?
        allowed: bool,
        /// The limit that would deny it.
        #[serde(default)]
        limit_id: Option<String>,
        /// When it would be allowed, milliseconds from now; `null`: never.
        #[serde(default)]
        retry_after_ms: Option<u64>,
        /// In the order in which they are checked.
        limits: Vec<PeekedLimit>,
    },
    /// The limit that is nearest to denying.
    Fullest {
        /// Of each identity, in the order in which they were asked about; `null`: no limit of its can deny it for what it used.
        each: Vec<Option<PeekedLimit>>,
    },
    /// What was used is forgotten.
    Reset {
        /// Keys of which there was something to forget.
        keys: u64,
        /// The limits of which something was used, as they stood before. Builds before these have none.
        #[serde(default)]
        cleared: Vec<PeekedLimit>,
    },
    /// The store has forgotten what was used.
    Clear {
        /// Keys of which there was something to forget.
        keys: u64,
        /// The limits of which something was used, as they stood before.
        cleared: Vec<PeekedLimit>,
    },
    /// What was decided, and charged if it was allowed.
    Charge {
        /// Version of the policy that decided.
        policy_version: u64,
        /// Was it allowed?
        allowed: bool,
        /// The limit that denied it, or the one with the least left; `null`: no limit applied, so nothing was charged.
        #[serde(default)]
        limit_id: Option<String>,
        /// The policy has no such domain, so no limit applied.
        #[serde(default)]
        unknown_domain: bool,
        /// When it would be allowed, milliseconds from now; `null`: never.
        #[serde(default)]
        retry_after_ms: Option<u64>,
    },
    /// Decisions about one identity.
    Watch(Decisions),
    /// Decisions.
    Sample(Decisions),
    /// It connects again.
    Resync {},
    /// It cannot.
    Failed {
        /// Why, for people.
        why: String,
    },
}

/// One limit of a request, as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PeekedLimit {
    /// Full name.
    pub limit_id: String,
    /// Of tokens.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// Until all is back, milliseconds.
    pub reset_after_ms: u64,
    /// When this limit would let the request pass, milliseconds from now; `null`: never.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    /// What would be left then.
    #[serde(default)]
    pub remaining_after: u64,
    /// It counts, and never denies.
    pub is_shadow: bool,
    /// How nodes share it. Builds before these do not say, and share none.
    #[serde(default)]
    pub sharing: Sharing,
    /// It is what all nodes together have in the store that they share it through.
    #[serde(default)]
    pub is_stored: bool,
    /// By which algorithm it counts, and how it stands, in words. Builds before these have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub says: String,
}

/// Decisions that were seen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Decisions {
    /// Oldest first, a hundred at most, and as many as fit.
    pub decisions: Vec<SeenDecision>,
    /// How many came, also those for which there was no room.
    pub seen: u64,
    /// Of a watch that goes on: the number of the last that was told or counted.
    #[serde(default)]
    pub last: u64,
    /// Since when is watched, by the node's clock, Unix milliseconds. Another than before: the watch that went on had ended, and this
    /// is a new one.
    #[serde(default)]
    pub since_ms: u64,
}

/// A decision that was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SeenDecision {
    /// By the node's clock, Unix milliseconds.
    pub at_ms: u64,
    /// Was it allowed?
    pub allowed: bool,
    /// The limit that decided; `null` where none applied.
    pub limit_id: Option<String>,
    /// What it left.
    pub remaining: Option<u64>,
    /// Whom the request was about.
    pub identities: Vec<SeenIdentity>,
    /// Its path, if it had one; its first 512 characters.
    pub endpoint: Option<String>,
    /// Its method, if it had one.
    #[serde(default)]
    pub method: Option<String>,
    /// Tokens; `null`: it was no request, or the node does not say.
    #[serde(default)]
    pub cost: Option<u64>,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// Either side may be of an older build: what is not said is not known, and what is not known is overlooked.
    #[test]
    fn reports_of_other_builds_are_read() {
        let old = json!({ "name": "n-1", "instance": "a", "sequence": 1, "at_ms": 5, "policy_version": 3 });
        let old: Report = from_value(old).expect("a report");
        assert_eq!((old.keys, old.memory_bytes, old.errors.len(), old.process), (None, None, 0, None));
        let later = json!({ "sequence": 11, "keys": 7, "process": { "started_at_ms": 1, "later": [1] }, "later": {} });
        let later: Report = from_value(later).expect("a report");
        assert_eq!((later.keys, later.process.map(|process| process.started_at_ms)), (Some(7), Some(1)));
    }

    #[test]
    fn what_a_process_says_of_itself_is_bounded() {
        let long = "ä".repeat(1_000);
        let door = DoorAddress { protocol: long.clone(), address: long.clone() };
        let process = Process { commit: Some(long.clone()), doors: vec![door; 100], ..Process::default() }.bounded();
        assert_eq!((process.doors.len(), process.doors[0].address.len()), (DOORS_MAX, TEXT_BYTES_MAX));
        assert_eq!(process.commit.map(|commit| commit.len()), Some(TEXT_BYTES_MAX));
        let errors = bounded_errors(vec![ErrorCount { kind: long, count: 1 }; 100]);
        assert_eq!((errors.len(), errors[0].kind.len()), (ERROR_KINDS_MAX, TEXT_BYTES_MAX));
    }
}
