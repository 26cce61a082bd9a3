//! The sliding window log: through the engine against a slow, exact model; its pool of rings; its conversion at a
//! publish; and as one word, which is stricter.

mod rings;

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use proptest::prelude::*;
use tidegate::{
    Decision, Engine, Identity, KeyedLimiter, Request, Retry, Snapshot,
    algorithm::{Carry, Meter, SlidingWindowLog},
    clock::ManualClock,
    formats::Format,
    internals::{BeginResult, Verdict},
    time::Timestamp,
};
use tidegate_conformance::Deadline;

const SECOND: u64 = 1_000_000_000;
/// The beginning of a minute and of a day in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;

struct Bench {
    clock: ManualClock,
    engine: Engine<ManualClock>,
}

impl Bench {
    fn new(max_keys: usize, limits: &str) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let bench = Self { engine: Engine::for_simulation(max_keys, clock.clone(), 7), clock };
        bench.publish(limits);
        bench
    }

    fn publish(&self, limits: &str) {
        let policy = format!(
            "[domains.default]\ndefaults = {{ ip = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\nlimits = [{limits}]\n"
        );
        self.engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a good policy")).expect("few limits");
    }

    fn check(&self, who: &str, cost: u64) -> Decision<'_> {
        let who = [Identity::new("ip", who).expect("valid")];
        self.engine.check(&Request::new(&who).and_then(|request| request.cost(cost)).expect("valid"))
    }

    fn peek(&self, who: &str) -> Decision<'_> {
        let who = [Identity::new("ip", who).expect("valid")];
        self.engine.peek(&Request::new(&who).expect("valid").without_cost())
    }
}

fn limit(algorithm: &str, limit: u64, period: &str) -> String {
    format!("{{ id = \"l\", algorithm = \"{algorithm}\", limit = {limit}, period = \"{period}\" }}")
}

fn log(n: u64, period: &str) -> String {
    limit("sliding_window_log", n, period)
}

/// At most `limit` in every half-open interval of length `period`.
fn keeps_bound(admitted: &[u64], limit: u64, period: u64) -> bool {
    admitted.windows(limit as usize + 1).all(|window| window[limit as usize] - window[0] >= period)
}

