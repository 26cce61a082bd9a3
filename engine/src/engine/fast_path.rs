//! The fast path, which nearly all checks take: finds the slot of a key and charges it by one swap. It serves keys that
//! have a slot in their two lines whose word is the bucket's whole state under the newest numbers, if no other thread
//! swaps that slot meanwhile. One comparison of the whole tag tells the other slots apart, and the swap fails in a race;
//! such a check is left to `account.rs`, with nothing changed.
//!
//! How long a check of a random key waits for memory depends on the instructions between one such wait and the next: a
//! processor goes on with later checks meanwhile, as far as it can look ahead. So this code is short, is inlined whole,
//! and decides by branches, which are predicted, never by values that wait for the slot.
//!
//! The order stays slot, clock, version, swap. The clock is read after the load of the slot has begun: it takes as long
//! as a line from the cache, and the two go on together. It is read before the version: a charge must not be dated
//! after a publish that it did not see, since the conversion would take the time between for used.

use crate::{
    algorithm::{Meter, Verdict},
    base::{atomic::Cell128, native128::Native128, time::Nanos},
    storage::{
        atomic_update::Swap,
        layout::{Generation, PlainTag, Slot},
        sliding_log::StepResult,
        table::{KeyLines, SlotSnapshot},
    },
};

/// The part of a limit that a check on the fast path needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastPathLimit {
    pub(crate) tag: PlainTag,
    /// The processor's 128-bit instructions, if it has them.
    pub(crate) native: Option<Native128>,
}

/// The reason why a check was not decided on the fast path. Nothing was charged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FastPathMiss {
    /// The fast path was not tried.
    Untried,
    /// The policy is not the newest, or an observer is to see the decision.
    Stale,
    /// The key is striped.
    Striped {
        /// The word of its slot.
        word: u64,
        /// A time that was read before the word, and after the slot was found.
        now: Nanos,
    },
    /// Another thread swapped the slot before this one did.
    Race,
    /// The key has no slot with the expected tag, or a slot that denied changed before it was read again.
    Other,
}

impl FastPathLimit {
    /// Returns what the fast path needs of a limit; `None` for a log, whose word may name a ring.
    pub(crate) fn new(id: u32, generation: Generation, meter: &Meter) -> Option<Self> {
        let is_log = matches!(meter, Meter::SlidingWindowLog(_));
        (!is_log).then(|| Self { tag: PlainTag::new(id, generation), native: Native128::detect() })
    }

    /// Finds the slot of the key of these lines, and applies `step` to its word and the time.
    #[inline(always)]
    pub(crate) fn look(
        self,
        lines: KeyLines<'_>,
        read_clock: impl FnOnce() -> Nanos,
        is_newest: impl FnOnce() -> bool,
        step: impl FnOnce(u64, Nanos) -> Verdict,
    ) -> Result<(StepResult, SlotSnapshot<'_>), FastPathMiss> {
        let tag = self.tag.of(lines.hash);
        // The result must be for the word of this tag, so one load reads both.
        let (cell, slot) = match self.native {
            Some(native) => lines.find_tag(native, tag).map(|(cell, _)| (cell, load(cell, native))),
            None => lines.find_tag_by_calls(tag),
        }
        .ok_or(FastPathMiss::Other)?;
        let now = read_clock();
        if slot.tag() != tag {
            return Err(missed(slot, tag, now));
        }
        if !is_newest() {
            return Err(FastPathMiss::Stale);
        }
        let verdict = step(slot.word, now);
        let word = verdict.admitted().unwrap_or(slot.word);
        Ok((StepResult { verdict, word, now }, (cell, slot)))
    }

    /// Makes the charge of a look that admitted, if its slot is as it was found. For a denial there is nothing to
    /// charge.
    #[inline(always)]
    pub(crate) fn charge(
        self,
        stepped: StepResult,
        (cell, slot): SlotSnapshot<'_>,
    ) -> Result<StepResult, FastPathMiss> {
        let Verdict::Admit(word) = stepped.verdict else { return Ok(stepped) };
        let next = Slot::with_tag(slot.tag(), word);
        let is_swapped = match self.native {
            Some(native) => cell.swap_natively(native, slot.to_bits(), next.to_bits()),
            None => cell.swap(slot, next).is_ok(),
        };
        if is_swapped { Ok(stepped) } else { Err(FastPathMiss::Race) }
    }
}

#[inline(always)]
pub(crate) fn load(cell: &Cell128, native: Native128) -> Slot {
    Slot::from_bits(cell.load_natively(native))
}

/// Returns why a slot that was found by its tag cannot be charged on the fast path.
#[inline(always)]
pub(crate) fn missed(slot: Slot, tag: u64, now: Nanos) -> FastPathMiss {
    if slot.is_striped_of(tag) { FastPathMiss::Striped { word: slot.word, now } } else { FastPathMiss::Other }
}
