//! Tests of previews against a slow, independent loop over the engine.

use super::*;

/// Returns a strategy for limits that a user might write.
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

/// Returns a strategy for a row of one client, with its length in seconds.
fn row() -> impl Strategy<Value = Value> {
    (pattern(), 1..40_u64, 1..10_u64, 1..4_u64).prop_map(|(pattern, rate, seconds, cost)| {
        json!({ "pattern": pattern, "rate": rate, "for": format!("{seconds}s"), "cost": cost })
    })
}

/// Returns the times of a row's requests, without retries.
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

/// Decides a row's requests one after the other, and counts with the simplest arithmetic.
fn slow_loop(limits: [&Value; 2], row: &Value, seed: u64) -> (u64, [PreviewResult; 2]) {
    let engines = limits.map(|limits| {
        let clock = ManualClock::at(Timestamp::from_nanos(START));
        let engine = Engine::for_simulation(100, clock.clone(), 99);
        engine.publish(snapshot(&tier_policy(limits))).expect("few limits");
        (engine, clock)
    });
    let seconds: u64 = row["for"].as_str().expect("text").trim_end_matches('s').parse().expect("a number");
    let bucket_ms = (seconds * 1_000).div_ceil(PREVIEW_BUCKETS as u64);
    let mut sides = [(); 2].map(|()| PreviewResult {
        allowed: 0,
        denied: 0,
        first_denied_ms: None,
        longest_wait_ms: Some(0),
        longest_delay_ms: 0,
        buckets: vec![[0, 0]; (seconds * 1_000).div_ceil(bucket_ms) as usize],
    });
    // Time and number of earlier tries; the next request is last.
    let mut waiting: Vec<(Nanos, u32)> = regular(row, seed).into_iter().map(|at| (at, 0)).rev().collect();
    let mut requests = 0;
    while let Some((now, tries)) = waiting.pop() {
        requests += 1;
        let who = [Identity::new("user", "anybody").expect("valid")];
        let request =
            Request::new(&who).and_then(|it| it.cost(row["cost"].as_u64().expect("a number"))).expect("valid");
        for (side, (engine, clock)) in engines.iter().enumerate() {
            clock.set(Timestamp::from_nanos(now));
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

    /// The preview has the decisions of the engine.
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
