//! Room in a table that fills up: what newcomers, known keys and other limits get, by honest traffic and by a flood.

use std::ops::Range;

use tidegate::{
    Decision, Engine, Identity, LimitIndex, Request, Retry, Snapshot, TableShares, clock::ManualClock, formats::Format,
    time::Timestamp,
};

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600 * SECOND;
/// The beginning of a day in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;

/// The tokens of every limit in a day: one comes back in 4.8 hours.
const QUOTA: usize = 5;
/// Checks of a key that are more than its quota.
const TRIES: usize = 7;

/// The number of a domain, and a kind: each has a limit of its own.
type Limited = (usize, &'static str);

struct Bench {
    clock: ManualClock,
    engine: Engine<ManualClock>,
}

fn ask<T>((domain, kind): Limited, name: u64, ask: impl Fn(&Request<'_>) -> T) -> T {
    let (domain, name) = (format!("d{domain}"), name.to_string());
    let who = [Identity::new(kind, &name).expect("valid")];
    ask(&Request::new(&who).expect("valid").domain(&domain))
}

impl Bench {
    fn new(max_keys: usize, domains: usize) -> Self {
        Self::with_shares(max_keys, domains, TableShares::default())
    }

    fn with_shares(max_keys: usize, domains: usize, shares: TableShares) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(NOW));
        let bench = Self { engine: Engine::for_simulation(max_keys, clock.clone(), 7).with_shares(shares), clock };
        bench.publish(domains);
        bench
    }

    /// Each domain has a limit for users and one for addresses.
    fn publish(&self, domains: usize) {
        let tier = |domain: usize, kind: &str| {
            format!(
                "[[domains.d{domain}.tiers]]\nid = \"{kind}\"\n\
                 limits = [{{ id = \"day\", algorithm = \"token_bucket\", limit = {QUOTA}, period = \"1d\" }}]\n"
            )
        };
        let domain = |domain: usize| {
            let (ip, user) = (tier(domain, "ip"), tier(domain, "user"));
            format!("[domains.d{domain}]\ndefaults = {{ ip = \"ip\", user = \"user\" }}\n{ip}{user}")
        };
        let text: String = (0..domains).map(domain).collect();
        self.engine.publish(Snapshot::parse(&text, Format::Toml).expect("a good policy")).expect("few limits");
    }

    fn slots(&self) -> u64 {
        self.engine.slots() as u64
    }

    /// Returns how many of `tries` checks of a key are allowed.
    fn allowed(&self, limit: Limited, name: u64, tries: usize) -> usize {
        let is_allowed = |request: &Request<'_>| self.engine.check(request).is_allowed();
        ask(limit, name, |request| (0..tries).filter(|_| is_allowed(request)).count())
    }

    /// Returns what each of these keys is allowed when it tries to get more than its quota.
    fn quotas(&self, limit: Limited, names: Range<u64>) -> Vec<usize> {
        names.map(|name| self.allowed(limit, name, TRIES)).collect()
    }

    /// Checks each of these keys once; returns how many are allowed.
    fn flood(&self, limit: Limited, names: Range<u64>) -> u64 {
        names.map(|name| self.allowed(limit, name, 1) as u64).sum()
    }

    fn index(&self, (domain, kind): Limited) -> LimitIndex {
        let name = format!("d{domain}/tier:{kind}/day");
        let mut limits = self.engine.limit_counts().into_iter().map(|(limit, _)| limit);
        limits.find(|limit| self.engine.limit_name(*limit) == name).expect("the policy has it")
    }

    /// Slots that a limit holds.
    fn held(&self, limit: Limited) -> u64 {
        let index = self.index(limit);
        let mut held = self.engine.slots_held().into_iter();
        held.find(|(limit, _)| *limit == index).expect("the policy has it").1
    }

    fn is_drained(&self, limit: Limited) -> bool {
        self.engine.drained_limits().contains(&self.index(limit))
    }

    /// Fills the table with keys of all limits in turn, one check each, until so many have a bucket or enough have tried.
    /// Returns the keys that have one.
    fn fill(&self, limits: &[Limited], keys: u64) -> Vec<(Limited, u64)> {
        let mut known = Vec::new();
        for name in 0..30 * self.slots() {
            if known.len() as u64 == keys {
                break;
            }
            let limit = limits[name as usize % limits.len()];
            if self.allowed(limit, name, 1) == 1 {
                known.push((limit, name));
            }
        }
        known
    }
}

/// Newcomers have names from here on.
const NEW: u64 = 1 << 40;

