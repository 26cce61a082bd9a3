use std::{
    net::IpAddr,
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use proptest::prelude::*;
use prost::Message;
use tidegate::{
    Engine, Snapshot,
    clock::ManualClock,
    formats::Format,
    time::{Nanos, SECOND_NS},
};

use super::{
    super::proto::envoy::{
        config::core::v3::HeaderValue,
        extensions::common::ratelimit::v3::{
            RateLimitDescriptor,
            rate_limit_descriptor::{Entry, RateLimitOverride},
        },
        service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse,
            rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
        },
        r#type::v3::RateLimitUnit,
    },
    *,
};

/// Decides for a peer without a token. What is written is what prost would write.
async fn decide<'e, C: Clock>(
    decider: &'e Decider<C>,
    message: &RateLimitRequest,
) -> Result<(Answer<'e>, RateLimitResponse), Error> {
    let caller = Caller::without_token(IpAddr::from([192, 0, 2, 1]).into());
    let mut written = BytesMut::new();
    match super::decide(decider, &message.encode_to_vec(), &caller, &mut written).await {
        Ok(answer) => {
            let response = RateLimitResponse::decode(&*written).expect("a message");
            assert_eq!(response.encode_to_vec(), written);
            Ok((answer, response))
        }
        Err(Refusal::Wrong(error)) => {
            assert!(written.is_empty());
            Err(error)
        }
        Err(Refusal::NoMessage(why)) => panic!("{why}"),
    }
}

/// Nothing waits without a store.
fn now<T>(told: impl Future<Output = T>) -> T {
    told.now_or_never().expect("it is ready")
}

/// The first of a minute.
const START: Nanos = 1_700_000_040 * SECOND_NS;

const POLICY: &str = r#"
    [domains.edge]
    defaults = { user = "free", x_api_key = "free" }
    [[domains.edge.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 5, period = "1m" }]
    [[domains.edge.rules]]
    id = "pair"
    endpoint = "*"
    per = ["user", "remote_address"]
    limits = [{ id = "day", algorithm = "fixed_window", limit = 3, period = "1d" }]
    [[domains.edge.rules]]
    id = "search"
    endpoint = "/search"
    method = "GET"
    per = "user"
    limits = [{ id = "second", algorithm = "token_bucket", limit = 2, period = "1s" }]
    [[domains.edge.rules]]
    id = "all"
    endpoint = "/all"
    per = "everyone"
    limits = [{ id = "hour", algorithm = "token_bucket", limit = 7, period = "1h" }]
    [[domains.edge.rules]]
    id = "seen"
    endpoint = "*"
    per = "seen"
    limits = [{ id = "never", algorithm = "token_bucket", limit = 1, period = "1h", mode = "shadow" }]
    [[domains.edge.rules]]
    id = "many"
    endpoint = "*"
    per = "many"
    limits = [{ id = "many", algorithm = "token_bucket", limit = 1_000_000_000_000, period = "7d" }]
"#;

/// A clock that can be broken.
#[derive(Debug)]
struct TestClock(ManualClock, Arc<AtomicBool>);

impl Clock for TestClock {
    fn now(&self) -> Nanos {
        assert!(!self.1.load(Ordering::SeqCst), "the clock is broken");
        self.0.now()
    }
}

/// A decider, and what breaks its clock.
fn decider(policy: &str) -> (Decider<TestClock>, Arc<AtomicBool>) {
    let is_broken = Arc::new(AtomicBool::new(false));
    let engine = Engine::for_simulation(1_000, TestClock(ManualClock::at(START), Arc::clone(&is_broken)), 7);
    engine.publish(Snapshot::parse(policy, Format::Toml).expect("a right policy")).expect("room");
    (Decider::new(Arc::new(engine)).expect("random numbers"), is_broken)
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.into() };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        limit: None,
        hits_addend: None,
        is_negative_hits: false,
    }
}

fn message(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 }
}

fn of(entries: &[(&str, &str)]) -> RateLimitRequest {
    message(vec![descriptor(entries)])
}

fn ask(decider: &Decider<TestClock>, message: &RateLimitRequest) -> RateLimitResponse {
    now(decide(decider, message)).expect("a right request").1
}

/// Of the only descriptor: its limit and what is left, if there is one.
fn met(decider: &Decider<TestClock>, entries: &[(&str, &str)]) -> Option<(String, u32)> {
    let RateLimitResponse { mut statuses, .. } = ask(decider, &of(entries));
    let status = statuses.pop().expect("one");
    status.current_limit.map(|limit| (limit.name, status.limit_remaining))
}

fn codes(response: &RateLimitResponse) -> (Code, Vec<Code>) {
    (response.overall_code(), response.statuses.iter().map(DescriptorStatus::code).collect())
}

