//! Reservations, refunds, resets and batches through the engine: what they give back, what they charge on top, and that
//! they mint nothing.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::{
    Decision, Engine, Identity, Request, Reservation, Retry, Snapshot, clock::ManualClock, formats::Format,
    time::Timestamp,
};

const SECOND: u64 = 1_000_000_000;
/// The beginning of a minute in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;

struct Bench {
    clock: ManualClock,
    engine: Engine<ManualClock>,
}

impl Bench {
    /// Makes an engine with these limits for every user, and a rule that multiplies costs on `/heavy`.
    fn new(limits: &str) -> Self {
        Self::with_max_keys(limits, 1_000)
    }

    fn with_max_keys(limits: &str, max_keys: usize) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let bench = Self { engine: Engine::for_simulation(max_keys, clock.clone(), 7), clock };
        bench.publish(limits);
        bench
    }

    fn publish(&self, limits: &str) {
        let text = format!(
            r#"
            [domains.default]
            defaults = {{ user = "t" }}
            [[domains.default.tiers]]
            id = "t"
            limits = [{limits}]
            [[domains.default.rules]]
            id = "heavy"
            endpoint = "/heavy"
            per = "user"
            cost = 3
            limits = [{{ id = "day", algorithm = "fixed_window", limit = 1000, period = "1d" }}]
            "#
        );
        self.engine.publish(Snapshot::parse(&text, Format::Toml).expect("a good policy")).expect("few limits");
    }

    fn check(&self, cost: u64) -> Decision<'_> {
        let who = [Identity::new("user", "ada").expect("valid")];
        self.engine.check(&Request::new(&who).and_then(|request| request.cost(cost)).expect("valid"))
    }

    fn reserve(&self, cost: u64, to: &str) -> Option<Reservation> {
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).and_then(|request| request.cost(cost)?.endpoint(to)).expect("valid");
        let (decision, reservation) = self.engine.reserve(&request);
        assert_eq!(decision.is_allowed(), reservation.is_some());
        reservation
    }

    fn remaining(&self) -> u64 {
        let who = [Identity::new("user", "ada").expect("valid")];
        self.engine.peek(&Request::new(&who).expect("valid").without_cost()).remaining().expect("a limit")
    }

    fn reset(&self) -> usize {
        let who = [Identity::new("user", "ada").expect("valid")];
        self.engine.reset(&Request::new(&who).expect("valid"))
    }
}

fn limit(id: &str, algorithm: &str, limit: u64, period: &str) -> String {
    format!("{{ id = \"{id}\", algorithm = \"{algorithm}\", limit = {limit}, period = \"{period}\" }}")
}

const ALGORITHMS: [&str; 4] = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter"];

#[test]
fn the_unused_part_of_an_estimate_is_given_back() {
    for algorithm in ALGORITHMS {
        let bench = Bench::new(&limit("minute", algorithm, 100, "1m"));
        let reservation = bench.reserve(80, "").expect("fits");
        assert_eq!(bench.remaining(), 20, "{algorithm}: an estimate is charged at once");
        assert!(!bench.check(21).is_allowed());
        bench.engine.settle(reservation, 30);
        assert_eq!(bench.remaining(), 70, "{algorithm}");
        let reservation = bench.reserve(70, "").expect("fits");
        bench.engine.refund(reservation);
        assert_eq!(bench.remaining(), 70, "{algorithm}: a refund gives all back");
        drop(bench.reserve(70, "").expect("fits"));
        assert_eq!(bench.remaining(), 0, "{algorithm}: what nobody settles stands");
    }
}

#[test]
fn the_excess_over_an_estimate_is_charged_and_later_requests_wait() {
    let bench = Bench::new(&limit("minute", "token_bucket", 60, "1m"));
    let reservation = bench.reserve(10, "").expect("fits");
    bench.engine.settle(reservation, 100);
    // 100 of a burst of 60 are used: one token is there after 41 seconds.
    assert_eq!(bench.check(1).retry(), Retry::After(Duration::from_secs(41)));
    bench.clock.advance(Duration::from_secs(41));
    assert!(bench.check(1).is_allowed() && !bench.check(1).is_allowed());

    let bench = Bench::new(&limit("minute", "fixed_window", 60, "1m"));
    let reservation = bench.reserve(10, "").expect("fits");
    bench.engine.settle(reservation, u64::MAX);
    assert_eq!(bench.remaining(), 0);
    assert_eq!(bench.check(1).retry(), Retry::After(Duration::from_mins(1)));

    let bench = Bench::new(&limit("minute", "sliding_window_counter", 60, "1m"));
    let reservation = bench.reserve(10, "").expect("fits");
    bench.engine.settle(reservation, u64::MAX);
    bench.clock.advance(Duration::from_mins(1));
    assert_eq!(bench.remaining(), 0, "all of the window before counts at first");
}

