//! The sliding window log, which admits exactly n in every interval of length p, compressed into one word.
//!
//! The log itself is a ring of n instants beside the table (`log_pool.rs`), one for each admission. A single word
//! cannot hold them. This file has the log compressed into a word: how much is in use, and when the youngest admission
//! is a period old. Decisions show a ring in this form, used quota is carried to other numbers in it, and a bucket
//! without a ring uses it.
//!
//! # Bounds
//!
//! With a ring: at most n in every half-open interval of length p, and every cost that fits is admitted.
//!
//! Without a ring, everything in use ages together with the youngest of it. So never more than n in any interval of
//! length p either, but as few as n in just under 2p where the use is steady. Time is rounded to 2^13 ns, against the
//! client: an admission counts for up to 2^14 ns (16 microseconds) longer than p.

use std::time::Duration;

use super::{
    bounds::{BUCKET_MIN, Unfit, in_range, period_in_range},
    carry::{Carry, Used},
    verdict::{Receipt, Verdict},
};
use crate::base::{
    bit_field::Field,
    time::{Nanos, PERIOD_MAX_NS, saturating_nanos},
};

/// Tokens in use.
const USED: Field = Field::lowest(13);
/// The instant from which no token is in use.
const IDLE: Field = Field::rest(USED);

/// Nanoseconds of one unit of the idle field.
const UNIT_NS: u64 = USED.max() + 1;

/// The largest limit, and the cells of the largest ring.
pub(crate) const LIMIT_MAX: u64 = 1 << 12;

/// The time, in the year 2552, at which a log's clock stands still, so that an instant one period later still fits.
const NOW_MAX: Nanos = Nanos::MAX - 2 * PERIOD_MAX_NS;

/// A compiled sliding window log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlidingWindowLog {
    limit: u64,
    period_ns: u64,
}

impl SlidingWindowLog {
    /// Creates a limit of `limit` tokens (1 to 4,096) in every interval of `period` (1 ms to 366 days).
    pub fn new(limit: u64, period: Duration) -> Result<Self, Unfit> {
        in_range("limit", limit, 1, LIMIT_MAX)?;
        period_in_range(period, BUCKET_MIN)?;
        Ok(Self { limit, period_ns: saturating_nanos(period) })
    }

    /// Returns the instant from which an admission at `now` no longer counts.
    pub(crate) fn until(&self, now: Nanos) -> Nanos {
        self.at(now) + self.period_ns
    }

    /// Returns the time as the log sees it.
    #[expect(clippy::unused_self, reason = "as the others")]
    pub(crate) fn at(&self, now: Nanos) -> Nanos {
        now.min(NOW_MAX)
    }

    /// Returns the word of a ring of which `used` cells are in use (more than all: all), the last of them until `until`.
    pub(crate) fn word(&self, used: u64, until: Nanos) -> u64 {
        if used == 0 { 0 } else { pack(self.idle_unit(until.saturating_sub(self.period_ns)), used.min(self.limit)) }
    }

    /// Returns how many tokens of a word are in use at `now`, and until when.
    pub(crate) fn in_use(&self, word: u64, now: Nanos) -> (u64, Nanos) {
        let idle = IDLE.get(word);
        if unit_of(now) >= idle { (0, now) } else { (USED.get(word).min(self.limit), idle * UNIT_NS) }
    }

    /// Returns whether `now` is before the youngest admission of a word. If so, it is the clock of a check that stalled, and may
    /// be before other admissions that the word has forgotten since: the clock must be read again.
    pub(crate) fn is_behind(&self, word: u64, now: Nanos) -> bool {
        unit_of(now) < self.youngest_unit(word)
    }

    /// Returns the units from the one of an admission to the first in which it no longer counts.
    fn period_units(&self) -> u64 {
        self.period_ns.div_ceil(UNIT_NS) + 1
    }

    /// Returns the unit from which an admission at `now` no longer counts.
    fn idle_unit(&self, now: Nanos) -> u64 {
        unit_of(now) + self.period_units()
    }

    fn youngest_unit(&self, word: u64) -> u64 {
        IDLE.get(word).saturating_sub(self.period_units())
    }