#[test]
fn entries_are_identities_path_and_method() {
    let (decider, _) = decider(POLICY);
    let met = |entries: &[(&str, &str)]| met(&decider, entries);
    let named = |name: &str, remaining| Some((name.to_owned(), remaining));
    assert_eq!(met(&[("user", "a")]), named("edge/tier:free/minute", 4));
    assert_eq!(met(&[("User", "a"), ("path", "/other")]), named("edge/tier:free/minute", 3), "its key is the same");
    assert_eq!(met(&[("X-API key", "a")]), named("edge/tier:free/minute", 4));
    // The rule is tighter, and by its method alone.
    for key in ["path", "endpoint", "PATH"] {
        let user = key;
        let search = met(&[("user", user), (key, "/search?q=1"), ("method", "get")]);
        assert_eq!(search, named("edge/rule:search/second", 1), "{key}");
        assert_eq!(met(&[("user", user), (key, "/search")]), named("edge/tier:free/minute", 3), "{key}");
    }
    // Several identities meet the rules of their set, in any order; no tier, nobody else's rules.
    assert_eq!(met(&[("user", "b"), ("remote-address", "192.0.2.7")]), named("edge/rule:pair/day", 2));
    assert_eq!(met(&[("remote_address", "192.0.2.7"), ("user", "b")]), named("edge/rule:pair/day", 1));
    assert_eq!(met(&[("remote_address", "192.0.2.8"), ("user", "b")]), named("edge/rule:pair/day", 2));
    assert_eq!(met(&[("user", "b"), ("tenant", "x")]), None);
    assert_eq!(met(&[("user", "b"), ("tenant", "x"), ("path", "/all")]), None);
    assert_eq!(met(&[("path", "/all")]), named("edge/rule:all/hour", 6));
    assert_eq!(met(&[("user", "c"), ("path", "/all")]), named("edge/tier:free/minute", 4), "not everyone's");
    assert_eq!(met(&[("generic_key", "a")]), None);
    // Without an endpoint only rules on `*`.
    assert_eq!(met(&[("method", "GET")]), None);
    assert_eq!(met(&[("user", "d"), ("method", "GET")]), named("edge/tier:free/minute", 4));
}

#[test]
fn keys_that_come_twice_are_numbered() {
    let policy = r#"
        [domains.edge]
        [[domains.edge.rules]]
        id = "slow"
        endpoint = "*"
        per = ["generic_key", "generic_key_2"]
        where = { generic_key = "vhost-a", generic_key_2 = "slow" }
        limits = [{ id = "minute", algorithm = "fixed_window", limit = 2, period = "1m" }]
        [[domains.edge.rules]]
        id = "paths"
        endpoint = "/all"
        per = "everyone"
        where = { path_2 = "/all" }
        limits = [{ id = "minute", algorithm = "fixed_window", limit = 1, period = "1m" }]
    "#;
    let (decider, _) = decider(policy);
    let left = |entries: &[(&str, &str)]| met(&decider, entries).map(|(_, left)| left);
    assert_eq!(left(&[("generic_key", "vhost-a"), ("generic_key", "slow")]), Some(1));
    assert_eq!(left(&[("generic_key", "vhost-a"), ("Generic-Key", "slow")]), Some(0));
    assert_eq!(left(&[("generic_key", "slow"), ("generic_key", "vhost-a")]), None, "in their order");
    let third = ask(&decider, &of(&[("generic_key", "vhost-a"), ("generic_key", "slow")]));
    assert_eq!(codes(&third), (Code::OverLimit, vec![Code::OverLimit]));
    assert_eq!(left(&[("path", "/all"), ("PATH", "/all")]), Some(0));
}

#[test]
fn kinds_of_conditions_are_named_too() {
    let policy = r#"
        [domains.edge]
        DESCRIPTORS
        [[domains.edge.rules]]
        id = "free"
        endpoint = "*"
        per = "user"
        where = { plan = "free" }
        limits = [{ id = "day", algorithm = "fixed_window", limit = 1, period = "1d" }]
        [[domains.edge.rules]]
        id = "all"
        endpoint = "*"
        per = "everyone"
        limits = [{ id = "day", algorithm = "fixed_window", limit = 9, period = "1d" }]
    "#;
    let (exact, _) = decider(&policy.replace("DESCRIPTORS", ""));
    let free = of(&[("user", "a"), ("plan", "free")]);
    assert_eq!([0; 2].map(|_| ask(&exact, &free).overall_code()), [Code::Ok, Code::OverLimit]);
    assert_eq!(met(&exact, &[("user", "b"), ("plan", "free"), ("tenant", "x")]), None);
    let (subset, _) = decider(&policy.replace("DESCRIPTORS", "descriptors = \"subset\""));
    let named = |name: &str, left| Some((format!("edge/rule:{name}/day"), left));
    assert_eq!(met(&subset, &[("user", "b"), ("plan", "free"), ("tenant", "x")]), named("free", 0));
    assert_eq!(met(&subset, &[("tenant", "x")]), named("all", 7));
    assert_eq!(met(&subset, &[("path", "/")]), named("all", 6));
}

