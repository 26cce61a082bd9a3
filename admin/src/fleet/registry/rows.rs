//! A node as it is shown.

use schemars::JsonSchema;
use serde::Serialize;
use tidegate::policy::SCHEMA;
use tidegate_fleet::{
    resident_bytes,
    store::StoreFault,
    wire::{ErrorCount, Process, Report, StoreReport},
};

use crate::{
    domain::{metric_types::DecisionTotals, version::Version},
    fleet::{
        clock_skew::Ahead,
        node_history::{NodeEvent, NodeSecond},
        registry::Node,
    },
    metrics::collector::{Figures as OwnFigures, Own},
};

/// Memory is told in such steps, bytes: less changes all the time.
const MEMORY_STEP: u64 = 1 << 20;

/// Is it there?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Presence {
    /// The process that answers this.
    Here,
    /// Its stream is open.
    Connected,
    /// Its stream is open, and it has not reported for five seconds.
    Silent,
    /// It said that it stops. It is remembered for a day.
    Stopped,
    /// Its connection ended without a word. It is remembered for a day.
    Gone,
}

/// A node, as it is now.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub(crate) struct NodeRow {
    pub(crate) node: String,
    pub(crate) presence: Presence,
    /// Of its connection; empty for this process.
    address: String,
    /// Of its build.
    version: String,
    /// The newest schema of policies that it knows.
    schema: u32,
    /// The version that it should have.
    target_version: u64,
    /// Since when it has not decided by the version that it should have, whichever that was, without a break; `null`: it does.
    #[schemars(extend("format" = "date-time"))]
    behind_since: Option<String>,
    /// The policy that it was sent last, if it did not take it, and why.
    refused: Option<Refused>,
    /// Why its policy is not kept for its next start.
    not_kept: Option<String>,
    /// How long it took to put its policy in force, from the last byte of it, milliseconds.
    took_ms: Option<u64>,
    #[serde(flatten)]
    figures: Figures,
    /// When it was heard last, if it is not connected.
    #[schemars(extend("format" = "date-time"))]
    seen_at: Option<String>,
}

/// A node, with what is of use of one alone.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NodeDetails {
    #[serde(flatten)]
    pub(super) row: NodeRow,
    /// What process it is; `null`: it has not said so, as builds before this one do not.
    pub(super) process: Option<Process>,
    /// Errors since the start of its process, by kind: 64 at most.
    pub(super) errors: Vec<ErrorCount>,
    /// How far synced limits were above what they allow, of all nodes that share through its store; `null`: it has none.
    pub(super) overshoot: Option<Overshoot>,
    /// The last 20 things that happened to it since this server started, the newest first.
    pub(super) events: Vec<NodeEvent>,
}

/// How far synced limits were above what they allow, beside by how far they can be; since the start of each process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Overshoot {
    /// The most tokens above a limit that the store had, as nodes saw it.
    measured: u64,
    /// The most tokens of one key that each node spent between two exchanges, all nodes together.
    bound: u64,
    /// How many nodes those are: the ones that are there, and tell.
    nodes: u64,
}

impl Overshoot {
    pub(super) fn of(reports: impl Iterator<Item = StoreReport>) -> Self {
        let none = Self { measured: 0, bound: 0, nodes: 0 };
        reports.fold(none, |sum, report| Self {
            measured: sum.measured.max(report.overshoot_max),
            bound: sum.bound.saturating_add(report.untold_max),
            nodes: sum.nodes + 1,
        })
    }
}

/// A policy that a node did not take.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(rename = "RefusedPolicy")]
struct Refused {
    version: u64,
    why: String,
    /// When this server heard of it.
    #[schemars(extend("format" = "date-time"))]
    since: String,
}

/// What is the matter with a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Trouble {
    pub(crate) code: &'static str,
    pub(crate) node: String,
    /// RFC 3339, if that is known.
    pub(crate) since: Option<String>,
    /// For people.
    pub(crate) message: String,
}