/// The work takes ninety seconds: the settlement returns what time has not brought back, and no more.
#[test]
fn a_reservation_that_is_settled_late_gets_back_what_time_has_not() {
    // 10 tokens a second, 1,000 at once.
    let policy = r#"{ id = "tokens", algorithm = "token_bucket", limit = 10, period = "1s", burst = 1000 }"#;
    let bench = Bench::new(policy);
    let reservation = bench.reserve(1_000, "").expect("fits");
    bench.clock.advance(Duration::from_secs(20));
    assert_eq!(bench.remaining(), 200);
    bench.engine.settle(reservation, 100);
    // If 100 had been charged, they would be back by now.
    assert_eq!(bench.remaining(), 1_000);

    let bench = Bench::new(policy);
    let reservation = bench.reserve(1_000, "").expect("fits");
    bench.clock.advance(Duration::from_secs(20));
    assert!(bench.check(150).is_allowed());
    bench.engine.settle(reservation, 600);
    // 600 charged, 200 of them back, 150 charged.
    assert_eq!(bench.remaining(), 450);
    bench.clock.advance(Duration::from_secs(100));
    let again = bench.reserve(1_000, "").expect("everything is back");
    bench.clock.advance(Duration::from_secs(100));
    bench.engine.refund(again);
    assert_eq!(bench.remaining(), 1_000, "never more than the burst");
}

#[test]
fn a_window_takes_back_only_while_it_counts() {
    let bench = Bench::new(&limit("minute", "fixed_window", 100, "1m"));
    let reservation = bench.reserve(60, "").expect("fits");
    bench.clock.advance(Duration::from_mins(1));
    assert!(bench.check(70).is_allowed());
    bench.engine.refund(reservation);
    assert_eq!(bench.remaining(), 30, "the charge was of the window before");
}

#[test]
fn a_rule_that_multiplies_costs_settles_them_multiplied() {
    let bench = Bench::new(&limit("minute", "token_bucket", 500, "1m"));
    let reservation = bench.reserve(100, "/heavy").expect("fits");
    let mut heavy = bench.engine.handle("default/rule:heavy/day", "user").expect("is there");
    assert_eq!(heavy.check(b"ada").remaining(), Some(699));
    bench.engine.settle(reservation, 10);
    assert_eq!(bench.remaining(), 490);
    assert_eq!(heavy.check(b"ada").remaining(), Some(968));
}

#[test]
fn settling_at_the_estimate_changes_nothing_however_large_it_is() {
    const MOST: u64 = (1 << 53) - 1;
    for cost in [1, 1_000, u64::from(u32::MAX), 5_000_000_000, MOST] {
        let bench =
            Bench::new(&format!("{{ id = \"b\", algorithm = \"token_bucket\", limit = {MOST}, period = \"366d\" }}"));
        let reservation = bench.reserve(cost, "/").expect("the bucket is full");
        let left = bench.remaining();
        bench.engine.settle(reservation, cost);
        assert_eq!(bench.remaining(), left, "a cost of {cost}");
    }
    // A cost above the largest one counts as the largest: where the limit takes such a debt, later requests wait for all of it,
    // and nothing wraps around.
    let bench = Bench::new(&format!(
        "{{ id = \"b\", algorithm = \"token_bucket\", limit = 1000, period = \"1s\", max_debt = {MOST} }}"
    ));
    for actual in [MOST, u64::MAX] {
        bench.engine.settle(bench.reserve(1, "/").expect("the bucket is full"), actual);
        assert!(matches!(bench.check(1).retry(), Retry::After(wait) if wait > Duration::from_hours(24 * 365)));
        bench.reset();
    }
}

#[test]
fn a_reservation_is_not_taken_for_one_of_newer_numbers_when_generations_come_round() {
    let day = |limit| [self::limit("d", "fixed_window", limit, "1d")].concat();
    for changes in [1, 31, 32, 33, 64] {
        let bench = Bench::new(&day(1_000));
        let reservation = bench.reserve(600, "/").expect("room");
        for change in 1..=changes {
            bench.publish(&day(if change % 2 == 1 { 2_000 } else { 1_000 }));
        }
        let left = bench.remaining();
        bench.engine.refund(reservation);
        assert_eq!(bench.remaining(), left, "after {changes} changes");
    }
}

