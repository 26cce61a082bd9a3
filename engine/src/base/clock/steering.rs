//! The steering of [`SystemClock`](super::SystemClock): the rules by which it follows wall time. They are pure
//! and read no clock, so that tests can drive them through any history.
//!
//! A reading is `counter + offset`. The counter runs a 1,024th slow; about every 10 ms the offset rises by the time
//! that is missing. So a reading is the sum of two numbers that do not fall, and cannot fall itself, whichever thread
//! loaded which number when, except for the microsecond by which a processor may read its counter early. (The offset
//! falls only while the clock stands still: see below.)
//!
//! A counter may also begin anew while the machine sleeps. A thread that reads less than the line begins with makes a
//! step before anything else, also where only the processor read early. (Three histories do not show: that the counter
//! has passed that place again before the next reading; that a thread was stopped in the middle of a reading for as
//! long; and that the counter went on through one sleep and began anew in the next, all between two steps.)
//!
//! The monotonic clock bounds how far the offset rises: from one step to the next the clock goes at most a 2,048th (488
//! ppm) faster or slower than that, towards wall time. A step that is measured late makes up for the difference later;
//! it never overshoots. Between two steps the clock falls behind by at most 15 microseconds.
//!
//! # Steps of wall time
//!
//! A difference to wall time above a bound, a second unless another is chosen, is not followed so slowly: an hour would
//! take twelve weeks. A sample distinguishes such a step from a thread that was stopped between two readings, because
//! it says between which instants of the monotonic clock wall time was read.
//!
//! * *Forward*: the clock jumps to wall time.
//! * *Back, by less than a minute*: the clock stands still until wall time has caught up. It stands for a minute at
//!   most, whatever wall time does meanwhile.
//! * *Back, by a minute or more*: the clock is anchored anew. It goes on, and is `ahead` of wall time by the step from
//!   then on. A later step forward first reduces `ahead`, and the clock jumps only by the rest: time that has passed
//!   once on the clock does not pass again.
//!
//! # Standing still
//!
//! A clock that stands has a line that no counter is on, so each reading takes the lock. The clock stops in two steps.
//! The first makes the line one of these; the second, whose counter is read after that, knows the latest reading that
//! can be, and stands there. Why no reading is later: a reading without the lock had a counter less than [`STEP_NS`]
//! above the beginning of its line, and the clock stops only where more has passed. A reading that found a step due,
//! while another thread had the lock, checked after it read its counter whether the line was still its own, so its
//! counter was read before the clock stopped. When the clock goes on, the offset is lower by the time that it stood; a
//! thread that loaded the older line reads a counter that is too far above its beginning for a reading without a step.

use std::time::Duration;

use super::{WallStep, WallSteps};
use crate::base::time::{Nanos, SECOND_NS, Timestamp};

/// The least distance of two steps, in nanoseconds of the counter.
const STEP_NS: u64 = 10_000_000;

/// The clock is steered by at most one part in this many.
const SLEW: u64 = 2_048;

/// The size of a step back, in nanoseconds, from which on the clock does not wait for wall time.
pub(super) const ANCHOR_NS: u64 = 60 * SECOND_NS;

/// The latest wall time, in the year 2518. Later ones count as this one, so that 36 years of running still fit.
const WALL_MAX: Nanos = u64::MAX - (1 << 60);

/// The start of the line of a clock that stands. No counter comes near it.
const NOWHERE: u64 = 1 << 63;

/// One reading of all clocks of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockSample {
    /// The time that the machine has slept, in nanoseconds from some start. It may be read too low, but not too high.
    pub(super) asleep: u64,
    /// The monotonic clock, which does not count sleep, before and after the counter was read.
    pub(super) mono: [u64; 2],
    /// Nanoseconds since the Unix epoch; 0 before it.
    pub(super) wall: Nanos,
    pub(super) counter: u64,
}

impl ClockSample {
    /// Returns the nanoseconds that the reading took.
    pub(super) fn width_ns(&self) -> u64 {
        let [before, after] = self.mono;
        after.saturating_sub(before)
    }
}

/// The line on which the clock moves until the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClockLine {
    /// The counter at the last step.
    pub(super) from: u64,
    /// The number that is added to the counter, wrapping: a wall clock may show less than the counter.
    pub(super) offset: u64,
}

/// The meaning of a counter reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// The time.
    Time(Nanos),
    /// The time, and a step is due.
    Due(Nanos),
    /// The counter is below its value at the last step: it restarted while the machine slept, or the clock stands. A step is
    /// needed before there is a time.
    Anew,
}

impl ClockLine {
    /// Reads the time from a line, which must have been loaded before `counter` was read, and its `from` before its `offset`.
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

    /// Returns the time at the last step.
    pub(super) fn start(self) -> Nanos {
        self.from.wrapping_add(self.offset)
    }
}

/// Whether the clock runs, stops or stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pace {
    Runs,
    /// Readings take the lock from now on; the next step knows where it stands.
    Stops,
    Stands {
        /// The instant from which the clock stands, by the monotonic clock.
        since: u64,
    },
}

/// The state of the clock, and the readings by which it was steered last.
#[derive(Debug)]
pub(super) struct Steering {
    /// The bound: larger differences to wall time are steps.
    bound_ns: u64,
    line: ClockLine,
    pace: Pace,
    /// The wall time that has to pass until a clock that stops or stands goes on.
    behind: u64,
    /// Nanoseconds by which the clock is ahead of wall time since it was anchored anew.
    ahead: u64,
    /// The monotonic clock before and after the counter was read at the last step.
    mono: [u64; 2],
    /// The sleep for which the clock has made up, or could have.
    pub(super) asleep: u64,
    steps: WallSteps,
}