/// What a node told last.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "NodeFigures")]
pub(super) struct Figures {
    /// In force there; 0: none.
    pub(super) policy_version: u64,
    /// It decides by what it had on its disk.
    from_last_good: bool,
    decisions_per_second: f64,
    /// Of those.
    denied_share: f64,
    /// How many those were.
    decisions: u64,
    p99_us: Option<u64>,
    /// Decisions that were measured: one in 16.
    measured: u64,
    /// How full its table is, estimated: from 0 to 1.
    fill: f64,
    overflow_charges: u64,
    /// The store that it shares limits through; `null`: it has none, or does not say.
    pub(super) store: Option<StoreReport>,
    /// Decisions without the store that a limit is shared over, per second.
    degraded_per_second: f64,
    /// Keys that are counted there now, estimated; `null`: it does not say.
    keys: Option<u64>,
    /// Memory that its process has from the machine, bytes, in whole MiB; `null`: it does not say.
    memory_bytes: Option<u64>,
    /// By how much its clock is ahead of this server's, of the last ten reports the one that came soonest; `null`: this server,
    /// or not known.
    clock_ahead_ms: Option<i64>,
    /// Its clock is ahead or behind by more than 50 ms, more than messages take.
    is_clock_apart: bool,
}

impl Figures {
    pub(super) fn of_report(report: &Report, interval_ms: u64, ahead: &Ahead) -> Self {
        Self {
            policy_version: report.policy_version,
            from_last_good: report.from_last_good,
            fill: report.fill,
            overflow_charges: report.overflow_charges,
            keys: report.keys,
            store: report.store.clone(),
            memory_bytes: report.memory_bytes.map(whole_steps),
            clock_ahead_ms: ahead.ms(),
            is_clock_apart: ahead.is_apart(),
            ..Self::of(&report.totals(), interval_ms)
        }
    }

    /// What was counted in so many milliseconds; nothing yet in none.
    fn of(whole: &DecisionTotals, interval_ms: u64) -> Self {
        let per_second = |count: u64| if interval_ms == 0 { 0.0 } else { count as f64 * 1_000.0 / interval_ms as f64 };
        Self {
            decisions_per_second: per_second(whole.decisions()),
            denied_share: share(whole),
            decisions: whole.decisions(),
            p99_us: whole.latency.at_most_us(990),
            measured: whole.latency.samples(),
            degraded_per_second: per_second(whole.degraded),
            ..Self::default()
        }
    }
}

impl Node {
    /// That it ended without a word, if it did.
    pub(super) fn is_gone(&self) -> Option<Trouble> {
        let (node, since) = (self.hello.name.clone(), self.heard_at.to_string());
        let message = format!("Node {node} is gone without a word, and was heard last at {since}");
        self.is_missed().then_some(Trouble { code: "node_gone", node, since: Some(since), message })
    }

    /// Since when it has been behind without a break, as far as this server knows.
    fn behind_since(&self, target: &Version) -> Option<jiff::Timestamp> {
        self.past.behind_since(self.figures.policy_version, self.connected_at().map(|since| (target, since)))
    }

    pub(super) fn row(&self, target: &Version) -> NodeRow {
        let presence = match &self.connection {
            None if self.has_stopped => Presence::Stopped,
            None => Presence::Gone,
            Some(_) if self.is_there() => Presence::Connected,
            Some(_) => Presence::Silent,
        };
        let refused = self.acknowledged.as_ref().and_then(|acknowledged| {
            let why = acknowledged.refused.clone()?;
            Some(Refused { version: acknowledged.version, why, since: self.acknowledged_at.to_string() })
        });
        NodeRow {
            node: self.hello.name.clone(),
            presence,
            address: self.address.clone(),
            version: self.hello.build.clone(),
            schema: self.hello.schema,
            target_version: target.version,
            behind_since: self.behind_since(target).map(|since| since.to_string()),
            refused,
            not_kept: self.acknowledged.as_ref().and_then(|acknowledged| acknowledged.not_kept.clone()),
            took_ms: self.acknowledged.as_ref().map(|acknowledged| acknowledged.took_ms),
            figures: self.figures.clone(),
            seen_at: (presence != Presence::Connected).then(|| self.heard_at.to_string()),
        }
    }
}