    /// Decides a cost. A clock that is behind admits nothing: see [`is_behind`](Self::is_behind).
    #[inline]
    pub(super) fn step(&self, word: u64, now: Nanos, cost: u64) -> Verdict {
        if cost > self.limit {
            return Verdict::Never;
        }
        let (used, until) = self.in_use(word, now);
        if cost > self.limit - used {
            return Verdict::Later { wait_ns: until.saturating_sub(now).max(1) };
        }
        if self.is_behind(word, now) {
            let youngest = self.youngest_unit(word) * UNIT_NS;
            return Verdict::Later { wait_ns: youngest.saturating_sub(now).max(1) };
        }
        Verdict::Admit(if cost == 0 { word } else { pack(self.idle_unit(now), used + cost) })
    }

    /// Charges any cost. All tokens in use age with the new charge.
    pub(super) fn overcharge(&self, word: u64, now: Nanos, cost: u64) -> u64 {
        let (used, _) = self.in_use(word, now);
        let used = used.saturating_add(cost).min(self.limit);
        if cost == 0 { word } else { pack(self.idle_unit(now).max(IDLE.get(word)), used) }
    }

    pub(super) fn whole_period_ns(&self) -> u64 {
        self.period_ns
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.limit
    }

    pub(super) fn remaining(&self, word: u64, now: Nanos) -> u64 {
        self.limit - self.in_use(word, now).0
    }

    /// Returns the nanoseconds until no token is in use: at most a period, since rounding would show more right after
    /// an admission.
    pub(super) fn reset_after_ns(&self, word: u64, now: Nanos) -> u64 {
        self.in_use(word, now).1.saturating_sub(now).min(self.period_ns)
    }

    /// Gives nothing back: a later admission may have taken the cell in the ring by now, and a word knows only its youngest
    /// admission. A charge counts until it is a period old.
    #[expect(clippy::unused_self, reason = "as the others")]
    pub(super) fn give_back(&self, _word: u64, _now: Nanos, _receipt: &Receipt) -> Option<u64> {
        None
    }

    pub(crate) fn has_period_of(&self, other: &Self) -> bool {
        self.period_ns == other.period_ns
    }

    /// Converts `word` to the limit of `next`, whose period is the same.
    pub(super) fn in_limit_of(&self, word: u64, next: &Self, carry: Carry) -> u64 {
        pack(IDLE.get(word), carry.carried_tokens(USED.get(word), self.limit, next.limit))
    }

    pub(super) fn used(&self, word: u64, at: Nanos) -> Used {
        Used::whole(self.in_use(word, at).0)
    }

    /// Returns a word with `used` tokens charged at `at`.
    pub(super) fn with_used(&self, used: Used, at: Nanos) -> u64 {
        self.word(used.ceil().min(self.limit), self.until(at))
    }
}

fn unit_of(now: Nanos) -> u64 {
    now.min(NOW_MAX) / UNIT_NS
}

fn pack(idle: u64, used: u64) -> u64 {
    IDLE.put(idle) | USED.put(used)
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_word_table_in_the_docs_states_the_constants() {
        let source = include_str!("../storage/layout.rs");
        let (idle_low, used_high) = (64 - IDLE.max().count_ones(), USED.max().count_ones() - 1);
        assert!(
            source.contains(&format!("bits 63..{idle_low}: ")) && source.contains(&format!("bits {used_high}..0: "))
        );
        assert!(source.contains(&format!("rounded up to 2^{} ns", UNIT_NS.ilog2())));
        assert!(USED.max() >= LIMIT_MAX);
        // A period after the last instant fits.
        assert!(NOW_MAX / UNIT_NS + PERIOD_MAX_NS / UNIT_NS + 2 <= IDLE.max());
    }

    #[test]
    fn a_word_looks_idle_only_after_a_period_and_soon_after() {
        for period_ns in [1_000_000, 1_000_001, 7_000_000_000, PERIOD_MAX_NS] {
            let log = SlidingWindowLog::new(LIMIT_MAX, Duration::from_nanos(period_ns)).expect("fits");
            for now in [0, 1, UNIT_NS - 1, UNIT_NS, 1_790_000_000_000_012_345, NOW_MAX] {
                let Verdict::Admit(word) = log.step(0, now, LIMIT_MAX) else { panic!("an empty log refused") };
                let idle = now + period_ns;
                assert!(word >= idle && word < idle + 3 * UNIT_NS, "period {period_ns}, now {now}");
                assert_eq!(log.word(LIMIT_MAX, log.until(now)), word, "a ring is shown the same");
            }
        }
    }
}
