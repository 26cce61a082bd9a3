//! Reports from a node to the admin server.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    counts::totals::{Part, Whole},
    store::{FaultReport, StoreStats},
};

/// Limits of a report, and tiers and rules together.
pub const PARTS_MAX: usize = 1_000;
/// Keys of each list of a report.
pub const HITTERS_MAX: usize = 32;
/// Kinds of errors of a report.
pub const ERROR_KINDS_MAX: usize = 64;
/// Doors that a process tells of.
pub const DOORS_MAX: usize = 8;
/// Bytes of what a process says of itself, word by word: a commit, an address, a kind of errors.
pub const TEXT_BYTES_MAX: usize = 128;

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
    pub(crate) fn of(now: &StoreStats, before: &StoreStats) -> Self {
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

/// An identity that a node saw.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SeenIdentity {
    /// Such as `user`.
    pub kind: String,
    /// Such as `ada`.
    pub value: String,
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
