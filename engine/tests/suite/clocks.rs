//! The clocks through their doors: across real threads, beside the system's own, and where they decide. The histories that
//! no test machine lives through are in `src/clock/histories.rs`.

use std::{
    sync::{
        Arc, Barrier, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use proptest::prelude::*;
use tidegate::{
    Engine, Identity, Request, Retry, Snapshot,
    clock::{Clock, CoarseClock, ManualClock, SystemClock, TickError},
    formats::Format,
};
use tidegate_conformance::Deadline;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The beginning of a minute and of a day in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;

fn wall() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a clock is compared with the system's")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).expect("after 1970").as_nanos().try_into().expect("before 2554")
}

fn instant() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a clock is watched for a period of real time")]
    Instant::now()
}

/// Two threads pass the highest reading on to each other, and read in between: nothing that is lower by more than `below_ns`,
/// and nothing that is lower than their own last.
fn pass_readings_on(clock: &(impl Clock + Clone), below_ns: u64) {
    let (highest, met, start) = (AtomicU64::new(0), AtomicU64::new(0), Barrier::new(2));
    let deadline = Deadline::new();
    let read = || {
        let (clock, mut own) = (clock.clone(), 0);
        start.wait();
        while met.load(Ordering::SeqCst) < 20_000 && !deadline.has_passed() {
            for _ in 0..100 {
                let told = highest.load(Ordering::SeqCst);
                let now = clock.now();
                assert!(now + below_ns >= told, "{} ns below what another thread had read", told - now);
                assert!(now >= own, "{} ns below what this thread had read", own - now);
                met.fetch_add(u64::from(told != own), Ordering::SeqCst);
                highest.fetch_max(now, Ordering::SeqCst);
                own = now;
                // Lets the other one have the line.
                (0..4).for_each(|_| std::hint::spin_loop());
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(read);
        read();
    });
    let met = met.into_inner();
    assert!(met > 1_000, "the threads met {met} times only, which shows nothing");
}

#[test]
fn the_precise_clock_does_not_go_back_across_threads() {
    // A processor reads its counter a little before earlier loads have come.
    pass_readings_on(&SystemClock::new(), 10_000);
    pass_readings_on(&SystemClock::without_tsc(), 0);
}

#[test]
fn the_precise_clock_shows_wall_time() {
    for clock in [SystemClock::new(), SystemClock::without_tsc()] {
        let deadline = instant() + Duration::from_millis(300);
        while instant() < deadline {
            let (before, now, after) = (wall(), clock.now(), wall());
            assert!(now + MS > before && now < after + MS, "{before} to {after} by the system's, {now} by ours");
        }
    }
}

/// A coarse clock that two threads tick at once.
#[derive(Clone)]
struct TickedAtEachReading(CoarseClock);

impl Clock for TickedAtEachReading {
    fn now(&self) -> u64 {
        self.0.tick();
        self.0.now()
    }
}

#[test]
fn ticks_that_cross_do_not_take_the_coarse_clock_back() {
    let clock = CoarseClock::by_hand(SystemClock::new(), Duration::from_millis(1)).expect("in range");
    pass_readings_on(&TickedAtEachReading(clock), 0);
}

#[test]
fn the_coarse_clock_shows_the_time_of_its_last_tick() {
    let source = ManualClock::at(NOW);
    let clock = CoarseClock::by_hand(source.clone(), Duration::from_millis(5)).expect("in range");
    source.advance(3 * MS);
    assert_eq!((clock.now(), clock.resolution_ns()), (NOW, 5 * MS));
    clock.tick();
    assert_eq!((clock.now(), clock.clone().now()), (NOW + 3 * MS, NOW + 3 * MS));
}

#[test]
fn the_coarse_clock_ticks_by_itself_until_it_is_dropped() {
    let source = ManualClock::at(NOW);
    let clock = CoarseClock::over(source.clone(), Duration::from_millis(1)).expect("in range, and a thread");
    for now in [NOW + 1, NOW + SECOND] {
        source.set(now);
        Deadline::new().wait_until("the tick", || clock.now() == now);
    }

    let (kept, token) = Token::new();
    let clock = CoarseClock::over(token, Duration::from_millis(1)).expect("in range, and a thread");
    let clone = clock.clone();
    drop(clock);
    assert_eq!(clone.now(), NOW);
    drop(clone);
    Deadline::new().wait_until("the end of the thread", || kept.strong_count() == 0);
}

/// A source that tells when it is gone.
struct Token(#[expect(dead_code, reason = "is counted")] Arc<()>);

impl Token {
    fn new() -> (Weak<()>, Self) {
        let token = Arc::new(());
        (Arc::downgrade(&token), Self(token))
    }
}

impl Clock for Token {
    fn now(&self) -> u64 {
        NOW
    }
}

/// A source that panics where the clock ticks.
struct Faulty(ManualClock);

impl Clock for Faulty {
    fn now(&self) -> u64 {
        if thread::current().name() == Some("tidegate-clock") {
            // As a panic, without the message.
            std::panic::resume_unwind(Box::new(()));
        }
        self.0.now()
    }
}

#[test]
fn time_does_not_stand_still_when_the_thread_that_ticks_dies() {
    let source = ManualClock::at(NOW);
    let clock = CoarseClock::over(Faulty(source.clone()), Duration::from_millis(1)).expect("in range, and a thread");
    source.advance(1);
    Deadline::new().wait_until("the source's time", || clock.now() == NOW + 1);
    source.advance(1);
    assert_eq!(clock.now(), NOW + 2);
}

#[test]
fn a_manual_clock_loses_no_advance() {
    let clock = ManualClock::at(0);
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                (0..50_000).for_each(|_| clock.advance(1));
            });
        }
    });
    assert_eq!(clock.now(), 200_000);
}

