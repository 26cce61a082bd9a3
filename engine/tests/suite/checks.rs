//! Checks of the engine: which limits a request meets, what a decision says, and what a publish keeps.

mod handles;
mod matching;

use std::{sync::Barrier, time::Duration};

use tidegate::{
    Decision, Engine, Identity, Request, Retry, Snapshot, clock::ManualClock, formats::Format, time::Timestamp,
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
    fn new(policy: &str) -> Self {
        Self::with_max_keys(policy, 1_000)
    }

    fn with_max_keys(policy: &str, max_keys: usize) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let bench = Self { engine: Engine::for_simulation(max_keys, clock.clone(), 7), clock };
        bench.publish(policy);
        bench
    }

    fn publish(&self, policy: &str) {
        let snapshot = Snapshot::parse(policy, Format::Toml).expect("a good policy");
        self.engine.publish(snapshot).expect("few limits");
    }

    /// `identities` are `KIND=VALUE`; `to` is an endpoint, with a method before it when there is a space.
    fn check(&self, identities: &[&str], to: &str, cost: u64) -> Decision<'_> {
        self.met(identities, to, cost).0
    }

    /// Returns the decision, and the full names of the limits that the check met.
    fn met(&self, identities: &[&str], to: &str, cost: u64) -> (Decision<'_>, Vec<&str>) {
        let split = |identity| {
            let (kind, value) = str::split_once(identity, '=').expect("KIND=VALUE");
            Identity::new(kind, value).expect("valid")
        };
        let identities: Vec<_> = identities.iter().map(|identity| split(identity)).collect();
        let mut request = Request::new(&identities).and_then(|request| request.cost(cost)).expect("valid");
        if let Some((method, endpoint)) = to.split_once(' ') {
            request = request.method(method).endpoint(endpoint).expect("valid");
        } else if !to.is_empty() {
            request = request.endpoint(to).expect("valid");
        }
        let mut met = Vec::new();
        let decision = self.engine.check_observing(&request, |it| met.push(self.engine.limit_name(it.limit)));
        (decision, met)
    }

    fn admitted(&self, identities: &[&str], tries: usize) -> usize {
        (0..tries).filter(|_| self.check(identities, "", 1).is_allowed()).count()
    }
}

fn one_tier(limits: &str) -> String {
    format!(
        "[domains.default]\ndefaults = {{ ip = \"t\", user = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\nlimits = [{limits}]\n"
    )
}

fn bucket(id: &str, limit: u64, period: &str) -> String {
    format!("{{ id = \"{id}\", algorithm = \"token_bucket\", limit = {limit}, period = \"{period}\" }}")
}

fn window(id: &str, limit: u64, period: &str) -> String {
    bucket(id, limit, period).replace("token_bucket", "fixed_window")
}

#[test]
fn before_a_policy_everything_is_allowed() {
    let engine = Engine::with_max_keys(10);
    let who = [Identity::new("ip", "192.0.2.1").expect("valid")];
    let decision = engine.check(&Request::new(&who).expect("valid"));
    assert!(decision.is_allowed());
    assert_eq!(
        (decision.limit_id(), decision.limit(), decision.remaining(), decision.reset_after()),
        (None, None, None, None)
    );
    assert_eq!(decision.policy_version(), 0);
}

