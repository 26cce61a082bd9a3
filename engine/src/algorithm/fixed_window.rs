//! The fixed window: a count for each window. Windows are aligned to the Unix epoch, or are the days, weeks or months
//! of a time zone.
//!
//! At most n are admitted per window, so up to 2n in an interval of length p that crosses a boundary: all of one
//! window's quota at its end, all of the next at its beginning. A thread that reads its clock late is counted in the
//! newest window that the word has seen.

use std::{num::NonZero, time::Duration};

use super::{
    bounds::{Unfit, WINDOW_MIN, in_range, period_in_range, whole_seconds},
    calendar::Calendar,
    carry::{Carry, Used},
    remote_add::RemoteAdd,
    verdict::{Receipt, Verdict},
};
use crate::base::{
    bit_field::Field,
    time::{Nanos, saturating_nanos},
};

const COUNT: Field = Field::lowest(25);
const END: Field = Field::rest(COUNT);

/// Nanoseconds of one unit of the end field.
const END_UNIT_NS: u64 = COUNT.max() + 1;

/// The largest limit of a window.
pub(crate) const LIMIT_MAX: u64 = 1 << 24;

/// A compiled fixed window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedWindow {
    limit: u64,
    windows: Windows,
    /// Nanoseconds by which the clock is ahead of the time that windows follow; less than a window where all have one length.
    ahead_ns: u64,
}

/// The rule that says where windows begin and end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Windows {
    /// Windows of this many nanoseconds, aligned to the Unix epoch.
    Every(NonZero<u64>),
    /// The windows of a calendar.
    Of(Calendar),
}

impl Windows {
    /// Returns the end of the window that contains `at`.
    #[inline]
    fn end(&self, at: Nanos) -> Nanos {
        match self {
            Self::Every(period_ns) => (at / *period_ns * period_ns.get()).saturating_add(period_ns.get()),
            Self::Of(calendar) => calendar.end(at),
        }
    }

    /// Returns the start of the window that contains `at`.
    fn start(&self, at: Nanos) -> Nanos {
        match self {
            Self::Every(period_ns) => at / *period_ns * period_ns.get(),
            Self::Of(calendar) => calendar.start(at),
        }
    }
}

/// A word, decoded at some time: the window that counts, and the tokens used in it.
#[derive(Clone, Copy)]
struct Window {
    /// The value of its end field.
    unit: u64,
    end: Nanos,
    count: u64,
}

impl FixedWindow {
    /// Creates a limit of `limit` tokens (1 to 2^24) per window of `period`: whole seconds, 1 second to 366 days.
    pub fn new(limit: u64, period: Duration) -> Result<Self, Unfit> {
        in_range("limit", limit, 1, LIMIT_MAX)?;
        whole_seconds(period)?;
        period_in_range(period, WINDOW_MIN)?;
        // It is at least a second. The type spares each step the test for zero.
        let windows = Windows::Every(NonZero::new(saturating_nanos(period)).unwrap_or(NonZero::<u64>::MIN));
        Ok(Self { limit, windows, ahead_ns: 0 })
    }

    /// Creates a limit of `limit` tokens (1 to 2^24) per window of a calendar.
    pub(crate) fn of(limit: u64, calendar: Calendar) -> Result<Self, Unfit> {
        in_range("limit", limit, 1, LIMIT_MAX)?;
        Ok(Self { limit, windows: Windows::Of(calendar), ahead_ns: 0 })
    }

    /// Returns the same limit for a clock that is `ns` nanoseconds ahead of wall time.
    pub(super) fn ahead_of_wall(self, ns: u64) -> Self {
        let ahead_ns = match self.windows {
            Windows::Every(period_ns) => ns % period_ns,
            Windows::Of(_) => ns,
        };
        Self { ahead_ns, ..self }
    }

    #[inline]
    fn end(&self, at: Nanos) -> Nanos {
        self.windows.end(at.saturating_sub(self.ahead_ns)).saturating_add(self.ahead_ns)
    }

    fn start(&self, at: Nanos) -> Nanos {
        self.windows.start(at.saturating_sub(self.ahead_ns)).saturating_add(self.ahead_ns)
    }