/// Calls: hundredths of a period since the last one, and cost.
fn calls() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![Just(0u64), 0..10u64, 0..150u64];
    prop::collection::vec((gap, prop_oneof![4 => Just(1u64), 1 => 1..40u64]), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_engine_decides_as_the_exact_model(limit in 1..30u64, period_ms in prop_oneof![Just(1u64), 1..100_000u64], offset in 0..SECOND, calls in calls()) {
        let bench = Bench::new(100, &log(limit, &format!("{period_ms}ms")));
        let period = period_ms * 1_000_000;
        bench.clock.advance(Duration::from_nanos(offset));
        let (mut now, mut admitted) = (NOW + offset, Vec::<u64>::new());
        for (gap, cost) in calls {
            bench.clock.advance(Duration::from_nanos(period * gap / 100));
            now += period * gap / 100;
            let live: Vec<u64> = admitted.iter().copied().filter(|at| at + period > now).collect();
            let free = limit - live.len() as u64;
            let decision = bench.check("a", cost);
            let retry = if cost > limit {
                Retry::Never
            } else if cost > free {
                Retry::After(Duration::from_nanos(live[(cost - free) as usize - 1] + period - now))
            } else {
                admitted.extend((0..cost).map(|_| now));
                Retry::Now
            };
            prop_assert_eq!(decision.retry(), retry, "{} of {}, {} free", cost, limit, free);
            let remaining = if retry == Retry::Now { free - cost } else { free };
            prop_assert_eq!((decision.limit(), decision.remaining()), (Some(limit), Some(remaining)));
            prop_assert_eq!(bench.peek("a").remaining(), Some(remaining));
            // Exact right after an admission, later rounded up to 16 microseconds.
            let reset = admitted.last().map_or(0, |at| (at + period).saturating_sub(now));
            let said = decision.reset_after().expect("a limit").as_nanos() as u64;
            prop_assert!(said >= reset && said < reset + (1 << 14), "{} for {}", said, reset);
            prop_assert!(retry != Retry::Now || said == reset);
        }
        prop_assert!(keeps_bound(&admitted, limit, period));
        prop_assert_eq!(bench.engine.log_charges_without_ring(), 0);
    }

    /// A log without a ring never admits more than the limit in any period either, and its verdicts hold.
    #[test]
    fn as_one_word_it_is_stricter_and_true_to_its_word(limit in 1..30u64, period_ms in prop_oneof![Just(1u64), 1..100_000u64], offset in 0..SECOND, calls in calls()) {
        let period = period_ms * 1_000_000;
        let meter = Meter::SlidingWindowLog(SlidingWindowLog::new(limit, Duration::from_nanos(period)).expect("fits"));
        let (mut now, mut word, mut admitted) = (NOW + offset, 0, Vec::new());
        for (gap, cost) in calls {
            now += period * gap / 100;
            match meter.step(word, now, cost) {
                Verdict::Admit(after) => {
                    word = after;
                    admitted.extend((0..cost).map(|_| now));
                }
                Verdict::Later { wait_ns } => {
                    prop_assert!(wait_ns >= 1 && cost <= limit);
                    let admits = |now| matches!(meter.step(word, now, cost), Verdict::Admit(_));
                    prop_assert!(admits(now + wait_ns), "waiting as told is enough");
                    prop_assert!(!admits(now + wait_ns - 1), "nothing shorter is");
                }
                Verdict::Never => prop_assert!(cost > limit),
            }
            let remaining = meter.remaining(word, now);
            prop_assert!(remaining == 0 || matches!(meter.step(word, now, remaining), Verdict::Admit(_)));
            prop_assert!(!matches!(meter.step(word, now, remaining + 1), Verdict::Admit(_)));
        }
        prop_assert!(keeps_bound(&admitted, limit, period));
    }

    /// Clocks of any order: by the clock values that the steps were given, no interval holds more than the limit.
    #[test]
    fn a_word_mints_nothing_for_clocks_that_are_behind(limit in 1..5u64, clocks in prop::collection::vec(0..40u64, 1..100)) {
        let period = 1_000_000;
        let meter = Meter::SlidingWindowLog(SlidingWindowLog::new(limit, Duration::from_nanos(period)).expect("fits"));
        let (mut word, mut admitted) = (0, Vec::new());
        for clock in clocks {
            let now = NOW + clock * period / 10;
            if let Verdict::Admit(after) = meter.step(word, now, 1) {
                word = after;
                admitted.push(now);
            }
        }
        admitted.sort_unstable();
        prop_assert!(keeps_bound(&admitted, limit, period), "{:?}", admitted);
    }

    /// Nothing panics, with every number at any value.
    #[test]
    fn extremes_saturate(limit in 1..=4_096u64, period in 1_000_000..=366 * 86_400 * SECOND, word: u64, now: u64, cost in 1..1u64 << 53) {
        let meter = Meter::SlidingWindowLog(SlidingWindowLog::new(limit, Duration::from_nanos(period)).expect("fits"));
        for now in [now, 0, u64::MAX] {
            for word in [word, u64::MAX, 0] {
                let _ = meter.step(word, now, cost);
                prop_assert!(meter.remaining(word, now) <= limit);
                prop_assert!(meter.reset_after_ns(word, now) <= period);
                let _ = meter.carry_over(word, now, &meter, Carry::Keep);
            }
        }
    }
}

#[test]
fn at_the_end_of_time_a_log_admits_its_limit_once() {
    let bench = Bench::new(100, &log(3, "366d"));
    bench.clock.set(Timestamp::from_nanos(u64::MAX));
    assert_eq!((0..10).filter(|_| bench.check("a", 1).is_allowed()).count(), 3);
}

#[test]
fn a_log_has_no_boundary_to_rush_over() {
    let bench = Bench::new(100, &log(10, "1m"));
    bench.clock.advance(Duration::from_nanos(60 * SECOND - 1));
    assert!(bench.check("a", 10).is_allowed());
    bench.clock.advance(Duration::from_nanos(1));
    assert_eq!(bench.check("a", 1).retry(), Retry::After(Duration::from_nanos(60 * SECOND - 1)));
    bench.clock.advance(Duration::from_nanos(60 * SECOND - 2));
    assert_eq!(bench.check("a", 1).retry(), Retry::After(Duration::from_nanos(1)));
    bench.clock.advance(Duration::from_nanos(1));
    assert!(bench.check("a", 10).is_allowed());
}

#[test]
fn what_does_not_fit_is_refused_with_its_field() {
    for (limit, field) in [
        (log(4_097, "1m"), "limits[0].limit"),
        (log(1, "367d"), "limits[0].period"),
        (log(1, "1m").replace(" }", ", burst = 2 }"), "limits[0].burst"),
    ] {
        let policy = format!("[domains.default]\n[[domains.default.tiers]]\nid = \"t\"\nlimits = [{limit}]\n");
        let problems = Snapshot::parse(&policy, Format::Toml).expect_err("does not fit").to_string();
        assert!(problems.contains(field), "{problems}");
    }
    Bench::new(10, &log(4_096, "1ms"));
    Bench::new(10, &log(1, "366d"));
    assert_eq!(Bench::new(10, &log(0, "1m")).check("a", 1).retry(), Retry::Never);
}

