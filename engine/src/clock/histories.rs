//! Hostile histories for the steering of the precise clock: threads that are stopped anywhere in a reading, wall time
//! set to anything, a machine that sleeps at any moment, and counters that stop, go on or begin anew meanwhile.

use proptest::prelude::*;
use tidegate_conformance::cases;

use super::steering::{Line, Reading, Sample, Steering};
use crate::time::{Nanos, SECOND_NS};

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND_NS;
/// In 2026.
const NOW: Nanos = 1_790_000_000 * SECOND_NS;

/// What the counter does while the machine sleeps.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Counts {
    Nothing,
    Everything,
    Anew,
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
struct World {
    mono: u64,
    wall: i128,
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
    fn new(wall: Nanos, uptime: u64, ppm: i64) -> Self {
        let even = (1 << 32) - (1 << 22);
        let scale = u128::from((even + even * ppm / 1_000_000).unsigned_abs());
        let counter = u128::from(uptime) * scale;
        Self { mono: uptime, wall: wall.into(), counter, scale, begun: 0, asleep: 0, went_on: false, is_mixed: false }
    }

    fn pass(&mut self, ns: u64) {
        self.mono += ns;
        self.wall += i128::from(ns);
        self.counter += u128::from(ns) * self.scale;
    }

    fn sleep(&mut self, ns: u64, counts: Counts) {
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
    fn sample(&self) -> Sample {
        Sample { asleep: self.asleep, mono: [self.mono; 2], wall: self.wall(), counter: self.counter() }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    /// Wall time is set so much further or back.
    Set(i128),
    Sleep(u64, Counts),
    /// A thread goes on to its next access to memory or a clock.
    Run(usize),
}

/// Where in a reading a thread stands; the accesses are those of `SystemClock`, one by one.
#[derive(Clone, Copy, Debug)]
enum Place {
    Idle,
    From {
        from: u64,
    },
    Line(Line),
    /// Holds the lock; so many clocks of the sample are read.
    Sampling {
        read: usize,
        sample: Sample,
    },
    Publishing(Line),
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    place: Place,
    /// The highest reading that was finished when this one began.
    floor: Nanos,
    /// `World::begun` of the line that it loaded.
    begun: u32,
}

/// A step that was made: where it led, and what was true when its counter was read.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: Nanos,
    mono: u64,
    asleep: u64,
    /// Of the sleep, what the step knew; the rest is for the next one.
    known: u64,
    /// No time passed between the readings of its sample.
    is_tight: bool,
    is_anew: bool,
}

struct Run {
    world: World,
    steering: Steering,
    shared: Line,
    /// `World::begun` of `shared`.
    begun: u32,
    threads: [Thread; 3],
    holder: Option<usize>,
    highest: Nanos,
    counter_read: World,
    steps: Vec<Step>,
}

impl Run {
    fn new(world: World) -> Self {
        let steering = Steering::new(&world.sample());
        let shared = steering.line();
        let first =
            Step { time: shared.start(), mono: world.mono, asleep: 0, known: 0, is_tight: true, is_anew: false };
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
    fn is_hidden(&self) -> bool {
        let hides = |begun: u32, from: u64| begun != self.world.begun && self.world.counter() >= from;
        let of_thread = |thread: &Thread| match thread.place {
            Place::From { from } | Place::Line(Line { from, .. }) => hides(thread.begun, from),
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

    fn run(&mut self, thread: usize) {
        let world = self.world;
        let place = match self.threads[thread].place {
            Place::Idle => {
                self.threads[thread].floor = self.highest;
                self.threads[thread].begun = self.begun;
                Place::From { from: self.shared.from }
            }
            Place::From { from } => Place::Line(Line { from, offset: self.shared.offset }),
            Place::Line(line) => match (line.read(world.counter()), self.holder) {
                (Reading::Time(time), _) | (Reading::Due(time), Some(_)) => return self.finish(thread, time),
                // Waits for the lock.
                (Reading::Anew, Some(holder)) => return self.run(holder),
                (Reading::Due(_) | Reading::Anew, None) => {
                    self.holder = Some(thread);
                    let nothing = Sample { asleep: 0, mono: [0; 2], wall: 0, counter: 0 };
                    Place::Sampling { read: 0, sample: nothing }
                }
            },
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
                        let is_anew = sample.counter < self.steering.line().from;
                        let line = self.steering.step(&sample);
                        self.record(&sample, is_anew);
                        self.threads[thread].place = Place::Publishing(line);
                        self.shared.offset = line.offset;
                        return;
                    }
                }
                Place::Sampling { read: read + 1, sample }
            }
            Place::Publishing(line) => {
                self.shared.from = line.from;
                self.begun = self.counter_read.begun;
                self.holder = None;
                return self.finish(thread, line.start());
            }
        };
        self.threads[thread].place = place;
    }

