//! A simulated machine for the histories: its clocks, and threads that read the clock one access at a time.

use super::super::steering::{Line, Reading, Sample, Steering};
use crate::base::time::{Nanos, SECOND_NS};

pub(super) const MS: u64 = 1_000_000;
pub(super) const HOUR: u64 = 3_600 * SECOND_NS;
/// The bound of a clock that is not given another.
pub(super) const BOUND: u64 = SECOND_NS;
/// In 2026.
pub(super) const NOW: Nanos = 1_790_000_000 * SECOND_NS;

/// What the counter does while the machine sleeps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Counts {
    Nothing,
    Everything,
    Anew,
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    pub(super) mono: u64,
    pub(super) wall: i128,
    /// In units of 2^-32 ns.
    counter: u128,
    /// What a nanosecond adds to it.
    scale: u128,
    /// How often it began anew.
    begun: u32,
    asleep: u64,
    /// The counter went on through some sleep; and then began anew in another.
    went_on: bool,
    is_mixed: bool,
}

impl World {
    /// `ppm`: by how much the calibration of the counter is wrong.
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

    pub(super) fn sleep(&mut self, ns: u64, counts: Counts) {
        self.asleep += ns;
        self.wall += i128::from(ns);
        match counts {
            Counts::Nothing => {}
            Counts::Everything => {
                self.counter += u128::from(ns) * self.scale;
                self.went_on = true;
            }
            Counts::Anew => {
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

    /// Read without a stop in between.
    pub(super) fn sample(&self) -> Sample {
        Sample { asleep: self.asleep, mono: [self.mono; 2], wall: self.wall(), counter: self.counter() }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Pass(u64),
    /// Wall time is set so much further or back.
    Set(i128),
    Sleep(u64, Counts),
    /// A thread goes on to its next access to memory or a clock.
    Run(usize),
}

/// Where in a reading a thread stands; the accesses are those of `SystemClock`, one by one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Idle,
    From {
        from: u64,
    },
    Line(Line),
    /// Has read the counter, and is to try the lock.
    Read {
        from: u64,
        reading: Reading,
    },
    /// Another thread had the lock.
    Late {
        from: u64,
        time: Nanos,
    },
    /// Holds the lock; so many clocks of the sample are read.
    Sampling {
        read: usize,
        sample: Sample,
    },
    Publishing {
        line: Line,
        time: Nanos,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    place: Place,
    /// The highest reading that was finished when this one began.
    floor: Nanos,
    /// `World::begun` of the line that it loaded.
    begun: u32,
}

/// A step that was made: where it led, and what was true when its counter was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) time: Nanos,
    pub(super) mono: u64,
    pub(super) asleep: u64,
    /// Of the sleep, what the step knew; the rest is for the next one.
    pub(super) known: u64,
    /// No time passed between the readings of its sample.
    pub(super) is_tight: bool,
    pub(super) is_anew: bool,
    /// It acted upon a step of wall time, or the clock stood.
    pub(super) is_of_wall: bool,
}

pub(super) struct Run {
    pub(super) world: World,
    pub(super) steering: Steering,
    shared: Line,
    /// `World::begun` of `shared`.
    begun: u32,
    threads: [Thread; 3],
    holder: Option<usize>,
    highest: Nanos,
    counter_read: World,
    pub(super) steps: Vec<Step>,
}

impl Run {
    pub(super) fn new(world: World) -> Self {
        let steering = Steering::new(&world.sample(), BOUND);
        let shared = steering.shown();
        let first = Step {
            time: shared.start(),
            mono: world.mono,
            asleep: 0,
            known: 0,
            is_tight: true,
            is_anew: false,
            is_of_wall: false,
        };
        let thread = Thread { place: Place::Idle, floor: 0, begun: 0 };
        Self {
            world,
            steering,
            shared,
            begun: 0,
            threads: [thread; 3],
            holder: None,
            highest: 0,
            counter_read: world,
            steps: vec![first],
        }
    }

    /// The counter began anew and came past where it had been before anybody looked at the clock, or began anew after it
    /// went on through another sleep: nobody can tell then, and the head of steering.rs says so.
    pub(super) fn is_hidden(&self) -> bool {
        let hides = |begun: u32, from: u64| begun != self.world.begun && self.world.counter() >= from;
        let of_thread = |thread: &Thread| match thread.place {
            Place::From { from }
            | Place::Line(Line { from, .. })
            | Place::Read { from, .. }
            | Place::Late { from, .. } => hides(thread.begun, from),
            _ => false,
        };
        self.world.is_mixed || hides(self.begun, self.steering.line().from) || self.threads.iter().any(of_thread)
    }

    fn finish(&mut self, thread: usize, time: Nanos) {
        let Thread { floor, .. } = self.threads[thread];
        assert!(time >= floor, "went back by {} ns", floor - time);
        self.highest = self.highest.max(time);
        self.threads[thread].place = Place::Idle;
    }

    pub(super) fn run(&mut self, thread: usize) {
        let world = self.world;
        let place = match self.threads[thread].place {
            Place::Idle => {
                self.threads[thread].floor = self.highest;
                self.threads[thread].begun = self.begun;
                Place::From { from: self.shared.from }
            }
            Place::From { from } => Place::Line(Line { from, offset: self.shared.offset }),
            Place::Line(line) => match line.read(world.counter()) {
                Reading::Time(time) => return self.finish(thread, time),
                reading => Place::Read { from: line.from, reading },
            },
            Place::Read { from, reading } => match (reading, self.holder) {
                (Reading::Time(time) | Reading::Due(time), Some(_)) => Place::Late { from, time },
                // Waits for the lock.
                (Reading::Anew, Some(holder)) => return self.run(holder),
                (_, None) => {
                    if let Some(time) = self.steering.stands_at(world.counter()) {
                        return self.finish(thread, time);
                    }
                    self.holder = Some(thread);
                    let nothing = Sample { asleep: 0, mono: [0; 2], wall: 0, counter: 0 };
                    Place::Sampling { read: 0, sample: nothing }
                }
            },
            Place::Late { from, time } if from == self.shared.from => return self.finish(thread, time),
            Place::Late { .. } => {
                self.threads[thread].begun = self.begun;
                Place::From { from: self.shared.from }
            }
            Place::Sampling { read, mut sample } => {
                match read {
                    // The monotonic clock together with the sleep; then without.
                    0 => sample.asleep = world.asleep + world.mono,
                    1 => {
                        sample.asleep = sample.asleep.saturating_sub(world.mono);
                        sample.mono[0] = world.mono;
                    }
                    2 => sample.wall = world.wall(),
                    3 => {
                        sample.counter = world.counter();
                        self.counter_read = world;
                    }
                    _ => {
                        sample.mono[1] = world.mono;
                        let time = self.steer(&sample);
                        let line = self.steering.shown();
                        self.threads[thread].place = Place::Publishing { line, time };
                        self.shared.offset = line.offset;
                        return;
                    }
                }
                Place::Sampling { read: read + 1, sample }
            }
            Place::Publishing { line, time } => {
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
        self.counter_read = self.world;
        self.steer(&self.world.sample());
        self.shared = self.steering.shown();
    }

    fn steer(&mut self, sample: &Sample) -> Nanos {
        let is_anew = sample.counter < self.steering.line().from;
        let before = self.steering.steps();
        let time = self.steering.step(sample);
        let is_of_wall = before.is_standing || before != self.steering.steps();
        let World { mono, asleep, .. } = self.counter_read;
        let known = self.steering.asleep.min(asleep);
        let is_tight = sample.width_ns() == 0;
        self.steps.push(Step { time, mono, asleep, known, is_tight, is_anew, is_of_wall });
        time
    }

    /// How far wall time is ahead of what the clock says that it is.
    pub(super) fn gap(&self) -> i128 {
        self.world.wall + i128::from(self.steering.ahead()) - i128::from(self.time())
    }

    pub(super) fn time(&self) -> Nanos {
        self.steering.line().start()
    }

    /// Lets time pass, with steps so far apart.
    pub(super) fn go_on(&mut self, ns: u64, apart: u64) {
        for _ in 0..ns / apart {
            self.world.pass(apart);
            self.step();
        }
    }
}