#[test]
fn a_decision_says_what_it_should() {
    let bench = Bench::new(&one_tier(&bucket("minute", 60, "1m")));
    let decision = bench.check(&["ip=a"], "", 10);
    assert_eq!(decision.retry(), Retry::Now);
    assert_eq!(decision.limit_id(), Some("default/tier:t/minute"));
    assert_eq!((decision.limit(), decision.remaining()), (Some(60), Some(50)));
    assert_eq!(decision.reset_after(), Some(Duration::from_secs(10)));
    assert_eq!(decision.policy_version(), 1);
    assert!(bench.check(&["ip=a"], "", 50).is_allowed());
    let denied = bench.check(&["ip=a"], "", 2);
    assert_eq!(denied.retry(), Retry::After(Duration::from_secs(2)));
    assert_eq!((denied.remaining(), denied.reset_after()), (Some(0), Some(Duration::from_mins(1))));
    assert_eq!(bench.check(&["ip=a"], "", 61).retry(), Retry::Never);
    bench.clock.advance(Duration::from_secs(2));
    assert!(bench.check(&["ip=a"], "", 2).is_allowed(), "waiting exactly that long is enough");
    assert!(bench.check(&["ip=b"], "", 60).is_allowed(), "another value has another bucket");
    assert!(bench.check(&["user=b"], "", 60).is_allowed(), "another kind has another bucket");
    assert_eq!(bench.check(&["device=x"], "", 1).limit_id(), None, "a kind that the policy never speaks of");
}

#[test]
fn the_limit_with_the_least_remaining_is_shown() {
    let bench = Bench::new(&one_tier(
        &[bucket("second", 10, "1s"), bucket("minute", 12, "1m"), window("day", 50, "1d")].join(", "),
    ));
    assert_eq!(bench.check(&["ip=a"], "", 5).limit_id(), Some("default/tier:t/second"));
    bench.clock.advance(Duration::from_secs(1));
    let decision = bench.check(&["ip=a"], "", 2);
    assert_eq!((decision.limit_id(), decision.remaining()), (Some("default/tier:t/minute"), Some(5)));
}

#[test]
fn several_limits_are_charged_all_or_none() {
    let bench = Bench::new(&one_tier(&[bucket("second", 10, "1s"), bucket("minute", 12, "1m")].join(", ")));
    assert!(bench.check(&["ip=a"], "", 10).is_allowed());
    bench.clock.advance(Duration::from_secs(1));
    for _ in 0..5 {
        let (denied, met) = bench.met(&["ip=a"], "", 5);
        assert_eq!(denied.limit_id(), Some("default/tier:t/minute"));
        assert_eq!(met, ["default/tier:t/second", "default/tier:t/minute"]);
    }
    assert!(bench.check(&["ip=a"], "", 2).is_allowed(), "the denials charged neither");
    let (denied, met) = bench.met(&["ip=a"], "", 9);
    assert_eq!((denied.limit_id(), met), (Some("default/tier:t/second"), vec!["default/tier:t/second"]));
}

#[test]
fn a_limit_of_zero_denies_everything() {
    let bench = Bench::new(&one_tier(&bucket("none", 0, "1s")));
    let decision = bench.check(&["ip=a"], "", 1);
    assert_eq!(decision.retry(), Retry::Never);
    assert_eq!(
        (decision.limit(), decision.remaining(), decision.limit_id()),
        (Some(0), Some(0), Some("default/tier:t/none"))
    );
}

/// The longest delay of all limits that a request met, whichever of them is shown.
#[test]
fn a_leaky_bucket_says_how_long_to_wait() {
    let queue = |limit| bucket("queue", limit, "1s").replace("token_bucket", "leaky_bucket");
    let bench = Bench::new(&one_tier(&[queue(10), bucket("minute", 3, "1m")].join(", ")));
    let delays: Vec<Duration> = (0..4).map(|_| bench.check(&["ip=a"], "", 1).delay()).collect();
    assert_eq!(delays, [0, 100, 200, 0].map(Duration::from_millis), "the fourth is denied and does not wait");
    let decision = bench.check(&["ip=b"], "", 2);
    assert_eq!((decision.limit_id(), decision.delay()), (Some("default/tier:t/minute"), Duration::ZERO));
    bench.clock.advance(Duration::from_millis(50));
    assert_eq!(bench.check(&["ip=b"], "", 1).delay(), Duration::from_millis(150));
}

fn shadow(limit: &str) -> String {
    limit.replace(" }", ", mode = \"shadow\" }")
}

