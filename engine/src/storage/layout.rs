//! The bit layouts of a bucket state and of a slot. The whole state of a bucket is one word of 64 bits; a slot of the table
//! is a tag and a word, 128 bits that are swapped together.
//!
//! # The word
//!
//! Read as a number, every word is at least the instant ([`Nanos`]) from which its bucket is idle, and so equal to an absent
//! one, under the numbers that it was written under. A new key that needs a slot only has to compare `word <= now`, whatever
//! key the slot belongs to.
//!
//! | algorithm | high bits | low bits |
//! |---|---|---|
//! | `token_bucket`, `leaky_bucket` | instant at which the bucket is full again, nanoseconds | (the same number) |
//! | `fixed_window` | bits 63..25: end of the window, rounded up to 2^25 ns (34 ms) | bits 24..0: tokens used in it |
//! | `sliding_window_counter` | bits 63..29: end of the window after, rounded up to 2^29 ns (0.54 s) | bits 28..0: tokens used in it, and above them those of the window before |
//! | `sliding_window_log` | bits 63..13: when the youngest admission is a period old, rounded up to 2^13 ns (8 microseconds) | bits 12..0: tokens in use |
//!
//! The rounding and the counts only delay the instant, by less than 68 ms, 1.1 s and 25 microseconds: a live bucket never
//! looks idle.
//!
//! The word of a log that has a ring names the ring instead, as the tag says. It also begins with the instant:
//!
//! | field | bits | width | meaning |
//! |---|---|---|---|
//! | closed | 0..0 | 1 | a publish has changed the numbers: the ring admits no more |
//! | place | 21..1 | 21 | of the ring among those of its size |
//! | size | 25..22 | 4 | the ring has 2^size cells |
//! | life | 28..26 | 3 | how often the ring has been taken, modulo 8 |
//! | idle | 63..29 | 35 | an instant at which every admission is a period old, rounded up to 2^29 ns (0.54 s) |
//!
//! # The tag
//!
//! | field | bits | width | meaning |
//! |---|---|---|---|
//! | state | 1..0 | 2 | 0 empty, 1 active, 2 claimed, 3 active with a word that names a ring |
//! | generation | 6..2 | 5 | of the limit's numbers, modulo 32 |
//! | striped | 7..7 | 1 | stripes hold tokens of the key: the slot is not free, whatever its word says |
//! | limit | 27..8 | 20 | id of the limit, which may be another's later |
//! | fingerprint | 63..28 | 36 | of the counted identities |
//!
//! A key is compared with at most 40 slots, 32 of the table and eight overflow buckets of its limit, so it meets the equal tag
//! of another key with a probability of at most 40 x 2^-36 = 5.8 x 10^-10; among 100 million live keys that is 0.03 pairs
//! expected to share a bucket.

use std::num::NonZero;

use crate::base::{bit_field::Field, time::Nanos};

const STATE: Field = Field::lowest(2);
const GENERATION: Field = Field::above(STATE, GENERATION_BITS);
const STRIPED: Field = Field::above(GENERATION, 1);
const LIMIT: Field = Field::above(STRIPED, 20);
const FINGERPRINT: Field = Field::rest(LIMIT);

/// The most limits that an engine can know at a time.
pub(crate) const LIMITS_MAX: usize = LIMIT.max() as usize + 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    Empty,
    /// The slot belongs to a key.
    Active,
    /// A thread is putting its key here; the word is the nonce of the attempt.
    Claimed,
}

// The states of a slot, in the bits of a tag.
const EMPTY: u64 = 0;
const ACTIVE: u64 = 1;
const CLAIMED: u64 = 2;
const ACTIVE_WITH_RING: u64 = 3;

/// The number of bits that tell generations apart. Loom can walk through four generations, and see the first come
/// again.
pub(crate) const GENERATION_BITS: u32 = if cfg!(engine_loom) { 2 } else { 5 };

/// The generation of a limit's numbers, modulo 32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Generation(u8);

impl Generation {
    pub(crate) fn next(self) -> Self {
        Self(GENERATION.get(GENERATION.put(u64::from(self.0) + 1)) as u8)
    }

    /// Returns the generation as a number below 2^[`GENERATION_BITS`].
    pub(crate) fn number(self) -> u64 {
        u64::from(self.0)
    }
}