/// Addresses come until their limit holds its share and all of its overflow buckets are in use; then a part of them becomes
/// idle. The next newcomers inherit nothing from them.
#[test]
fn newcomers_have_all_of_their_quota_as_soon_as_there_is_room() {
    let (bench, limit) = (Bench::new(10_000, 2), (0, "ip"));
    let (slots, max) = (bench.slots(), bench.slots() * 70 / 100);
    let early = slots * 40 / 100;
    assert_eq!(bench.flood(limit, 0..early), early);
    bench.clock.set(Timestamp::from_nanos(NOW + 2 * HOUR));
    let late = bench.flood(limit, slots..4 * slots);
    assert_eq!((bench.held(limit), early + late), (max, max + 8), "its share, and its overflow buckets");
    assert!(bench.is_drained(limit));
    assert_eq!(bench.quotas(limit, NEW..NEW + 300), [0; 300], "there is no room");
    assert_eq!(bench.quotas((1, "ip"), NEW..NEW + 300), [QUOTA; 300], "but for others");

    // The denial says when there is room, and then there is.
    let retry = |decision: Decision<'_>| (decision.is_allowed(), decision.remaining(), decision.retry());
    let told = ask(limit, NEW, |request| retry(bench.engine.check(request)));
    let (false, Some(0), Retry::After(wait)) = told else { panic!("{told:?}") };
    assert_eq!(ask(limit, NEW, |request| retry(bench.engine.peek(request))), told);
    bench.clock.advance(wait);
    assert_eq!(bench.allowed(limit, NEW, TRIES), QUOTA);

    // The early keys are idle, and the others are not yet.
    bench.clock.set(Timestamp::from_nanos(NOW + 5 * HOUR));
    assert!(bench.engine.fill() < 0.4 && bench.is_drained(limit), "{}", bench.engine.fill());
    assert_eq!(bench.quotas(limit, NEW + 1..NEW + 301), [QUOTA; 300]);
    assert_eq!(bench.quotas(limit, slots..slots + 100), [QUOTA - 1; 100], "known keys have what they left");
    bench.clock.set(Timestamp::from_nanos(NOW + 7 * HOUR));
    assert!(!bench.is_drained(limit), "the overflow buckets are idle too");
}

#[test]
fn a_flood_of_one_limit_or_domain_leaves_others_all_of_their_quota() {
    let bench = Bench::new(10_000, 4);
    let (flooded, neighbour, other) = ((0, "ip"), (0, "user"), (1, "user"));
    let (slots, domain_max) = (bench.slots(), bench.slots() * 75 / 100);
    for limit in [neighbour, other] {
        assert!((0..100).all(|name| bench.allowed(limit, name, 2) == 2));
    }
    bench.flood(flooded, 0..3 * slots);
    assert_eq!(bench.quotas(neighbour, NEW..NEW + 300), [QUOTA; 300]);
    bench.flood(neighbour, NEW + 300..NEW + 3 * slots);
    assert_eq!(bench.held(flooded) + bench.held(neighbour), domain_max, "of {slots}");
    assert_eq!(bench.quotas(other, NEW..NEW + 300), [QUOTA; 300]);
    for limit in [neighbour, other] {
        assert_eq!(bench.quotas(limit, 0..100), [QUOTA - 2; 100], "known keys keep their buckets");
    }
}

/// A caller makes up addresses and users, at services of two domains.
#[test]
fn a_flood_of_several_limits_and_domains_leaves_one_that_holds_little_its_part() {
    let (bench, quiet, flooded) = (Bench::new(10_000, 4), (1, "user"), [(0, "ip"), (0, "user"), (1, "ip")]);
    assert!((0..100).all(|name| bench.allowed(quiet, name, 2) == 2));
    for limit in flooded {
        bench.flood(limit, 0..3 * bench.slots());
        assert_eq!(bench.quotas(limit, NEW..NEW + 10), [0; 10], "there is no room for more");
    }
    let held: u64 = flooded.iter().map(|limit| bench.held(*limit)).sum();
    assert_eq!(held + bench.held(quiet), bench.slots() * 85 / 100);
    // 2.5 % of the slots.
    assert_eq!(bench.quotas(quiet, NEW..NEW + 250), [QUOTA; 250]);
    assert_eq!(bench.quotas(quiet, 0..100), [QUOTA - 2; 100], "known keys keep their buckets");
}

/// Limits of eight domains, so that none comes near its share.
fn honest() -> Vec<Limited> {
    (0..8).flat_map(|domain| [(domain, "ip"), (domain, "user")]).collect()
}

