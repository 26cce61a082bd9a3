//! Two policies over the same traffic: held to a slow loop over the engine that is written another way.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate::{
    Engine, Identity, Request, Retry, Snapshot,
    clock::ManualClock,
    formats::Format,
    policy::{Algorithm, Policy, Sharing},
    time::{Nanos, SECOND_NS},
};
use tidegate_replay::{
    Utc,
    compare::{
        CLIENT_LIMITS_MAX, Compare, DecidedBy, DecisionRow, LimitFigures, Outcome, Sort, Which, as_one_node, room_for,
    },
    preview::{PREVIEW_BUCKETS, PREVIEW_REQUESTS_MAX, PreviewSide, preview},
    traffic::{Made, RecordedTraffic, Row, Traffic, record},
};

/// The beginning of a day in 2026.
const START: Nanos = 1_790_035_200 * SECOND_NS;

fn snapshot(policy: &Value) -> Snapshot {
    let policy: Policy = serde_json::from_value(policy.clone()).expect("a policy");
    Snapshot::compile(&policy).expect("a right policy")
}

fn made(rows: Value) -> Made {
    let rows: Vec<Row> = serde_json::from_value(rows).expect("rows");
    Made::new(rows, "default").expect("right rows")
}

/// Any limits that a person might write.
fn limits() -> impl Strategy<Value = Value> {
    let algorithm = prop::sample::select(vec![
        "token_bucket",
        "leaky_bucket",
        "fixed_window",
        "sliding_window_counter",
        "sliding_window_log",
    ]);
    let period = prop::sample::select(vec!["250ms", "1s", "7s", "1m", "1h", "day"]);
    let limit = (algorithm, 0..60_u64, period, prop::option::of(1..80_u64), any::<bool>());
    prop::collection::vec(limit, 1..5).prop_map(|limits| {
        let limit =
            |(number, (algorithm, limit, period, burst, shadow)): (usize, (&str, u64, &str, Option<u64>, bool))| {
                // Windows count in whole seconds, and of the calendar only fixed ones.
                let period = match period {
                    "250ms" if algorithm.contains("window") => "1s",
                    "day" if algorithm != "fixed_window" => "1h",
                    period => period,
                };
                let mut value =
                    json!({ "id": format!("l{number}"), "algorithm": algorithm, "limit": limit, "period": period });
                if let Some(burst) = burst.filter(|_| algorithm.ends_with("bucket") && limit > 0) {
                    value["burst"] = json!(burst);
                }
                if shadow && number % 3 == 1 {
                    value["mode"] = json!("shadow");
                }
                value
            };
        limits.into_iter().enumerate().map(limit).collect()
    })
}

fn pattern() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!("steady")),
        Just(json!("poisson")),
        (0..100_u64).prop_map(|requests| json!({ "burst": { "requests": requests } })),
        (0..60_u64).prop_map(|to| json!({ "ramp": { "to": to } })),
        Just(json!({ "on_off": { "on": "700ms", "off": "3s" } })),
        Just(json!({ "waves": { "period": "4s" } })),
        (1..6_u8).prop_map(|tries| json!({ "retry": { "back_off": "300ms", "tries": tries } })),
    ]
}

/// A row of one client, with its length in seconds.
fn row() -> impl Strategy<Value = Value> {
    (pattern(), 1..40_u64, 1..10_u64, 1..4_u64).prop_map(|(pattern, rate, seconds, cost)| {
        json!({ "pattern": pattern, "rate": rate, "for": format!("{seconds}s"), "cost": cost })
    })
}

fn tier_policy(limits: &Value) -> Value {
    json!({ "domains": { "default": {
        "defaults": { "user": "t", "ip": "t" }, "tiers": [{ "id": "t", "limits": limits }],
    } } })
}

/// When requests come that nobody answers: what is tried again comes beside.
fn regular(row: &Value, seed: u64) -> Vec<Nanos> {
    let mut times = Vec::new();
    let mut traffic = made(json!([row])).traffic(START, seed);
    while traffic
        .step(&mut |now, _| {
            times.push(now);
            Retry::Now
        })
        .expect("nothing is read")
    {}
    times
}