/// The key of a slot: the limit and the fingerprint, in the bits of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyBits(u64);

impl KeyBits {
    const MASK: u64 = LIMIT.put(u64::MAX) | FINGERPRINT.put(u64::MAX);

    pub(crate) fn new(limit: u32, hash: u64) -> Self {
        Self(LIMIT.put(u64::from(limit)) | FINGERPRINT.put(hash))
    }

    pub(crate) fn limit(self) -> u32 {
        LIMIT.get(self.0) as u32
    }

    /// Returns a number that is spread evenly over keys.
    pub(crate) fn spread(self) -> usize {
        FINGERPRINT.get(self.0) as usize
    }
}

/// The common tag of the keys of a limit in their slots, without the fingerprint: active, with a word that is the whole
/// state of a bucket under one generation of the numbers, and not striped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlainTag(NonZero<u64>);

impl PlainTag {
    pub(crate) fn new(limit: u32, generation: Generation) -> Self {
        let rest = LIMIT.put(u64::from(limit)) | GENERATION.put(generation.number());
        Self(NonZero::<u64>::MIN | rest)
    }

    /// Returns the whole tag of the key with this hash.
    #[inline(always)]
    pub(crate) fn of(self, hash: u64) -> u64 {
        self.0.get() | FINGERPRINT.put(hash)
    }
}

// A [`PlainTag`] begins with the state `ACTIVE`.
const _: () = assert!(ACTIVE == 1 && STATE.shift == 0);

const CLOSED: Field = Field::lowest(1);
const PLACE: Field = Field::above(CLOSED, 21);
const SIZE: Field = Field::above(PLACE, 4);
const LIFE: Field = Field::above(SIZE, LIFE_BITS);
const IDLE: Field = Field::rest(LIFE);

/// Nanoseconds of one unit of the idle field.
const IDLE_UNIT_NS: u64 = 1 << (u64::BITS - IDLE.bits);

/// The number of bits that tell the lives of a ring apart.
pub(crate) const LIFE_BITS: u32 = 3;

/// The most rings of one size.
pub(crate) const RINGS_MAX: usize = PLACE.max() as usize + 1;

/// The name of a ring from when it is taken until it is put back, in the bits of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingId(u64);

impl RingId {
    const MASK: u64 = PLACE.put(u64::MAX) | SIZE.put(u64::MAX) | LIFE.put(u64::MAX);

    /// Names the ring of 2^`size` cells at `place`; only the lowest bits of `life` are kept.
    pub(crate) fn new(size: usize, place: usize, life: u64) -> Self {
        Self(SIZE.put(size as u64) | PLACE.put(place as u64) | LIFE.put(life))
    }

    pub(crate) fn size(self) -> usize {
        SIZE.get(self.0) as usize
    }

    pub(crate) fn place(self) -> usize {
        PLACE.get(self.0) as usize
    }

    pub(crate) fn life(self) -> u64 {
        LIFE.get(self.0)
    }
}

/// The word of a log that has a ring: it names the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingWord(u64);

impl RingWord {
    pub(crate) fn new(ring: RingId, idle: Nanos) -> Self {
        Self(IDLE.put(idle.div_ceil(IDLE_UNIT_NS).min(IDLE.max())) | ring.0)
    }

    pub(crate) fn ring(self) -> RingId {
        RingId(self.0 & RingId::MASK)
    }

    pub(crate) fn idle(self) -> Nanos {
        IDLE.get(self.0) * IDLE_UNIT_NS
    }

    pub(crate) fn closed(self) -> Self {
        Self(self.0 | CLOSED.put(1))
    }

    pub(crate) fn is_closed(self) -> bool {
        CLOSED.get(self.0) == 1
    }
}

/// The state of a bucket: the word, and the generation of the numbers under which it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BucketState {
    pub(crate) generation: Generation,
    pub(crate) word: u64,
    /// Whether the word names a ring: see [`ring`](Self::ring).
    pub(crate) is_ring: bool,
    /// Whether stripes hold some of the bucket's tokens (`striping.rs`); the word does not count those as used.
    pub(crate) is_striped: bool,
}

impl BucketState {
    /// Returns a state whose word says all of it.
    pub(crate) fn word(generation: Generation, word: u64) -> Self {
        Self { generation, word, is_ring: false, is_striped: false }
    }

