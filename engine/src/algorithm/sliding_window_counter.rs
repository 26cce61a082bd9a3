//! The sliding window counter: the counts of two aligned windows, weighted. What was used in the window before counts
//! for the part of it that a window of the same length, ending now, still covers.
//!
//! # Bounds
//!
//! With limit n and period p, exactly n are admitted per period where the use is even, and fewer than 2n in any
//! interval of length p: the weight supposes that the window before was used evenly, so a burst at its end is forgotten
//! too soon, and one at its beginning too late. At most n are admitted within one aligned window.
//!
//! The count of the window before is kept in the bits that the present one leaves: exactly for limits below 2^14;
//! above, rounded up to a multiple of n / 2^(29 - bits of n), so at most 0.4 % of the limit too many are counted, which
//! only denies.

use std::time::Duration;

use super::{
    bounds::{Unfit, WINDOW_MIN, in_range, period_in_range, whole_seconds},
    carry::{Carry, Used},
    remote_add::RemoteAdd,
    verdict::{Receipt, Verdict},
};
use crate::base::{
    bit_field::Field,
    time::{Nanos, saturating_nanos},
};

/// Both counts. The meter divides these bits by its limit.
const COUNTS: Field = Field::lowest(29);
/// The instant from which both windows are over.
const IDLE: Field = Field::rest(COUNTS);

/// Nanoseconds of one unit of the idle field.
const IDLE_UNIT_NS: u64 = COUNTS.max() + 1;

/// The largest limit.
const LIMIT_MAX: u64 = 1 << 20;

/// A compiled sliding window counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlidingWindowCounter {
    limit: u64,
    period_ns: u64,
    /// The count of the present window, in the lowest bits.
    present: Field,
    /// Nanoseconds by which the clock is ahead of the time that windows follow; less than a window.
    ahead_ns: u64,
}

/// A word, decoded at some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Windows {
    /// The end of the window that counts: that of the clock's window, or of the word's own if it is newer.
    end: Nanos,
    /// Tokens used in that window.
    present: u64,
    /// Tokens used in the window before, as stored.
    before: u64,
}

impl SlidingWindowCounter {
    /// Creates a limit of `limit` tokens (1 to 2^20) per `period`: whole seconds, 1 second to 366 days.
    pub fn new(limit: u64, period: Duration) -> Result<Self, Unfit> {
        in_range("limit", limit, 1, LIMIT_MAX)?;
        whole_seconds(period)?;
        period_in_range(period, WINDOW_MIN)?;
        let present = Field::lowest(u64::BITS - limit.leading_zeros());
        Ok(Self { limit, period_ns: saturating_nanos(period), present, ahead_ns: 0 })
    }

    /// Returns the same limit for a clock that is `ns` nanoseconds ahead of wall time.
    pub(super) fn ahead_of_wall(self, ns: u64) -> Self {
        Self { ahead_ns: ns % self.period_ns, ..self }
    }

    /// Returns the field for the count of the window before, in units of `limit / before.max()`, or of 1 where that is enough.
    #[inline(always)]
    fn before(&self) -> Field {
        Field::between(self.present, IDLE)
    }

    /// Encodes a count of the window before. Rounds up, so that the stored count is at least the used one.
    fn stored(&self, used: u64) -> u64 {
        let most = self.before().max();
        if self.limit <= most { used } else { (used * most).div_ceil(self.limit) }
    }

    /// Decodes a count of the window before: the most that it stands for, above the limit by less than a unit.
    fn unstored(&self, stored: u64) -> u64 {
        let most = self.before().max();
        if self.limit <= most { stored } else { (stored * self.limit).div_ceil(most) }
    }

    pub(super) fn merge(&self, one: u64, other: u64) -> u64 {
        if IDLE.get(one) != IDLE.get(other) {
            return one.max(other);
        }
        let larger = |field: Field| field.put(field.get(one).max(field.get(other)));
        IDLE.put(IDLE.get(one)) | larger(self.present) | larger(self.before())
    }

    fn windows(&self, word: u64, now: Nanos) -> Windows {
        let end_of =
            |window: u64| window.saturating_add(1).saturating_mul(self.period_ns).saturating_add(self.ahead_ns);
        let window = now.saturating_sub(self.ahead_ns) / self.period_ns;
        let (present, before) = (self.present.get(word), self.before().get(word));
        let boundary = self.boundary(word);
        match boundary.checked_sub(2) {
            Some(own) if own >= window => Windows { end: end_of(own), present, before },
            Some(own) if own + 1 == window => Windows { end: end_of(window), present: 0, before: self.stored(present) },
            _ => Windows { end: end_of(window), present: 0, before: 0 },
        }
    }