#[test]
fn a_status_has_the_numbers_that_envoy_tells() {
    let (decider, _) = decider(POLICY);
    let response = ask(
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
fn all_descriptors_are_charged_or_none() {
    let (decider, _) = decider(POLICY);
    let two = message(vec![descriptor(&[("user", "a")]), descriptor(&[("user", "a"), ("remote_address", "x")])]);
    for left in [2, 1, 0] {
        let response = ask(&decider, &two);
        assert_eq!(codes(&response), (Code::Ok, vec![Code::Ok; 2]));
        assert_eq!(response.statuses[1].limit_remaining, left);
    }
    for _ in 0..3 {
        let response = ask(&decider, &two);
        assert_eq!(codes(&response), (Code::OverLimit, vec![Code::Ok, Code::OverLimit]));
        let left: Vec<_> = response.statuses.iter().map(|status| status.limit_remaining).collect();
        assert_eq!(left, [2, 0], "as it was before");
        assert_eq!(response.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit), Some(5));
    }
}

#[test]
fn hits_are_of_the_request_or_the_descriptor_and_none_is_a_peek() {
    let (decider, _) = decider(POLICY);
    let left = |hits_addend, own: &[Option<u64>]| {
        let each = |hits_addend: &Option<u64>| RateLimitDescriptor {
            hits_addend: *hits_addend,
            ..descriptor(&[("path", "/all")])
        };
        let message = RateLimitRequest { hits_addend, ..message(own.iter().map(each).collect()) };
        let response = ask(&decider, &message);
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
fn the_limit_of_a_descriptor_stands_instead_of_the_policy_s() {
    let (decider, _) = decider(POLICY);
    let ask = |entries: &[(&str, &str)], requests_per_unit, unit: RateLimitUnit| {
        let limit = Some(RateLimitOverride { requests_per_unit, unit: unit.into(), unit_multiplier: None });
        let response = ask(&decider, &message(vec![RateLimitDescriptor { limit, ..descriptor(entries) }]));
        let status = &response.statuses[0];
        let limit = status.current_limit.clone().expect("there is one");
        assert_eq!((limit.requests_per_unit, &*limit.name), (requests_per_unit, "override"));
        (response.overall_code(), status.limit_remaining, limit.unit())
    };
    let user = [("user", "a")];
    for (left, code) in [(1, Code::Ok), (0, Code::Ok), (0, Code::OverLimit)] {
        assert_eq!(ask(&user, 2, RateLimitUnit::Minute), (code, left, Unit::Minute));
    }
    assert_eq!(met(&decider, &user), Some(("edge/tier:free/minute".to_owned(), 4)), "the policy's is untouched");
    assert_eq!(ask(&[("nobody", "x")], 7, RateLimitUnit::Day), (Code::Ok, 6, Unit::Day), "where the policy has none");
    assert_eq!(ask(&[("nobody", "y")], 0, RateLimitUnit::Second).0, Code::OverLimit, "0 denies");
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
        assert_eq!(ask(&[("unit", &value)], 1_000, unit), (Code::Ok, 999, shown));
    }
}

#[test]
fn the_unit_of_a_limit_is_taken_so_many_times() {
    let (decider, _) = decider(POLICY);
    let limit =
        RateLimitOverride { requests_per_unit: 2, unit: RateLimitUnit::Minute.into(), unit_multiplier: Some(3) };
    let two = RateLimitDescriptor { limit: Some(limit), hits_addend: Some(2), ..descriptor(&[("user", "a")]) };
    let status = ask(&decider, &message(vec![two])).statuses.remove(0);
    assert_eq!(status.duration_until_reset.map(|it| it.seconds), Some(180));
    let limit = status.current_limit.expect("there is one");
    assert_eq!((limit.requests_per_unit, limit.unit(), limit.unit_multiplier), (2, Unit::Minute, Some(3)));
}

#[test]
fn what_is_wrong_is_named_and_charges_nothing() {
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
        let error = now(decide(&decider, &message)).expect_err(field).told();
        assert_eq!((error.field.as_deref(), error.status.as_u16()), (Some(field), 400), "{error:?}");
    }
    assert_eq!(met(&decider, &[("path", "/all")]).map(|(_, left)| left), Some(6));
}

#[test]
fn headers_are_those_that_the_domain_asks_for() {
    let told = |settings: &str| {
        let (decider, _) = decider(&POLICY.replacen("[domains.edge]", &format!("[domains.edge]\n{settings}"), 1));
        // What has more left comes first, and what has no limit.
        let message = message(vec![
            descriptor(&[("path", "/all")]),
            descriptor(&[("nobody", "x")]),
            descriptor(&[("user", "a")]),
        ]);
        let allowed = ask(&decider, &message);
        let denied = ask(&decider, &RateLimitRequest { hits_addend: 6, ..message });
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
    assert_eq!(ask(&decider, &twice).overall_code(), Code::Ok);
    let denied = ask(&decider, &twice);
    let wait = denied.response_headers_to_add.iter().find(|header| header.key == "retry-after").expect("it ends");
    assert!((60..=66).contains(&wait.value.parse::<u64>().expect("seconds")), "{wait:?}");
}

#[test]
fn whoever_is_denied_by_several_is_told_the_longest_wait() {
    let (decider, _) = decider(POLICY);
    // Some seconds; the rest of the minute; the rest of the day.
    let all = RateLimitDescriptor { hits_addend: Some(7), ..descriptor(&[("path", "/all")]) };
    let user = RateLimitDescriptor { hits_addend: Some(5), ..descriptor(&[("user", "a")]) };
    let pair = RateLimitDescriptor { hits_addend: Some(3), ..descriptor(&[("user", "a"), ("remote_address", "x")]) };
    let wait = |descriptors: &[&RateLimitDescriptor]| {
        let descriptors = descriptors.iter().map(|&it| RateLimitDescriptor { hits_addend: Some(1), ..it.clone() });
        let denied = ask(&decider, &message(descriptors.collect()));
        assert_eq!(denied.overall_code(), Code::OverLimit);
        let header = denied.response_headers_to_add.iter().find(|header| header.key == "retry-after");
        header.map(|header| header.value.parse::<u64>().expect("seconds"))
    };
    assert_eq!(ask(&decider, &message(vec![all.clone(), user.clone(), pair.clone()])).overall_code(), Code::Ok);
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

/// More entries than a request has identities: only kinds that the domain names matter.
#[test]
fn entries_of_kinds_that_no_rule_names_are_no_error() {
    let rule = |id: &str, kinds: &str, settings: &str| {
        format!(
            "[domains.edge]\n{settings}\n[[domains.edge.rules]]\nid = \"{id}\"\nendpoint = \"*\"\nper = {kinds}\nlimits = [{{ id = \"day\", algorithm = \"fixed_window\", limit = 9, period = \"1d\" }}]"
        )
    };
    let keys: Vec<String> = (0..16).map(|number| format!("k{number}")).collect();
    let entries: Vec<(&str, &str)> = keys.iter().map(|key| (&**key, "x")).collect();
    let (exact, _) = decider(&rule("two", "[\"k1\", \"k12\"]", ""));
    assert_eq!((met(&exact, &entries[1..2]), met(&exact, &entries)), (None, None));
    let (subset, _) = decider(&rule("two", "[\"k1\", \"k12\"]", "descriptors = \"subset\""));
    assert_eq!(met(&subset, &entries), Some(("edge/rule:two/day".to_owned(), 8)));
    // Of nine that the domain names, the first eight count; none of them is a rule of exactly nine.
    let rules = |settings: &str| {
        rule("last", "\"k8\"", settings) + &rule("rest", &format!("{:?}", &keys[..8]), "")["[domains.edge]\n".len()..]
    };
    let (subset, _) = decider(&rules("descriptors = \"subset\""));
    assert_eq!(met(&subset, &entries[..9]), Some(("edge/rule:rest/day".to_owned(), 8)));
    let (exact, _) = decider(&rules(""));
    assert_eq!(met(&exact, &entries[..8]), Some(("edge/rule:rest/day".to_owned(), 8)));
    assert_eq!(met(&exact, &entries[..9]), None);
}

/// A condition on a prefix holds for a value that is longer than identities are.
#[test]
fn no_value_is_too_long_for_its_rule() {
    let (decider, _) = decider(
        r#"
        [[domains.edge.rules]]
        id = "bad"
        endpoint = "*"
        per = "user_agent"
        where = { user_agent = "bad*" }
        limits = [{ id = "day", algorithm = "fixed_window", limit = 9, period = "1d" }]
    "#,
    );
    let long = |end: &str| format!("bad{}{end}", "x".repeat(2_000));
    let left = |value: &str| met(&decider, &[("user_agent", value)]).map(|(_, left)| left);
    assert_eq!([left(&long("1")), left(&long("2")), left(&long("1"))], [Some(8), Some(8), Some(7)]);
    assert_eq!([left("bad"), left("bad "), left(" bad"), left("good")], [Some(8), Some(8), None, None]);
    let entry = Entry { key: "user_agent".to_owned(), value: b"bad \xff".to_vec() };
    let no_text = message(vec![RateLimitDescriptor { entries: vec![entry], ..descriptor(&[]) }]);
    assert_eq!(ask(&decider, &no_text).statuses[0].limit_remaining, 8);
}

/// What Envoy passes on as it came, though its messages say that it is text.
#[test]
fn values_that_are_no_text_count_by_their_digest() {
    let (decider, _) = decider(POLICY);
    let told = |entries: &[(&str, &[u8])]| {
        let entry = |&(key, value): &(&str, &[u8])| Entry { key: key.to_owned(), value: value.to_vec() };
        let descriptor = RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..descriptor(&[]) };
        ask(&decider, &message(vec![descriptor])).statuses.remove(0).limit_remaining
    };
    assert_eq!([told(&[("user", b"\xff")]), told(&[("user", b"\xff")]), told(&[("user", b"\xfe")])], [4, 3, 4]);
    assert_eq!(told(&[("user", b"a"), ("path", b"/search\xff"), ("method", b"GET")]), 4, "no rule");
    assert_eq!(told(&[("user", b"b"), ("path", b"/\xff/../search"), ("method", b"GET")]), 1, "the rule for the path");
    assert_eq!(told(&[("user", b"c"), ("path", b"/search"), ("method", b"G\xffT")]), 4);
}

/// Rules hold for paths that are longer than the engine takes.
#[test]
fn no_path_is_too_long_for_its_rule() {
    let (decider, _) = decider(POLICY);
    let much = "x".repeat(20_000);
    for (number, path) in
        [format!("{}search", "/".repeat(9_000)), format!("/search?{much}"), format!("/{much}/../search")]
            .iter()
            .enumerate()
    {
        let user = number.to_string();
        let met = met(&decider, &[("user", &user), ("path", path), ("method", "GET")]);
        assert_eq!(met, Some(("edge/rule:search/second".to_owned(), 1)), "{number}");
    }
}

/// Each is a limit of its own.
#[test]
fn limits_of_descriptors_with_the_same_key_leave_each_other_alone() {
    let (decider, _) = decider(POLICY);
    let limit = |requests_per_unit, unit: RateLimitUnit| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit: unit.into(), unit_multiplier: None }),
        ..descriptor(&[("user", "a")])
    };
    let both = message(vec![limit(100, RateLimitUnit::Second), limit(1_000, RateLimitUnit::Hour)]);
    for number in 1..=100 {
        let response = ask(&decider, &both);
        let left: Vec<_> = response.statuses.iter().map(|status| status.limit_remaining).collect();
        assert_eq!((response.overall_code(), left), (Code::Ok, vec![100 - number, 1_000 - number]));
    }
    let response = ask(&decider, &both);
    assert_eq!(codes(&response), (Code::OverLimit, vec![Code::OverLimit, Code::Ok]));
    assert_eq!(response.statuses[1].limit_remaining, 900, "untouched");
    assert!(response.response_headers_to_add.iter().any(|header| header.key == "retry-after"), "it ends");
}

