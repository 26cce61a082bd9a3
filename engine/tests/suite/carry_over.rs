//! Carry-over at a publish where a limit's numbers change: used quota is kept, converted in proportion, or forgotten.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::{
    Decision, Engine, Identity, Publish, Request, Retry, Snapshot,
    algorithm::{Carry, FixedWindow, Meter, SlidingWindowCounter, TokenBucket},
    clock::ManualClock,
    formats::Format,
    internals::Verdict,
    time::Timestamp,
};

const SECOND: u64 = 1_000_000_000;
/// The beginning of a minute and of a day in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;
const CARRIES: [Carry; 3] = [Carry::Keep, Carry::Proportional, Carry::Reset];
const ALGORITHMS: [&str; 5] =
    ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"];

/// A limit's numbers in whole units, so that the model needs no rounding of its own.
#[derive(Clone, Copy, Debug)]
enum Numbers {
    /// A token takes `interval_ns`.
    Bucket {
        is_leaky: bool,
        interval_ns: u64,
        burst: u64,
    },
    Window {
        is_sliding: bool,
        limit: u64,
        period_s: u64,
    },
}

impl Numbers {
    fn meter(self) -> Meter {
        match self {
            Self::Bucket { is_leaky, interval_ns, burst } => {
                let bucket = TokenBucket::new(1_000, Duration::from_nanos(1_000 * interval_ns), burst).expect("fits");
                if is_leaky { Meter::LeakyBucket(bucket) } else { Meter::TokenBucket(bucket) }
            }
            Self::Window { is_sliding: false, limit, period_s } => {
                Meter::FixedWindow(FixedWindow::new(limit, Duration::from_secs(period_s)).expect("fits"))
            }
            Self::Window { limit, period_s, .. } => Meter::SlidingWindowCounter(
                SlidingWindowCounter::new(limit, Duration::from_secs(period_s)).expect("fits"),
            ),
        }
    }

    fn capacity(self) -> u128 {
        match self {
            Self::Bucket { burst, .. } => burst.into(),
            Self::Window { limit, .. } => limit.into(),
        }
    }

    /// Returns what `charges` (time and cost, in order) have used at `at`, as a numerator and a denominator. Each window's count
    /// of a sliding window is at most `window_max`.
    fn used(self, charges: &[(u64, u64)], at: u64, window_max: u128) -> (u128, u128) {
        match self {
            Self::Bucket { interval_ns, .. } => {
                let (mut level_ns, mut last) = (0, NOW);
                for &(now, cost) in charges {
                    level_ns = u64::saturating_sub(level_ns, now - last) + cost * interval_ns;
                    last = now;
                }
                (level_ns.saturating_sub(at - last).into(), interval_ns.into())
            }
            Self::Window { is_sliding, period_s, .. } => {
                let period_ns = period_s * SECOND;
                let count = |window| {
                    let of_window = charges.iter().filter(|(now, _)| now / period_ns == window);
                    of_window.map(|&(_, cost)| u128::from(cost)).sum::<u128>()
                };
                let present = at / period_ns;
                if !is_sliding {
                    return (count(present), 1);
                }
                let left_ns = u128::from((present + 1) * period_ns - at);
                let before = count(present - 1).min(window_max) * left_ns;
                (count(present).min(window_max) * u128::from(period_ns) + before, period_ns.into())
            }
        }
    }

