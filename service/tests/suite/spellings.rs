//! Tests that an address in several spellings is one identity at every listener, and that other values are refused.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate::RatedLimiter;
use tidegate_service::{
    ListenerSettings,
    grpc::{
        AdminApiClient, Grpc,
        proto::{
            envoy::{
                extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
                service::ratelimit::v3::{
                    RateLimitRequest as EnvoyRequest, rate_limit_service_client::RateLimitServiceClient,
                },
            },
            tidegate::v1::{
                BatchRateLimitRequest, CheckStreamRequest, RateLimitRequest, check_stream_response::Result as Told,
                rate_limiter_client::RateLimiterClient,
            },
        },
    },
    resp::Resp,
};
use tidegate_testkit::port::ReservedPort;
use tokio_stream::{StreamExt, iter};
use tonic::{Code, transport::Endpoint};

use crate::{
    http::support::{Connection as Http, authorize},
    process::{KEYS_MAX, Process, listen},
    resp::support::Connection as RedisProtocol,
};

/// A policy of a thousand a minute for each address, with a client and a condition within one network.
const POLICY: &str = r#"
    [domains.default]
    defaults = { ip = "free", remote_address = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 1000, period = "1m" }]
    [[domains.default.clients]]
    kind = "ip"
    value = "2001:DB8:0:0:0:0:0:66"
    override = { blocked = true }
    [[domains.default.rules]]
    id = "few"
    endpoint = "/few"
    per = "ip"
    where = { ip = "2001:db8:0:0:0:0:0:77" }
    limits = [{ id = "few", algorithm = "fixed_window", limit = 5, period = "1m" }]
"#;

/// A process with all listeners.
struct Listeners {
    process: Process,
    grpc: String,
    redis_protocol: RedisProtocol,
    _absent_admin: ReservedPort,
}

impl Listeners {
    fn start() -> Self {
        let absent_admin = ReservedPort::new();
        let admin = AdminApiClient::to(&format!("http://{}", absent_admin.address()), None).expect("a client");
        let ((grpc, grpc_address), (resp, resp_address)) = (listen(), listen());
        let extracted = authorize(&["ip=header:X-Client"], &["127.0.0.1"]);
        let process = Process::start(ListenerSettings::default(), extracted, |doors, clock| {
            let throttle = Arc::new(RatedLimiter::with_groups(KEYS_MAX, clock));
            doors.grpc(Grpc { listener: grpc, admin }).resp(Resp { listener: resp, throttle, operators: None })
        });
        process.publish(POLICY);
        Self {
            process,
            grpc: format!("http://{grpc_address}"),
            redis_protocol: RedisProtocol::to(resp_address),
            _absent_admin: absent_admin,
        }
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = Http::to(self.process.http).post(path, body.to_string());
        (answer.status, answer.json())
    }

    /// Checks an address over each listener, and returns what is left after each check.
    async fn checked_everywhere(&mut self, spelling: &str) -> Vec<i64> {
        let check = json!({ "identities": [{ "kind": "ip", "value": spelling }] });
        let mut left = vec![
            whole(&self.post("/v1/check", &check).1["remaining"]),
            whole(&self.post("/v1/check/batch", &json!({ "checks": [check] })).1["decisions"][0]["remaining"]),
            whole(&self.post("/v1/reserve", &check).1["remaining"]),
        ];
        let asked = format!(
            "GET /v1/authorize HTTP/1.1\r\nHost: tidegate\r\nX-Forwarded-For: ::1\r\nX-Client: {spelling}\r\n\r\n"
        );
        let answer = Http::to(self.process.http).send(asked);
        left.push(answer.header("x-ratelimit-remaining").expect("a limit").parse().expect("a number"));
        left.push(self.redis_protocol.numbers(&format!("TIDEGATE.CHECK ip {spelling} *"))[2]);

        let channel =
            Endpoint::from_shared(self.grpc.clone()).expect("an address").connect().await.expect("it listens");
        let mut limiter = RateLimiterClient::new(channel.clone());
        let answer = limiter.check_rate_limit(ip(spelling)).await.expect("an answer").into_inner();
        left.push(answer.remaining_tokens.into());
        let batch = BatchRateLimitRequest { requests: vec![ip(spelling)] };
        let answer = limiter.check_rate_limit_batch(batch).await.expect("an answer").into_inner();
        left.push(answer.responses[0].remaining_tokens.into());
        let stream = iter([CheckStreamRequest { correlation_id: 1, request: Some(ip(spelling)) }]);
        let mut answers = limiter.check_rate_limit_stream(stream).await.expect("a stream").into_inner();
        match answers.next().await.expect("an answer").expect("it goes on").result {
            Some(Told::Response(response)) => left.push(response.remaining_tokens.into()),
            other => unreachable!("{other:?}"),
        }
        let answer = limiter.reserve(ip(spelling)).await.expect("an answer").into_inner();
        left.push(answer.response.expect("a decision").remaining_tokens.into());
        let mut envoy = RateLimitServiceClient::new(channel);
        let answer = envoy.should_rate_limit(descriptor("ip", spelling)).await.expect("an answer").into_inner();
        left.push(answer.statuses[0].limit_remaining.into());
        left
    }
}

