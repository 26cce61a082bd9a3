//! The step of a store that does not know the algorithm: it adds to a part of a word, within a bound, or swaps the
//! word.
//!
//! A script in the store that did the arithmetic itself would be a second copy of it, in doubles. So the arithmetic
//! stays here, and the store gets its result in a form that stays valid whatever other nodes did meanwhile. For a
//! bucket and for the count of a window a charge is an addition: many nodes can make additions one after the other
//! without knowing of each other's. Any other charge (the first of another window, any charge of a log) is a swap; a
//! node whose swap fails starts again with the word that it finds.

use super::{
    fixed_window::FixedWindow,
    meter::Meter,
    remote_add::RemoteAdd,
    verdict::{Receipt, Verdict},
};
use crate::base::time::Nanos;

/// The operation by which a store makes a charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteStep {
    /// Adds to the word if it has the head of the addition, or if there is no word.
    Add(RemoteAdd),
    /// Writes this word if the store still has the word that the step started with.
    Swap {
        /// The word after the charge.
        after: u64,
        /// The first instant at which the swap may be made.
        from: Nanos,
        /// The end of its validity: the swap must be made before this instant.
        until: Nanos,
    },
    /// The word refuses the cost.
    Refuse(Verdict),
}

/// Steps over a word in a store, for the crates of this repository. They may change in any version.
#[doc(hidden)]
impl Meter {
    /// Returns the operation that charges `cost` tokens (at least 1) as [`step`](Self::step) would, in a store whose word is `word`
    /// (0: it has none) and whose clock is at `now` or later.
    ///
    /// A store that is behind its own time makes the same decisions as one whose clock is `now`; a sliding window counter may
    /// then deny what `step` would admit at the later time.
    #[must_use]
    pub fn plan_charge(&self, word: u64, now: Nanos, cost: u64) -> RemoteStep {
        if cost > self.capacity() {
            return RemoteStep::Refuse(Verdict::Never);
        }
        match (self.addition(word, now, cost), self.step(word, now, cost)) {
            (Some(addition), _) if word == 0 || word - self.tail_of(word) == addition.head => RemoteStep::Add(addition),
            (Some(RemoteAdd { from, until, .. }), Verdict::Admit(after)) => RemoteStep::Swap { after, from, until },
            (None, Verdict::Admit(after)) => RemoteStep::Swap { after, from: now, until: Nanos::MAX },
            (_, refused) => RemoteStep::Refuse(refused),
        }
    }

    /// Returns the addition that charges `cost` tokens; `None` for a log.
    fn addition(&self, word: u64, now: Nanos, cost: u64) -> Option<RemoteAdd> {
        match self {
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => Some(bucket.addition(cost)),
            Self::FixedWindow(window) => Some(window.addition(word, now, cost)),
            Self::SlidingWindowCounter(counter) => Some(counter.addition(word, now, cost)),
            Self::SlidingWindowLog(_) => None,
        }
    }

    /// Returns the addition that makes an [`overcharge`](Self::overcharge) however much was used, as long as at most
    /// `max_debt` tokens are owed above the capacity after it. `None`: a swap must make it.
    #[must_use]
    pub fn plan_overcharge(&self, word: u64, now: Nanos, cost: u64, max_debt: u64) -> Option<RemoteAdd> {
        let addition = match self {
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => bucket.plan_overcharge(cost, max_debt),
            // A swap makes a count that its field may not hold, because a swap can clamp it.
            _ => RemoteAdd { most: self.capacity(), ..self.addition(word, now, cost)? },
        };
        let is_here = word == 0 || word - self.tail_of(word) == addition.head;
        is_here.then_some(addition)
    }

    /// Returns the addition that charges `cost` tokens (perhaps none) that were lent to nodes, as long as `out_most`,
    /// the tokens that may still be lent after it, fits too. `None`: a swap must make it.
    #[must_use]
    pub fn plan_lease(&self, word: u64, now: Nanos, cost: u64, out_most: u64) -> Option<RemoteAdd> {
        let (charge, out) = (self.addition(word, now, cost.max(1))?, self.addition(word, now, out_most.max(1))?);
        let is_here = word == 0 || word - self.tail_of(word) == charge.head;
        let (add, most) = (if cost > 0 { charge.add } else { 0 }, out.most.checked_sub(out.add)?);
        is_here.then_some(RemoteAdd { add, most, ..charge })
    }