/// Returns a policy with a limit of 10 a minute for everyone together, by this algorithm.
fn for_everyone(algorithm: &str) -> Snapshot {
    let limits = limit("minute", algorithm, 10, "1m");
    let policy = format!(
        r#"
        [domains.default]
        [[domains.default.rules]]
        id = "all"
        endpoint = "*"
        per = "everyone"
        limits = [{limits}]
        "#
    );
    Snapshot::parse(&policy, Format::Toml).expect("a good policy")
}

#[test]
fn a_reset_forgets_what_everyone_uses_together() {
    for algorithm in ALGORITHMS {
        let bench = Bench::new(&limit("d", "fixed_window", 10, "1d"));
        bench.engine.publish(for_everyone(algorithm)).expect("few limits");
        let bob = [Identity::new("user", "bob").expect("valid")];
        let bob = Request::new(&bob).expect("valid");
        assert!(bench.check(10).is_allowed());
        assert_eq!(bench.engine.check(&bob).limit_id(), Some("default/rule:all/minute"), "used up, by everyone");
        assert_eq!((bench.reset(), bench.reset()), (1, 0), "{algorithm}");
        assert_eq!(bench.engine.check(&bob).remaining(), Some(9), "{algorithm}");
    }
}

/// One wrong cost of one caller must not deny all others for long.
#[test]
fn the_debt_of_a_settlement_is_repaid_in_one_period_or_reset() {
    for algorithm in ["token_bucket", "leaky_bucket"] {
        let bench = Bench::new(&limit("d", "fixed_window", 10, "1d"));
        bench.engine.publish(for_everyone(algorithm)).expect("few limits");
        let bob = [Identity::new("user", "bob").expect("valid")];
        let bob = Request::new(&bob).expect("valid");
        let reservations = [1, 1, 1].map(|cost| bench.reserve(cost, "/").expect("the bucket is full"));
        for reservation in reservations {
            bench.engine.settle(reservation, (1 << 53) - 1);
            // Ten are owed above the burst of ten: a minute until they are repaid, and a tenth of one for the next token.
            assert_eq!(bench.engine.peek(&bob).retry(), Retry::After(Duration::from_secs(66)), "{algorithm}");
        }
        bench.clock.advance(Duration::from_secs(66));
        assert!(bench.engine.check(&bob).is_allowed() && !bench.engine.check(&bob).is_allowed(), "{algorithm}");
        bench.clock.advance(Duration::from_secs(6));
        bench.engine.settle(bench.reserve(1, "/").expect("a token"), u64::MAX);
        assert_eq!(bench.reset(), 1, "{algorithm}");
        assert_eq!(bench.engine.check(&bob).remaining(), Some(9), "{algorithm}: whole at once");
    }
}

#[test]
fn a_limit_states_its_largest_debt() {
    // A token a second.
    const NUMBERS: &str = r#"id = "m", algorithm = "token_bucket", limit = 60, period = "1m", burst = 30"#;
    let minute = |max_debt: u64| format!("{{ {NUMBERS}, max_debt = {max_debt} }}");
    for max_debt in [0, 5, 60, 6_000] {
        let bench = Bench::new(&minute(max_debt));
        let [first, second] = [1, 1].map(|cost| bench.reserve(cost, "/").expect("the bucket is full"));
        bench.engine.settle(first, u64::MAX);
        let wait = Retry::After(Duration::from_secs(max_debt + 1));
        assert_eq!(bench.check(1).retry(), wait);
        // A debt stays owed where a publish makes the largest debt smaller.
        bench.publish(&minute(0));
        bench.engine.settle(second, u64::MAX);
        assert_eq!(bench.check(1).retry(), wait);
    }
}

