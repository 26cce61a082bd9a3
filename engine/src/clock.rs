//! Clocks: where the engine's `now` comes from.
//!
//! | clock | a reading costs | it shows | for |
//! |---|---|---|---|
//! | [`SystemClock`] | 22 ns | the time, to the microsecond | everything, unless a profile says otherwise |
//! | [`CoarseClock`] | 1 ns | the time of its last tick | checks in a tight loop, of limits that can be a tick late |
//! | [`ManualClock`] | 1 ns | what it was told | tests and simulation |
//!
//! (One thread, on a shared two-core virtual machine with an Intel Xeon of 2023: for orientation.)

mod coarse;
mod counter;
mod manual;
mod steering;
mod system;

pub use coarse::{CoarseClock, TickError};
pub use manual::ManualClock;
pub use system::SystemClock;

use crate::{sync::Cell64, time::Nanos};

/// Gives the time, in nanoseconds since the Unix epoch.
///
/// Must never go back for any thread, and over threads by no more than a microsecond: a clock that is behind mints nothing,
/// it only denies.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Nanos;

    /// How far a reading may be behind by design, in nanoseconds. A denied request is told to wait so much longer, so that
    /// waiting exactly that long is enough.
    fn resolution_ns(&self) -> u64 {
        0
    }
}

/// Moves `shown` to `now`, or leaves it where it is when that is in the past.
fn raise(shown: &Cell64, now: Nanos) {
    let mut seen = shown.load();
    while seen < now {
        match shown.compare_exchange(seen, now) {
            Ok(_) => return,
            Err(newer) => seen = newer,
        }
    }
}

#[cfg(all(test, not(engine_loom)))]
mod histories;
