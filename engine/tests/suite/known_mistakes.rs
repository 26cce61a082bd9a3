//! Mistakes that other rate limiters made: each is a test that would catch it here, named after the rule that must
//! hold.
//!
//! Some have their test elsewhere:
//!
//! | mistake | test |
//! |---|---|
//! | large quotas overflow | `steps.rs`: `large_quotas_do_not_overflow`, `extremes_saturate`; the conformance suite |
//! | fast rates are clamped, or unlimited | `steps.rs`: `rates_above_one_token_a_nanosecond_are_neither_clamped_nor_unlimited` |
//! | after idling, a burst twice as large | `steps.rs`: `a_burst_never_exceeds_b_also_after_long_idling` |
//! | a clock that goes back mints tokens | `steps.rs`, `sliding_window_counter.rs`: `time_going_backwards_mints_nothing`; `clocks.rs` |
//! | the client brings the clock | none: a request has no field for it |
//! | a cost above the capacity is told to wait | `steps.rs`: `a_cost_above_the_capacity_is_never_and_not_later` |
//! | a refused request is charged | `steps.rs`: `a_rejected_request_costs_nothing` |
//! | of several limits some are charged | `checks.rs`: `several_limits_are_charged_all_or_none`, `what_a_lost_race_took_is_given_back_to_the_token` |
//! | a month has 30 days, a week begins on Thursday | `calendar.rs`: `weeks_begin_on_monday_and_months_on_the_first` |
//! | retry-after is 0 while blocked, or too short | `steps.rs`: `retry_after_is_exact_and_never_zero_while_blocked` |
//! | remaining underflows when a limit is lowered | `steps.rs`: `remaining_never_underflows_after_a_limit_was_lowered` |
//! | a raise has to wait for the old window | `steps.rs`: `raising_a_limit_takes_effect_at_once`; `checks.rs`: `a_publish_keeps_what_was_used` |
//! | a sliding window rushes at its boundary | `checks.rs`: `a_sliding_window_has_no_rush_at_its_boundary` |
//! | keys without number fill the memory | `heavy_hitters.rs`: `any_number_of_keys_of_any_length_takes_the_same_memory` |
//! | input crashes it | `policies/errors.rs`: `errors_name_field_and_line_in_every_format`; `request.rs`: `bad_requests_are_refused_with_the_field_named` |
//! | the first pattern of the file wins | `pattern.rs`: `the_closest_pattern_wins_in_any_order` |
//! | cancelling gives back too much or too little | `reservations.rs`; `steps.rs`: `a_late_give_back_returns_only_what_time_has_not` |
//! | a plain store lets several threads pass | `bucket.rs`: `threads_that_contend_admit_exactly_the_burst`; the conformance suite |

use std::{
    hint,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use tidegate::{
    Decision, Engine, Identity, Request, Retry, Snapshot, clock::ManualClock, formats::Format, time::Timestamp,
};

const SECOND: u64 = 1_000_000_000;
/// The beginning of a minute and of a day in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;

/// All algorithms.
const ALGORITHMS: [&str; 5] =
    ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"];

/// An engine whose one limit counts identities of the kinds `k` and `j`.
struct Bench {
    clock: ManualClock,
    engine: Engine<ManualClock>,
}

impl Bench {
    fn new(max_keys: usize, limit: &str) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let bench = Self { engine: Engine::for_simulation(max_keys, clock.clone(), 7), clock };
        bench.publish(limit);
        bench
    }

    fn publish(&self, limit: &str) {
        let policy = format!(
            "[domains.default]\ndefaults = {{ k = \"t\", j = \"t\" }}\n\
             [[domains.default.tiers]]\nid = \"t\"\nlimits = [{{ id = \"l\", {limit} }}]\n\
             [[domains.default.tiers]]\nid = \"free\"\nunlimited = true\n\
             [[domains.default.clients]]\nkind = \"k\"\nvalue = \"friend\"\ntier = \"free\"\n"
        );
        self.engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a good policy")).expect("one limit");
    }

    fn check(&self, value: &str, cost: u64) -> Decision<'_> {
        let who = [Identity::new("k", value).expect("valid")];
        self.engine.check(&Request::new(&who).and_then(|request| request.cost(cost)).expect("valid"))
    }

    /// Returns how many of `calls` calls of one token are allowed.
    fn allowed(&self, value: &str, calls: usize) -> usize {
        (0..calls).filter(|_| self.check(value, 1).is_allowed()).count()
    }
}

fn per(algorithm: &str, limit: u64, period: &str) -> String {
    format!("algorithm = \"{algorithm}\", limit = {limit}, period = \"{period}\"")
}

