//! A simulated machine for the histories: its clocks, and threads that read the clock one access at a time.

use super::super::steering::{ClockLine, ClockSample, Reading, Steering};
use crate::base::time::{Nanos, SECOND_NS};

pub(super) const MS: u64 = 1_000_000;
pub(super) const HOUR: u64 = 3_600 * SECOND_NS;
/// The bound of a clock that is made without one.
pub(super) const BOUND: u64 = SECOND_NS;
/// A time in 2026.
pub(super) const NOW: Nanos = 1_790_000_000 * SECOND_NS;

/// The behaviour of the counter while the machine sleeps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum CounterInSleep {
    Nothing,
    Everything,
    Anew,
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) mono: u64,
    pub(super) wall: i128,
    /// The counter, in units of 2^-32 ns.
    counter: u128,
    /// The amount that a nanosecond adds to the counter.
    scale: u128,
    /// The number of times that the counter began anew.
    begun: u32,
    asleep: u64,
    /// Whether the counter went on through some sleep.
    went_on: bool,
    /// Whether the counter then began anew in another sleep.
    is_mixed: bool,
}

impl Machine {
    /// Makes a machine whose counter is miscalibrated by `ppm`.
    pub(super) fn new(wall: Nanos, uptime: u64, ppm: i64) -> Self {
        let even = (1 << 32) - (1 << 22);
        let scale = u128::from((even + even * ppm / 1_000_000).unsigned_abs());
        let counter = u128::from(uptime) * scale;
        Self { mono: uptime, wall: wall.into(), counter, scale, begun: 0, asleep: 0, went_on: false, is_mixed: false }
    }

    pub(super) fn pass(&mut self, ns: u64) {
        self.mono += ns;
        self.wall += i128::from(ns);
        self.counter += u128::from(ns) * self.scale;
    }

    pub(super) fn sleep(&mut self, ns: u64, counts: CounterInSleep) {
        self.asleep += ns;
        self.wall += i128::from(ns);
        match counts {
            CounterInSleep::Nothing => {}
            CounterInSleep::Everything => {
                self.counter += u128::from(ns) * self.scale;
                self.went_on = true;
            }
            CounterInSleep::Anew => {
                (self.counter, self.begun) = (0, self.begun + 1);
                self.is_mixed = self.went_on;
            }
        }
    }

    fn counter(&self) -> u64 {
        (self.counter >> 32) as u64
    }

    fn wall(&self) -> Nanos {
        u64::try_from(self.wall.max(0)).unwrap_or(u64::MAX)
    }

    /// Reads all clocks without a stop in between.
    pub(super) fn sample(&self) -> ClockSample {
        ClockSample { asleep: self.asleep, mono: [self.mono; 2], wall: self.wall(), counter: self.counter() }
    }
}

#[derive(Clone, Debug)]
pub(super) enum ClockEvent {
    Pass(u64),
    /// Wall time is set forward or back by so much.
    Set(i128),
    Sleep(u64, CounterInSleep),
    /// A thread goes on to its next access to memory or a clock.
    Run(usize),
}

/// The next access of a thread within a reading. The accesses are those of `SystemClock`, one by one.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadStep {
    Idle,
    From {
        from: u64,
    },
    Line(ClockLine),
    /// The thread has read the counter, and tries the lock next.
    Read {
        from: u64,
        reading: Reading,
    },
    /// The thread found the lock taken.
    Late {
        from: u64,
        time: Nanos,
    },
    /// The thread holds the lock, and has read so many clocks of the sample.
    Sampling {
        read: usize,
        sample: ClockSample,
    },
    Publishing {
        line: ClockLine,
        time: Nanos,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    place: ReadStep,
    /// The highest reading that was finished when this one began.
    floor: Nanos,
    /// `begun` of the machine for the line that the thread loaded.
    begun: u32,
}

/// A step of the clock: its time, and the facts at the moment when its counter was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) time: Nanos,
    pub(super) mono: u64,
    pub(super) asleep: u64,
    /// The sleep that the step knew; the rest is for the next step.
    pub(super) known: u64,
    /// Whether no time passed between the readings of its sample.
    pub(super) is_tight: bool,
    pub(super) is_anew: bool,
    /// Whether it acted upon a step of wall time, or the clock stood.
    pub(super) is_of_wall: bool,
}

/// A simulated clock: the machine, the steering, and the threads that read.
pub(super) struct ClockSimulation {
    pub(super) machine: Machine,
    pub(super) steering: Steering,
    shared: ClockLine,
    /// `begun` of the machine for `shared`.
    begun: u32,
    threads: [Thread; 3],
    holder: Option<usize>,
    highest: Nanos,
    counter_read: Machine,
    pub(super) steps: Vec<Step>,
}

impl ClockSimulation {
    pub(super) fn new(machine: Machine) -> Self {
        let steering = Steering::new(&machine.sample(), BOUND);
        let shared = steering.shown();
        let first = Step {
            time: shared.start(),
            mono: machine.mono,
            asleep: 0,
            known: 0,
            is_tight: true,
            is_anew: false,
            is_of_wall: false,
        };
        let thread = Thread { place: ReadStep::Idle, floor: 0, begun: 0 };
        Self {
            machine,
            steering,
            shared,
            begun: 0,
            threads: [thread; 3],
            holder: None,
            highest: 0,
            counter_read: machine,
            steps: vec![first],
        }
    }