    /// Returns the number of the window at whose start a word is idle. The window that counts ends one window earlier.
    fn boundary(&self, word: u64) -> u64 {
        // The idle field is that instant rounded up by less than a window.
        IDLE.get(word).saturating_mul(IDLE_UNIT_NS).saturating_sub(self.ahead_ns) / self.period_ns
    }

    fn pack(&self, windows: Windows) -> u64 {
        let idle = windows.end.saturating_add(self.period_ns).div_ceil(IDLE_UNIT_NS).min(IDLE.max());
        IDLE.put(idle) | self.before().put(windows.before) | self.present.put(windows.present)
    }

    /// Returns how much of the window before still counts, rounded up.
    fn weighted(&self, windows: Windows, now: Nanos) -> u64 {
        let left_ns = windows.end.saturating_sub(now).min(self.period_ns);
        // At most 2^21 x 2^55.
        let weighted = u128::from(self.unstored(windows.before)) * u128::from(left_ns);
        weighted.div_ceil(u128::from(self.period_ns)) as u64
    }

    /// Returns the time from the start of a window after which at most `allowed` of `before` count.
    fn aged_ns(&self, before: u64, allowed: u64) -> u64 {
        if before <= allowed {
            return 0;
        }
        // allowed < before, so this is below the period.
        self.period_ns - (u128::from(allowed) * u128::from(self.period_ns) / u128::from(before)) as u64
    }

    #[inline]
    pub(super) fn step(&self, word: u64, now: Nanos, cost: u64) -> Verdict {
        if cost > self.limit {
            return Verdict::Never;
        }
        let windows = self.windows(word, now);
        let used = windows.present.saturating_add(self.weighted(windows, now));
        if cost <= self.limit.saturating_sub(used) {
            return Verdict::Admit(self.pack(Windows { present: windows.present + cost, ..windows }));
        }
        let room = self.limit - cost;
        // The cost may fit in this window, when enough of the window before is forgotten.
        let in_this = room.checked_sub(windows.present).and_then(|allowed| {
            let aged_ns = self.aged_ns(self.unstored(windows.before), allowed);
            (aged_ns < self.period_ns).then(|| windows.end.saturating_sub(self.period_ns).saturating_add(aged_ns))
        });
        // Or it fits in the next window, when enough of this one is forgotten.
        let admitted_at = in_this.unwrap_or_else(|| {
            let before = self.unstored(self.stored(windows.present));
            windows.end.saturating_add(self.aged_ns(before, room))
        });
        Verdict::Later { wait_ns: admitted_at.saturating_sub(now).max(1) }
    }

    pub(super) fn addition(&self, word: u64, now: Nanos, cost: u64) -> RemoteAdd {
        let windows = self.windows(word, now);
        let most = self.limit.saturating_sub(self.weighted(windows, now));
        let head = self.pack(Windows { present: 0, ..windows });
        RemoteAdd { head, is_instant: false, add: cost, most, from: now, until: windows.end }
    }

    pub(super) fn present(&self, word: u64) -> u64 {
        self.present.get(word)
    }

    /// Charges up to the limit, the most that the counts can hold.
    pub(super) fn overcharge(&self, word: u64, now: Nanos, cost: u64) -> u64 {
        let windows = self.windows(word, now);
        self.pack(Windows { present: windows.present.saturating_add(cost).min(self.limit), ..windows })
    }

    pub(super) fn whole_period_ns(&self) -> u64 {
        self.period_ns
    }

    pub(super) fn capacity(&self) -> u64 {
        self.limit
    }

    pub(super) fn remaining(&self, word: u64, now: Nanos) -> u64 {
        let windows = self.windows(word, now);
        self.limit.saturating_sub(windows.present.saturating_add(self.weighted(windows, now)))
    }

    pub(super) fn reset_after_ns(&self, word: u64, now: Nanos) -> u64 {
        let windows = self.windows(word, now);
        let full_at = match (windows.present, windows.before) {
            (0, 0) => now,
            (0, _) => windows.end,
            _ => windows.end.saturating_add(self.period_ns),
        };
        full_at.saturating_sub(now)
    }