impl NodeRow {
    /// What is the matter with it while it is connected.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        let (node, version, target) = (&self.node, self.figures.policy_version, self.target_version);
        let trouble = |code, since, message| Trouble { code, node: node.clone(), since, message };
        let mut troubles = Vec::new();
        match (self.presence, &self.refused) {
            (Presence::Stopped | Presence::Gone, _) => return troubles,
            (Presence::Silent, _) => {
                let message = format!("Node {node} is connected and does not report");
                troubles.push(trouble("node_silent", self.seen_at.clone(), message));
                return troubles;
            }
            (_, Some(Refused { version, why, since })) => {
                let message = format!("Node {node} did not take version {version}: {why}");
                troubles.push(trouble("node_refused", Some(since.clone()), message));
            }
            (_, None) if version != target => {
                let message = format!("Node {node} decides by version {version} and should decide by version {target}");
                troubles.push(trouble("node_behind", None, message));
            }
            (_, None) => {}
        }
        if let Some(store) = &self.figures.store {
            let refusals = store.faults.iter().filter(|fault| !fault.code.is_warning());
            let is_silent = refusals.clone().all(|fault| fault.code.is_silence());
            let faults = refusals.fold(String::new(), |all, fault| format!("{all}: {fault}"));
            let of_store = format!("The store that node {node} shares limits through");
            if store.is_away {
                let state = if is_silent { "does not answer it" } else { "is left alone by it" };
                troubles.push(trouble("node_store_away", None, format!("{of_store} {state}{faults}")));
            } else if !faults.is_empty() {
                troubles.push(trouble("node_store_refuses", None, format!("{of_store}{faults}")));
            }
            for fault in &store.faults {
                let code = match fault.code {
                    StoreFault::Evicts => "node_store_evicts",
                    StoreFault::KeysLost => "node_store_lost_keys",
                    _ => continue,
                };
                troubles.push(trouble(code, None, format!("{of_store}: {fault}")));
            }
        }
        if let (true, Some(ms)) = (self.figures.is_clock_apart, self.figures.clock_ahead_ms) {
            let way = if ms > 0 { "ahead of" } else { "behind" };
            let message = format!("The clock of node {node} is {} ms {way} this server's", ms.unsigned_abs());
            troubles.push(trouble("node_clock_apart", None, message));
        }
        troubles
    }

    pub(super) fn is_here(&self) -> bool {
        self.presence == Presence::Here
    }

    pub(super) fn is_silent(&self) -> bool {
        self.presence == Presence::Silent
    }

    /// Does it tell how it is?
    pub(super) fn is_there(&self) -> bool {
        matches!(self.presence, Presence::Here | Presence::Connected)
    }

    /// As it is now.
    pub(super) fn second(&self, now: jiff::Timestamp) -> NodeSecond {
        let Figures { decisions_per_second, denied_share, p99_us, .. } = self.figures;
        let behind_since = self.behind_since.as_ref().and_then(|since| since.parse::<jiff::Timestamp>().ok());
        let lag_s = behind_since.and_then(|since| u64::try_from(now.duration_since(since).as_secs()).ok());
        NodeSecond {
            t: now.as_millisecond(),
            allowed: decisions_per_second * (1.0 - denied_share),
            denied: decisions_per_second * denied_share,
            p99_us,
            lag_s: lag_s.unwrap_or(0),
        }
    }

    /// That of the process that answers.
    pub(super) fn of_this_one(
        figures: &OwnFigures,
        store: Option<StoreReport>,
        target: &Version,
        behind_since: Option<jiff::Timestamp>,
    ) -> Self {
        let Own { interval_ms, whole } = figures.own();
        Self {
            node: figures.node().to_owned(),
            presence: Presence::Here,
            address: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA,
            target_version: target.version,
            behind_since: behind_since.map(|since| since.to_string()),
            refused: None,
            not_kept: None,
            took_ms: None,
            figures: Figures {
                policy_version: figures.engine().version(),
                fill: figures.engine().fill(),
                overflow_charges: figures.engine().overflow_charges(),
                keys: Some(figures.engine().live_keys()),
                store,
                memory_bytes: resident_bytes().map(whole_steps),
                ..Figures::of(&whole, interval_ms)
            },
            seen_at: None,
        }
    }
}

