//! A node as it is shown.

use schemars::JsonSchema;
use serde::Serialize;
use tidegate::policy::SCHEMA;
use tidegate_fleet::wire::Report;

use super::Node;
use crate::figures::{Figures as OwnFigures, Own, Whole};

/// A node that was ahead or behind by less is not said to be: messages take their time.
const CLOCK_MS: i64 = 50;

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
    /// It is remembered for a day.
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
    /// Decisions without the store that a limit is shared over, per second.
    degraded_per_second: f64,
    /// By how much its clock is ahead of this server's, as far as it is more than messages take.
    clock_ahead_ms: Option<i64>,
}

impl Figures {
    pub(super) fn of_report(report: &Report, interval_ms: u64) -> Self {
        let ahead = report.at_ms.cast_signed() - jiff::Timestamp::now().as_millisecond();
        Self {
            policy_version: report.policy_version,
            from_last_good: report.from_last_good,
            fill: report.fill,
            overflow_charges: report.overflow_charges,
            clock_ahead_ms: (ahead.abs() > CLOCK_MS).then_some(ahead),
            ..Self::of(&report.whole(), interval_ms)
        }
    }

    /// What was counted in so many milliseconds; nothing yet in none.
    fn of(whole: &Whole, interval_ms: u64) -> Self {
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
    pub(super) fn row(&self, target_version: u64) -> NodeRow {
        let presence = match &self.connection {
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
            target_version,
            refused,
            not_kept: self.acknowledged.as_ref().and_then(|acknowledged| acknowledged.not_kept.clone()),
            took_ms: self.acknowledged.as_ref().map(|acknowledged| acknowledged.took_ms),
            figures: self.figures.clone(),
            seen_at: (presence != Presence::Connected).then(|| self.heard_at.to_string()),
        }
    }
}

impl NodeRow {
    /// What is the matter with it, most of all. Who is gone may have been stopped.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let (node, version, target) = (&self.node, self.figures.policy_version, self.target_version);
        let (code, since, message) = match (self.presence, &self.refused) {
            (Presence::Gone, _) => return None,
            (Presence::Silent, _) => {
                ("node_silent", self.seen_at.clone(), format!("the node `{node}` is connected, and does not report"))
            }
            (_, Some(Refused { version, why, since })) => {
                let message = format!("the node `{node}` did not take version {version}: {why}");
                ("node_refused", Some(since.clone()), message)
            }
            (_, None) if version != target => {
                ("node_behind", None, format!("the node `{node}` decides by version {version}, and should by {target}"))
            }
            (_, None) => return None,
        };
        Some(Trouble { code, node: node.clone(), since, message })
    }

    /// That of the process that answers.
    pub(super) fn of_this_one(figures: &OwnFigures, target_version: u64) -> Self {
        let Own { interval_ms, whole } = figures.own();
        Self {
            node: figures.node().to_owned(),
            presence: Presence::Here,
            address: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA,
            target_version,
            refused: None,
            not_kept: None,
            took_ms: None,
            figures: Figures {
                policy_version: figures.engine().version(),
                fill: figures.engine().fill(),
                overflow_charges: figures.engine().overflow_charges(),
                ..Figures::of(&whole, interval_ms)
            },
            seen_at: None,
        }
    }
}

/// Of all decisions, those that were denied.
fn share(whole: &Whole) -> f64 {
    if whole.denied == 0 { 0.0 } else { whole.denied as f64 / whole.decisions() as f64 }
}
