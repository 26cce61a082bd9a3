//! Reports: what a node counted, which it sends to the admin server once a second.

use serde::{Deserialize, Serialize};

use crate::{
    counts::totals::{DecisionTotals, LimitTotals},
    store::{FaultReport, StoreStats},
};

/// The most limits of a report, and the most owners of limits (tiers and rules together).
pub const PARTS_MAX: usize = 1_000;
/// The most keys of each list of a report.
pub const HITTERS_MAX: usize = 32;
/// The most kinds of errors of a report.
pub const ERROR_KINDS_MAX: usize = 64;
/// The most listeners of a process that a report has.
pub const LISTENERS_MAX: usize = 8;
/// The most bytes of each text that a process reports of itself: a commit, an address, a kind of errors.
pub const TEXT_BYTES_MAX: usize = 128;

/// A report of a node: its counts since the last report, and its state.
///
/// The node sends the same report again until it is acknowledged, so that no count is lost. The admin server counts a
/// repeated report once.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Report {
    /// The name of the node.
    pub name: String,
    /// The instance of the node: another one for each start of its process.
    pub instance: String,
    /// The number of the report: from 1, one more for each.
    pub sequence: u64,
    /// The time at which the report was made, by the node's clock, Unix milliseconds.
    pub at_ms: u64,
    /// The version of the policy in force; 0: none.
    pub policy_version: u64,
    /// The counts of decisions since the last report.
    pub counts: NodeCounts,
    /// The buckets of the latency histogram that have counts, each with its count.
    pub latency: Vec<(u16, u64)>,
    /// The counts of limits of tiers and rules that decided since the last report, 1,000 at most. A request counts once
    /// for each limit.
    pub limits: Vec<ReportedCounts>,
    /// The number of further limits that decided; their requests are in `counts` alone.
    pub limits_left_out: u64,
    /// The counts of tiers and rules that decided since the last report, 1,000 at most. A request counts once for each
    /// of them.
    pub owners: Vec<ReportedCounts>,
    /// The number of further tiers and rules that decided; their requests are in `counts` alone.
    pub owners_left_out: u64,
    /// The fill of the key table, estimated: from 0 to 1.
    pub fill: f64,
    /// New keys that found no slot in the table, since the start.
    pub overflow_charges: u64,
    /// Whether the node decides by its last good policy, because it has not reached the admin server since it started.
    pub from_last_good: bool,
    /// The keys that were denied most, heaviest first: as many as fit.
    pub denied: Vec<HeavyKey>,
    /// The keys with the most requests, heaviest first: as many as fit.
    pub hot: Vec<HeavyKey>,
    /// The keys in the table now, estimated; `null`: the build does not send it.
    pub keys: Option<u64>,
    /// The resident memory of the process, bytes; `null`: the system does not tell.
    pub memory_bytes: Option<u64>,
    /// The state of the store that the node shares limits through; `null`: it has none, or does not send it.
    pub store: Option<StoreReport>,
    /// Errors since the start of the process, by kind.
    pub errors: Vec<ErrorCount>,
    /// The process, in the first report and in every tenth one after it.
    pub process: Option<Process>,
}

/// The state of the store that a node shares limits through. Counts are since the start of the node's process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreReport {
    /// Whether the circuit breaker is open: the store did not answer and is skipped for now, and `on_failure` of each
    /// limit decides.
    pub is_away: bool,
    /// The faults of the store, and what endangers its keys.
    #[serde(default)]
    pub faults: Vec<FaultReport>,
    /// Requests to the store that failed.
    pub failed: u64,
    /// The mean latency of the store since the last report, microseconds; `null`: it was not asked.
    pub latency_us: Option<u64>,
    /// The tokens that are lent to this node.
    pub leased_out: u64,
    /// The most tokens above a synced limit that the store has seen.
    pub overshoot_max: u64,
    /// The most tokens of one key that this node spent between two exchanges. The sum over all nodes bounds the
    /// overshoot.
    pub untold_max: u64,
    /// The time for which the last exchanged charge of a synced limit had waited to be sent, milliseconds.
    pub sync_lag_ms: u64,
}

/// The count of one kind of errors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorCount {
    /// The kind: the reason why a check was not decided as usual, such as `overload`, or the error code of a request
    /// that was refused or failed, such as `bad_request`.
    pub kind: String,
    /// The count since the start of the process.
    pub count: u64,
}