/// An interval truncated to whole nanoseconds would make 7 a second a little faster; floating point, 6,000 a second.
#[test]
fn a_rate_that_is_no_whole_interval_is_never_faster_than_asked() {
    for limit in [7, 6_000, 999_983, 3_000_000_000_u64] {
        let bench = Bench::new(16, &format!("{}, burst = 1", per("token_bucket", limit, "1s")));
        let (mut calls, mut waited_ns) = (0_u64, 0);
        while calls < 20_000 {
            match bench.check("ada", 1).retry() {
                Retry::Now => calls += 1,
                Retry::After(wait) => {
                    let ns = u64::try_from(wait.as_nanos()).expect("short");
                    waited_ns += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                Retry::Never => panic!("one is the burst"),
            }
        }
        let exact_ns = (u128::from(calls - 1) * u128::from(SECOND)).div_ceil(limit.into());
        assert!(u128::from(waited_ns) >= exact_ns, "{calls} of {limit} a second in {waited_ns} ns");
    }
}

/// A bucket of 6,000 a second is empty for a sixth of a millisecond only. Where buckets are forgotten by the millisecond,
/// callers in a row are never limited.
#[test]
fn a_bucket_that_is_busy_for_less_than_a_millisecond_is_not_forgotten() {
    let bench = Bench::new(16, &format!("{}, burst = 1", per("token_bucket", 6_000, "1s")));
    let mut allowed = 0;
    for stranger in 0..100_000 {
        allowed += bench.allowed("ada", 1);
        // Another key looks for room all the while.
        let _ = bench.check(&stranger.to_string(), 1);
        bench.clock.advance(Duration::from_micros(10));
    }
    assert!((5_800..=6_000).contains(&allowed), "{allowed} in a second");
}

/// Being over the limit is not remembered of a client, but computed for each cost, under the present numbers.
#[test]
fn a_large_cost_that_is_refused_blocks_neither_a_small_one_nor_a_raised_limit() {
    for algorithm in ALGORITHMS {
        let bench = Bench::new(16, &per(algorithm, 10, "1m"));
        assert!(bench.check("ada", 5).is_allowed());
        assert_eq!(bench.check("ada", 11).retry(), Retry::Never, "{algorithm}");
        assert!(matches!(bench.check("ada", 6).retry(), Retry::After(_)), "{algorithm}");
        assert!(bench.check("ada", 1).is_allowed(), "{algorithm}");
        bench.publish(&per(algorithm, 20, "1m"));
        assert!(bench.check("ada", 11).is_allowed(), "{algorithm}");
    }
}

#[test]
fn waiting_exactly_the_stated_time_is_enough_and_nothing_shorter_is() {
    for algorithm in ALGORITHMS {
        let bench = Bench::new(16, &per(algorithm, 7, "60s"));
        bench.clock.advance(Duration::from_nanos(SECOND / 3));
        assert_eq!(bench.allowed("ada", 20), 7, "{algorithm}");
        for cost in [1, 3, 7] {
            let Retry::After(wait) = bench.check("ada", cost).retry() else { panic!("{algorithm}: {cost} fit") };
            let ns = u64::try_from(wait.as_nanos()).expect("short");
            bench.clock.advance(Duration::from_nanos(ns - 1));
            assert_eq!(bench.check("ada", cost).retry(), Retry::After(Duration::from_nanos(1)), "{algorithm}");
            bench.clock.advance(Duration::from_nanos(1));
            assert!(bench.check("ada", cost).is_allowed(), "{algorithm}");
            while bench.check("ada", 1).is_allowed() {}
        }
    }
}

#[test]
fn a_limit_of_zero_denies_everything_and_unlimited_is_said_in_a_word() {
    for algorithm in ALGORITHMS {
        let bench = Bench::new(16, &per(algorithm, 0, "1s"));
        for cost in [1, 1_000] {
            assert_eq!(bench.check("ada", cost).retry(), Retry::Never, "{algorithm}");
        }
        bench.clock.advance(Duration::from_secs(1_000));
        assert_eq!(bench.check("ada", 1).retry(), Retry::Never, "{algorithm}");
        assert_eq!(bench.allowed("friend", 1_000), 1_000, "{algorithm}");
    }
}

/// The worst case of a fixed window, as documented: all of one window at its end, all of the next at its beginning.
#[test]
fn a_fixed_window_admits_twice_its_limit_across_a_boundary_and_never_more() {
    let bench = Bench::new(16, &per("fixed_window", 10, "60s"));
    bench.clock.set(Timestamp::from_nanos(NOW + 60 * SECOND - 1));
    assert_eq!(bench.allowed("ada", 50), 10);
    bench.clock.advance(Duration::from_nanos(1));
    assert_eq!(bench.allowed("ada", 50), 10);
    bench.clock.advance(Duration::from_nanos(60 * SECOND - 1));
    assert_eq!(bench.allowed("ada", 50), 0, "so no more in any window's length after it");
}

/// A thread that begins a window must not forget what another has just charged to it.
#[test]
fn no_charge_is_lost_when_threads_meet_at_the_roll_of_a_window() {
    const THREADS: u64 = 2;
    for algorithm in ["fixed_window", "sliding_window_counter"] {
        let bench = Bench::new(16, &per(algorithm, 1_000, "1s"));
        let arrived = AtomicU64::new(0);
        // Both threads go on within nanoseconds, so that they do race.
        let gate = || {
            let all = (arrived.fetch_add(1, Ordering::SeqCst) + 1).next_multiple_of(THREADS);
            let mut turns = 0;
            while arrived.load(Ordering::SeqCst) < all {
                turns += 1;
                if turns % 1_000 == 0 { thread::yield_now() } else { hint::spin_loop() }
            }
        };
        let work = |is_first: bool| {
            let mut wrong = Vec::new();
            for windows in 1..=20_000_u64 {
                if is_first {
                    // Two windows on, so that nothing is left of what was charged before.
                    bench.clock.set(Timestamp::from_nanos(NOW + 2 * windows * SECOND));
                }
                gate();
                bench.allowed("ada", 3);
                gate();
                if is_first {
                    let left = bench.check("ada", 1).remaining();
                    wrong.extend(left.filter(|left| *left != 1_000 - 3 * THREADS - 1));
                }
            }
            wrong
        };
        let wrong = thread::scope(|scope| {
            scope.spawn(|| work(false));
            work(true)
        });
        assert!(wrong.is_empty(), "{algorithm}: {wrong:?} were left");
    }
}

/// Joined by a separator, or by nothing, these parts would be one text.
#[test]
fn keys_whose_parts_join_to_the_same_text_are_counted_apart() {
    let bench = Bench::new(1_000, &per("token_bucket", 1, "1h"));
    for value in ["a", "a_b", "a:b", "a/b", "k:a", "k=a", "a\0b", "a b", "a ", "A"] {
        assert_eq!(bench.allowed(value, 3), 1, "{value:?}");
    }
    let policy = "[[domains.default.rules]]\nid = \"r\"\nendpoint = \"*\"\nper = [\"k\", \"j\"]\n\
         limits = [{ id = \"l\", algorithm = \"token_bucket\", limit = 1, period = \"1h\" }]\n";
    bench.engine.publish(Snapshot::parse(policy, Format::Toml).expect("a good policy")).expect("one limit");
    for (k, j) in [("a_b", "c"), ("a", "b_c"), ("ab", "c"), ("a", "bc"), ("c", "a_b"), ("a\0", "b"), ("a", "\0b")] {
        let who = [("k", k), ("j", j)].map(|(kind, value)| Identity::new(kind, value).expect("valid"));
        let request = Request::new(&who).expect("valid");
        let allowed = (0..3).filter(|_| bench.engine.check(&request).is_allowed()).count();
        assert_eq!(allowed, 1, "{k:?} and {j:?}");
    }
}

/// A blocked client may send more other keys than the table has room for, and stays blocked.
#[test]
fn a_flood_of_other_keys_does_not_free_a_blocked_client() {
    for algorithm in ALGORITHMS {
        let bench = Bench::new(64, &per(algorithm, 2, "1h"));
        assert_eq!(bench.allowed("mallory", 5), 2, "{algorithm}");
        for other in 0..20_000 {
            let _ = bench.check(&other.to_string(), 1);
            bench.clock.advance(Duration::from_micros(50));
        }
        assert_eq!(bench.allowed("mallory", 5), 0, "{algorithm}");
    }
}

/// A list of clients costs nothing for the clients on it, nor for others.
#[test]
fn a_check_of_a_client_without_limits_allocates_nothing() {
    let bench = Bench::new(1_000, &per("token_bucket", 1_000_000, "1s"));
    let checks = || {
        for value in ["friend", "ada"] {
            assert!(bench.check(value, 1).is_allowed());
        }
    };
    // The first check allocates what the thread keeps.
    checks();
    assert_eq!(allocation_counter::measure(|| (0..1_000).for_each(|_| checks())).count_total, 0);
}