/// The engine, asked one request after the other, with the plainest arithmetic.
fn slow_loop(limits: [&Value; 2], row: &Value, seed: u64) -> (u64, [PreviewSide; 2]) {
    let engines = limits.map(|limits| {
        let clock = ManualClock::at(START);
        let engine = Engine::for_simulation(100, clock.clone(), 99);
        engine.publish(snapshot(&tier_policy(limits))).expect("few limits");
        (engine, clock)
    });
    let seconds: u64 = row["for"].as_str().expect("text").trim_end_matches('s').parse().expect("a number");
    let bucket_ms = (seconds * 1_000).div_ceil(PREVIEW_BUCKETS as u64);
    let mut sides = [(); 2].map(|()| PreviewSide {
        allowed: 0,
        denied: 0,
        first_denied_ms: None,
        longest_wait_ms: Some(0),
        longest_delay_ms: 0,
        buckets: vec![[0, 0]; (seconds * 1_000).div_ceil(bucket_ms) as usize],
    });
    // When, and how often it was tried before; the next one at the end.
    let mut waiting: Vec<(Nanos, u32)> = regular(row, seed).into_iter().map(|at| (at, 0)).rev().collect();
    let mut requests = 0;
    while let Some((now, tries)) = waiting.pop() {
        requests += 1;
        let who = [Identity::new("user", "anybody").expect("valid")];
        let request =
            Request::new(&who).and_then(|it| it.cost(row["cost"].as_u64().expect("a number"))).expect("valid");
        for (side, (engine, clock)) in engines.iter().enumerate() {
            clock.set(now);
            let decision = engine.check(&request);
            let (found, after_ms) = (&mut sides[side], (now - START) / 1_000_000);
            found.longest_delay_ms = found.longest_delay_ms.max(decision.delay().as_nanos().div_ceil(1_000_000) as u64);
            found.buckets[(after_ms / bucket_ms) as usize][usize::from(!decision.is_allowed())] += 1;
            if decision.is_allowed() {
                found.allowed += 1;
                continue;
            }
            found.denied += 1;
            found.first_denied_ms = found.first_denied_ms.or(Some(after_ms));
            found.longest_wait_ms = match (found.longest_wait_ms, decision.retry()) {
                (Some(longest), Retry::After(wait)) => Some(longest.max(wait.as_nanos().div_ceil(1_000_000) as u64)),
                _ => None,
            };
            let retry = &row["pattern"]["retry"];
            if side == 1 && u64::from(tries) < retry["tries"].as_u64().unwrap_or(0) {
                let again = now + 300_000_000 * 2_u64.pow(tries);
                if again < START + seconds * SECOND_NS {
                    let again = (again, tries + 1);
                    waiting.insert(waiting.partition_point(|it| *it > again), again);
                }
            }
        }
    }
    (requests, sides)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// What the editor shows is what the engine does.
    #[test]
    fn a_preview_tells_what_the_engine_decides(a in limits(), b in limits(), row in row(), seed in any::<u64>()) {
        let seconds: u64 = row["for"].as_str().expect("text").trim_end_matches('s').parse().expect("a number");
        let policies = [&a, &b].map(|limits| Some(snapshot(&tier_policy(limits))));
        let traffic = made(json!([row])).traffic(START, seed);
        let found = preview(policies, traffic, START, seconds * SECOND_NS).expect("few limits");
        let again = [&a, &b].map(|limits| Some(snapshot(&tier_policy(limits))));
        let again = preview(again, made(json!([row])).traffic(START, seed), START, seconds * SECOND_NS).expect("few limits");
        let bytes = [&found, &again].map(|found| serde_json::to_vec(found).expect("JSON"));
        prop_assert!(bytes[0] == bytes[1], "the same question has the same answer");
        let (requests, [published, draft]) = slow_loop([&a, &b], &row, seed);
        prop_assert_eq!((found.requests, found.cut_at_ms), (requests, None));
        prop_assert_eq!((found.published, found.draft), (Some(published), Some(draft)));
    }
}

