//! A snapshot that is compiled from a delta equals that of the whole document, whatever the version before was.

use std::{collections::BTreeSet, sync::Arc};

use proptest::{prelude::*, sample::subsequence};
use serde_json::{from_str, json, to_string};
use tidegate::{
    Engine, Identity, Publish, Request, Snapshot,
    clock::ManualClock,
    policy::{Client, Delta, Domain, Limit, Override, Policy, Rule, Tier, borrowed},
    time::Timestamp,
};

const NOW: u64 = 1_790_035_200_000_000_000;
const TIERS: [&str; 3] = ["a", "b", "c"];
const KINDS: [&str; 3] = ["ip", "tenant", "user"];
/// The kinds of identities in requests and documents.
const VALUES: [&str; 9] = ["10.0.0.0/8", "10.1.*", "10.1.2.3", "10.1.2.4", "*", "u*", "u-*", "u-1", "u-2"];

fn of_json<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("it is right")
}

/// Lists of one to three limits. Some are of calendar periods, which know the time zone, some admit nothing, some are shadows
/// or shared.
fn limits() -> impl Strategy<Value = Vec<Limit>> {
    let limit = |id: &'static str| {
        let period = prop_oneof![Just("day"), Just("week"), Just("month"), Just("1h")];
        let window = move |(limit, period, mode, sharing): (u64, &str, &str, &str)| json!({"id": id, "algorithm": "fixed_window", "limit": limit, "period": period, "mode": mode, "sharing": sharing});
        let mode = prop_oneof![3 => Just("enforce"), 1 => Just("shadow")];
        let sharing = prop_oneof![3 => Just("local"), 1 => Just("strict")];
        let window = (prop_oneof![4 => Just(5_u64), 1 => Just(0)], period, mode, sharing).prop_map(window);
        let second = move |limit: u64| json!({"id": id, "algorithm": "token_bucket", "limit": limit, "period": "1s"});
        prop_oneof![window, (1_u64..4).prop_map(second)].prop_map(of_json::<Limit>)
    };
    (limit("x"), limit("y"), limit("z"), subsequence(vec![0, 1, 2], 1..=3)).prop_map(|(x, y, z, places)| {
        let each = [x, y, z];
        places.into_iter().map(|place| each[place].clone()).collect()
    })
}

fn exception() -> impl Strategy<Value = Override> {
    let until = prop::option::of(prop_oneof![Just("2026-09-21T00:00:00Z"), Just("2026-09-23T00:00:00Z")]);
    let what = prop_oneof![
        Just(Override { blocked: true, ..Override::default() }),
        Just(Override { unlimited: true, ..Override::default() }),
        limits().prop_map(|limits| Override { limits, ..Override::default() }),
    ];
    (what, until).prop_map(|(what, until)| Override { until: until.map(Into::into), ..what })
}

/// Returns clients of the first `tiers` tiers.
fn clients(tiers: usize) -> impl Strategy<Value = Vec<Client>> {
    let each: Vec<(&str, &str)> = KINDS.iter().flat_map(|kind| VALUES.map(|value| (*kind, value))).collect();
    let each = each.into_iter().filter(|(kind, value)| *kind != "ip" || value.starts_with("10") || *value == "*");
    let what = (prop::option::of(0..tiers), prop::option::of(exception())).boxed();
    let client = |id: (&str, &str), tier: Option<usize>, exception: Option<Override>| Client {
        tier: tier.or(exception.is_none().then_some(0)).map(|tier| TIERS[tier].to_owned()),
        exception,
        ..Client::new(id.0, id.1)
    };
    let some = subsequence(each.collect::<Vec<_>>(), 0..=20);
    some.prop_flat_map(move |ids| {
        ids.into_iter()
            .map(|id| what.clone().prop_map(move |(tier, exception)| client(id, tier, exception)))
            .collect::<Vec<_>>()
    })
}

fn rule(id: usize, per: &[&str], limits: &[Limit]) -> Rule {
    let per = if per.is_empty() { json!("everyone") } else { json!(per) };
    of_json(json!({"id": format!("r{id}"), "endpoint": format!("/{id}/*"), "per": per, "limits": limits}))
}

