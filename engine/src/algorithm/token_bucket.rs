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
//! * **faster**: `cost x p/n` is rounded up once per admitted call, so a call loses less than 1 nanosecond of refill. A
//!   single call of b is admitted by a full bucket; b calls of 1 in zero time may fall short of b by that nanosecond each.

use std::{fmt, num::NonZero, time::Duration};

use super::{
    bounds::{BUCKET_MIN, NUMBER_MAX, Unfit, in_range, period_in_range},
    carry::Used,
    remote_add::RemoteAdd,
    verdict::{Receipt, Verdict},
};
use crate::base::time::{Nanos, PERIOD_MIN_NS, SECOND_NS, saturating_nanos};

/// The longest time that refilling a whole burst may take: a hundred years, so that no instant overflows.
const FILL_MAX_NS: u64 = 100 * 366 * 86_400 * SECOND_NS;

/// The shortest time per token, in nanoseconds, at which rounding each token up to a whole nanosecond is negligible.
const COARSE_INTERVAL_NS: u64 = 1_000;

/// Returns how a rate is counted: the tokens that come back together, and the nanoseconds that they take. It is one token in the
/// slow regime.
pub(crate) fn refill(limit: u64, period_ns: u64) -> (u64, u64) {
    let by_token = period_ns.is_multiple_of(limit) || period_ns / limit >= COARSE_INTERVAL_NS;
    if by_token { (1, period_ns.div_ceil(limit)) } else { (limit, period_ns) }
}

/// A compiled token bucket: `tokens` come back in `period_ns`, one at a time in the slow regime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    tokens: u64,
    period_ns: u64,
    /// Nanoseconds that the whole burst takes to come back, rounded down.
    fill_ns: u64,
    burst: u64,
}

/// Writes limit, period and burst of an equal bucket, each within its range.
impl fmt::Display for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The factor is at most the one that the limit was divided by, since its period was at least the shortest one.
        let times = PERIOD_MIN_NS.div_ceil(self.period_ns);
        write!(f, "{}/{}/{}", self.tokens * times, self.period_ns * times, self.burst)
    }
}

/// The precomputed step of a cost of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneToken {
    /// The time in which one token comes back, rounded up; at most `fill_ns`.
    add_ns: NonZero<u64>,
    fill_ns: u64,
}

impl OneToken {
    /// Decides as [`TokenBucket::step`] does.
    #[inline(always)]
    pub(crate) fn step(self, word: u64, now: Nanos) -> Verdict {
        let word_after = word.max(now).saturating_add(self.add_ns.get());
        if word_after - now <= self.fill_ns {
            return Verdict::Admit(word_after);
        }
        // Above 0: the bucket is not full, since one token is at most what fills it.
        Verdict::Later { wait_ns: (word_after - self.fill_ns).min(word) - now }
    }
}

impl TokenBucket {
    /// Returns the step of a cost of one; `None` where a full bucket admits one although its rounding is above `fill_ns`.
    pub(super) fn one_token(&self) -> Option<OneToken> {
        let add_ns = NonZero::new(self.refill_ns(1))?;
        (add_ns.get() <= self.fill_ns).then_some(OneToken { add_ns, fill_ns: self.fill_ns })
    }

    /// Creates a bucket in which `limit` tokens (1 to 2^53 - 1) come back every `period` (1 ms to 366 days), and at most `burst` are
    /// there at once.
    pub fn new(limit: u64, period: Duration, burst: u64) -> Result<Self, Unfit> {
        in_range("limit", limit, 1, NUMBER_MAX)?;
        period_in_range(period, BUCKET_MIN)?;
        in_range("burst", burst, 1, NUMBER_MAX)?;
        let (tokens, period_ns) = refill(limit, saturating_nanos(period));
        Self::of_refill(tokens, period_ns, burst).ok_or_else(|| {
            let message =
                format!("{burst} tokens would take longer than a hundred years to come back; lower the burst");
            Unfit { field: "burst", message }
        })
    }

    /// Creates a bucket of numbers from 1 and a period of at least 1 ms; what is too large is clamped to what fits.
    pub(super) fn clamped(limit: u64, period: Duration, burst: u64) -> Self {
        let (tokens, period_ns) = refill(limit.min(NUMBER_MAX), saturating_nanos(period));
        let burst = burst.min(NUMBER_MAX);
        Self::of_refill(tokens, period_ns, burst).unwrap_or_else(|| {
            // The largest burst whose time to come back, rounded down, is FILL_MAX_NS: below 2^62 x 2^53, and below `burst`.
            let most = ((u128::from(FILL_MAX_NS) + 1) * u128::from(tokens) - 1) / u128::from(period_ns);
            let fill_ns = (most * u128::from(period_ns) / u128::from(tokens)) as u64;
            Self { tokens, period_ns, fill_ns, burst: most as u64 }
        })
    }

