//! The heavy hitters: the guarantee of Space-Saving against exact counts, how they fade, and that memory stays bounded.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use tidegate::{
    Engine, HeavyHitters, Hitter, Identity, Request, Snapshot, clock::ManualClock, formats::Format, time::Timestamp,
};
use tidegate_conformance::Deadline;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_790_035_200 * SECOND;
const HALF_LIFE: Duration = Duration::from_mins(10);

struct Bench {
    clock: ManualClock,
    engine: Engine<ManualClock>,
    hitters: Arc<HeavyHitters>,
}

impl Bench {
    /// Users have ten tokens for a day.
    fn new(entries: usize, one_in: u32) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let engine = Engine::for_simulation(10_000, clock.clone(), 7);
        let policy = r#"
            [domains.default]
            defaults = { user = "t" }
            [[domains.default.tiers]]
            id = "t"
            limits = [{ id = "day", algorithm = "fixed_window", limit = 10, period = "366d" }]
            [[domains.default.rules]]
            id = "all"
            endpoint = "/all"
            per = "everyone"
            limits = [{ id = "day", algorithm = "fixed_window", limit = 1, period = "366d" }]
            [[domains.default.rules]]
            id = "both"
            endpoint = "/both"
            per = ["user", "ip"]
            limits = [{ id = "day", algorithm = "fixed_window", limit = 1, period = "366d" }]
        "#;
        engine.publish(Snapshot::parse(policy, Format::Toml).expect("a good policy")).expect("few limits");
        let hitters = Arc::new(HeavyHitters::new(entries, HALF_LIFE));
        engine.observe(NonZeroU32::new(one_in).expect("not 0"), Arc::clone(&hitters));
        Self { clock, engine, hitters }
    }

    fn check(&self, user: &str, endpoint: &str) -> bool {
        let who = [Identity::new("user", user).expect("valid"), Identity::new("ip", "192.0.2.1").expect("valid")];
        let request = Request::new(&who).and_then(|request| request.endpoint(endpoint)).expect("valid");
        self.engine.check(&request).is_allowed()
    }

    fn times(&self, times: usize, user: &str) {
        for _ in 0..times {
            self.check(user, "/");
        }
    }
}

