//! The result of a row beside one other side, as the JSON of `compare` has it, and the goal that it is judged by.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};

/// A goal that ours must reach beside another side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// `peer / ours` is at least this.
    Ratio(f64),
    /// `ours - peer` is at most this.
    Above(f64),
}

impl Goal {
    /// Returns the goal as tables and JSON show it.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Ratio(least) => format!(">= {least}"),
            Self::Above(most) => format!("ours - peer <= {most}"),
        }
    }

    fn is_met(self, ours: f64, peer: f64) -> bool {
        match self {
            Self::Ratio(least) => peer / ours >= least,
            Self::Above(most) => ours - peer <= most,
        }
    }
}

/// The figures of ours and of one other side of a row. benches/README.md describes the fields of the JSON.
#[derive(Clone, PartialEq, Deserialize, Serialize, Debug)]
pub struct RowRecord {
    /// The name of the row.
    pub work: Cow<'static, str>,
    /// The number of threads that check at once.
    pub threads: usize,
    /// The number of keys.
    pub keys: u64,
    /// The median time of our check in one thread while all threads run, in nanoseconds.
    pub ours_ns: f64,
    /// The name of the other side.
    pub peer: Cow<'static, str>,
    /// The figure of the other side, in the same unit.
    pub peer_ns: f64,
    /// `peer_ns / ours_ns`: above 1 ours is faster. It is null in JSON if `ours_ns` is 0.
    #[serde(deserialize_with = "ratio_or_infinity")]
    pub ratio: f64,
    /// The goal beside this side.
    pub target: Option<String>,
    /// Whether that goal is met.
    pub met: Option<bool>,
    /// Whether the other side is a limiter of another project.
    pub is_peer: bool,
    /// Whether the other side is the best peer of its row: the one with the least median.
    pub is_best: bool,
    /// The goal beside the best peer, whichever it is; `None` for the other peers.
    pub best_target: Option<String>,
    /// Whether the goal beside the best peer is met.
    pub best_met: Option<bool>,
    /// Our million checks a second, all threads together; `None` if the row does not measure the time of a check.
    pub ours_m_per_second: Option<f64>,
}

impl RowRecord {
    /// Returns a record with its ratio and the verdict on its goal; `is_peer` is false.
    #[must_use]
    pub fn new(
        (work, threads, keys): (&'static str, usize, u64),
        ours: f64,
        (peer, peer_ns): (&'static str, f64),
        goal: Option<Goal>,
    ) -> Self {
        Self {
            work: work.into(),
            threads,
            keys,
            ours_ns: ours,
            peer: peer.into(),
            peer_ns,
            ratio: peer_ns / ours,
            target: goal.map(Goal::text),
            met: goal.map(|goal| goal.is_met(ours, peer_ns)),
            is_peer: false,
            is_best: false,
            best_target: None,
            best_met: None,
            ours_m_per_second: None,
        }
    }

    /// Returns the goals of this record: the side that each is judged beside, its text, and whether it is met.
    pub fn goals(&self) -> impl Iterator<Item = (String, &str, bool)> {
        let best =
            self.best_target.as_deref().zip(self.best_met).map(|goal| (format!("best peer, {}", self.peer), goal));
        let named = self.target.as_deref().zip(self.met).map(|goal| (self.peer.to_string(), goal));
        named.into_iter().chain(best).map(|(beside, (target, met))| (beside, target, met))
    }
}

fn ratio_or_infinity<'de, D: Deserializer<'de>>(ratio: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(ratio)?.unwrap_or(f64::INFINITY))
}

/// Marks the best peer among the records of a row: the one with the least median. `goal` is the ratio that ours must reach
/// beside it.
pub fn mark_best(records: &mut [RowRecord], goal: Option<f64>) {
    let peers = records.iter_mut().filter(|record| record.is_peer);
    if let Some(best) = peers.min_by(|a, b| a.peer_ns.total_cmp(&b.peer_ns)) {
        let goal = goal.map(Goal::Ratio);
        best.is_best = true;
        best.best_target = goal.map(Goal::text);
        best.best_met = goal.map(|goal| goal.is_met(best.ours_ns, best.peer_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ours: f64, peer: f64, goal: Option<Goal>) -> RowRecord {
        RowRecord::new(("work", 1, 1), ours, ("peer", peer), goal)
    }

    #[test]
    fn a_ratio_goal_is_met_at_its_value_and_above() {
        let twice = record(50.0, 100.0, Some(Goal::Ratio(2.0)));
        assert_eq!((twice.ratio, twice.target.as_deref(), twice.met), (2.0, Some(">= 2"), Some(true)));
        assert_eq!(record(50.1, 100.0, Some(Goal::Ratio(2.0))).met, Some(false));
        // At most 1.25 times a floor of 80.
        assert_eq!(record(100.0, 80.0, Some(Goal::Ratio(0.8))).met, Some(true));
        assert_eq!(record(101.0, 80.0, Some(Goal::Ratio(0.8))).met, Some(false));
    }

    #[test]
    fn a_difference_goal_is_met_at_its_value_and_below() {
        let above = record(3_000.0, 1_000.0, Some(Goal::Above(2_000.0)));
        assert_eq!((above.target.as_deref(), above.met), (Some("ours - peer <= 2000"), Some(true)));
        assert_eq!(record(3_001.0, 1_000.0, Some(Goal::Above(2_000.0))).met, Some(false));
        assert_eq!(record(500.0, 1_000.0, Some(Goal::Above(2_000.0))).met, Some(true));
    }

    #[test]
    fn a_record_without_a_goal_has_no_verdict() {
        let plain = record(50.0, 100.0, None);
        assert_eq!((plain.target, plain.met), (None, None));
    }

    #[test]
    fn the_best_peer_is_the_fastest_and_may_have_two_goals() {
        let of = |peer, ns, is_peer| RowRecord { is_peer, ..RowRecord::new(("work", 1, 1), 50.0, (peer, ns), None) };
        let named = RowRecord { is_peer: true, ..record(50.0, 80.0, Some(Goal::Ratio(1.5))) };
        let mut records = [of("floor", 20.0, false), of("slow", 90.0, true), named];
        mark_best(&mut records, Some(1.7));
        let best: Vec<_> = records.iter().map(|record| record.is_best).collect();
        assert_eq!(best, [false, false, true], "the floor is no peer");
        let goals: Vec<_> = records[2].goals().collect();
        let expected = [("peer".to_owned(), ">= 1.5", true), ("best peer, peer".to_owned(), ">= 1.7", false)];
        assert_eq!(goals, expected);
        assert_eq!(records[1].goals().count(), 0);
    }

    #[test]
    fn a_row_without_peers_has_no_best_peer() {
        let mut records = [record(50.0, 80.0, None)];
        mark_best(&mut records, Some(2.0));
        assert!(!records[0].is_best && records[0].best_target.is_none());
    }

    #[test]
    fn a_record_survives_json_even_if_ours_is_0() {
        for record in [record(0.0, 0.2, Some(Goal::Above(0.0))), record(50.0, 100.0, None)] {
            let text = serde_json::to_string(&record).expect("JSON");
            assert_eq!(serde_json::from_str::<RowRecord>(&text).expect("a record"), record);
        }
    }
}
