//! Waiting for limiters, on tokio's virtual time: how long a caller waits, in which order, and what a dropped wait
//! takes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::prelude::*;
use tidegate::{
    KeyedLimiter, Limiter, Rate, Retry, WaitError,
    algorithm::{FixedWindow, Meter, SlidingWindowCounter, TokenBucket},
    clock::Clock,
    time::Timestamp,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The beginning of a minute in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;

/// Moves with tokio's time.
#[derive(Clone, Copy)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(NOW) + self.0.elapsed()
    }
}

impl TokioClock {
    fn ms(self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}

fn clock() -> TokioClock {
    TokioClock(Instant::now())
}

fn limiter(meter: impl Into<Option<Meter>>) -> (TokioClock, Arc<Limiter<TokioClock>>) {
    let clock = clock();
    (clock, Arc::new(Limiter::with_clock(meter, clock)))
}

fn leaky(limit: u64, burst: u64) -> Meter {
    Meter::LeakyBucket(TokenBucket::new(limit, Duration::from_secs(1), burst).expect("fits"))
}

#[tokio::test(start_paused = true)]
async fn the_burst_goes_at_once_and_the_rest_at_the_rate() {
    let (clock, limiter) = limiter(Rate::per_second(10).burst(2));
    let mut passed = Vec::new();
    for _ in 0..5 {
        limiter.wait().await.expect("comes");
        passed.push(clock.ms());
    }
    assert_eq!(passed, [0, 0, 100, 200, 300]);
    limiter.wait_n(2).await.expect("comes");
    assert_eq!(clock.ms(), 500);
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_are_served_in_order_of_arrival() {
    let (clock, limiter) = limiter(Rate::per_second(10).burst(5));
    let keyed = Arc::new(KeyedLimiter::with_clock(Rate::per_second(10).burst(5), 100, clock));
    let costs = [5, 1, 4, 1, 1, 3, 2, 1];
    let served = Arc::new([const { Mutex::new(Vec::new()) }; 2]);
    let mut waiters = JoinSet::new();
    for (who, cost) in costs.into_iter().enumerate() {
        let (limiter, keyed) = (Arc::clone(&limiter), Arc::clone(&keyed));
        let (by_one, by_key) = (Arc::clone(&served), Arc::clone(&served));
        waiters.spawn(async move {
            limiter.wait_n(cost).await.expect("comes");
            by_one[0].lock().expect("no panic").push((who, clock.ms()));
        });
        waiters.spawn(async move {
            keyed.wait_n("ada", cost).await.expect("comes");
            by_key[1].lock().expect("no panic").push((who, clock.ms()));
        });
        tokio::task::yield_now().await;
    }
    waiters.join_all().await;
    let expected = [(0, 0), (1, 100), (2, 500), (3, 600), (4, 700), (5, 1_000), (6, 1_200), (7, 1_300)];
    for served in served.iter() {
        assert_eq!(*served.lock().expect("no panic"), expected, "one who wants little does not overtake");
    }
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_queue_of_its_own() {
    let clock = clock();
    let keyed = KeyedLimiter::with_clock(Rate::per_second(10).burst(1), 100, clock);
    let of = async |key: u64| {
        for _ in 0..3 {
            keyed.wait(key).await.expect("comes");
        }
        clock.ms()
    };
    assert_eq!(tokio::join!(of(1), of(2), of(3)), (200, 200, 200));
    assert_eq!(keyed.wait_n_until(1_u64, 1, Instant::now()).await, Err(WaitError::TooLate));
    assert_eq!(keyed.wait_until(4_u64, Instant::now()).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_takes_nothing_and_lets_the_next_one_move_up() {
    let (clock, limiter) = limiter(Rate::per_second(10).burst(5));
    limiter.wait_n(5).await.expect("comes");
    let (large, small) = (limiter.wait_n(5), limiter.wait());
    let mut small = Box::pin(small);
    {
        let mut large = Box::pin(large);
        assert!(timeout(Duration::ZERO, &mut large).await.is_err(), "first in line");
        assert!(timeout(Duration::ZERO, &mut small).await.is_err(), "second");
        sleep(Duration::from_millis(250)).await;
        assert!(timeout(Duration::ZERO, &mut small).await.is_err(), "the first one wants five");
    }
    assert_eq!(limiter.check_n(0).remaining(), 2, "nothing was taken");
    small.await.expect("comes");
    assert_eq!((clock.ms() / 10, limiter.check_n(0).remaining()), (25, 1));
    drop(limiter.wait_n(1));
    assert_eq!(limiter.check_n(0).remaining(), 1, "one that was never polled took nothing either");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_refused_as_soon_as_it_is_sure_to_be_missed() {
    let (clock, limiter) = limiter(Rate::per_second(10).burst(1));
    let at = |ms| clock.0 + Duration::from_millis(ms);
    assert_eq!(limiter.wait_until(at(0)).await, Ok(()), "there is one now");
    assert_eq!(limiter.wait_until(at(0)).await, Err(WaitError::TooLate));
    assert_eq!(limiter.wait_until(at(99)).await, Err(WaitError::TooLate));
    assert_eq!(clock.ms(), 0, "without waiting");
    assert_eq!(limiter.wait_until(at(100)).await, Ok(()), "just in time");
    assert_eq!(clock.ms(), 100);

    // Behind another caller it is not certain before the deadline.
    let first = limiter.wait_n(1);
    let second = async {
        let outcome = limiter.wait_until(at(150)).await;
        (outcome, clock.ms())
    };
    let third = limiter.wait_until(at(300));
    let (first, second, third) = tokio::join!(biased; first, second, third);
    assert_eq!((first, second, third), (Ok(()), (Err(WaitError::TooLate), 150), Ok(())));
    assert_eq!(clock.ms(), 300, "the second one left the line and took nothing");

    sleep(Duration::from_millis(100)).await;
    assert_eq!(limiter.wait_until(at(0)).await, Ok(()), "a deadline in the past: now or not at all");
    let forever = Instant::now() + Duration::from_hours(24 * 365 * 30);
    assert_eq!(limiter.wait_until(forever).await, Ok(()));
    let std_deadline = Instant::now().into_std() + Duration::from_hours(1);
    assert_eq!(limiter.wait_n_until(0, std_deadline).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_never_fits_is_not_waited_for() {
    for meter in [Rate::per_second(0).into(), Rate::per_second(10).burst(3).into(), Some(leaky(10, 3))] {
        let (clock, limiter) = limiter(meter);
        let keyed = KeyedLimiter::with_clock(meter, 10, clock);
        if meter.is_some() {
            limiter.wait_n(3).await.expect("comes");
            let mut in_line = Box::pin(limiter.wait_n(3));
            assert!(timeout(Duration::ZERO, &mut in_line).await.is_err());
            assert_eq!(limiter.wait_n(4).await, Err(WaitError::Never), "whoever stands in line");
            assert_eq!(limiter.wait_n(0).await, Ok(()));
        } else {
            assert_eq!(limiter.wait_n(0).await, Err(WaitError::Never));
        }
        for cost in [4, u64::MAX] {
            assert_eq!(limiter.wait_n(cost).await, Err(WaitError::Never));
            assert_eq!(limiter.wait_n_until(cost, Instant::now()).await, Err(WaitError::Never));
            assert_eq!(keyed.wait_n("ada", cost).await, Err(WaitError::Never));
        }
        assert!(clock.ms() <= 2);
    }
    assert_eq!(WaitError::Never.to_string(), "the limit never admits this cost");
}

#[tokio::test(start_paused = true)]
async fn a_check_may_take_the_token_first_and_the_wait_goes_on() {
    let (clock, limiter) = limiter(Rate::per_second(10).burst(1));
    limiter.wait().await.expect("comes");
    let thief = async {
        // The check comes before the timer of the waiting caller.
        sleep(Duration::from_millis(50)).await;
        for _ in 0..2 {
            while !limiter.check().is_allowed() {
                sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let (waited, ()) = tokio::join!(limiter.wait(), thief);
    assert_eq!(waited, Ok(()));
    assert_eq!(clock.ms() / 100, 3, "two of the three went to the thief");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waited_for_a_leaky_bucket_goes_on_without_a_delay() {
    let (clock, limiter) = limiter(leaky(10, 3));
    let keyed = KeyedLimiter::with_clock(leaky(10, 3), 10, clock);
    for _ in 0..2 {
        assert!(limiter.check().is_allowed() && keyed.check(7_u8).is_allowed());
    }
    assert_eq!(limiter.peek().delay(), Duration::from_millis(200), "two are in the queue");
    let mut passed = Vec::new();
    for _ in 0..3 {
        let (one, of_key) = tokio::join!(limiter.wait(), keyed.wait(7_u8));
        assert_eq!((one, of_key), (Ok(()), Ok(())));
        passed.push(clock.ms());
    }
    assert_eq!(passed, [200, 300, 400], "after the queue, at the rate");
    assert_eq!(limiter.peek().delay(), Duration::from_millis(100), "and those who check come after them");
}

#[tokio::test(start_paused = true)]
async fn windows_are_waited_for_until_they_have_room() {
    let (clock, limiter) = limiter(Meter::FixedWindow(FixedWindow::new(2, Duration::from_secs(10)).expect("fits")));
    let mut passed = Vec::new();
    for _ in 0..5 {
        limiter.wait().await.expect("comes");
        passed.push(clock.ms());
    }
    assert_eq!(passed, [0, 0, 10_000, 10_000, 20_000]);
}

#[test]
fn waits_can_be_spawned() {
    fn spawnable<T: Send>(_: T) {}
    let (one, keyed) = (Limiter::per_second(1), KeyedLimiter::with_max_keys(Rate::per_second(1), 1));
    spawnable(one.wait());
    spawnable(one.wait_n_until(2, Instant::now()));
    spawnable(keyed.wait("ada"));
    spawnable(keyed.wait_n_until(&String::new(), 2, Instant::now().into_std()));
}

fn meters() -> impl Strategy<Value = Meter> {
    let bucket = (1u64..50, 1u64..20)
        .prop_map(|(limit, burst)| TokenBucket::new(limit, Duration::from_secs(1), burst).expect("fits"));
    prop_oneof![
        bucket.clone().prop_map(Meter::TokenBucket),
        bucket.prop_map(Meter::LeakyBucket),
        (1u64..20).prop_map(|n| Meter::FixedWindow(FixedWindow::new(n, Duration::from_secs(1)).expect("fits"))),
        (1u64..20).prop_map(|n| Meter::SlidingWindowCounter(
            SlidingWindowCounter::new(n, Duration::from_secs(1)).expect("fits")
        )),
    ]
}

proptest! {
    /// Some callers give up after a while, which drops their futures in every state. The bucket is then in the state that the
    /// completed waits alone leave.
    #[test]
    fn only_waits_that_end_well_take_something(
        meter in meters(),
        waits in prop::collection::vec((0u64..400, 0u64..6, 0u64..2_000), 1..25),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let (rest, ended, now) = runtime.block_on(async {
            let (clock, one) = limiter(meter);
            let by_key = Arc::new(KeyedLimiter::with_clock(meter, 100, clock));
            let ended = Arc::new([const { Mutex::new(Vec::new()) }; 2]);
            let mut waiters = JoinSet::new();
            for (start, cost, patience) in waits {
                let (one, by_key, ended) = (Arc::clone(&one), Arc::clone(&by_key), Arc::clone(&ended));
                waiters.spawn(async move {
                    sleep(Duration::from_millis(start)).await;
                    let patience = Duration::from_millis(patience);
                    let (one, by_key) = tokio::join!(
                        async { (timeout(patience, one.wait_n(cost)).await, clock.now()) },
                        async { (timeout(patience, by_key.wait_n("ada", cost)).await, clock.now()) },
                    );
                    for (place, (outcome, at)) in [one, by_key].into_iter().enumerate() {
                        if outcome == Ok(Ok(())) {
                            ended[place].lock().expect("no panic").push((at, cost));
                        }
                    }
                });
            }
            waiters.join_all().await;
            let rest = [one.check_n(0), by_key.check_n("ada", 0)].map(|rest| (rest.remaining(), rest.reset_after()));
            let ended = [0, 1].map(|place| ended[place].lock().expect("no panic").clone());
            (rest, ended, clock.now())
        });
        for (mut ended, rest) in ended.into_iter().zip(rest) {
            ended.sort_unstable();
            let clock = tidegate::clock::ManualClock::at(Timestamp::from_nanos(NOW));
            let told = Limiter::with_clock(meter, clock.clone());
            for (at, cost) in ended {
                clock.set(at);
                prop_assert_eq!(told.check_n(cost).retry(), Retry::Now, "more was admitted than the limit allows");
            }
            clock.set(now);
            let expected = told.check_n(0);
            prop_assert_eq!(rest, (expected.remaining(), expected.reset_after()), "something else was taken");
        }
    }
}