    /// Gives back to the window that was charged, while it counts as the present one or the one before.
    pub(super) fn give_back(&self, word: u64, now: Nanos, receipt: &Receipt) -> Option<u64> {
        let windows = self.windows(word, now);
        let charged = self.windows(receipt.word, receipt.charged_at);
        let after = if charged.end == windows.end {
            Windows { present: windows.present.saturating_sub(receipt.cost), ..windows }
        } else if charged.end.saturating_add(self.period_ns) == windows.end {
            let used = self.unstored(windows.before).saturating_sub(receipt.cost);
            Windows { before: self.stored(used).min(windows.before), ..windows }
        } else {
            return None;
        };
        (after != windows).then(|| self.pack(after))
    }

    pub(super) fn has_windows_of(&self, other: &Self) -> bool {
        (self.period_ns, self.ahead_ns) == (other.period_ns, other.ahead_ns)
    }

    /// Converts the counts of `word`, which this meter wrote, to the limit of `next`, whose windows are the same.
    pub(super) fn in_windows_of(&self, word: u64, next: &Self, carry: Carry) -> u64 {
        // The time is within the word's own window, so no count has moved to the window before.
        let Some(own) = self.boundary(word).checked_sub(2) else { return 0 };
        let windows = self.windows(word, own.saturating_mul(self.period_ns).saturating_add(self.ahead_ns));
        let carried = |used| carry.carried_tokens(used, self.limit, next.limit);
        let before = next.stored(carried(self.unstored(windows.before)));
        next.pack(Windows { end: windows.end, present: carried(windows.present), before })
    }

    /// Returns the start of the window of `word`.
    pub(super) fn since(&self, word: u64) -> Nanos {
        self.windows(word, 0).end.saturating_sub(self.period_ns)
    }

    pub(super) fn used(&self, word: u64, at: Nanos) -> Used {
        let windows = self.windows(word, at);
        Used::whole((windows.present + self.weighted(windows, at)).min(self.limit))
    }

    /// Returns a word with `used` in the window of `at`.
    pub(super) fn with_used(&self, used: Used, at: Nanos) -> u64 {
        let present = used.ceil().min(self.limit);
        let windows = Windows { present, ..self.windows(0, at) };
        if present == 0 { 0 } else { self.pack(windows) }
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;
    use crate::base::time::PERIOD_MAX;
    use crate::base::time::SECOND_NS;

    #[test]
    fn the_word_table_in_the_docs_states_the_constants() {
        let source = include_str!("../storage/layout.rs");
        let (idle_low, counts_high) = (64 - IDLE.max().count_ones(), COUNTS.max().count_ones() - 1);
        assert!(
            source.contains(&format!("bits 63..{idle_low}: ")) && source.contains(&format!("bits {counts_high}..0: "))
        );
        assert!(source.contains(&format!("rounded up to 2^{} ns", IDLE_UNIT_NS.ilog2())));
        // Each window has its own number.
        const { assert!(IDLE_UNIT_NS < SECOND_NS) };
    }

    #[test]
    fn the_count_before_is_exact_below_2_to_the_14_and_close_above() {
        for limit in [1, 2, 255, 1_000, (1 << 14) - 1, 1 << 14, 100_000, LIMIT_MAX - 1, LIMIT_MAX] {
            let meter = SlidingWindowCounter::new(limit, Duration::from_secs(1)).expect("fits");
            let mut worst = 0;
            for used in (0..=limit).step_by(1 + limit as usize / 5_000).chain([limit]) {
                let counted = meter.unstored(meter.stored(used));
                assert!(counted >= used, "{used} of {limit} is counted as {counted}");
                assert!(meter.stored(used) <= meter.before().max());
                worst = worst.max(counted - used);
            }
            assert!(worst * 1_000 <= limit * 4, "{worst} too many of {limit}");
            assert!(limit >= 1 << 14 || worst == 0, "{worst} too many of {limit}");
        }
    }

    #[test]
    fn a_word_looks_idle_only_after_both_windows_and_soon_after() {
        for period_ns in [SECOND_NS, 7 * SECOND_NS, 86_400 * SECOND_NS, saturating_nanos(PERIOD_MAX)] {
            let meter = SlidingWindowCounter::new(LIMIT_MAX, Duration::from_nanos(period_ns)).expect("fits");
            for now in [0, 1, SECOND_NS - 1, 1_790_000_000 * SECOND_NS + 12_345] {
                let Verdict::Admit(word) = meter.step(0, now, LIMIT_MAX) else { panic!("an empty window refused") };
                let idle = (now / period_ns + 2) * period_ns;
                assert!(word >= idle && word < idle + 2 * IDLE_UNIT_NS, "period {period_ns}, now {now}");
            }
        }
    }
}
