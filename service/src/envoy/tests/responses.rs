//! Statuses and headers of responses.

use super::*;

#[test]
fn a_status_has_the_numbers_that_envoy_shows() {
    let (decider, _) = decider(POLICY);
    let response = respond(
        &decider,
        &message(vec![
            descriptor(&[("path", "/all")]),
            descriptor(&[("nobody", "x")]),
            descriptor(&[("many", "x")]),
            descriptor(&[("user", "a"), ("remote_address", "x")]),
        ]),
    );
    assert_eq!(codes(&response), (Code::Ok, vec![Code::Ok; 4]));
    let limit = |number, unit: Unit, name: &str| {
        Some(RateLimit { requests_per_unit: number, unit: unit.into(), unit_multiplier: None, name: name.to_owned() })
    };
    let limits: Vec<_> = response.statuses.iter().map(|status| status.current_limit.clone()).collect();
    assert_eq!(limits[0], limit(7, Unit::Hour, "edge/rule:all/hour"), "though a token takes whole nanoseconds");
    assert_eq!(limits[1], None);
    assert_eq!(limits[2], limit(u32::MAX, Unit::Week, "edge/rule:many/many"));
    assert_eq!(limits[3], limit(3, Unit::Day, "edge/rule:pair/day"));
    let left: Vec<_> = response.statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!(left, [6, 0, u32::MAX, 2]);
    let resets: Vec<_> = response
        .statuses
        .iter()
        .map(|status| status.duration_until_reset.as_ref().map(|it| (it.seconds, it.nanos)))
        .collect();
    // One token of seven an hour, rounded up; the rest of the day.
    assert_eq!((resets[0], resets[1]), (Some((515, 0)), None));
    assert_eq!(resets[3], Some((86_400 - 1_700_000_040 % 86_400, 0)));
}

#[test]
fn headers_follow_the_settings_of_the_domain() {
    let told = |settings: &str| {
        let (decider, _) = decider(&POLICY.replacen("[domains.edge]", &format!("[domains.edge]\n{settings}"), 1));
        // What has more left comes first, and what has no limit.
        let message = message(vec![
            descriptor(&[("path", "/all")]),
            descriptor(&[("nobody", "x")]),
            descriptor(&[("user", "a")]),
        ]);
        let allowed = respond(&decider, &message);
        let denied = respond(&decider, &RateLimitRequest { hits_addend: 6, ..message });
        let header = |HeaderValue { key, value }| format!("{key}: {value}");
        [allowed, denied].map(|it| it.response_headers_to_add.into_iter().map(header).collect::<Vec<_>>())
    };
    let [allowed, denied] = told("reset = \"delta\"");
    assert_eq!(allowed, ["x-ratelimit-limit: 5", "x-ratelimit-remaining: 4", "x-ratelimit-reset: 60"]);
    assert_eq!(denied[..3], ["x-ratelimit-limit: 5", "x-ratelimit-remaining: 4", "x-ratelimit-reset: 60"]);
    assert_eq!(denied.len(), 3, "it will never fit: {denied:?}");
    let [allowed, _] = told("headers = \"ietf\"");
    assert!(allowed[0].starts_with("ratelimit-policy: \"edge/tier:free/minute\";q=5;w=60"), "{allowed:?}");
    assert_eq!(told("headers = \"none\""), [Vec::<String>::new(), Vec::new()]);
    let (decider, _) = decider(POLICY);
    let twice = message(vec![RateLimitDescriptor { hits_addend: Some(5), ..descriptor(&[("user", "a")]) }]);
    assert_eq!(respond(&decider, &twice).overall_code(), Code::Ok);
    let denied = respond(&decider, &twice);
    let wait = denied.response_headers_to_add.iter().find(|header| header.key == "retry-after").expect("it ends");
    assert!((60..=66).contains(&wait.value.parse::<u64>().expect("seconds")), "{wait:?}");
}

#[test]
fn a_request_that_several_limits_deny_has_the_longest_wait() {
    let (decider, _) = decider(POLICY);
    // Some seconds; the rest of the minute; the rest of the day.
    let all = RateLimitDescriptor { hits_addend: Some(7), ..descriptor(&[("path", "/all")]) };
    let user = RateLimitDescriptor { hits_addend: Some(5), ..descriptor(&[("user", "a")]) };
    let pair = RateLimitDescriptor { hits_addend: Some(3), ..descriptor(&[("user", "a"), ("remote_address", "x")]) };
    let wait = |descriptors: &[&RateLimitDescriptor]| {
        let descriptors = descriptors.iter().map(|&it| RateLimitDescriptor { hits_addend: Some(1), ..it.clone() });
        let denied = respond(&decider, &message(descriptors.collect()));
        assert_eq!(denied.overall_code(), Code::OverLimit);
        let header = denied.response_headers_to_add.iter().find(|header| header.key == "retry-after");
        header.map(|header| header.value.parse::<u64>().expect("seconds"))
    };
    assert_eq!(respond(&decider, &message(vec![all.clone(), user.clone(), pair.clone()])).overall_code(), Code::Ok);
    let alone = [&all, &user, &pair].map(|one| wait(&[one]));
    assert!(alone[0] > alone[1] && alone[1] < alone[2], "{alone:?}");
    let (longest, never) = (
        wait(&[&pair]),
        RateLimitDescriptor {
            limit: Some(RateLimitOverride { requests_per_unit: 0, unit: 1, unit_multiplier: None }),
            ..user.clone()
        },
    );
    for order in [[&all, &user, &pair], [&pair, &all, &user], [&user, &pair, &all]] {
        // Spread over a tenth.
        let wait = wait(&order).zip(longest).expect("it ends");
        assert!(wait.0 * 10 >= wait.1 * 9, "{wait:?}");
    }
    assert_eq!(wait(&[&user, &never, &pair]), None, "it will never fit");
}