    /// Returns the bucket, or `None` if the burst takes longer than a hundred years to come back.
    fn of_refill(tokens: u64, period_ns: u64, burst: u64) -> Option<Self> {
        let fill_ns = u64::try_from(u128::from(burst) * u128::from(period_ns) / u128::from(tokens)).ok()?;
        (fill_ns <= FILL_MAX_NS).then_some(Self { tokens, period_ns, fill_ns, burst })
    }

    /// Returns the nanoseconds that `cost` tokens, at most the burst, take to come back, rounded up.
    fn refill_ns(&self, cost: u64) -> u64 {
        if self.tokens == 1 {
            // At most burst x period = fill_ns, which fits; a receipt from elsewhere may be anything.
            cost.saturating_mul(self.period_ns)
        } else {
            // Below 2^64 after the division: at most fill_ns + 1.
            self.long_refill_ns(cost) as u64
        }
    }

    fn long_refill_ns(&self, cost: u64) -> u128 {
        (u128::from(cost) * u128::from(self.period_ns)).div_ceil(u128::from(self.tokens))
    }

    pub(super) fn overcharge(&self, word: u64, now: Nanos, cost: u64) -> u64 {
        word.max(now).saturating_add(u64::try_from(self.long_refill_ns(cost)).unwrap_or(u64::MAX))
    }

    /// Returns the nanoseconds in which the whole burst and a debt of `max_debt` tokens come back, rounded down.
    fn owed_ns(&self, max_debt: u64) -> u128 {
        u128::from(self.fill_ns) + u128::from(max_debt) * u128::from(self.period_ns) / u128::from(self.tokens)
    }

