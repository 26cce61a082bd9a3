//! Fixed windows: a count per window, aligned to the Unix epoch.
//!
//! At most n are admitted per window, so just under 2n across a boundary: all of one window's quota at its end, all of
//! the next at its beginning. A thread that reads its clock late is counted in the newest window that the word has seen.

use super::{Receipt, Unfit, Used, Verdict};
use crate::{
    time::{Nanos, PERIOD_MAX_NS, SECOND_NS},
    word::Field,
};

const COUNT: Field = Field::lowest(25);
const END: Field = Field::rest(COUNT);

/// Nanoseconds of one unit of the end field.
const END_UNIT_NS: u64 = COUNT.max() + 1;

/// The largest limit of a window.
const LIMIT_MAX: u64 = 1 << 24;

/// A compiled fixed window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedWindow {
    limit: u64,
    period_ns: u64,
}

/// A word, taken apart as of some time: the window that counts, and what is used of it.
#[derive(Clone, Copy)]
struct Window {
    end: Nanos,
    count: u64,
}

impl FixedWindow {
    /// `limit` (1 to 2^24) per window of `period_ns`: whole seconds, 1 second to 366 days.
    pub fn new(limit: u64, period_ns: u64) -> Result<Self, Unfit> {
        super::in_range("limit", limit, 1, LIMIT_MAX)?;
        super::whole_seconds(period_ns)?;
        super::in_range("period", period_ns, SECOND_NS, PERIOD_MAX_NS)?;
        Ok(Self { limit, period_ns })
    }

    /// The window that counts at `now`: the one of the clock, or the word's own if that is newer.
    fn window(&self, word: u64, now: Nanos) -> Window {
        let end = (now / self.period_ns).saturating_add(1).saturating_mul(self.period_ns);
        let stored = END.get(word);
        match stored.cmp(&unit_of(end)) {
            std::cmp::Ordering::Less => Window { end, count: 0 },
            std::cmp::Ordering::Equal => Window { end, count: COUNT.get(word) },
            // The field is the end rounded up by less than a window: rounding it down to a boundary finds the end.
            std::cmp::Ordering::Greater => {
                let end = stored.saturating_mul(END_UNIT_NS) / self.period_ns * self.period_ns;
                Window { end, count: COUNT.get(word) }
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
            return Verdict::Admit(pack(window.end, window.count + cost));
        }
        Verdict::Later { wait_ns: window.end.saturating_sub(now).max(1) }
    }

    pub(super) fn overcharge(&self, word: u64, now: Nanos, cost: u64) -> u64 {
        let window = self.window(word, now);
        pack(window.end, window.count.saturating_add(cost).min(COUNT.max()))
    }

    pub(super) fn whole_period_ns(&self) -> u64 {
        self.period_ns
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

    /// Only into the window that was charged, and only while it counts.
    pub(super) fn give_back(&self, word: u64, now: Nanos, receipt: &Receipt) -> Option<u64> {
        let window = self.window(word, now);
        let charged = END.get(receipt.word);
        let counts = charged == END.get(word) && charged == unit_of(window.end) && window.count > 0;
        counts.then(|| pack(window.end, window.count.saturating_sub(receipt.cost)))
    }

    pub(super) fn has_windows_of(&self, other: &Self) -> bool {
        self.period_ns == other.period_ns
    }

    /// `word`, with no more used than the limit.
    pub(super) fn capped(&self, word: u64) -> u64 {
        END.put(END.get(word)) | COUNT.put(COUNT.get(word).min(self.limit))
    }

    pub(super) fn used(&self, word: u64, at: Nanos) -> Used {
        Used::whole(self.window(word, at).count)
    }

    pub(super) fn with_used(&self, used: Used, at: Nanos) -> u64 {
        let count = used.ceil().min(self.limit);
        if count == 0 { 0 } else { pack(self.window(0, at).end, count) }
    }
}

/// The end field of a window that ends at `end`. Windows are longer than a unit, so each has its own (but for the last
/// one before the year 2554, which stays for ever).
fn unit_of(end: Nanos) -> u64 {
    end.div_ceil(END_UNIT_NS).min(END.max())
}

fn pack(end: Nanos, count: u64) -> u64 {
    END.put(unit_of(end)) | COUNT.put(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_table_in_the_docs_states_the_constants() {
        let source = include_str!("../word.rs");
        let (end_low, count_high) = (64 - END.max().count_ones(), COUNT.max().count_ones() - 1);
        assert!(
            source.contains(&format!("bits 63..{end_low}: ")) && source.contains(&format!("bits {count_high}..0: "))
        );
        assert!(source.contains(&format!("rounded up to 2^{} ns", END_UNIT_NS.ilog2())));
        assert!(COUNT.max() >= LIMIT_MAX && END_UNIT_NS * 2 < SECOND_NS);
    }

    #[test]
    fn a_word_looks_idle_only_after_its_window_and_soon_after() {
        for period_ns in [SECOND_NS, 7 * SECOND_NS, 86_400 * SECOND_NS, PERIOD_MAX_NS] {
            let window = FixedWindow { limit: LIMIT_MAX, period_ns };
            for now in [0, 1, SECOND_NS - 1, 1_790_000_000 * SECOND_NS + 12_345, (1 << 63) + 99] {
                let Verdict::Admit(word) = window.step(0, now, LIMIT_MAX) else { panic!("an empty window refused") };
                let end = (now / period_ns + 1) * period_ns;
                assert!(word >= end && word < end + 2 * END_UNIT_NS, "period {period_ns}, now {now}");
            }
        }
    }
}
