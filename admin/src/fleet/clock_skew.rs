//! By how much a node's clock is ahead of this server's.

use std::collections::VecDeque;

/// Reports that are looked at.
const REPORTS: usize = 10;
/// A clock that is ahead or behind by more is apart.
const APART_MS: u64 = 50;

/// How far ahead the last reports of a node were when they came. Each was on its way for a while, which makes it less: the
/// largest is the closest.
#[derive(Debug, Default)]
pub(super) struct Ahead(VecDeque<i64>);

impl Ahead {
    /// Takes in a report that was made at one time and came at another, Unix milliseconds.
    pub(super) fn add(&mut self, made_ms: u64, came_ms: i64) {
        if self.0.len() == REPORTS {
            self.0.pop_front();
        }
        self.0.push_back(made_ms.cast_signed().saturating_sub(came_ms));
    }

    /// Milliseconds; `None` before the first report.
    pub(super) fn ms(&self) -> Option<i64> {
        self.0.iter().max().copied()
    }

    /// Is it apart by more than messages take? Not known before enough reports came.
    pub(super) fn is_apart(&self) -> bool {
        self.0.len() == REPORTS && self.ms().is_some_and(|ms| ms.unsigned_abs() > APART_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_reports_do_not_put_a_clock_apart_and_enough_of_them_do() {
        let mut ahead = Ahead::default();
        assert_eq!((ahead.ms(), ahead.is_apart()), (None, false));
        for (made_ms, late_ms) in (0u64..).step_by(1_000).zip([3, 900, 60_000, 2, 80, 70, 90, 60, 55, 75]) {
            ahead.add(made_ms, made_ms.cast_signed() + late_ms);
        }
        assert_eq!((ahead.ms(), ahead.is_apart()), (Some(-2), false));
        (0..REPORTS).for_each(|_| ahead.add(1_061, 1_000));
        assert_eq!((ahead.ms(), ahead.is_apart()), (Some(61), true));
        (0..REPORTS).for_each(|_| ahead.add(939, 1_000));
        assert_eq!((ahead.ms(), ahead.is_apart()), (Some(-61), true));
    }
}
