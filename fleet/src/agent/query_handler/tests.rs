//! Tests of the query handler over an engine without a store.

use std::thread;

use tidegate::{Snapshot, policy::Sharing};
use tokio::{
    runtime,
    time::{Instant, sleep},
};

use super::*;
use crate::wire::{BODY_BYTES_MAX, DECISIONS_MAX, Decisions, SeenDecision, WatchCursor};

fn engine() -> Arc<Engine> {
    let engine = Engine::with_max_keys(100);
    let policy = serde_json::from_str(
        r#"{"domains": {"default": {"defaults": {"user": "free"}, "tiers": [
            {"id": "free", "limits": [{"id": "minute", "algorithm": "fixed_window", "limit": 3, "period": "1h"}]}
        ]}}}"#,
    );
    engine.publish(Snapshot::compile(&policy.expect("JSON")).expect("valid")).expect("it fits");
    Arc::new(engine)
}

fn check(engine: &Engine, user: &str) -> bool {
    let who = [Identity::new("user", user).expect("valid")];
    engine.check(&Request::new(&who).expect("valid")).is_allowed()
}

fn question(user: &str) -> QueryRequest {
    let identities = vec![QueryIdentity { kind: "user".to_owned(), value: user.to_owned() }];
    QueryRequest { domain: None, identities, endpoint: None, method: None, cost: None }
}

/// Runs a future on a paused clock, which jumps to the next timer when no task can run.
fn run<T>(what: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime").block_on(what)
}

#[test]
fn a_charge_counts_like_a_check_over_a_listener() {
    let engine = engine();
    let answers = QueryHandler::of(Arc::clone(&engine), None);
    run(async {
        let mut each = Vec::new();
        for _ in 0..4 {
            let reply = answers.answer(NodeQuery::Charge { request: question("ada") }).await;
            let NodeReply::Charge { policy_version: 1, allowed, limit_id, unknown_domain: false, retry_after_ms } =
                reply
            else {
                panic!("{reply:?}")
            };
            assert_eq!(limit_id.as_deref(), Some("default/tier:free/minute"));
            each.push((allowed, retry_after_ms == Some(0)));
        }
        assert_eq!(each, [(true, true), (true, true), (true, true), (false, false)]);
        assert!(!check(&engine, "ada") && check(&engine, "bob"));
        // A kind that has no limit, and a domain that does not exist.
        let planet = QueryRequest::of_one(QueryIdentity { kind: "planet".to_owned(), value: "mars".to_owned() });
        let elsewhere = QueryRequest { domain: Some("nowhere".to_owned()), ..question("ada") };
        for (request, is_unknown) in [(planet, false), (elsewhere, true)] {
            let reply = answers.answer(NodeQuery::Charge { request }).await;
            let NodeReply::Charge { allowed: true, limit_id: None, unknown_domain, .. } = reply else {
                panic!("{reply:?}")
            };
            assert_eq!(unknown_domain, is_unknown);
        }
    });
}

