//! Limiters without a policy: one bucket, and one limit on many keys.

use std::{
    collections::HashMap,
    num::NonZeroU16,
    ops::Range,
    sync::{Barrier, LazyLock},
    thread,
    time::{Duration, SystemTime},
};

use proptest::prelude::*;
use tidegate::{
    KeyedLimiter, Limiter, Outcome, Rate, RatedLimiter, Retry,
    algorithm::{FixedWindow, Meter, NUMBER_MAX, SlidingWindowCounter, TokenBucket},
    clock::{Clock, ManualClock},
    internals::Verdict,
    time::Timestamp,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The beginning of a minute in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;

fn at_now(meter: impl Into<Option<Meter>>) -> (ManualClock, Limiter<ManualClock>) {
    let clock = ManualClock::at(Timestamp::from_nanos(NOW));
    (clock.clone(), Limiter::with_clock(meter, clock))
}

/// Returns everything that an outcome says.
fn told(outcome: &Outcome) -> (bool, Retry, Duration, u64, u64, Duration, SystemTime) {
    (
        outcome.is_allowed(),
        outcome.retry(),
        outcome.delay(),
        outcome.limit(),
        outcome.remaining(),
        outcome.reset_after(),
        outcome.reset_at(),
    )
}

#[test]
fn a_limiter_admits_its_burst_and_then_its_rate() {
    let (clock, limiter) = at_now(Rate::per_second(10).burst(3));
    let first = limiter.check();
    assert_eq!((first.retry(), first.limit(), first.remaining()), (Retry::Now, 3, 2));
    assert_eq!(first.reset_after(), Duration::from_millis(100));
    assert_eq!(first.reset_at(), SystemTime::from(Timestamp::from_nanos(NOW)) + Duration::from_millis(100));
    assert!(limiter.check_n(2).is_allowed());
    assert_eq!(limiter.check().retry(), Retry::After(Duration::from_millis(100)));
    clock.advance(Duration::from_nanos(100 * MS - 1));
    assert_eq!(limiter.check().retry(), Retry::After(Duration::from_nanos(1)));
    clock.advance(Duration::from_nanos(1));
    assert!(limiter.check().is_allowed(), "waiting exactly that long is enough");
    clock.advance(Duration::from_hours(1));
    assert_eq!((0..10).filter(|_| limiter.check().is_allowed()).count(), 3, "no more than the burst after a pause");
}

#[test]
fn the_units_of_a_rate_are_what_they_say() {
    for (rate, interval) in [
        (Rate::per_second(4), Duration::from_millis(250)),
        (Rate::per_minute(4), Duration::from_secs(15)),
        (Rate::per_hour(4), Duration::from_mins(15)),
    ] {
        let (_, limiter) = at_now(rate);
        assert_eq!(limiter.check_n(4).remaining(), 0, "{rate:?}: as many at once");
        assert_eq!(limiter.check().retry(), Retry::After(interval), "{rate:?}");
    }
    let reset = |limiter: &Limiter| limiter.check().reset_after();
    assert_eq!(reset(&Limiter::per_second(4)), Duration::from_millis(250));
    assert_eq!(reset(&Limiter::per_minute(4)), Duration::from_secs(15));
    assert_eq!(reset(&Limiter::per_hour(4)), Duration::from_mins(15));
    let reset = |limiter: &KeyedLimiter| limiter.check("ada").reset_after();
    assert_eq!(reset(&KeyedLimiter::per_second(4)), Duration::from_millis(250));
    assert_eq!(reset(&KeyedLimiter::per_minute(4)), Duration::from_secs(15));
    assert_eq!(reset(&KeyedLimiter::per_hour(4)), Duration::from_mins(15));
}

#[test]
fn zero_denies_everything() {
    for rate in [Rate::per_second(0), Rate::per_hour(0).burst(5), Rate::per_second(5).burst(0)] {
        let (clock, limiter) = at_now(rate);
        let keyed = KeyedLimiter::with_clock(rate, 10, clock.clone());
        let rated = RatedLimiter::with_clock(10, clock.clone());
        // A key that has a bucket is denied too.
        assert!(rated.check("bob", Rate::per_hour(1)).is_allowed());
        for _ in 0..3 {
            for cost in [0, 1, u64::MAX] {
                for answer in [
                    limiter.check_n(cost),
                    limiter.peek_n(cost),
                    keyed.check_n("ada", cost),
                    keyed.peek("ada"),
                    rated.check_n("ada", rate, cost),
                    rated.check_n("bob", rate, cost),
                    rated.peek_n("ada", None, cost),
                    rated.peek("bob", rate),
                ] {
                    assert_eq!((answer.retry(), answer.limit(), answer.remaining()), (Retry::Never, 0, 0), "{rate:?}");
                }
            }
            clock.advance(Duration::from_hours(8_784));
        }
    }
    assert!(!Limiter::new(None).check().is_allowed());
}

#[test]
fn numbers_that_are_too_large_are_cut_to_what_fits() {
    const CENTURY_HOURS: u64 = 100 * 366 * 24;
    for (rate, capacity) in [
        (Rate::per_second(u64::MAX), NUMBER_MAX),
        (Rate::per_second(NUMBER_MAX + 1), NUMBER_MAX),
        (Rate::per_second(NUMBER_MAX).burst(u64::MAX), NUMBER_MAX),
        (Rate::per_hour(1).burst(u64::MAX), CENTURY_HOURS),
        (Rate::per_hour(1).burst(CENTURY_HOURS + 1), CENTURY_HOURS),
        (Rate::per_hour(1).burst(CENTURY_HOURS), CENTURY_HOURS),
        (Rate::per_hour(1).burst(CENTURY_HOURS - 1), CENTURY_HOURS - 1),
    ] {
        let (_, limiter) = at_now(rate);
        assert_eq!(limiter.peek().limit(), capacity, "{rate:?}");
        assert_eq!(limiter.check_n(u64::MAX).retry(), Retry::Never, "{rate:?}");
        assert!(limiter.check_n(capacity).is_allowed(), "{rate:?}");
        assert!(!limiter.check().is_allowed() || capacity == NUMBER_MAX, "{rate:?}");
    }
}

#[test]
fn a_cost_of_zero_shows_what_is_left() {
    let (_, limiter) = at_now(Rate::per_minute(5));
    let keyed = KeyedLimiter::with_clock(Rate::per_minute(5), 10, ManualClock::at(Timestamp::from_nanos(NOW)));
    for left in [5, 4, 3] {
        assert_eq!((limiter.check_n(0).remaining(), keyed.check_n("ada", 0).remaining()), (left, left));
        assert!(limiter.check().is_allowed() && keyed.check("ada").is_allowed());
    }
}

/// A clock whose readings may be 5 ms behind.
struct Behind(ManualClock);

impl Clock for Behind {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn resolution(&self) -> Duration {
        Duration::from_millis(5)
    }
}

#[test]
fn by_a_clock_that_is_behind_the_wait_is_longer() {
    let rate = Rate::per_second(10).burst(1);
    let clock = || Behind(ManualClock::at(Timestamp::from_nanos(NOW)));
    let (one, keyed) = (Limiter::with_clock(rate, clock()), KeyedLimiter::with_clock(rate, 10, clock()));
    assert!(one.check().is_allowed() && keyed.check("ada").is_allowed());
    for denied in [one.check(), one.peek(), keyed.check("ada"), keyed.peek("ada")] {
        assert_eq!(denied.retry(), Retry::After(Duration::from_millis(105)));
    }
    assert_eq!(one.check_n(2).retry(), Retry::Never);
}

#[test]
fn a_limiter_takes_any_meter() {
    let window = Meter::FixedWindow(FixedWindow::new(2, Duration::from_mins(1)).expect("fits"));
    let (clock, limiter) = at_now(window);
    clock.advance(Duration::from_secs(10));
    assert_eq!((0..5).filter(|_| limiter.check().is_allowed()).count(), 2);
    assert_eq!(limiter.check().retry(), Retry::After(Duration::from_secs(50)));

    let queue = Meter::LeakyBucket(TokenBucket::new(10, Duration::from_secs(1), 3).expect("fits"));
    let (_, limiter) = at_now(queue);
    let delays: Vec<u128> = (0..4).map(|_| limiter.check().delay().as_millis()).collect();
    assert_eq!(delays, [0, 100, 200, 0], "the last one is denied");
    assert_eq!(limiter.check().retry(), Retry::After(Duration::from_millis(100)));
    let keyed = KeyedLimiter::with_clock(queue, 10, ManualClock::at(Timestamp::from_nanos(NOW)));
    assert_eq!((keyed.check("a").delay(), keyed.check("a").delay()), (Duration::ZERO, Duration::from_millis(100)));
}

#[test]
fn threads_admit_exactly_the_burst_together() {
    const THREADS: usize = 4;
    let (clock, one) = at_now(Rate::per_hour(10_000));
    let keyed = KeyedLimiter::with_clock(Rate::per_hour(10_000), 10, clock);
    let start = Barrier::new(THREADS);
    let run = || {
        start.wait();
        (0..10_000).fold([0; 2], |[by_one, by_key], _| {
            [by_one + u64::from(one.check().is_allowed()), by_key + u64::from(keyed.check("ada").is_allowed())]
        })
    };
    let admitted: Vec<[u64; 2]> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let sum = admitted.iter().fold([0; 2], |[a, b], [more_a, more_b]| [a + more_a, b + more_b]);
    assert_eq!(sum, [10_000; 2]);
}

#[test]
fn keys_without_a_place_get_overflow_buckets_or_wait_and_never_pass_free() {
    const KEYS: u64 = 10_000;
    let clock = ManualClock::at(Timestamp::from_nanos(NOW));
    // Two lines of four slots, and eight overflow buckets.
    let limiter = KeyedLimiter::with_clock(Rate::per_hour(3), 1, clock.clone());
    let round = || (0..KEYS).filter(|&key| limiter.check(key).is_allowed()).count();
    assert_eq!([round(), round(), round(), round()], [16, 16, 16, 0], "sixteen keys have all of their quota");
    assert_eq!(limiter.denied_without_room(), 4 * (KEYS - 16));
    assert_eq!(limiter.overflow_charges(), 8 + limiter.denied_without_room());
    assert_eq!(limiter.peek(KEYS).retry(), limiter.check(KEYS).retry(), "a stranger is told what holds for it");
    let Retry::After(wait) = limiter.check(KEYS).retry() else { panic!("there was room") };
    clock.advance(Duration::from_nanos(u64::try_from(wait.as_nanos()).expect("short") - 1));
    assert_eq!(limiter.peek(KEYS).retry(), Retry::After(Duration::from_nanos(1)));
    clock.advance(Duration::from_nanos(1));
    assert_eq!((0..5).filter(|_| limiter.check(KEYS).is_allowed()).count(), 3, "what is idle gives its place away");
}

#[test]
fn limiters_can_be_shared_by_threads_and_kept_in_statics() {
    const RATE: Rate = Rate::per_minute(3).burst(2);
    static LIMITER: LazyLock<Limiter> = LazyLock::new(|| Limiter::new(RATE));
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Limiter>();
    shared::<KeyedLimiter>();
    assert_eq!(LIMITER.peek().limit(), 2);
}

fn meters() -> impl Strategy<Value = Meter> {
    let bucket = (1u64..50, 1u64..2_000, 1u64..20)
        .prop_map(|(limit, ms, burst)| TokenBucket::new(limit, Duration::from_millis(ms), burst).expect("fits"));
    let window = (1u64..20, 1u64..5);
    prop_oneof![
        bucket.clone().prop_map(Meter::TokenBucket),
        bucket.prop_map(Meter::LeakyBucket),
        window
            .clone()
            .prop_map(|(n, s)| Meter::FixedWindow(FixedWindow::new(n, Duration::from_secs(s)).expect("fits"))),
        window.prop_map(|(n, s)| {
            Meter::SlidingWindowCounter(SlidingWindowCounter::new(n, Duration::from_secs(s)).expect("fits"))
        }),
    ]
}

/// Calls: the key, the nanoseconds since the last call, and the cost.
fn calls() -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
    prop::collection::vec((0u8..4, prop_oneof![Just(0), 0..300 * MS, 0..3 * SECOND], 0u64..8), 1..80)
}