    /// Returns the window that counts at `now`: that of the clock, or the word's own if it is newer.
    #[inline(always)]
    fn window(&self, word: u64, now: Nanos) -> Window {
        let end = self.end(now);
        let (unit, stored) = (unit_of(end), END.get(word));
        match stored.cmp(&unit) {
            std::cmp::Ordering::Less => Window { unit, end, count: 0 },
            std::cmp::Ordering::Equal => Window { unit, end, count: COUNT.get(word) },
            // The field is the end rounded up to a unit, and windows are longer: one unit before is within the window.
            std::cmp::Ordering::Greater => {
                let end = self.end((stored - 1) * END_UNIT_NS);
                Window { unit: stored, end, count: COUNT.get(word) }
            }
        }
    }

    #[inline]
    pub(super) fn step(&self, word: u64, now: Nanos, cost: u64) -> Verdict {
        if cost > self.limit {
            return Verdict::Never;
        }
        let window = self.window(word, now);
        if cost <= self.limit.saturating_sub(window.count) {
            return Verdict::Admit(pack(window.unit, window.count + cost));
        }
        Verdict::Later { wait_ns: window.end.saturating_sub(now).max(1) }
    }

    pub(super) fn addition(&self, word: u64, now: Nanos, cost: u64) -> RemoteAdd {
        let Window { unit, end, .. } = self.window(word, now);
        // A word may be in a newer window than the clock.
        let from = self.start(end - 1).min(now);
        RemoteAdd { head: pack(unit, 0), is_instant: false, add: cost, most: self.limit, from, until: end }
    }

    pub(super) fn count(word: u64) -> u64 {
        COUNT.get(word)
    }

    pub(super) fn overcharge(&self, word: u64, now: Nanos, cost: u64) -> u64 {
        let window = self.window(word, now);
        pack(window.unit, window.count.saturating_add(cost).min(COUNT.max()))
    }

    /// Returns whether its windows follow a calendar.
    pub(super) fn is_of_calendar(&self) -> bool {
        matches!(self.windows, Windows::Of(_))
    }