#[test]
fn a_shadow_denies_nobody() {
    let (decider, _) = decider(POLICY);
    for _ in 0..3 {
        assert_eq!(codes(&ask(&decider, &of(&[("seen", "x")]))), (Code::Ok, vec![Code::Ok]));
    }
    assert_eq!(decider.engine().limit_counts().iter().map(|(_, counts)| counts.shadow_denied).sum::<u64>(), 2);
}

/// As upstream does.
#[test]
fn a_shadow_is_told_with_its_numbers_where_no_limit_is_enforced() {
    let (decider, _) = decider(POLICY);
    let told = |entries: &[(&str, &str)]| {
        let status = ask(&decider, &of(entries)).statuses.remove(0);
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
    assert_eq!(met(&self::decider(&unlimited).0, &[("seen", "x")]), None);
}

#[test]
fn the_unit_of_a_limit_of_nothing_is_known() {
    let (decider, _) = decider(&POLICY.replace("limit = 3, period = \"1d\"", "limit = 0, period = \"1m\""));
    let response = ask(&decider, &of(&[("user", "a"), ("remote_address", "x")]));
    let limit = response.statuses[0].current_limit.clone().expect("there is one");
    assert_eq!((response.overall_code(), limit.requests_per_unit, limit.unit()), (Code::OverLimit, 0, Unit::Minute));
    let own = RateLimitOverride { requests_per_unit: 0, unit: RateLimitUnit::Hour.into(), unit_multiplier: None };
    let own = RateLimitDescriptor { limit: Some(own), ..descriptor(&[("user", "a")]) };
    let limit = ask(&decider, &message(vec![own])).statuses.remove(0).current_limit.expect("there is one");
    assert_eq!((limit.requests_per_unit, limit.unit()), (0, Unit::Hour));
}

#[test]
fn where_it_cannot_be_decided_it_is_unavailable() {
    let (decider, is_broken) = decider(POLICY);
    let request = of(&[("user", "a")]);
    is_broken.store(true, Ordering::SeqCst);
    let error = now(decide(&decider, &request)).expect_err("nobody decided");
    assert_eq!((error.told().status.as_u16(), decider.degraded().failures()), (503, 1));
    is_broken.store(false, Ordering::SeqCst);
    assert_eq!(ask(&decider, &request).statuses[0].limit_remaining, 4);
}

#[test]
fn a_period_is_so_many_of_the_longest_unit_or_unknown() {
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
        assert_eq!(tell::units(period), (unit, times), "{seconds} s");
        assert_eq!(tell::units(period + Duration::from_nanos(seconds)), (unit, times), "{seconds} s, rounded up");
    }
    for unknown in [Duration::from_nanos(999_999_999), Duration::from_millis(1_500), Duration::from_millis(10_011)] {
        assert_eq!(tell::units(unknown), (Unit::Unknown, 1));
    }
    let month = r#"
        [domains.edge]
        defaults = { user = "free" }
        [[domains.edge.tiers]]
        id = "free"
        limits = [{ id = "month", algorithm = "fixed_window", limit = 5, period = "month" }]
    "#;
    let response = ask(&decider(month).0, &of(&[("user", "a")]));
    assert_eq!(response.statuses[0].current_limit.as_ref().map(RateLimit::unit), Some(Unit::Month));
}