    /// Returns the deduction that gives a charge back, however much was charged since, if it is made before `until`:
    /// its `add` is deducted from the tail, which never falls below its floor. For a bucket it is the amount that
    /// [`give_back`](Self::give_back) gives at `until`, so no more than it would give earlier. `None`: there is nothing
    /// to give back, or a swap must make it.
    #[must_use]
    pub fn plan_give_back(&self, now: Nanos, until: Nanos, receipt: &Receipt) -> Option<RemoteAdd> {
        let charge = self.addition(receipt.word, now, receipt.cost)?;
        if charge.is_instant {
            // The amount is the same for any word that is later than `until`.
            let late = u64::MAX / 2;
            let add = late - self.give_back(late, until, receipt)?;
            return Some(RemoteAdd { add, until, ..charge });
        }
        (receipt.word - self.tail_of(receipt.word) == charge.head).then_some(charge)
    }

    /// Returns the equivalent word at time `now`: if its window is over, the word of the window after it.
    #[must_use]
    pub fn advance_window(&self, word: u64, now: Nanos) -> u64 {
        match self.addition(word, now, 1) {
            Some(addition) if word == 0 || word - self.tail_of(word) != addition.head => addition.head,
            _ => word,
        }
    }

    /// Returns the end of the window that a word counts in; for buckets, which have none, the end of time.
    #[must_use]
    pub fn window_end(&self, word: u64) -> Nanos {
        self.addition(word, 0, 1).map_or(Nanos::MAX, |addition| addition.until)
    }

    /// Returns the tail of a word, to which a [`RemoteAdd`] adds.
    #[must_use]
    pub fn tail_of(&self, word: u64) -> u64 {
        match self {
            Self::TokenBucket(_) | Self::LeakyBucket(_) => word,
            Self::FixedWindow(_) => FixedWindow::count(word),
            Self::SlidingWindowCounter(counter) => counter.present(word),
            Self::SlidingWindowLog(_) => 0,
        }
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        algorithm::{SlidingWindowCounter, SlidingWindowLog, TokenBucket},
        base::time::SECOND_NS,
    };

    /// An instant in 2026, at the beginning of an hour.
    const NOW: Nanos = 1_790_035_200 * SECOND_NS;

    fn meters() -> impl Strategy<Value = Meter> {
        let numbers = || (1_u64..50, 1_u64..10, 1_u64..60);
        prop_oneof![
            numbers().prop_map(|(limit, seconds, burst)| {
                Meter::TokenBucket(TokenBucket::new(limit * 7, Duration::from_secs(seconds), burst).expect("fits"))
            }),
            numbers().prop_map(|(limit, seconds, _)| {
                Meter::FixedWindow(FixedWindow::new(limit, Duration::from_secs(seconds)).expect("fits"))
            }),
            numbers().prop_map(|(limit, seconds, _)| {
                Meter::SlidingWindowCounter(
                    SlidingWindowCounter::new(limit, Duration::from_secs(seconds)).expect("fits"),
                )
            }),
            numbers().prop_map(|(limit, seconds, _)| {
                Meter::SlidingWindowLog(SlidingWindowLog::new(limit, Duration::from_secs(seconds)).expect("fits"))
            }),
        ]
    }

    /// Makes an addition as the script of a store does, at its own time. Returns an error where the addition does not
    /// fit the word there.
    fn added(meter: &Meter, addition: &RemoteAdd, word: u64, at: Nanos) -> Result<Option<u64>, ()> {
        let tail = if word == 0 { 0 } else { meter.tail_of(word) };
        if !(addition.from..addition.until).contains(&at) || (word != 0 && word - tail != addition.head) {
            return Err(());
        }
        Ok(addition.apply(tail, at).map(|tail| addition.head + tail))
    }

    /// Makes a deduction as the script of a store does.
    fn deducted(meter: &Meter, deduction: &RemoteAdd, word: u64, at: Nanos) -> Option<u64> {
        let tail = meter.tail_of(word);
        let is_its = (deduction.from..deduction.until).contains(&at) && word - tail == deduction.head;
        is_its.then(|| deduction.head + deduction.deduct(tail, at))
    }

