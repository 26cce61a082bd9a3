//! Tests of comparisons over a sample of the traffic.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The counts of identities in a sample equal those with all traffic, if each request depends on these identities only.
    #[test]
    fn a_sample_is_right_about_those_in_it(visits in visits(), sampled in 0..6_u8) {
        let documents = [policy(1_000, 4, 1_000, 1_000), policy(1_000, 2, 1_000, 1_000)];
        let is_sampled = move |kind: &str, value: &str| kind == "ip" && value == format!("192.0.2.{sampled}");
        let records = visits.iter().filter(|visit| visit.1 == sampled).map(|visit| {
            with_visit(*visit, |now, request| std::sync::Arc::from(&*encode_request(now, &request.parts()).expect("short")))
        });
        let mut sample = Comparison::new(documents.each_ref().map(|it| Some(snapshot(it))), 1_000)
            .expect("few limits")
            .of_sample(Box::new(is_sampled));
        let mut traffic = RecordedTraffic::new(records.collect());
        while traffic.step(&mut |now, request| sample.decide(now, request)).expect("memory") {}
        let sample = sample.finish(|kind, value, _| format!("{kind}:{value}"));
        let whole = compare(Some(&documents[0]), Some(&documents[1]), &visits);
        let rows = |outcome: &ComparisonResult| {
            let (rows, _) = outcome.timeline(DecisionFilter::All, ClientOrder::Key, false, 0, 100, 1_000);
            let own = format!("ip:192.0.2.{sampled}");
            rows.into_iter().filter(|row| row.client.key == own).collect::<Vec<_>>()
        };
        prop_assert_eq!(rows(&sample), rows(&whole));
        prop_assert!(sample.summary.kept.clients <= 1, "others are listed");
        // A limit has data if it was checked with an identity of the sample; the others have a reason. A denial by another
        // limit may prevent the check.
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

/// Returns the counts of a limit under both policies.
fn figures(outcome: &ComparisonResult, limit_id: &str) -> [LimitResult; 2] {
    let row = outcome.summary.limits.iter().find(|it| it.limit_id == limit_id).expect("it is there").clone();
    [row.a, row.b].map(|side| side.expect("both have it"))
}

/// Counts are separate: a limit that one policy checked may not be checked under the other.
#[test]
fn a_limit_may_be_judged_under_one_policy_alone() {
    let documents = [policy(1_000, 1_000, 1_000, 1_000), policy(1_000, 0, 1_000, 1_000)];
    let visits: Vec<_> = (0..10).map(|number| (number, 1, Some(1), 1)).collect();
    let mut sample = Comparison::new(documents.each_ref().map(|it| Some(snapshot(it))), 1_000)
        .expect("few limits")
        .of_sample(Box::new(|kind, _| kind == "user"));
    for visit in visits {
        with_visit(visit, |now, request| sample.decide(now, request));
    }
    let sample = sample.finish(|kind, value, _| format!("{kind}:{value}"));
    let [a, b] = figures(&sample, "default/tier:user/l");
    assert!(a.sampled && a.checked == 10 && a.reason.is_none(), "{a:?}");
    assert!(!b.sampled && b.reason.as_deref() == Some("no request that was kept met it"), "{b:?}");
}

/// A limit without data in the sample denies less than with all traffic, so more requests reach the limits after it, which
/// deny more.
#[test]
fn limits_of_a_sample_deny_too_much_where_others_denied_in_truth() {
    let documents = [policy(1_000, 1_000, 1_000, 1_000), policy(5, 1_000, 1_000, 6)];
    // Six users in turn, one of them in the sample; all share six requests in ten seconds.
    let visits: Vec<_> = (0..60).map(|number| (number, (number % 6) as u8, Some((number % 6 % 4) as u8), 2)).collect();
    let whole = compare(Some(&documents[0]), Some(&documents[1]), &visits);
    let mut sample = Comparison::new(documents.each_ref().map(|it| Some(snapshot(it))), 1_000)
        .expect("few limits")
        .of_sample(Box::new(|kind, value| kind == "user" && value == "u3"));
    for visit in visits.iter().filter(|visit| visit.2 == Some(3)) {
        with_visit(*visit, |now, request| sample.decide(now, request));
    }
    let sample = sample.finish(|kind, value, _| format!("{kind}:{value}"));
    let denied = |outcome: &ComparisonResult| figures(outcome, "default/tier:user/l")[1].denied;
    let own = |outcome: &ComparisonResult| {
        let rows = outcome.timeline(DecisionFilter::All, ClientOrder::Key, false, 0, 10, 60_000).0;
        rows.into_iter().find(|row| row.client.key == "user:u3").map(|row| row.client.denied_b)
    };
    assert_eq!((denied(&whole), denied(&sample)), (0, 5));
    // The client is denied less all the same.
    assert_eq!((own(&whole), own(&sample)), (Some(9), Some(5)));
}

/// Shadow denials are counted at each check, so also for a sample and for the limit of a client's override.
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
        let mut compare = Comparison::new([None, Some(snapshot(&document))], 1_000).expect("few limits");
        if let Some(sample) = sample {
            compare = compare.of_sample(Box::new(move |kind, value| format!("{kind}:{value}") == sample));
        }
        for visit in &visits {
            with_visit(*visit, |now, request| compare.decide(now, request));
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