fn whole_steps(bytes: u64) -> u64 {
    bytes / MEMORY_STEP * MEMORY_STEP
}

/// Of all decisions, those that were denied.
fn share(whole: &DecisionTotals) -> f64 {
    if whole.denied == 0 { 0.0 } else { whole.denied as f64 / whole.decisions() as f64 }
}

#[cfg(test)]
impl NodeRow {
    /// Of a node that has made so many decisions.
    pub(super) fn for_test(name: &str, decisions: u64) -> Self {
        Self {
            node: name.to_owned(),
            presence: Presence::Connected,
            address: "10.0.0.11".to_owned(),
            version: "1.4.2".to_owned(),
            schema: SCHEMA,
            target_version: 7,
            behind_since: None,
            refused: None,
            not_kept: None,
            took_ms: Some(7),
            figures: Figures { policy_version: 7, decisions, ..Figures::default() },
            seen_at: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_a_node_says_how_long_it_lags() {
        let mut row = NodeRow::for_test("n-1", 10);
        row.figures.decisions_per_second = 10.0;
        row.figures.denied_share = 0.25;
        let now: jiff::Timestamp = "2026-03-01T10:00:40Z".parse().expect("an instant");
        let second = row.second(now);
        assert_eq!((second.allowed, second.denied, second.lag_s), (7.5, 2.5, 0));
        row.behind_since = Some("2026-03-01T10:00:00Z".to_owned());
        assert_eq!(row.second(now).lag_s, 40);
    }

    #[test]
    fn troubles_are_plain_sentences_about_the_node() {
        let mut row = NodeRow::for_test("n-1", 0);
        let messages = |row: &NodeRow| row.troubles().into_iter().map(|trouble| trouble.message).collect::<Vec<_>>();
        assert_eq!(messages(&row), Vec::<String>::new());
        row.target_version = 8;
        row.figures.is_clock_apart = true;
        row.figures.clock_ahead_ms = Some(-61);
        assert_eq!(
            messages(&row),
            [
                "Node n-1 decides by version 7 and should decide by version 8",
                "The clock of node n-1 is 61 ms behind this server's"
            ]
        );
        row.figures.store = Some(StoreReport { is_away: true, ..StoreReport::default() });
        assert_eq!(messages(&row)[1], "The store that node n-1 shares limits through does not answer it");
        let fault = |code: &str| tidegate_fleet::store::FaultReport {
            code: serde_json::from_value(code.into()).expect("a code"),
            message: "it is so; do this".to_owned(),
        };
        let faults = ["read_only", "evicts", "keys_lost", "unwatched"].map(fault).to_vec();
        row.figures.store = Some(StoreReport { faults, ..StoreReport::default() });
        let of_store = "The store that node n-1 shares limits through";
        let expected = [
            ("node_store_refuses", format!("{of_store}: read_only: it is so; do this")),
            ("node_store_evicts", format!("{of_store}: evicts: it is so; do this")),
            ("node_store_lost_keys", format!("{of_store}: keys_lost: it is so; do this")),
        ];
        let troubles = row.troubles().into_iter().filter(|trouble| trouble.code.starts_with("node_store"));
        let troubles: Vec<_> = troubles.map(|trouble| (trouble.code, trouble.message)).collect();
        assert_eq!(troubles, expected);
        row.presence = Presence::Silent;
        assert_eq!(messages(&row), ["Node n-1 is connected and does not report"]);
        row.presence = Presence::Gone;
        assert_eq!(messages(&row), Vec::<String>::new());
    }
}
