//! Reservations over gRPC.

use std::time::Duration;

use tidegate_service::grpc::proto::tidegate::v1::{RateLimitRequest, RefundRequest, SettleRequest};
use tonic::Code;

use super::{
    HUNDRED,
    support::{Server, user},
};

#[tokio::test]
async fn a_reservation_is_settled_or_refunded_once() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    let estimate = || RateLimitRequest { tokens_requested: 40, ..user("ada") };
    let [first, second] = {
        let first = limiter.reserve(estimate()).await.expect("an answer").into_inner();
        let second = limiter.reserve(estimate()).await.expect("an answer").into_inner();
        [first, second]
    };
    let left = |told: &Option<_>| {
        told.as_ref().map(|told: &tidegate_service::grpc::proto::tidegate::v1::RateLimitResponse| told.remaining_tokens)
    };
    assert_eq!([left(&first.response), left(&second.response)], [Some(60), Some(20)]);
    let denied = limiter.reserve(estimate()).await.expect("an answer").into_inner();
    assert!(denied.reservation.is_empty() && denied.response.is_some_and(|told| !told.allowed));

    let settle = |reservation: &str, actual| SettleRequest { reservation: reservation.to_owned(), actual };
    let refund = |reservation: &str| RefundRequest { reservation: reservation.to_owned() };
    limiter.settle(settle(&first.reservation, 10)).await.expect("it is open");
    limiter.refund(refund(&second.reservation)).await.expect("it is open");
    for reservation in [&first.reservation, &second.reservation] {
        let again = limiter.settle(settle(reservation, 1)).await.expect_err("once");
        assert_eq!(again.code(), Code::FailedPrecondition, "{again:?}");
        let again = limiter.refund(refund(reservation)).await.expect_err("once");
        assert_eq!(again.code(), Code::FailedPrecondition, "{again:?}");
    }
    for unknown in ["", "nobody", "AAAAAAAAAAAAAAAAAAAAAAAA"] {
        let refusal = limiter.refund(refund(unknown)).await.expect_err("unknown");
        assert_eq!(refusal.code(), Code::NotFound);
    }
    let refusal = limiter.settle(settle(&first.reservation, 1 << 53)).await.expect_err("too much");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(refusal.message().starts_with("actual: "), "{refusal:?}");
    let told = limiter.check_rate_limit(user("ada")).await.expect("an answer").into_inner();
    assert_eq!(told.remaining_tokens, 89);
}

/// A policy of 10 a minute for everyone together.
const EVERYONE: &str = r#"
    [domains.default]
    [[domains.default.rules]]
    id = "all"
    endpoint = "*"
    per = "everyone"
    limits = [{ id = "minute", algorithm = "token_bucket", limit = 10, period = "1m" }]
"#;

#[tokio::test]
async fn an_implausibly_large_cost_is_refused_and_no_cost_denies_for_long() {
    let server = Server::with(EVERYONE);
    let mut limiter = server.limiter().await;
    let mut reserved = Vec::new();
    for _ in 0..3 {
        reserved.push(limiter.reserve(user("ada")).await.expect("an answer").into_inner().reservation);
    }
    let settle = |reservation: &String, actual| SettleRequest { reservation: reservation.clone(), actual };
    let refusal = limiter.settle(settle(&reserved[0], (1 << 53) - 1)).await.expect_err("too much");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(refusal.message().starts_with("actual: ") && refusal.message().contains("is above 16,"), "{refusal:?}");
    let told = limiter.check_rate_limit(user("bob")).await.expect("an answer").into_inner();
    assert_eq!((told.allowed, told.remaining_tokens), (true, 6), "nothing but the estimates is charged");
    for reservation in &reserved {
        limiter.settle(settle(reservation, 16)).await.expect("it is still open");
    }
    let told = limiter.check_rate_limit(user("bob")).await.expect("an answer").into_inner();
    assert_eq!((told.allowed, told.retry_after_ms), (false, Some(66_000)), "ten are owed, and one is asked for");
    server.clock.advance(Duration::from_secs(66));
    assert!(limiter.check_rate_limit(user("bob")).await.expect("an answer").into_inner().allowed);
}

#[tokio::test]
async fn a_reservation_with_peek_is_an_error() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    let refusal = limiter.reserve(RateLimitRequest { peek: true, ..user("ada") }).await.expect_err("it charges");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(refusal.message().starts_with("peek: "), "{refusal:?}");
}
