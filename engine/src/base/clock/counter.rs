//! The counter that moves [`SystemClock`](super::SystemClock) between two readings of the system's clocks: the
//! processor's time stamp counter, where it ticks evenly; elsewhere the monotonic clock of the operating system.
//!
//! The instruction (`rdtsc`) may run a little before the loads that stand before it: measured, a tenth of the readings
//! that followed another thread's were below it, by up to 0.7 microseconds. The instruction that waits for those loads
//! (`rdtscp`) takes 37 ns where this one takes 22, in every check; and every algorithm withstands what a late clock can
//! do to a bucket.

use std::time::Instant;

/// The counter runs slow by one part in this many, so that the clock can be steered both ways by moving it forward
/// only.
const SLOW: u64 = 1_024;

/// A scale of 1: scales are nanoseconds per tick, in units of 2^-32.
const ONE: u64 = 1 << 32;

/// Counts nanoseconds, a 1,024th slow. Clones count alike.
#[derive(Clone, Copy, Debug)]
pub(super) enum TickCounter {
    #[cfg(target_arch = "x86_64")]
    Tsc {
        scale: u64,
    },
    Os,
}

impl TickCounter {
    /// Returns the fastest counter of this machine.
    pub(super) fn fastest() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(scale) = tsc::scale() {
            return Self::Tsc { scale };
        }
        Self::Os
    }

    /// Reads the counter. A time stamp counter may be read a microsecond before this thread's last operation. `start` is the same
    /// at every call.
    #[inline]
    pub(super) fn read(self, start: Instant) -> u64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Tsc { scale } => scaled(tsc::ticks(), scale),
            Self::Os => scaled(ns_since(start), ONE - ONE / SLOW),
        }
    }
}

#[inline]
fn scaled(ticks: u64, scale: u64) -> u64 {
    ((u128::from(ticks) * u128::from(scale)) >> 32) as u64
}

/// Returns the nanoseconds of the monotonic clock, which stands still while the machine sleeps; 584 years fit.
#[inline]
pub(super) fn ns_since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

#[cfg(target_arch = "x86_64")]
mod tsc {
    use std::{arch::x86_64::__cpuid, sync::OnceLock, time::Instant};

    use super::{ONE, SLOW, ns_since};

    /// The precision of the scale: one part in this many, well within what steering evens out (a 2,048th).
    const PRECISION: u64 = 50_000;

    /// The nanoseconds after which calibration gives up. It takes 2 ms on an idle processor.
    const PATIENCE_NS: u64 = 200_000_000;

    #[inline]
    pub(super) fn ticks() -> u64 {
        safe_arch::read_timestamp_counter()
    }

    /// Returns the scale of a counter that runs a 1,024th slow; `None` where there is no reliable counter. Measured once per
    /// process.
    pub(super) fn scale() -> Option<u64> {
        static SCALE: OnceLock<Option<u64>> = OnceLock::new();
        *SCALE.get_or_init(|| if is_reliable() { calibrate() } else { None })
    }

    /// Returns whether the counter ticks evenly, whatever the processor's frequency and sleep (and, under a hypervisor that says
    /// so, also after the machine moved).
    fn is_reliable() -> bool {
        const LEAVES: u32 = 0x8000_0000;
        const POWER: u32 = 0x8000_0007;
        __cpuid(LEAVES).eax >= POWER && __cpuid(POWER).edx >> 8 & 1 == 1
    }

    /// The counter between two readings of the monotonic clock.
    #[derive(Clone, Copy)]
    struct Pair {
        ticks: u64,
        from_ns: u64,
        to_ns: u64,
    }

    impl Pair {
        fn read(start: Instant) -> Self {
            let from_ns = ns_since(start);
            let ticks = ticks();
            Self { ticks, from_ns, to_ns: ns_since(start) }
        }

        fn width_ns(&self) -> u64 {
            self.to_ns - self.from_ns
        }
    }

    /// Compares the counter with the monotonic clock until the possible error is small. A thread that is stopped between two
    /// readings makes a wide pair, which only makes this take longer.
    fn calibrate() -> Option<u64> {
        #[expect(clippy::disallowed_methods, reason = "a clock is made here")]
        let start = Instant::now();
        let first = (0..16).map(|_| Pair::read(start)).min_by_key(Pair::width_ns)?;
        loop {
            let last = Pair::read(start);
            let (ns, ticks) = (last.from_ns.saturating_sub(first.from_ns), last.ticks.saturating_sub(first.ticks));
            if (first.width_ns() + last.width_ns()).saturating_mul(PRECISION) < ns && ticks > 0 {
                let scale = u64::try_from((u128::from(ns) << 32) / u128::from(ticks)).ok()?;
                // No processor ticks slower than once a nanosecond times 64, nor faster than 64 times in one.
                return (ONE / 64..ONE * 64).contains(&scale).then_some(scale - scale / SLOW);
            }
            if ns > PATIENCE_NS {
                return None;
            }
        }
    }
}