#[test]
fn a_plausible_cost_is_a_multiple_of_the_estimate_or_one_burst() {
    const MOST: u64 = (1 << 53) - 1;
    let bench = Bench::new(&limit("minute", "token_bucket", 500, "1m"));
    for (estimate, multiple, most) in [(1, 16, 500), (100, 16, 1_600), (100, 2, 500), (1, u64::MAX, MOST)] {
        let reservation = bench.reserve(estimate, "/").expect("it fits");
        assert_eq!(reservation.actual_max(multiple), most, "{estimate} by {multiple}");
        bench.engine.refund(reservation);
    }
    // A rule that multiplies costs: 333 requests' worth are a day's 1,000.
    bench.publish(&limit("minute", "token_bucket", 30, "1m"));
    assert_eq!(bench.reserve(2, "/heavy").expect("it fits").actual_max(1), 333);
    let nowhere = [Identity::new("ip", "192.0.2.7").expect("valid")];
    let (_, reservation) = bench.engine.reserve(&Request::new(&nowhere).expect("valid"));
    assert_eq!(reservation.expect("no limit applies").actual_max(1), MOST);
}

#[test]
fn a_reservation_of_another_engine_changes_nothing() {
    let limits = limit("b", "token_bucket", 100, "1m");
    let (ours, other) = (Bench::new(&limits), Bench::new(&limits));
    assert!(other.check(50).is_allowed());
    let reservation = ours.reserve(40, "/").expect("the bucket is full");
    other.engine.refund(reservation);
    assert_eq!((ours.remaining(), other.remaining()), (60, 50));
}

#[test]
fn a_reservation_stays_charged_where_a_publish_changed_the_numbers() {
    let bench = Bench::new(&limit("minute", "token_bucket", 100, "1m"));
    let reservation = bench.reserve(80, "").expect("fits");
    bench.publish(&limit("minute", "token_bucket", 1_000, "1m"));
    assert_eq!(bench.remaining(), 920);
    bench.engine.settle(reservation, 0);
    assert_eq!(bench.remaining(), 920);
    // An excess is charged under the new ones.
    let reservation = bench.reserve(20, "").expect("fits");
    bench.publish(&limit("minute", "token_bucket", 2_000, "1m"));
    bench.engine.settle(reservation, 120);
    assert_eq!(bench.remaining(), 1_800);
    // A limit that is gone counts no charge.
    let reservation = bench.reserve(20, "").expect("fits");
    bench.publish(&limit("other", "token_bucket", 7, "1m"));
    bench.engine.settle(reservation, 500);
    assert_eq!(bench.remaining(), 7);
}

#[test]
fn a_reset_forgets_and_a_refund_after_it_mints_nothing() {
    for algorithm in ALGORITHMS {
        let bench = Bench::new(&limit("minute", algorithm, 100, "1m"));
        let first = bench.reserve(40, "").expect("fits");
        let second = bench.reserve(60, "").expect("fits");
        assert!(!bench.check(1).is_allowed());
        assert_eq!(bench.reset(), 1);
        assert_eq!(bench.remaining(), 100, "{algorithm}");
        assert_eq!(bench.reset(), 0, "{algorithm}: nothing is left to forget");
        assert!(bench.check(100).is_allowed());
        bench.engine.refund(first);
        bench.engine.refund(second);
        assert_eq!(bench.remaining(), 0, "{algorithm}: the reset gave those back already");
    }
}

#[test]
fn a_reservation_in_an_overflow_bucket_is_settled_there_and_reset() {
    // Two lines of four slots, and eight overflow buckets.
    let bench = Bench::with_max_keys(&limit("minute", "token_bucket", 1_000, "1m"), 1);
    let names: Vec<String> = (0..100).map(|name| format!("u{name}")).collect();
    let mut reservations = Vec::new();
    for name in &names {
        let who = [Identity::new("user", name).expect("valid")];
        let request = Request::new(&who).and_then(|request| request.cost(10)).expect("valid");
        reservations.extend(bench.engine.reserve(&request).1.map(|reservation| (name, reservation)));
    }
    assert_eq!(reservations.len(), 16, "the others have no room");
    let left = |name: &str| {
        let who = [Identity::new("user", name).expect("valid")];
        bench.engine.peek(&Request::new(&who).expect("valid").without_cost()).remaining()
    };
    for (number, (name, reservation)) in reservations.into_iter().enumerate() {
        assert_eq!(left(name), Some(990), "{name}: nothing is shared");
        bench.engine.settle(reservation, if number % 2 == 0 { 0 } else { 20 });
        assert_eq!(left(name), Some(if number % 2 == 0 { 1_000 } else { 980 }), "{name}");
        let who = [Identity::new("user", name).expect("valid")];
        let forgotten = bench.engine.reset(&Request::new(&who).expect("valid"));
        assert_eq!((forgotten, left(name)), (number % 2, Some(1_000)), "{name}");
    }
}

