//! What a node did lately, in memory: its seconds of a quarter of an hour, and its last events.

use std::collections::VecDeque;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tidegate_fleet::wire::Acknowledgement;

use crate::domain::version::Version;

/// How long seconds are kept, in seconds.
const KEPT_S: i64 = 900;
/// Seconds of all nodes together, of 24 bytes each: a thousand nodes have all of theirs, more have less each.
const SECONDS_MAX: usize = 900_000;
/// No node has fewer.
const SECONDS_MIN: usize = 60;
/// Events of a node.
const EVENTS_MAX: usize = 20;

/// Of one node.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Oldest first.
    seconds: VecDeque<Second>,
    /// Oldest first.
    events: VecDeque<NodeEvent>,
    /// Since when it was not seen to have what it should have.
    behind: Option<Timestamp>,
}

/// A second as it is kept.
#[derive(Clone, Copy, Debug)]
struct Second {
    at: i64,
    allowed: f32,
    denied: f32,
    p99_us: Option<u32>,
    lag_s: u32,
}

/// A second of a node.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
pub(crate) struct NodeSecond {
    /// Unix milliseconds when it began.
    pub(crate) t: i64,
    /// Decisions per second.
    pub(crate) allowed: f64,
    pub(crate) denied: f64,
    /// `null`: none was measured.
    pub(crate) p99_us: Option<u64>,
    /// For how long the node had not decided by the version that it should have, whole seconds; 0: it did.
    pub(crate) lag_s: u64,
}

/// Something that happened to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct NodeEvent {
    /// When this server heard of it.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) at: String,
    /// Stable: `connected`, `silent`, `heard`, `disconnected`, `stopped`, `applied`, `refused` or `not_kept`.
    pub(crate) code: &'static str,
    /// For people: what happened.
    pub(crate) message: String,
}

impl Past {
    /// Adds a second, and forgets those that are too old, or too many where so many nodes are known.
    pub(super) fn add(&mut self, second: NodeSecond, nodes: usize) {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let NodeSecond { t, allowed, denied, p99_us, lag_s } = second;
        self.seconds.push_back(Second {
            at: t.div_euclid(1_000),
            allowed: allowed as f32,
            denied: denied as f32,
            p99_us: p99_us.map(small),
            lag_s: small(lag_s),
        });
        self.forget(t.div_euclid(1_000), nodes);
    }

    fn forget(&mut self, now: i64, nodes: usize) {
        let most = (SECONDS_MAX / nodes.max(1)).clamp(SECONDS_MIN, KEPT_S as usize);
        while self.seconds.len() > most || self.seconds.front().is_some_and(|second| second.at <= now - KEPT_S) {
            self.seconds.pop_front();
        }
    }

    /// Seconds that are kept, oldest first. There is none for a time at which the node was not heard.
    pub(super) fn seconds(&self) -> Vec<NodeSecond> {
        let shown = |second: &Second| NodeSecond {
            t: second.at * 1_000,
            allowed: second.allowed.into(),
            denied: second.denied.into(),
            p99_us: second.p99_us.map(u64::from),
            lag_s: second.lag_s.into(),
        };
        self.seconds.iter().map(shown).collect()
    }

    /// Since when it has been behind without a break, deciding by the version `has`: from the publish of the first version that it
    /// lacked, or from when it connected, if that was later. One that is not connected is not behind, it is gone.
    pub(super) fn behind_since(&self, has: u64, target: Option<(&Version, Timestamp)>) -> Option<Timestamp> {
        let (target, connected) = target?;
        let since = || target.published_at.parse::<Timestamp>().unwrap_or_default().max(connected);
        (has != target.version).then(|| self.behind.unwrap_or_else(since))
    }

    /// The same, looked at and remembered.
    pub(super) fn compares(&mut self, has: u64, target: Option<(&Version, Timestamp)>) {
        self.behind = self.behind_since(has, target);
    }

    /// Something happened just now.
    pub(super) fn says(&mut self, code: &'static str, message: impl Into<String>) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        let at = Timestamp::now().to_string();
        self.events.push_back(NodeEvent { at, code, message: message.into() });
    }

