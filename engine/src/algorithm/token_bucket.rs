//! The token bucket as the generic cell rate algorithm (GCRA; ITU-T I.371, appendix A): the word is the theoretical
//! arrival time, the instant at which the bucket is full again.
//!
//! # Bounds
//!
//! With limit n, period p and burst b, the admitted costs in any interval of length t sum to at most b + n*t/p, whatever
//! the numbers: every rounding goes against the client. Two regimes make the rounding small:
//!
//! * **p/n is a whole number of nanoseconds, or at least 1 microsecond** (rates up to a million tokens a second): a token
//!   takes p/n rounded up to a whole nanosecond. Exactly b are admitted in zero time, however they are split into calls.
//!   The sustained rate is below n/p by at most one nanosecond per token: at most 0.1 %, and at most one millionth up to
//!   a thousand tokens a second.
//! * **faster**: the interval is kept to 53 significant bits and `cost x interval` is rounded up once per admitted call,
//!   so a call loses less than 1 nanosecond of refill. A single call of b is admitted by a full bucket; b calls of 1 in
//!   zero time may fall short of b by that nanosecond each.

use super::{NUMBER_MAX, Receipt, Unfit, Used, Verdict};
use crate::time::{Nanos, PERIOD_MAX_NS, PERIOD_MIN_NS, SECOND_NS};

/// The longest time that refilling a whole burst may take: a hundred years, so that no instant overflows.
const FILL_MAX_NS: u128 = 100 * 366 * 86_400 * SECOND_NS as u128;

/// Below this many nanoseconds a token, rounding each token up to a whole nanosecond would be felt.
const COARSE_INTERVAL_NS: u64 = 1_000;

/// A compiled token bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    /// Time that a token takes to come back, in units of 2^-shift nanoseconds, rounded up.
    interval: u64,
    shift: u32,
    /// Time that the whole burst takes to come back, rounded down.
    fill_ns: u64,
    burst: u64,
}

impl TokenBucket {
    /// `limit` tokens (1 to 2^53 - 1) come back every `period_ns` (1 ms to 366 days); at most `burst` are there at once.
    pub fn new(limit: u64, period_ns: u64, burst: u64) -> Result<Self, Unfit> {
        super::in_range("limit", limit, 1, NUMBER_MAX)?;
        super::in_range("period", period_ns, PERIOD_MIN_NS, PERIOD_MAX_NS)?;
        super::in_range("burst", burst, 1, NUMBER_MAX)?;
        let (n, p, b) = (u128::from(limit), u128::from(period_ns), u128::from(burst));
        let coarse = p.is_multiple_of(n) || p / n >= u128::from(COARSE_INTERVAL_NS);
        // As many fraction bits as leave the interval within 53 bits; p <= 2^55 and n < 2^53, so p << shift < 2^107.
        let shift = if coarse { 0 } else { (0..=86).rev().find(|&s| (p << s) / n < 1 << 52).unwrap_or(0) };
        let interval = (p << shift).div_ceil(n);
        let fill_ns = if coarse { b * interval } else { b * p / n };
        if fill_ns > FILL_MAX_NS {
            let message = format!(
                "at {limit} every {} s, a burst of {burst} takes longer than a hundred years to come back; lower the burst",
                period_ns as f64 / SECOND_NS as f64
            );
            return Err(Unfit { field: "burst", message });
        }
        Ok(Self { interval: interval as u64, shift, fill_ns: fill_ns as u64, burst })
    }

    /// Nanoseconds that `cost` tokens take to come back, rounded up. For costs up to the burst.
    fn refill_ns(&self, cost: u64) -> u64 {
        if self.shift == 0 {
            // At most burst x interval = fill_ns, which fits.
            cost.saturating_mul(self.interval)
        } else {
            let scaled = u128::from(cost) * u128::from(self.interval);
            // Shift at most 86 and both factors below 2^53: neither the sum nor the quotient overflows.
            ((scaled + ((1 << self.shift) - 1)) >> self.shift) as u64
        }
    }

    #[inline]
    pub(super) fn step(&self, word: u64, now: Nanos, cost: u64) -> Verdict {
        if cost > self.burst {
            return Verdict::Never;
        }
        let word_after = word.max(now).saturating_add(self.refill_ns(cost));
        // A full bucket admits its burst even where the burst's own rounding is above `fill_ns`.
        if word <= now || word_after - now <= self.fill_ns {
            return Verdict::Admit(word_after);
        }
        let admitted_at = (word_after - self.fill_ns).min(word);
        Verdict::Later { wait_ns: admitted_at - now }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.burst
    }

    pub(super) fn remaining(&self, word: u64, now: Nanos) -> u64 {
        if word <= now {
            return self.burst;
        }
        let free_ns = now.saturating_add(self.fill_ns).saturating_sub(word);
        if self.shift == 0 {
            return (free_ns / self.interval).min(self.burst);
        }
        // free_ns <= fill_ns = b*p/n, and (p << shift)/n < 2^52: below 2^105.
        ((u128::from(free_ns) << self.shift) / u128::from(self.interval)).min(u128::from(self.burst)) as u64
    }

    #[expect(clippy::unused_self, reason = "the word says it all, here as nowhere else")]
    pub(super) fn reset_after_ns(&self, word: u64, now: Nanos) -> u64 {
        word.saturating_sub(now)
    }

    /// Time repays charges in some order. Supposing that all of it since the charge repaid this one gives the least that
    /// can be left of it; anything more could have been repaid before, and giving it back would mint.
    pub(super) fn give_back(&self, word: u64, now: Nanos, receipt: &Receipt) -> Option<u64> {
        let repaid_ns = now.saturating_sub(receipt.charged_at);
        let left_ns = self.refill_ns(receipt.cost).saturating_sub(repaid_ns);
        let word_after = word.saturating_sub(left_ns).max(now);
        (word_after < word).then_some(word_after)
    }

    pub(super) fn used(&self, word: u64, at: Nanos) -> Used {
        let busy_ns = word.saturating_sub(at).min(self.fill_ns);
        // Below 2^106 before the fraction bits are added: see `remaining`.
        let scaled = u128::from(busy_ns) << (self.shift + Used::FRACTION_BITS);
        Used(scaled.div_ceil(u128::from(self.interval)))
    }

    pub(super) fn with_used(&self, used: Used, at: Nanos) -> u64 {
        let used = used.0.min(Used::whole(self.burst).0);
        // used < 2^69; the interval is below 2^55, and below 2^53 with a shift.
        let busy_ns = (used * u128::from(self.interval)).div_ceil(1 << (self.shift + Used::FRACTION_BITS));
        at.saturating_add((busy_ns as u64).min(self.fill_ns))
    }
}