#[test]
fn a_limit_in_shadow_mode_denies_nothing() {
    let (decider, _) = decider(POLICY);
    for _ in 0..3 {
        assert_eq!(codes(&respond(&decider, &request_of(&[("seen", "x")]))), (Code::Ok, vec![Code::Ok]));
    }
    assert_eq!(decider.engine().limit_counts().iter().map(|(_, counts)| counts.shadow_denied).sum::<u64>(), 2);
}

/// Envoy's own service does the same.
#[test]
fn the_status_has_the_numbers_of_a_shadow_limit_where_no_limit_is_enforced() {
    let (decider, _) = decider(POLICY);
    let told = |entries: &[(&str, &str)]| {
        let status = respond(&decider, &request_of(entries)).statuses.remove(0);
        let limit =
            status.current_limit.clone().map(|limit| (limit.name.clone(), limit.requests_per_unit, limit.unit()));
        (status.code(), limit, status.limit_remaining)
    };
    let seen = |left| (Code::Ok, Some(("edge/rule:seen/never".to_owned(), 1, Unit::Hour)), left);
    assert_eq!([0; 3].map(|_| told(&[("seen", "x")])), [seen(0), seen(0), seen(0)]);
    assert_eq!(told(&[("nobody", "x")]), (Code::Ok, None, 0));
    // What an import lets pass on purpose has no limit.
    let unlimited =
        POLICY.replace("limit = 1, period = \"1h\", mode", "limit = 86_400_000_000_000, period = \"1d\", mode");
    assert_eq!(limit_of(&self::decider(&unlimited).0, &[("seen", "x")]), None);
}

#[test]
fn the_unit_of_a_limit_of_zero_is_known() {
    let (decider, _) = decider(&POLICY.replace("limit = 3, period = \"1d\"", "limit = 0, period = \"1m\""));
    let response = respond(&decider, &request_of(&[("user", "a"), ("remote_address", "x")]));
    let limit = response.statuses[0].current_limit.clone().expect("there is one");
    assert_eq!((response.overall_code(), limit.requests_per_unit, limit.unit()), (Code::OverLimit, 0, Unit::Minute));
    let own = RateLimitOverride { requests_per_unit: 0, unit: RateLimitUnit::Hour.into(), unit_multiplier: None };
    let own = RateLimitDescriptor { limit: Some(own), ..descriptor(&[("user", "a")]) };
    let limit = respond(&decider, &message(vec![own])).statuses.remove(0).current_limit.expect("there is one");
    assert_eq!((limit.requests_per_unit, limit.unit()), (0, Unit::Hour));
}

#[test]
fn a_period_is_a_multiple_of_the_longest_unit_or_unknown() {
    for (seconds, times, unit) in [
        (1, 1, Unit::Second),
        (10, 10, Unit::Second),
        (60, 1, Unit::Minute),
        (90, 90, Unit::Second),
        (900, 15, Unit::Minute),
        (3_600, 1, Unit::Hour),
        (86_400, 1, Unit::Day),
        (31 * 86_400, 31, Unit::Day),
        (366 * 86_400, 366, Unit::Day),
        (604_800, 1, Unit::Week),
        (90 * 86_400, 3, Unit::Month),
        (365 * 86_400, 1, Unit::Year),
        (0, 1, Unit::Unknown),
    ] {
        let period = Duration::from_secs(seconds);
        assert_eq!(response::units(period), (unit, times), "{seconds} s");
        assert_eq!(response::units(period + Duration::from_nanos(seconds)), (unit, times), "{seconds} s, rounded up");
    }
    for unknown in [Duration::from_nanos(999_999_999), Duration::from_millis(1_500), Duration::from_millis(10_011)] {
        assert_eq!(response::units(unknown), (Unit::Unknown, 1));
    }
    let month = r#"
        [domains.edge]
        defaults = { user = "free" }
        [[domains.edge.tiers]]
        id = "free"
        limits = [{ id = "month", algorithm = "fixed_window", limit = 5, period = "month" }]
    "#;
    let response = respond(&decider(month).0, &request_of(&[("user", "a")]));
    assert_eq!(response.statuses[0].current_limit.as_ref().map(RateLimit::unit), Some(Unit::Month));
}

proptest! {
    #[test]
    fn printable_names_fit_between_quotes_and_differ_where_the_names_did(one in ".{0,9}", other in ".{0,9}") {
        let [told, others] = [&one, &other].map(|name| response::printable(name));
        prop_assert!(told.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')));
        prop_assert_eq!(one == other, told == others);
    }
}
