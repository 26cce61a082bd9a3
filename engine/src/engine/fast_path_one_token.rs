//! The [fast path](crate::engine::fast_path) of checks that cost one token of a token bucket, as most do. All decisions
//! that do not depend on the bucket are made beforehand.

use crate::{
    algorithm::{Meter, OneToken, Verdict},
    base::{clock::Clock, native128::Native128, thread_id::thread_number, time::Nanos},
    engine::{
        active_policy::ActiveLimit,
        buckets::Buckets,
        decision::{DecidedBy, Decision, Outcome},
        fast_path::{FastPathLimit, FastPathMiss, load, missed},
    },
    storage::{
        layout::{Generation, Slot},
        sliding_log::StepResult,
        striping::{StripePool, StripeSpend, StripeTerms},
        table::KeyLines,
    },
};

/// A token bucket on the fast path, whose checks cost one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneTokenLimit {
    fast_path: FastPathLimit,
    native: Native128,
    step: OneToken,
    /// The meter that decisions show.
    meter: Meter,
    /// The index of the limit's name.
    index: u32,
    generation: Generation,
    /// The terms on which its keys are striped, if they may be.
    terms: Option<StripeTerms>,
}

impl OneTokenLimit {
    /// Returns `None` if the limit is no token bucket, if one token takes longer to come back than the whole burst
    /// (roundings of fast limits can do that), or if the processor lacks the instructions.
    pub(crate) fn new(limit: &ActiveLimit, stripes: &StripePool) -> Option<Self> {
        let &ActiveLimit { fast_path, meter, index, generation, can_stripe, .. } = limit;
        let (fast_path, meter) = (fast_path?, meter?);
        let terms = stripes.terms(&meter).filter(|_| can_stripe);
        Some(Self { fast_path, native: fast_path.native?, step: meter.one_token()?, meter, index, generation, terms })
    }

    /// Charges one token to the key of these lines, or spends one of its stripes.
    #[inline(always)]
    pub(crate) fn charge(
        &self,
        stripes: &StripePool,
        lines: KeyLines<'_>,
        read_clock: impl FnOnce() -> Nanos,
        is_newest: impl Fn() -> bool,
    ) -> Result<StepResult, FastPathMiss> {
        match self.charge_slot(lines, read_clock, &is_newest) {
            Err(FastPathMiss::Striped { word, now }) => {
                let spent = self.spend(stripes, lines.hash, word, now, &is_newest);
                spent.ok_or_else(|| if is_newest() { FastPathMiss::Other } else { FastPathMiss::Stale })
            }
            charged => charged,
        }
    }

    /// Charges one token to the slot of the key of these lines, or finds that there is none left.
    ///
    /// Tag and word are loaded one after the other, which is faster than together, so the slot may never have held
    /// both. The result is right all the same: the swap succeeds only where the slot holds both, and a denial, which
    /// swaps nothing, is returned only where one load finds both.
    #[inline(always)]
    fn charge_slot(
        &self,
        lines: KeyLines<'_>,
        read_clock: impl FnOnce() -> Nanos,
        is_newest: impl FnOnce() -> bool,
    ) -> Result<StepResult, FastPathMiss> {
        let native = self.native;
        let tag = self.fast_path.tag.of(lines.hash);
        let (cell, found) = lines.find_tag(native, tag).ok_or(FastPathMiss::Other)?;
        let word = cell.load_lower(native);
        let now = read_clock();
        if found != tag {
            return Err(missed(load(cell, native), tag, now));
        }
        if !is_newest() {
            return Err(FastPathMiss::Stale);
        }
        let (seen, verdict) = (Slot::with_tag(tag, word), self.step.step(word, now));
        let Verdict::Admit(after) = verdict else {
            let is_seen = load(cell, native) == seen;
            return if is_seen { Ok(StepResult { verdict, word, now }) } else { Err(FastPathMiss::Other) };
        };
        if !cell.swap_natively(native, seen.to_bits(), Slot::with_tag(tag, after).to_bits()) {
            return Err(FastPathMiss::Race);
        }
        Ok(StepResult { verdict, word: after, now })
    }

