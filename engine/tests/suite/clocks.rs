//! The public clocks: across real threads, beside the system's own clock, and in decisions. The histories that no test
//! machine lives through are in `src/base/clock/histories.rs`.

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
    Engine, Identity, Request, Reservation, Retry, Snapshot,
    clock::{Clock, CoarseClock, ManualClock, SystemClock, TickError, WallSteps},
    formats::Format,
    time::Timestamp,
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
                let now = clock.now().as_nanos();
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
            let (before, now, after) = (wall(), clock.now().as_nanos(), wall());
            assert!(now + MS > before && now < after + MS, "{before} to {after} by the system's, {now} by ours");
        }
    }
}

/// A coarse clock that two threads tick at once.
#[derive(Clone)]
struct TickedAtEachReading(CoarseClock);

impl Clock for TickedAtEachReading {
    fn now(&self) -> Timestamp {
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
    let source = ManualClock::at(Timestamp::from_nanos(NOW));
    let clock = CoarseClock::by_hand(source.clone(), Duration::from_millis(5)).expect("in range");
    source.advance(Duration::from_millis(3));
    assert_eq!((clock.now(), clock.resolution()), (Timestamp::from_nanos(NOW), Duration::from_millis(5)));
    clock.tick();
    let ticked = Timestamp::from_nanos(NOW + 3 * MS);
    assert_eq!((clock.now(), clock.clone().now()), (ticked, ticked));
}

#[test]
fn the_coarse_clock_ticks_by_itself_until_it_is_dropped() {
    let source = ManualClock::at(Timestamp::from_nanos(NOW));
    let clock = CoarseClock::over(source.clone(), Duration::from_millis(1)).expect("in range, and a thread");
    for now in [NOW + 1, NOW + SECOND].map(Timestamp::from_nanos) {
        source.set(now);
        Deadline::new().wait_until("the tick", || clock.now() == now);
    }

    let (kept, token) = Token::new();
    let clock = CoarseClock::over(token, Duration::from_millis(1)).expect("in range, and a thread");
    let clone = clock.clone();
    drop(clock);
    assert_eq!(clone.now(), Timestamp::from_nanos(NOW));
    drop(clone);
    Deadline::new().wait_until("the end of the thread", || kept.strong_count() == 0);
}

/// A source that shows when it was dropped.
struct Token(#[expect(dead_code, reason = "is counted")] Arc<()>);

impl Token {
    fn new() -> (Weak<()>, Self) {
        let token = Arc::new(());
        (Arc::downgrade(&token), Self(token))
    }
}

impl Clock for Token {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(NOW)
    }
}

/// A source that panics where the clock ticks.
struct Faulty(ManualClock);

impl Clock for Faulty {
    fn now(&self) -> Timestamp {
        if thread::current().name() == Some("tidegate-clock") {
            // As a panic, without the message.
            std::panic::resume_unwind(Box::new(()));
        }
        self.0.now()
    }
}

#[test]
fn time_does_not_stand_still_when_the_thread_that_ticks_dies() {
    let source = ManualClock::at(Timestamp::from_nanos(NOW));
    let clock = CoarseClock::over(Faulty(source.clone()), Duration::from_millis(1)).expect("in range, and a thread");
    source.advance(Duration::from_nanos(1));
    Deadline::new().wait_until("the source's time", || clock.now() == Timestamp::from_nanos(NOW + 1));
    source.advance(Duration::from_nanos(1));
    assert_eq!(clock.now(), Timestamp::from_nanos(NOW + 2));
}

#[test]
fn a_manual_clock_loses_no_advance() {
    let clock = ManualClock::at(Timestamp::from_nanos(0));
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                (0..50_000).for_each(|_| clock.advance(Duration::from_nanos(1)));
            });
        }
    });
    assert_eq!(clock.now(), Timestamp::from_nanos(200_000));
}

