//! Hot keys through the engine: striping begins by itself where threads race, ends by itself, and admits exactly what
//! the limit allows, also beside resets, refunds and publishes.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tidegate::{Decision, Engine, Identity, Request, Retry, Snapshot, formats::Format};
use tidegate_conformance::Deadline;

use crate::racing_clock::{RacingClock, together};

const NOW: u64 = 1_790_035_200_000_000_000;
const LIMIT_ID: &str = "default/tier:t/l";

fn policy(algorithm: &str, burst: u64) -> Snapshot {
    let text = format!(
        r#"
        [domains.default]
        defaults = {{ user = "t" }}
        [[domains.default.tiers]]
        id = "t"
        limits = [{{ id = "l", algorithm = "{algorithm}", limit = 1, period = "1s", burst = {burst} }}]
        "#
    );
    Snapshot::parse(&text, Format::Toml).expect("a good policy")
}

fn engine(algorithm: &str, burst: u64) -> Engine<RacingClock> {
    // Room for the keys of all rounds: they stay live.
    let engine = Engine::for_simulation(100_000, RacingClock::at(NOW), 7);
    engine.publish(policy(algorithm, burst)).expect("few limits");
    engine
}

fn who(name: &str) -> [Identity<'_>; 1] {
    [Identity::new("user", name).expect("valid")]
}

/// Returns how many checks of cost 1 one thread makes until it is denied.
fn admitted(engine: &Engine<RacingClock>, name: &str) -> u64 {
    let mut handle = engine.handle(LIMIT_ID, "user").expect("is there");
    let mut admitted = 0;
    while handle.check(name).is_allowed() {
        admitted += 1;
    }
    admitted
}

/// Runs `round` with new keys at least 20 times, until at least so many sessions began. Two threads may miss each other on a
/// machine that is busy with other things.
fn with_leases(engine: &Engine<RacingClock>, at_least: u64, mut round: impl FnMut(&str)) {
    let (mut rounds, deadline) = (0, Deadline::new());
    while rounds < 20 || (engine.leases_begun() < at_least && !deadline.has_passed()) {
        round(&format!("user {rounds}"));
        rounds += 1;
    }
    assert!(engine.leases_begun() >= at_least, "hardly any leases: {}", engine.leases_begun());
}

#[test]
fn threads_on_one_key_are_admitted_exactly_the_burst() {
    let engine = engine("token_bucket", 50_000);
    with_leases(&engine, 10, |name| {
        assert_eq!(together(&engine, |_| admitted(&engine, name)) + admitted(&engine, name), 50_000);
    });
    // A denial has taken back all that was left.
    assert_eq!(engine.leases_begun(), engine.leases_ended());
}

#[test]
fn a_small_burst_that_may_just_lease_is_exact() {
    let engine = engine("token_bucket", 1_024);
    let (mut rounds, deadline) = (0, Deadline::new());
    while rounds < 200 || (engine.leases_begun() == 0 && !deadline.has_passed()) {
        let name = format!("user {rounds}");
        assert_eq!(together(&engine, |_| admitted(&engine, &name)) + admitted(&engine, &name), 1_024);
        rounds += 1;
    }
    assert!(engine.leases_begun() > 0, "the threads never met");
}

/// One thread checks a key alone, another one together with a second key.
#[test]
fn checks_of_several_beside_a_lease_are_admitted_no_more_than_the_burst() {
    const BURST: u64 = 4_096;
    let engine = engine("token_bucket", BURST);
    with_leases(&engine, 10, |name| {
        let other = format!("{name} too");
        let (one, two) = (who(name), who(&other));
        let both = [&one, &two].map(|who| (Request::exactly(who).expect("valid"), None));
        let pairs = AtomicU64::new(0);
        let taken = together(&engine, |thread| {
            if thread == 0 {
                return admitted(&engine, name);
            }
            let mut decisions = Vec::new();
            while decisions.drain(..).all(|decision: Decision<'_>| decision.is_allowed()) {
                engine.check_atomic_batch(&both, &mut decisions);
                if decisions.iter().all(Decision::is_allowed) {
                    pairs.fetch_add(1, Ordering::SeqCst);
                }
            }
            pairs.load(Ordering::SeqCst)
        });
        let rest = [name, &other].map(|name| admitted(&engine, name));
        assert_eq!((taken + rest[0], pairs.into_inner() + rest[1]), (BURST, BURST));
    });
}

#[test]
fn only_large_token_buckets_are_striped() {
    for (algorithm, burst) in [("token_bucket", 1_023), ("leaky_bucket", 50_000)] {
        let engine = engine(algorithm, burst);
        for round in 0..20 {
            let name = format!("user {round}");
            assert_eq!(together(&engine, |_| admitted(&engine, &name)) + admitted(&engine, &name), burst);
        }
        assert_eq!(engine.leases_begun(), 0);
    }
}

