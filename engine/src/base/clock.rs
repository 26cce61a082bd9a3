//! Clocks: the sources of the engine's time.
//!
//! | clock | a reading costs | it shows | for |
//! |---|---|---|---|
//! | [`SystemClock`] | 22 ns | the time, to the microsecond | everything, unless a profile says otherwise |
//! | [`CoarseClock`] | 1 ns | the time of its last tick | checks in a tight loop, of limits that can be a tick late |
//! | [`ManualClock`] | 1 ns | the time that it was set to | tests and simulation |
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

use std::time::Duration;

use crate::base::{
    atomic::Cell64,
    time::{Nanos, Timestamp},
};

/// A source of time for limiters and engines.
///
/// # Wall time that is set back
///
/// The time must never go back for any thread, and over threads by no more than a microsecond: a clock that is behind mints
/// nothing, it only denies. So a clock whose wall time is set back by an hour goes on, and is an hour [ahead](Self::ahead)
/// of wall time from then on. Everything that the engine stores is an instant of the clock, not of wall time:
///
/// | stored | when wall time is set back |
/// |---|---|
/// | the words of token and leaky buckets, the instants of logs, the instants of stripes, when slots and rings are idle | stay as they are. No key waits longer because of it, and nothing is repaid twice |
/// | the words of windows | the count of the present window goes on in the window of the new wall time, once the engine [follows](crate::Engine::follow_wall_time): at most one limit more is admitted to a key, since that window may end earlier, and a key that used its limit up waits no longer than such a key ever does |
/// | the ends of overrides | are of wall time, and are compared with it |
///
/// Wall time that is set forward takes back what the clock is ahead, and the clock jumps by the rest. After a jump every
/// bucket and log may be full again and every window be a new one: at most one burst is minted for each key.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time now.
    fn now(&self) -> Timestamp;

    /// Returns how far the time is ahead of wall time because wall time was set back.
    fn ahead(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns wall time now, as far as the clock follows it. It may go back.
    fn wall(&self) -> Timestamp {
        self.now() - self.ahead()
    }

    /// Returns the steps of wall time that the clock has met.
    fn wall_steps(&self) -> WallSteps {
        WallSteps::default()
    }

    /// Returns how far a reading may be behind by design. The wait of a denied request is longer by as much, so that waiting
    /// exactly that long is enough.
    fn resolution(&self) -> Duration {
        Duration::ZERO
    }
}

/// Steps of wall time that a clock has met: changes by more than it follows little by little.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct WallSteps {
    /// Steps forward.
    pub forward: u64,
    /// Steps back for which the clock stood still.
    pub stops: u64,
    /// Steps back after which the clock goes on ahead of wall time.
    pub anchors: u64,
    /// Whether the clock stands still now.
    pub is_standing: bool,
    /// The last step.
    pub last: Option<WallStep>,
}

/// A step of wall time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WallStep {
    /// The clock's own time when it met the step.
    pub at: Timestamp,
    /// The size of the step.
    pub size: Duration,
    /// Whether wall time went back.
    pub is_back: bool,
}

/// Moves `shown` to `now`, or leaves it where it is if `now` is in the past.
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
