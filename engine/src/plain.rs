//! The short way of a check, which nearly all checks go: the key has a slot in its two lines, whose word is the bucket's whole
//! truth under the newest numbers, and no other thread swaps it meanwhile. Whatever else there may be is told apart by one
//! comparison of the whole tag, and left to `account.rs`, with nothing changed.
//!
//! How long a check of a random key waits for memory depends on the instructions between one such wait and the next: a processor
//! goes on with later checks meanwhile, as far as it can look ahead. So what stands here is short, is inlined whole, and decides
//! by branches, which are predicted, never by values that wait for the slot.
//!
//! The order stays slot, clock, version, swap. The clock is read after the slot is asked for: it takes as long as a line from the
//! cache, and the two go on together. And before the version: a charge is not dated after a publish that it did not see, whose
//! conversion would take all that came between for used.

use crate::{
    algorithm::{Meter, OneToken, Verdict},
    bucket::Swap,
    hash::{IdentityHash, KeyHasher},
    lease::{Leases, Spend, Terms},
    native128::Native128,
    sliding_log::Stepped,
    sync::{Cell128, thread_number},
    table::{Seen, Table},
    time::Nanos,
    word::{Generation, PlainTag, Slot},
};

/// What a check needs of a limit, on the short way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainLimit {
    tag: PlainTag,
    /// What the processor has for its slots.
    native: Option<Native128>,
}

/// Why a check was not decided on the short way. Nothing was charged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Missed {
    /// It was not tried.
    Untried,
    /// The key has a lease.
    Leased {
        /// The word of its slot.
        word: u64,
        /// A time read before the word, and after the slot was found.
        now: Nanos,
    },
    /// Another thread swapped the slot before this one did.
    Race,
    /// The key has no plain slot, the policy is not the newest, or a denial changed while it was looked at again.
    Other,
}

impl PlainLimit {
    /// Returns `None` for a log, whose word may name a ring.
    pub(crate) fn new(id: u32, generation: Generation, meter: &Meter) -> Option<Self> {
        let is_log = matches!(meter, Meter::SlidingWindowLog(_));
        (!is_log).then(|| Self { tag: PlainTag::new(id, generation), native: Native128::detect() })
    }

    /// Finds the slot of the key with this hash, and what `step` answers to its word and the time.
    #[inline(always)]
    pub(crate) fn look(
        self,
        table: &Table,
        hash: u64,
        read_clock: impl FnOnce() -> Nanos,
        is_newest: impl FnOnce() -> bool,
        step: impl FnOnce(u64, Nanos) -> Verdict,
    ) -> Result<(Stepped, Seen<'_>), Missed> {
        let tag = self.tag.of(hash);
        // What is answered must be the word of this tag, so both are of one load.
        let (cell, slot) = match self.native {
            Some(native) => table.find_tag(native, hash, tag).map(|(cell, _)| (cell, load(cell, native))),
            None => table.find_tag_by_calls(hash, tag),
        }
        .ok_or(Missed::Other)?;
        let now = read_clock();
        if slot.tag() != tag || !is_newest() {
            return Err(missed(slot, tag, now));
        }
        let verdict = step(slot.word, now);
        let word = verdict.admitted().unwrap_or(slot.word);
        Ok((Stepped { verdict, word, now }, (cell, slot)))
    }

    /// Makes the charge of a look that admitted, if its slot is as it was found. One that denied has nothing to charge.
    #[inline(always)]
    pub(crate) fn charge(self, stepped: Stepped, (cell, slot): Seen<'_>) -> Result<Stepped, Missed> {
        let Verdict::Admit(word) = stepped.verdict else { return Ok(stepped) };
        let next = Slot::with_tag(slot.tag(), word);
        let is_swapped = match self.native {
            Some(native) => cell.swap_natively(native, slot.to_bits(), next.to_bits()),
            None => cell.swap(slot, next).is_ok(),
        };
        if is_swapped { Ok(stepped) } else { Err(Missed::Race) }
    }
}

/// A plain token bucket whose checks cost one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneTokenLimit {
    plain: PlainLimit,
    native: Native128,
    /// The hash of the limit's full name.
    hash: u64,
    step: OneToken,
    /// The meter that decisions show.
    pub(crate) meter: Meter,
    /// The index of the limit's name.
    pub(crate) index: u32,
    generation: Generation,
    /// The terms by which its keys may lease, if they may.
    terms: Option<Terms>,
}

/// What [`OneTokenLimit::new`] is made of: as [`LiveLimit`](crate::registry::LiveLimit) has them.
#[derive(Clone, Copy)]
pub(crate) struct OneTokenParts {
    pub(crate) plain: PlainLimit,
    pub(crate) hash: u64,
    pub(crate) meter: Meter,
    pub(crate) index: u32,
    pub(crate) generation: Generation,
    pub(crate) terms: Option<Terms>,
}