    /// Returns a state whose word names a ring.
    pub(crate) fn with_ring(generation: Generation, word: RingWord) -> Self {
        Self { generation, word: word.0, is_ring: true, is_striped: false }
    }

    /// Returns the word as the name of a ring, if it is one.
    pub(crate) fn ring(self) -> Option<RingWord> {
        self.is_ring.then_some(RingWord(self.word))
    }
}

/// Returns whether the tag of a slot is this [plain tag](PlainTag::of), except perhaps for the bit of striping.
#[inline(always)]
pub(crate) fn is_tag(of_slot: u64, plain: u64) -> bool {
    of_slot & !STRIPED.put(1) == plain
}

/// One slot of the table: a tag and a word, 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    tag: u64,
    pub(crate) word: u64,
}

impl Slot {
    pub(crate) const EMPTY: Self = Self { tag: 0, word: 0 };

    /// Makes the slot of a key whose bucket has this state.
    pub(crate) fn active(key: KeyBits, held: BucketState) -> Self {
        let generation = GENERATION.put(held.generation.number());
        let state = STATE.put(if held.is_ring { ACTIVE_WITH_RING } else { ACTIVE });
        Self { tag: key.0 | STRIPED.put(held.is_striped.into()) | generation | state, word: held.word }
    }

    /// Makes a slot of the bits of a tag, such as those of a [`PlainTag`], and a word.
    #[inline(always)]
    pub(crate) fn with_tag(tag: u64, word: u64) -> Self {
        Self { tag, word }
    }

    #[inline(always)]
    pub(crate) fn tag(self) -> u64 {
        self.tag
    }

    /// Returns whether this is the striped slot of the key whose [`PlainTag`] is `tag`.
    pub(crate) fn is_striped_of(self, tag: u64) -> bool {
        self.tag == tag | STRIPED.put(1)
    }

    /// Makes a slot that a thread claims for a key.
    pub(crate) fn claimed(key: KeyBits, nonce: u64) -> Self {
        Self { tag: key.0 | STATE.put(CLAIMED), word: nonce }
    }

    pub(crate) fn state(self) -> SlotState {
        match STATE.get(self.tag) {
            EMPTY => SlotState::Empty,
            CLAIMED => SlotState::Claimed,
            _ => SlotState::Active,
        }
    }

    /// Returns whether the slot is this key's, active or claimed.
    pub(crate) fn holds(self, key: KeyBits) -> bool {
        self.tag & KeyBits::MASK == key.0 && self.state() != SlotState::Empty
    }

    pub(crate) fn held(self) -> BucketState {
        let generation = Generation(GENERATION.get(self.tag) as u8);
        let is_ring = STATE.get(self.tag) == ACTIVE_WITH_RING;
        BucketState { generation, word: self.word, is_ring, is_striped: STRIPED.get(self.tag) == 1 }
    }

    /// Returns the ring that the slot's word names.
    pub(crate) fn ring(self) -> Option<RingId> {
        self.held().ring().map(RingWord::ring)
    }

    /// Returns the ring that no slot names any more when `after` takes the place of this one.
    pub(crate) fn ring_left_for(self, after: Self) -> Option<RingId> {
        self.ring().filter(|ring| after.ring() != Some(*ring))
    }

    /// Returns the key of a slot that is not empty.
    pub(crate) fn key(self) -> KeyBits {
        KeyBits(self.tag & KeyBits::MASK)
    }

    /// Returns the id of the limit that the slot's key counts for.
    pub(crate) fn limit(self) -> u32 {
        self.key().limit()
    }

    /// Returns the id of the limit whose key holds the slot, or held it last; `None` where none did.
    pub(crate) fn owner(self) -> Option<u32> {
        (self.state() != SlotState::Empty).then(|| self.limit())
    }

    /// Returns the instant from which a new key may take the slot; the end of time where the slot does not say.
    pub(crate) fn idle_at(self) -> Nanos {
        match self.state() {
            SlotState::Empty => 0,
            SlotState::Active if STRIPED.get(self.tag) == 0 => self.word,
            SlotState::Active | SlotState::Claimed => Nanos::MAX,
        }
    }