fn whole(number: &Value) -> i64 {
    number.as_i64().expect("a number")
}

fn ip(value: &str) -> RateLimitRequest {
    RateLimitRequest { identifier: value.to_owned(), identifier_type: "ip".to_owned(), ..RateLimitRequest::default() }
}

fn descriptor(key: &str, value: &str) -> EnvoyRequest {
    let entry = Entry { key: key.to_owned(), value: value.as_bytes().to_vec() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    EnvoyRequest { domain: "default".to_owned(), descriptors: vec![descriptor], hits_addend: 0 }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_one_identity_in_every_spelling_at_every_listener() {
    let mut listeners = Listeners::start();
    // An IPv6 address counts as its network of 64 bits.
    for spellings in [
        ["192.0.2.1", "::ffff:192.0.2.1", "::FFFF:c000:201"],
        ["2001:DB8:1:2::1", "2001:db8:1:2:0:0:0:1", "2001:0db8:0001:0002:ffff::"],
    ] {
        let mut expected = 1_000;
        for spelling in spellings {
            let left = listeners.checked_everywhere(spelling).await;
            let each: Vec<i64> = (1..=10).map(|check| expected - check).collect();
            assert_eq!(left, each, "{spelling}");
            expected -= 10;
        }
        let peek = json!({ "identities": [{ "kind": "ip", "value": spellings[1] }], "peek": true, "cost": 0 });
        assert_eq!(whole(&listeners.post("/v1/check", &peek).1["remaining"]), 970);
    }
    let channel =
        Endpoint::from_shared(listeners.grpc.clone()).expect("an address").connect().await.expect("it listens");
    let mut envoy = RateLimitServiceClient::new(channel);
    for (left, spelling) in
        [(999, "2001:DB8::1"), (998, "2001:db8:0:0:0:0:0:1"), (999, "2001:db8::2"), (998, "2001:DB8::2")]
    {
        let answer =
            envoy.should_rate_limit(descriptor("remote_address", spelling)).await.expect("an answer").into_inner();
        assert_eq!(answer.statuses[0].limit_remaining, left, "{spelling}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_and_a_condition_hold_for_every_spelling() {
    let listeners = Listeners::start();
    let check = |value: &str| json!({ "identities": [{ "kind": "ip", "value": value }], "endpoint": "/few" });
    for spelling in ["2001:db8::66", "2001:DB8::66", "2001:0db8:0:0:0:0:0:0066"] {
        let (status, answer) = listeners.post("/v1/check", &check(spelling));
        assert_eq!((status, answer["allowed"].as_bool()), (429, Some(false)), "{spelling}: {answer}");
    }
    for (left, spelling) in [(4, "2001:db8::77"), (3, "2001:DB8:0::77"), (2, "2001:db8:0:0:0:0:0:77")] {
        let (_, answer) = listeners.post("/v1/check", &check(spelling));
        assert_eq!(
            (whole(&answer["remaining"]), &answer["limit_id"]),
            (left, &json!("default/rule:few/few")),
            "{spelling}"
        );
    }
    // A neighbour is counted with its network.
    let (_, answer) = listeners.post("/v1/check", &check("2001:db8::78"));
    assert_eq!(answer["limit_id"], "default/tier:free/minute");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_no_address_is_refused_under_the_kind_ip() {
    let mut listeners = Listeners::start();
    let channel =
        Endpoint::from_shared(listeners.grpc.clone()).expect("an address").connect().await.expect("it listens");
    let (mut limiter, mut envoy) = (RateLimiterClient::new(channel.clone()), RateLimitServiceClient::new(channel));
    for value in ["localhost", "192.0.2.1:443", "[2001:db8::1]", "192.0.2.0/24", "192.0.2.001"] {
        let check = json!({ "identities": [{ "kind": "user", "value": "ada" }, { "kind": "ip", "value": value }] });
        for path in ["/v1/check", "/v1/reserve"] {
            let (status, problem) = listeners.post(path, &check);
            let named = (status, &problem["code"], &problem["errors"][0]["pointer"]);
            assert_eq!(named, (400, &json!("bad_value"), &json!("/identities/1/value")), "{problem}");
            assert!(problem.to_string().contains("is no IP address"), "{problem}");
        }
        let refused = limiter.check_rate_limit(ip(value)).await.expect_err("no address");
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with("identifier: `"), "{refused}");
        let refused = listeners.redis_protocol.refused(&format!("TIDEGATE.CHECK ip {value} *"));
        assert!(refused.starts_with("ERR value: `") && refused.contains("is no IP address"), "{refused}");
        // End users write the values of descriptors, and Envoy lets requests pass on errors, so this value counts as it is.
        for left in [999, 998] {
            let answer = envoy.should_rate_limit(descriptor("ip", value)).await.expect("an answer").into_inner();
            assert_eq!(answer.statuses[0].limit_remaining, left, "{value}");
        }
    }
}
