//! Tests of the shares of callers over real sockets: a caller that takes all places for reservations or request IDs
//! that it can get, beside a well-behaved one.

use std::{fs, net::Ipv4Addr};

use tidegate_service::{ListenerSettings, Tokens, grpc::proto::tidegate::v1::rate_limiter_client::RateLimiterClient};
use tonic::{
    Code,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};

use crate::{
    budget::{GOOD, HOSTILE, Server, blocking, check_of, connect},
    http::{
        support::{Connection, HttpReply, request},
        user,
    },
};

/// One percent of the places of a table.
const SHARE: u8 = 1;
/// The open reservations that one caller may have with this share.
const OPEN_MAX: usize = 1_000;
/// The quota of a user in a minute: see [`HUNDRED`](crate::http::HUNDRED).
const QUOTA: usize = 100;

async fn http_from(server: &Server, source: Ipv4Addr) -> Connection {
    Connection::over(blocking(connect(source, server.http).await))
}

async fn grpc_from(server: &Server, source: Ipv4Addr) -> RateLimiterClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).expect("an address");
    let channel = endpoint.local_address(Some(source.into())).connect().await.expect("the server listens");
    RateLimiterClient::new(channel)
}

/// Reserves by `ask` for a user with quota, until that is refused. Returns the reservations, and the refusal.
fn reserve_all(mut ask: impl FnMut(&str) -> HttpReply) -> (Vec<String>, HttpReply) {
    let mut held = Vec::new();
    loop {
        let answer = ask(&format!("mallory-{}", held.len() / QUOTA));
        if answer.status != 200 {
            return (held, answer);
        }
        held.push(answer.json()["reservation"].as_str().expect("an id").to_owned());
        assert!(held.len() <= OPEN_MAX, "it has more than its share");
    }
}

fn is_refused(answer: &HttpReply) -> bool {
    let error = &answer.json();
    answer.status == 503 && error["code"] == "too_many_reservations" && error["errors"].is_null()
}

/// Returns whether these are the responses to more requests of a user than its quota.
fn are_of_quota(answers: &[HttpReply], is_whole: impl Fn(&HttpReply) -> bool) -> bool {
    let (allowed, denied) = answers.split_at(QUOTA);
    let is_undegraded = |answer: &HttpReply| answer.json()["degraded"].is_null();
    allowed.iter().all(|answer| answer.status == 200 && is_whole(answer))
        && denied.iter().all(|answer| answer.status == 429)
        && answers.iter().all(is_undegraded)
}