/// A shadow limit is evaluated and counted. It never denies, and is charged only when the request is allowed and the shadow
/// itself agrees.
#[test]
fn a_shadow_limit_never_denies_and_is_charged_only_when_all_agree() {
    let limits = [shadow(&bucket("trial", 2, "1d")), bucket("hour", 4, "1h"), shadow(&bucket("other", 1, "1d"))];
    let bench = Bench::new(&one_tier(&limits.join(", ")));
    let mut told = Vec::new();
    for _ in 0..6 {
        let decision = bench.check(&["ip=a"], "", 1);
        let shadows: Vec<_> = decision.shadow_denied().map(|name| name.rsplit('/').next().expect("an id")).collect();
        told.push((decision.is_allowed(), decision.limit_id(), decision.remaining(), shadows.join(" ")));
    }
    let hour = Some("default/tier:t/hour");
    let expected = [
        (true, Some(3), ""),
        (true, Some(2), "other"),
        (true, Some(1), "trial other"),
        (true, Some(0), "trial other"),
        // The denied check met no shadow.
        (false, Some(0), ""),
        (false, Some(0), ""),
    ];
    for (told, (allowed, remaining, shadows)) in told.iter().zip(expected) {
        assert_eq!((told.0, told.1, told.2, told.3.as_str()), (allowed, hour, remaining, shadows), "{told:?}");
    }
    let counts: Vec<_> = bench
        .engine
        .limit_counts()
        .into_iter()
        .map(|(_, counts)| (counts.allowed, counts.denied, counts.shadow_denied))
        .collect();
    assert_eq!(counts, [(2, 0, 2), (4, 2, 0), (1, 0, 3)]);
}

#[test]
fn under_shadows_alone_no_limit_decides() {
    let bench = Bench::new(&one_tier(&shadow(&bucket("trial", 1, "1d"))));
    let _ = bench.check(&["ip=a"], "", 1);
    let decision = bench.check(&["ip=a"], "", 1);
    assert!(decision.is_allowed());
    assert_eq!(
        (decision.limit_id(), decision.shadow_denied().collect::<Vec<_>>()),
        (None, vec!["default/tier:t/trial"])
    );
    // By handle too.
    let mut trial = bench.engine.handle("default/tier:t/trial", "ip").expect("is there");
    let decision = trial.check(b"a");
    assert!(decision.is_allowed() && decision.shadow_denied().count() == 1);
    // Once it is enforced it denies, by what it counted.
    bench.publish(&one_tier(&bucket("trial", 1, "1d")));
    assert!(!bench.check(&["ip=a"], "", 1).is_allowed());
}

#[test]
fn a_peek_answers_as_the_check_would_and_charges_nothing() {
    let bench = Bench::new(&one_tier(&[bucket("day", 5, "1d"), shadow(&bucket("trial", 3, "1d"))].join(", ")));
    let who = [Identity::new("ip", "a").expect("valid")];
    let request = Request::new(&who).expect("valid").cost(2).expect("valid");
    let told = |decision: &Decision<'_>| {
        (decision.is_allowed(), decision.remaining(), decision.retry(), decision.shadow_denied().count())
    };
    for _ in 0..4 {
        let before = bench.engine.totals();
        let peeked = told(&bench.engine.peek(&request));
        assert_eq!(
            (bench.engine.totals(), told(&bench.engine.peek(&request))),
            (before, peeked),
            "again, and uncounted"
        );
        assert_eq!(told(&bench.engine.check(&request)), peeked);
    }
    // A peek without a cost shows what is left now.
    let rest = request.without_cost();
    for _ in 0..3 {
        assert_eq!(told(&bench.engine.check(&rest)), (true, Some(1), Retry::Now, 0));
    }
    let stranger = [Identity::new("ip", "b").expect("valid")];
    let rest = Request::new(&stranger).expect("valid").without_cost();
    assert_eq!(bench.engine.peek(&rest).remaining(), Some(5), "of somebody who never came");
}

#[test]
fn a_sliding_window_has_no_rush_at_its_boundary() {
    let bench = Bench::new(&one_tier(&window("w", 10, "1m").replace("fixed_window", "sliding_window_counter")));
    bench.clock.advance(Duration::from_secs(59));
    assert_eq!(bench.admitted(&["ip=a"], 20), 10);
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(bench.admitted(&["ip=a"], 20), 0, "a fixed window would admit ten more");
    bench.clock.advance(Duration::from_secs(30));
    assert_eq!(bench.admitted(&["ip=a"], 20), 5);
}