impl OneTokenLimit {
    /// Returns `None` where the limit is no token bucket, where one token takes longer to come back than the whole burst, which
    /// roundings of fast limits can do, and where the processor lacks instructions.
    pub(crate) fn new(parts: OneTokenParts) -> Option<Self> {
        let OneTokenParts { plain, hash, meter, index, generation, terms } = parts;
        Some(Self { plain, native: plain.native?, hash, step: meter.one_token()?, meter, index, generation, terms })
    }

    /// Charges one token to the key of an identity, or finds that there is none.
    ///
    /// Tag and word are loaded one after the other, which is sooner than together, so the slot may never have held both. What is
    /// answered is of both all the same: the swap succeeds only where the slot holds both, and a denial, which swaps nothing, is
    /// answered only where one load finds both.
    #[inline(always)]
    pub(crate) fn charge(
        &self,
        table: &Table,
        identity: IdentityHash,
        read_clock: impl FnOnce() -> Nanos,
        is_newest: impl FnOnce() -> bool,
    ) -> Result<Stepped, Missed> {
        let (tag, native) = (self.plain.tag, self.native);
        let hash = KeyHasher::key(self.hash, identity);
        let tag = tag.of(hash);
        let (cell, found) = table.find_tag(native, hash, tag).ok_or(Missed::Other)?;
        let word = cell.load_lower(native);
        let now = read_clock();
        if found != tag || !is_newest() {
            return Err(missed(load(cell, native), tag, now));
        }
        let (seen, verdict) = (Slot::with_tag(tag, word), self.step.step(word, now));
        let Verdict::Admit(after) = verdict else {
            let is_seen = load(cell, native) == seen;
            return if is_seen { Ok(Stepped { verdict, word, now }) } else { Err(Missed::Other) };
        };
        if !cell.swap_natively(native, seen.to_bits(), Slot::with_tag(tag, after).to_bits()) {
            return Err(Missed::Race);
        }
        Ok(Stepped { verdict, word: after, now })
    }
}

impl OneTokenLimit {
    /// Spends one token from the calling thread's stripe of a key's lease, as [`Lease::spend`](crate::lease::Lease::spend) does;
    /// `word` is that of its slot. `None`: the stripe has none, or another thread changed it, and nothing was admitted.
    #[inline(never)]
    pub(crate) fn spend(
        &self,
        leases: &Leases,
        identity: IdentityHash,
        word: u64,
        now: Nanos,
        is_newest: impl FnOnce() -> bool,
    ) -> Option<Stepped> {
        let hash = KeyHasher::key(self.hash, identity);
        let spend = Spend { terms: self.terms?, hash, generation: self.generation, thread: thread_number(), cost: 1 };
        let now = leases.spend(spend, now, is_newest)?;
        // What it says of the word is true but for the reserve.
        let word = self.step.step(word, now).admitted().unwrap_or(word);
        Some(Stepped { verdict: Verdict::Admit(word), word, now })
    }
}

#[inline(always)]
fn load(cell: &Cell128, native: Native128) -> Slot {
    Slot::from_bits(cell.load_natively(native))
}

/// Why a slot that was found by its tag is not to be charged on the short way.
#[inline(always)]
fn missed(slot: Slot, tag: u64, now: Nanos) -> Missed {
    if slot.is_leased_of(tag) { Missed::Leased { word: slot.word, now } } else { Missed::Other }
}

#[cfg(all(test, engine_loom))]
mod models;
#[cfg(all(test, not(engine_loom)))]
mod tests {
    use proptest::prelude::*;

    use crate::{
        KeyedLimiter,
        algorithm::{FixedWindow, Meter, SlidingWindowCounter, TokenBucket},
        clock::ManualClock,
        time::SECOND_NS,
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
        /// With the processor's instructions, by calls as one goes that lacks them, and the long way.
        #[test]
        fn the_short_way_answers_as_the_long_one(
            meter in meters(),
            checks in prop::collection::vec((0..6_u64, 0..3_u64, 0..SECOND_NS), 1..200),
        ) {
            let clock = ManualClock::at(1_790_000_000 * SECOND_NS);
            // Room for four keys, so that some are elsewhere than in their two lines.
            let mut limiters = [(); 3].map(|()| KeyedLimiter::with_clock(meter, 4, clock.clone()));
            let [_, called, long] = &mut limiters;
            called.limit.plain.as_mut().expect("no log").native = None;
            (long.limit.plain, called.one_token, long.one_token) = (None, None, None);
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
