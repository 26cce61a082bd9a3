//! The precise clock.

use std::{
    sync::{Arc, Mutex, PoisonError, TryLockError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use crossbeam_utils::CachePadded;

use super::{
    Clock,
    counter::{Counter, ns_since},
    steering::{Line, Reading, Sample, Steering},
};
use crate::{
    sync::Cell64,
    time::{Nanos, SECOND_NS},
};

/// A step is not measured by a sample that took longer than this, nanoseconds, if a better one can be had.
const SAMPLE_NS_MAX: u64 = 10_000;

/// Wall time, without its jumps: the default.
///
/// Starts at wall time and moves with the monotonic clock. Where wall time is set otherwise it follows, by going at most
/// 500 parts in a million faster or slower: an hour off takes twelve weeks, a second half an hour. It jumps forward only
/// after the machine slept, by the time slept at most, towards wall time. For no thread does it go back; a reading may be
/// below one of another processor by what processors reorder, under a microsecond.
///
/// That a machine sleeps shows on Linux only. Elsewhere, and in a virtual machine that is stopped from outside and whose
/// counter stands still meanwhile, the time lost is a difference to wall time like any other.
///
/// Reads the processor's time stamp counter where that is there and ticks evenly, else the operating system's monotonic
/// clock. About every 10 ms one of the threads that read the clock reads the system's clocks too (no system call where
/// the kernel offers them without, as Linux does since 5.3), and the others go on meanwhile.
///
/// Clones show the same time.
#[derive(Clone, Debug)]
pub struct SystemClock(Arc<CachePadded<Shared>>);

#[derive(Debug)]
struct Shared {
    counter: Counter,
    start: Instant,
    /// [`Line::from`].
    from: Cell64,
    /// [`Line::offset`].
    offset: Cell64,
    steering: Mutex<Steering>,
}

impl SystemClock {
    /// A clock that is at wall time now. The first of a process measures the processor's counter, for some milliseconds.
    #[must_use]
    pub fn new() -> Self {
        Self::moved_by(Counter::fastest())
    }

    /// As [`new`](Self::new), moved by the operating system's monotonic clock: for machines whose kernel found the time
    /// stamp counter to be wrong.
    #[must_use]
    pub fn without_tsc() -> Self {
        Self::moved_by(Counter::Os)
    }

    fn moved_by(counter: Counter) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a clock is made here")]
        let start = Instant::now();
        let steering = Steering::new(&sample(counter, start));
        let Line { from, offset } = steering.line();
        Self(Arc::new(CachePadded::new(Shared {
            counter,
            start,
            from: Cell64::new(from),
            offset: Cell64::new(offset),
            steering: Mutex::new(steering),
        })))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Nanos {
        let shared = &**self.0;
        // In this order, which `Line::read` asks for.
        let (from, offset) = (shared.from.load(), shared.offset.load());
        match (Line { from, offset }).read(shared.counter.read(shared.start)) {
            Reading::Time(time) => time,
            due => shared.step(due),
        }
    }
}

impl Shared {
    #[cold]
    fn step(&self, reading: Reading) -> Nanos {
        let mut steering = match (self.steering.try_lock(), reading) {
            (Ok(steering), _) => steering,
            (Err(TryLockError::Poisoned(poisoned)), _) => poisoned.into_inner(),
            // Another thread is at it.
            (Err(TryLockError::WouldBlock), Reading::Time(time) | Reading::Due(time)) => return time,
            // The one case in which a thread waits: just after the machine slept, and its counter began anew. (Or where this
            // processor read early, within the nanoseconds between another thread's last store and its unlocking.)
            (Err(TryLockError::WouldBlock), Reading::Anew) => {
                self.steering.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        let line = steering.step(&sample(self.counter, self.start));
        // In this order: whoever sees `from` sees the offset that belongs to it, or a newer one.
        self.offset.store(line.offset);
        self.from.store(line.from);
        line.start()
    }
}

/// Reads all clocks; again if this thread was stopped in between.
fn sample(counter: Counter, start: Instant) -> Sample {
    let read = || {
        // Before the monotonic clock: a stop in between makes the difference too small.
        let boottime = boottime_ns();
        let before = ns_since(start);
        let wall = wall();
        let counter = counter.read(start);
        Sample { asleep: boottime.saturating_sub(before), wall, counter, mono: [before, ns_since(start)] }
    };
    let mut sample = read();
    for _ in 0..8 {
        if sample.width_ns() <= SAMPLE_NS_MAX {
            break;
        }
        sample = read();
    }
    sample
}

fn wall() -> Nanos {
    #[expect(clippy::disallowed_methods, reason = "the one place where wall time enters the engine")]
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
}

/// The monotonic clock together with the time slept; always 0 where the difference cannot be told.
fn boottime_ns() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, ns) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
        seconds.saturating_mul(SECOND_NS).saturating_add(ns)
    }
    #[cfg(not(target_os = "linux"))]
    0
}
