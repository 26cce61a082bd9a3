//! Charges of requests, and errors that charge nothing.

use super::*;

#[test]
fn all_descriptors_are_charged_or_none() {
    let (decider, _) = decider(POLICY);
    let two = message(vec![descriptor(&[("user", "a")]), descriptor(&[("user", "a"), ("remote_address", "x")])]);
    for left in [2, 1, 0] {
        let response = respond(&decider, &two);
        assert_eq!(codes(&response), (Code::Ok, vec![Code::Ok; 2]));
        assert_eq!(response.statuses[1].limit_remaining, left);
    }
    for _ in 0..3 {
        let response = respond(&decider, &two);
        assert_eq!(codes(&response), (Code::OverLimit, vec![Code::Ok, Code::OverLimit]));
        let left: Vec<_> = response.statuses.iter().map(|status| status.limit_remaining).collect();
        assert_eq!(left, [2, 0], "as it was before");
        assert_eq!(response.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit), Some(5));
    }
}

#[test]
fn hits_come_from_the_descriptor_or_else_the_request_and_zero_hits_charge_nothing() {
    let (decider, _) = decider(POLICY);
    let left = |hits_addend, own: &[Option<u64>]| {
        let each = |hits_addend: &Option<u64>| RateLimitDescriptor {
            hits_addend: *hits_addend,
            ..descriptor(&[("path", "/all")])
        };
        let message = RateLimitRequest { hits_addend, ..message(own.iter().map(each).collect()) };
        let response = respond(&decider, &message);
        let left: Vec<_> = response.statuses.iter().map(|status| status.limit_remaining).collect();
        (response.overall_code(), left)
    };
    assert_eq!(left(0, &[None]), (Code::Ok, vec![6]), "0 is 1");
    assert_eq!(left(2, &[None]), (Code::Ok, vec![4]));
    assert_eq!(left(2, &[Some(1), Some(0)]), (Code::Ok, vec![3, 4]), "a peek sees what was before");
    assert_eq!(left(2, &[Some(0)]), (Code::Ok, vec![3]));
    assert_eq!(left(4, &[None]), (Code::OverLimit, vec![3]));
    assert_eq!(left(2, &[None, None]), (Code::OverLimit, vec![3, 3]), "each would fit, both do not");
    assert_eq!(left(3, &[None]), (Code::Ok, vec![0]));
    assert_eq!(left(9, &[Some(0)]), (Code::OverLimit, vec![0]), "nothing is left");
    assert_eq!(decider.engine().totals().allowed, 4);
}

#[test]
fn the_limit_of_a_descriptor_replaces_that_of_the_policy() {
    let (decider, _) = decider(POLICY);
    let decide_rated = |entries: &[(&str, &str)], requests_per_unit, unit: RateLimitUnit| {
        let limit = Some(RateLimitOverride { requests_per_unit, unit: unit.into(), unit_multiplier: None });
        let response = respond(&decider, &message(vec![RateLimitDescriptor { limit, ..descriptor(entries) }]));
        let status = &response.statuses[0];
        let limit = status.current_limit.clone().expect("there is one");
        assert_eq!((limit.requests_per_unit, &*limit.name), (requests_per_unit, "override"));
        (response.overall_code(), status.limit_remaining, limit.unit())
    };
    let user = [("user", "a")];
    for (left, code) in [(1, Code::Ok), (0, Code::Ok), (0, Code::OverLimit)] {
        assert_eq!(decide_rated(&user, 2, RateLimitUnit::Minute), (code, left, Unit::Minute));
    }
    assert_eq!(limit_of(&decider, &user), Some(("edge/tier:free/minute".to_owned(), 4)), "the policy's is untouched");
    assert_eq!(
        decide_rated(&[("nobody", "x")], 7, RateLimitUnit::Day),
        (Code::Ok, 6, Unit::Day),
        "where the policy has none"
    );
    assert_eq!(decide_rated(&[("nobody", "y")], 0, RateLimitUnit::Second).0, Code::OverLimit, "0 denies");
    for (number, (unit, shown)) in [
        (RateLimitUnit::Second, Unit::Second),
        (RateLimitUnit::Hour, Unit::Hour),
        (RateLimitUnit::Month, Unit::Month),
        (RateLimitUnit::Year, Unit::Year),
    ]
    .into_iter()
    .enumerate()
    {
        let value = number.to_string();
        assert_eq!(decide_rated(&[("unit", &value)], 1_000, unit), (Code::Ok, 999, shown));
    }
}