/// Logs get the limit's overflow buckets when the table has no slot, as the keys of every other limit do.
#[test]
fn when_the_table_is_full_new_keys_get_overflow_buckets() {
    let bench = Bench::new(5, &log(2, "1m"));
    let admitted: usize =
        (0..1_000).map(|key| (0..3).filter(|_| bench.check(&key.to_string(), 1).is_allowed()).count()).sum();
    assert!(bench.engine.overflow_charges() > 0);
    assert_eq!(admitted, 2 * (8 + 8), "eight slots and eight overflow buckets of 2");
    bench.clock.advance(Duration::from_secs(61));
    assert_eq!((0..3).filter(|_| bench.check("999", 1).is_allowed()).count(), 2);
}

/// Used quota of 3 of 10 stays 3 of 10 between every pair of algorithms.
#[test]
fn a_publish_keeps_what_was_used_whichever_way() {
    let others = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter"];
    let mut ways: Vec<(String, String)> = vec![
        (log(10, "1h"), log(10, "2h")),
        (log(10, "2h"), log(10, "1h")),
        (log(9, "1h"), log(10, "1h")),
        (log(12, "1h"), log(10, "1h")),
        (log(300, "1h"), log(10, "1d")),
    ];
    for other in others {
        ways.push((log(10, "1h"), limit(other, 10, "1h")));
        ways.push((limit(other, 10, "1h"), log(10, "1h")));
    }
    for (from, to) in ways {
        let bench = Bench::new(100, &from);
        assert!(bench.check("a", 3).is_allowed());
        bench.publish(&to);
        assert_eq!(bench.peek("a").remaining(), Some(7), "{from} to {to}");
        assert_eq!(bench.peek("b").remaining(), Some(10));
        assert_eq!(bench.check("a", 8).remaining(), Some(7), "{from} to {to}");
        assert_eq!(bench.check("a", 7).remaining(), Some(0), "{from} to {to}");
        assert!(!bench.check("a", 1).is_allowed(), "{from} to {to}");
    }
}

#[test]
fn a_new_limit_with_the_same_period_keeps_when_each_was_admitted() {
    let bench = Bench::new(100, &log(5, "1m"));
    for _ in 0..5 {
        assert!(bench.check("a", 1).is_allowed());
        bench.clock.advance(Duration::from_secs(10));
    }
    // The five are 50, 40, .. 10 seconds old.
    bench.publish(&log(3, "1m"));
    assert_eq!(bench.peek("a").remaining(), Some(0));
    assert_eq!(bench.check("a", 1).retry(), Retry::After(Duration::from_secs(30)), "the third youngest");
    bench.clock.advance(Duration::from_secs(30));
    assert!(bench.check("a", 1).is_allowed());
    bench.publish(&log(100, "1m"));
    assert_eq!(bench.peek("a").remaining(), Some(97));
    bench.clock.advance(Duration::from_secs(10));
    assert_eq!(bench.peek("a").remaining(), Some(98), "each ages by itself");
}

/// A conversion gives the ring back.
#[test]
fn rings_survive_more_publishes_than_there_are() {
    let bench = Bench::new(100, &log(10, "1h"));
    for round in 0..500 {
        bench.publish(&log(20 + round % 5, "1h"));
        bench.publish(&limit("token_bucket", 10, "1h"));
        bench.publish(&log(10, "1h"));
        assert_eq!(bench.check("a", 1).is_allowed(), round < 10, "round {round}");
        for key in 0..10 {
            let _ = bench.check(&format!("{round}-{key}"), 1);
        }
        bench.clock.advance(Duration::from_nanos(1));
    }
    assert_eq!(bench.engine.log_charges_without_ring(), 0);
}