#[tokio::test]
async fn a_caller_with_all_the_reservations_that_it_can_get_leaves_others_their_quota() {
    let server = Server::sharing(SHARE, ListenerSettings::default());
    let mut hostile = http_from(&server, HOSTILE).await;
    let (held, refusal) = reserve_all(|name| hostile.post("/v1/reserve", user(name)));
    assert!(held.len() == OPEN_MAX && is_refused(&refusal), "{} {refusal:?}", held.len());
    let message = refusal.json()["detail"].clone();
    let message = message.as_str().expect("text");
    assert!(message.contains("has 1000 open") && message.contains("--caller-share"), "{message}");
    let refusal = grpc_from(&server, HOSTILE).await.reserve(check_of("ivan")).await.expect_err("it has its share");
    assert!(refusal.code() == Code::Unavailable && refusal.message().starts_with("reservation: "), "{refusal:?}");
    assert_eq!(
        refusal.metadata().get("tidegate-code").map(MetadataValue::as_bytes),
        Some(&b"too_many_reservations"[..])
    );

    let mut good = http_from(&server, GOOD).await;
    let answers: Vec<_> = (0..QUOTA + 10).map(|_| good.post("/v1/reserve", user("grace"))).collect();
    assert!(are_of_quota(&answers, |answer| answer.json()["reservation"].is_string()));
    let mut limiter = grpc_from(&server, GOOD).await;
    let mut reserved = 0;
    for _ in 0..QUOTA + 10 {
        let told = limiter.reserve(check_of("heidi")).await.expect("it is decided").into_inner();
        reserved += usize::from(!told.reservation.is_empty());
    }
    assert_eq!(reserved, QUOTA);

    // The refused caller was charged nothing, and may check and settle.
    let peek = user("ivan").replace("]}", r#"],"peek":true,"cost":0}"#);
    assert_eq!(hostile.post("/v1/check", peek).json()["remaining"], QUOTA);
    assert_eq!(hostile.post("/v1/check", user("ivan")).json()["remaining"], QUOTA - 1);
    // Its share is one percent of the places that the other caller leaves.
    let share = OPEN_MAX - 2 * QUOTA / 100;
    for reservation in &held[..=OPEN_MAX - share] {
        assert_eq!(hostile.post("/v1/refund", format!(r#"{{"reservation":"{reservation}"}}"#)).status, 204);
    }
    assert_eq!(hostile.post("/v1/reserve", user("ivan")).status, 200);
    assert!(is_refused(&hostile.post("/v1/reserve", user("ivan"))));

    assert_eq!(server.metric("tidegate_open_reservations"), (share + 2 * QUOTA) as u64);
    let refused = |reason| server.metric(&format!(r#"tidegate_refused_reservations_total{{reason="{reason}"}}"#));
    assert_eq!([refused("caller"), refused("table")], [3, 0]);
    assert_eq!(server.metric(r#"tidegate_degraded_total{reason="overload"}"#), 0);
    for reason in ["errors", "reservations"] {
        assert_eq!(server.metric(&format!(r#"tidegate_health_degraded{{reason="{reason}"}}"#)), 0, "{reason}");
    }
}

#[tokio::test]
async fn a_caller_with_all_the_request_ids_that_it_can_get_leaves_others_theirs() {
    const BATCH: usize = 10_000;
    const BATCHES: usize = 2;
    let server = Server::sharing(SHARE, ListenerSettings::default());
    let named = |name: &str, id: &str| user(name).replace("]}", &format!(r#"],"request_id":"{id}"}}"#));
    let mut good = http_from(&server, GOOD).await;
    let mut ask = |name: &str, number: usize| good.post("/v1/check", named(name, &format!("{name}-{number}")));
    let first: Vec<_> = (0..QUOTA).map(|number| ask("grace", number)).collect();
    assert!(are_of_quota(&first, |_| true));

    let mut hostile = http_from(&server, HOSTILE).await;
    for batch in 0..BATCHES {
        let checks = (0..BATCH).map(|number| {
            let number = batch * BATCH + number;
            named(&format!("m{}", number / QUOTA), &format!("m-{number}"))
        });
        let checks = checks.collect::<Vec<_>>().join(",");
        let answer = hostile.post("/v1/check/batch", format!(r#"{{"checks":[{checks}]}}"#)).json();
        let decisions = answer["decisions"].as_array().expect("a list");
        assert!(decisions.len() == BATCH && decisions.iter().all(|decision| decision["allowed"] == true));
    }

    for (number, first) in first.iter().enumerate() {
        let repeat = ask("grace", number);
        assert_eq!((repeat.status, &repeat.body), (first.status, &first.body), "{number}");
    }
    assert_eq!(server.metric("tidegate_repeated_requests_total"), QUOTA as u64);
    assert_eq!(ask("grace", QUOTA).status, 429, "repeats were free, and no more");
    let others: Vec<_> = (0..QUOTA + 10).map(|number| ask("heidi", number)).collect();
    assert!(are_of_quota(&others, |_| true));

    let remembered = server.metric("tidegate_remembered_requests");
    let of_hostile = remembered - 2 * QUOTA as u64;
    assert!((9_900..10_100).contains(&of_hostile), "one percent of a million: {of_hostile}");
    let forgotten = |reason| server.metric(&format!(r#"tidegate_forgotten_requests_total{{reason="{reason}"}}"#));
    assert_eq!([forgotten("caller"), forgotten("table")], [(BATCH * BATCHES) as u64 - of_hostile, 0]);
}

#[tokio::test]
async fn callers_behind_one_proxy_differ_by_their_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    fs::write(&file, "morning-star-0001\nevening-star-0002").expect("room for a file");
    let tokens = Tokens::open(file).expect("they are good");
    let server = Server::sharing(SHARE, ListenerSettings { tokens: Some(tokens), ..ListenerSettings::default() });
    let by = |token: &str, name: &str| request("/v1/reserve", &format!("X-Tidegate-Token: {token}\r\n"), user(name));
    let mut proxy = http_from(&server, HOSTILE).await;
    let (held, refusal) = reserve_all(|name| proxy.send(by("morning-star-0001", name)));
    assert!(held.len() == OPEN_MAX && is_refused(&refusal), "{} {refusal:?}", held.len());
    let answers: Vec<_> = (0..QUOTA + 10).map(|_| proxy.send(by("evening-star-0002", "grace"))).collect();
    assert!(are_of_quota(&answers, |answer| answer.json()["reservation"].is_string()));
    // Services that share a token differ by their addresses.
    let mut service = http_from(&server, GOOD).await;
    let answers: Vec<_> = (0..QUOTA + 10).map(|_| service.send(by("morning-star-0001", "heidi"))).collect();
    assert!(are_of_quota(&answers, |answer| answer.json()["reservation"].is_string()));
    assert!(is_refused(&proxy.send(by("morning-star-0001", "ivan"))));
}