#[test]
fn a_tick_out_of_range_is_refused() {
    for tick in [Duration::ZERO, Duration::from_micros(999), Duration::from_millis(1_001), Duration::MAX] {
        assert!(
            matches!(CoarseClock::start(tick).expect_err("out of range"), TickError::OutOfRange(found) if found == tick)
        );
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
        let source = ManualClock::at(Timestamp::from_nanos(NOW));
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

    /// Returns the wait of a request that comes `behind` nanoseconds after a tick and is denied.
    fn wait(&self, behind: u64) -> u64 {
        self.clock.tick();
        self.source.advance(Duration::from_nanos(behind));
        let refused = std::iter::repeat_with(|| self.check()).find_map(|retry| match retry {
            Retry::After(wait) => Some(wait),
            _ => None,
        });
        refused.expect("no end of tries").as_nanos().try_into().expect("seconds")
    }

    /// Returns the retry of a request that comes after `wait`, `behind` nanoseconds after a tick.
    fn after(&self, wait: u64, behind: u64) -> Retry {
        let now = self.source.now();
        self.source.set(now + Duration::from_nanos(wait) - Duration::from_nanos(behind));
        self.clock.tick();
        self.source.set(now + Duration::from_nanos(wait));
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
        coarse.source.advance(Duration::from_nanos(start));
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

#[test]
fn a_clock_of_a_machine_whose_time_is_not_set_has_met_no_step() {
    for clock in [SystemClock::new(), SystemClock::with_step(Duration::ZERO), SystemClock::with_step(Duration::MAX)] {
        let before = clock.now();
        assert!(clock.now() >= before && clock.wall() <= clock.now());
        assert_eq!((clock.ahead(), clock.wall_steps()), (Duration::ZERO, WallSteps::default()));
    }
}

#[test]
fn a_coarse_clock_is_as_far_ahead_as_its_source() {
    let source = ManualClock::at(Timestamp::from_nanos(NOW));
    let clock = CoarseClock::by_hand(source.clone(), Duration::from_millis(5)).expect("in range");
    source.set_wall_back(Duration::from_secs(1));
    assert_eq!((clock.now(), clock.ahead()), (Timestamp::from_nanos(NOW), Duration::from_secs(1)));
    assert_eq!(clock.wall(), Timestamp::from_nanos(NOW - SECOND));
}

const ALGORITHMS: [&str; 5] =
    ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"];

/// An engine with one limit, and one user of it.
struct Bench {
    clock: ManualClock,
    engine: Engine<ManualClock>,
}

impl Bench {
    fn new(algorithm: &str, limit: u64, period: &str) -> Self {
        Self::with(&format!(
            "[domains.default]\ndefaults = {{ user = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\n\
             limits = [{{ id = \"l\", algorithm = \"{algorithm}\", limit = {limit}, period = \"{period}\" }}]"
        ))
    }

    fn with(policy: &str) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let engine = Engine::for_simulation(100, clock.clone(), 7);
        engine.publish(Snapshot::parse(policy, Format::Toml).expect("a good policy")).expect("one limit");
        Self { clock, engine }
    }

    /// Checks a cost. Returns whether it is allowed, and when to retry.
    fn check(&self, cost: u64) -> (bool, Retry) {
        let who = [Identity::new("user", "ada").expect("valid")];
        let decision = self.engine.check(&Request::new(&who).and_then(|request| request.cost(cost)).expect("valid"));
        (decision.is_allowed(), decision.retry())
    }

    fn reserve(&self, cost: u64) -> Option<Reservation> {
        let who = [Identity::new("user", "ada").expect("valid")];
        self.engine.reserve(&Request::new(&who).and_then(|request| request.cost(cost)).expect("valid")).1
    }

    /// Sets wall time back, and has the engine follow it.
    fn set_wall_back(&self, size: Duration) {
        self.clock.set_wall_back(size);
        self.engine.follow_wall_time();
    }

    /// Returns how long a cost of the whole limit has to wait.
    fn wait_ns(&self, limit: u64) -> u64 {
        match self.check(limit).1 {
            Retry::After(wait) => u64::try_from(wait.as_nanos()).expect("days"),
            Retry::Now => 0,
            Retry::Never => unreachable!("it fits"),
        }
    }
}

#[derive(Clone, Debug)]
enum Happening {
    Check(u64),
    /// Charges some, and refunds it after a while.
    Refund(u64, u64),
    Advance(u64),
    SetBack(u64),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let happening = prop_oneof![
        5 => (1_u64..4).prop_map(Happening::Check),
        1 => (1_u64..4, 0..20 * SECOND).prop_map(|(cost, ns)| Happening::Refund(cost, ns)),
        3 => (0..20 * SECOND).prop_map(Happening::Advance),
        // From a minute to half a year.
        1 => (36_u32..=53).prop_flat_map(|bits| 60 * SECOND..=1_u64 << bits).prop_map(Happening::SetBack),
    ];
    prop::collection::vec(happening, 1..60)
}

proptest! {
    /// Compared with an engine whose wall time is not set, each decision by a bucket or a log is the same. A window admits at most
    /// one limit more for each time that wall time is set, and a cost of the whole limit never waits for longer than the windows
    /// that forget it.
    #[test]
    fn wall_time_that_is_set_back_refuses_no_key_and_mints_one_window_at_most(
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        limit in 1_u64..8,
        seconds in 1_u64..40,
        happenings in happenings(),
    ) {
        let period = format!("{seconds}s");
        let benches = [(); 2].map(|()| Bench::new(algorithm, limit, &period));
        let [set, unset] = &benches;
        let is_windowed = ["fixed_window", "sliding_window_counter"].contains(&algorithm);
        let windows = if algorithm == "sliding_window_counter" { 2 } else { 1 };
        let (mut admitted, mut most_windows, mut passed_ns) = (0, 2, 0);
        for happening in happenings {
            match happening {
                Happening::Check(cost) => {
                    let decided = [set.check(cost), unset.check(cost)];
                    admitted += cost * u64::from(decided[0].0);
                    prop_assert!(is_windowed || decided[0] == decided[1], "{decided:?}");
                }
                Happening::Refund(cost, ns) if !is_windowed => {
                    let reserved = [set, unset].map(|bench| bench.reserve(cost));
                    for (bench, reservation) in benches.iter().zip(reserved) {
                        bench.clock.advance(Duration::from_nanos(ns));
                        if let Some(reservation) = reservation {
                            bench.engine.refund(reservation);
                        }
                    }
                }
                Happening::Refund(..) => {}
                Happening::Advance(ns) => {
                    for bench in &benches {
                        bench.clock.advance(Duration::from_nanos(ns));
                    }
                    passed_ns += ns;
                }
                Happening::SetBack(ns) => {
                    set.set_wall_back(Duration::from_nanos(ns));
                    most_windows += 1;
                }
            }
            let most = limit * (most_windows + passed_ns / (seconds * SECOND));
            prop_assert!(!is_windowed || admitted <= most, "{admitted} of {most}");
        }
        let wait_ns = set.wait_ns(limit);
        // A token of a bucket takes a whole number of nanoseconds.
        prop_assert!(wait_ns <= windows * seconds * SECOND + limit, "{wait_ns}");
        set.clock.advance(Duration::from_nanos(wait_ns));
        prop_assert!(wait_ns == 0 || set.check(limit).0);
    }
}

#[test]
fn an_hour_that_wall_time_is_set_back_is_no_hour_of_refusals_nor_of_new_quota() {
    for algorithm in ALGORITHMS {
        let bench = Bench::new(algorithm, 5, "1m");
        assert!(bench.check(5).0 && !bench.check(1).0, "{algorithm}");
        bench.set_wall_back(Duration::from_hours(1));
        assert!(!bench.check(1).0, "{algorithm}: what was used stays used");
        // The last of five comes back after a minute; of a sliding counter, after the window that follows.
        let minutes = if algorithm == "sliding_window_counter" { 2 } else { 1 };
        bench.clock.advance(Duration::from_nanos(minutes * 60 * SECOND + MS));
        assert!(bench.check(5).0, "{algorithm}: it waits no longer than ever");
    }
}

#[test]
fn an_idle_key_gives_its_slot_away_also_after_wall_time_was_set_back() {
    let bench = Bench::new("token_bucket", 5, "1m");
    assert!(bench.check(5).0);
    assert!(bench.engine.fill() > 0.0);
    bench.set_wall_back(Duration::from_hours(1));
    bench.clock.advance(Duration::from_mins(1));
    assert!(bench.engine.fill() <= 0.0);
}

#[test]
fn a_day_ends_at_midnight_of_the_wall_time_that_was_set() {
    let bench = Bench::new("fixed_window", 5, "day");
    // Half past midnight by a clock that is an hour ahead: it is half past eleven.
    bench.clock.advance(Duration::from_mins(30));
    assert!(bench.check(5).0);
    assert_eq!(bench.wait_ns(5), (86_400 - 1_800) * SECOND);
    bench.set_wall_back(Duration::from_hours(1));
    assert_eq!(bench.wait_ns(5), 1_800 * SECOND, "the day that is counted ends in half an hour");
    let who = [Identity::new("user", "ada").expect("valid")];
    let reset_at = bench.engine.peek(&Request::new(&who).expect("valid")).reset_at();
    assert_eq!(reset_at, Some(UNIX_EPOCH + Duration::from_nanos(NOW)), "which is midnight");
    bench.clock.advance(Duration::from_mins(30));
    assert!(bench.check(5).0);
    assert_eq!(bench.wait_ns(5), 86_400 * SECOND);
}

#[test]
fn an_override_ends_by_wall_time_that_was_set_back() {
    // The clock begins at 2026-09-22T00:00:00Z.
    let bench = Bench::with(
        r#"
        [domains.default]
        defaults = { user = "t" }
        [[domains.default.tiers]]
        id = "t"
        limits = [{ id = "l", algorithm = "token_bucket", limit = 5, period = "1m" }]
        [[domains.default.clients]]
        kind = "user"
        value = "ada"
        override = { blocked = true, until = "2026-09-22T01:00:00Z", reason = "abuse" }"#,
    );
    bench.clock.advance(Duration::from_secs(3_700));
    assert!(bench.check(1).0, "it has ended by a clock that is ahead");
    bench.set_wall_back(Duration::from_mins(30));
    assert!(!bench.check(1).0, "it has not");
    bench.clock.advance(Duration::from_secs(1_700));
    assert!(bench.check(1).0);
}

#[test]
fn an_engine_follows_under_the_version_that_it_has() {
    let bench = Bench::new("fixed_window", 5, "1h");
    assert!(!bench.engine.follow_wall_time(), "there is nothing to follow");
    let mut handle = bench.engine.handle("default/tier:t/l", "user").expect("a limit");
    assert!(handle.check_n("ada", 5).expect("valid").is_allowed());
    bench.clock.set_wall_back(Duration::from_mins(1));
    assert!(bench.engine.follow_wall_time() && !bench.engine.follow_wall_time());
    assert_eq!(bench.engine.version(), 1);
    let decision = handle.check("ada");
    assert!(!decision.is_allowed());
    assert_eq!(decision.retry(), Retry::After(Duration::from_mins(1)), "the hour before this one ends in a minute");
    // A thousand times, and then no more; publishes go on.
    for _ in 0..2_000 {
        bench.set_wall_back(Duration::from_mins(1));
    }
    assert!(!bench.engine.follow_wall_time());
    let policy =
        "[domains.default]\ndefaults = { user = \"t\" }\n[[domains.default.tiers]]\nid = \"t\"\nunlimited = true";
    let policy = Snapshot::parse(policy, Format::Toml).expect("a good policy");
    assert_eq!(bench.engine.publish(policy), Ok(2));
}