    /// Makes a step without stops.
    fn step(&mut self) {
        let sample = self.world.sample();
        let is_anew = sample.counter < self.steering.line().from;
        self.shared = self.steering.step(&sample);
        self.counter_read = self.world;
        self.record(&sample, is_anew);
    }

    fn record(&mut self, sample: &Sample, is_anew: bool) {
        let World { mono, asleep, .. } = self.counter_read;
        let time = self.steering.line().start();
        let known = self.steering.asleep.min(asleep);
        self.steps.push(Step { time, mono, asleep, known, is_tight: sample.width_ns() == 0, is_anew });
    }

    /// How far wall time is ahead.
    fn gap(&self) -> i128 {
        self.world.wall - i128::from(self.steering.line().start())
    }
}

fn nanoseconds() -> impl Strategy<Value = u64> {
    // Evenly over the orders of magnitude, up to five hours.
    (0_u32..=44).prop_flat_map(|bits| 0..=1_u64 << bits)
}

fn event() -> impl Strategy<Value = Event> {
    let counts = prop_oneof![Just(Counts::Nothing), Just(Counts::Everything), Just(Counts::Anew)];
    prop_oneof![
        12 => (0_usize..3).prop_map(Event::Run),
        3 => nanoseconds().prop_map(Event::Pass),
        1 => (nanoseconds(), any::<bool>()).prop_map(|(ns, ahead)| Event::Set(if ahead { ns.into() } else { -i128::from(ns) })),
        1 => (nanoseconds(), counts).prop_map(|(ns, counts)| Event::Sleep(ns, counts)),
    ]
}

fn world() -> impl Strategy<Value = World> {
    let wall = prop_oneof![4 => Just(NOW), 1 => Just(0), 1 => Just(u64::MAX), 1 => any::<u64>()];
    (wall, nanoseconds(), -400_i64..=400).prop_map(|(wall, uptime, ppm)| World::new(wall, uptime, ppm))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2_000)))]

    /// Never back, whatever happens; and from any step to any later one no faster than allowed but for sleep, and no slower.
    #[test]
    fn the_clock_never_goes_back_and_keeps_its_rates(world in world(), events in prop::collection::vec(event(), 1..400)) {
        let mut run = Run::new(world);
        for event in events {
            match event {
                Event::Pass(ns) => run.world.pass(ns),
                Event::Set(ns) => run.world.wall += ns,
                Event::Sleep(ns, counts) => run.world.sleep(ns, counts),
                Event::Run(thread) => run.run(thread),
            }
            if run.is_hidden() {
                break;
            }
        }
        for (place, first) in run.steps.iter().enumerate() {
            for last in &run.steps[place + 1..] {
                let between = &run.steps[place + 1..];
                let (time, mono) = (i128::from(last.time - first.time), i128::from(last.mono - first.mono));
                // 500 ppm, and sleep. A counter that began anew is made up for at once, by at most the time that passed.
                if between.iter().all(|step| !step.is_anew) && first.is_tight {
                    let most = mono + mono / 2_000 + i128::from(last.asleep - first.known) + 1;
                    prop_assert!(time <= most, "{time} ns in {most}: {first:?} {last:?}");
                }
                if between.iter().chain([first]).all(|step| step.is_tight) {
                    prop_assert!(time >= mono - mono / 2_000 - 1, "{time} ns in {mono}: {first:?} {last:?}");
                }
            }
        }
    }

    /// Once nobody sets wall time any more, the clock comes to show it, on the shortest way, and stays.
    #[test]
    fn the_clock_comes_to_show_wall_time(set_ms in -500_i64..500, ppm in -400_i64..=400, pause in 10_u64..120_000) {
        let mut run = Run::new(World::new(NOW, HOUR, ppm));
        run.world.wall += i128::from(set_ms) * i128::from(MS);
        let mut gap = run.gap();
        // A thousandth more, because a step is a whole number of nanoseconds.
        let due = 2_050 * set_ms.unsigned_abs() * MS;
        while run.world.mono < HOUR + due {
            run.world.pass(pause * MS);
            run.step();
            let now = run.gap();
            prop_assert!(now.abs() <= gap.abs() && now * gap >= 0, "{now} ns after {gap}");
            gap = now;
        }
        run.world.pass(pause * MS);
        run.step();
        prop_assert_eq!(run.gap(), 0);
    }
}