    pub(super) fn whole_period_ns(&self) -> u64 {
        match self.windows {
            Windows::Every(period_ns) => period_ns.get(),
            Windows::Of(calendar) => calendar.mean_ns(),
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.limit
    }

    pub(super) fn remaining(&self, word: u64, now: Nanos) -> u64 {
        self.limit.saturating_sub(self.window(word, now).count)
    }

    pub(super) fn reset_after_ns(&self, word: u64, now: Nanos) -> u64 {
        let window = self.window(word, now);
        if window.count == 0 { 0 } else { window.end.saturating_sub(now) }
    }

    /// Gives back only to the window that was charged, and only while that window counts.
    pub(super) fn give_back(&self, word: u64, now: Nanos, receipt: &Receipt) -> Option<u64> {
        let window = self.window(word, now);
        let charged = END.get(receipt.word);
        let counts = charged == END.get(word) && charged == window.unit && window.count > 0;
        counts.then(|| pack(window.unit, window.count.saturating_sub(receipt.cost)))
    }

    /// Returns the start of the window of `word`.
    pub(super) fn since(&self, word: u64) -> Nanos {
        self.start(END.get(word).saturating_sub(1) * END_UNIT_NS)
    }

    pub(super) fn has_windows_of(&self, other: &Self) -> bool {
        (self.windows, self.ahead_ns) == (other.windows, other.ahead_ns)
    }

    /// Converts the count of `word`, which this meter wrote, to the limit of `next`, whose windows are the same.
    pub(super) fn in_windows_of(&self, word: u64, next: &Self, carry: Carry) -> u64 {
        let count = carry.carried_tokens(COUNT.get(word), self.limit, next.limit);
        pack(END.get(word), count)
    }

    pub(super) fn used(&self, word: u64, at: Nanos) -> Used {
        Used::whole(self.window(word, at).count)
    }

    pub(super) fn with_used(&self, used: Used, at: Nanos) -> u64 {
        let count = used.ceil().min(self.limit);
        if count == 0 { 0 } else { pack(self.window(0, at).unit, count) }
    }
}

/// Returns the end field of a window that ends at `end`. Windows are longer than a unit, so each has its own; the last one of a
/// calendar, and the last before the year 2554, stays for ever.
fn unit_of(end: Nanos) -> u64 {
    end.div_ceil(END_UNIT_NS).min(END.max())
}

fn pack(unit: u64, count: u64) -> u64 {
    END.put(unit) | COUNT.put(count)
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;
    use crate::base::time::PERIOD_MAX;
    use crate::base::time::SECOND_NS;

    #[test]
    fn the_word_table_in_the_docs_states_the_constants() {
        let source = include_str!("../storage/layout.rs");
        let (end_low, count_high) = (64 - END.max().count_ones(), COUNT.max().count_ones() - 1);
        assert!(
            source.contains(&format!("bits 63..{end_low}: ")) && source.contains(&format!("bits {count_high}..0: "))
        );
        assert!(source.contains(&format!("rounded up to 2^{} ns", END_UNIT_NS.ilog2())));
        assert!(COUNT.max() >= LIMIT_MAX && END_UNIT_NS * 2 < SECOND_NS);
    }

    #[test]
    fn a_word_looks_idle_only_after_its_window_and_soon_after() {
        for period_ns in [SECOND_NS, 7 * SECOND_NS, 86_400 * SECOND_NS, saturating_nanos(PERIOD_MAX)] {
            let window = FixedWindow::new(LIMIT_MAX, Duration::from_nanos(period_ns)).expect("fits");
            for now in [0, 1, SECOND_NS - 1, 1_790_000_000 * SECOND_NS + 12_345, (1 << 63) + 99] {
                let Verdict::Admit(word) = window.step(0, now, LIMIT_MAX) else { panic!("an empty window refused") };
                let end = (now / period_ns + 1) * period_ns;
                assert!(word >= end && word < end + 2 * END_UNIT_NS, "period {period_ns}, now {now}");
            }
        }
    }
    const BOUNDARIES: [u64; 4] = [1_000 * SECOND_NS, 4_000 * SECOND_NS, 4_001 * SECOND_NS, 90_000 * SECOND_NS];

    fn calendar(limit: u64) -> FixedWindow {
        FixedWindow::of(limit, Calendar::new(&[1_000, 4_000, 4_001, 90_000])).expect("fits")
    }

    fn admitted(window: &FixedWindow, word: u64, now: Nanos) -> u64 {
        let Verdict::Admit(after) = window.step(word, now, 1) else { unreachable!("refused at {now}") };
        after
    }

    #[test]
    fn a_window_of_a_calendar_counts_until_its_boundary() {
        let window = calendar(1);
        let mut start = 0;
        for end in BOUNDARIES {
            for now in [start, start + 1, end - 1] {
                let word = admitted(&window, 0, now);
                assert!(word >= end && word < end + 2 * END_UNIT_NS, "{now}");
                assert_eq!(window.step(word, end - 1, 1), Verdict::Later { wait_ns: 1 }, "{now}");
                assert_eq!(window.reset_after_ns(word, start), end - start, "{now}");
                assert_eq!(window.remaining(word, end), 1, "{now}");
            }
            start = end;
        }
    }

    #[test]
    fn a_late_clock_counts_in_the_newest_window_of_a_calendar() {
        let window = calendar(2);
        for (boundary, end) in BOUNDARIES.into_iter().zip(BOUNDARIES.into_iter().skip(1).chain([u64::MAX])) {
            let (charged, late) = (admitted(&window, 0, boundary), boundary - 1);
            let receipt = Receipt { cost: 1, charged_at: boundary, word: charged, moved_ns: 0 };
            let full = admitted(&window, charged, late);
            assert_eq!(window.remaining(full, boundary), 0);
            assert_eq!(window.step(full, late, 1), Verdict::Later { wait_ns: end - late });
            assert_eq!(window.give_back(full, late, &receipt), Some(charged));
            assert_eq!(window.give_back(admitted(&window, 0, late), boundary, &receipt), None);
        }
    }

    #[test]
    fn the_last_window_of_a_calendar_stays_for_ever() {
        let (window, last) = (calendar(1), BOUNDARIES[3]);
        let word = admitted(&window, 0, last);
        for now in [last, last + 366 * 86_400 * SECOND_NS, u64::MAX - 1] {
            assert_eq!(window.step(word, now, 1), Verdict::Later { wait_ns: u64::MAX - now });
        }
        assert_eq!(window.step(word, u64::MAX, 1), Verdict::Later { wait_ns: 1 });
    }

    #[test]
    fn calendars_are_the_same_by_their_list_alone() {
        let (one, other) = (calendar(5), FixedWindow::of(5, Calendar::new(&[1_000, 4_000])).expect("fits"));
        assert!(one.has_windows_of(&FixedWindow { limit: 9, ..one }) && !one.has_windows_of(&other));
        assert!(!one.has_windows_of(&FixedWindow::new(5, Duration::from_secs(1_000)).expect("fits")));
    }
}