#[test]
fn a_tick_out_of_range_is_refused() {
    for tick in [Duration::ZERO, Duration::from_micros(999), Duration::from_millis(1_001), Duration::MAX] {
        assert_eq!(CoarseClock::start(tick).expect_err("out of range"), TickError::OutOfRange(tick));
    }
    let error = TickError::OutOfRange(Duration::from_secs(2)).to_string();
    assert_eq!(error, "tick: 2s is out of range; from 1ms to 1s work");
}

const TICK: u64 = 10 * MS;

/// An engine over a coarse clock that is moved by hand, with one limit of 3 a second.
struct Coarse {
    source: ManualClock,
    clock: CoarseClock<ManualClock>,
    engine: Engine<CoarseClock<ManualClock>>,
}

impl Coarse {
    fn new(algorithm: &str) -> Self {
        let source = ManualClock::at(NOW);
        let clock = CoarseClock::by_hand(source.clone(), Duration::from_nanos(TICK)).expect("in range");
        let engine = Engine::with_clock(100, clock.clone());
        let policy = format!(
            "[domains.default]\ndefaults = {{ user = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\n\
             limits = [{{ id = \"l\", algorithm = \"{algorithm}\", limit = 3, period = \"1s\" }}]"
        );
        engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a good policy")).expect("one limit");
        Self { source, clock, engine }
    }

    fn check(&self) -> Retry {
        let who = [Identity::new("user", "ada").expect("valid")];
        self.engine.check(&Request::new(&who).expect("valid")).retry()
    }

    /// How long a request is told to wait that comes `behind` after a tick.
    fn wait(&self, behind: u64) -> u64 {
        self.clock.tick();
        self.source.advance(behind);
        let refused = std::iter::repeat_with(|| self.check()).find_map(|retry| match retry {
            Retry::After(wait) => Some(wait),
            _ => None,
        });
        refused.expect("no end of tries").as_nanos().try_into().expect("seconds")
    }

    /// What a request is told that comes after `wait`, `behind` after a tick.
    fn after(&self, wait: u64, behind: u64) -> Retry {
        let now = self.source.now();
        self.source.set(now + wait - behind);
        self.clock.tick();
        self.source.set(now + wait);
        self.check()
    }
}

proptest! {
    #[test]
    fn waiting_exactly_retry_after_is_enough_under_a_coarse_clock(
        algorithm in prop::sample::select(vec!["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter"]),
        start in 0..SECOND,
        first in 0..=TICK,
        second in 0..=TICK,
    ) {
        let coarse = Coarse::new(algorithm);
        coarse.source.advance(start);
        let wait = coarse.wait(first);
        prop_assert_eq!(coarse.after(wait, second), Retry::Now);
    }
}

#[test]
fn the_tick_in_retry_after_is_needed() {
    let coarse = Coarse::new("token_bucket");
    let wait = coarse.wait(0);
    assert!(matches!(coarse.after(wait - 1, TICK), Retry::After(_)), "a tick behind, a nanosecond too early");
}