/// A refusal as it is told, and the place of what is wrong; none, where the bytes are no message.
type ToldRefusal = (String, Option<String>);

/// Decides the bytes of a message by a new decider. Of the response the time to come again is left out, which chance prolongs.
fn decided(bytes: &[u8]) -> Result<(bool, RateLimitResponse), ToldRefusal> {
    let (decider, _) = decider(POLICY);
    let caller = Caller::without_token(IpAddr::from([192, 0, 2, 1]).into());
    let mut written = BytesMut::new();
    match now(super::decide(&decider, bytes, &caller, &mut written)) {
        Ok(answer) => {
            let mut response = RateLimitResponse::decode(&*written).expect("a message");
            assert_eq!(response.encode_to_vec(), written);
            response.response_headers_to_add.retain(|header| header.key != "retry-after");
            Ok((answer.is_allowed, response))
        }
        Err(refusal) => {
            assert!(written.is_empty());
            Err(match refusal {
                Refusal::NoMessage(why) => (why, None),
                Refusal::Wrong(error) => (error.told().message, Some(error.told().field.expect("a place"))),
            })
        }
    }
}

/// A `RateLimitRequest` whose descriptors are not read.
#[derive(Clone, PartialEq, Message)]
struct UnreadRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(bytes = "vec", repeated, tag = "2")]
    descriptors: Vec<Vec<u8>>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

