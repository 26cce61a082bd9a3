//! The families of response headers by the settings of a domain, and decisions without a store.

use std::time::Duration;

use super::{
    HUNDRED,
    support::{START, Server},
    user,
};

const HEADERS: [&str; 6] =
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit", "retry-after"];

/// Returns [`HUNDRED`] with a response setting.
fn hundred_with(setting: &str) -> String {
    HUNDRED.replacen("[domains.default]", &format!("[domains.default]\n{setting}"), 1)
}

fn told(policy: &str, costs: &[u64]) -> Vec<[Option<String>; 6]> {
    let server = Server::with(policy);
    let each = costs.iter().map(|cost| {
        server.clock.advance(Duration::from_millis(500));
        let answer = server.check(&user("ada").replace("]}", &format!(r#"],"cost":{cost}}}"#)));
        HEADERS.map(|name| answer.header(name).map(str::to_owned))
    });
    each.collect()
}

#[test]
fn the_ietf_family_names_the_limit_its_quota_and_its_time() {
    let told = told(&hundred_with("headers = \"ietf\""), &[60, 60, 101]);
    let policy = r#""default/tier:free/minute";q=100;w=60"#;
    // The reset is rounded up: the minute ends in 59.5, 59 and 58.5 seconds.
    let allowed = r#""default/tier:free/minute";r=40;t=60"#;
    // The retry time of a denial is up to a tenth longer, and both headers have the same.
    let wait: u64 = told[1][5].as_deref().expect("a denial says when").parse().expect("seconds");
    assert!((59..=65).contains(&wait), "{wait}");
    let (denied, wait) = (format!(r#""default/tier:free/minute";r=40;t={wait}"#), wait.to_string());
    let never = r#""default/tier:free/minute";r=40;t=59"#;
    let expect = |values: [Option<&str>; 6]| values.map(|value| value.map(str::to_owned));
    assert_eq!(told[0], expect([None, None, None, Some(policy), Some(allowed), None]));
    assert_eq!(told[1], expect([None, None, None, Some(policy), Some(&denied), Some(&wait)]));
    // A cost that never fits has no retry time.
    assert_eq!(told[2], expect([None, None, None, Some(policy), Some(never), None]));
}

#[test]
fn a_denial_has_its_headers_in_every_family() {
    for (family, names) in [
        ("x-ratelimit", &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"][..]),
        ("ietf", &["ratelimit-policy", "ratelimit", "retry-after"]),
        ("none", &["retry-after"]),
    ] {
        for reset in ["epoch", "delta"] {
            let setting = format!("headers = \"{family}\"\nreset = \"{reset}\"");
            let server = Server::with(&hundred_with(&setting));
            let check = |cost| server.check(&user("ada").replace("]}", &format!(r#"],"cost":{cost}}}"#)));
            assert_eq!([check(100).status, check(1).status], [200, 429], "{setting}");
            let denial = check(1);
            let told: Vec<&str> = HEADERS.into_iter().filter(|name| denial.header(name).is_some()).collect();
            assert_eq!((denial.status, &*told), (429, names), "{setting}");
            assert_eq!(denial.json()["allowed"], false, "{setting}");
        }
    }
}

#[test]
fn a_name_that_no_header_can_carry_is_percent_encoded() {
    let policy = format!(
        r#"{}
        [[domains.default.clients]]
        kind = "user"
        value = "ad\"a é"
        override = {{ limits = [{{ id = "own", algorithm = "token_bucket", limit = 9007199254740991, period = "366d" }}] }}"#,
        hundred_with("headers = \"ietf\"")
    );
    let server = Server::with(&policy);
    // The tier's limit has the least left, so the client's own is used up.
    let body = user(r#"ad\"a é"#).replace("]}", r#"],"cost":9007199254740991,"peek":true}"#);
    assert_eq!(server.check(&body).header("ratelimit-policy"), Some(r#""default/tier:free/minute";q=100;w=60"#));
    server.publish(&policy.replace("9007199254740991", "1").replace("366d", "1ms"));
    let answer = server.check(&user(r#"ad\"a é"#));
    assert_eq!(answer.header("ratelimit-policy"), Some(r#""default/client:user:ad\"a %C3%A9/own";q=1;w=1"#));
}

#[test]
fn a_reset_can_be_in_seconds_from_now_and_headers_can_be_off() {
    let delta = told(&hundred_with("reset = \"delta\""), &[1]);
    assert_eq!(delta[0][2].as_deref(), Some("60"));
    let epoch = told(HUNDRED, &[1]);
    assert_eq!(epoch[0][2], Some((START + 60).to_string()));
    let none = told(&hundred_with("headers = \"none\""), &[60, 60]);
    assert_eq!(none[0], [const { None }; 6]);
    assert_eq!(none[1][..5], [const { None }; 5]);
    assert!(none[1][5].is_some(), "when to come again is always told");
}

#[test]
fn a_shared_limit_without_a_store_is_marked() {
    let shared = HUNDRED.replace("period", "sharing = \"strict\", period");
    let server = Server::with(&shared);
    let body = server.check(&user("ada")).json();
    assert_eq!((&body["degraded"], &body["limit"]), (&"no_store".into(), &50.into()));
    let server = Server::with(HUNDRED);
    assert!(server.check(&user("ada")).json().get("degraded").is_none());
}
