//! Handles: the limit that one looks up, its checks and peeks, and what a publish changes.

use tidegate::RequestError;

use super::*;

#[test]
fn a_handle_stays_right_across_publishes() {
    let bench = Bench::new(&one_tier(&bucket("minute", 10, "1m")));
    let mut handle = bench.engine.handle("default/tier:t/minute", "ip").expect("is there");
    assert!(bench.engine.handle("default/tier:t/none", "ip").is_none());
    let decision = handle.check_n(b"a", 4).expect("valid");
    assert_eq!((decision.remaining(), decision.limit_id()), (Some(6), Some("default/tier:t/minute")));
    assert_eq!(bench.check(&["ip=a"], "", 1).remaining(), Some(5), "the same bucket as through the policy");
    bench.publish(&one_tier(&bucket("minute", 100, "1m")));
    let decision = handle.check(b"a");
    assert_eq!((decision.remaining(), decision.policy_version()), (Some(94), 2));
    bench.publish(&one_tier(&bucket("other", 1, "1m")));
    assert_eq!(handle.check(b"a").limit_id(), None);
    assert!(handle.check_n(b"a", 0).is_err());
}

#[test]
fn a_peek_by_handle_returns_what_a_check_would_and_charges_nothing() {
    let bench = Bench::new(&one_tier(&bucket("minute", 10, "1m")));
    let mut handle = bench.engine.handle("default/tier:t/minute", "ip").expect("is there");
    assert_eq!(handle.peek(b"a").remaining(), Some(9));
    assert_eq!(handle.peek_n(b"a", 4).expect("valid").remaining(), Some(6));
    assert_eq!(handle.peek_n(b"a", 0).expect("valid").remaining(), Some(10));
    assert_eq!(handle.peek_n(b"a", 11).expect("valid").retry(), Retry::Never);
    assert!(matches!(handle.peek_n(b"a", 1 << 53), Err(RequestError::Cost(_))));
    assert_eq!(handle.check_n(b"a", 10).expect("valid").remaining(), Some(0), "the peeks charged nothing");
    let (peeked, checked) = (handle.peek(b"a"), handle.check(b"a"));
    assert_eq!((peeked.is_allowed(), peeked.retry()), (false, checked.retry()));
    assert_eq!(bench.engine.totals().allowed, 1, "the peeks are not counted");
    bench.publish(&one_tier(&bucket("minute", 100, "1m")));
    assert_eq!(handle.peek(b"a").policy_version(), 2);
    bench.publish(&one_tier(&bucket("other", 1, "1m")));
    assert_eq!(handle.peek(b"a").limit_id(), None);
    bench.publish(&one_tier(&bucket("minute", 5, "1m")));
    assert_eq!((handle.peek(b"a").limit_id(), handle.peek(b"a").policy_version()), (Some("default/tier:t/minute"), 4));
}

/// A limit in a store that a node decides without a bucket: a publish is seen all the same.
#[test]
fn a_peek_by_a_handle_follows_publishes_of_a_limit_without_buckets() {
    let strict = |on_failure: &str| {
        bucket("minute", 10, "1m").replace(" }", &format!(", sharing = \"strict\", on_failure = \"{on_failure}\" }}"))
    };
    let bench = Bench::new(&one_tier(&strict("closed")));
    let mut handle = bench.engine.handle("default/tier:t/minute", "ip").expect("is there");
    assert!(!handle.peek(b"a").is_allowed());
    bench.publish(&one_tier(&strict("open")));
    assert!(handle.peek(b"a").is_allowed());
    bench.publish(&one_tier(&bucket("minute", 10, "1m")));
    assert_eq!(handle.peek(b"a").remaining(), Some(9));
}

#[test]
fn a_handle_is_there_only_for_what_its_limit_counts() {
    let rules: String = [("one", "\"ip\""), ("two", "[\"ip\", \"user\"]"), ("all", "\"everyone\"")]
        .map(|(id, per)| {
            let limit = bucket("l", 5, "1m");
            format!("[[domains.default.rules]]\nid = \"{id}\"\nendpoint = \"*\"\nper = {per}\nlimits = [{limit}]\n")
        })
        .concat();
    let bench = Bench::new(&format!("{}\n{rules}", one_tier(&bucket("minute", 10, "1m"))));
    let is_there = |limit: &str, kind| bench.engine.handle(limit, kind).is_some();
    assert!(is_there("default/rule:one/l", "ip") && is_there("default/tier:t/minute", "ip"));
    assert!(!is_there("default/rule:one/l", "user"), "a bucket that no request counts in");
    assert!(!is_there("default/rule:two/l", "ip") && !is_there("default/rule:all/l", "ip"));
}