/// Asserts that a message is read as prost reads it. What prost cannot read is refused in its words, unless something in front of
/// the descriptor that cannot be read is refused: the domain, or another descriptor.
#[track_caller]
fn assert_read_as_by_prost(bytes: &[u8]) {
    let ours = decided(bytes);
    match RateLimitRequest::decode(bytes) {
        // As it is, and as prost would have written it: the fields in their order, and each once.
        Ok(message) => assert_eq!(ours, decided(&message.encode_to_vec()), "{}", bytes.escape_ascii()),
        Err(why) => {
            let refusal = ours.expect_err("it is no message");
            let wrong_before = UnreadRequest::decode(bytes).ok().and_then(|mut request| {
                let is_no_message = |bytes: &Vec<u8>| RateLimitDescriptor::decode(&**bytes).is_err();
                let place = request.descriptors.iter().position(is_no_message).expect("one that prost cannot read");
                request.descriptors.truncate(place);
                let is_before = |(_, field): &ToldRefusal| field.as_deref().is_some_and(|field| field != "descriptors");
                decided(&request.encode_to_vec()).err().filter(is_before)
            });
            let is_as_by_prost = refusal == (why.to_string(), None);
            assert!(is_as_by_prost || Some(&refusal) == wrong_before.as_ref(), "{refusal:?}: {}", bytes.escape_ascii());
        }
    }
}

#[test]
fn prost_explains_what_cannot_be_read_unless_that_takes_much_memory() {
    let explained = |bytes: &[u8]| {
        let (why, field) = decided(bytes).expect_err("it is no message");
        assert_eq!(field, None);
        let of_prost = RateLimitRequest::decode(bytes).expect_err("it is no message").to_string();
        assert!(why == of_prost || why == "this is no message", "{why}");
        why == of_prost
    };
    // A domain that is cut off, after a field that is not known, or after empty descriptors.
    for bytes in [16 << 10, (16 << 10) + 1] {
        let rest = bytes - 5;
        let unknown = [&[0x7a, 0x80 | rest as u8, (rest >> 7) as u8][..], &vec![0; rest], &[0x0a, 9]].concat();
        assert_eq!(unknown.len(), bytes);
        assert_eq!(explained(&unknown), bytes <= 16 << 10);
    }
    for descriptors in [32, 33, 8_000] {
        let bytes = [&[0x12, 0].repeat(descriptors)[..], &[0x0a, 9]].concat();
        assert_eq!(explained(&bytes), descriptors <= 32);
    }
}

fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => proptest::sample::select(vec!["user", "path", "method", "many", "remote_address", "x"]).prop_map(str::to_owned),
        1 => ".{0,40}",
    ]
}