#[test]
fn a_peek_charges_nothing_and_a_reset_clears_all() {
    let engine = engine();
    let answers = QueryHandler::of(Arc::clone(&engine), None);
    run(async {
        assert!((0..3).all(|_| check(&engine, "ada")));
        for _ in 0..2 {
            let NodeReply::Peek { policy_version: 1, allowed: false, limit_id, retry_after_ms, limits } =
                answers.answer(NodeQuery::Peek { request: question("ada") }).await
            else {
                panic!("it looks")
            };
            assert_eq!(limit_id.as_deref(), Some("default/tier:free/minute"));
            // The window ends, and all its tokens come back.
            assert!(retry_after_ms > Some(0) && retry_after_ms <= Some(limits[0].reset_after_ms), "{limits:?}");
            assert_eq!((limits[0].retry_after_ms, limits[0].remaining_after), (retry_after_ms, 0));
            assert_eq!((limits.len(), limits[0].limit, limits[0].remaining), (1, 3, 0));
            assert_eq!(limits[0].limit_id, "default/tier:free/minute");
            assert!(limits[0].says.starts_with("Fixed window: 3 of 3 are used"), "{limits:?}");
        }
        let reply = answers.answer(NodeQuery::Reset { request: question("ada") }).await;
        let NodeReply::Reset { keys: 1, cleared } = reply else { panic!("{reply:?}") };
        // The state before the reset.
        assert_eq!((cleared.len(), cleared[0].limit, cleared[0].remaining), (1, 3, 0));
        assert!((0..3).all(|_| check(&engine, "ada")) && !check(&engine, "ada"));
        // A key with nothing to reset.
        let nothing = NodeReply::Reset { keys: 0, cleared: Vec::new() };
        assert_eq!(answers.answer(NodeQuery::Reset { request: question("bob") }).await, nothing);
        let no_identity = QueryRequest { identities: Vec::new(), ..question("ada") };
        assert!(matches!(answers.answer(NodeQuery::Peek { request: no_identity }).await, NodeReply::Failed { .. }));
    });
}

#[test]
fn a_reset_clears_limits_that_everyone_shares_and_returns_them() {
    let engine = engine();
    let policy = serde_json::from_str(
        r#"{"domains": {"default": {"rules": [{"id": "all", "endpoint": "*", "per": "everyone",
            "limits": [{"id": "hour", "algorithm": "token_bucket", "limit": 2, "period": "1h"}]}]}}}"#,
    );
    engine.publish(Snapshot::compile(&policy.expect("JSON")).expect("valid")).expect("it fits");
    let answers = QueryHandler::of(Arc::clone(&engine), None);
    assert!(check(&engine, "ada") && check(&engine, "ada") && !check(&engine, "bob"));
    let reply = run(answers.answer(NodeQuery::Reset { request: question("ada") }));
    let NodeReply::Reset { keys: 1, cleared } = reply else { panic!("{reply:?}") };
    assert_eq!((cleared.len(), &*cleared[0].limit_id, cleared[0].remaining), (1, "default/rule:all/hour", 0));
    assert!(check(&engine, "bob") && check(&engine, "bob"));
}

#[test]
fn the_fullest_limit_of_each_identity_is_returned() {
    let engine = engine();
    let answers = QueryHandler::of(Arc::clone(&engine), None);
    assert!(check(&engine, "ada") && check(&engine, "ada"));
    let who = |kind: &str, value: &str| QueryIdentity { kind: kind.to_owned(), value: value.to_owned() };
    let each = vec![who("user", "ada"), who("user", "bob"), who("ip", "192.0.2.1"), who("No kind", "x")];
    let asked = |domain: Option<&str>| NodeQuery::Fullest { domain: domain.map(str::to_owned), each: each.clone() };
    let NodeReply::Fullest { each: reply } = run(answers.answer(asked(None))) else { panic!("it looks") };
    let left: Vec<_> = reply.iter().map(|limit| limit.as_ref().map(|limit| limit.remaining)).collect();
    assert_eq!(left, [Some(1), Some(3), None, None], "{reply:?}");
    let NodeReply::Fullest { each: reply } = run(answers.answer(asked(Some("other")))) else { panic!("it looks") };
    assert_eq!(reply, [None, None, None, None]);
    // Nothing was charged, and identities above the most of a query are ignored.
    let many = NodeQuery::Fullest { domain: None, each: vec![who("user", "ada"); FULLEST_MAX + 1] };
    let NodeReply::Fullest { each: reply } = run(answers.answer(many)) else { panic!("it looks") };
    assert_eq!(reply.len(), FULLEST_MAX);
    assert!(reply.iter().flatten().all(|limit| limit.remaining == 1));
}