fn domain() -> impl Strategy<Value = Domain> {
    let tiers = (1..=3_usize, prop::collection::vec(limits(), 3), prop::bool::weighted(0.2));
    let tiers = tiers.prop_flat_map(|(count, limits, is_turned)| {
        let tier = |(id, limits): (&&str, &Vec<Limit>)| -> Tier { of_json(json!({"id": id, "limits": limits})) };
        let mut tiers: Vec<Tier> = TIERS.iter().zip(&limits).map(tier).take(count).collect();
        if is_turned {
            tiers.reverse();
        }
        (Just(tiers), clients(count))
    });
    let rules = prop::collection::vec((subsequence(KINDS.to_vec(), 0..=2), limits()), 0..3);
    let timezone = prop_oneof![4 => Just(None), 1 => Just(Some("Asia/Tokyo".to_owned()))];
    let default = prop::option::of(prop::sample::select(KINDS.to_vec()));
    (tiers, rules, timezone, default, any::<bool>()).prop_map(
        |((tiers, clients), rules, timezone, default, tier_hint)| {
            let rules = rules.into_iter().enumerate().map(|(id, (per, limits))| rule(id, &per, &limits)).collect();
            let defaults = default.map(|kind| (kind.to_owned(), "a".to_owned())).into_iter().collect();
            Domain { defaults, tier_hint, timezone, tiers, clients, rules, ..Domain::default() }
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    let domains = (domain(), prop::option::weighted(0.3, domain()));
    domains.prop_map(|(one, other)| {
        let each = [Some(("default", one)), other.map(|other| ("other", other))];
        Policy { domains: each.into_iter().flatten().map(|(name, domain)| (name.to_owned(), domain)).collect() }
    })
}

/// Returns everything that the public API shows of a snapshot.
fn seen(snapshot: Arc<Snapshot>) -> Vec<String> {
    let names: BTreeSet<&str> = snapshot.limit_names().collect();
    assert_eq!(names.len(), snapshot.limit_names().len(), "each limit stands there once");
    let mut seen = vec![format!("{names:?}, {}", snapshot.most_limits_per_request())];
    let engine = Engine::with_clock(256, ManualClock::at(Timestamp::from_nanos(NOW)));
    engine.publish(Publish::of(snapshot)).expect("it fits");
    for domain in ["default", "other"] {
        for tier in [None, Some("b")] {
            for (user, address) in VALUES.iter().flat_map(|value| ["10.1.2.3", "10.9.9.9"].map(|ip| (value, ip))) {
                let each = [("user", *user), ("tenant", "u-1"), ("ip", address)];
                let who = each.map(|(kind, value)| Identity::new(kind, value).expect("it is one"));
                for who in [&who[..], &who[..1], &who[2..]] {
                    let request =
                        Request::new(who).expect("identities").domain(domain).endpoint("/1/x").expect("a path");
                    let request = tier.map_or(request, |tier| request.tier(tier));
                    // The places of limits may differ.
                    seen.extend(engine.inspect(&request).limits.iter().map(|met| {
                        let (id, counted, cost) = (met.limit_id, &met.counted, met.cost);
                        format!("{domain} {tier:?} {who:?}: {id} {counted:?} {cost} {:?}", met.outcome)
                    }));
                }
            }
        }
    }
    seen
}

/// Compiles the snapshot of `after` from the delta.
fn follow(before: &Policy, snapshot: &Snapshot, after: &Policy) -> Snapshot {
    let delta = to_string(&Delta::between(before, after)).expect("it can be written");
    let read: borrowed::Delta<'_> = from_str(&delta).expect("it can be read");
    snapshot.compile_delta(&read).expect("it is right")
}

proptest! {
    #[test]
    fn by_what_differs_it_is_the_same(policies in prop::collection::vec(policy(), 2..6)) {
        let mut snapshot = Arc::new(Snapshot::compile(&policies[0]).expect("it is right"));
        for pair in policies.windows(2) {
            let whole = Arc::new(Snapshot::compile(&pair[1]).expect("it is right"));
            snapshot = Arc::new(follow(&pair[0], &snapshot, &pair[1]));
            prop_assert_eq!(seen(Arc::clone(&snapshot)), seen(whole));
        }
    }
}

fn many(clients: impl Iterator<Item = (usize, &'static str)>) -> Policy {
    let clients: Vec<_> =
        clients.map(|(n, tier)| json!({"kind": "user", "value": format!("u-{n}"), "tier": tier})).collect();
    let tiers = json!([{"id": "a", "unlimited": true}, {"id": "b", "unlimited": true}]);
    of_json(json!({"domains": {"default": {"tiers": tiers, "clients": clients}}}))
}

#[test]
fn of_many_clients_those_that_differ_are_written() {
    let before = many((0..10_000).map(|n| (n, "a")));
    let after =
        many((0..10_000).filter(|n| *n != 7).map(|n| (n, if n == 5_000 { "b" } else { "a" })).chain([(10_000, "b")]));
    let delta = serde_json::to_value(Delta::between(&before, &after)).expect("written");
    assert_eq!(delta["gone"], json!({"default": [["user", "u-7"], ["user", "u-5000"]]}));
    let clients = delta["policy"]["domains"]["default"]["clients"].as_array().expect("there are some");
    let values: Vec<_> = clients.iter().map(|client| client["value"].as_str()).collect();
    assert_eq!(values, [Some("u-5000"), Some("u-10000")]);
}

/// Versions upon versions, until the clients are copied anew and beyond.
#[test]
fn a_thousand_small_changes_are_the_same_as_one() {
    let policy = |step: usize| {
        many((0..200).filter(move |n| n % 7 != step % 7).map(move |n| (n, if n < step % 199 { "b" } else { "a" })))
    };
    let mut snapshot = Snapshot::compile(&policy(0)).expect("it is right");
    for step in 0..1_000 {
        snapshot = follow(&policy(step), &snapshot, &policy(step + 1));
    }
    let whole = Snapshot::compile(&policy(1_000)).expect("it is right");
    assert_eq!(seen(Arc::new(snapshot)), seen(Arc::new(whole)));
}

/// The limits of a tier stand somewhere else in each version, and what was used of them is still used.
#[test]
fn what_was_used_stays_used() {
    let policy = |tenants: u64| -> Policy {
        let limit = json!({"id": "minute", "algorithm": "fixed_window", "limit": 10, "period": "1h"});
        let own = |n| json!({"kind": "tenant", "value": format!("t-{n}"), "override": {"limits": [limit]}});
        let clients: Vec<_> = (0..tenants).map(own).collect();
        let tiers = json!([{"id": "a", "limits": [limit]}]);
        let rules = json!([{"id": "all", "endpoint": "/*", "per": "user", "limits": [limit]}]);
        let domain = json!({"defaults": {"user": "a"}, "tiers": tiers, "rules": rules, "clients": clients});
        of_json(json!({"domains": {"default": domain}}))
    };
    let engine = Engine::with_clock(256, ManualClock::at(Timestamp::from_nanos(NOW)));
    let mut snapshot = Arc::new(Snapshot::compile(&policy(1)).expect("it is right"));
    for tenants in 1..9 {
        engine.publish(Publish::of(Arc::clone(&snapshot))).expect("it fits");
        for (kind, value, used) in [("user", "u-1", tenants), ("tenant", "t-0", tenants)] {
            let who = [Identity::new(kind, value).expect("it is one")];
            let request = Request::new(&who).expect("identities").endpoint("/x").expect("a path");
            assert_eq!(engine.check(&request).remaining(), Some(10 - used), "{value} of {tenants}");
        }
        snapshot = Arc::new(follow(&policy(tenants), &snapshot, &policy(tenants + 1)));
    }
}

/// One block of addresses, written otherwise.
#[test]
fn a_client_that_is_written_otherwise_is_the_same() {
    let policy = |address: &str, tier: &str| -> Policy {
        let tiers = json!([{"id": "a", "limits": [{"id": "x", "algorithm": "token_bucket", "limit": 1, "period": "1s"}]},
            {"id": "b", "limits": [{"id": "x", "algorithm": "token_bucket", "limit": 2, "period": "1s"}]}]);
        let clients =
            json!([{"kind": "ip", "value": address, "tier": tier}, {"kind": "user", "value": "u-1", "tier": "a"}]);
        of_json(json!({"domains": {"default": {"tiers": tiers, "clients": clients}}}))
    };
    let steps = [
        policy("10.1.*", "a"),
        policy("10.1.0.0/16", "b"),
        policy("2001:db8:*", "a"),
        policy("2001:db8::/32", "a"),
        policy("10.1.*", "b"),
    ];
    let mut snapshot = Snapshot::compile(&steps[0]).expect("it is right");
    for pair in steps.windows(2) {
        snapshot = follow(&pair[0], &snapshot, &pair[1]);
    }
    let whole = Snapshot::compile(&steps[4]).expect("it is right");
    assert_eq!(seen(Arc::new(snapshot)), seen(Arc::new(whole)));
}

#[test]
fn a_delta_of_another_document_is_refused() {
    let (one, two, three) = (many([(1, "a")].into_iter()), many([(2, "a")].into_iter()), many([(3, "a")].into_iter()));
    let delta = to_string(&Delta::between(&two, &three)).expect("written");
    let delta: borrowed::Delta<'_> = from_str(&delta).expect("read");
    let problems =
        Snapshot::compile(&one).expect("it is right").compile_delta(&delta).expect_err("of another").to_string();
    assert!(problems.contains("user `u-2` was no client before"), "{problems}");

    // The client is there already.
    let delta = to_string(&Delta::between(&two, &many([(1, "a"), (2, "a")].into_iter()))).expect("written");
    let delta: borrowed::Delta<'_> = from_str(&delta).expect("read");
    let problems =
        Snapshot::compile(&one).expect("it is right").compile_delta(&delta).expect_err("of another").to_string();
    assert!(problems.contains("user `u-1` stands here twice"), "{problems}");

    // A tier is gone of which a client that stays is.
    let overridden = |tiers: &[&str]| -> Policy {
        let tiers: Vec<_> = tiers.iter().map(|id| json!({"id": id, "unlimited": true})).collect();
        let clients: Vec<_> = tiers
            .iter()
            .skip(1)
            .map(|tier| json!({"kind": "user", "value": "u-1", "tier": tier["id"], "override": {"unlimited": true}}))
            .collect();
        of_json(json!({"domains": {"default": {"tiers": tiers, "clients": clients}}}))
    };
    let (one_tier, two_tiers) = (overridden(&["a"]), overridden(&["a", "b"]));
    let delta = to_string(&Delta::between(&one_tier, &one_tier)).expect("written");
    let delta: borrowed::Delta<'_> = from_str(&delta).expect("read");
    let problems = Snapshot::compile(&two_tiers).expect("it is right").compile_delta(&delta).expect_err("of another");
    assert!(problems.to_string().contains("domains.default.tiers"), "{problems}");

    // A limit of a client that stays is of another time zone's days.
    let daily = |timezone: &str| -> Policy {
        let limit = json!({"id": "day", "algorithm": "fixed_window", "limit": 5, "period": "day"});
        let client = json!({"kind": "user", "value": "u-1", "override": {"limits": [limit]}});
        of_json(json!({"domains": {"default": {"timezone": timezone, "clients": [client]}}}))
    };
    let (here, elsewhere) = (daily("UTC"), daily("Asia/Tokyo"));
    let nothing = to_string(&Delta::between(&elsewhere, &elsewhere)).expect("written");
    let nothing: borrowed::Delta<'_> = from_str(&nothing).expect("read");
    let problems =
        Snapshot::compile(&here).expect("it is right").compile_delta(&nothing).expect_err("of another").to_string();
    assert!(problems.contains("domains.default.timezone"), "{problems}");
}

/// The delta contains the clients whose days change with the time zone, and no others.
#[test]
fn another_time_zone_differs_in_its_calendars_alone() {
    let policy = |timezone: &str| -> Policy {
        let own = |value: &str, period: &str| {
            let limit = json!({"id": "x", "algorithm": "fixed_window", "limit": 5, "period": period});
            json!({"kind": "user", "value": value, "override": {"limits": [limit]}})
        };
        let clients = [own("u-1", "1d"), own("u-2", "day"), json!({"kind": "user", "value": "*", "tier": "a"})];
        let tiers = json!([{"id": "a", "unlimited": true}]);
        of_json(json!({"domains": {"default": {"timezone": timezone, "tiers": tiers, "clients": clients}}}))
    };
    let (before, after) = (policy("UTC"), policy("Asia/Tokyo"));
    let delta = serde_json::to_value(Delta::between(&before, &after)).expect("written");
    assert_eq!(delta["gone"], json!({"default": [["user", "u-2"]]}));
    let snapshot = follow(&before, &Snapshot::compile(&before).expect("it is right"), &after);
    let whole = Snapshot::compile(&after).expect("it is right");
    assert_eq!(seen(Arc::new(snapshot)), seen(Arc::new(whole)));
}