#[test]
fn windows_end_together_for_everyone() {
    let bench = Bench::new(&one_tier(&window("minute", 3, "1m")));
    bench.clock.advance(Duration::from_secs(59));
    assert_eq!(bench.admitted(&["ip=a"], 5), 3);
    assert_eq!(bench.check(&["ip=a"], "", 1).retry(), Retry::After(Duration::from_secs(1)));
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(bench.admitted(&["ip=a"], 5), 3);
}

#[test]
fn a_publish_keeps_what_was_used() {
    let bench = Bench::new(&one_tier(&bucket("minute", 100, "1m")));
    assert_eq!(bench.admitted(&["ip=a"], 200), 100);
    bench.publish(&one_tier(&bucket("minute", 1_000, "1m")));
    assert_eq!(bench.check(&["ip=a"], "", 1).remaining(), Some(899));
    assert_eq!(bench.admitted(&["ip=a"], 2_000), 899, "100 used of 100, raised to 1,000: 900 left at once");
    // Lowered: used is at most the new capacity, and comes back at the new rate.
    bench.publish(&one_tier(&bucket("minute", 60, "1m")));
    assert_eq!(bench.check(&["ip=a"], "", 1).retry(), Retry::After(Duration::from_secs(1)));
    // To another algorithm and back.
    bench.publish(&one_tier(&window("minute", 80, "1m")));
    assert_eq!(bench.admitted(&["ip=a"], 200), 20);
    bench.publish(&one_tier(&bucket("minute", 90, "1m")));
    assert_eq!(bench.admitted(&["ip=a"], 200), 10);
}

#[test]
fn conversion_is_as_of_the_publish_however_late_the_touch() {
    let bench = Bench::new(&one_tier(&bucket("minute", 60, "1m")));
    assert_eq!(bench.admitted(&["ip=a"], 60), 60);
    bench.clock.advance(Duration::from_secs(30));
    // 30 used; from now on one comes back every 10 seconds.
    bench.publish(&one_tier(&bucket("minute", 6, "1m")));
    bench.publish(&one_tier(&bucket("minute", 60, "1m")));
    // 6 used at most, by the change in between; from now on one a second.
    bench.clock.advance(Duration::from_secs(2));
    assert_eq!(bench.check(&["ip=a"], "", 1).remaining(), Some(60 - 4 - 1));
}

#[test]
fn equal_numbers_and_absence_keep_the_bucket() {
    let policy = one_tier(&bucket("minute", 10, "1m"));
    let bench = Bench::new(&policy);
    assert_eq!(bench.admitted(&["ip=a"], 20), 10);
    bench.publish(&policy);
    bench.publish(&one_tier(&bucket("other", 10, "1m")));
    assert_eq!(bench.admitted(&["ip=a"], 20), 10, "another name, another bucket");
    bench.publish(&one_tier(&bucket("minute", 0, "1m")));
    assert_eq!(bench.admitted(&["ip=a"], 20), 0);
    bench.publish(&policy);
    assert_eq!(bench.admitted(&["ip=a"], 20), 0, "closing and opening a limit forgets nothing");
    bench.clock.advance(Duration::from_mins(1));
    assert_eq!(bench.admitted(&["ip=a"], 20), 10);
}

/// Generations repeat; a bucket that was not touched since must not count as one of the new numbers.
#[test]
fn a_bucket_survives_more_publishes_than_generations() {
    let day = |limit: u64| one_tier(&bucket("day", limit, "1d"));
    let bench = Bench::new(&day(1_000));
    assert!(bench.check(&["ip=idle"], "", 500).is_allowed());
    for publish in 0..200 {
        bench.publish(&day(if publish % 2 == 0 { 2_000 } else { 1_000 }));
        assert!(bench.check(&["ip=busy"], "", 1).is_allowed());
    }
    assert_eq!(bench.check(&["ip=idle"], "", 1).remaining(), Some(499));
    assert_eq!(bench.check(&["ip=busy"], "", 1).remaining(), Some(799));
}