proptest! {
    /// Checks the bound of a token bucket over every interval, by brute force and in whole numbers; and that the next check
    /// keeps each promise of an outcome.
    #[test]
    fn a_limiter_keeps_its_bound_and_its_word(
        limit in 1u64..2_000, burst in 1u64..50, calls in calls(),
    ) {
        let (clock, limiter) = at_now(Rate::per_second(limit).burst(burst));
        let (mut now, mut admitted) = (NOW, Vec::<(u64, u64)>::new());
        for (_, pause, cost) in calls {
            now += pause;
            clock.set(Timestamp::from_nanos(now));
            let left = limiter.check_n(0).remaining();
            prop_assert!(limiter.peek_n(left).is_allowed() && !limiter.peek_n(left + 1).is_allowed());
            let peeked = told(&limiter.peek_n(cost));
            let answer = limiter.check_n(cost);
            prop_assert_eq!(told(&answer), peeked, "a peek answers as the check");
            match answer.retry() {
                Retry::Now => admitted.push((now, cost)),
                Retry::Never => prop_assert!(cost > burst),
                Retry::After(wait) => {
                    prop_assert!(cost <= burst && cost > left && !wait.is_zero());
                    prop_assert_eq!(limiter.check_n(0).remaining(), left, "a denial costs nothing");
                    now += wait.as_nanos() as u64;
                    clock.set(Timestamp::from_nanos(now - 1));
                    prop_assert!(!limiter.peek_n(cost).is_allowed(), "a shorter wait would not have been enough");
                    clock.set(Timestamp::from_nanos(now));
                    prop_assert!(limiter.check_n(cost).is_allowed(), "waiting as told is enough");
                    admitted.push((now, cost));
                }
            }
        }
        for (first, &(from, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for &(at, cost) in &admitted[first..] {
                sum += u128::from(cost);
                let excess = sum.saturating_sub(burst.into()) * u128::from(SECOND);
                prop_assert!(excess <= u128::from(limit) * u128::from(at - from));
            }
        }
    }

    /// A keyed limiter is one limiter for each key.
    #[test]
    fn a_keyed_limiter_answers_as_one_limiter_for_each_key(meter in meters(), calls in calls()) {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let keyed = KeyedLimiter::with_clock(meter, 1_000, clock.clone());
        let mut single = HashMap::<u8, Limiter<ManualClock>>::new();
        for (who, pause, cost) in calls {
            clock.advance(Duration::from_nanos(pause));
            let single = single.entry(who).or_insert_with(|| Limiter::with_clock(meter, clock.clone()));
            prop_assert_eq!(told(&keyed.peek_n(who, cost)), told(&single.peek_n(cost)));
            prop_assert_eq!(told(&keyed.check_n(who, cost)), told(&single.check_n(cost)));
        }
    }

    #[test]
    fn no_numbers_make_a_limiter_panic(limit in extreme(), burst in extreme(), cost in extreme(), now in extreme()) {
        for rate in [Rate::per_second(limit), Rate::per_minute(limit).burst(burst), Rate::per_hour(limit).burst(burst)] {
            let clock = ManualClock::at(Timestamp::from_nanos(now));
            let limiter = Limiter::with_clock(rate, clock.clone());
            let capacity = limiter.peek().limit();
            prop_assert!(capacity <= NUMBER_MAX && (capacity == 0) == (limit == 0 || rate == rate.burst(0)));
            let first = limiter.check_n(cost);
            prop_assert_eq!(first.is_allowed(), capacity > 0 && cost <= capacity);
            let second = limiter.check_n(capacity);
            let _ = (told(&first), told(&second));
            clock.set(Timestamp::from_nanos(u64::MAX));
            let _ = told(&limiter.check());
        }
    }
}

fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..4, any::<u64>(), NUMBER_MAX - 2..NUMBER_MAX + 2, u64::MAX - 2..=u64::MAX]
}

