//! The system clock, the engine's precise clock: follows wall time and never goes back.

use std::{
    sync::{Arc, Mutex, TryLockError},
    time::{Duration, Instant, SystemTime},
};

use crossbeam_utils::CachePadded;

use super::{
    Clock, WallSteps,
    counter::{TickCounter, ns_since},
    steering::{ANCHOR_NS, ClockLine, ClockSample, Reading, Steering},
};
use crate::base::{
    atomic::Cell64,
    lock::lock,
    time::{Nanos, SECOND_NS, Timestamp},
};

/// The longest time, in nanoseconds, that a sample may take to measure a step, if a better one can be had.
const SAMPLE_NS_MAX: u64 = 10_000;

/// The default bound up to which the clock follows changes of wall time gradually.
const STEP: Duration = Duration::from_secs(1);

/// The default clock: shows wall time and never goes back.
///
/// It starts at wall time and moves with the monotonic clock. When wall time is set, the clock reacts by the size of the change:
///
/// | wall time is set | the clock |
/// |---|---|
/// | by a second or less, either way ([`with_step`](Self::with_step) chooses another bound) | follows by going at most 500 parts in a million faster or slower: a second takes half an hour |
/// | forward by more | jumps to it |
/// | back by more, but less than a minute | stands still until wall time has caught up, for a minute at most |
/// | back by a minute or more | goes on, and is so far [ahead](Clock::ahead) of wall time. [`Engine::follow_wall_time`](crate::Engine::follow_wall_time) then has windows begin and end by wall time again |
///
/// While it is ahead, a step forward makes it less so, and the clock jumps by the rest alone. After the machine slept it
/// jumps too, by the time slept at most, towards wall time. It goes back for no thread; a reading may be below one of
/// another processor by what processors reorder, under a microsecond. [`wall_steps`](Clock::wall_steps) counts the steps.
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
    counter: TickCounter,
    start: Instant,
    /// The value of [`ClockLine::from`].
    from: Cell64,
    /// The value of [`ClockLine::offset`].
    offset: Cell64,
    steering: Mutex<Steering>,
    /// The value at the last step.
    ahead: Cell64,
}

impl SystemClock {
    /// The least bound of [`with_step`](Self::with_step). The clock follows a change of this size within half a minute.
    pub const STEP_MIN: Duration = Duration::from_millis(10);

    /// The largest bound of [`with_step`](Self::with_step). The clock does not wait for wall time that is set back by more.
    pub const STEP_MAX: Duration = Duration::from_nanos(ANCHOR_NS);

    /// Makes a clock that is at wall time now. The first clock of a process measures the processor's counter, for some
    /// milliseconds.
    #[must_use]
    pub fn new() -> Self {
        Self::moved_by(TickCounter::fastest(), STEP)
    }

    /// Makes a clock like [`new`](Self::new) that follows wall time at once where that is set by more than `step`, instead of a
    /// second. A `step` below 10 ms or above a minute is clamped to these bounds.
    #[must_use]
    pub fn with_step(step: Duration) -> Self {
        Self::moved_by(TickCounter::fastest(), step)
    }

    /// Makes a clock like [`new`](Self::new) that is moved by the operating system's monotonic clock, for machines whose kernel
    /// found the time stamp counter to be wrong.
    #[must_use]
    pub fn without_tsc() -> Self {
        Self::moved_by(TickCounter::Os, STEP)
    }

    fn moved_by(counter: TickCounter, step: Duration) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a clock is made here")]
        let start = Instant::now();
        // A minute at most.
        let bound_ns = step.clamp(Self::STEP_MIN, Self::STEP_MAX).as_nanos() as u64;
        let steering = Steering::new(&sample(counter, start), bound_ns);
        let ClockLine { from, offset } = steering.shown();
        Self(Arc::new(CachePadded::new(Shared {
            counter,
            start,
            from: Cell64::new(from),
            offset: Cell64::new(offset),
            steering: Mutex::new(steering),
            ahead: Cell64::new(0),
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
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.now())
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.0.ahead.load())
    }

    fn wall_steps(&self) -> WallSteps {
        lock(&self.0.steering).steps()
    }
}

impl Shared {
    #[inline(always)]
    fn now(&self) -> Nanos {
        // In this order, which `ClockLine::read` asks for.
        let (from, offset) = (self.from.load(), self.offset.load());
        match (ClockLine { from, offset }).read(self.counter.read(self.start)) {
            Reading::Time(time) => time,
            due => self.step(from, due),
        }
    }

    /// Makes a step for a reading; `from` is the start of its line.
    #[cold]
    fn step(&self, from: u64, reading: Reading) -> Nanos {
        let mut steering = match (self.steering.try_lock(), reading) {
            (Ok(steering), _) => steering,
            (Err(TryLockError::Poisoned(poisoned)), _) => poisoned.into_inner(),
            (Err(TryLockError::WouldBlock), Reading::Time(time) | Reading::Due(time)) => {
                // Another thread makes the step. If it has made it by now, the clock may have stopped before the counter was
                // read.
                return if self.from.load() == from { time } else { self.now() };
            }
            // A thread waits here while the clock stands, and just after the machine slept and its counter began anew. (Or where
            // this processor read early, within the nanoseconds between another thread's last store and its unlocking.)
            (Err(TryLockError::WouldBlock), Reading::Anew) => lock(&self.steering),
        };
        if let Some(time) = steering.stands_at(self.counter.read(self.start)) {
            return time;
        }
        let time = steering.step(&sample(self.counter, self.start));
        let ClockLine { from, offset } = steering.shown();
        // In this order: a thread that sees `from` sees the offset that belongs to it, or a newer one.
        self.offset.store(offset);
        self.from.store(from);
        self.ahead.store(steering.ahead());
        time
    }
}

/// Reads all clocks, and repeats that if this thread was stopped in between.
fn sample(counter: TickCounter, start: Instant) -> ClockSample {
    let read = || {
        // Before the monotonic clock: a stop in between makes the difference too small.
        let boottime = boottime_ns();
        let before = ns_since(start);
        let wall = wall();
        let counter = counter.read(start);
        ClockSample { asleep: boottime.saturating_sub(before), wall, counter, mono: [before, ns_since(start)] }
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
    let wall = SystemTime::now();
    Timestamp::from(wall).as_nanos()
}

/// Returns the monotonic clock including the time slept; always 0 where the system does not tell the difference.
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