/// Returns the counts and errors of hitters, by the value of their only identity.
fn by_value(list: &[Hitter]) -> HashMap<String, (u64, u64)> {
    let value = |hitter: &Hitter| String::from_utf8(hitter.identities[0].1.clone()).expect("text");
    list.iter().map(|hitter| (value(hitter), (hitter.count, hitter.error))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No count is too low, or too high by more than its error; errors are at most N/m; every key above N/m is listed. This
    /// also holds after halvings, as far as rounding up to whole decisions allows.
    #[test]
    fn the_guarantee_of_space_saving_holds(
        entries in 1..12usize,
        // Many users of whom few are heavy; now and then a half-life passes.
        users in prop::collection::vec((prop_oneof![0..4u32, 0..40u32], prop::bool::weighted(0.01)), 1..600),
    ) {
        let bench = Bench::new(entries, 1);
        // Halved exactly, as floats are.
        let (mut all, mut denied) = (HashMap::<String, f64>::new(), HashMap::<String, f64>::new());
        let mut halvings = 0;
        for (user, half_life_passes) in users {
            if half_life_passes {
                bench.clock.advance(Duration::from_mins(10));
                halvings += 1;
                all.values_mut().chain(denied.values_mut()).for_each(|count| *count /= 2.0);
            }
            let user = user.to_string();
            let is_allowed = bench.check(&user, "/");
            *all.entry(user.clone()).or_default() += 1.0;
            if !is_allowed {
                *denied.entry(user).or_default() += 1.0;
            }
        }
        // A denial is needed for the denied to fade; what is denied is decided, so both have faded as often.
        for (truth, list) in [(all, bench.hitters.hot()), (denied, bench.hitters.denied())] {
            let total: f64 = truth.values().sum();
            let (share, rounding) = (total / entries as f64, if halvings > 0 { 1.1 } else { 0.0 });
            prop_assert!(list.len() <= entries);
            prop_assert!(list.windows(2).all(|pair| pair[0].count >= pair[1].count), "the heaviest come first");
            let listed = by_value(&list);
            for (user, &(count, error)) in &listed {
                let (count, error) = (count as f64, error as f64);
                prop_assert!(truth[user] <= count, "{user}: {count} is less than {}", truth[user]);
                prop_assert!(count <= truth[user] + error + rounding, "{user}: {count} is more than {} + {error}", truth[user]);
                prop_assert!(error <= share + rounding, "{user}: an error of {error} is more than {share}");
            }
            for (user, &count) in truth.iter().filter(|(_, count)| **count > share + rounding) {
                prop_assert!(listed.contains_key(user), "{user} with {count} of {total} is not among {entries}");
            }
        }
    }
}

#[test]
fn denied_and_frequent_users_are_listed_apart() {
    let bench = Bench::new(16, 1);
    bench.times(10, "ada");
    bench.times(25, "eve");
    assert_eq!(by_value(&bench.hitters.hot()), HashMap::from([("ada".into(), (10, 0)), ("eve".into(), (25, 0))]));
    let denied = bench.hitters.denied();
    assert_eq!(by_value(&denied), HashMap::from([("eve".into(), (15, 0))]));
    assert_eq!(bench.engine.limit_name(denied[0].limit), "default/tier:t/day");
    assert_eq!(denied[0].identities, [("user".to_owned(), b"eve".to_vec())]);
}

#[test]
fn a_key_is_the_limit_that_decided_and_whom_it_counts() {
    let bench = Bench::new(16, 1);
    for _ in 0..3 {
        bench.check("ada", "/both");
        bench.check("eve", "/all");
    }
    let mut denied: Vec<_> = bench
        .hitters
        .denied()
        .into_iter()
        .map(|hitter| (bench.engine.limit_name(hitter.limit).to_owned(), hitter.identities.len(), hitter.count))
        .collect();
    denied.sort();
    assert_eq!(denied, [("default/rule:all/day".to_owned(), 0, 2), ("default/rule:both/day".to_owned(), 2, 2)]);
}

#[test]
fn yesterdays_hitters_fade() {
    let bench = Bench::new(16, 1);
    bench.times(110, "eve");
    assert_eq!(by_value(&bench.hitters.denied())["eve"].0, 100);
    bench.clock.advance(Duration::from_mins(10));
    // Any decision makes the list fade, denied or not.
    bench.times(1, "ada");
    assert_eq!(by_value(&bench.hitters.denied())["eve"].0, 50);
    bench.clock.advance(Duration::from_mins(20));
    bench.times(1, "ada");
    assert_eq!(by_value(&bench.hitters.denied())["eve"].0, 13);
    bench.clock.advance(Duration::from_hours(24));
    bench.times(1, "ada");
    assert_eq!(bench.hitters.denied(), []);
    assert_eq!(by_value(&bench.hitters.hot()).keys().collect::<Vec<_>>(), ["ada"]);
}

#[test]
fn one_in_many_stands_for_many() {
    let bench = Bench::new(16, 8);
    // A thread of its own, whose count of decisions begins here.
    thread::scope(|scope| scope.spawn(|| bench.times(800, "eve")).join().expect("no panic"));
    assert_eq!(by_value(&bench.hitters.hot()), HashMap::from([("eve".into(), (800, 0))]));
}

/// Thousands of values of the greatest length: no more memory than at the start, and every listed one is whole.
#[test]
fn any_number_of_keys_of_any_length_takes_the_same_memory() {
    let bench = Bench::new(8, 1);
    let mut handle = bench.engine.handle("default/tier:t/day", "user").expect("the policy has it");
    let mut value = [b'x'; 1_024];
    let mut check = |number: u32| {
        value[1_020..].copy_from_slice(&number.to_be_bytes());
        let _ = handle.check(value);
    };
    // The first check of a thread may allocate.
    check(0);
    let made = allocation_counter::measure(|| (1..20_000).for_each(&mut check));
    assert_eq!(made.count_total, 0, "the check path allocated");
    let list = bench.hitters.hot();
    assert_eq!(list.len(), 8);
    for hitter in list {
        let (kind, value) = &hitter.identities[0];
        assert_eq!((kind.as_str(), value.len(), &value[..1_020]), ("user", 1_024, &[b'x'; 1_020][..]));
    }
}

/// The sketch keeps a combination that is too long as far as it goes, and still tells such keys apart.
#[test]
fn long_combinations_are_cut_but_not_mixed_up() {
    let bench = Bench::new(8, 1);
    for last in ["1", "2"] {
        let user = format!("{}{last}", "x".repeat(1_023));
        for _ in 0..3 {
            bench.check(&user, "/both");
        }
    }
    let denied = bench.hitters.denied();
    assert_eq!(denied.iter().map(|hitter| hitter.count).collect::<Vec<_>>(), [2, 2]);
    for hitter in denied {
        assert_eq!(hitter.identities[0].1.len(), 1_024);
        assert_eq!(hitter.identities[1].0, "ip");
        assert!(b"192.0.2.1".starts_with(&hitter.identities[1].1));
    }
}

/// Threads that meet skip, and nothing else is lost.
#[test]
fn threads_count_everything_but_what_they_skip() {
    const CHECKS: usize = 20_000;
    let (mut skipped, deadline) = (0, Deadline::new());
    // A round may miss all meetings on a machine that is busy with other things.
    while skipped == 0 && !deadline.has_passed() {
        let (bench, start) = (Bench::new(8, 1), Barrier::new(4));
        thread::scope(|scope| {
            for thread in 0..4 {
                let (bench, start) = (&bench, &start);
                scope.spawn(move || {
                    start.wait();
                    bench.times(CHECKS, &format!("user {thread}"));
                });
            }
            // A reader gets through meanwhile.
            let _ = bench.hitters.hot();
        });
        let counted: u64 = bench.hitters.hot().iter().map(|hitter| hitter.count).sum();
        skipped = bench.hitters.skipped();
        assert_eq!(counted + skipped, 4 * CHECKS as u64);
    }
    assert!(skipped > 0, "the threads never met: nothing was shown");
}
