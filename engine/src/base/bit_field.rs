//! Bit fields of a `u64`. Each field is placed above its neighbour, so no bit position is written by hand.

/// A bit field of a `u64`, placed right above its neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Field {
    pub(crate) shift: u32,
    pub(crate) bits: u32,
}

impl Field {
    /// Returns the field of the lowest `bits` bits.
    pub(crate) const fn lowest(bits: u32) -> Self {
        Self { shift: 0, bits }
    }

    /// Returns the field of the `bits` bits right above `below`.
    pub(crate) const fn above(below: Self, bits: u32) -> Self {
        Self { shift: below.shift + below.bits, bits }
    }

    /// Returns the field of all bits above `below`.
    pub(crate) const fn rest(below: Self) -> Self {
        Self { shift: below.shift + below.bits, bits: u64::BITS - below.shift - below.bits }
    }

    /// Returns the field of all bits between two fields.
    pub(crate) const fn between(below: Self, above: Self) -> Self {
        let shift = below.shift + below.bits;
        Self { shift, bits: above.shift - shift }
    }

    /// Returns the largest value that fits.
    pub(crate) const fn max(self) -> u64 {
        u64::MAX >> (u64::BITS - self.bits)
    }

    /// Returns the value of this field in `word`.
    pub(crate) const fn get(self, word: u64) -> u64 {
        (word >> self.shift) & self.max()
    }

    /// Returns a word with `value` in this field and 0 elsewhere. Bits that do not fit are cut off.
    pub(crate) const fn put(self, value: u64) -> u64 {
        (value & self.max()) << self.shift
    }
}