#[test]
fn the_unit_multiplier_multiplies_the_period() {
    let (decider, _) = decider(POLICY);
    let limit =
        RateLimitOverride { requests_per_unit: 2, unit: RateLimitUnit::Minute.into(), unit_multiplier: Some(3) };
    let two = RateLimitDescriptor { limit: Some(limit), hits_addend: Some(2), ..descriptor(&[("user", "a")]) };
    let status = respond(&decider, &message(vec![two])).statuses.remove(0);
    assert_eq!(status.duration_until_reset.map(|it| it.seconds), Some(180));
    let limit = status.current_limit.expect("there is one");
    assert_eq!((limit.requests_per_unit, limit.unit(), limit.unit_multiplier), (2, Unit::Minute, Some(3)));
}

#[test]
fn an_error_names_the_field_and_charges_nothing() {
    let (decider, _) = decider(POLICY);
    let good = || descriptor(&[("path", "/all")]);
    let limit = |unit, unit_multiplier| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit: 1, unit, unit_multiplier }),
        ..good()
    };
    let many: Vec<String> = (0..33).map(|number| format!("k{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (&**key, "x")).collect();
    let wrong = [
        ("domain", RateLimitRequest { domain: String::new(), ..message(vec![good()]) }),
        ("descriptors", message(Vec::new())),
        ("descriptors", message(vec![good(); 33])),
        ("descriptors/1/entries", message(vec![good(), descriptor(&[])])),
        ("descriptors/1/entries", message(vec![good(), descriptor(&many)])),
        ("descriptors/1/entries/0/key", message(vec![good(), descriptor(&[("", "x")])])),
        (
            "descriptors/1/hits_addend",
            message(vec![good(), RateLimitDescriptor { hits_addend: Some(1 << 53), ..good() }]),
        ),
        ("descriptors/1/limit/unit", message(vec![good(), limit(0, None)])),
        ("descriptors/1/limit/unit", message(vec![good(), limit(99, None)])),
        ("descriptors/1/limit/unit_multiplier", message(vec![good(), limit(1, Some(0))])),
        ("descriptors/1/limit/unit_multiplier", message(vec![good(), limit(6, Some(2))])),
        ("descriptors/1/limit/unit_multiplier", message(vec![good(), limit(4, Some(u32::MAX))])),
        (
            "descriptors/1/is_negative_hits",
            message(vec![good(), RateLimitDescriptor { is_negative_hits: true, ..good() }]),
        ),
    ];
    for (field, message) in wrong {
        let error = now(decide(&decider, &message)).expect_err(field).report();
        assert_eq!((error.field.as_deref(), error.status.as_u16()), (Some(field), 400), "{error:?}");
    }
    assert_eq!(limit_of(&decider, &[("path", "/all")]).map(|(_, left)| left), Some(6));
}

#[test]
fn a_request_that_cannot_be_decided_is_unavailable() {
    let (decider, is_broken) = decider(POLICY);
    let request = request_of(&[("user", "a")]);
    is_broken.store(true, Ordering::SeqCst);
    let error = now(decide(&decider, &request)).expect_err("nobody decided");
    assert_eq!((error.report().status.as_u16(), decider.degraded.failures()), (503, 1));
    is_broken.store(false, Ordering::SeqCst);
    assert_eq!(respond(&decider, &request).statuses[0].limit_remaining, 4);
}

proptest! {
    #[test]
    fn every_descriptor_has_a_status_and_a_denied_request_charges_nothing(
        messages in proptest::collection::vec((proptest::collection::vec(any_descriptor(), 0..4), any::<u32>()), 1..9),
    ) {
        let (decider, _) = decider(POLICY);
        for (descriptors, hits_addend) in messages {
            let message = RateLimitRequest { hits_addend, ..message(descriptors) };
            let before = decider.engine().totals();
            match now(decide(&decider, &message)) {
                Ok((outcome, response)) => {
                    let (overall, codes) = codes(&response);
                    prop_assert_eq!(codes.len(), message.descriptors.len());
                    prop_assert_eq!(overall == Code::Ok, codes.iter().all(|code| *code == Code::Ok));
                    prop_assert_eq!(overall == Code::Ok, outcome.is_allowed);
                    prop_assert!(codes.iter().all(|code| matches!(code, Code::Ok | Code::OverLimit)));
                    for status in &response.statuses {
                        prop_assert_eq!(status.current_limit.is_some(), status.duration_until_reset.is_some());
                        prop_assert!(status.current_limit.is_some() || status.code() == Code::Ok);
                        let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
                        prop_assert!(status.limit_remaining <= limit);
                    }
                    if overall != Code::Ok {
                        prop_assert_eq!(decider.engine().totals().allowed, before.allowed);
                    }
                }
                Err(error) => {
                    let told = error.report();
                    prop_assert_eq!(told.status.as_u16(), 400);
                    prop_assert!(told.field.is_some_and(|field| field.starts_with("descriptors")));
                    prop_assert_eq!(decider.engine().totals(), before);
                }
            }
        }
    }
}
