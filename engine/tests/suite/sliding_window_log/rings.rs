//! The rings of idle keys, and the shares of limits in a pool.

use std::time::Duration;

use super::*;
use tidegate::time::Timestamp;

/// Idle keys leave their slots to others, and their rings too: a million keys over time pass through a hundred rings.
#[test]
fn rings_of_idle_keys_come_back() {
    let bench = Bench::new(100, &log(5, "1s"));
    for batch in 0..20_000 {
        for key in 0..50 {
            assert!(bench.check(&format!("{batch}-{key}"), 5).is_allowed());
        }
        // The slot looks live for half a second longer.
        bench.clock.advance(Duration::from_secs(2));
    }
    // Eight rings are tried at a time; all eight may be in use.
    assert!(bench.engine.log_charges_without_ring() < 100);
}

/// Far fewer rings than the table has slots, and slots that are never needed: their rings are.
#[test]
fn rings_of_idle_keys_are_found_where_slots_are_plenty() {
    let bench = Bench::new(100_000, &log(4_096, "1s"));
    for batch in 0..60 {
        for key in 0..50 {
            assert!(bench.check(&format!("{batch}-{key}"), 1).is_allowed());
        }
        bench.clock.advance(Duration::from_secs(2));
    }
    assert_eq!(bench.engine.overflow_charges(), 0);
    assert_eq!(bench.engine.log_charges_without_ring(), 0);
}

/// The test has more live keys than rings. Keys without a ring still have their own quota, and get a ring when one is free.
#[test]
fn a_key_without_a_ring_keeps_its_own_quota() {
    const N: u64 = 4_096;
    let bench = Bench::new(2_000, &log(N, "1m"));
    let keys: Vec<String> = (0..1_200).map(|key| key.to_string()).collect();
    for key in &keys {
        assert!(bench.check(key, N).is_allowed());
    }
    let without = bench.engine.log_charges_without_ring();
    assert!((100..1_100).contains(&without), "{without} of 1,200");
    for key in &keys {
        assert!(!bench.check(key, 1).is_allowed(), "key {key}");
    }
    bench.clock.advance(Duration::from_mins(1));
    let late = keys.iter().filter(|key| !bench.check(key, 1).is_allowed()).count() as u64;
    assert_eq!(late, without, "what has no ring counts up to 16 microseconds longer");
    bench.clock.advance(Duration::from_nanos(1 << 14));
    for key in &keys {
        assert!(bench.check(key, 1).is_allowed(), "key {key}");
    }
    // Keys with rings go idle and lose their slots; a key that returns without a ring finds one.
    bench.clock.advance(Duration::from_mins(2));
    for key in 0..1_200 {
        let _ = bench.check(&format!("other-{key}"), 1);
    }
    bench.clock.advance(Duration::from_mins(2));
    let before = bench.engine.log_charges_without_ring();
    for _ in 0..N {
        assert!(bench.check(keys.last().expect("some"), 1).is_allowed());
    }
    assert!(bench.engine.log_charges_without_ring() - before <= N);
    assert!(!bench.check(keys.last().expect("some"), 1).is_allowed());
}

/// An engine with a log of `LOG` a minute for each of some kinds of identities. There are 1,023 rings.
struct Logs {
    engine: Engine<ManualClock>,
    clock: ManualClock,
}

impl Logs {
    const LOG: u64 = 4_096;

    fn of(kinds: &[&str]) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let logs = Self { engine: Engine::for_simulation(10_000, clock.clone(), 7), clock };
        logs.publish(kinds);
        logs
    }

    fn publish(&self, kinds: &[&str]) {
        let tiers = kinds.iter().map(|kind| {
            let log = log(Self::LOG, "1m");
            format!("[[domains.default.tiers]]\nid = \"{kind}\"\nlimits = [{log}]\n")
        });
        let tiers: String = tiers.collect();
        let defaults: Vec<String> = kinds.iter().map(|kind| format!("{kind} = \"{kind}\"")).collect();
        let policy = format!("[domains.default]\ndefaults = {{ {} }}\n{tiers}", defaults.join(", "));
        self.engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a right policy")).expect("few limits");
    }

    /// Returns how many of `tries` checks of a key are allowed.
    fn allowed(&self, kind: &str, key: u64, checks: u64) -> u64 {
        let name = key.to_string();
        let who = [Identity::new(kind, &name).expect("valid")];
        (0..checks).filter(|_| self.engine.check(&Request::new(&who).expect("valid")).is_allowed()).count() as u64
    }

    /// Returns how many of these new keys, which are all allowed, get no ring.
    fn without_ring(&self, kind: &str, keys: Range<u64>) -> u64 {
        let (before, count) = (self.engine.log_charges_without_ring(), keys.end - keys.start);
        assert_eq!(keys.map(|key| self.allowed(kind, key, 1)).sum::<u64>(), count);
        self.engine.log_charges_without_ring() - before
    }

    /// Uses half of the quota of twenty keys at once and half after 30 seconds: the first half comes back alone, which takes a
    /// ring.
    fn assert_exact(&self, kind: &str) {
        let without = self.engine.log_charges_without_ring();
        for part in 0..3 {
            for key in 0..20 {
                assert_eq!(self.allowed(kind, key, Self::LOG / 2), Self::LOG / 2, "{kind} {key}, part {part}");
            }
            if part == 1 {
                assert!((0..20).all(|key| self.allowed(kind, key, 1) == 0));
            }
            self.clock.advance(Duration::from_secs(30));
        }
        assert_eq!(self.engine.log_charges_without_ring(), without);
    }
}

/// A flood of one limit takes its share of the rings of a size, 70 %, and leaves the rest to the keys of another limit.
#[test]
fn a_flood_of_one_log_leaves_rings_to_another() {
    let logs = Logs::of(&["ip", "user"]);
    assert_eq!(logs.without_ring("ip", 0..2_000), 2_000 - 716);
    logs.assert_exact("user");
    // The limit that holds its share gets the rings of its own idle keys. Eight are tried at a time; all may be of other limits.
    logs.clock.advance(Duration::from_mins(2));
    assert!(logs.without_ring("ip", 5_000..5_300) < 30);
}

/// Floods of several limits together leave 15 % of the rings, for limits that hold few.
#[test]
fn a_flood_of_two_logs_leaves_rings_to_others() {
    let logs = Logs::of(&["host", "ip", "session", "user"]);
    assert_eq!(logs.without_ring("ip", 0..2_000), 2_000 - 716);
    assert_eq!(logs.without_ring("host", 0..2_000), 2_000 - (869 - 716));
    // 154 are kept, half of them for each of two limits.
    assert_eq!(logs.without_ring("session", 0..100), 100 - 77);
    logs.assert_exact("user");
    // Rings of idle keys go to any limit, but for those that are kept.
    logs.clock.advance(Duration::from_mins(2));
    assert!(logs.without_ring("host", 5_000..5_600) < 60);
    logs.assert_exact("user");
}

/// A limit that took its rings before there were other limits gives them up as its keys go idle.
#[test]
fn a_log_above_its_share_comes_down_to_it() {
    let logs = Logs::of(&["ip"]);
    assert_eq!(logs.without_ring("ip", 0..2_000), 2_000 - 1_023);
    logs.publish(&["ip", "user"]);
    logs.clock.advance(Duration::from_mins(2));
    assert_eq!(logs.without_ring("ip", 5_000..7_000), 2_000 - 716);
    logs.assert_exact("user");
}
