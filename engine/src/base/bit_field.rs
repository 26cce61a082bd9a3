//! Bit fields: parts of a `u64`, each placed above its neighbour, so that no position is typed.

/// A bit field of a `u64`, placed right above its neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Field {
    pub(crate) shift: u32,
    pub(crate) bits: u32,
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
