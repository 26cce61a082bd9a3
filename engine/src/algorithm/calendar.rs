//! A calendar: the windows between the instants of a list, such as the days of a time zone.

use std::{fmt, ptr};

use crate::base::time::{Nanos, SECOND_NS};

/// Windows that follow one another without a gap. Each list is made once in the life of the process, so a meter that has
/// one stays small and `Copy`, and two calendars are the same if their list is the same in memory.
#[derive(Clone, Copy)]
pub(crate) struct Calendar {
    /// The instants at which one window ends and the next begins, in whole seconds since the Unix epoch: strictly increasing.
    boundaries: &'static [u32],
}

impl Calendar {
    pub(crate) fn new(boundaries: &'static [u32]) -> Self {
        Self { boundaries }
    }

    pub(crate) fn boundaries(self) -> &'static [u32] {
        self.boundaries
    }

    /// Returns the end of the window that contains `at`. The last window never ends.
    #[inline(never)]
    pub(super) fn end(self, at: Nanos) -> Nanos {
        let next = self.boundaries.get(self.passed(at / SECOND_NS));
        next.map_or(u64::MAX, |seconds| u64::from(*seconds) * SECOND_NS)
    }

    /// Returns the start of the window that contains `at`. The first window started with the epoch.
    pub(super) fn start(self, at: Nanos) -> Nanos {
        let before = self.passed(at / SECOND_NS).checked_sub(1);
        before.map_or(0, |before| u64::from(self.boundaries[before]) * SECOND_NS)
    }

    /// Returns the mean length of a window, rounded to the second: months, and some days, differ in length.
    pub(super) fn mean_ns(self) -> u64 {
        let [first, .., last] = self.boundaries else { return u64::MAX };
        let between = self.boundaries.len() as u64 - 1;
        (u64::from(last - first) + between / 2) / between * SECOND_NS
    }

    /// Returns how many boundaries are at `seconds` or earlier.
    fn passed(self, seconds: u64) -> usize {
        let mut passed = self.guess(seconds);
        while self.boundaries.get(passed).is_some_and(|next| u64::from(*next) <= seconds) {
            passed += 1;
        }
        while passed.checked_sub(1).is_some_and(|before| u64::from(self.boundaries[before]) > seconds) {
            passed -= 1;
        }
        passed
    }

    /// Estimates [`passed`](Self::passed) from the mean length of a window. The estimate is off by at most two in every calendar
    /// of the time zone database.
    fn guess(self, seconds: u64) -> usize {
        let last = self.boundaries.last().map_or(1, |last| u64::from(*last).max(1));
        (seconds.min(last) * self.boundaries.len() as u64 / last) as usize
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.boundaries, other.boundaries)
    }
}

impl Eq for Calendar {}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There are tens of thousands.
        f.debug_struct("Calendar").field("boundaries", &self.boundaries.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use jiff::tz::TimeZoneDatabase;

    use super::*;
    use crate::policy::timezone::{Unit, Zone};

    #[test]
    fn a_window_is_found_wherever_the_boundaries_are() {
        let lists: [&[u32]; 6] = [
            &[],
            &[1],
            &[10, 20, 30, 40, 50],
            // The estimate is far off.
            &[1, 2, 3, 4, 1_000_000],
            &[1_000_000, 1_000_001, 1_000_002],
            &[0, u32::MAX],
        ];
        for boundaries in lists {
            let calendar = Calendar::new(boundaries.to_vec().leak());
            let seconds = boundaries.iter().flat_map(|at| [at.saturating_sub(1), *at, at.saturating_add(1)]);
            for seconds in seconds.map(u64::from).chain([0, 1 << 32, u64::MAX / SECOND_NS]) {
                let passed = boundaries.partition_point(|at| u64::from(*at) <= seconds);
                assert_eq!(calendar.passed(seconds), passed, "{boundaries:?} at {seconds} s");
                let end = boundaries.get(passed).map_or(u64::MAX, |at| u64::from(*at) * SECOND_NS);
                assert_eq!(calendar.end(seconds.saturating_mul(SECOND_NS)), end, "{boundaries:?} at {seconds} s");
            }
        }
    }

    #[test]
    fn the_mean_length_is_the_one_that_people_expect() {
        let berlin = Zone::named("Europe/Berlin").expect("a zone");
        let mean = |unit| berlin.calendar(unit).mean_ns() / SECOND_NS;
        assert_eq!((mean(Unit::Day), mean(Unit::Week)), (86_400, 7 * 86_400));
        assert!(mean(Unit::Month).abs_diff(2_629_746) < 100, "{} s", mean(Unit::Month));
    }

    /// Calendars of every sixteenth time zone and of the zones with the most irregular days, in every unit.
    #[test]
    fn boundaries_rise_and_the_guess_is_off_by_two_at_most() {
        let (every, mut calendars) = (TimeZoneDatabase::bundled(), 0);
        let names: Vec<String> = every.available().step_by(16).map(|name| name.as_str().to_owned()).collect();
        let strange = ["Africa/Bissau", "America/St_Johns", "Antarctica/Vostok", "Pacific/Apia", "Pacific/Kiritimati"];
        for name in names.iter().map(String::as_str).chain(strange) {
            for unit in [Unit::Day, Unit::Week, Unit::Month] {
                let calendar = Zone::named(name).expect("a zone").calendar(unit);
                calendars += 1;
                let (mut before, longest) = (0, 32 * 86_400);
                for (place, &at) in calendar.boundaries.iter().enumerate() {
                    assert!(at > before && at - before <= longest, "{name} {unit:?} {at}");
                    before = at;
                    for (seconds, passed) in [(at - 1, place), (at, place + 1)] {
                        let guess = calendar.guess(seconds.into());
                        assert!(guess.abs_diff(passed) <= 2, "{name} {unit:?} {at}: {guess} for {passed}");
                    }
                }
                assert!(u32::MAX - before <= longest, "{name} {unit:?} ends at {before}");
            }
        }
        assert!(calendars > 3 * 40, "{calendars} are too few");
    }
}
