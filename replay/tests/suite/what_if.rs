//! Tests of comparisons and previews against a slow, independent loop over the engine.

mod previews;
mod samples;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate::{
    Engine, Identity, Request, Retry, Snapshot,
    clock::ManualClock,
    formats::Format,
    policy::{Algorithm, Policy, Sharing},
    time::{Nanos, SECOND_NS, Timestamp},
};
use tidegate_replay::{
    Utc,
    compare::{
        CLIENT_LIMITS_MAX, ClientOrder, Comparison, ComparisonResult, DecisionDetails, DecisionFilter, DecisionRow,
        LimitResult, Summary, as_one_node, room_for,
    },
    preview::{PREVIEW_BUCKETS, PREVIEW_REQUESTS_MAX, PreviewResult, preview},
    traffic::{RecordedTraffic, Traffic, TrafficPlan, TrafficRow, encode_request},
};

/// Start of a day in 2026.
const START: Nanos = 1_790_035_200 * SECOND_NS;

fn snapshot(policy: &Value) -> Snapshot {
    let policy: Policy = serde_json::from_value(policy.clone()).expect("a policy");
    Snapshot::compile(&policy).expect("a right policy")
}

fn made(rows: Value) -> TrafficPlan {
    let rows: Vec<TrafficRow> = serde_json::from_value(rows).expect("rows");
    TrafficPlan::new(rows, "default").expect("right rows")
}

fn tier_policy(limits: &Value) -> Value {
    json!({ "domains": { "default": {
        "defaults": { "user": "t", "ip": "t" }, "tiers": [{ "id": "t", "limits": limits }],
    } } })
}

/// Time, identities, decisions of both policies, and the limits that decided.
type Decided = (Nanos, Vec<String>, [bool; 2], [Option<String>; 2]);

/// Returns a strategy for traffic of a few clients, each with one or two identities, at random times.
fn visits() -> impl Strategy<Value = Vec<(u64, u8, Option<u8>, u8)>> {
    let visit = (0..60_000_u64, 0..6_u8, prop::option::of(0..4_u8), 0..3_u8);
    prop::collection::vec(visit, 1..400).prop_map(|mut visits| {
        visits.sort_by_key(|visit| visit.0);
        visits
    })
}