    /// Returns whether a new key may take the slot without any loss to the present one.
    pub(crate) fn is_free(self, now: Nanos) -> bool {
        match self.state() {
            SlotState::Empty => true,
            SlotState::Active => self.word <= now && STRIPED.get(self.tag) == 0,
            SlotState::Claimed => false,
        }
    }

    /// Returns about since when a [free](Self::is_free) slot is idle. An empty slot counts as idle for longer than any
    /// other, except for those that were just reset.
    pub(crate) fn idle_since(self) -> Nanos {
        self.word
    }

    pub(crate) fn to_bits(self) -> u128 {
        u128::from(self.tag) << 64 | u128::from(self.word)
    }

    pub(crate) fn from_bits(bits: u128) -> Self {
        Self { tag: (bits >> 64) as u64, word: bits as u64 }
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_field_of_a_slot_survives_the_round_trip(limit in 0..LIMITS_MAX as u32, hash: u64, generation in 0u8..32, word: u64, is_ring: bool, is_striped: bool) {
            let key = KeyBits::new(limit, hash);
            let held = BucketState { generation: Generation(generation), word, is_ring, is_striped };
            let slot = Slot::from_bits(Slot::active(key, held).to_bits());
            prop_assert_eq!(slot.state(), SlotState::Active);
            prop_assert_eq!(slot.key(), key);
            prop_assert_eq!(slot.limit(), limit);
            prop_assert_eq!(slot.held(), held);
            prop_assert_eq!(slot.ring().is_some(), is_ring);
            prop_assert!(slot.holds(key));
            prop_assert_eq!(slot.is_free(u64::MAX), !is_striped);
            prop_assert_eq!((slot.owner(), slot.idle_at()), (Some(limit), if is_striped { Nanos::MAX } else { word }));
            let claim = Slot::from_bits(Slot::claimed(key, word).to_bits());
            prop_assert_eq!(claim.state(), SlotState::Claimed);
            prop_assert_eq!((claim.key(), claim.word), (key, word));
            prop_assert!(!claim.is_free(u64::MAX));
            prop_assert_eq!((claim.owner(), claim.idle_at()), (Some(limit), Nanos::MAX));
            prop_assert_eq!((Slot::EMPTY.owner(), Slot::EMPTY.idle_at()), (None, 0));
        }
    }

    proptest! {
        #[test]
        fn every_field_of_a_ring_word_survives_the_round_trip(size in 0..16usize, place in 0..RINGS_MAX, life in 0..8u64, idle: Nanos) {
            let ring = RingId::new(size, place, life);
            prop_assert_eq!((ring.size(), ring.place(), ring.life()), (size, place, life));
            let word = RingWord::new(ring, idle);
            prop_assert_eq!(word.ring(), ring);
            prop_assert!(!word.is_closed() && word.closed().is_closed());
            prop_assert_eq!((word.closed().ring(), word.closed().idle()), (ring, word.idle()));
            // The field is not before the instant, except at the end of time, and less than a unit after it.
            prop_assert!(word.idle() >= idle.min(IDLE.put(u64::MAX)) && word.idle().saturating_sub(idle) < IDLE_UNIT_NS);
            prop_assert!(word.0 >= word.idle() && word.0 < word.idle().saturating_add(IDLE_UNIT_NS));
        }
    }

    #[test]
    fn generations_repeat_after_32() {
        let after = |changes| (0..changes).fold(Generation::default(), |generation, _| generation.next());
        assert!((1..32).all(|changes| after(changes) != Generation::default()));
        assert_eq!(after(32), Generation::default());
    }

    #[test]
    fn the_tables_in_the_docs_state_the_constants() {
        let source = include_str!("layout.rs");
        let tag = [
            ("state", STATE),
            ("generation", GENERATION),
            ("striped", STRIPED),
            ("limit", LIMIT),
            ("fingerprint", FINGERPRINT),
        ];
        let ring_word = [("closed", CLOSED), ("place", PLACE), ("size", SIZE), ("life", LIFE), ("idle", IDLE)];
        for (name, field) in tag.into_iter().chain(ring_word) {
            let row = format!("//! | {name} | {}..{} | {} |", field.shift + field.bits - 1, field.shift, field.bits);
            assert!(source.contains(&row), "the table lacks: {row}");
        }
    }
}