/// The traffic is honest, at each load of the table's slots.
#[test]
fn at_any_load_a_newcomer_has_all_of_its_quota_or_waits_and_known_keys_have_theirs() {
    for (percent, at_least) in [(70, 160), (80, 160), (85, 120), (90, 150), (100, 0)] {
        // These limits bring the load to 85 %, and further only where nothing is kept for others.
        let shares = if percent > 85 { TableShares::WHOLE } else { TableShares::default() };
        let (bench, limits) = (Bench::with_shares(4_000, 8, shares), honest());
        // At full load the overflow buckets are in use too.
        let overflow = if percent == 100 { 8 * limits.len() as u64 } else { 0 };
        let keys = bench.slots() * percent / 100 + overflow;
        let known = bench.fill(&limits, keys);
        assert_eq!(known.len() as u64, keys, "at {percent} %");
        let newcomers: Vec<usize> = limits.iter().flat_map(|limit| bench.quotas(*limit, NEW..NEW + 10)).collect();
        assert!(newcomers.iter().all(|quota| [0, QUOTA].contains(quota)), "at {percent} %: {newcomers:?}");
        let whole = newcomers.iter().filter(|quota| **quota == QUOTA).count();
        assert!(whole >= at_least && (percent < 100 || whole == 0), "{whole} of 160 at {percent} %");
        for (limit, name) in known.iter().step_by(7) {
            assert_eq!(bench.allowed(*limit, *name, TRIES), QUOTA - 1, "{limit:?} {name} at {percent} %");
        }
    }
}

/// Even if the table was full before the limit existed, as many of its keys have room as it has overflow buckets.
#[test]
fn eight_keys_of_any_limit_have_room_in_a_full_table() {
    let (bench, limits) = (Bench::with_shares(1_000, 8, TableShares::WHOLE), honest());
    let keys = bench.slots() + 8 * limits.len() as u64;
    assert_eq!(bench.fill(&limits, keys).len() as u64, keys);
    bench.publish(9);
    let quotas = bench.quotas((8, "user"), 0..20);
    assert_eq!(quotas, [[QUOTA; 8].as_slice(), &[0; 12]].concat());
    // A reset frees an overflow bucket for another key.
    assert_eq!(ask((8, "user"), 3, |request| bench.engine.reset(request)), 1);
    assert_eq!(bench.quotas((8, "user"), 8..20), [[QUOTA].as_slice(), &[0; 11]].concat());
    assert_eq!(bench.allowed((8, "user"), 3, 1), 0, "its bucket is another's by now");
}

/// Prints what newcomers and known keys get at each load of the table's slots, which `docs/sizing.md` states:
/// `cargo test --release --package tidegate --test suite -- --ignored --nocapture measure_what_newcomers`.
#[test]
#[ignore = "it measures"]
#[expect(clippy::print_stdout, reason = "it is what it is for")]
fn measure_what_newcomers_get_at_each_load() {
    const MAX_KEYS: usize = 1_000_000;
    const NEWCOMERS: u64 = 1_000;
    println!(
        "| load | traffic | newcomers in the table | in overflow buckets | denied | known keys with all that they left |"
    );
    println!("|---|---|---|---|---|---|");
    for percent in [50, 70, 80, 90, 95, 100] {
        // Honest: all limits alike. A flood: the others hold what is above 70 %, then one limit takes as much as it can.
        for is_flood in [false, true] {
            if is_flood && percent < 70 {
                continue;
            }
            // Where something is kept for others, honest traffic of these limits alone ends at a load of 85 %.
            let shares = if is_flood { TableShares::default() } else { TableShares::WHOLE };
            let (bench, limits) = (Bench::with_shares(MAX_KEYS, 8, shares), honest());
            let others = &limits[usize::from(is_flood) * 2..];
            let keys = bench.slots() * (if is_flood { percent - 70 } else { percent }) / 100;
            let mut known = Vec::new();
            for name in 0..3 * bench.slots() {
                let limit = others[name as usize % others.len()];
                if known.len() as u64 == keys {
                    break;
                }
                if bench.allowed(limit, name, 1) == 1 {
                    known.push((limit, name));
                }
            }
            if is_flood {
                bench.flood(limits[0], 0..2 * bench.slots());
            }
            let load = bench.engine.fill() * 100.0;
            let counts = || {
                let denied = bench.engine.denied_without_room();
                (bench.engine.overflow_charges() - denied, denied)
            };
            let (mut overflow, mut denied) = (0, 0);
            for limit in others {
                let before = counts();
                for name in NEW..NEW + NEWCOMERS {
                    bench.allowed(*limit, name, 1);
                }
                let after = counts();
                (overflow, denied) = (overflow + after.0 - before.0, denied + after.1 - before.1);
            }
            let all = NEWCOMERS * others.len() as u64;
            let part = |count: u64| count as f64 * 100.0 / all as f64;
            let sample: Vec<_> = known.iter().step_by(known.len() / 10_000 + 1).collect();
            let whole = sample.iter().filter(|(limit, name)| bench.allowed(*limit, *name, TRIES) == QUOTA - 1).count();
            println!(
                "| {load:.1} % | {} | {:.3} % | {:.3} % | {:.3} % | {whole} of {} |",
                if is_flood { "flood" } else { "honest" },
                part(all - overflow - denied),
                part(overflow),
                part(denied),
                sample.len(),
            );
        }
    }
}