fn with_visit<T>((ms, ip, user, path): (u64, u8, Option<u8>, u8), run: impl FnOnce(Nanos, &Request<'_>) -> T) -> T {
    let (ip, user) = (format!("192.0.2.{ip}"), user.map(|user| format!("u{user}")));
    let mut who = vec![Identity::new("ip", &ip).expect("valid")];
    who.extend(user.as_ref().map(|user| Identity::new("user", user).expect("valid")));
    let path = ["/", "/search?q", "/all"][usize::from(path)];
    let request = Request::new(&who).and_then(|request| request.endpoint(path)).expect("valid");
    run(START + ms * 1_000_000, &request)
}

fn policy(user: u64, ip: u64, pair: u64, all: u64) -> Value {
    let limit = |limit: u64| json!([{ "id": "l", "algorithm": "token_bucket", "limit": limit, "period": "10s" }]);
    json!({ "domains": { "default": {
        "defaults": { "user": "user", "ip": "ip" },
        "tiers": [{ "id": "user", "limits": limit(user) }, { "id": "ip", "limits": limit(ip) }],
        "rules": [
            { "id": "pair", "endpoint": "/search", "per": ["ip", "user"], "limits": limit(pair) },
            { "id": "all", "endpoint": "/all", "per": "everyone", "limits": limit(all) },
        ],
    } } })
}

fn compare(a: Option<&Value>, b: Option<&Value>, visits: &[(u64, u8, Option<u8>, u8)]) -> ComparisonResult {
    let mut compare = Comparison::new([a.map(snapshot), b.map(snapshot)], 1_000).expect("few limits");
    for visit in visits {
        with_visit(*visit, |now, request| compare.decide(now, request));
    }
    compare.finish(|kind, value, _| format!("{kind}:{value}"))
}

/// Checks the summary of each policy.
fn check_sides(summary: &Summary, made: &[Decided]) -> Result<(), TestCaseError> {
    for (side, figures) in [&summary.a, &summary.b].into_iter().enumerate() {
        let figures = figures.as_ref().expect("there is a policy");
        let denied: Vec<_> = made.iter().filter(|it| !it.2[side]).collect();
        prop_assert_eq!((figures.denied, figures.allowed), (denied.len() as u64, (made.len() - denied.len()) as u64));
        let whom: BTreeSet<_> = denied.iter().flat_map(|it| &it.1).collect();
        prop_assert_eq!(figures.clients_denied, whom.len() as u64);
        prop_assert_eq!(figures.first_denial.as_ref().map(|it| it.at), denied.first().map(|it| Utc(it.0)));
        for limit in &summary.limits {
            let own = denied.iter().filter(|it| it.3[side].as_deref() == Some(&limit.limit_id)).count() as u64;
            let told = if side == 0 { &limit.a } else { &limit.b };
            prop_assert_eq!(told.as_ref().expect("both have it").denied, own, "{}", limit.limit_id);
        }
        // The longest run, by looking at each client's decisions.
        let mut longest = 0;
        for key in &whom {
            let mut from = None;
            for it in made.iter().filter(|it| it.1.contains(key)) {
                from = if it.2[side] { None } else { from.or(Some(it.0)) };
                longest = longest.max(from.map_or(0, |from| it.0 - from));
            }
        }
        prop_assert_eq!(figures.longest_run.as_ref().map_or(0, |run| run.length_ms), longest / 1_000_000);
    }
    Ok(())
}

/// Checks the numbers of clients that B denies more, or less.
fn check_changed_clients(summary: &Summary, made: &[Decided]) -> Result<(), TestCaseError> {
    let mut more: BTreeMap<&String, i64> = BTreeMap::new();
    for (_, who, is_allowed, _) in made {
        for key in who {
            *more.entry(key).or_default() += i64::from(is_allowed[0]) - i64::from(is_allowed[1]);
        }
    }
    let clients = summary.clients.expect("they are counted");
    let [gaining, losing] = [-1, 1].map(|way| more.values().filter(|more| more.signum() == way).count() as u64);
    prop_assert_eq!((clients.gaining, clients.losing), (gaining, losing));
    Ok(())
}

/// Checks each client over time, in seconds.
fn check_timelines(outcome: &ComparisonResult, made: &[Decided]) -> Result<(), TestCaseError> {
    let (rows, _) = outcome.timeline(DecisionFilter::All, ClientOrder::Key, false, 0, 100, 1_000);
    let mut expected: BTreeMap<&str, BTreeMap<u64, [u64; 3]>> = BTreeMap::new();
    for (now, who, is_allowed, _) in made {
        for key in who {
            let bucket = expected.entry(key).or_default().entry(now / SECOND_NS * SECOND_NS).or_default();
            *bucket = [bucket[0] + 1, bucket[1] + u64::from(!is_allowed[0]), bucket[2] + u64::from(!is_allowed[1])];
        }
    }
    let told: BTreeMap<&str, BTreeMap<u64, [u64; 3]>> = rows
        .iter()
        .map(|row| {
            let buckets = row.buckets.iter().map(|it| (it.at.0, [it.requests, it.denied_a, it.denied_b]));
            (row.client.key.as_str(), buckets.collect())
        })
        .collect();
    prop_assert_eq!(told, expected);
    Ok(())
}

/// Checks single decisions, page by page.
fn check_decisions(outcome: &ComparisonResult, made: &[Decided]) -> Result<(), TestCaseError> {
    for which in [
        DecisionFilter::All,
        DecisionFilter::Denied,
        DecisionFilter::Changed,
        DecisionFilter::NewlyDenied,
        DecisionFilter::NewlyAllowed,
    ] {
        let (mut told, mut after) = (Vec::new(), None);
        loop {
            let page = outcome.decisions(Some("user:u1"), which, None, after, 7);
            told.extend(page.items.into_iter().map(|row| {
                let [a, b] = [row.a, row.b].map(|it| it.expect("there is a policy"));
                (row.at.0, row.identities, [a.allowed, b.allowed], [a.limit_id, b.limit_id])
            }));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let is = |it: [bool; 2]| match which {
            DecisionFilter::All => true,
            DecisionFilter::Denied => it != [true, true],
            DecisionFilter::Changed => it[0] != it[1],
            DecisionFilter::NewlyDenied => it == [true, false],
            DecisionFilter::NewlyAllowed => it == [false, true],
        };
        let expected: Vec<_> =
            made.iter().filter(|it| it.1.contains(&"user:u1".to_owned()) && is(it.2)).cloned().collect();
        prop_assert_eq!(told, expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Totals, clients, limits, buckets and single decisions equal independent counts.
    #[test]
    fn a_comparison_tells_what_both_engines_decide(
        visits in visits(), a in (1..9_u64, 1..9_u64, 1..5_u64, 1..9_u64), b in (1..9_u64, 1..9_u64, 1..5_u64, 1..9_u64),
    ) {
        let documents = [a, b].map(|(user, ip, pair, all)| policy(user, ip, pair, all));
        let outcome = compare(Some(&documents[0]), Some(&documents[1]), &visits);
        let engines = documents.map(|document| {
            let clock = ManualClock::at(Timestamp::from_nanos(START));
            let engine = Engine::for_simulation(1_000, clock.clone(), 5);
            engine.publish(snapshot(&document)).expect("few limits");
            (engine, clock)
        });
        let mut made: Vec<Decided> = Vec::new();
        for visit in &visits {
            with_visit(*visit, |now, request| {
                let said = engines.each_ref().map(|(engine, clock)| {
                    clock.set(Timestamp::from_nanos(now));
                    let decision = engine.check(request);
                    (decision.is_allowed(), decision.limit_id().map(str::to_owned))
                });
                let who = request.parts().identities.iter().map(|who| format!("{}:{}", who.kind(), who.value()));
                made.push((now, who.collect(), said.each_ref().map(|it| it.0), said.map(|it| it.1)));
            });
        }
        let summary = &outcome.summary;
        let count = |is: [bool; 2]| made.iter().filter(|it| it.2 == is).count() as u64;
        prop_assert_eq!(summary.requests, visits.len() as u64);
        prop_assert_eq!((summary.newly_denied.requests, summary.newly_allowed.requests), (count([true, false]), count([false, true])));
        check_sides(summary, &made)?;
        check_changed_clients(summary, &made)?;
        check_timelines(&outcome, &made)?;
        check_decisions(&outcome, &made)?;
    }

    /// A comparison is reproducible, and its result survives serialization.
    #[test]
    fn the_same_comparison_gives_the_same_bytes(visits in visits()) {
        let documents = [policy(3, 4, 2, 9), policy(2, 5, 3, 4)];
        let once = || serde_json::to_string(&compare(Some(&documents[0]), Some(&documents[1]), &visits)).expect("JSON");
        let bytes = once();
        prop_assert_eq!(&bytes, &once());
        let back: ComparisonResult = serde_json::from_str(&bytes).expect("an outcome");
        prop_assert_eq!(serde_json::to_string(&back).expect("JSON"), bytes);
    }
}

/// The display form of a client is also used in the names of its limits, in all results and when serialized.
#[test]
fn limits_of_single_clients_are_named_as_clients_are() {
    let own = |limit: u64| json!({ "limits": [{ "id": "own", "algorithm": "token_bucket", "limit": limit, "period": "1h" }] });
    let document = json!({ "domains": { "default": {
        "defaults": { "user": "t" }, "tiers": [{ "id": "t", "unlimited": true }],
        "clients": [
            { "kind": "user", "value": "u1", "override": own(1) },
            { "kind": "user", "value": "nobody/else:", "override": own(1) },
            { "kind": "user", "value": "nobody*", "override": own(1) },
        ],
    } } });
    let policies = || [Some(snapshot(&document)), Some(snapshot(&document))];
    let mut compare = Comparison::new(policies(), 1_000).expect("few limits");
    for number in 0..5 {
        with_visit((number, 1, Some(1), 0), |now, request| compare.decide(now, request));
    }
    let outcome = compare.finish(|kind, _, number| format!("{kind}:hidden{number}"));
    let limits: Vec<_> = outcome.summary.limits.iter().map(|limit| limit.limit_id.as_str()).collect();
    assert_eq!(limits, ["default/tier:t/l", "default/client:user:hidden1/own"][1..]);
    let decision = outcome.decisions(None, DecisionFilter::Denied, None, None, 1).items.remove(0);
    assert_eq!(decision.a.and_then(|it| it.limit_id).as_deref(), Some("default/client:user:hidden1/own"));
    assert_eq!(decision.identities, ["ip:hidden0", "user:hidden1"]);
    let bytes = serde_json::to_string(&outcome).expect("JSON");
    assert!(!bytes.contains("u1/") && !bytes.contains("nobody"), "{bytes}");
}

/// A policy may have a hundred thousand overrides.
#[test]
fn of_single_clients_limits_those_that_deny_most_are_listed() {
    let client = |number: u64| {
        json!({ "kind": "user", "value": format!("c{number}"), "override": { "limits": [
            { "id": "own", "algorithm": "token_bucket", "limit": 1, "period": "1h" },
        ] } })
    };
    let count = CLIENT_LIMITS_MAX as u64 + 30;
    let document = json!({ "domains": { "default": { "clients": (0..count).map(client).collect::<Vec<_>>() } } });
    let mut compare = Comparison::new([None, Some(snapshot(&document))], 1_000).expect("few limits");
    for number in 0..count {
        for time in 0..=number {
            let value = format!("c{number}");
            let who = [Identity::new("user", &value).expect("valid")];
            compare.decide(START + time, &Request::new(&who).expect("valid"));
        }
    }
    let summary = compare.finish(|kind, value, _| format!("{kind}:{value}")).summary;
    assert_eq!((summary.limits.len(), summary.limits_left_out), (CLIENT_LIMITS_MAX, 30));
    assert_eq!(summary.limits[0].limit_id, format!("default/client:user:c{}/own", count - 1));
    let last = &summary.limits[CLIENT_LIMITS_MAX - 1];
    assert_eq!(last.b.as_ref().map(|it| (it.checked, it.denied)), Some((31, 30)));
}

#[test]
fn a_page_of_timelines_has_a_bound() {
    let mut compare = Comparison::new([None, None], 1_000).expect("few limits");
    for number in 0..120_000_u64 {
        let value = (number % 10).to_string();
        let who = [Identity::new("user", &value).expect("valid")];
        compare.decide(START + number * SECOND_NS / 10, &Request::new(&who).expect("valid"));
    }
    let outcome = compare.finish(|kind, value, _| format!("{kind}:{value}"));
    let of = |bucket_ms, from| outcome.timeline(DecisionFilter::All, ClientOrder::Key, false, from, 500, bucket_ms).0;
    // 12,000 buckets each, of which the next page has the rest.
    assert_eq!((of(100, 0).len(), of(100, 4).len(), of(100, 9).len()), (4, 4, 1));
    assert_eq!((outcome.bucket_ms(), of(outcome.bucket_ms(), 0).len()), (60_000, 10));
    assert_eq!(of(60_000, 0)[0].buckets.len(), 200);
}

#[test]
fn identities_outside_the_sample_do_not_use_its_room() {
    let mut compare =
        Comparison::new([None, None], 1_000).expect("few limits").of_sample(Box::new(|kind, _| kind == "user"));
    for number in 0..100_010_u64 {
        let (ip, user) = (format!("a{number}"), format!("u{}", number % 99_999));
        let who = [Identity::new("host", &ip).expect("valid"), Identity::new("user", &user).expect("valid")];
        compare.decide(START + number, &Request::new(&who).expect("valid"));
    }
    let kept = compare.finish(|kind, value, _| format!("{kind}:{value}")).summary.kept;
    assert_eq!((kept.clients, kept.clients_left_out), (99_999, 0));
}

/// The first denial is reported for every client, also if there is no room for its name.
#[test]
fn the_first_denial_is_of_all_requests() {
    let limits = json!([{ "id": "l", "algorithm": "token_bucket", "limit": 1, "period": "1h" }]);
    let mut compare = Comparison::new([None, Some(snapshot(&tier_policy(&limits)))], 1 << 20).expect("few limits");
    let visits = (0..100_001_u64).chain([100_000, 5]);
    for (time, number) in visits.enumerate() {
        let value = number.to_string();
        let who = [Identity::new("user", &value).expect("valid")];
        compare.decide(START + time as u64, &Request::new(&who).expect("valid"));
    }
    let side = compare.finish(|kind, value, _| format!("{kind}:{value}")).summary.b.expect("a policy");
    assert_eq!((side.denied, side.clients_denied), (2, 1));
    assert_eq!(side.first_denial.map(|first| (first.at, first.key)), Some((Utc(START + 100_001), None)));
}

/// A decision has the use of the deciding limit before and after; they are equal after a denial.
#[test]
fn a_decision_tells_what_was_used_before_and_after() {
    let limit = |id: &str, limit: u64| json!({ "id": id, "algorithm": "token_bucket", "limit": limit, "period": "1h" });
    // The rule takes three at a time, and of nine; by the fourth time three of ten are left.
    let document = |most: u64| {
        json!({ "domains": { "default": {
            "defaults": { "ip": "t" }, "tiers": [{ "id": "t", "limits": [limit("loose", 100), limit("tight", most)] }],
            "rules": [{ "id": "r", "endpoint": "*", "per": "ip", "cost": 3, "limits": [limit("l", 10)] }],
        } } })
    };
    let visits: Vec<_> = (0..5).map(|number| (number, 1, None, 0)).collect();
    let outcome = compare(Some(&document(2)), Some(&document(50)), &visits);
    let rows = outcome.decisions(None, DecisionFilter::All, None, None, 10).items;
    let told = |side: fn(&DecisionRow) -> &Option<DecisionDetails>| {
        let told = rows.iter().map(|row| {
            let by = side(row).clone().expect("a policy");
            let numbers = [by.limit, by.used_before, by.used].map(|number| number.expect("a limit"));
            (by.allowed, by.limit_id.expect("a limit").rsplit('/').next().expect("a name").to_owned(), numbers)
        });
        told.collect::<Vec<_>>()
    };
    let of = |allowed: bool, id: &str, numbers: [u64; 3]| (allowed, id.to_owned(), numbers);
    assert_eq!(
        told(|row| &row.a),
        [
            of(true, "tight", [2, 0, 1]),
            of(true, "tight", [2, 1, 2]),
            of(false, "tight", [2, 2, 2]),
            of(false, "tight", [2, 2, 2]),
            of(false, "tight", [2, 2, 2]),
        ]
    );
    assert_eq!(
        told(|row| &row.b),
        [
            of(true, "l", [10, 0, 3]),
            of(true, "l", [10, 3, 6]),
            of(true, "l", [10, 6, 9]),
            of(false, "l", [10, 9, 9]),
            of(false, "l", [10, 9, 9]),
        ]
    );
}

/// Stored runs of earlier versions lack these numbers.
#[test]
fn what_earlier_versions_kept_can_be_read() {
    let visits: Vec<_> = (0..3).map(|number| (number, 1, None, 0)).collect();
    let mut kept = serde_json::to_value(compare(None, Some(&policy(9, 1, 9, 9)), &visits)).expect("JSON");
    for row in kept["decisions"]["all"].as_array_mut().expect("a list") {
        for side in row["sides"].as_array_mut().expect("two") {
            let side = side.as_object_mut().expect("an object");
            assert!(side.remove("most").is_some() && side.remove("used_before").is_some());
        }
    }
    assert!(kept["summary"].as_object_mut().expect("an object").remove("clients").is_some());
    let outcome: ComparisonResult = serde_json::from_value(kept).expect("it can be read");
    assert_eq!(outcome.summary.clients, None, "they counted nobody so");
    let by = outcome.decisions(None, DecisionFilter::All, None, None, 1).items.remove(0).b.expect("a policy");
    assert_eq!((by.limit, by.used_before, by.used, by.remaining), (None, None, None, Some(0)));
}

#[test]
fn without_a_policy_everything_is_allowed() {
    let visits: Vec<_> = (0..10).map(|number| (number, 1, None, 0)).collect();
    let outcome = compare(None, Some(&policy(9, 3, 9, 9)), &visits);
    assert_eq!(outcome.summary.a, None);
    assert_eq!((outcome.summary.newly_denied.requests, outcome.summary.newly_denied.clients), (7, 1));
    assert_eq!(outcome.summary.top[0].key, "ip:192.0.2.1");
    let decision = outcome.decisions(None, DecisionFilter::Changed, None, None, 1).items.remove(0);
    assert_eq!((decision.a, decision.b.map(|it| it.allowed)), (None, Some(false)));
}

/// A client loses also if both policies deny some of its requests.
#[test]
fn a_client_that_is_denied_more_loses() {
    let visits: Vec<_> = (0..10).map(|number| (number, 1, None, 0)).collect();
    for (a, b, expected) in [(5, 3, (0, 1)), (3, 5, (1, 0)), (3, 3, (0, 0))] {
        let [a, b] = [a, b].map(|ip| policy(9, ip, 9, 9));
        let summary = compare(Some(&a), Some(&b), &visits).summary;
        let clients = summary.clients.expect("they are counted");
        assert_eq!((clients.gaining, clients.losing), expected);
        assert_eq!((summary.newly_denied.clients, summary.newly_allowed.clients), (0, 0), "denied under both");
    }
}

#[test]
fn limits_that_nodes_share_are_counted_in_one_place() {
    let mut document = policy(9, 4, 9, 9);
    document["domains"]["default"]["tiers"][1]["limits"][0]["sharing"] = json!("strict");
    let visits: Vec<_> = (0..10).map(|number| (number, 1, None, 0)).collect();
    let alone = compare(None, Some(&document), &visits).summary.newly_denied.requests;
    let mut policy: Policy = serde_json::from_value(document).expect("a policy");
    let snapshot = as_one_node(&policy).expect("a right policy");
    let mut compare = Comparison::new([None, Some(snapshot)], 1_000).expect("few limits");
    for visit in visits {
        with_visit(visit, |now, request| compare.decide(now, request));
    }
    let together = compare.finish(|kind, value, _| format!("{kind}:{value}")).summary.newly_denied.requests;
    // A node that counts alone has half of it.
    assert_eq!((alone, together), (8, 6));
    // What is wrong with sharing is wrong here too.
    let limit = &mut policy.domains.get_mut("default").expect("it is there").tiers[1].limits[0];
    (limit.algorithm, limit.sharing) = (Algorithm::SlidingWindowLog, Sharing::Synced);
    let problems = as_one_node(&policy).expect_err("a log is not shared").to_string();
    assert!(problems.contains("a log cannot be shared"), "{problems}");
}

#[test]
fn what_does_not_fit_is_left_out_of_lists_and_told() {
    let limit = Snapshot::parse(
        r#"
        [domains.default]
        defaults = { user = "t" }
        [[domains.default.tiers]]
        id = "t"
        limits = [{ id = "l", algorithm = "token_bucket", limit = 1, period = "1d" }]
        "#,
        Format::Toml,
    )
    .expect("a policy");
    let room = room_for(110_000, [None, Some(&limit)]);
    let mut compare = Comparison::new([None, Some(limit)], room).expect("few limits");
    // 110,000 clients send two requests each, a second apart, over four days.
    for round in 0..2 {
        for number in 0..110_000_u64 {
            let value = number.to_string();
            let who = [Identity::new("user", &value).expect("valid")];
            let now = START + (round * 110_000 + number) * SECOND_NS * 3 / 2;
            compare.decide(now, &Request::new(&who).expect("valid"));
        }
    }
    let outcome = compare.finish(|kind, value, _| format!("{kind}:{value}"));
    let summary = &outcome.summary;
    assert_eq!((summary.requests, summary.charges_without_room), (220_000, 0));
    // All of them count.
    let denied = summary.b.as_ref().expect("a policy").denied;
    assert_eq!((summary.kept.clients, summary.kept.clients_left_out), (100_000, 20_000));
    assert_eq!((summary.kept.changed.kept, summary.kept.changed.of), (denied.min(50_000), denied));
    assert_eq!((summary.kept.allowed.kept, summary.kept.allowed.of), (25_000, 220_000 - denied));
    assert!(summary.timeline.len() <= 1_000, "{} buckets", summary.timeline.len());
    assert_eq!(summary.timeline.iter().map(|it| it.requests).sum::<u64>(), 220_000);
    let (rows, all) =
        outcome.timeline(DecisionFilter::All, ClientOrder::Requests, true, 99_999, 10, summary.kept.bucket_ms);
    assert_eq!((rows.len(), all, rows[0].client.requests), (1, 100_000, 2));
    // By default, a client has a few hundred buckets; a page has a bound in any case.
    let whole = (summary.to.expect("it is there").0 - summary.from.expect("it is there").0) / 1_000_000;
    assert!((30..300).contains(&(whole / outcome.bucket_ms())), "{}", outcome.bucket_ms());
}