fn any_descriptor() -> impl Strategy<Value = RateLimitDescriptor> {
    let entry = (any_key(), prop_oneof![Just("a".to_owned()), Just("/all".to_owned()), ".{0,9}"])
        .prop_map(|(key, value)| Entry { key, value: value.into_bytes() });
    let limit = (any::<u32>(), -1..9_i32, proptest::option::of(0..9_u32)).prop_map(
        |(requests_per_unit, unit, unit_multiplier)| RateLimitOverride { requests_per_unit, unit, unit_multiplier },
    );
    let hits = prop_oneof![4 => Just(None), 2 => (0..9_u64).prop_map(Some), 1 => any::<u64>().prop_map(Some)];
    (proptest::collection::vec(entry, 0..4), proptest::option::weighted(0.2, limit), hits).prop_map(
        |(entries, limit, hits_addend)| RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits: false },
    )
}

fn bytes_field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::bytes::encode(number, &value.to_vec(), &mut field);
    field
}

fn number_field(number: u32, value: u64) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::uint64::encode(number, &value, &mut field);
    field
}

/// Generates a field of a number that no message of these has, in each form that there is, also a group.
fn unknown_field() -> impl Strategy<Value = Vec<u8>> {
    (9_u32..40, proptest::collection::vec(any::<u8>(), 0..9), 0..5_u8).prop_map(|(number, value, form)| {
        let tag = |wire: u32| {
            let mut tag = Vec::new();
            prost::encoding::encode_varint(u64::from(number << 3 | wire), &mut tag);
            tag
        };
        match form {
            0 => number_field(number, value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))),
            1 => [tag(1), vec![7; 8]].concat(),
            2 => bytes_field(number, &value),
            3 => [tag(3), bytes_field(1, &value), tag(4)].concat(),
            _ => [tag(5), vec![7; 4]].concat(),
        }
    })
}

#[test]
fn fields_that_come_twice_or_are_wrong_are_read_as_prost_reads_them() {
    let user = bytes_field(1, &[bytes_field(1, b"user"), bytes_field(2, b"a")].concat());
    let domain = bytes_field(1, b"edge");
    // With these fields in the descriptor, and after it in the message.
    let of = |within: &[Vec<u8>], after: &[Vec<u8>]| {
        let descriptor = [&user[..], &within.concat()].concat();
        [&domain[..], &bytes_field(2, &descriptor), &after.concat()].concat()
    };
    let limit = [number_field(1, 2), number_field(2, 2)].map(|part| bytes_field(2, &part));
    let hits = |hits| bytes_field(3, &number_field(1, hits));
    for (name, bytes) in [
        ("domain twice", of(&[], &[bytes_field(1, b"other"), bytes_field(1, b"edge")])),
        ("hits twice", of(&[], &[number_field(3, 9), number_field(3, 2)])),
        ("hits above 32 bits", of(&[], &[number_field(3, (1 << 32) + 2)])),
        ("hits above 32 bits that are none", of(&[], &[number_field(3, 1 << 32)])),
        ("limit in two parts", of(&limit, &[])),
        ("own hits twice", of(&[hits(9), hits(2)], &[])),
        ("own hits twice, the second empty", of(&[hits(2), bytes_field(3, b"")], &[])),
        ("own hits, empty", of(&[bytes_field(3, b"")], &[])),
        ("a group", of(&[vec![0x7b, 0x08, 0x01, 0x7c]], &[vec![0x7b, 0x7c]])),
        ("key and value twice", of(&[bytes_field(1, &[&user[2..], &user[2..]].concat())], &[])),
        ("a number that is not negative", of(&[number_field(4, 0)], &[])),
    ] {
        assert!(RateLimitRequest::decode(&*bytes).is_ok() && decided(&bytes).is_ok(), "{name}: {:?}", decided(&bytes));
        assert_read_as_by_prost(&bytes);
    }
    let limited = decided(&of(&limit, &[])).expect("a message").1;
    assert_eq!(limited.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit), Some(2), "both parts");
    let group = |end: u8| vec![0x7b, 0x08, 0x01, end];
    // Each form that a field may have, of each number.
    let forms = |number: u8| {
        let tag = |wire| number << 3 | wire;
        [
            vec![tag(0), 1],
            [&[tag(1)][..], &[7; 8]].concat(),
            vec![tag(2), 0],
            vec![tag(3), tag(4)],
            vec![tag(4)],
            [&[tag(5)][..], &[7; 4]].concat(),
            vec![tag(6)],
            vec![tag(7)],
        ]
    };
    let mut wrong = vec![
        of(&[group(0x08)], &[]),
        of(&[group(0x74)], &[]),
        of(&[], &[group(0x08)]),
        of(&[], &[vec![0x7b]]),
        of(&[], &[bytes_field(1, b"\xff")]),
        of(&[bytes_field(1, &bytes_field(1, b"\xff"))], &[]),
    ];
    for number in 1..=4 {
        let known_form = |place| match number {
            1 | 2 => [2, 2, 2, 2][place],
            3 => [0, 2, 0, 0][place],
            _ => [8, 0, 8, 8][place],
        };
        for (form, field) in forms(number).into_iter().enumerate() {
            let is_wrong = |place| form != known_form(place) && (known_form(place) != 8 || form == 4 || form > 5);
            if is_wrong(0) {
                wrong.push(of(&[], slice::from_ref(&field)));
            }
            if is_wrong(1) {
                wrong.push(of(slice::from_ref(&field), &[]));
            }
        }
    }
    assert!(wrong.len() > 50);
    for bytes in wrong {
        let why = RateLimitRequest::decode(&*bytes).expect_err("it is no message").to_string();
        assert_eq!(decided(&bytes), Err((why, None)), "{}", bytes.escape_ascii());
    }
    // A value is bytes: any are one.
    let value = bytes_field(1, &[bytes_field(1, b"path"), bytes_field(2, b"\xff\xfe")].concat());
    assert!(decided(&of(slice::from_ref(&value), &[])).is_ok());
    assert_read_as_by_prost(&of(&[value], &[]));
}