/// 10 a second, this many at once.
fn ten_a_second(burst: u64) -> TokenBucket {
    TokenBucket::new(10, Duration::from_secs(1), burst).expect("fits")
}

#[test]
fn other_numbers_go_on_from_what_was_used() {
    let clock = ManualClock::at(Timestamp::from_nanos(NOW));
    let limiter = RatedLimiter::with_clock(10, clock.clone());
    let check = |bucket, cost| limiter.check_n("ada", bucket, cost);
    assert_eq!(check(ten_a_second(5), 5).remaining(), 0);
    // Of a hundred at once, those five are gone.
    assert_eq!(check(ten_a_second(100), 15).remaining(), 80);
    // Of five, all are, until twenty have come back but five.
    assert_eq!(check(ten_a_second(5), 1).retry(), Retry::After(Duration::from_millis(1_600)));
    assert_eq!(limiter.peek_n("ada", ten_a_second(100), 80).retry(), Retry::Now);
    assert_eq!(check(ten_a_second(5), 6).retry(), Retry::Never);
    clock.advance(Duration::from_millis(1_600));
    assert_eq!(check(ten_a_second(5), 1).remaining(), 0);
    assert!(limiter.reset("ada") && !limiter.reset("ada") && !limiter.reset("bob"));
    assert_eq!(check(ten_a_second(5), 0).remaining(), 5, "a cost of 0 charges nothing");
    assert_eq!(check(ten_a_second(5), 5).remaining(), 0);
}

