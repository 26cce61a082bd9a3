//! What a comparison finds: medians with their spread, ratios, and whether a goal is met.

use serde::Serialize;

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

/// One peer of one row, as the JSON has it. benches/README.md says what the fields mean.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Record {
    /// What was done.
    pub work: &'static str,
    /// By so many threads at once.
    pub threads: usize,
    /// Over so many keys.
    pub keys: u64,
    /// Ours: nanoseconds that a thread needed for each check while all ran, the median of the rounds.
    pub ours_ns: f64,
    /// Beside what.
    pub peer: &'static str,
    /// The peer's, in the same unit.
    pub peer_ns: f64,
    /// `peer_ns / ours_ns`: above 1 ours is faster.
    pub ratio: f64,
    /// What must be reached.
    pub target: Option<String>,
    /// Whether it is.
    pub met: Option<bool>,
}

impl Record {
    /// With the ratio, and whether the goal is met.
    #[must_use]
    pub fn new(
        (work, threads, keys): (&'static str, usize, u64),
        ours: f64,
        (peer, peer_ns): (&'static str, f64),
        goal: Option<Goal>,
    ) -> Self {
        Self {
            work,
            threads,
            keys,
            ours_ns: ours,
            peer,
            peer_ns,
            ratio: peer_ns / ours,
            target: goal.map(Goal::text),
            met: goal.map(|goal| goal.is_met(ours, peer_ns)),
        }
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
}