impl Steering {
    /// Starts at wall time; differences above `bound_ns` are steps from then on.
    pub(super) fn new(now: &ClockSample, bound_ns: u64) -> Self {
        Self {
            bound_ns,
            line: ClockLine::through(now.counter, now.wall.min(WALL_MAX)),
            pace: Pace::Runs,
            behind: 0,
            ahead: 0,
            mono: now.mono,
            asleep: now.asleep,
            steps: WallSteps::default(),
        }
    }

    /// Returns the line through the last step.
    #[cfg(all(test, not(engine_loom)))]
    pub(super) fn line(&self) -> ClockLine {
        self.line
    }

    /// Returns the line by which threads read the clock.
    pub(super) fn shown(&self) -> ClockLine {
        match self.pace {
            Pace::Runs => self.line,
            Pace::Stops | Pace::Stands { .. } => ClockLine { from: NOWHERE, ..self.line },
        }
    }

    pub(super) fn ahead(&self) -> u64 {
        self.ahead
    }

    pub(super) fn steps(&self) -> WallSteps {
        WallSteps { is_standing: !matches!(self.pace, Pace::Runs), ..self.steps }
    }

    /// Returns the time at which the clock stands, if it does and no step is due.
    pub(super) fn stands_at(&self, counter: u64) -> Option<Nanos> {
        let is_fresh = counter.wrapping_sub(self.line.from) < STEP_NS;
        (is_fresh && matches!(self.pace, Pace::Stands { .. })).then(|| self.line.start())
    }

    /// Makes a step: towards wall time, as far as the time since the last step and the sleep in it allow, or by a step of wall
    /// time. Returns the time.
    ///
    /// This is one function because every branch uses the bounds at its beginning.
    pub(super) fn step(&mut self, now: &ClockSample) -> Nanos {
        let start = self.line.start();
        let ([before, after], [now_before, now_after]) = (self.mono, now.mono);
        let (elapsed_min, elapsed_max) = (now_before.saturating_sub(after), now_after.saturating_sub(before));
        let slept = now.asleep.saturating_sub(self.asleep);
        // How far the clock has moved for other threads. If the counter began anew, less than if it did not.
        let moved = match self.pace {
            Pace::Stands { .. } => 0,
            Pace::Runs | Pace::Stops => now.counter.checked_sub(self.line.from).unwrap_or(elapsed_max),
        };
        let latest = start.saturating_add(moved);
        // Where the clock is if wall time was not set, by the shortest and the longest time that has passed.
        let [even, even_max] =
            [elapsed_min, elapsed_max].map(|elapsed| start.saturating_add(elapsed).saturating_sub(self.behind));
        // At an end of its range wall time says nothing.
        let wall = if (1..WALL_MAX).contains(&now.wall) { now.wall } else { even.saturating_sub(self.ahead) };
        let mut most = even.saturating_add(elapsed_min / SLEW).saturating_add(slept);

        let mut target = wall.saturating_add(self.ahead);
        let forward = target.saturating_sub(even_max.saturating_add(slept));
        if forward > self.bound_ns {
            self.ahead = even.saturating_add(slept).saturating_sub(wall);
            target = wall.saturating_add(self.ahead);
            most = most.max(target);
            self.steps.forward += 1;
            self.record(latest, forward, false);
        }
        let time = match self.pace {
            Pace::Runs => {
                let back = even.saturating_sub(target);
                if back >= ANCHOR_NS {
                    target = self.anchor(wall, even);
                    self.record(latest, back, true);
                } else if back > self.bound_ns && moved >= STEP_NS {
                    self.pace = Pace::Stops;
                    self.steps.stops += 1;
                    self.record(latest, back, true);
                }
                match self.pace {
                    Pace::Runs => target.clamp(even - elapsed_min / SLEW, most).max(latest),
                    Pace::Stops | Pace::Stands { .. } => latest,
                }
            }
            Pace::Stops | Pace::Stands { .. } => {
                let since = if let Pace::Stands { since } = self.pace { since } else { now_before };
                let back = latest.saturating_sub(target);
                if back >= ANCHOR_NS || back > 0 && now_before.saturating_sub(since) >= ANCHOR_NS {
                    target = self.anchor(wall, latest);
                    self.record(latest, back, true);
                }
                self.pace = if target < latest { Pace::Stands { since } } else { Pace::Runs };
                // A difference within the bound is followed little by little from then on.
                target.min(most).max(latest)
            }
        };
        self.behind = if self.pace == Pace::Runs { 0 } else { time.saturating_sub(target) };
        self.line = ClockLine::through(now.counter, time);
        // Sleep that the counter went on through counts once, if it falls into a sample and shows in the next one.
        self.asleep = now.asleep.max(self.asleep.saturating_add(moved.saturating_sub(elapsed_min)));
        self.mono = now.mono;
        time
    }

    /// Lets the clock go on from `time`, ahead of wall time. Returns the time that it is steered to.
    fn anchor(&mut self, wall: Nanos, time: Nanos) -> Nanos {
        self.ahead = time.saturating_sub(wall);
        self.steps.anchors += 1;
        time
    }

    /// Notes a step of wall time.
    fn record(&mut self, at: Nanos, ns: u64, is_back: bool) {
        self.steps.last = Some(WallStep { at: Timestamp::from_nanos(at), size: Duration::from_nanos(ns), is_back });
    }
}