#[test]
fn the_fuller_limit_has_less_left_of_what_it_gives() {
    let limit = |limit, remaining| PeekedLimit {
        limit_id: String::new(),
        limit,
        remaining,
        reset_after_ms: 0,
        retry_after_ms: Some(0),
        remaining_after: 0,
        sharing: Sharing::Local,
        is_stored: false,
        is_shadow: false,
        says: String::new(),
    };
    assert!(limit(10, 1).is_fuller(&limit(1_000, 101)) && !limit(10, 1).is_fuller(&limit(1_000, 99)));
    assert!(!limit(10, 1).is_fuller(&limit(20, 2)), "as full");
    assert!(limit(u64::MAX, 0).is_fuller(&limit(u64::MAX, 1)));
}

#[test]
fn a_reply_fits_however_long_its_decisions_are() {
    let answers = QueryHandler::of(engine(), None);
    run(async {
        let (sampled, ()) =
            tokio::join!(answers.answer(NodeQuery::Sample { count: DECISIONS_MAX, for_ms: 300 }), async {
                sleep(Duration::from_millis(50)).await;
                let value = "\u{1}".repeat(1_024);
                let kinds: Vec<String> = (0..8).map(|kind| format!("kind{kind}")).collect();
                let who: Vec<_> = kinds.iter().map(|kind| Identity::new(kind, &value).expect("valid")).collect();
                for _ in 0..DECISIONS_MAX {
                    let _ = answers.engine.check(&Request::new(&who).expect("valid"));
                }
            });
        let bytes = serde_json::to_vec(&sampled).expect("JSON").len();
        assert!((BODY_BYTES_MAX * 9 / 10..BODY_BYTES_MAX - 512).contains(&bytes), "{bytes}");
        let NodeReply::Sample(sampled) = sampled else { panic!("{sampled:?}") };
        assert_eq!(sampled.seen, DECISIONS_MAX as u64);
    });
}

#[test]
fn a_watch_sees_one_identity_and_a_sample_sees_any() {
    let engine = engine();
    let answers = QueryHandler::of(Arc::clone(&engine), None);
    run(async {
        let who = QueryIdentity { kind: "user".to_owned(), value: "ada".to_owned() };
        let (watched, sampled, ()) = tokio::join!(
            answers.answer(NodeQuery::Watch { who, for_ms: 300, cursor: None }),
            answers.answer(NodeQuery::Sample { count: 2, for_ms: 300 }),
            async {
                sleep(Duration::from_millis(50)).await;
                for user in ["ada", "bob", "ada", "ada", "ada"] {
                    check(&engine, user);
                }
            },
        );
        assert!(format!("{:?}", answers.engine).contains("observers: 0"), "no query waits any more");
        let NodeReply::Watch(watched) = watched else { panic!("{watched:?}") };
        let allowed: Vec<bool> = watched.decisions.iter().map(|decision| decision.allowed).collect();
        assert_eq!((watched.seen, allowed), (4, vec![true, true, true, false]));
        let NodeReply::Sample(sampled) = sampled else { panic!("{sampled:?}") };
        assert_eq!((sampled.seen, sampled.decisions.len()), (5, 2));
        assert_eq!(sampled.decisions[1].identities[0].value, "bob");
    });
}

