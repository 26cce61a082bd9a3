//! How [`SystemClock`](super::SystemClock) follows wall time: pure, so that tests can drive it through any history.
//!
//! A reading is `counter + offset`. The counter runs a 1,024th slow; the offset only ever rises, by what is missing, about
//! every 10 ms. So a reading is the sum of two numbers that never fall, and cannot fall itself, whichever thread loaded
//! which number when: but for the microsecond by which a processor may read its counter early.
//!
//! A counter may also begin anew while the machine sleeps. Whoever reads less than the line begins with makes a step before
//! anything else, also where only the processor read early. (That the counter has come past that place again before anybody looks at the clock, or that a thread is
//! stopped in the middle of a reading for as long, does not show; nor that it went on through one sleep and began anew in
//! the next, all between two steps.)
//!
//! How far the offset rises is bounded by the monotonic clock: from one step to the next the clock goes at most a 2,048th
//! (488 ppm) faster or slower than that, towards wall time. What a step misses by being measured late, it makes up for
//! later; it never overshoots. Between two steps the clock falls behind by at most 15 microseconds.

use crate::time::Nanos;

/// Steps are at least so far apart, in nanoseconds of the counter.
const STEP_NS: u64 = 10_000_000;

/// The clock is steered by at most one part in so many.
const SLEW: u64 = 2_048;

/// Wall times beyond this one, in the year 2518, count as this one: then 36 years of running still fit.
const WALL_MAX: Nanos = u64::MAX - (1 << 60);

/// What all clocks say at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Time that the machine has slept, in nanoseconds from some start. Rather read too low than too high.
    pub(super) asleep: u64,
    /// The monotonic clock, which does not count sleep, before and after the counter was read.
    pub(super) mono: [u64; 2],
    /// Nanoseconds since the Unix epoch; 0 before it.
    pub(super) wall: Nanos,
    pub(super) counter: u64,
}

impl Sample {
    /// How long it took to read, in nanoseconds.
    pub(super) fn width_ns(&self) -> u64 {
        let [before, after] = self.mono;
        after.saturating_sub(before)
    }
}

/// The line on which the clock moves until the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line {
    /// The counter at the last step.
    pub(super) from: u64,
    /// What is added to the counter, wrapping: a wall clock may show less than the counter.
    pub(super) offset: u64,
}

/// What a counter reading means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// The time.
    Time(Nanos),
    /// The time, and a step is due.
    Due(Nanos),
    /// The counter is below what it was at the last step: it began anew while the machine slept. A step is needed before
    /// there is a time.
    Anew,
}

impl Line {
    /// The line must have been loaded before `counter` was read, and `from` before `offset`.
    #[inline]
    pub(super) fn read(self, counter: u64) -> Reading {
        let time = counter.wrapping_add(self.offset);
        if counter.wrapping_sub(self.from) < STEP_NS {
            Reading::Time(time)
        } else if counter >= self.from {
            Reading::Due(time)
        } else {
            Reading::Anew
        }
    }

    fn through(counter: u64, time: Nanos) -> Self {
        Self { from: counter, offset: time.wrapping_sub(counter) }
    }

    /// The time at the last step.
    pub(super) fn start(self) -> Nanos {
        self.from.wrapping_add(self.offset)
    }
}

/// Where the clock is, and what it was steered by.
#[derive(Debug)]
pub(super) struct Steering {
    line: Line,
    /// The monotonic clock before and after the counter was read at the last step.
    mono: [u64; 2],
    /// The sleep that the clock has made up for, or had its chance to.
    pub(super) asleep: u64,
}

impl Steering {
    /// Starts at wall time.
    pub(super) fn new(now: &Sample) -> Self {
        let line = Line::through(now.counter, now.wall.min(WALL_MAX));
        Self { line, mono: now.mono, asleep: now.asleep }
    }

    pub(super) fn line(&self) -> Line {
        self.line
    }

    /// Makes a step: towards wall time, as far as the time since the last step and the sleep in it allow.
    pub(super) fn step(&mut self, now: &Sample) -> Line {
        let start = self.line.start();
        let ([before, after], [now_before, now_after]) = (self.mono, now.mono);
        let (elapsed_min, elapsed_max) = (now_before.saturating_sub(after), now_after.saturating_sub(before));
        let slept = now.asleep.saturating_sub(self.asleep);
        let (even, slew) = (start.saturating_add(elapsed_min), elapsed_min / SLEW);
        let steered = now.wall.min(WALL_MAX).clamp(even - slew, even.saturating_add(slew).saturating_add(slept));
        // What others may have read by now. If the counter began anew, they have read less than one that did not.
        let moved = now.counter.checked_sub(self.line.from).unwrap_or(elapsed_max);
        self.line = Line::through(now.counter, steered.max(start.saturating_add(moved)));
        // Sleep that the counter went on through counts once, if it falls into a sample and shows in the next one.
        self.asleep = now.asleep.max(self.asleep.saturating_add(moved.saturating_sub(elapsed_min)));
        self.mono = now.mono;
        self.line
    }
}