    /// What became of a policy.
    pub(super) fn acknowledged(&mut self, acknowledgement: &Acknowledgement) {
        let Acknowledgement { version, took_ms, refused, not_kept, .. } = acknowledgement;
        self.decides_by(*version, Some(*took_ms), refused.as_deref());
        if let Some(why) = not_kept {
            self.says("not_kept", format!("Version {version} is not kept for the next start: {why}"));
        }
    }

    pub(super) fn decides_by(&mut self, version: u64, took_ms: Option<u64>, refused: Option<&str>) {
        match (refused, took_ms) {
            (Some(why), _) => self.says("refused", format!("Version {version} was not taken: {why}")),
            (None, Some(ms)) => self.says("applied", format!("Version {version} was in force after {ms} ms")),
            (None, None) => self.says("applied", format!("Version {version} is in force")),
        }
    }

    /// The last events, the newest first.
    pub(super) fn events(&self) -> Vec<NodeEvent> {
        self.events.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at: i64) -> NodeSecond {
        NodeSecond { t: at * 1_000 + 400, allowed: 1.5, denied: 0.5, p99_us: Some(38), lag_s: 0 }
    }

    #[test]
    fn a_quarter_of_an_hour_is_kept_with_its_gaps_and_less_of_many_nodes() {
        let mut past = Past::default();
        (0..2_000).for_each(|at| past.add(second(at), 3));
        let kept = past.seconds();
        assert_eq!((kept.len(), kept[0].t, kept[899].t), (900, 1_100_000, 1_999_000));
        assert_eq!((kept[0].allowed, kept[0].denied, kept[0].p99_us), (1.5, 0.5, Some(38)));
        past.add(second(2_500), 3);
        assert_eq!(past.seconds().len(), 400, "while it was not heard there is nothing");
        (2_501..3_400).for_each(|at| past.add(second(at), 10_000));
        assert_eq!(past.seconds().len(), 90);
        past.add(second(3_400), 1_000_000);
        assert_eq!(past.seconds().len(), SECONDS_MIN);
    }

    #[test]
    fn who_stays_behind_is_behind_since_the_first_version_that_it_lacked() {
        let at = |text: &str| text.parse::<Timestamp>().expect("an instant");
        let version = |version: u64, published_at: &str| Version {
            version,
            sha256: String::new(),
            author: String::new(),
            message: String::new(),
            published_at: published_at.to_owned(),
            carry: crate::domain::version::Carries::default(),
            follows: version - 1,
        };
        let (second, third) = (version(2, "2026-03-01T10:00:00Z"), version(3, "2026-03-01T10:05:00Z"));
        let connected = Some(at("2026-03-01T09:00:00Z"));
        let mut past = Past::default();
        let mut look = |has, target| {
            past.compares(has, connected.map(|since| (target, since)));
            past.behind_since(has, connected.map(|since| (target, since)))
        };
        assert_eq!(look(1, &second), Some(at("2026-03-01T10:00:00Z")));
        // Another publish, and the one before it comes to be in force: it lacked one all the time.
        assert_eq!(look(1, &third), Some(at("2026-03-01T10:00:00Z")));
        assert_eq!(look(2, &third), Some(at("2026-03-01T10:00:00Z")));
        assert_eq!(look(3, &third), None);
        assert_eq!(look(2, &third), Some(at("2026-03-01T10:05:00Z")));
        let late = at("2026-03-01T12:00:00Z");
        let since = Past::default().behind_since(0, Some((&third, late)));
        assert_eq!(since, Some(late), "before it connected nobody knows");
        assert_eq!(Past::default().behind_since(0, None), None, "who is gone is not behind");
    }

    #[test]
    fn the_last_events_are_kept() {
        let mut past = Past::default();
        (1..=50).for_each(|version| past.says("applied", format!("version {version}")));
        let events = past.events();
        assert_eq!((events.len(), &*events[0].message, &*events[19].message), (20, "version 50", "version 31"));
    }
}