#[test]
fn an_address_is_found_in_every_spelling() {
    let engine = Engine::with_max_keys(100);
    let policy = serde_json::from_str(
        r#"{"domains": {"default": {"defaults": {"ip": "free"}, "tiers": [
            {"id": "free", "limits": [{"id": "minute", "algorithm": "fixed_window", "limit": 3, "period": "1h"}]}
        ]}}}"#,
    );
    engine.publish(Snapshot::compile(&policy.expect("JSON")).expect("valid")).expect("it fits");
    let engine = Arc::new(engine);
    let answers = QueryHandler::of(Arc::clone(&engine), None);
    let ip = |value: &str| QueryIdentity { kind: "ip".to_owned(), value: value.to_owned() };
    run(async {
        for (came, spellings) in [
            ("::ffff:192.0.2.7", ["192.0.2.7", "::FFFF:192.0.2.7"]),
            ("2001:db8::7", ["2001:DB8:0:0::7", "2001:db8::8"]),
        ] {
            let counted = engine.counted(DEFAULT_DOMAIN, Identity::new("ip", came).expect("valid"));
            let counted = counted.expect("an address");
            let identities = [counted.identity()];
            let request = Request::new(&identities).expect("valid");
            for spelling in spellings {
                let (watched, ()) = tokio::join!(
                    answers.answer(NodeQuery::Watch { who: ip(spelling), for_ms: 300, cursor: None }),
                    async {
                        sleep(Duration::from_millis(50)).await;
                        assert!(engine.check(&request).is_allowed());
                    },
                );
                let NodeReply::Watch(watched) = watched else { panic!("{watched:?}") };
                assert_eq!(watched.seen, 1, "{spelling}");
            }
            for spelling in spellings {
                let reply = answers.answer(NodeQuery::Peek { request: QueryRequest::of_one(ip(spelling)) }).await;
                let NodeReply::Peek { limits, .. } = reply else { panic!("{reply:?}") };
                assert_eq!(limits[0].remaining, 1, "{spelling}");
                let reply = answers.answer(NodeQuery::Fullest { domain: None, each: vec![ip(spelling)] }).await;
                let NodeReply::Fullest { each } = reply else { panic!("{reply:?}") };
                assert_eq!(each[0].as_ref().map(|limit| limit.remaining), Some(1), "{spelling}");
            }
            let reply = answers.answer(NodeQuery::Reset { request: QueryRequest::of_one(ip(spellings[0])) }).await;
            let NodeReply::Reset { keys: 1, .. } = reply else { panic!("{reply:?}") };
            assert_eq!(engine.peek(&request).remaining(), Some(2), "of three one would be charged");
        }
    });
}

#[test]
fn a_watch_takes_the_values_of_all_domains_and_of_its_kind_alone() {
    let engine = Engine::with_max_keys(100);
    let policy = serde_json::from_str(
        r#"{"domains": {"default": {}, "shop": {
            "clients": [{"kind": "ip", "value": "2001:db8:0:0:1::/80", "tier": "free"}],
            "tiers": [{"id": "free", "unlimited": true}]
        }}}"#,
    );
    engine.publish(Snapshot::compile(&policy.expect("JSON")).expect("valid")).expect("it fits");
    let engine = Arc::new(engine);
    let answers = QueryHandler::of(Arc::clone(&engine), None);
    run(async {
        for (kind, watched, domain, checked, seen) in [
            ("ip", "2001:DB8:0:0:1::7", "default", "2001:db8::7", 1),
            ("ip", "2001:DB8:0:0:1::7", "shop", "2001:db8:0:0:1::9", 1),
            ("remote_address", "2001:DB8::7", "shop", "2001:db8::7", 1),
            ("user", "2001:DB8::7", "shop", "2001:db8::7", 0),
            ("user", "2001:DB8::7", "shop", "2001:DB8::7", 1),
        ] {
            let who = QueryIdentity { kind: kind.to_owned(), value: watched.to_owned() };
            let (reply, ()) =
                tokio::join!(answers.answer(NodeQuery::Watch { who, for_ms: 300, cursor: None }), async {
                    sleep(Duration::from_millis(50)).await;
                    let counted = engine.counted(domain, Identity::new(kind, checked).expect("valid"));
                    let counted = counted.expect("an address");
                    let identities = [counted.identity()];
                    let _ = engine.check(&Request::new(&identities).expect("valid").domain(domain));
                });
            let NodeReply::Watch(decisions) = reply else { panic!("{reply:?}") };
            assert_eq!(decisions.seen, seen, "{kind} {watched}: {checked} in {domain}");
        }
    });
}

fn who(user: &str) -> QueryIdentity {
    QueryIdentity { kind: "user".to_owned(), value: user.to_owned() }
}

