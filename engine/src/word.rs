//! Bit layouts. A bucket's whole truth is one word of 64 bits; a slot of the table is a tag and a word, 128 bits that
//! are swapped together.
//!
//! # The word
//!
//! Read as a number, every word is at least the instant ([`Nanos`]) from which its bucket is idle under the numbers that
//! it was written under, which is to say equal to an absent one. A stranger who looks for room needs no more than
//! `word <= now`, whoever the owner is.
//!
//! | algorithm | high bits | low bits |
//! |---|---|---|
//! | `token_bucket`, `leaky_bucket` | instant at which the bucket is full again, nanoseconds | (the same number) |
//! | `fixed_window` | bits 63..25: end of the window, rounded up to 2^25 ns (34 ms) | bits 24..0: tokens used in it |
//! | `sliding_window_counter` | bits 63..29: end of the window after, rounded up to 2^29 ns (0.54 s) | bits 28..0: tokens used in it, and above them those of the window before |
//!
//! The rounding and the counts only delay the instant, by less than 68 ms and 1.1 s: a live bucket never looks idle.
//!
//! # The tag
//!
//! | field | bits | width | meaning |
//! |---|---|---|---|
//! | state | 1..0 | 2 | 0 empty, 1 active, 2 claimed |
//! | generation | 6..2 | 5 | of the limit's numbers, modulo 32 |
//! | limit | 26..7 | 20 | index of the limit in the engine's registry |
//! | fingerprint | 63..27 | 37 | of the counted identities |
//!
//! A key is compared with at most eight slots, so it meets a stranger's equal tag with a probability of at most
//! 8 x 2^-37 = 6 x 10^-11; among 100 million live keys that is 0.003 pairs expected to share a bucket.

use crate::time::Nanos;

/// A bit field of a `u64`, placed right above its neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Field {
    shift: u32,
    bits: u32,
}

impl Field {
    pub(crate) const fn lowest(bits: u32) -> Self {
        Self { shift: 0, bits }
    }

    pub(crate) const fn above(below: Self, bits: u32) -> Self {
        Self { shift: below.shift + below.bits, bits }
    }

    /// All bits that are left above `below`.
    pub(crate) const fn rest(below: Self) -> Self {
        Self { shift: below.shift + below.bits, bits: u64::BITS - below.shift - below.bits }
    }

    /// All bits that are left between two fields.
    pub(crate) const fn between(below: Self, above: Self) -> Self {
        let shift = below.shift + below.bits;
        Self { shift, bits: above.shift - shift }
    }

    pub(crate) const fn max(self) -> u64 {
        u64::MAX >> (u64::BITS - self.bits)
    }

    pub(crate) const fn get(self, word: u64) -> u64 {
        (word >> self.shift) & self.max()
    }

    /// `value` in the place of this field; what does not fit is cut off.
    pub(crate) const fn put(self, value: u64) -> u64 {
        (value & self.max()) << self.shift
    }
}

const STATE: Field = Field::lowest(2);
const GENERATION: Field = Field::above(STATE, 5);
const LIMIT: Field = Field::above(GENERATION, 20);
const FINGERPRINT: Field = Field::rest(LIMIT);

/// How many limits an engine can know from start to end, over all publishes.
pub(crate) const LIMITS_MAX: usize = LIMIT.max() as usize + 1;

/// The state of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    Empty = 0,
    /// A key lives here.
    Active = 1,
    /// A thread wants to put its key here; the word is the nonce of the attempt.
    Claimed = 2,
}

/// The generation of a limit's numbers, modulo 32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Generation(u8);

impl Generation {
    pub(crate) fn next(self) -> Self {
        Self(GENERATION.get(GENERATION.put(u64::from(self.0) + 1)) as u8)
    }
}

/// Which key a slot holds: the limit and the fingerprint, in the bits of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyBits(u64);

impl KeyBits {
    const MASK: u64 = LIMIT.put(u64::MAX) | FINGERPRINT.put(u64::MAX);