    pub(super) fn debt_room(&self, word: u64, now: Nanos, max_debt: u64) -> u64 {
        let room_ns = self.owed_ns(max_debt).saturating_sub(u128::from(word.saturating_sub(now)));
        // Below 2^120 x 1; or, where a token takes less than a microsecond, below 2^74 x 2^53.
        let tokens = room_ns * u128::from(self.tokens) / u128::from(self.period_ns);
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    /// Returns the addition of a charge that is made however much was used, up to a debt of `max_debt`.
    pub(super) fn plan_overcharge(&self, cost: u64, max_debt: u64) -> RemoteAdd {
        let most = u64::try_from(self.owed_ns(max_debt)).unwrap_or(u64::MAX).min(u64::MAX / 2);
        RemoteAdd { most, ..self.addition(cost) }
    }

    #[inline(always)]
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

    pub(super) fn addition(&self, cost: u64) -> RemoteAdd {
        let add = self.refill_ns(cost);
        // A cost that needs no waiting is admitted even where its own rounding is above `fill_ns`, as in `step`.
        let most = self.fill_ns.max(add);
        RemoteAdd { head: 0, is_instant: true, add, most, from: 0, until: Nanos::MAX }
    }

    /// Returns the queue for callers that wait outside of it: it admits only when it is empty, so it delays no request.
    #[cfg(feature = "wait")]
    pub(super) fn undelayed(self) -> Self {
        Self { fill_ns: 0, ..self }
    }

    /// Returns the instant at which the queue was empty before a charge of `cost` wrote `word`, or a later one.
    pub(super) fn before(&self, word: u64, cost: u64) -> Nanos {
        word.saturating_sub(self.refill_ns(cost))
    }

    pub(super) fn whole_period_ns(&self) -> u64 {
        self.fill_ns
    }

    pub(super) fn capacity(&self) -> u64 {
        self.burst
    }

    pub(super) fn remaining(&self, word: u64, now: Nanos) -> u64 {
        if word <= now {
            return self.burst;
        }
        let free_ns = now.saturating_add(self.fill_ns).saturating_sub(word);
        if self.tokens == 1 {
            return (free_ns / self.period_ns).min(self.burst);
        }
        (u128::from(free_ns) * u128::from(self.tokens) / u128::from(self.period_ns)).min(u128::from(self.burst)) as u64
    }

    #[expect(clippy::unused_self, reason = "for this algorithm alone the word is enough")]
    pub(super) fn reset_after_ns(&self, word: u64, now: Nanos) -> u64 {
        word.saturating_sub(now)
    }

    /// Returns the nanoseconds of a charge that time has certainly not repaid. More could have been repaid already, and giving it
    /// back would mint tokens. Two assumptions give a lower bound each, and the larger is taken:
    ///
    /// * all time since the charge repaid this one first;
    /// * charges are repaid in the order of their places in the queue, of which this one's ended at the receipt's word, or
    ///   earlier by as much as was given back since for charges before it.
    fn not_repaid_ns(&self, now: Nanos, receipt: &Receipt) -> u64 {
        // Rounded down: a part of a charge takes its part of the rounding along, or more.
        let cost_ns = u128::from(receipt.cost) * u128::from(self.period_ns) / u128::from(self.tokens);
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        let by_time_ns = cost_ns.saturating_sub(now.saturating_sub(receipt.charged_at));
        let place = receipt.word.saturating_sub(receipt.moved_ns);
        let by_place_ns = place.saturating_sub(now).min(cost_ns);
        by_time_ns.max(by_place_ns)
    }

    /// Gives back the part of a charge that time has not repaid, as far as the word holds it.
    pub(super) fn give_back(&self, word: u64, now: Nanos, receipt: &Receipt) -> Option<u64> {
        // The debt is longer than a word can hold, so the rest after a give-back is not known.
        if word == Nanos::MAX {
            return None;
        }
        let word_after = word.saturating_sub(self.not_repaid_ns(now, receipt)).max(now);
        (word_after < word).then_some(word_after)
    }

    /// Returns whether the word holds less than the part of a charge that time has not repaid.
    pub(super) fn is_short_of(&self, word: u64, now: Nanos, receipt: &Receipt) -> bool {
        word.saturating_sub(now) < self.not_repaid_ns(now, receipt)
    }

    /// Returns all tokens in use, also those that were charged above the burst.
    pub(super) fn used(&self, word: u64, at: Nanos) -> Used {
        if word == Nanos::MAX {
            // The debt is larger than the word can hold.
            return Used(u128::MAX);
        }
        let busy_ns = word.saturating_sub(at);
        let period_ns = u128::from(self.period_ns);
        // At most 2^64 x 2^53.
        let scaled = u128::from(busy_ns) * u128::from(self.tokens);
        let (whole, rest) = (scaled / period_ns, scaled % period_ns);
        // Tokens by the nanosecond have periods of a millisecond or more: at most 2^97, and 2^113 with the fraction bits.
        let used = (whole << Used::FRACTION_BITS) + (rest << Used::FRACTION_BITS).div_ceil(period_ns);
        // `fill_ns` was rounded down, of a few fast tokens to 0.
        let least = if busy_ns >= self.fill_ns.max(1) { Used::whole(self.burst).0 } else { 0 };
        Used(used.max(least))
    }

    pub(super) fn with_used(&self, used: Used, at: Nanos) -> u64 {
        // At most 2^69 x 2^55.
        let scaled = used.0.min(Used::whole(self.burst).0) * u128::from(self.period_ns);
        let busy_ns = scaled.div_ceil(u128::from(self.tokens) << Used::FRACTION_BITS);
        at.saturating_add(busy_ns as u64)
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::time::PERIOD_MAX;

    proptest! {
        #[test]
        fn a_step_of_one_token_is_the_step_of_a_cost_of_one(
            limit in 1..=NUMBER_MAX,
            period_ns in PERIOD_MIN_NS..=saturating_nanos(PERIOD_MAX),
            burst in prop_oneof![1..10_u64, 1..=NUMBER_MAX],
            now in prop_oneof![0..=u64::MAX, 1_790_000_000 * SECOND_NS..1_800_000_000 * SECOND_NS],
            ahead in prop_oneof![Just(0_u64), 0..10 * SECOND_NS, 0..=u64::MAX],
        ) {
            let bucket = TokenBucket::clamped(limit, Duration::from_nanos(period_ns), burst);
            let Some(one_token) = bucket.one_token() else {
                prop_assert!(bucket.refill_ns(1) > bucket.fill_ns);
                return Ok(());
            };
                // Words around the one that just admits, behind now, and anywhere.
            let full = now.saturating_add(bucket.fill_ns);
            for word in [0, now.saturating_sub(ahead), now, now.saturating_add(ahead), full, full.saturating_sub(ahead), full.saturating_add(ahead), u64::MAX] {
                prop_assert_eq!(one_token.step(word, now), bucket.step(word, now, 1), "{:?} {}", bucket, word);
            }
        }
    }
}