#[test]
fn striping_ends_when_one_thread_is_alone() {
    let engine = engine("token_bucket", 1_000_000);
    // Both threads stop before the key is used up.
    let half = |_| {
        let mut handle = engine.handle(LIMIT_ID, "user").expect("is there");
        u64::from((0..100_000).all(|_| handle.check("ada").is_allowed()))
    };
    let deadline = Deadline::new();
    while engine.leases_begun() == engine.leases_ended() && !deadline.has_passed() {
        engine.clock().advance(Duration::from_secs(1_000_000));
        assert_eq!(together(&engine, half), 2, "it is not empty");
    }
    assert!(engine.leases_begun() > engine.leases_ended(), "no lease was left open");
    engine.clock().advance(Duration::from_secs(1_000_000));
    let before = engine.leases_ended();
    let mut handle = engine.handle(LIMIT_ID, "user").expect("is there");
    for _ in 0..900_000 {
        assert!(handle.check("ada").is_allowed());
    }
    assert_eq!(engine.leases_ended(), before + 1);
    // What was spent before the clock moved is paid now: at most the reserve.
    let left = admitted(&engine, "ada");
    assert!((100_000 - 62_500..=100_000).contains(&left), "{left}");
}

#[test]
fn a_peek_of_a_striped_key_decides_as_the_check_would() {
    let engine = engine("token_bucket", 20_000);
    with_leases(&engine, 5, |name| {
        let identities = who(name);
        let spent = together(&engine, |_| {
            let mut handle = engine.handle(LIMIT_ID, "user").expect("is there");
            (0..4_000).filter(|_| handle.check(name).is_allowed()).count() as u64
        });
        assert_eq!(spent, 8_000);
        // Striped or not, exactly 12,000 are left.
        for (cost, fits) in [(12_001, false), (12_000, true), (11_000, true), (1, true)] {
            let request = Request::new(&identities).and_then(|request| request.cost(cost)).expect("valid");
            assert_eq!(engine.peek(&request).is_allowed(), fits, "{cost}");
        }
        let request = Request::new(&identities).and_then(|request| request.cost(12_001)).expect("valid");
        assert!(!engine.check(&request).is_allowed());
        assert_eq!(admitted(&engine, name), 12_000);
    });
}

/// A reservation looks before it charges. The look that denies pays for what stripes gave, so the wait that it says is enough
/// when no other request comes.
#[test]
fn a_large_cost_of_a_striped_key_is_admitted_after_its_wait() {
    const BURST: u64 = 20_000;
    let engine = engine("token_bucket", BURST);
    let mut told = 0;
    with_leases(&engine, 5, |name| {
        together(&engine, |_| {
            let mut handle = engine.handle(LIMIT_ID, "user").expect("is there");
            (0..3_000).filter(|_| handle.check(name).is_allowed()).count() as u64
        });
        // The wait may not be longer than the whole burst takes to come back.
        engine.clock().advance(Duration::from_nanos(2 * BURST * 1_000_000_000));
        let identities = who(name);
        let request = Request::new(&identities).and_then(|request| request.cost(BURST)).expect("valid");
        let (decision, _) = engine.reserve(&request);
        if let Retry::After(wait) = decision.retry() {
            told += 1;
            assert!(
                wait <= Duration::from_secs(BURST / 16),
                "longer than what a lease has takes to come back: {wait:?}"
            );
            engine.clock().advance(wait);
            assert!(engine.reserve(&request).0.is_allowed(), "told to wait {wait:?}, which was not enough");
        }
    });
    assert!(told > 0, "no lease had anything to be paid for");
}

/// Lets threads check a key until a session begins, at most some thousand times. Returns how many checks were allowed.
fn until_a_lease_begins(engine: &Engine<RacingClock>, name: &str) -> u64 {
    let before = engine.leases_begun();
    together(engine, |_| {
        let mut handle = engine.handle(LIMIT_ID, "user").expect("is there");
        let calls = (0..10_000).take_while(|_| engine.leases_begun() == before);
        calls.filter(|_| handle.check(name).is_allowed()).count() as u64
    })
}

/// The bucket is nearly full: what the stripes gave is not yet charged to the word, which holds less than the refund.
#[test]
fn a_refund_beside_a_lease_that_just_began_is_whole() {
    let engine = engine("token_bucket", 50_000);
    with_leases(&engine, 5, |name| {
        let spent = until_a_lease_begins(&engine, name);
        let identities = who(name);
        let request = Request::new(&identities).and_then(|it| it.cost(10)).expect("valid");
        for _ in 0..70 {
            let (_, reservation) = engine.reserve(&request);
            engine.refund(reservation.expect("the bucket is nearly full"));
        }
        assert_eq!(spent + admitted(&engine, name), 50_000);
    });
}