fn after(set: i128, sleep: Option<(u64, Counts)>) -> (Run, i128) {
    let mut run = Run::new(World::new(NOW, HOUR, 0));
    run.world.wall += set;
    if let Some((ns, counts)) = sleep {
        run.world.sleep(ns, counts);
    }
    let before = run.steering.line().start();
    run.world.pass(10 * MS);
    run.step();
    let moved = i128::from(run.steering.line().start() - before) - i128::from(10 * MS);
    (run, moved)
}

const WAYS: [Counts; 3] = [Counts::Nothing, Counts::Everything, Counts::Anew];

#[test]
fn a_step_of_wall_time_without_sleep_is_slewed_both_ways() {
    for (set, moved) in [(i128::from(HOUR), 4_882), (-i128::from(HOUR), -4_882)] {
        assert_eq!(after(set, None).1, moved, "in 10 ms, at 488 ppm");
    }
}

#[test]
fn a_sleep_is_jumped_over_whatever_the_counter_did() {
    for counts in WAYS {
        let (run, moved) = after(0, Some((HOUR, counts)));
        assert_eq!((run.gap(), moved), (0, HOUR.into()), "{counts:?}");
    }
}

#[test]
fn a_jump_is_no_longer_than_the_sleep() {
    for counts in WAYS {
        let (_, moved) = after(i128::from(5 * HOUR), Some((HOUR, counts)));
        assert_eq!(moved, i128::from(HOUR) + 4_882, "{counts:?}");
    }
}

#[test]
fn a_sleep_is_not_jumped_over_where_wall_time_is_behind() {
    // A counter that began anew hides what was read last: then the clock goes on evenly for one step.
    for (counts, moved) in [(Counts::Nothing, -4_882), (Counts::Anew, 0)] {
        assert_eq!(after(-i128::from(5 * HOUR), Some((HOUR, counts))).1, moved, "{counts:?}");
    }
}

#[test]
fn sleep_that_wall_time_did_not_ask_for_is_not_kept_for_a_later_step() {
    let (mut run, _) = after(-i128::from(2 * HOUR), Some((HOUR, Counts::Nothing)));
    run.world.wall += i128::from(9 * HOUR);
    let before = run.steering.line().start();
    run.world.pass(10 * MS);
    run.step();
    assert_eq!(run.steering.line().start() - before, 10 * MS + 4_882);
}

#[test]
fn a_long_idle_time_is_followed_by_one_step_within_the_rate() {
    let (mut run, _) = after(HOUR.into(), None);
    let before = run.steering.line().start();
    run.world.pass(24 * HOUR);
    run.step();
    assert_eq!(run.steering.line().start() - before, 24 * HOUR + 24 * HOUR / 2_048);
}

#[test]
fn wall_times_of_before_1970_and_of_the_far_future_are_survived() {
    for wall in [i128::MIN / 2, -1, 0, u64::MAX.into(), i128::MAX / 2] {
        let mut run = Run::new(World { wall, ..World::new(0, 100 * HOUR, 0) });
        for _ in 0..100 {
            let before = run.steering.line().start();
            run.world.pass(24 * 365 * HOUR / 10);
            run.step();
            assert!(run.steering.line().start() > before, "{wall}");
        }
    }
}