    fn has_windows_of(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Window { is_sliding, period_s, .. },
                Self::Window { is_sliding: other_is_sliding, period_s: other_period_s, .. },
            ) => is_sliding == other_is_sliding && period_s == other_period_s,
            _ => false,
        }
    }
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let bucket = (any::<bool>(), 1_000..10 * SECOND, prop_oneof![1..20u64, 1..100_000u64])
        .prop_map(|(is_leaky, interval_ns, burst)| Numbers::Bucket { is_leaky, interval_ns, burst });
    // Few periods, so that many pairs have the same windows; limits at which a sliding window keeps both counts exactly.
    let window = (any::<bool>(), prop_oneof![1..20u64, 1..1u64 << 14], 1..4u64)
        .prop_map(|(is_sliding, limit, period_s)| Numbers::Window { is_sliding, limit, period_s });
    prop_oneof![bucket, window]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Compared with exact arithmetic, never less is used than the choice says, and more only by rounding.
    #[test]
    fn used_quota_carries_over_as_chosen_between_all_algorithms(
        old in numbers(), new in numbers(), carry in prop::sample::select(&CARRIES[..]),
        tries in prop::collection::vec((0..2 * SECOND, 1..=100u64), 1..8), gap in 0..SECOND,
    ) {
        let (from, to) = (old.meter(), new.meter());
        let (mut now, mut word, mut charges) = (NOW, 0, Vec::new());
        for (gap, share) in tries {
            now += gap;
            let cost = (from.capacity() * share / 100).max(1);
            if let Verdict::Admit(after) = from.step(word, now, cost) {
                word = after;
                charges.push((now, cost));
            }
        }
        let at = now + gap;
        let carried = from.carry_over(word, at, &to, carry);

        let (old_capacity, new_capacity) = (old.capacity(), new.capacity());
        let kept_by_window = carry == Carry::Keep && old.has_windows_of(new);
        let (used, unit) = old.used(&charges, at, if kept_by_window { new_capacity } else { u128::MAX });
        // What must be used at least, in units of 1 / (unit x old_capacity x new_unit) tokens.
        let new_unit = if let Numbers::Bucket { interval_ns, .. } = new { interval_ns.into() } else { 1 };
        let scale = unit * old_capacity * new_unit;
        let exact = match carry {
            Carry::Keep => used * old_capacity * new_unit,
            Carry::Proportional => used * new_capacity * new_unit,
            _ => 0,
        };
        let exact = exact.min(new_capacity * scale);
        // A sliding window rounds the old use up to a token; a bucket's use has 16 bits of fraction; the rest is a token
        // for each count that is rounded up, or a nanosecond.
        let is_sliding = |numbers| matches!(numbers, Numbers::Window { is_sliding: true, .. });
        let old_rounding = if is_sliding(old) { scale } else { scale.div_ceil(1 << 16) };
        let rounding = match carry {
            Carry::Keep => old_rounding + 2 * scale,
            Carry::Proportional => old_rounding * new_capacity.div_ceil(old_capacity) + 2 * scale,
            _ => 0,
        };
        let reported = match new {
            Numbers::Bucket { .. } => u128::from(to.reset_after_ns(carried, at)) * unit * old_capacity,
            Numbers::Window { .. } => (new_capacity - u128::from(to.remaining(carried, at))) * scale,
        };
        prop_assert!(reported >= exact, "{reported} used, at least {exact} must be: {charges:?}");
        prop_assert!(reported <= exact + rounding, "{reported} used instead of {exact}: {charges:?}");
        // The quota comes back in the time that the new numbers say.
        let full_at = at + to.reset_after_ns(carried, at);
        prop_assert_eq!(to.remaining(carried, full_at), to.capacity());
        let longest_ns = match new {
            Numbers::Bucket { interval_ns, burst, .. } => interval_ns * burst,
            Numbers::Window { period_s, .. } => 2 * period_s * SECOND,
        };
        prop_assert!(full_at - at <= longest_ns, "{} ns are too long", full_at - at);
    }

    /// Nothing used stays nothing used, and everything used stays everything used unless it is kept under a higher limit.
    #[test]
    fn nothing_and_everything_stay_what_they_are(old in numbers(), new in numbers(), carry in prop::sample::select(&CARRIES[..])) {
        let (from, to) = (old.meter(), new.meter());
        let unused = from.carry_over(0, NOW, &to, carry);
        prop_assert_eq!(to.remaining(unused, NOW), to.capacity());
        let Verdict::Admit(full) = from.step(0, NOW, from.capacity()) else { panic!("an empty bucket refused") };
        let left = to.remaining(from.carry_over(full, NOW, &to, carry), NOW);
        let expected = match carry {
            Carry::Keep => to.capacity().saturating_sub(from.capacity()),
            Carry::Proportional => 0,
            _ => to.capacity(),
        };
        prop_assert_eq!(left, expected);
    }
}