/// A process and its settings.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Process {
    /// The time at which it started, by its clock, Unix milliseconds.
    pub started_at_ms: u64,
    /// The commit of its build, if that is known.
    pub commit: Option<String>,
    /// The addresses of its listeners.
    pub doors: Vec<ListenerAddress>,
    /// Whether its listeners speak TLS.
    pub has_tls: bool,
    /// Whether it sends traces to a collector.
    pub has_traces: bool,
    /// The most keys of its table; `null`: it does not send it.
    pub max_keys: Option<u64>,
    /// The worker threads of each listener; `null`: it has none, or does not send it.
    pub workers: Option<u64>,
    /// The fraction of decisions that the metrics sample: one in so many.
    pub observed_one_in: u32,
    /// The fraction of identities whose requests are recorded: one in so many; `null`: none are.
    pub recorded_one_in: Option<u32>,
}

/// A listener and its address.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "DoorAddress"))]
pub struct ListenerAddress {
    /// The protocol: `http`, `grpc` or `resp`.
    pub protocol: String,
    /// The address, with scheme and port.
    pub address: String,
}

impl StoreReport {
    /// Makes the report of a store from its statistics now and at the last report.
    pub(crate) fn of(now: &StoreStats, before: &StoreStats) -> Self {
        let answers = (now.asked - now.failed).saturating_sub(before.asked - before.failed);
        let took = now.took.saturating_sub(before.took);
        let latency = u32::try_from(answers).ok().and_then(|answers| took.checked_div(answers));
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
    /// Cuts the lists and texts to what the admin server keeps.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.doors.truncate(LISTENERS_MAX);
        let listeners = self.doors.iter_mut().flat_map(|listener| [&mut listener.protocol, &mut listener.address]);
        listeners.chain(&mut self.commit).for_each(cut);
        self
    }
}

/// Cuts a list of errors to what the admin server keeps.
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
    /// Returns the totals of all decisions of the report.
    #[must_use]
    pub fn totals(&self) -> DecisionTotals {
        let NodeCounts { allowed, denied, no_limit, unknown_domain, degraded } = self.counts;
        let mut totals =
            DecisionTotals { allowed, denied, no_limit, unknown_domain, degraded, ..DecisionTotals::default() };
        for &(bucket, count) in &self.latency {
            // A bucket that this build does not have is left out.
            let _ = totals.latency.put(bucket.into(), count);
        }
        totals
    }
}

/// Counts of a node's decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodeCounts {
    /// Decisions that allowed.
    pub allowed: u64,
    /// Decisions that denied.
    pub denied: u64,
    /// Decisions that allowed because no limit applied.
    pub no_limit: u64,
    /// Decisions of `no_limit` whose domain the policy does not have.
    pub unknown_domain: u64,
    /// Decisions that were made without the store of a shared limit, estimated.
    pub degraded: u64,
}

/// Counts of one limit, tier or rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "PartCounts"))]
pub struct ReportedCounts {
    /// The full name of the limit, tier or rule.
    pub id: String,
    /// Requests that it allowed.
    pub allowed: u64,
    /// Requests that it denied.
    pub denied: u64,
    /// Requests that it would have denied, were it not in shadow mode.
    pub shadow_denied: u64,
}

impl ReportedCounts {
    /// Returns the counts without the name.
    #[must_use]
    pub fn totals(&self) -> LimitTotals {
        LimitTotals { allowed: self.allowed, denied: self.denied, shadow_denied: self.shadow_denied }
    }
}

/// One of the heaviest keys of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeavyKey {
    /// The full name of the limit.
    pub limit_id: String,
    /// The identities that are counted together; empty: all requests are.
    pub identities: Vec<SeenIdentity>,
    /// Estimated decisions, halved every ten minutes.
    pub count: u64,
    /// The largest amount by which `count` may be too high.
    pub error: u64,
}

/// An identity in a report or a decision.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeenIdentity {
    /// The kind, such as `user`.
    pub kind: String,
    /// The value, such as `ada`.
    pub value: String,
}

impl SeenIdentity {
    pub(crate) fn new(kind: impl Into<String>, value: &[u8]) -> Self {
        Self { kind: kind.into(), value: String::from_utf8_lossy(value).into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// The other side may be an older or newer build: absent fields get defaults, and unknown fields are ignored.
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
    fn lists_and_texts_of_a_process_are_bounded() {
        let long = "ä".repeat(1_000);
        let listener = ListenerAddress { protocol: long.clone(), address: long.clone() };
        let process =
            Process { commit: Some(long.clone()), doors: vec![listener; 100], ..Process::default() }.bounded();
        assert_eq!((process.doors.len(), process.doors[0].address.len()), (LISTENERS_MAX, TEXT_BYTES_MAX));
        assert_eq!(process.commit.map(|commit| commit.len()), Some(TEXT_BYTES_MAX));
        let errors = bounded_errors(vec![ErrorCount { kind: long, count: 1 }; 100]);
        assert_eq!((errors.len(), errors[0].kind.len()), (ERROR_KINDS_MAX, TEXT_BYTES_MAX));
    }
}
