//! Hostile histories for the steering of the precise clock: threads that are stopped anywhere in a reading, wall time
//! set to anything, a machine that sleeps at any moment, and counters that stop, go on or begin anew meanwhile. And what the
//! steps of wall time in them are for the limits whose words are instants of the clock.

use proptest::prelude::*;

use super::steering::{ANCHOR_NS, Line, Reading, Sample, Steering};
use crate::{
    algorithm::{Carry, FixedWindow, Meter, SlidingWindowCounter, SlidingWindowLog, TokenBucket, Verdict},
    base::time::{Nanos, SECOND_NS},
};

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND_NS;
/// The bound of a clock that is not given another.
const BOUND: u64 = SECOND_NS;
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
    /// It acted upon a step of wall time, or the clock stood.
    is_of_wall: bool,
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
    fn is_hidden(&self) -> bool {
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

    fn run(&mut self, thread: usize) {
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
    fn step(&mut self) {
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
    fn gap(&self) -> i128 {
        self.world.wall + i128::from(self.steering.ahead()) - i128::from(self.time())
    }

    fn time(&self) -> Nanos {
        self.steering.line().start()
    }

    /// Lets time pass, with steps so far apart.
    fn go_on(&mut self, ns: u64, apart: u64) {
        for _ in 0..ns / apart {
            self.world.pass(apart);
            self.step();
        }
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
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Never back, whatever happens; and from any step to any later one no faster than allowed but for sleep, and no slower,
    /// unless wall time was set by a step.
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
            let (mut is_even, mut is_tight) = (true, first.is_tight);
            for last in run.steps[place + 1..].iter().take_while(|step| !step.is_of_wall) {
                (is_even, is_tight) = (is_even && !last.is_anew, is_tight && last.is_tight);
                let (time, mono) = (i128::from(last.time - first.time), i128::from(last.mono - first.mono));
                // 500 ppm, and sleep. A counter that began anew is made up for at once, by at most the time that passed.
                if is_even && first.is_tight {
                    let most = mono + mono / 2_000 + i128::from(last.asleep - first.known) + 1;
                    prop_assert!(time <= most, "{time} ns in {most}: {first:?} {last:?}");
                }
                if is_tight {
                    prop_assert!(time >= mono - mono / 2_000 - 1, "{time} ns in {mono}: {first:?} {last:?}");
                }
            }
        }
    }

    /// Once wall time is not set any more, the clock comes to show it, on the shortest way, and stays.
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
fn a_difference_within_the_bound_is_slewed_both_ways() {
    for (set, slewed) in [(900 * MS, 4_882), (MS, 4_882)] {
        for (sign, way) in [(1, "forward"), (-1, "back")] {
            let (run, moved) = after(sign * i128::from(set), None);
            assert_eq!(moved, sign * slewed, "{way}, in 10 ms, at 488 ppm");
            assert_eq!(run.steering.steps(), super::WallSteps::default());
        }
    }
}

#[test]
fn wall_time_that_is_set_forward_is_followed_at_once() {
    for ns in [BOUND + MS, HOUR, 10_000 * HOUR] {
        let (run, moved) = after(ns.into(), None);
        assert_eq!((moved, run.gap(), run.steering.ahead()), (ns.into(), 0, 0));
        let steps = run.steering.steps();
        assert_eq!((steps.forward, steps.stops, steps.anchors, steps.is_standing), (1, 0, 0, false));
        assert_eq!(steps.last.map(|step| (step.ns, step.is_back)), Some((ns, false)));
    }
}

#[test]
fn what_a_step_is_depends_on_the_bound() {
    for (bound_ns, forward) in [(10 * MS, 1), (100 * MS, 0)] {
        let mut run = Run::new(World::new(NOW, HOUR, 0));
        run.steering = Steering::new(&run.world.sample(), bound_ns);
        run.world.wall += i128::from(50 * MS);
        run.go_on(10 * MS, 10 * MS);
        assert_eq!(run.steering.steps().forward, forward, "with a bound of {bound_ns} ns");
    }
}

/// A clock that stands, since wall time was set back by so much.
fn standing(ns: u64) -> Run {
    let mut run = Run::new(World::new(NOW, HOUR, 0));
    run.world.wall -= i128::from(ns);
    // The first step stops it, the second says where.
    run.go_on(40 * MS, 20 * MS);
    assert!(run.steering.steps().is_standing);
    run
}

#[test]
fn wall_time_that_is_set_back_by_less_than_a_minute_is_waited_for() {
    for ns in [BOUND + MS, 30 * SECOND_NS, ANCHOR_NS - MS] {
        let mut run = standing(ns);
        let stands_at = run.time();
        run.go_on(ns - 100 * MS, 20 * MS);
        assert_eq!(run.time(), stands_at);
        run.go_on(200 * MS, 20 * MS);
        assert!(run.time() > stands_at);
        let steps = run.steering.steps();
        assert_eq!((steps.forward, steps.stops, steps.anchors, steps.is_standing), (0, 1, 0, false));
        assert_eq!((run.gap(), run.steering.ahead()), (0, 0));
    }
}

#[test]
fn a_clock_that_is_not_read_while_it_stands_goes_on_at_wall_time() {
    let mut run = standing(30 * SECOND_NS);
    run.go_on(HOUR, HOUR);
    assert_eq!((run.gap(), run.steering.ahead()), (0, 0));
    assert_eq!(run.steering.steps().forward, 0);
}

#[test]
fn a_clock_stands_for_a_minute_at_most_whatever_wall_time_does() {
    let (mut run, mut stood) = (standing(2 * SECOND_NS), 0);
    while run.steering.steps().is_standing {
        assert!(stood <= ANCHOR_NS + SECOND_NS, "it stands still");
        // Wall time stands too.
        run.world.wall -= i128::from(100 * MS);
        run.go_on(100 * MS, 100 * MS);
        stood += 100 * MS;
    }
    assert_eq!(run.steering.steps().anchors, 1);
    assert_eq!(run.gap(), 0);
}

#[test]
fn wall_time_that_is_set_back_by_a_minute_or_more_leaves_the_clock_ahead_and_running() {
    for ns in [ANCHOR_NS, HOUR, 10_000 * HOUR] {
        let (mut run, moved) = after(-i128::from(ns), None);
        assert_eq!((moved, run.gap(), run.steering.ahead()), (0, 0, ns));
        let steps = run.steering.steps();
        assert_eq!((steps.forward, steps.stops, steps.anchors, steps.is_standing), (0, 0, 1, false));
        // Set forward again, it does not jump, but by what is more.
        for (more, left) in [(ns / 2, ns - ns / 2), (ns - ns / 2, 0)] {
            let before = run.time();
            run.world.wall += i128::from(more);
            run.go_on(10 * MS, 10 * MS);
            assert_eq!((run.time() - before, run.steering.ahead()), (10 * MS, left));
        }
        let before = run.time();
        run.world.wall += i128::from(HOUR);
        run.go_on(10 * MS, 10 * MS);
        assert_eq!((run.time() - before, run.steering.ahead()), (HOUR + 10 * MS, 0));
    }
}

#[test]
fn a_thread_that_is_stopped_in_the_middle_of_a_reading_is_no_step_of_wall_time() {
    // Before and after each access of a sample. (The counter is slow by a second in 17 minutes.)
    for stop in 0..=5 {
        let mut run = Run::new(World::new(NOW, HOUR, 0));
        run.world.pass(20 * MS);
        // The accesses until the lock is taken, then those of the sample, then the line is shown.
        for access in 0..10 {
            if access == 4 + stop {
                run.world.pass(300 * SECOND_NS);
            }
            run.run(0);
        }
        run.go_on(SECOND_NS, 20 * MS);
        assert_eq!(run.steering.steps(), super::WallSteps::default(), "stopped before access {stop}");
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
fn a_jump_over_a_sleep_is_no_longer_than_the_sleep() {
    for counts in WAYS {
        let (run, moved) = after(i128::from(900 * MS), Some((HOUR, counts)));
        assert_eq!(moved, i128::from(HOUR) + 4_882, "{counts:?}");
        assert_eq!(run.steering.steps().forward, 0, "{counts:?}");
    }
}

#[test]
fn a_sleep_is_not_jumped_over_where_wall_time_is_behind() {
    // A counter that began anew hides what was read last: then the clock goes on evenly for one step.
    let set = -i128::from(HOUR + 900 * MS);
    for (counts, moved) in [(Counts::Nothing, -4_882), (Counts::Anew, 0)] {
        assert_eq!(after(set, Some((HOUR, counts))).1, moved, "{counts:?}");
    }
}

#[test]
fn sleep_that_wall_time_did_not_ask_for_is_not_kept_for_a_later_step() {
    let (mut run, _) = after(-i128::from(HOUR), Some((HOUR, Counts::Nothing)));
    run.world.wall += i128::from(900 * MS);
    let before = run.time();
    run.go_on(10 * MS, 10 * MS);
    assert_eq!(run.time() - before, 10 * MS + 4_882);
}

#[test]
fn a_long_idle_time_is_followed_by_one_step_within_the_rate() {
    let (mut run, _) = after(i128::from(900 * MS), None);
    let before = run.time();
    run.go_on(60 * SECOND_NS, 60 * SECOND_NS);
    assert_eq!(run.time() - before, 60 * SECOND_NS + 60 * SECOND_NS / 2_048);
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

/// A limit and one key of it, by a clock whose wall time is set: the word that the engine keeps, and the slow model, which
/// keeps every admission by the time that really passed.
struct Key {
    meter: Meter,
    word: u64,
    /// How far the clock was ahead of wall time when the windows of `meter` were bound.
    ahead: u64,
    admitted: Vec<Admission>,
    /// Steps of wall time that give a key up to one limit each: those that the clock jumped by, and those that windows followed.
    grants: u64,
}

#[derive(Clone, Copy, Debug)]
struct Admission {
    mono: u64,
    cost: u64,
    grants: u64,
}

impl Key {
    fn new(meter: Meter) -> Self {
        Self { meter, word: 0, ahead: 0, admitted: Vec::new(), grants: 0 }
    }

    fn check(&mut self, run: &Run, cost: u64) -> Verdict {
        let verdict = self.meter.step(self.word, run.time(), cost);
        if let Verdict::Admit(word) = verdict {
            self.word = word;
            let grants = self.grants + run.steering.steps().forward;
            self.admitted.push(Admission { mono: run.world.mono, cost, grants });
        }
        verdict
    }

    /// As the engine does it: as a publish of other numbers.
    fn follow(&mut self, run: &Run) {
        if self.ahead == run.steering.ahead() {
            return;
        }
        self.ahead = run.steering.ahead();
        let bound = self.meter.ahead_of_wall(self.ahead);
        if bound != self.meter {
            self.word = self.meter.carry_over(self.word, run.time(), &bound, Carry::Keep);
            (self.meter, self.grants) = (bound, self.grants + 1);
        }
    }

    /// What the model admits at most between two instants: what the limit does in the time that really passed, and one limit for
    /// each step of wall time.
    fn most(&self, first: Admission, last: Admission) -> u128 {
        let (capacity, period_ns) = (u128::from(self.meter.capacity()), u128::from(self.meter.period_ns().max(1)));
        // The clock may run 500 ppm fast.
        let length = u128::from(last.mono - first.mono) * 2_001 / 2_000 + 1;
        let at_once = if matches!(self.meter, Meter::TokenBucket(_) | Meter::LeakyBucket(_)) { 1 } else { 2 };
        capacity * (at_once + u128::from(last.grants - first.grants)) + (capacity * length).div_ceil(period_ns)
    }
}

fn meters() -> impl Strategy<Value = Meter> {
    let seconds = || prop_oneof![1..120_u64, Just(3_600_u64), Just(86_400_u64)];
    let bucket = (1..50_u64, seconds(), 1..50_u64, any::<bool>()).prop_map(|(limit, seconds, burst, is_leaky)| {
        let bucket = TokenBucket::new(limit, seconds * SECOND_NS, burst).expect("fits");
        if is_leaky { Meter::LeakyBucket(bucket) } else { Meter::TokenBucket(bucket) }
    });
    let others = (1..50_u64, seconds(), 0..3_u8).prop_map(|(limit, seconds, which)| {
        let period_ns = seconds * SECOND_NS;
        match which {
            0 => Meter::FixedWindow(FixedWindow::new(limit, period_ns).expect("fits")),
            1 => Meter::SlidingWindowCounter(SlidingWindowCounter::new(limit, period_ns).expect("fits")),
            _ => Meter::SlidingWindowLog(SlidingWindowLog::new(limit, period_ns).expect("fits")),
        }
    });
    prop_oneof![2 => bucket, 3 => others]
}

#[derive(Clone, Debug)]
enum Happening {
    Pass(u64),
    Set(i128),
    Check(u64),
    /// The engine follows wall time.
    Follow,
}

fn happening() -> impl Strategy<Value = Happening> {
    // From a nanosecond to half a year.
    let size = || (0_u32..=53).prop_flat_map(|bits| 0..=1_u64 << bits);
    prop_oneof![
        6 => (1_u64..10).prop_map(Happening::Check),
        3 => nanoseconds().prop_map(Happening::Pass),
        2 => (size(), any::<bool>()).prop_map(|(ns, back)| Happening::Set(if back { -i128::from(ns) } else { ns.into() })),
        1 => Just(Happening::Follow),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn steps_of_wall_time_mint_one_limit_each_at_most_and_no_key_is_refused_for_them(
        meter in meters(),
        happenings in prop::collection::vec(happening(), 1..120),
    ) {
        let mut run = Run::new(World::new(NOW, HOUR, 0));
        let mut key = Key::new(meter);
        for happening in happenings {
            match happening {
                Happening::Pass(ns) => run.world.pass(ns),
                // Within the time that a clock can show.
                Happening::Set(ns) if (SECOND_NS.into()..i128::from(2 * NOW)).contains(&(run.world.wall + ns)) => {
                    run.world.wall += ns;
                }
                Happening::Set(_) => {}
                Happening::Check(cost) => {
                    let _ = key.check(&run, cost.min(meter.capacity()));
                }
                Happening::Follow => key.follow(&run),
            }
            run.go_on(40 * MS, 20 * MS);
        }
        for (place, first) in key.admitted.iter().enumerate() {
            let mut sum = 0;
            for last in &key.admitted[place..] {
                sum += u128::from(last.cost);
                let most = key.most(*first, *last);
                prop_assert!(sum <= most, "{sum} of {most}: {first:?} {last:?}");
            }
        }

        // Wall time is not set any more, and has been followed.
        run.go_on(2 * ANCHOR_NS, SECOND_NS);
        key.follow(&run);
        prop_assert!(!run.steering.steps().is_standing);
        let cost = meter.capacity();
        if let Verdict::Later { wait_ns } = key.check(&run, cost) {
            let most = if matches!(meter, Meter::SlidingWindowCounter(_)) { 2 } else { 1 } * meter.period_ns();
            // A log counts in units of 2^13 ns.
            prop_assert!(wait_ns <= most + (1 << 14), "{wait_ns} ns of {most}");
            // The clock may run 500 ppm slow.
            let really = wait_ns + wait_ns / 2_000 + 1;
            run.go_on(really, really);
            prop_assert!(matches!(key.check(&run, cost), Verdict::Admit(_)));
        }
    }
}