/// Faster than a token in a nanosecond, a whole burst is not a whole number of nanoseconds.
#[test]
fn a_burst_that_is_no_whole_time_leaves_nothing_in_proportion() {
    let bucket = |burst| Meter::TokenBucket(TokenBucket::new(3_000_000, Duration::from_secs(1), burst).expect("fits"));
    let (from, to) = (bucket(100), bucket(1_000_000_000));
    let Verdict::Admit(full) = from.step(0, NOW, 100) else { panic!("an empty bucket refused") };
    assert_eq!(to.remaining(from.carry_over(full, NOW, &to, Carry::Proportional), NOW), 0);
}

#[test]
fn the_choice_is_written_as_policies_are() {
    for (carry, name) in CARRIES.into_iter().zip(["keep", "proportional", "reset"]) {
        assert_eq!(serde_json::to_value(carry).expect("a name"), name);
        assert_eq!(serde_json::from_value::<Carry>(name.into()).expect("known"), carry);
    }
    assert_eq!(Carry::default(), Carry::Keep);
}

struct Bench {
    clock: ManualClock,
    engine: Engine<ManualClock>,
}

impl Bench {
    fn new(max_keys: usize, limit: &str) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let bench = Self { engine: Engine::for_simulation(max_keys, clock.clone(), 7), clock };
        bench.publish(limit, Carry::Keep);
        bench
    }

    fn publish(&self, limit: &str, carry: Carry) {
        let policy = format!(
            "[domains.default]\ndefaults = {{ user = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\nlimits = [{limit}]\n"
        );
        let snapshot = Snapshot::parse(&policy, Format::Toml).expect("a good policy");
        self.engine.publish(Publish::of(snapshot).carrying(carry)).expect("few limits");
    }

    fn ask(&self, user: &str, cost: u64, ask: impl Fn(&Engine<ManualClock>, &Request<'_>) -> Retry) -> Retry {
        let who = [Identity::new("user", user).expect("valid")];
        ask(&self.engine, &Request::new(&who).and_then(|request| request.cost(cost)).expect("valid"))
    }

    fn check(&self, user: &str, cost: u64) -> Retry {
        self.ask(user, cost, |engine, request| engine.check(request).retry())
    }

    fn peek(&self, user: &str, cost: u64) -> Retry {
        self.ask(user, cost, |engine, request| engine.peek(request).retry())
    }

    fn left(&self, user: &str) -> u64 {
        let who = [Identity::new("user", user).expect("valid")];
        let decision: Decision<'_> = self.engine.peek(&Request::new(&who).expect("valid").without_cost());
        decision.remaining().expect("a limit applies")
    }
}

fn limit(algorithm: &str, limit: u64) -> String {
    format!("{{ id = \"l\", algorithm = \"{algorithm}\", limit = {limit}, period = \"1m\" }}")
}

#[test]
fn a_publish_carries_quota_over_as_chosen() {
    for old in ALGORITHMS {
        for new in ALGORITHMS {
            for (carry, raised, lowered) in
                [(Carry::Keep, 900, 0), (Carry::Proportional, 0, 50), (Carry::Reset, 1_000, 100)]
            {
                let bench = Bench::new(1_000, &limit(old, 100));
                assert_eq!(bench.check("ada", 100), Retry::Now);
                bench.publish(&limit(new, 1_000), carry);
                assert_eq!(bench.left("ada"), raised, "{carry:?}, {old} 100 of 100 to {new} 1,000");
                assert_eq!(bench.left("eve"), 1_000, "who used nothing has everything");

                let bench = Bench::new(1_000, &limit(old, 1_000));
                assert_eq!(bench.check("ada", 500), Retry::Now);
                bench.publish(&limit(new, 100), carry);
                assert_eq!(bench.left("ada"), lowered, "{carry:?}, {old} 500 of 1,000 to {new} 100");
            }
        }
    }
}

