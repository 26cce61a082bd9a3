//! A row of the comparison: several limiters on the same work, measured in turns within one run.

use std::{iter, time::Duration};

use crate::{
    contender::Side,
    record::{Goal, RowRecord, mark_best},
    spread::Spread,
    threads::CHUNK,
};

/// The name of the goal of [`ComparisonRow::at_least_millions`]. Its figure is in nanoseconds per check of a thread, like all others.
pub const THROUGHPUT_GOAL: &str = "goal: million checks a second";

/// One row of the comparison: the same work for each side.
#[derive(Clone, Debug)]
pub struct ComparisonRow<'a> {
    /// The name of the row: the work that is done.
    pub work: &'static str,
    /// The number of threads that check at once.
    pub threads: usize,
    /// The number of keys.
    pub keys: u64,
    /// Our side.
    pub ours: Side<'a>,
    /// The sides that ours is compared with.
    pub others: Vec<Side<'a>>,
    best_goal: Option<f64>,
    bounds: Vec<(&'static str, f64)>,
}

/// The figures of one side.
#[derive(Clone, Copy, Debug)]
pub struct SideResult {
    /// The name in tables.
    pub name: &'static str,
    /// Nanoseconds per check.
    pub ns: Spread,
    /// The time of the side divided by ours, round by round.
    pub ratio: Spread,
}

/// The figures of a row.
#[derive(Clone, Debug)]
pub struct RowResult {
    /// The figures of each side, ours first.
    pub sides: Vec<SideResult>,
    /// The objects of the JSON: one for each other side in the order of `sides`, then one for each bound of the row.
    pub records: Vec<RowRecord>,
    /// The number of checks of one thread in one slice.
    pub checks: u64,
    /// The median of [`Slice::overlap`](crate::threads::Slice::overlap).
    pub overlap: f64,
    /// The median of [`Slice::on_processor`](crate::threads::Slice::on_processor).
    pub on_processor: f64,
}

impl<'a> ComparisonRow<'a> {
    /// Returns a row that has only the goals of its sides.
    #[must_use]
    pub fn new(work: &'static str, threads: usize, keys: u64, ours: Side<'a>, others: Vec<Side<'a>>) -> Self {
        Self { work, threads, keys, ours, others, best_goal: None, bounds: Vec::new() }
    }

    /// Adds the goal that the best peer takes at least this many times as long as ours.
    #[must_use]
    pub fn best_peer(self, ratio: f64) -> Self {
        Self { best_goal: Some(ratio), ..self }
    }

    /// Adds the goal that a check of one thread takes at most this many nanoseconds.
    #[must_use]
    pub fn at_most_ns(mut self, ns: f64) -> Self {
        self.bounds.push(("goal: nanoseconds", ns));
        self
    }

    /// Adds the goal that all threads together make at least this many million checks a second.
    #[must_use]
    pub fn at_least_millions(mut self, millions: f64) -> Self {
        self.bounds.push((THROUGHPUT_GOAL, self.threads as f64 * 1e3 / millions));
        self
    }

    /// Measures all sides for about `time`, in `rounds` rounds, and calls `on_round` when a round begins. All sides make the
    /// same checks in a round, and in the next round the following ones of the sequence.
    pub fn measure(&self, time: Duration, rounds: usize, mut on_round: impl FnMut(usize)) -> RowResult {
        let sides: Vec<&Side<'_>> = iter::once(&self.ours).chain(&self.others).collect();
        let chunks = self.chunks_in(time / rounds as u32, &sides);
        let mut slices = vec![Vec::with_capacity(rounds); sides.len()];
        for round in 0..rounds {
            on_round(round);
            for side in side_order(round, sides.len()) {
                slices[side].push(sides[side].run(self.threads, chunks, round as u64 * chunks));
            }
        }
        let results: Vec<SideResult> = sides
            .iter()
            .zip(&slices)
            .map(|(side, theirs)| SideResult {
                name: side.name,
                ns: Spread::of(theirs.iter().map(|slice| slice.ns)),
                ratio: Spread::of(theirs.iter().zip(&slices[0]).map(|(theirs, ours)| theirs.ns / ours.ns)),
            })
            .collect();
        RowResult {
            records: self.records(&results),
            checks: chunks * CHUNK as u64,
            overlap: Spread::of(slices.iter().flatten().map(|slice| slice.overlap)).median,
            on_processor: Spread::of(slices.iter().flatten().map(|slice| slice.on_processor)).median,
            sides: results,
        }
    }

