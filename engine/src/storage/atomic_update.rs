//! The compare-and-swap loop: applies a pure transition to an atomic cell until it succeeds.

use crate::{
    base::atomic::{Cell64, Cell128},
    storage::layout::Slot,
};

/// The result of a transition: whether to write, and the answer to the caller.
#[derive(Debug)]
pub(crate) enum Next<V, T> {
    /// Writes `V`, then returns the answer.
    Write(V, T),
    /// Writes nothing, and returns the answer.
    Leave(T),
}

/// An atomic cell whose value [`update`] can load and swap.
pub(crate) trait Swap {
    type Value: Copy;
    fn load(&self) -> Self::Value;
    fn swap(&self, current: Self::Value, new: Self::Value) -> Result<(), Self::Value>;
}

impl Swap for Cell64 {
    type Value = u64;

    fn load(&self) -> u64 {
        self.load()
    }

    fn swap(&self, current: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(current, new).map(drop)
    }
}

impl Swap for Cell128 {
    type Value = Slot;

    fn load(&self) -> Slot {
        Slot::from_bits(self.load())
    }

    fn swap(&self, current: Slot, new: Slot) -> Result<(), Slot> {
        self.compare_exchange(current.to_bits(), new.to_bits()).map(drop).map_err(Slot::from_bits)
    }
}

/// Applies `transition` to the value of `cell` until a swap succeeds or there is nothing to write. `seen` is the value
/// to begin with. Adds the lost races to `retries`.
///
/// After every lost race `transition` is called again with the newer value, so it must be a pure function of that
/// value.
#[inline(always)]
pub(crate) fn update<C: Swap, T>(
    cell: &C,
    mut seen: C::Value,
    retries: &mut u64,
    mut transition: impl FnMut(C::Value) -> Next<C::Value, T>,
) -> T {
    loop {
        match transition(seen) {
            Next::Leave(answer) => return answer,
            Next::Write(new, answer) => match cell.swap(seen, new) {
                Ok(()) => return answer,
                Err(newer) => {
                    *retries += 1;
                    seen = newer;
                }
            },
        }
    }
}