    proptest! {
        #[test]
        fn a_transition_is_what_the_step_would_do(
            meter in meters(),
            calls in prop::collection::vec((0_u64..4 * SECOND_NS, 1_u64..20, any::<bool>()), 1..60),
        ) {
            let (mut word, mut now, mut stale) = (0, NOW, 0);
            for (pause, cost, is_informed) in calls {
                now += pause;
                // A node that knows nothing of the store assumes an empty or an older word.
                let known = if is_informed { word } else { stale };
                let step = meter.step(word, now, cost);
                let begun = meter.plan_charge(known, now, cost);
                let informed = meter.plan_charge(word, now, cost);
                let made = |transition| match transition {
                    RemoteStep::Add(addition) => added(&meter, &addition, word, now).ok(),
                    RemoteStep::Swap { after, from, until } => {
                        ((from..until).contains(&now) && known == word).then_some(Some(after))
                    }
                    RemoteStep::Refuse(_) => (known == word).then_some(None),
                };
                let after = made(begun).or_else(|| {
                    // The node begins again with the word that it found.
                    match informed {
                        RemoteStep::Add(addition) => added(&meter, &addition, word, now).ok(),
                        RemoteStep::Swap { after, .. } => Some(Some(after)),
                        RemoteStep::Refuse(_) => Some(None),
                    }
                });
                prop_assert_eq!(after, Some(step.admitted()), "{:?} of {} at {}", informed, word, now);
                if let Some(Some(after)) = after {
                    (stale, word) = (word, after);
                }
            }
        }

        #[test]
        fn a_deduction_gives_back_what_was_charged_and_no_more(
            meter in meters(),
            calls in prop::collection::vec((0_u64..SECOND_NS, 1_u64..20, 0_u64..20_000_000), 2..60),
            mine in 0_usize..20,
        ) {
            let (mut word, mut now, mut receipt) = (0, NOW, None);
            for (place, (pause, cost, late_ns)) in calls.into_iter().enumerate() {
                now += pause;
                if let Some(receipt) = receipt.filter(|_| late_ns % 2 == 0) {
                    let until = now + 10_000_000;
                    let made_at = now + late_ns;
                    let made = meter.plan_give_back(now, until, &receipt).map(|it| deducted(&meter, &it, word, made_at));
                    if let Some(Some(after)) = made {
                        let back = meter.give_back(word, made_at, &receipt).unwrap_or(word);
                        prop_assert!(after >= back, "{after} {back}");
                        // The deduction misses at most what time repays until then; for a window, nothing.
                        let short_ns = if meter.window_end(word) == Nanos::MAX { 10_000_000 } else { 0 };
                        prop_assert!(after <= back.max(made_at) + short_ns || after == back, "{after} {back}");
                    }
                }
                if let Verdict::Admit(after) = meter.step(word, now, cost) {
                    if place == mine {
                        receipt = Some(Receipt { cost, charged_at: now, word: after, moved_ns: u64::MAX });
                    }
                    word = after;
                }
            }
        }

        #[test]
        fn a_forced_addition_is_an_overcharge_up_to_the_largest_debt(
            meter in meters(),
            used in 0_u64..200,
            cost in 1_u64..200,
            max_debt in 0_u64..100,
        ) {
            // The node does not know what others charged meanwhile.
            let word = if used > 0 { meter.overcharge(0, NOW, used) } else { 0 };
            let cost = cost.min(meter.debt_room(0, NOW, max_debt));
            let forced = meter.plan_overcharge(0, NOW, cost, max_debt).filter(|addition| addition.is_instant);
            let Some(addition) = forced else { return Ok(()) };
            let fits = cost <= meter.debt_room(word, NOW, max_debt);
            let after = fits.then(|| meter.overcharge(word, NOW, cost));
            prop_assert_eq!(added(&meter, &addition, word, NOW), Ok(after));
        }

        #[test]
        fn a_meter_is_read_back_from_its_text(meter in meters()) {
            prop_assert_eq!(meter.to_string().parse::<Meter>(), Ok(meter));
        }

        #[test]
        fn a_bucket_that_fills_fast_is_read_back_from_its_text(
            limit in prop_oneof![1..=100_u64, Just(100_000_u64), 1..=10_000_000_000_u64],
            period_ns in prop_oneof![Just(SECOND_NS), Just(60 * SECOND_NS), 1_000_000..2 * SECOND_NS],
            burst in 1_u64..1_000_000,
        ) {
            let bucket = TokenBucket::new(limit, Duration::from_nanos(period_ns), burst).expect("fits");
            for meter in [Meter::TokenBucket(bucket), Meter::LeakyBucket(bucket)] {
                prop_assert_eq!(meter.to_string().parse::<Meter>(), Ok(meter));
            }
        }
    }

    #[test]
    fn a_text_that_is_not_a_meter_is_refused() {
        for text in
            ["", "token_bucket", "token_bucket/1/2", "fixed_window/0/1000000000", "fixed_window/x/1", "calendar/1/2"]
        {
            assert!(text.parse::<Meter>().is_err(), "{text}");
        }
    }
}