    /// Returns whether the counter began anew and passed its last value before a thread looked at the clock, or began
    /// anew after it went on through another sleep. No clock can tell then, as the head of steering.rs says.
    pub(super) fn is_hidden(&self) -> bool {
        let hides = |begun: u32, from: u64| begun != self.machine.begun && self.machine.counter() >= from;
        let of_thread = |thread: &Thread| match thread.place {
            ReadStep::From { from }
            | ReadStep::Line(ClockLine { from, .. })
            | ReadStep::Read { from, .. }
            | ReadStep::Late { from, .. } => hides(thread.begun, from),
            _ => false,
        };
        self.machine.is_mixed || hides(self.begun, self.steering.line().from) || self.threads.iter().any(of_thread)
    }

    fn finish(&mut self, thread: usize, time: Nanos) {
        let Thread { floor, .. } = self.threads[thread];
        assert!(time >= floor, "went back by {} ns", floor - time);
        self.highest = self.highest.max(time);
        self.threads[thread].place = ReadStep::Idle;
    }

    /// Lets a thread make its next access to memory or a clock. One match lists the accesses in their order.
    pub(super) fn run(&mut self, thread: usize) {
        let machine = self.machine;
        let place = match self.threads[thread].place {
            ReadStep::Idle => {
                self.threads[thread].floor = self.highest;
                self.threads[thread].begun = self.begun;
                ReadStep::From { from: self.shared.from }
            }
            ReadStep::From { from } => ReadStep::Line(ClockLine { from, offset: self.shared.offset }),
            ReadStep::Line(line) => match line.read(machine.counter()) {
                Reading::Time(time) => return self.finish(thread, time),
                reading => ReadStep::Read { from: line.from, reading },
            },
            ReadStep::Read { from, reading } => match (reading, self.holder) {
                (Reading::Time(time) | Reading::Due(time), Some(_)) => ReadStep::Late { from, time },
                // The thread waits for the lock.
                (Reading::Anew, Some(holder)) => return self.run(holder),
                (_, None) => {
                    if let Some(time) = self.steering.stands_at(machine.counter()) {
                        return self.finish(thread, time);
                    }
                    self.holder = Some(thread);
                    let nothing = ClockSample { asleep: 0, mono: [0; 2], wall: 0, counter: 0 };
                    ReadStep::Sampling { read: 0, sample: nothing }
                }
            },
            ReadStep::Late { from, time } if from == self.shared.from => return self.finish(thread, time),
            ReadStep::Late { .. } => {
                self.threads[thread].begun = self.begun;
                ReadStep::From { from: self.shared.from }
            }
            ReadStep::Sampling { read, mut sample } => {
                match read {
                    // The monotonic clock together with the sleep; then without.
                    0 => sample.asleep = machine.asleep + machine.mono,
                    1 => {
                        sample.asleep = sample.asleep.saturating_sub(machine.mono);
                        sample.mono[0] = machine.mono;
                    }
                    2 => sample.wall = machine.wall(),
                    3 => {
                        sample.counter = machine.counter();
                        self.counter_read = machine;
                    }
                    _ => {
                        sample.mono[1] = machine.mono;
                        let time = self.steer(&sample);
                        let line = self.steering.shown();
                        self.threads[thread].place = ReadStep::Publishing { line, time };
                        self.shared.offset = line.offset;
                        return;
                    }
                }
                ReadStep::Sampling { read: read + 1, sample }
            }
            ReadStep::Publishing { line, time } => {
                self.shared.from = line.from;
                self.begun = self.counter_read.begun;
                self.holder = None;
                return self.finish(thread, time);
            }
        };
        self.threads[thread].place = place;
    }

    /// Makes a step without stops.
    pub(super) fn step(&mut self) {
        self.counter_read = self.machine;
        self.steer(&self.machine.sample());
        self.shared = self.steering.shown();
    }

    fn steer(&mut self, sample: &ClockSample) -> Nanos {
        let is_anew = sample.counter < self.steering.line().from;
        let before = self.steering.steps();
        let time = self.steering.step(sample);
        let is_of_wall = before.is_standing || before != self.steering.steps();
        let Machine { mono, asleep, .. } = self.counter_read;
        let known = self.steering.asleep.min(asleep);
        let is_tight = sample.width_ns() == 0;
        self.steps.push(Step { time, mono, asleep, known, is_tight, is_anew, is_of_wall });
        time
    }

    /// Returns how far wall time is ahead of the wall time that the clock shows.
    pub(super) fn gap(&self) -> i128 {
        self.machine.wall + i128::from(self.steering.ahead()) - i128::from(self.time())
    }

    pub(super) fn time(&self) -> Nanos {
        self.steering.line().start()
    }

    /// Lets `ns` pass, with a step every `apart` nanoseconds.
    pub(super) fn go_on(&mut self, ns: u64, apart: u64) {
        for _ in 0..ns / apart {
            self.machine.pass(apart);
            self.step();
        }
    }
}
