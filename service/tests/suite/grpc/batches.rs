//! Batches of checks over gRPC.

use futures_util::future::join_all;
use tidegate_service::grpc::proto::tidegate::v1::{BatchRateLimitRequest, Identity, RateLimitRequest};
use tonic::Code;

use super::{
    HUNDRED,
    support::{Server, user},
};

fn batch(requests: Vec<RateLimitRequest>) -> BatchRateLimitRequest {
    BatchRateLimitRequest { requests }
}

#[tokio::test]
async fn later_checks_see_the_charges_of_earlier_ones() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    // A batch with a request ID or a peek takes another path.
    for (who, also) in [
        ("ada", None),
        ("bob", Some(RateLimitRequest { peek: true, ..user("carol") })),
        ("dan", Some(RateLimitRequest { request_id: "1".to_owned(), ..user("carol") })),
    ] {
        let requests = (0..150).map(|_| user(who)).chain(also);
        let told = limiter.check_rate_limit_batch(batch(requests.collect())).await.expect("an answer").into_inner();
        let left: Vec<i32> = told.responses.iter().take(150).map(|response| response.remaining_tokens).collect();
        let expected: Vec<i32> = (0..150).map(|place| (99 - place).max(0)).collect();
        assert_eq!(left, expected, "{who}");
        assert_eq!(told.responses.iter().take(150).filter(|response| response.allowed).count(), 100);
    }
    let none = limiter.check_rate_limit_batch(batch(Vec::new())).await.expect("an answer").into_inner();
    assert_eq!(none.responses, []);
}

#[tokio::test]
async fn a_wrong_check_refuses_the_batch_and_nothing_is_charged() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    for (wrong, field) in [
        (RateLimitRequest::default(), "requests/7/identifier_type"),
        (user(""), "requests/7/identifier"),
        (RateLimitRequest { tokens_requested: -1, ..user("ada") }, "requests/7/tokens_requested"),
        (RateLimitRequest { identities: vec![Identity::default(); 8], ..user("ada") }, "requests/7/identities"),
        (RateLimitRequest { request_id: "i".repeat(129), ..user("ada") }, "requests/7/request_id"),
    ] {
        let requests = (0..7).map(|_| user("ada")).chain([wrong, user("")]);
        let refusal = limiter.check_rate_limit_batch(batch(requests.collect())).await.expect_err(field);
        assert_eq!(refusal.code(), Code::InvalidArgument);
        assert!(refusal.message().starts_with(&format!("{field}: ")), "{refusal:?}");
    }
    let left = limiter.check_rate_limit(user("ada")).await.expect("an answer").into_inner();
    assert_eq!(left.remaining_tokens, 99);
}

#[tokio::test]
async fn a_reused_request_id_is_reported_in_its_place() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    let id = |who: &str| RateLimitRequest { request_id: "1".to_owned(), ..user(who) };
    let requests = vec![user("ada"), id("ada"), id("bob"), id("ada"), user("ada")];
    let told = limiter.check_rate_limit_batch(batch(requests)).await.expect("answers").into_inner().responses;
    let left: Vec<i32> = told.iter().map(|response| response.remaining_tokens).collect();
    assert_eq!(left, [99, 98, 0, 98, 97]);
    let errors: Vec<bool> = told.iter().map(|response| response.error.is_some()).collect();
    assert_eq!(errors, [false, false, true, false, false]);
    let error = told[2].error.clone().expect("it is wrong");
    assert_eq!((&*error.code, &*error.field), ("request_id_reused", "requests/2/request_id"));
    assert!(error.message.starts_with("requests/2/request_id: ") && !told[2].allowed, "{error:?}");
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="grpc",code="request_id_reused"}"#), 1);
}

#[tokio::test]
async fn a_batch_has_ten_thousand_checks_at_most() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await.max_decoding_message_size(8 << 20);
    let of = |count: usize| batch((0..count).map(|number| user(&(number % 100).to_string())).collect());
    let told = limiter.check_rate_limit_batch(of(10_000)).await.expect("an answer").into_inner();
    let left: Vec<i32> = told.responses.iter().map(|response| response.remaining_tokens).collect();
    assert_eq!(left, (0..10_000).map(|place| 99 - place / 100).collect::<Vec<i32>>());
    let refusal = limiter.check_rate_limit_batch(of(10_001)).await.expect_err("one too many");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(refusal.message().starts_with("requests: 10001 in one batch"), "{refusal:?}");
}

#[tokio::test]
async fn all_checks_are_answered_where_there_is_no_decision() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    server.break_clock(true);
    let told = limiter.check_rate_limit_batch(batch(vec![user("ada"); 70])).await.expect("an answer").into_inner();
    server.break_clock(false);
    assert_eq!(told.responses.len(), 70);
    assert!(told.responses.iter().all(|response| response.allowed && response.degraded == "internal_error"));
}

/// The memory for responses cannot be taken back while they are made: a peer has 2 MiB of it, and a response to 3,000
/// checks 0.6 MB.
#[tokio::test]
async fn long_batches_of_one_peer_are_decided_three_at_a_time() {
    const CHECKS: i32 = 3_000;
    let server = Server::with(&HUNDRED.replace("100", &(6 * CHECKS).to_string()));
    // One connection is served by one thread.
    let limiter = server.limiter().await;
    let calls = (0..6).map(|_| {
        let mut limiter = limiter.clone();
        let long = batch(vec![user("ada"); CHECKS as usize]);
        async move { limiter.check_rate_limit_batch(long).await.expect("an answer").into_inner() }
    });
    // The remaining tokens after the first and the last check of each batch.
    let left: Vec<_> = join_all(calls)
        .await
        .into_iter()
        .map(|told| [0, CHECKS as usize - 1].map(|place| told.responses[place].remaining_tokens))
        .collect();
    for [begin, _] in &left {
        let under_way = left.iter().filter(|[first, last]| (last..=first).contains(&begin)).count();
        assert!(under_way <= 3, "{left:?}");
    }
    assert_eq!(left.iter().map(|[_, last]| last).min(), Some(&0));
}