#[test]
fn a_denied_decision_is_an_error_that_says_when_to_retry() {
    let bench = Bench::new(&one_tier(&bucket("minute", 10, "1m")));
    assert_eq!(bench.check(&["ip=a"], "", 10).ok(), Ok(()));
    let denied = bench.check(&["ip=a"], "", 1).ok().expect_err("nothing is left");
    assert_eq!(denied.retry(), Retry::After(Duration::from_secs(6)));
    assert_eq!(denied.to_string(), "the rate limit is exceeded; retry after 6s");
    let denied = bench.check(&["ip=a"], "", 11).ok().expect_err("more than the limit");
    assert_eq!((denied.retry(), &*denied.to_string()), (Retry::Never, "the rate limit can never admit this request"));
}

#[test]
fn what_is_shown_for_debugging_is_short() {
    let bench = Bench::new(&one_tier(&bucket("minute", 10, "1m")));
    let decision = format!("{:?}", bench.check(&["ip=a"], "", 1));
    assert!(decision.len() < 700, "{decision}");
    let engine = format!("{:?}", bench.engine);
    assert!(engine.len() < 10_000, "{} bytes", engine.len());
}

/// A flood of keys frees no other: live buckets stay, eight new keys get overflow buckets, and the rest is denied.
#[test]
fn when_the_table_is_full_new_keys_get_the_limits_overflow_buckets_or_wait() {
    let bench = Bench::with_max_keys(&one_tier(&bucket("minute", 2, "1m")), 100);
    assert_eq!(bench.admitted(&["ip=victim"], 5), 2);
    let flood: usize = (0..10_000).map(|n| bench.admitted(&[&format!("ip=attacker-{n}")], 1)).sum();
    // 1.5 slots a key, of which the only limit may take all, and eight overflow buckets.
    let slots = bench.engine.slots();
    assert_eq!(flood, slots - 1 + 8, "every slot but the victim's, and the overflow buckets");
    assert_eq!(bench.engine.overflow_charges(), 10_000 - (slots as u64 - 1), "and it shows");
    assert_eq!(bench.engine.denied_without_room(), 10_000 - flood as u64);
    let drained: Vec<&str> =
        bench.engine.drained_limits().iter().map(|limit| bench.engine.limit_name(*limit)).collect();
    assert_eq!(drained, ["default/tier:t/minute"]);
    assert_eq!(bench.admitted(&["ip=victim"], 5), 0, "a live bucket is never forgotten");
    bench.clock.advance(Duration::from_mins(1));
    assert_eq!(bench.admitted(&["ip=attacker-9999"], 5), 2, "idle slots are taken back");
    assert_eq!(bench.engine.drained_limits(), []);
}

/// A tightened limit: the old word says idle, but by the new numbers the quota is used for an hour yet. A flood of keys
/// must not take the slot.
#[test]
fn tightening_a_limit_frees_no_client_early() {
    for tightened in [bucket("l", 60, "1h"), window("l", 60, "1h")] {
        let bench = Bench::with_max_keys(&one_tier(&bucket("l", 60, "1m")), 100);
        assert_eq!(bench.admitted(&["ip=victim"], 100), 60);
        bench.publish(&one_tier(&tightened));
        bench.clock.advance(Duration::from_secs(90));
        for n in 0..1_000 {
            let _ = bench.check(&[&format!("ip=attacker-{n}")], "", 1);
        }
        assert!(bench.admitted(&["ip=victim"], 100) <= 1, "a token comes back every minute, or none in the hour");
    }
}