    /// Spends one token from the calling thread's stripe of a striped key, as
    /// [`StripedKey::spend`](crate::storage::striping::StripedKey::spend) does; `word` is that of its slot. Returns `None` if the
    /// stripe has no token or another thread changed it; nothing was admitted then.
    #[inline(never)]
    fn spend(
        &self,
        stripes: &StripePool,
        hash: u64,
        word: u64,
        now: Nanos,
        is_newest: impl FnOnce() -> bool,
    ) -> Option<StepResult> {
        let spend =
            StripeSpend { terms: self.terms?, hash, generation: self.generation, thread: thread_number(), cost: 1 };
        let now = stripes.spend(spend, now, is_newest)?;
        // The word lacks the tokens that the stripes hold in reserve.
        let word = self.step.step(word, now).admitted().unwrap_or(word);
        Some(StepResult { verdict: Verdict::Admit(word), word, now })
    }

    /// Returns the outcome of a charge.
    #[inline(always)]
    pub(crate) fn outcome<C: Clock>(&self, buckets: &Buckets<C>, stepped: StepResult) -> Outcome {
        let StepResult { verdict, word, now } = stepped;
        Outcome { meter: Some(self.meter), cost: 1, verdict, word, now }.at_resolution(buckets.clock.resolution())
    }

    /// Returns the decision of a charge, under the policy of this version.
    #[inline(always)]
    pub(crate) fn decision<'e, C: Clock>(
        &self,
        buckets: &'e Buckets<C>,
        version: u64,
        stepped: StepResult,
    ) -> Decision<'e> {
        let outcome = self.outcome(buckets, stepped);
        let decided_by = DecidedBy { place: 0, limit: self.index, is_stored: false, outcome };
        // A token bucket delays no request.
        Decision::of_one(&buckets.names, version, decided_by, 0)
    }
}

#[cfg(all(test, engine_loom))]
mod models;
#[cfg(all(test, not(engine_loom)))]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use crate::{
        KeyedLimiter,
        algorithm::{FixedWindow, Meter, SlidingWindowCounter, TokenBucket},
        base::{
            clock::ManualClock,
            hash::KeyHasher,
            time::{SECOND_NS, Timestamp},
        },
    };

    fn meters() -> impl Strategy<Value = Meter> {
        (0..4_u8, 1..20_u64, 1..5_u64, 1..20_u64).prop_map(|(which, limit, seconds, burst)| {
            let period_ns = seconds * SECOND_NS;
            let bucket = TokenBucket::new(limit, Duration::from_nanos(period_ns), burst).expect("fits");
            match which {
                0 => Meter::TokenBucket(bucket),
                1 => Meter::LeakyBucket(bucket),
                2 => Meter::FixedWindow(FixedWindow::new(limit, Duration::from_nanos(period_ns)).expect("fits")),
                _ => Meter::SlidingWindowCounter(
                    SlidingWindowCounter::new(limit, Duration::from_nanos(period_ns)).expect("fits"),
                ),
            }
        })
    }

    proptest! {
        /// The paths are: by the processor's instructions, by calls as on a processor that lacks them, and the slow
        /// path.
        #[test]
        fn the_fast_path_decides_as_the_slow_path(
            meter in meters(),
            checks in prop::collection::vec((0..6_u64, 0..3_u64, 0..SECOND_NS), 1..200),
        ) {
            let clock = ManualClock::at(Timestamp::from_nanos(1_790_000_000 * SECOND_NS));
            // There is room for four keys, so that some are outside of their two lines.
            let mut limiters = [(); 3].map(|()| KeyedLimiter::with_clock(meter, 4, clock.clone()));
            for limiter in &mut limiters {
                // The same seeds, so that keys collide alike.
                limiter.buckets.hasher = KeyHasher::new(7);
            }
            let [_, called, long] = &mut limiters;
            called.limit.fast_path.as_mut().expect("no log").native = None;
            called.metered.as_mut().expect("no log").fast_path.native = None;
            (long.limit.fast_path, long.metered, called.one_token, long.one_token) = (None, None, None, None);
            for (key, cost, ns) in checks {
                clock.advance(Duration::from_nanos(ns));
                let [short, called, long] = limiters.each_ref().map(|limiter| match cost {
                    0 => limiter.peek(key),
                    1 => limiter.check(key),
                    _ => limiter.check_n(key, cost),
                });
                prop_assert_eq!(format!("{short:?}"), format!("{long:?}"));
                prop_assert_eq!(format!("{called:?}"), format!("{long:?}"));
            }
        }
    }
}