/// Keys without a slot have their quota carried over in the overflow buckets.
#[test]
fn overflow_buckets_carry_over_too() {
    for (carry, raised) in [(Carry::Keep, 900), (Carry::Proportional, 0), (Carry::Reset, 1_000)] {
        let bench = Bench::new(1, &limit("token_bucket", 100));
        let users: Vec<String> = (0..100).map(|user| format!("user {user}")).collect();
        let users: Vec<&String> = users.iter().filter(|user| bench.check(user, 100) == Retry::Now).collect();
        assert_eq!(users.len(), 16, "eight in slots, eight in overflow buckets");
        bench.publish(&limit("token_bucket", 1_000), carry);
        for user in users {
            assert_eq!(bench.left(user), raised, "{carry:?}, {user}");
        }
    }
}

/// A denied client retries after a publish: its new wait is exact under the new numbers.
#[test]
fn a_denied_client_gets_a_new_exact_wait_after_a_publish() {
    for algorithm in ALGORITHMS {
        for carry in [Carry::Keep, Carry::Proportional] {
            let bench = Bench::new(1_000, &limit(algorithm, 60));
            assert_eq!(bench.check("ada", 60), Retry::Now);
            bench.clock.advance(Duration::from_secs(10));
            assert!(matches!(bench.check("ada", 30), Retry::After(_)));
            // 50 of 60 tokens of a bucket are in use; as many are more than 30.
            bench.publish(&limit(algorithm, 30), carry);
            let Retry::After(wait) = bench.check("ada", 20) else { panic!("{algorithm}, {carry:?}: there was room") };
            let wait_ns = u64::try_from(wait.as_nanos()).expect("short");
            bench.clock.advance(Duration::from_nanos(wait_ns - 1));
            assert_eq!(bench.peek("ada", 20), Retry::After(Duration::from_nanos(1)), "{algorithm}, {carry:?}");
            bench.clock.advance(Duration::from_nanos(1));
            assert_eq!(
                bench.check("ada", 20),
                Retry::Now,
                "{algorithm}, {carry:?}: waiting exactly that long is enough"
            );
        }
        let bench = Bench::new(1_000, &limit(algorithm, 60));
        assert_eq!(bench.check("ada", 60), Retry::Now);
        bench.publish(&limit(algorithm, 30), Carry::Reset);
        assert_eq!(bench.check("ada", 30), Retry::Now, "{algorithm}");
        assert!(matches!(bench.check("ada", 1), Retry::After(_)), "{algorithm}: and from then on it counts");
    }
}

/// A window's count stays in its window.
#[test]
fn a_window_ends_when_it_would_have() {
    for carry in [Carry::Keep, Carry::Proportional] {
        let bench = Bench::new(1_000, &limit("fixed_window", 100));
        bench.clock.advance(Duration::from_secs(20));
        assert_eq!(bench.check("ada", 100), Retry::Now);
        bench.publish(&limit("fixed_window", 50), carry);
        assert_eq!(bench.check("ada", 1), Retry::After(Duration::from_secs(40)), "{carry:?}");
        bench.clock.advance(Duration::from_secs(40));
        assert_eq!(bench.left("ada"), 50, "{carry:?}");
    }
}

#[test]
fn limits_whose_numbers_stay_keep_their_buckets_whatever_is_chosen() {
    for carry in CARRIES {
        let bench = Bench::new(1_000, &limit("token_bucket", 100));
        assert_eq!(bench.check("ada", 70), Retry::Now);
        bench.publish(&limit("token_bucket", 100), carry);
        assert_eq!(bench.left("ada"), 30, "{carry:?}");
    }
}

/// Each publish chooses for its own changes alone.
#[test]
fn a_later_publish_chooses_anew() {
    let bench = Bench::new(1_000, &limit("token_bucket", 100));
    assert_eq!(bench.check("ada", 100), Retry::Now);
    bench.publish(&limit("token_bucket", 1_000), Carry::Reset);
    assert_eq!(bench.check("ada", 400), Retry::Now);
    bench.publish(&limit("token_bucket", 500), Carry::Proportional);
    assert_eq!(bench.left("ada"), 300);
    bench.publish(&limit("token_bucket", 600), Carry::Keep);
    assert_eq!(bench.left("ada"), 400);
    // A limit of 0 has no numbers to carry to; what was used is carried when it admits again.
    bench.publish(&limit("token_bucket", 0), Carry::Reset);
    assert_eq!(bench.check("ada", 1), Retry::Never);
    bench.publish(&limit("token_bucket", 700), Carry::Keep);
    assert_eq!(bench.left("ada"), 500);
}