    pub(crate) fn new(limit: u32, hash: u64) -> Self {
        Self(LIMIT.put(u64::from(limit)) | FINGERPRINT.put(hash))
    }

    /// A small number that is spread evenly over keys.
    pub(crate) fn spread(self) -> usize {
        FINGERPRINT.get(self.0) as usize
    }
}

/// What a bucket holds: the word, and the generation of the numbers that it was written under.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    pub(crate) generation: Generation,
    pub(crate) word: u64,
}

/// One slot, 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    tag: u64,
    pub(crate) word: u64,
}

impl Slot {
    pub(crate) const EMPTY: Self = Self { tag: 0, word: 0 };

    pub(crate) fn active(key: KeyBits, held: Held) -> Self {
        let generation = GENERATION.put(u64::from(held.generation.0));
        Self { tag: key.0 | generation | STATE.put(State::Active as u64), word: held.word }
    }

    pub(crate) fn claimed(key: KeyBits, nonce: u64) -> Self {
        Self { tag: key.0 | STATE.put(State::Claimed as u64), word: nonce }
    }

    pub(crate) fn state(self) -> State {
        match STATE.get(self.tag) {
            0 => State::Empty,
            1 => State::Active,
            _ => State::Claimed,
        }
    }

    pub(crate) fn holds(self, key: KeyBits) -> bool {
        self.tag & KeyBits::MASK == key.0 && self.state() != State::Empty
    }

    pub(crate) fn held(self) -> Held {
        Held { generation: Generation(GENERATION.get(self.tag) as u8), word: self.word }
    }

    /// The key of a slot that is not empty.
    pub(crate) fn key(self) -> KeyBits {
        KeyBits(self.tag & KeyBits::MASK)
    }

    /// Index of the limit that the slot's key counts for.
    pub(crate) fn limit(self) -> u32 {
        LIMIT.get(self.tag) as u32
    }

    /// A new key may take the slot, and nobody loses anything.
    pub(crate) fn is_free(self, now: Nanos) -> bool {
        match self.state() {
            State::Empty => true,
            State::Active => self.word <= now,
            State::Claimed => false,
        }
    }

    pub(crate) fn to_bits(self) -> u128 {
        u128::from(self.tag) << 64 | u128::from(self.word)
    }

    pub(crate) fn from_bits(bits: u128) -> Self {
        Self { tag: (bits >> 64) as u64, word: bits as u64 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_field_of_a_slot_survives_the_round_trip(limit in 0..LIMITS_MAX as u32, hash: u64, generation in 0u8..32, word: u64) {
            let key = KeyBits::new(limit, hash);
            let held = Held { generation: Generation(generation), word };
            let slot = Slot::from_bits(Slot::active(key, held).to_bits());
            prop_assert_eq!(slot.state(), State::Active);
            prop_assert_eq!(slot.key(), key);
            prop_assert_eq!(slot.limit(), limit);
            prop_assert_eq!(slot.held(), held);
            prop_assert!(slot.holds(key));
            let claim = Slot::from_bits(Slot::claimed(key, word).to_bits());
            prop_assert_eq!(claim.state(), State::Claimed);
            prop_assert_eq!((claim.key(), claim.word), (key, word));
            prop_assert!(!claim.is_free(u64::MAX));
        }
    }

    #[test]
    fn generations_come_round_after_32() {
        let after = |changes| (0..changes).fold(Generation::default(), |generation, _| generation.next());
        assert!((1..32).all(|changes| after(changes) != Generation::default()));
        assert_eq!(after(32), Generation::default());
    }

    #[test]
    fn the_tag_table_in_the_docs_states_the_constants() {
        let source = include_str!("word.rs");
        for (name, field) in
            [("state", STATE), ("generation", GENERATION), ("limit", LIMIT), ("fingerprint", FINGERPRINT)]
        {
            let row = format!("//! | {name} | {}..{} | {} |", field.shift + field.bits - 1, field.shift, field.bits);
            assert!(source.contains(&row), "the table lacks: {row}");
        }
    }
}