    fn records(&self, results: &[SideResult]) -> Vec<RowRecord> {
        let ours = results[0].ns.median;
        let new = |other, goal| {
            let record = RowRecord::new((self.work, self.threads, self.keys), ours, other, goal);
            RowRecord { ours_m_per_second: Some(self.threads as f64 * 1e3 / ours), ..record }
        };
        let others = self.others.iter().zip(&results[1..]);
        let sides = others
            .map(|(side, result)| RowRecord { is_peer: side.is_peer, ..new((side.name, result.ns.median), side.goal) });
        let mut records: Vec<RowRecord> = sides.collect();
        mark_best(&mut records, self.best_goal);
        records.extend(self.bounds.iter().map(|&bound| new(bound, Some(Goal::Above(0.0)))));
        records
    }

    /// Warms up all sides, and returns the chunks of a side with which one round of all sides takes `time`.
    #[expect(clippy::cast_sign_loss, reason = "times are not negative")]
    fn chunks_in(&self, time: Duration, sides: &[&Side<'_>]) -> u64 {
        let warm = (time / sides.len() as u32 / 8).min(Duration::from_millis(10));
        let ns: f64 = sides.iter().map(|side| self.warm_up(side, warm)).sum();
        ((time.as_secs_f64() * 1e9 / ns / CHUNK as f64) as u64).max(8)
    }

    /// Runs longer and longer slices until one takes `time`, and returns its nanoseconds per check.
    fn warm_up(&self, side: &Side<'_>, time: Duration) -> f64 {
        let mut chunks = 8;
        loop {
            let slice = side.run(self.threads, chunks, 0);
            if slice.time_of(chunks * CHUNK as u64) >= time {
                return slice.ns;
            }
            chunks *= 4;
        }
    }
}

/// Returns the order of the sides in a round. Each round begins with another side, and every second round runs backwards, so
/// that no side always follows the same one.
fn side_order(round: usize, sides: usize) -> impl Iterator<Item = usize> {
    let backwards = round % 2 == 1;
    (0..sides).map(move |place| (round + if backwards { sides - place } else { place }) % sides)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;
    use crate::contender::{Contender, KeyChoice, TestedLimiter};

    #[test]
    fn every_round_has_each_side_once_and_begins_with_another_side() {
        let rounds: Vec<Vec<usize>> = (0..6).map(|round| side_order(round, 3).collect()).collect();
        assert_eq!(rounds, [[0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 2, 1], [1, 2, 0], [2, 1, 0]]);
    }

    /// A limiter whose check takes this many iterations of a loop.
    struct SpinLimiter(u64);

    impl TestedLimiter for SpinLimiter {
        fn checker(&self) -> impl FnMut(u64) -> bool {
            |number| (0..self.0).fold(number, |sum, turn| black_box(sum ^ turn)) == 7
        }
    }

    #[test]
    fn a_row_shows_each_side_with_its_goal() {
        let [fast, slow] = [Contender::new("tidegate", SpinLimiter(10)), Contender::new("slow", SpinLimiter(100))];
        let numbers: Vec<u32> = (0..1_024).collect();
        let draw_many = KeyChoice::Drawn(&numbers);
        let others = vec![slow.peer_side(draw_many, Some(Goal::Ratio(2.0))), slow.side_as("again", draw_many, None)];
        let row = ComparisonRow::new("turns", 1, 1_024, fast.side(draw_many, None), others)
            .best_peer(1e9)
            .at_most_ns(1e9)
            .at_least_millions(1e6);
        let mut rounds = Vec::new();
        let outcome = row.measure(Duration::from_millis(60), 3, |round| rounds.push(round));
        assert_eq!(rounds, [0, 1, 2]);
        let names: Vec<_> = outcome.sides.iter().map(|side| side.name).collect();
        assert_eq!(names, ["tidegate", "slow", "again"]);
        let record = &outcome.records[0];
        assert_eq!((&*record.peer, record.met), ("slow", Some(record.ratio >= 2.0)), "{record:?}");
        assert!(outcome.sides.iter().all(|side| side.ratio.least > 0.0), "{outcome:?}");
        assert_eq!(record.best_target.as_deref(), Some(">= 1000000000"));
        assert_eq!((record.is_best, record.best_met), (true, Some(false)));
        let again = &outcome.records[1];
        assert_eq!((again.met, again.is_best, again.is_peer), (None, false, false), "not a peer, so not the best one");
        let bounds: Vec<_> =
            outcome.records[2..].iter().map(|bound| (&*bound.peer, bound.peer_ns, bound.met)).collect();
        let expected = [("goal: nanoseconds", 1e9, Some(true)), (THROUGHPUT_GOAL, 1e-3, Some(false))];
        assert_eq!(bounds, expected);
    }
}
