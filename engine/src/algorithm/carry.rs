//! Carry-over: conversion of used quota when a limit's numbers change.

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// Tokens in use, in units of 2^-16 token. Used quota is carried from one set of numbers to another in this form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Used(pub(super) u128);

impl Used {
    pub(super) const FRACTION_BITS: u32 = 16;

    #[must_use]
    pub(crate) fn whole(tokens: u64) -> Self {
        Self(u128::from(tokens) << Self::FRACTION_BITS)
    }

    /// Returns whole tokens, rounded up.
    pub(super) fn ceil(self) -> u64 {
        u64::try_from(self.0.div_ceil(1 << Self::FRACTION_BITS)).unwrap_or(u64::MAX)
    }
}

/// The rule by which used quota carries over to a limit's new numbers. In documents: `keep`, `proportional`, `reset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum Carry {
    /// Used tokens stay used, up to the new capacity: 100 used of 100, raised to 1,000, leaves 900.
    #[default]
    Keep,
    /// The used share stays: 100 used of 100, raised to 1,000, leaves nothing. The result is rounded up to a whole
    /// token of a window; for a bucket, by less than 2^-16 of what one old token becomes.
    Proportional,
    /// Nothing stays used: 100 used of 100, raised to 1,000, leaves 1,000.
    Reset,
}

impl Carry {
    /// Converts `used` of a capacity of `from` tokens to a capacity of `to` tokens. The result is at most `to`.
    pub(super) fn carried(self, used: Used, from: u64, to: u64) -> Used {
        let carried = match self {
            Self::Keep => used.0,
            // At most 2^69 x 2^53. More than the capacity counts as the capacity.
            Self::Proportional => (used.0.min(Used::whole(from).0) * u128::from(to)).div_ceil(u128::from(from)),
            Self::Reset => 0,
        };
        Used(carried.min(Used::whole(to).0))
    }

    /// Does the same as [`carried`](Self::carried) for whole tokens.
    pub(super) fn carried_tokens(self, used: u64, from: u64, to: u64) -> u64 {
        self.carried(Used::whole(used), from, to).ceil()
    }
}