/// A check that read its snapshot before a publish may charge after the instant of the change, into a window that had not
/// begun by then.
#[test]
fn what_is_charged_after_the_instant_of_a_change_is_carried_into_the_present_window() {
    let windows = |period: u64| {
        [
            Meter::FixedWindow(FixedWindow::new(5, Duration::from_secs(period)).expect("fits")),
            Meter::SlidingWindowCounter(SlidingWindowCounter::new(5, Duration::from_secs(period)).expect("fits")),
        ]
    };
    let (boundary, at) = (NOW + 2 * SECOND, NOW + 2 * SECOND - 500_000);
    let now = boundary + 10_000_000;
    for old in windows(2) {
        for new in windows(1) {
            let Verdict::Admit(word) = old.step(0, now, 5) else { panic!("an empty window refused") };
            let carried = old.carry_over(word, at, &new, Carry::Keep);
            assert!(!matches!(new.step(carried, now, 1), Verdict::Admit(_)), "{old:?} to {new:?}: ten at one instant");
        }
    }
}

#[test]
fn each_limit_may_carry_over_by_a_choice_of_its_own() {
    let policy = |limit: u64| {
        let limits = ["kept", "shared", "forgotten"]
            .map(|id| format!("{{ id = \"{id}\", algorithm = \"fixed_window\", limit = {limit}, period = \"1m\" }}"));
        let text = format!(
            "[domains.default]\ndefaults = {{ user = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\nlimits = [{}]\n",
            limits.join(", ")
        );
        Snapshot::parse(&text, Format::Toml).expect("a good policy")
    };
    let engine = Engine::for_simulation(10, ManualClock::at(Timestamp::from_nanos(NOW)), 7);
    engine.publish(policy(100)).expect("few limits");
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    assert!(engine.check(&request.cost(60).expect("in range")).is_allowed());
    let next = Publish::of(policy(1_000))
        .carrying(Carry::Reset)
        .carrying_limit("default/tier:t/kept", Carry::Keep)
        .carrying_limit("default/tier:t/shared", Carry::Proportional)
        .carrying_limit("default/tier:t/gone", Carry::Keep);
    engine.publish(next).expect("few limits");
    let left = ["kept", "shared", "forgotten"].map(|id| {
        let mut handle = engine.handle(&format!("default/tier:t/{id}"), "user").expect("is there");
        handle.check("ada").remaining()
    });
    assert_eq!(left, [Some(939), Some(399), Some(999)]);
}

/// A text for people is not a change of numbers: no counter changes, whatever the publish chooses.
#[test]
fn a_description_and_a_note_touch_no_counter() {
    let policy = |description: &str, note: &str| {
        let limit = r#"{ id = "day", algorithm = "fixed_window", limit = 100, period = "1d" }"#;
        let text = format!(
            "[domains.default]\ndefaults = {{ user = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\n{description}\n\
             limits = [{limit}]\n[[domains.default.rules]]\nid = \"r\"\n{note}\nendpoint = \"*\"\nper = \"user\"\n\
             limits = [{limit}]\n"
        );
        Snapshot::parse(&text, Format::Toml).expect("a good policy")
    };
    let engine = Engine::for_simulation(10, ManualClock::at(Timestamp::from_nanos(NOW)), 7);
    engine.publish(policy("", "")).expect("few limits");
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid").endpoint("/").expect("valid");
    assert!(engine.check(&request.cost(60).expect("in range")).is_allowed());
    let next = policy("description = \"For those who pay\"", "note = \"asked for by sales\"");
    engine.publish(Publish::of(next).carrying(Carry::Reset)).expect("few limits");
    let left = ["tier:t", "rule:r"].map(|owner| {
        let mut handle = engine.handle(&format!("default/{owner}/day"), "user").expect("is there");
        handle.check("ada").remaining()
    });
    assert_eq!(left, [Some(39), Some(39)]);
}
