//! The [fast path](crate::engine::fast_path) of checks that cost one token of a token bucket, as most do: all decisions that do
//! not depend on the bucket are made beforehand.

use crate::{
    algorithm::{Meter, OneToken, Verdict},
    base::{clock::Clock, native128::Native128, thread_id::thread_number, time::Nanos},
    engine::{
        active_policy::ActiveLimit,
        buckets::Buckets,
        decision::{DecidedBy, Decision, Outcome},
        fast_path::{FastPathMiss, PlainLimit, load, missed},
    },
    storage::{
        layout::{Generation, Slot},
        sliding_log::Stepped,
        striping::{Leases, Spend, Terms},
        table::KeyLines,
    },
};

/// A plain token bucket whose checks cost one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneTokenLimit {
    plain: PlainLimit,
    native: Native128,
    step: OneToken,
    /// The meter that decisions show.
    meter: Meter,
    /// The index of the limit's name.
    index: u32,
    generation: Generation,
    /// The terms by which its keys may lease, if they may.
    terms: Option<Terms>,
}

impl OneTokenLimit {
    /// Returns `None` where the limit is no token bucket, where one token takes longer to come back than the whole burst, which
    /// roundings of fast limits can do, and where the processor lacks instructions.
    pub(crate) fn new(limit: &ActiveLimit, leases: &Leases) -> Option<Self> {
        let &ActiveLimit { plain, meter, index, generation, lends, .. } = limit;
        let (plain, meter) = (plain?, meter?);
        let terms = leases.terms(&meter).filter(|_| lends);
        Some(Self { plain, native: plain.native?, step: meter.one_token()?, meter, index, generation, terms })
    }

    /// Charges one token to the key of these lines, or spends one of its lease.
    #[inline(always)]
    pub(crate) fn charge(
        &self,
        leases: &Leases,
        lines: KeyLines<'_>,
        read_clock: impl FnOnce() -> Nanos,
        is_newest: impl Fn() -> bool,
    ) -> Result<Stepped, FastPathMiss> {
        match self.charge_slot(lines, read_clock, &is_newest) {
            Err(FastPathMiss::Leased { word, now }) => {
                let spent = self.spend(leases, lines.hash, word, now, &is_newest);
                spent.ok_or_else(|| if is_newest() { FastPathMiss::Other } else { FastPathMiss::Stale })
            }
            charged => charged,
        }
    }

    /// Charges one token to the slot of the key of these lines, or finds that there is none left.
    ///
    /// Tag and word are loaded one after the other, which is sooner than together, so the slot may never have held both. What is
    /// answered is of both all the same: the swap succeeds only where the slot holds both, and a denial, which swaps nothing, is
    /// answered only where one load finds both.
    #[inline(always)]
    fn charge_slot(
        &self,
        lines: KeyLines<'_>,
        read_clock: impl FnOnce() -> Nanos,
        is_newest: impl FnOnce() -> bool,
    ) -> Result<Stepped, FastPathMiss> {
        let native = self.native;
        let tag = self.plain.tag.of(lines.hash);
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
            return if is_seen { Ok(Stepped { verdict, word, now }) } else { Err(FastPathMiss::Other) };
        };
        if !cell.swap_natively(native, seen.to_bits(), Slot::with_tag(tag, after).to_bits()) {
            return Err(FastPathMiss::Race);
        }
        Ok(Stepped { verdict, word: after, now })
    }

    /// Spends one token from the calling thread's stripe of a key's lease, as [`Lease::spend`](crate::storage::striping::Lease::spend) does;
    /// `word` is that of its slot. `None`: the stripe has none, or another thread changed it, and nothing was admitted.
    #[inline(never)]
    fn spend(
        &self,
        leases: &Leases,
        hash: u64,
        word: u64,
        now: Nanos,
        is_newest: impl FnOnce() -> bool,
    ) -> Option<Stepped> {
        let spend = Spend { terms: self.terms?, hash, generation: self.generation, thread: thread_number(), cost: 1 };
        let now = leases.spend(spend, now, is_newest)?;
        // The word lacks what the lease has reserved.
        let word = self.step.step(word, now).admitted().unwrap_or(word);
        Some(Stepped { verdict: Verdict::Admit(word), word, now })
    }

    /// Returns the outcome of a charge.
    #[inline(always)]
    pub(crate) fn outcome<C: Clock>(&self, buckets: &Buckets<C>, stepped: Stepped) -> Outcome {
        let Stepped { verdict, word, now } = stepped;
        Outcome { meter: Some(self.meter), cost: 1, verdict, word, now }.at_resolution(buckets.clock.resolution_ns())
    }

    /// Returns the decision of a charge, under the policy of this version.
    #[inline(always)]
    pub(crate) fn decision<'e, C: Clock>(
        &self,
        buckets: &'e Buckets<C>,
        version: u64,
        stepped: Stepped,
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
    use proptest::prelude::*;

    use crate::{
        KeyedLimiter,
        algorithm::{FixedWindow, Meter, SlidingWindowCounter, TokenBucket},
        base::{clock::ManualClock, hash::KeyHasher, time::SECOND_NS},
    };

    fn meters() -> impl Strategy<Value = Meter> {
        (0..4_u8, 1..20_u64, 1..5_u64, 1..20_u64).prop_map(|(which, limit, seconds, burst)| {
            let period_ns = seconds * SECOND_NS;
            let bucket = TokenBucket::new(limit, period_ns, burst).expect("fits");
            match which {
                0 => Meter::TokenBucket(bucket),
                1 => Meter::LeakyBucket(bucket),
                2 => Meter::FixedWindow(FixedWindow::new(limit, period_ns).expect("fits")),
                _ => Meter::SlidingWindowCounter(SlidingWindowCounter::new(limit, period_ns).expect("fits")),
            }
        })
    }

    proptest! {
        /// The ways are: by the processor's instructions, by calls as on one that lacks them, and the slow path.
        #[test]
        fn the_fast_path_answers_as_the_slow_one(
            meter in meters(),
            checks in prop::collection::vec((0..6_u64, 0..3_u64, 0..SECOND_NS), 1..200),
        ) {
            let clock = ManualClock::at(1_790_000_000 * SECOND_NS);
            // Room for four keys, so that some are elsewhere than in their two lines.
            let mut limiters = [(); 3].map(|()| KeyedLimiter::with_clock(meter, 4, clock.clone()));
            for limiter in &mut limiters {
                // The same secrets, so that the same keys meet.
                limiter.buckets.hasher = KeyHasher::new(7);
            }
            let [_, called, long] = &mut limiters;
            called.limit.plain.as_mut().expect("no log").native = None;
            called.metered.as_mut().expect("no log").plain.native = None;
            (long.limit.plain, long.metered, called.one_token, long.one_token) = (None, None, None, None);
            for (key, cost, ns) in checks {
                clock.advance(ns);
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