proptest! {
    /// The word of a key is the time at which it has all of its quota again, which every check reads by its own numbers.
    #[test]
    fn a_key_is_one_word_whatever_the_numbers(
        checks in prop::collection::vec((1_u64..2_000, 1_u64..100_000, 1_u64..5_000, 0_u64..6_000, 0_u64..3 * SECOND), 1..60),
    ) {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let limiter = RatedLimiter::with_clock(10, clock.clone());
        let mut word = 0;
        for (limit, period_ms, burst, cost, pause) in checks {
            clock.advance(Duration::from_nanos(pause));
            let bucket = TokenBucket::new(limit, Duration::from_millis(period_ms), burst).expect("fits");
            let meter = Meter::TokenBucket(bucket);
            let outcome = limiter.check_n(7_u64, bucket, cost);
            let now = clock.now();
            match meter.step(word, now.as_nanos(), cost) {
                Verdict::Admit(_) if cost == 0 => prop_assert!(outcome.is_allowed()),
                Verdict::Admit(after) => {
                    prop_assert!(outcome.is_allowed());
                    word = after;
                }
                Verdict::Later { wait_ns } => {
                    prop_assert_eq!(outcome.retry(), Retry::After(Duration::from_nanos(wait_ns)));
                }
                Verdict::Never => prop_assert_eq!(outcome.retry(), Retry::Never),
            }
            prop_assert_eq!(outcome.remaining(), meter.remaining(word, now.as_nanos()));
        }
    }
}