/// Queries the watch of ada for the decisions after this number.
async fn continue_watch(answers: &QueryHandler, after: u64) -> Decisions {
    let cursor = Some(WatchCursor { watch: "a".to_owned(), after });
    match answers.answer(NodeQuery::Watch { who: who("ada"), for_ms: 300, cursor }).await {
        NodeReply::Watch(decisions) => decisions,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_watch_that_continues_misses_nothing_between_two_queries() {
    let engine = engine();
    let answers = QueryHandler::of(Arc::clone(&engine), None);
    run(async {
        let nothing = continue_watch(&answers, 0).await;
        assert_eq!((nothing.seen, nothing.last, nothing.decisions.len()), (0, 0, 0));
        // No query waits just now.
        let identities = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&identities).expect("valid").method("POST").endpoint("/a").expect("valid");
        let _ = engine.check(&request.cost(2).expect("valid"));
        check(&engine, "bob");
        let reply = continue_watch(&answers, 0).await;
        assert_eq!((reply.seen, reply.last, reply.since_ms), (1, 1, nothing.since_ms));
        let SeenDecision { method, endpoint, cost, .. } = &reply.decisions[0];
        assert_eq!((method.as_deref(), endpoint.as_deref(), *cost), (Some("POST"), Some("/a"), Some(2)));
        // A reply that was lost is sent again, and decisions without room are counted.
        for _ in 0..DECISIONS_MAX + 50 {
            check(&engine, "ada");
        }
        for _ in 0..2 {
            let reply = continue_watch(&answers, 1).await;
            assert_eq!((reply.seen, reply.last), (DECISIONS_MAX as u64 + 50, DECISIONS_MAX as u64 + 51));
            assert_eq!(reply.decisions.len(), DECISIONS_MAX);
        }
        let now = Instant::now();
        let later = async {
            sleep(Duration::from_millis(20)).await;
            check(&engine, "ada");
        };
        let last = DECISIONS_MAX as u64 + 51;
        let cursor = Some(WatchCursor { watch: "a".to_owned(), after: last });
        let asked = NodeQuery::Watch { who: who("ada"), for_ms: 1_500, cursor };
        let (reply, ()) = tokio::join!(answers.answer(asked), later);
        assert!(matches!(&reply, NodeReply::Watch(reply) if reply.seen == 1 && reply.last == last + 1), "{reply:?}");
        assert!(now.elapsed() < Duration::from_millis(1_200), "it is told soon");
        // The watch of a caller that does not come back ends, and then the engine is not observed.
        sleep(Duration::from_secs(9)).await;
        assert!(format!("{engine:?}").contains("observers: 1"));
        sleep(Duration::from_millis(1_500)).await;
        assert!(format!("{engine:?}").contains("observers: 0"));
        // `since_ms` is by the engine's clock, which the paused one does not move.
        thread::sleep(Duration::from_millis(2));
        assert_ne!(continue_watch(&answers, last + 1).await.since_ms, nothing.since_ms);
    });
}

#[test]
fn decisions_that_do_not_fit_come_with_the_next_reply() {
    let engine = engine();
    let answers = QueryHandler::of(Arc::clone(&engine), None);
    run(async {
        let _ = continue_watch(&answers, 0).await;
        let long = "\u{1}".repeat(1_024);
        let kinds: Vec<String> = (0..7).map(|kind| format!("kind{kind}")).collect();
        let mut identities: Vec<_> = kinds.iter().map(|kind| Identity::new(kind, &long).expect("valid")).collect();
        identities.push(Identity::new("user", "ada").expect("valid"));
        for _ in 0..DECISIONS_MAX {
            let _ = engine.check(&Request::new(&identities).expect("valid"));
        }
        let first = continue_watch(&answers, 0).await;
        assert!(first.last < DECISIONS_MAX as u64 && first.seen == first.decisions.len() as u64, "{}", first.seen);
        let mut last = first.last;
        while last < DECISIONS_MAX as u64 {
            let reply = continue_watch(&answers, last).await;
            assert_eq!((reply.seen, reply.last), (reply.decisions.len() as u64, last + reply.seen));
            last = reply.last;
        }
    });
}