#[test]
fn a_refund_of_what_time_has_repaid_ends_no_lease() {
    let engine = engine("token_bucket", 50_000);
    let mut refunds = 0;
    with_leases(&engine, 5, |name| {
        until_a_lease_begins(&engine, name);
        let identities = who(name);
        let request = Request::new(&identities).and_then(|it| it.cost(10)).expect("valid");
        let (_, reservation) = engine.reserve(&request);
        engine.clock().advance(Duration::from_secs(10));
        let ended = engine.leases_ended();
        refunds += u64::from(engine.leases_begun() > ended);
        engine.refund(reservation.expect("the bucket is nearly full"));
        assert_eq!(engine.leases_ended(), ended);
        // The session ends with the round.
        admitted(&engine, name);
    });
    assert!(refunds > 0, "no lease was open");
}

#[test]
fn refunds_beside_a_lease_give_back_exactly_what_was_reserved() {
    refund_beside_leases(5_000, |admitted| assert_eq!(admitted, 50_000));
}

/// A refund beside the beginning or the end of a session may be lost.
#[test]
fn refunds_to_a_bucket_that_is_nearly_full_mint_nothing() {
    refund_beside_leases(0, |admitted| assert!(admitted <= 50_000, "{admitted} of 50,000"));
}

/// Threads check, reserve and refund while the clock stands, once `used` tokens are used. `check_total` judges how many tokens of
/// 50,000 were used in all: what was refunded can be used again.
fn refund_beside_leases(used: u64, check_total: impl Fn(u64)) {
    let engine = engine("token_bucket", 50_000);
    with_leases(&engine, 5, |name| {
        let identities = who(name);
        if used > 0 {
            let first = Request::new(&identities).and_then(|it| it.cost(used)).expect("valid");
            assert!(engine.check(&first).is_allowed());
        }
        let net = together(&engine, |thread| {
            let mut net = 0;
            let mut handle = engine.handle(LIMIT_ID, "user").expect("is there");
            for call in 0..20_000_u64 {
                if call % 8 == 0 {
                    let request = Request::new(&identities).and_then(|it| it.cost(1 + call % 3)).expect("valid");
                    if let (_, Some(reservation)) = engine.reserve(&request) {
                        engine.refund(reservation);
                    }
                } else {
                    net += u64::from(handle.check(name).is_allowed());
                }
                if thread == 0 && call % 64 == 0 {
                    let request = Request::new(&identities).and_then(|it| it.cost(2)).expect("valid");
                    if let (_, Some(reservation)) = engine.reserve(&request) {
                        // The excess is charged.
                        engine.settle(reservation, 5);
                        net += 5;
                    }
                }
            }
            net
        });
        check_total(used + net + admitted(&engine, name));
    });
}

#[test]
fn a_reset_beside_a_lease_gives_the_burst_once_more_at_most() {
    let engine = engine("token_bucket", 20_000);
    with_leases(&engine, 5, |name| {
        let identities = who(name);
        let resets = AtomicU64::new(0);
        let total = together(&engine, |thread| {
            let mut handle = engine.handle(LIMIT_ID, "user").expect("is there");
            let mut admitted = 0;
            for call in 0..40_000 {
                if thread == 0 && call % 10_000 == 9_999 {
                    resets.fetch_add(1, Ordering::SeqCst);
                    engine.reset(&Request::new(&identities).expect("valid"));
                }
                admitted += u64::from(handle.check(name).is_allowed());
            }
            admitted
        });
        let total = total + admitted(&engine, name);
        assert!(total <= 20_000 * (1 + resets.load(Ordering::SeqCst)), "{total}");
        engine.reset(&Request::new(&identities).expect("valid"));
        assert_eq!(admitted(&engine, name), 20_000, "all of it is there again");
    });
}

/// A publish counts the reserve as used: a 16th of the burst at most, each time.
#[test]
fn publishes_beside_a_lease_mint_nothing_and_take_little() {
    const PUBLISHES: u64 = 4;
    let engine = engine("token_bucket", 40_000);
    with_leases(&engine, 5, |name| {
        let total = together(&engine, |thread| {
            let mut handle = engine.handle(LIMIT_ID, "user").expect("is there");
            let mut admitted = 0;
            for call in 0..30_000 {
                if thread == 0 && call % 7_000 == 6_999 {
                    let burst = if call < 20_000 && call % 14_000 == 6_999 { 41_600 } else { 40_000 };
                    engine.publish(policy("token_bucket", burst)).expect("few limits");
                }
                admitted += u64::from(handle.check(name).is_allowed());
            }
            admitted
        });
        engine.publish(policy("token_bucket", 40_000)).expect("few limits");
        let total = total + admitted(&engine, name);
        assert!(total <= 41_600, "{total}");
        assert!(total >= 40_000 - (PUBLISHES + 1) * 41_600 / 16, "{total}");
    });
}