#[test]
fn a_reservation_is_empty_where_no_limit_charged_it() {
    let shadow = r#"{ id = "l", algorithm = "fixed_window", limit = 1, period = "1m", mode = "shadow" }"#;
    let bench = Bench::new(shadow);
    for (kind, is_charged) in [("user", true), ("ip", false)] {
        let who = [Identity::new(kind, "192.0.2.7").expect("valid")];
        let request = Request::new(&who).expect("valid");
        assert_eq!(bench.engine.has_limit(&request), is_charged, "{kind}");
        let (decision, reservation) = bench.engine.reserve(&request);
        assert!(decision.is_allowed() && decision.limit_id().is_none(), "{kind}");
        assert_eq!(reservation.map(|reservation| reservation.is_empty()), Some(!is_charged), "{kind}");
    }
    // The shadow's limit is 1.
    let reservations = [1, 1].map(|cost| bench.reserve(cost, "").expect("a shadow denies nothing"));
    assert_eq!(reservations.each_ref().map(Reservation::is_empty), [false, true]);
}

#[test]
fn a_batch_is_decided_in_order_at_one_time() {
    let bench = Bench::new(&limit("minute", "token_bucket", 3, "1m"));
    let (ada, bob) = ([Identity::new("user", "ada").expect("valid")], [Identity::new("user", "bob").expect("valid")]);
    let (ada, bob) = (Request::new(&ada).expect("valid"), Request::new(&bob).expect("valid"));
    let mut decisions = Vec::new();
    let batch = [ada, ada.cost(2).expect("valid"), ada.without_cost(), ada, bob];
    bench.engine.check_batch(&batch, &mut decisions);
    let seen: Vec<_> = decisions.iter().map(|it| (it.is_allowed(), it.remaining())).collect();
    assert_eq!(seen, [(true, Some(2)), (true, Some(0)), (true, Some(0)), (false, Some(0)), (true, Some(2))]);
    assert_eq!((bench.engine.totals().allowed, bench.engine.totals().denied), (3, 1), "a peek is not counted");
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Check(u64),
    Reserve(u64),
    /// Settles one of the open reservations, of whose estimate these hundredths were used.
    Settle(usize, u64),
    Reset,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => prop_oneof![0..50_000_000u64, 0..3 * SECOND, 0..30 * SECOND].prop_map(Step::Wait),
        3 => (1..12u64).prop_map(Step::Check),
        3 => (1..12u64).prop_map(Step::Reserve),
        3 => (0..8usize, 0..=100u64).prop_map(|(which, percent)| Step::Settle(which, percent)),
        1 => Just(Step::Reset),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// No interval holds more than b + t*n/p, where a refund counts as deducted at the time of its charge.
    #[test]
    fn giving_back_never_mints(steps in steps()) {
        const BURST: u64 = 10;
        let bench = Bench::new(r#"{ id = "l", algorithm = "token_bucket", limit = 2, period = "1s", burst = 10 }"#);
        let (mut now, mut charges, mut open) = (NOW, Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Wait(ns) => {
                    bench.clock.advance(Duration::from_nanos(ns));
                    now += ns;
                }
                Step::Check(cost) => {
                    if bench.check(cost).is_allowed() {
                        charges.push((now, cost));
                    }
                }
                Step::Reserve(cost) => {
                    if let Some(reservation) = bench.reserve(cost, "") {
                        open.push((charges.len(), cost, reservation));
                        charges.push((now, cost));
                    }
                }
                Step::Settle(which, percent) => {
                    if !open.is_empty() {
                        let (place, estimate, reservation) = open.remove(which % open.len());
                        let actual = estimate * percent / 100;
                        bench.engine.settle(reservation, actual);
                        charges[place].1 = charges[place].1.min(actual);
                    }
                }
                Step::Reset => {
                    bench.reset();
                    for (_, cost) in &mut charges {
                        *cost = 0;
                    }
                }
            }
            for first in 0..charges.len() {
                let mut sum = 0;
                for &(at, cost) in &charges[first..] {
                    sum += cost;
                    let refilled = u128::from(at - charges[first].0) * 2;
                    prop_assert!(u128::from(sum.saturating_sub(BURST)) * u128::from(SECOND) <= refilled, "{sum} in {}", at - charges[first].0);
                }
            }
        }
    }
}