#[test]
fn a_preview_of_too_much_is_cut_and_says_where() {
    let limits = json!([{ "id": "l", "algorithm": "token_bucket", "limit": 1, "period": "1s" }]);
    let traffic = made(json!([{ "rate": 1_000, "for": "1m" }])).traffic(START, 1);
    let found = preview([None, Some(snapshot(&tier_policy(&limits)))], traffic, START, 60 * SECOND_NS).expect("few");
    assert_eq!((found.requests, found.cut_at_ms), (PREVIEW_REQUESTS_MAX, Some(20_000)));
    assert_eq!(found.published, None);
    let draft = found.draft.expect("it is there");
    assert_eq!((draft.allowed, draft.allowed + draft.denied), (20, PREVIEW_REQUESTS_MAX));
}

/// When, who came, what both said, and by which limits.
type Decided = (Nanos, Vec<String>, [bool; 2], [Option<String>; 2]);

/// Traffic of a few clients, each with one or two identities, at random times.
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

fn compare(a: Option<&Value>, b: Option<&Value>, visits: &[(u64, u8, Option<u8>, u8)]) -> Outcome {
    let mut compare = Compare::new([a.map(snapshot), b.map(snapshot)], 1_000).expect("few limits");
    for visit in visits {
        with_visit(*visit, |now, request| compare.ask(now, request));
    }
    compare.finish(|kind, value, _| format!("{kind}:{value}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Totals, clients, limits, buckets and single decisions, counted another way.
    #[test]
    fn a_comparison_tells_what_both_engines_decide(
        visits in visits(), a in (1..9_u64, 1..9_u64, 1..5_u64, 1..9_u64), b in (1..9_u64, 1..9_u64, 1..5_u64, 1..9_u64),
    ) {
        let documents = [a, b].map(|(user, ip, pair, all)| policy(user, ip, pair, all));
        let outcome = compare(Some(&documents[0]), Some(&documents[1]), &visits);
        let engines = documents.map(|document| {
            let clock = ManualClock::at(START);
            let engine = Engine::for_simulation(1_000, clock.clone(), 5);
            engine.publish(snapshot(&document)).expect("few limits");
            (engine, clock)
        });
        let mut made: Vec<Decided> = Vec::new();
        for visit in &visits {
            with_visit(*visit, |now, request| {
                let said = engines.each_ref().map(|(engine, clock)| {
                    clock.set(now);
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
        // Whom B denies more, and whom less.
        let mut more: BTreeMap<&String, i64> = BTreeMap::new();
        for (_, who, is_allowed, _) in &made {
            for key in who {
                *more.entry(key).or_default() += i64::from(is_allowed[0]) - i64::from(is_allowed[1]);
            }
        }
        let clients = summary.clients.expect("they are counted");
        let [gaining, losing] = [-1, 1].map(|way| more.values().filter(|more| more.signum() == way).count() as u64);
        prop_assert_eq!((clients.gaining, clients.losing), (gaining, losing));
        // Each client, over time in seconds.
        let (rows, _) = outcome.timeline(Which::All, Sort::Key, false, 0, 100, 1_000);
        let mut expected: BTreeMap<&str, BTreeMap<u64, [u64; 3]>> = BTreeMap::new();
        for (now, who, is_allowed, _) in &made {
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
        // Single decisions, page by page.
        for which in [Which::All, Which::Denied, Which::Changed, Which::NewlyDenied, Which::NewlyAllowed] {
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
                Which::All => true,
                Which::Denied => it != [true, true],
                Which::Changed => it[0] != it[1],
                Which::NewlyDenied => it == [true, false],
                Which::NewlyAllowed => it == [false, true],
            };
            let expected: Vec<_> =
                made.iter().filter(|it| it.1.contains(&"user:u1".to_owned()) && is(it.2)).cloned().collect();
            prop_assert_eq!(told, expected);
        }
    }

    /// The same again is the same bytes, and what was written down is read back as it was.
    #[test]
    fn the_same_comparison_gives_the_same_bytes(visits in visits()) {
        let documents = [policy(3, 4, 2, 9), policy(2, 5, 3, 4)];
        let once = || serde_json::to_string(&compare(Some(&documents[0]), Some(&documents[1]), &visits)).expect("JSON");
        let bytes = once();
        prop_assert_eq!(&bytes, &once());
        let back: Outcome = serde_json::from_str(&bytes).expect("an outcome");
        prop_assert_eq!(serde_json::to_string(&back).expect("JSON"), bytes);
    }

    /// Of a sample, what is said about whom it holds is what would be said if all were there, as long as each request
    /// depends on those alone.
    #[test]
    fn a_sample_is_right_about_those_in_it(visits in visits(), sampled in 0..6_u8) {
        let documents = [policy(1_000, 4, 1_000, 1_000), policy(1_000, 2, 1_000, 1_000)];
        let is_sampled = move |kind: &str, value: &str| kind == "ip" && value == format!("192.0.2.{sampled}");
        let records = visits.iter().filter(|visit| visit.1 == sampled).map(|visit| {
            with_visit(*visit, |now, request| std::sync::Arc::from(&*record(now, &request.parts()).expect("short")))
        });
        let mut sample = Compare::new(documents.each_ref().map(|it| Some(snapshot(it))), 1_000)
            .expect("few limits")
            .of_sample(Box::new(is_sampled));
        let mut traffic = RecordedTraffic::new(records.collect());
        while traffic.step(&mut |now, request| sample.ask(now, request)).expect("memory") {}
        let sample = sample.finish(|kind, value, _| format!("{kind}:{value}"));
        let whole = compare(Some(&documents[0]), Some(&documents[1]), &visits);
        let rows = |outcome: &Outcome| {
            let (rows, _) = outcome.timeline(Which::All, Sort::Key, false, 0, 100, 1_000);
            let own = format!("ip:192.0.2.{sampled}");
            rows.into_iter().filter(|row| row.client.key == own).collect::<Vec<_>>()
        };
        prop_assert_eq!(rows(&sample), rows(&whole));
        prop_assert!(sample.summary.kept.clients <= 1, "others are listed");
        // What is judged is what was met with somebody of the sample; of the rest it is said why not. A denial by another
        // limit may keep one from being met.
        let own = || visits.iter().filter(|visit| visit.1 == sampled);
        let (met, user, pair, all) = (
            own().next().is_some(),
            own().any(|visit| visit.2.is_some()),
            own().any(|visit| visit.2.is_some() && visit.3 == 1),
            own().any(|visit| visit.3 == 2),
        );
        let never = "no request that was kept met it";
        for (id, reason) in [
            ("default/tier:ip/l", if met { None } else { Some(never) }),
            ("default/tier:user/l", Some(if user { "it counts user, and nobody" } else { never })),
            ("default/rule:pair/l", if pair { None } else { Some(never) }),
            ("default/rule:all/l", Some(if all { "everyone" } else { never })),
        ] {
            for told in figures(&sample, id) {
                let reason = if told.checked + told.not_sampled == 0 { Some(never) } else { reason };
                prop_assert_eq!(told.sampled, reason.is_none(), "{}: {:?}", id, told);
                let is_said = reason.is_none_or(|reason| told.reason.as_deref().is_some_and(|why| why.contains(reason)));
                prop_assert!(is_said && told.sampled == told.reason.is_none(), "{}: {:?}", id, told);
                prop_assert!(!id.contains("ip") || told.sampled == met, "{}: {:?}", id, told);
            }
        }
    }
}

/// What a limit did under both policies.
fn figures(outcome: &Outcome, limit_id: &str) -> [LimitFigures; 2] {
    let row = outcome.summary.limits.iter().find(|it| it.limit_id == limit_id).expect("it is there").clone();
    [row.a, row.b].map(|side| side.expect("both have it"))
}

/// Each policy is judged for itself: under one of them a limit was met that the other's kept from being looked at.
#[test]
fn a_limit_may_be_judged_under_one_policy_alone() {
    let documents = [policy(1_000, 1_000, 1_000, 1_000), policy(1_000, 0, 1_000, 1_000)];
    let visits: Vec<_> = (0..10).map(|number| (number, 1, Some(1), 1)).collect();
    let mut sample = Compare::new(documents.each_ref().map(|it| Some(snapshot(it))), 1_000)
        .expect("few limits")
        .of_sample(Box::new(|kind, _| kind == "user"));
    for visit in visits {
        with_visit(visit, |now, request| sample.ask(now, request));
    }
    let sample = sample.finish(|kind, value, _| format!("{kind}:{value}"));
    let [a, b] = figures(&sample, "default/tier:user/l");
    assert!(a.sampled && a.checked == 10 && a.reason.is_none(), "{a:?}");
    assert!(!b.sampled && b.reason.as_deref() == Some("no request that was kept met it"), "{b:?}");
}

/// Where a limit that the sample cannot judge denied in truth, nobody is there to make it deny: requests reach the limits
/// after it, which then deny more than they would.
#[test]
fn limits_of_a_sample_deny_too_much_where_others_denied_in_truth() {
    let documents = [policy(1_000, 1_000, 1_000, 1_000), policy(5, 1_000, 1_000, 6)];
    // Six users in turn, of whom one is in the sample; all share six requests in ten seconds.
    let visits: Vec<_> = (0..60).map(|number| (number, (number % 6) as u8, Some((number % 6 % 4) as u8), 2)).collect();
    let whole = compare(Some(&documents[0]), Some(&documents[1]), &visits);
    let mut sample = Compare::new(documents.each_ref().map(|it| Some(snapshot(it))), 1_000)
        .expect("few limits")
        .of_sample(Box::new(|kind, value| kind == "user" && value == "u3"));
    for visit in visits.iter().filter(|visit| visit.2 == Some(3)) {
        with_visit(*visit, |now, request| sample.ask(now, request));
    }
    let sample = sample.finish(|kind, value, _| format!("{kind}:{value}"));
    let denied = |outcome: &Outcome| figures(outcome, "default/tier:user/l")[1].denied;
    let own = |outcome: &Outcome| {
        let rows = outcome.timeline(Which::All, Sort::Key, false, 0, 10, 60_000).0;
        rows.into_iter().find(|row| row.client.key == "user:u3").map(|row| row.client.denied_b)
    };
    assert_eq!((denied(&whole), denied(&sample)), (0, 5));
    // The client is denied less all the same.
    assert_eq!((own(&whole), own(&sample)), (Some(9), Some(5)));
}

/// What a shadow would have refused is counted by whoever looks, so of a sample too, and of a single client's own limit.
#[test]
fn shadows_are_counted_where_they_are_complete() {
    let limit = |id: &str, limit: u64| json!([{ "id": id, "algorithm": "token_bucket", "limit": limit, "period": "10s", "mode": "shadow" }]);
    let document = json!({ "domains": { "default": {
        "defaults": { "user": "user", "ip": "ip" },
        "tiers": [{ "id": "user", "limits": limit("l", 4) }, { "id": "ip", "limits": limit("l", 3) }],
        "clients": [{ "kind": "user", "value": "u2", "override": { "limits": limit("own", 1) } }],
    } } });
    let visits: Vec<_> = (0..20).map(|number| (number, (number % 2) as u8, Some(1 + (number / 10) as u8), 0)).collect();
    let told = |sample: Option<&'static str>| {
        let mut compare = Compare::new([None, Some(snapshot(&document))], 1_000).expect("few limits");
        if let Some(sample) = sample {
            compare = compare.of_sample(Box::new(move |kind, value| format!("{kind}:{value}") == sample));
        }
        for visit in &visits {
            with_visit(*visit, |now, request| compare.ask(now, request));
        }
        let outcome = compare.finish(|kind, value, _| format!("{kind}:{value}"));
        let rows = outcome.summary.limits.iter();
        rows.map(|row| (row.limit_id.clone(), row.b.as_ref().expect("B has it").shadow_denied))
            .collect::<BTreeMap<_, _>>()
    };
    let of = |user: u64, ip: u64, own: u64| {
        [("default/tier:user/l", user), ("default/tier:ip/l", ip), ("default/client:user:u2/own", own)]
            .map(|(name, denied)| (name.to_owned(), denied))
            .into()
    };
    assert_eq!(told(None), of(12, 14, 9));
    assert_eq!(told(Some("ip:192.0.2.1")), of(0, 7, 0));
    assert_eq!(told(Some("user:u2")), of(6, 0, 9));
}

/// Whoever shows clients otherwise shows their limits so, in every answer and in what is written down.
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
    let mut compare = Compare::new(policies(), 1_000).expect("few limits");
    for number in 0..5 {
        with_visit((number, 1, Some(1), 0), |now, request| compare.ask(now, request));
    }
    let outcome = compare.finish(|kind, _, number| format!("{kind}:hidden{number}"));
    let limits: Vec<_> = outcome.summary.limits.iter().map(|limit| limit.limit_id.as_str()).collect();
    assert_eq!(limits, ["default/tier:t/l", "default/client:user:hidden1/own"][1..]);
    let decision = outcome.decisions(None, Which::Denied, None, None, 1).items.remove(0);
    assert_eq!(decision.a.and_then(|it| it.limit_id).as_deref(), Some("default/client:user:hidden1/own"));
    assert_eq!(decision.identities, ["ip:hidden0", "user:hidden1"]);
    let bytes = serde_json::to_string(&outcome).expect("JSON");
    assert!(!bytes.contains("u1/") && !bytes.contains("nobody"), "{bytes}");
}

/// There may be a hundred thousand overrides.
#[test]
fn of_single_clients_limits_those_that_deny_most_are_listed() {
    let client = |number: u64| {
        json!({ "kind": "user", "value": format!("c{number}"), "override": { "limits": [
            { "id": "own", "algorithm": "token_bucket", "limit": 1, "period": "1h" },
        ] } })
    };
    let count = CLIENT_LIMITS_MAX as u64 + 30;
    let document = json!({ "domains": { "default": { "clients": (0..count).map(client).collect::<Vec<_>>() } } });
    let mut compare = Compare::new([None, Some(snapshot(&document))], 1_000).expect("few limits");
    for number in 0..count {
        for time in 0..=number {
            let value = format!("c{number}");
            let who = [Identity::new("user", &value).expect("valid")];
            compare.ask(START + time, &Request::new(&who).expect("valid"));
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
    let mut compare = Compare::new([None, None], 1_000).expect("few limits");
    for number in 0..120_000_u64 {
        let value = (number % 10).to_string();
        let who = [Identity::new("user", &value).expect("valid")];
        compare.ask(START + number * SECOND_NS / 10, &Request::new(&who).expect("valid"));
    }
    let outcome = compare.finish(|kind, value, _| format!("{kind}:{value}"));
    let of = |bucket_ms, from| outcome.timeline(Which::All, Sort::Key, false, from, 500, bucket_ms).0;
    // 12,000 buckets each, of which the next page has the rest.
    assert_eq!((of(100, 0).len(), of(100, 4).len(), of(100, 9).len()), (4, 4, 1));
    assert_eq!((outcome.bucket_ms(), of(outcome.bucket_ms(), 0).len()), (60_000, 10));
    assert_eq!(of(60_000, 0)[0].buckets.len(), 200);
}

#[test]
fn who_came_with_the_sample_does_not_take_its_room() {
    let mut compare =
        Compare::new([None, None], 1_000).expect("few limits").of_sample(Box::new(|kind, _| kind == "user"));
    for number in 0..100_010_u64 {
        let (ip, user) = (format!("a{number}"), format!("u{}", number % 99_999));
        let who = [Identity::new("host", &ip).expect("valid"), Identity::new("user", &user).expect("valid")];
        compare.ask(START + number, &Request::new(&who).expect("valid"));
    }
    let kept = compare.finish(|kind, value, _| format!("{kind}:{value}")).summary.kept;
    assert_eq!((kept.clients, kept.clients_left_out), (99_999, 0));
}

/// The first denial is told whoever it met, also where there is no room for his name.
#[test]
fn the_first_denial_is_of_all_requests() {
    let limits = json!([{ "id": "l", "algorithm": "token_bucket", "limit": 1, "period": "1h" }]);
    let mut compare = Compare::new([None, Some(snapshot(&tier_policy(&limits)))], 1 << 20).expect("few limits");
    let visits = (0..100_001_u64).chain([100_000, 5]);
    for (time, number) in visits.enumerate() {
        let value = number.to_string();
        let who = [Identity::new("user", &value).expect("valid")];
        compare.ask(START + time as u64, &Request::new(&who).expect("valid"));
    }
    let side = compare.finish(|kind, value, _| format!("{kind}:{value}")).summary.b.expect("a policy");
    assert_eq!((side.denied, side.clients_denied), (2, 1));
    assert_eq!(side.first_denial.map(|first| (first.at, first.key)), Some((Utc(START + 100_001), None)));
}

/// What was used before and after, of the limit that decided; it stays where something was denied.
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
    let rows = outcome.decisions(None, Which::All, None, None, 10).items;
    let told = |side: fn(&DecisionRow) -> &Option<DecidedBy>| {
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

/// What is kept of a run by an earlier version has no such numbers.
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
    let outcome: Outcome = serde_json::from_value(kept).expect("it can be read");
    assert_eq!(outcome.summary.clients, None, "they counted nobody so");
    let by = outcome.decisions(None, Which::All, None, None, 1).items.remove(0).b.expect("a policy");
    assert_eq!((by.limit, by.used_before, by.used, by.remaining), (None, None, None, Some(0)));
}

#[test]
fn without_a_policy_everything_is_allowed() {
    let visits: Vec<_> = (0..10).map(|number| (number, 1, None, 0)).collect();
    let outcome = compare(None, Some(&policy(9, 3, 9, 9)), &visits);
    assert_eq!(outcome.summary.a, None);
    assert_eq!((outcome.summary.newly_denied.requests, outcome.summary.newly_denied.clients), (7, 1));
    assert_eq!(outcome.summary.top[0].key, "ip:192.0.2.1");
    let decision = outcome.decisions(None, Which::Changed, None, None, 1).items.remove(0);
    assert_eq!((decision.a, decision.b.map(|it| it.allowed)), (None, Some(false)));
}

/// Also who was denied before, and is under both.
#[test]
fn whoever_is_denied_more_loses() {
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
    let mut compare = Compare::new([None, Some(snapshot)], 1_000).expect("few limits");
    for visit in visits {
        with_visit(visit, |now, request| compare.ask(now, request));
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
    let mut compare = Compare::new([None, Some(limit)], room).expect("few limits");
    // 110,000 clients come twice, a second later each time, over four days.
    for round in 0..2 {
        for number in 0..110_000_u64 {
            let value = number.to_string();
            let who = [Identity::new("user", &value).expect("valid")];
            let now = START + (round * 110_000 + number) * SECOND_NS * 3 / 2;
            compare.ask(now, &Request::new(&who).expect("valid"));
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
    let (rows, all) = outcome.timeline(Which::All, Sort::Requests, true, 99_999, 10, summary.kept.bucket_ms);
    assert_eq!((rows.len(), all, rows[0].client.requests), (1, 100_000, 2));
    // Unless somebody asks for more, a client has a few hundred buckets; a page has not too many either way.
    let whole = (summary.to.expect("it is there").0 - summary.from.expect("it is there").0) / 1_000_000;
    assert!((30..300).contains(&(whole / outcome.bucket_ms())), "{}", outcome.bucket_ms());
}