/// Hot keys of large buckets are striped in other limiters, where a key has one set of numbers.
#[test]
fn threads_with_different_numbers_admit_what_one_word_holds() {
    const BURST: u64 = 100_000;
    let limiter = RatedLimiter::with_clock(10, ManualClock::at(Timestamp::from_nanos(NOW)));
    let (large, small) = (ten_a_second(BURST), ten_a_second(BURST / 2));
    let (start, threads) = (Barrier::new(4), 4);
    let admitted: Vec<u64> = thread::scope(|scope| {
        let work = |place| {
            let (limiter, start) = (&limiter, &start);
            scope.spawn(move || {
                let bucket = if place % 2 == 0 { large } else { small };
                start.wait();
                (0..BURST).filter(|_| limiter.check_n("ada", bucket, 1).is_allowed()).count() as u64
            })
        };
        let handles: Vec<_> = (0..threads).map(work).collect();
        handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
    });
    assert_eq!(admitted.iter().sum::<u64>(), BURST, "{admitted:?}");
    assert!(admitted[1] + admitted[3] <= BURST / 2, "{admitted:?}");
}

/// Sixteen slots: one group alone may have eleven, and each group eight in any case.
#[test]
fn what_the_share_of_a_group_denies_is_not_counted_as_a_full_table() {
    let limiter = RatedLimiter::with_groups(10, ManualClock::at(Timestamp::from_nanos(NOW)));
    let a_day = TokenBucket::new(1, Duration::from_hours(24), 1).expect("valid");
    let admitted = |group: u16, names: Range<u64>| {
        let group = NonZeroU16::new(group).expect("a number");
        names.filter(|name| limiter.check_n_in_group(group, *name, a_day, 1).is_allowed()).count()
    };
    let denied = || (limiter.denied_by_share(), limiter.denied_without_room());
    assert_eq!((admitted(1, 0..30), denied()), (11, (19, 0)));
    assert_eq!((admitted(2, 30..60), denied()), (5 + 8, (19, 17)), "what is left, and the overflow buckets");
    assert_eq!((admitted(1, 60..61), denied()), (0, (20, 17)));
    assert_eq!(limiter.overflow_charges(), 8 + 17);
}