proptest! {
    #[test]
    fn every_status_is_filled_and_whoever_is_refused_charges_nobody(
        messages in proptest::collection::vec((proptest::collection::vec(any_descriptor(), 0..4), any::<u32>()), 1..9),
    ) {
        let (decider, _) = decider(POLICY);
        for (descriptors, hits_addend) in messages {
            let message = RateLimitRequest { hits_addend, ..message(descriptors) };
            let before = decider.engine().totals();
            match now(decide(&decider, &message)) {
                Ok((answer, response)) => {
                    let (overall, codes) = codes(&response);
                    prop_assert_eq!(codes.len(), message.descriptors.len());
                    prop_assert_eq!(overall == Code::Ok, codes.iter().all(|code| *code == Code::Ok));
                    prop_assert_eq!(overall == Code::Ok, answer.is_allowed);
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
                    let told = error.told();
                    prop_assert_eq!(told.status.as_u16(), 400);
                    prop_assert!(told.field.is_some_and(|field| field.starts_with("descriptors")));
                    prop_assert_eq!(decider.engine().totals(), before);
                }
            }
        }
    }

    #[test]
    fn messages_are_read_as_prost_reads_them(
        messages in proptest::collection::vec((proptest::collection::vec(any_descriptor(), 0..4), any::<u32>()), 1..4),
        unknown in proptest::collection::vec((any::<proptest::sample::Index>(), unknown_field()), 0..3),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        // Messages one after the other are one message.
        let parts = messages.into_iter().map(|(descriptors, hits_addend)| {
            RateLimitRequest { hits_addend, ..message(descriptors) }.encode_to_vec()
        });
        let mut bytes = parts.collect::<Vec<_>>().concat();
        for (place, field) in unknown {
            let place = place.index(bytes.len() + 1);
            bytes.splice(place..place, field);
        }
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len() + 1)));
        assert_read_as_by_prost(&bytes);
    }

    #[test]
    fn unknown_fields_are_passed_over(
        fields in proptest::collection::vec((1..5_usize, unknown_field()), 0..5),
        hits in 0..9_u64,
    ) {
        let at = |place| fields.iter().filter(|(of, _)| *of == place).flat_map(|(_, field)| field.clone()).collect::<Vec<u8>>();
        let entry = [bytes_field(1, b"user"), at(1), bytes_field(2, b"a")].concat();
        let hits = [at(2), number_field(1, hits)].concat();
        let descriptor = [at(3), bytes_field(1, &entry), at(3), bytes_field(3, &hits)].concat();
        let bytes = [bytes_field(1, b"edge"), at(4), bytes_field(2, &descriptor), at(4)].concat();
        prop_assert!(decided(&bytes).is_ok() && RateLimitRequest::decode(&*bytes).is_ok());
        assert_read_as_by_prost(&bytes);
    }

    /// Envoy lets pass on errors, and end users write values.
    #[test]
    fn no_value_is_an_error_or_goes_uncounted(value in prop_oneof![".{0,20}", "[ä/?#]{2000,9000}"]) {
        for (entries, left) in [
            (vec![("user", &*value)], Some(4)),
            (vec![("user", &*value), ("remote_address", &*value)], Some(2)),
            (vec![("user", "a"), ("path", &*value)], Some(4)),
            (vec![("user", "b"), ("method", &*value)], Some(4)),
        ] {
            let (decider, _) = decider(POLICY);
            prop_assert_eq!(met(&decider, &entries).map(|(_, left)| left), left, "{:?}", entries);
        }
    }

    /// Envoy lets pass on errors, and some of its configurations make such keys.
    #[test]
    fn no_key_is_an_error(keys in proptest::collection::vec(".{1,40}", 1..8)) {
        let (decider, _) = decider(POLICY);
        let entries: Vec<(&str, &str)> = keys.iter().map(|key| (&**key, "x")).collect();
        prop_assert_eq!(codes(&ask(&decider, &of(&entries))), (Code::Ok, vec![Code::Ok]));
    }

    #[test]
    fn names_fit_between_quotes_and_differ_as_before(one in ".{0,9}", other in ".{0,9}") {
        let [told, others] = [&one, &other].map(|name| tell::printable(name));
        prop_assert!(told.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')));
        prop_assert_eq!(one == other, told == others);
    }
}
