//! What a comparison finds: medians with their spread, ratios, and whether a goal is met.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};

/// The median of some values, with the least and the most of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of these values; NaN of none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        Self { least: at(0), median: f64::midpoint(at(last / 2), at(last.div_ceil(2))), most: at(last) }
    }
}

/// What ours must reach beside a peer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// peer / ours is at least this.
    Ratio(f64),
    /// ours - peer is at most this.
    Above(f64),
}

impl Goal {
    /// As tables and JSON show it.
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

/// One peer of one row, as the JSON has it. benches/README.md describes the fields.
#[derive(Clone, PartialEq, Deserialize, Serialize, Debug)]
pub struct Record {
    /// The row.
    pub work: Cow<'static, str>,
    /// How many threads ask at once.
    pub threads: usize,
    /// How many keys there are.
    pub keys: u64,
    /// Nanoseconds that a thread of ours needed for each check while all ran, the median of the rounds.
    pub ours_ns: f64,
    /// The other side.
    pub peer: Cow<'static, str>,
    /// The other side's, in the same unit.
    pub peer_ns: f64,
    /// `peer_ns / ours_ns`: above 1 ours is faster. JSON has null where `ours_ns` is 0.
    #[serde(deserialize_with = "ratio_or_infinity")]
    pub ratio: f64,
    /// The goal beside this side.
    pub target: Option<String>,
    /// Whether that is met.
    pub met: Option<bool>,
    /// Whether the other side is a limiter of another project.
    pub is_peer: bool,
    /// Whether it is the best of these in its row: the one with the least median.
    pub is_best: bool,
    /// The goal beside the best peer, whichever it is. `None` for all others.
    pub best_target: Option<String>,
    /// Whether that is met.
    pub best_met: Option<bool>,
    /// Million checks a second of ours, all threads together. `None` where something else is measured.
    pub ours_m_per_second: Option<f64>,
}

impl Record {
    /// A record with its ratio, and with whether its goal is met. It is of no peer.
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

    /// Returns the goals of this record: beside what each is, its text, and whether it is met.
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

/// Marks the peer with the least median of a row's records, which must take `goal` times as long as ours.
pub fn mark_best(records: &mut [Record], goal: Option<f64>) {
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

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { least: 1.0, median: 2.0, most: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 10.0]), Spread { least: 1.0, median: 3.0, most: 10.0 });
        assert_eq!(Spread::of([5.0]), Spread { least: 5.0, median: 5.0, most: 5.0 });
        assert!(Spread::of([]).median.is_nan());
    }

    fn record(ours: f64, peer: f64, goal: Option<Goal>) -> Record {
        Record::new(("work", 1, 1), ours, ("peer", peer), goal)
    }

    #[test]
    fn a_ratio_says_how_often_ours_fits_into_the_peer_and_is_met_from_its_goal_on() {
        let twice = record(50.0, 100.0, Some(Goal::Ratio(2.0)));
        assert_eq!((twice.ratio, twice.target.as_deref(), twice.met), (2.0, Some(">= 2"), Some(true)));
        assert_eq!(record(50.1, 100.0, Some(Goal::Ratio(2.0))).met, Some(false));
        // At most 1.25 times a floor of 80.
        assert_eq!(record(100.0, 80.0, Some(Goal::Ratio(0.8))).met, Some(true));
        assert_eq!(record(101.0, 80.0, Some(Goal::Ratio(0.8))).met, Some(false));
    }

    #[test]
    fn a_difference_is_met_up_to_its_goal() {
        let above = record(3_000.0, 1_000.0, Some(Goal::Above(2_000.0)));
        assert_eq!((above.target.as_deref(), above.met), (Some("ours - peer <= 2000"), Some(true)));
        assert_eq!(record(3_001.0, 1_000.0, Some(Goal::Above(2_000.0))).met, Some(false));
        assert_eq!(record(500.0, 1_000.0, Some(Goal::Above(2_000.0))).met, Some(true));
    }

    #[test]
    fn without_a_goal_nothing_is_met_or_missed() {
        let plain = record(50.0, 100.0, None);
        assert_eq!((plain.target, plain.met), (None, None));
    }
    #[test]
    fn the_best_peer_is_the_fastest_and_is_judged_besides_its_own_goal() {
        let of = |peer, ns, is_peer| Record { is_peer, ..Record::new(("work", 1, 1), 50.0, (peer, ns), None) };
        let named = Record { is_peer: true, ..record(50.0, 80.0, Some(Goal::Ratio(1.5))) };
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
    fn a_row_without_peers_has_no_best_one() {
        let mut records = [record(50.0, 80.0, None)];
        mark_best(&mut records, Some(2.0));
        assert!(!records[0].is_best && records[0].best_target.is_none());
    }
    #[test]
    fn a_record_is_read_as_it_was_written_also_where_ours_is_nothing() {
        for record in [record(0.0, 0.2, Some(Goal::Above(0.0))), record(50.0, 100.0, None)] {
            let text = serde_json::to_string(&record).expect("JSON");
            assert_eq!(serde_json::from_str::<Record>(&text).expect("a record"), record);
        }
    }
}