/// Four threads race for a token that comes back every tick, behind a limit that has room: each lost race is given back,
/// also while the same policy is published again and again. The first limit counts exactly what was admitted.
#[test]
fn what_a_lost_race_took_is_given_back_to_the_token() {
    const THREADS: usize = 4;
    let policy = one_tier(
        &[window("day", 10_000_000, "1d"), bucket("tick", 1_000, "1s").replace(" }", ", burst = 1 }")].join(", "),
    );
    let bench = Bench::new(&policy);
    let (start, done) = (Barrier::new(THREADS + 1), std::sync::atomic::AtomicBool::new(false));
    let is_done = || done.load(std::sync::atomic::Ordering::SeqCst);
    let mut ticks = 0;
    let admitted: u64 = std::thread::scope(|scope| {
        let check = || {
            start.wait();
            let mut admitted = 0;
            while !is_done() {
                admitted += u64::from(bench.check(&["ip=a"], "", 1).is_allowed());
            }
            admitted
        };
        let running: Vec<_> = (0..THREADS).map(|_| scope.spawn(check)).collect();
        start.wait();
        let deadline = Deadline::new();
        // Races are rare on few cores: go on until there were some, and leave the cores to the threads that race.
        while ticks < 2_000 || (bench.engine.give_backs() < 10 && !deadline.has_passed()) {
            bench.clock.advance(Duration::from_millis(1));
            ticks += 1;
            std::thread::sleep(Duration::from_micros(10));
            if ticks % 100 == 0 {
                bench.publish(&policy);
            }
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert!(bench.engine.give_backs() >= 10, "the threads never raced: nothing was shown");
    assert!(admitted <= ticks + 1, "{admitted} admitted in {ticks} ticks");
    bench.clock.advance(Duration::from_secs(1));
    let (decision, met) = bench.met(&["ip=a"], "", 1);
    assert!(decision.is_allowed() && met.len() == 2);
    let mut day = bench.engine.handle("default/tier:t/day", "ip").expect("is there");
    let remaining = day.check(b"a").remaining();
    assert_eq!(remaining, Some(10_000_000 - admitted - 2), "the day's limit counts what was admitted and nothing else");
}

/// The rate changes all the while, between two that differ by one, under one burst: no limit admits more than the faster
/// allows.
#[test]
fn checks_keep_the_bound_while_numbers_change() {
    let policy = |limit: u64| one_tier(&bucket("second", limit, "1s").replace(" }", ", burst = 5000 }"));
    let bench = Bench::new(&policy(5_000));
    let start = Barrier::new(5);
    let admitted: u64 = std::thread::scope(|scope| {
        let check = || {
            start.wait();
            (0..100_000).map(|n| u64::from(bench.check(&[&format!("ip={}", n % 3)], "", 1).is_allowed())).sum::<u64>()
        };
        let running: Vec<_> = (0..4).map(|_| scope.spawn(check)).collect();
        start.wait();
        for publish in 1..=100 {
            bench.publish(&policy(5_000 + publish % 2));
            bench.clock.advance(Duration::from_millis(1));
        }
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    // In 0.1 s of the clock, three keys.
    let bound = 3 * (5_000 + 501);
    assert!(admitted <= bound, "{admitted} admitted, {bound} allowed");
    assert!(admitted >= 3 * 5_000, "{admitted} admitted: somebody was denied for good");
}

/// An observer sees the shadows that would have refused a request, wherever they are among its limits.
#[test]
fn an_observer_of_a_check_sees_the_refusing_shadows() {
    let shadow = bucket("s", 1, "1h").replace("{ ", "{ mode = \"shadow\", ");
    let world = Bench::new(&one_tier(&format!("{}, {shadow}, {}", bucket("a", 3, "1h"), bucket("b", 9, "1h"))));
    let who = [Identity::new("ip", "192.0.2.1").expect("valid")];
    let told = || {
        let mut told = Vec::new();
        let _ = world.engine.check_observing(&Request::new(&who).expect("valid"), |met| told.push(met.shadow_denied));
        told
    };
    assert_eq!([told(), told(), told()], [vec![false; 3], vec![false, true, false], vec![false, true, false]]);
    // A denied check does not evaluate shadows.
    assert_eq!(told(), [false]);
}