/// Threads check at one instant while publishes change the algorithm under them: together they are admitted the limit.
#[test]
fn checks_keep_the_bound_while_the_algorithm_changes() {
    const LIMIT: u64 = 400;
    let (mut met, deadline) = (0, Deadline::new());
    while met < 20 && !deadline.has_passed() {
        let bench = Bench::new(100, &log(LIMIT, "1h"));
        let (done, admitted) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        if bench.check("a", 1).is_allowed() {
                            admitted.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            let mut changes = 0;
            for to in [
                limit("token_bucket", LIMIT, "1h"),
                log(LIMIT, "2h"),
                limit("fixed_window", LIMIT, "1h"),
                log(LIMIT, "1h"),
            ] {
                let before = admitted.load(Ordering::SeqCst);
                while admitted.load(Ordering::SeqCst) < (before + 20).min(LIMIT / 2) {
                    std::hint::spin_loop();
                }
                bench.publish(&to);
                changes += u64::from(admitted.load(Ordering::SeqCst) > before && before < LIMIT);
            }
            met += changes;
            done.store(true, Ordering::SeqCst);
        });
        let admitted = admitted.into_inner();
        assert!(admitted <= LIMIT, "{admitted} of {LIMIT} in one instant");
    }
    assert!(met >= 20, "the publishes hardly met a check");
}

#[test]
fn a_shadow_log_and_several_limits_are_charged_all_or_none() {
    let shadow = log(1, "1m").replace("\"l\"", "\"s\"").replace(" }", ", mode = \"shadow\" }");
    let small = limit("token_bucket", 3, "1h").replace("\"l\"", "\"b\"");
    let bench = Bench::new(100, &[log(5, "1m"), small, shadow].join(", "));
    for round in 0..3 {
        let decision = bench.check("a", 1);
        assert!(decision.is_allowed());
        assert_eq!(decision.shadow_denied().count(), usize::from(round > 0));
    }
    assert_eq!(bench.check("a", 1).limit_id(), Some("default/tier:t/b"));
    bench.clock.advance(Duration::from_hours(1));
    assert_eq!(bench.peek("a").remaining(), Some(3), "a denial charged nothing");
    let mut handle = bench.engine.handle("default/tier:t/l", "ip").expect("in the policy");
    assert_eq!(handle.check_n(b"a", 5).expect("valid").remaining(), Some(0));
    assert!(!handle.check(b"a").is_allowed());
}

fn request<'a>(who: &'a [Identity<'a>], cost: u64) -> Request<'a> {
    Request::new(who).and_then(|request| request.cost(cost)).expect("valid")
}

/// The cost above the estimate takes the place of the oldest admissions, so it only delays.
#[test]
fn an_excess_is_charged_and_later_requests_wait() {
    let bench = Bench::new(100, &log(10, "1m"));
    let who = [Identity::new("ip", "a").expect("valid")];
    let reserve = |cost| bench.engine.reserve(&request(&who, cost)).1.expect("allowed");
    let first = reserve(2);
    bench.clock.advance(Duration::from_secs(20));
    bench.engine.settle(first, 5);
    assert_eq!(bench.peek("a").remaining(), Some(5), "three more");
    let second = reserve(5);
    bench.clock.advance(Duration::from_secs(20));
    bench.engine.settle(second, 5 + 4);
    // Of the ten cells four are taken for a minute from now; the six younger of the others stay.
    assert_eq!(bench.check("a", 1).retry(), Retry::After(Duration::from_secs(40)));
    bench.clock.advance(Duration::from_secs(40));
    assert_eq!(bench.peek("a").remaining(), Some(6));
    bench.clock.advance(Duration::from_secs(20));
    assert_eq!(bench.peek("a").remaining(), Some(10));
    // The cost is more than the log holds, and for a new key.
    let third = reserve(1);
    bench.engine.settle(third, 1 << 40);
    assert_eq!(bench.check("a", 1).retry(), Retry::After(Duration::from_mins(1)));
    bench.clock.advance(Duration::from_mins(1));
    assert!(bench.check("a", 10).is_allowed());
}

/// An excess is charged to the same key even where its slot was taken over meanwhile.
#[test]
fn an_excess_of_a_key_without_a_slot_is_charged_too() {
    let bench = Bench::new(1, &log(10, "1s"));
    let who = [Identity::new("ip", "a").expect("valid")];
    let reservation = bench.engine.reserve(&request(&who, 1)).1.expect("allowed");
    bench.clock.advance(Duration::from_secs(5));
    for stranger in 0..100 {
        let _ = bench.check(&format!("stranger-{stranger}"), 1);
    }
    bench.clock.advance(Duration::from_secs(5));
    bench.engine.settle(reservation, 8);
    assert_eq!(bench.peek("a").remaining(), Some(3));
}

/// A log gives nothing back: a later admission may have found the next cell already.
#[test]
fn what_was_charged_stays_charged_until_it_is_a_period_old() {
    let bench = Bench::new(100, &log(10, "1m"));
    let who = [Identity::new("ip", "a").expect("valid")];
    let reservation = bench.engine.reserve(&request(&who, 8)).1.expect("allowed");
    bench.engine.refund(reservation);
    assert_eq!(bench.peek("a").remaining(), Some(2));
    bench.clock.advance(Duration::from_mins(1));
    assert_eq!(bench.peek("a").remaining(), Some(10));
}

#[test]
fn a_reset_forgets_a_key_and_gives_its_ring_back() {
    let bench = Bench::new(20, &log(10, "1h"));
    let who = [Identity::new("ip", "a").expect("valid")];
    assert_eq!(bench.engine.reset(&request(&who, 1)), 0, "nothing to forget");
    for _ in 0..200 {
        let late = bench.engine.reserve(&request(&who, 4)).1.expect("allowed");
        assert!(bench.check("a", 6).is_allowed());
        assert!(!bench.check("a", 1).is_allowed());
        assert_eq!(bench.engine.reset(&request(&who, 1)), 1);
        assert_eq!(bench.peek("a").remaining(), Some(10));
        // From before the reset.
        bench.engine.refund(late);
        assert_eq!(bench.peek("a").remaining(), Some(10));
    }
    assert_eq!(bench.engine.log_charges_without_ring(), 0);
}

#[test]
fn a_batch_and_a_check_in_two_halves_charge_a_log() {
    let shared = limit("token_bucket", 100, "1m").replace("\"l\"", "\"s\"").replace(" }", ", sharing = \"strict\" }");
    let bench = Bench::new(100, &format!("{}, {shared}", log(3, "1m")));
    let who = [Identity::new("ip", "a").expect("valid")];
    let (one, two) = (request(&who, 1), request(&who, 2));
    let mut decisions = Vec::new();
    bench.engine.check_batch(&[two, two, one], &mut decisions);
    assert_eq!(decisions.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [true, false, true]);
    assert!(matches!(bench.engine.begin(&one), BeginResult::Decided(decision) if !decision.is_allowed()));
    bench.clock.advance(Duration::from_mins(1));
    let BeginResult::Pending(pending) = bench.engine.begin(&two) else { panic!("the store was not asked") };
    assert_eq!(bench.peek("a").remaining(), Some(3), "not charged yet");
    let (decision, back) = bench.engine.finish(pending, &[]);
    assert!(decision.is_allowed() && back.is_none());
    assert!(!bench.check("a", 2).is_allowed());
    assert!(bench.check("a", 1).is_allowed());
}

/// First touches, rings that change hands, charges, denials and excesses.
#[test]
fn logs_allocate_nothing_after_the_publish() {
    let bench = Bench::new(50, &log(100, "1s"));
    let check = |key: u32| {
        let key = key.to_be_bytes();
        let text = [b'a' + key[2] % 16, b'a' + key[3] / 16, b'a' + key[3] % 16];
        let who = [Identity::new("ip", std::str::from_utf8(&text).expect("letters")).expect("valid")];
        let _ = bench.engine.check(&request(&who, 60));
        let _ = bench.engine.peek(&request(&who, 1));
        bench.engine.reset(&request(&who, 1));
        let _ = bench.engine.check(&request(&who, 60));
        let _ = bench.engine.check(&request(&who, 60));
        bench.clock.advance(Duration::from_millis(50));
    };
    // The first check of a thread may allocate.
    check(0);
    let made = allocation_counter::measure(|| (1..2_000).for_each(check));
    assert_eq!(made.count_total, 0, "the check path allocated");
}

/// The rings of a keyed limiter exist before the first check.
#[test]
fn a_keyed_limiter_of_logs_allocates_nothing_in_a_check() {
    let log = SlidingWindowLog::new(5, Duration::from_secs(1)).expect("fits");
    let limiter =
        KeyedLimiter::with_clock(Meter::SlidingWindowLog(log), 100, ManualClock::at(Timestamp::from_nanos(NOW)));
    let checks = allocation_counter::measure(|| {
        for _ in 0..5 {
            assert!(limiter.check("ada").is_allowed());
        }
        assert!(!limiter.check("ada").is_allowed());
    });
    assert_eq!(checks.count_total, 0);
}

#[test]
fn what_does_not_fit_is_an_error_like_others() {
    let error: Box<dyn std::error::Error> =
        SlidingWindowLog::new(4_097, Duration::from_secs(1)).expect_err("too long").into();
    assert_eq!(error.to_string(), "limit: 4097 is out of range; from 1 to 4096 fit");
}
