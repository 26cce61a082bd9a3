//! Support for the tests of all frameworks: a policy, an engine whose clock stands still, requests, and the assertions on a server.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, LazyLock},
};

use actix_web::HttpRequest;
use axum::http::request::Parts;
use serde_json::{Value, json};
use tidegate::{Engine, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};
use tidegate_middleware::{
    address::AddressReader,
    decision::OwnedDecision,
    extract::{Extractor, Extractors},
    guard::{Guard, NoIdentity},
    response::RefusalResponse,
};

/// A policy that allows every address 2 requests a minute, and `pro` keys 100.
const POLICY: &str = r#"
    [domains.default]
    defaults = { ip = "anonymous", api_key = "anonymous" }
    HEADERS
    [[domains.default.tiers]]
    id = "anonymous"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 2, period = "1m" }]
    [[domains.default.tiers]]
    id = "pro"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 100, period = "1m" }]
    [[domains.default.clients]]
    kind = "api_key"
    value = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" # of the token `abc`
    tier = "pro"
    [[domains.default.clients]]
    kind = "ip"
    value = "2001:db8::/32"
    override = { blocked = true }
    [[domains.default.rules]]
    id = "uploads"
    endpoint = "/uploads/{id}"
    method = "PUT"
    per = "everyone"
    limits = [{ id = "hour", algorithm = "fixed_window", limit = 5, period = "1h" }]
"#;

/// The time when tests begin, in Unix seconds: the beginning of an hour.
pub(crate) const START: u64 = 1_700_002_800;

pub(crate) type TestEngine = Engine<ManualClock>;

pub(crate) fn engine(settings: &str) -> Arc<TestEngine> {
    let clock = ManualClock::at(Timestamp::from_nanos(START * 1_000_000_000));
    let engine = Arc::new(Engine::for_simulation(1_000, clock, 7));
    let policy = Snapshot::parse(&POLICY.replace("HEADERS", settings), Format::Toml).expect("a right policy");
    engine.publish(policy).expect("room for its limits");
    engine
}

pub(crate) fn extractors(each: &[&str]) -> Extractors {
    let each = each.iter().map(|text| text.parse::<Extractor>().expect("right"));
    let trusting = AddressReader::default().trusting(["127.0.0.0/8".parse().expect("a network")]);
    Extractors::new(each, trusting).expect("right")
}

/// Returns a guard of a server behind a proxy on this machine.
pub(crate) fn guard(engine: &Arc<TestEngine>) -> Guard<TestEngine> {
    Guard::new(Arc::clone(engine), extractors(&["api_key=bearer", "ip=address"]))
}

/// Returns extractors of a value that only the framework's own request has.
fn own() -> Extractors {
    let query = Extractor::custom("api_key", |head| {
        let (parts, request) = (head.original().downcast_ref::<Parts>(), head.original().downcast_ref::<HttpRequest>());
        let query = parts.map_or_else(|| request?.uri().query(), |parts| parts.uri.query());
        query?.strip_prefix("key=").map(str::to_owned)
    });
    Extractors::new([query.expect("a kind")], AddressReader::default()).expect("right")
}

/// Returns extractors that panic, because they read a header that is absent.
pub(crate) fn panicking() -> Extractors {
    let tenant = Extractor::custom("tenant", |head| String::from_utf8(head.header("x-absent")[0].to_vec()).ok());
    Extractors::new([tenant.expect("a kind")], AddressReader::default()).expect("right")
}

/// Returns the guards of a server of the tests, each by the first segment of the paths that it protects.
pub(crate) fn guards(engine: &Arc<TestEngine>) -> HashMap<&'static str, Guard<TestEngine>> {
    HashMap::from([
        ("plain", guard(engine)),
        ("exempt", guard(engine).exempt(["/exempt/healthz", "/exempt/assets/*"]).expect("right")),
        (
            "cost",
            guard(engine).cost(|head| {
                head.header("x-cost")
                    .first()
                    .map_or(1, |cost| str::from_utf8(cost).expect("text").parse().expect("a number"))
            }),
        ),
        (
            "custom",
            guard(engine).respond(|refusal| {
                let limit_id = refusal.decision().and_then(|decision| decision.limit_id.as_deref()).unwrap_or("none");
                let mut response = RefusalResponse::new(418, "text/plain", format!("no more of {limit_id}"));
                response.headers.push(("Retry-After".into(), "7".into()));
                response.headers.push(("bad name".into(), "left out".into()));
                response
            }),
        ),
        ("own", Guard::new(Arc::clone(engine), own())),
        ("keys", Guard::new(Arc::clone(engine), extractors(&["api_key=bearer"]))),
        ("panics", Guard::new(Arc::clone(engine), panicking())),
        ("panics_of_cost", guard(engine).cost(|head| u64::from(head.header("x-absent")[0][0]))),
        (
            "panics_of_response",
            guard(engine).respond(|refusal| {
                RefusalResponse::new(429, refusal.decision().expect("no").degraded.as_deref().expect("absent"), "")
            }),
        ),
        ("strict", Guard::new(Arc::clone(engine), extractors(&["api_key=bearer"])).no_identity(NoIdentity::Refuse)),
    ])
}

/// A response.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn remaining(&self) -> Option<&str> {
        self.header("x-ratelimit-remaining")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

/// Sends one request with these headers.
pub(crate) fn ask(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> TestResponse {
    static AGENT: LazyLock<ureq::Agent> =
        LazyLock::new(|| ureq::Agent::config_builder().http_status_as_error(false).build().into());
    let mut request = AGENT.get(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = request.call().expect("an answer");
    let headers = response.headers().iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned())).collect();
    let status = response.status().as_u16();
    TestResponse { status, headers, body: response.body_mut().read_to_string().expect("text") }
}

/// Returns the header by which the proxy names this address.
pub(crate) fn from(address: &str) -> [(&str, &str); 1] {
    [("X-Forwarded-For", address)]
}

/// Returns the body with which services of the tests describe the decision on a request.
pub(crate) fn describe(decision: Option<&OwnedDecision>) -> String {
    let left = decision.and_then(|decision| decision.remaining).map(|left| left.to_string());
    left.or_else(|| decision?.degraded.clone()).unwrap_or_else(|| "no decision".to_owned())
}

/// Asserts what every server over HTTP does, whatever its framework. The server answers 404 to `/GUARD/missing`, and to every other
/// path with [`describe`].
pub(crate) fn assert_protects(server: SocketAddr) {
    allows_and_denies_with_headers(server);
    counts_clients_separately(server);
    lets_exempt_paths_pass(server);
    charges_the_cost(server);
    responds_as_set(server);
    reads_the_request_of_the_framework(server);
    treats_requests_without_identity(server);
    continues_after_panics(server);
}

fn allows_and_denies_with_headers(server: SocketAddr) {
    let reset = (START + 60).to_string();
    let first = ask(server, "/plain/a", &from("192.0.2.1"));
    assert_eq!((first.status, first.body.as_str()), (200, "1"), "{first:?}");
    let numbers = |response: &TestResponse| {
        ["limit", "remaining", "reset"].map(|name| response.header(&format!("x-ratelimit-{name}")).map(str::to_owned))
    };
    let expected = |remaining: &str| [Some("2".to_owned()), Some(remaining.to_owned()), Some(reset.clone())];
    assert_eq!(numbers(&first), expected("1"));
    assert_eq!(first.header("retry-after"), None);
    let missing = ask(server, "/plain/missing", &from("192.0.2.1"));
    assert_eq!((missing.status, numbers(&missing)), (404, expected("0")), "every response has the headers");
    let denied = ask(server, "/plain/a", &from("192.0.2.1"));
    assert_eq!((denied.status, numbers(&denied)), (429, expected("0")));
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    let wait: u64 = denied.header("retry-after").expect("when").parse().expect("seconds");
    assert!((60..=66).contains(&wait), "{wait}");
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "code": "denied", "title": "Too many requests",
        "status": 429, "detail": "Retry in 60000 ms.", "limit_id": "default/tier:anonymous/minute",
        "retry_after_ms": 60_000,
    });
    assert_eq!(denied.json(), expected);
}

fn counts_clients_separately(server: SocketAddr) {
    for client in ["192.0.2.2", "192.0.2.3", "2001:dba:0:1::7", "2001:dba:0:2::7"] {
        assert_eq!(ask(server, "/plain/a", &from(client)).remaining(), Some("1"), "{client}");
    }
    // All addresses of a /64 are one client; an address that the client writes itself does not count.
    assert_eq!(ask(server, "/plain/a", &from("2001:dba:0:1::8")).remaining(), Some("0"));
    assert_eq!(ask(server, "/plain/a", &from("203.0.113.9, 192.0.2.2")).remaining(), Some("0"));
    // A client of the policy can be a block.
    let blocked = ask(server, "/plain/a", &from("2001:db8:7::1"));
    assert_eq!((blocked.status, blocked.json()["retry_after_ms"].clone()), (429, Value::Null), "{blocked:?}");
    // A client of the policy can be the digest of a token.
    let with_token = |token: &str| ask(server, "/keys/a", &[("Authorization", token)]);
    assert_eq!(with_token("Bearer abc").remaining(), Some("99"));
    assert_eq!(with_token("Bearer abd").remaining(), Some("1"));
}

fn lets_exempt_paths_pass(server: SocketAddr) {
    for path in ["/exempt/healthz", "/exempt/assets/logo.svg", "/exempt/healthz?verbose"] {
        let response = ask(server, path, &from("192.0.2.4"));
        assert_eq!(
            (response.status, response.body.as_str(), response.remaining()),
            (200, "no decision", None),
            "{path}"
        );
    }
    assert_eq!(ask(server, "/exempt/a", &from("192.0.2.4")).remaining(), Some("1"));
    // A path with a dot segment may be routed elsewhere than the exempt path.
    assert_ne!(ask(server, "/exempt/./healthz", &from("192.0.2.4")).body, "no decision");
}

fn charges_the_cost(server: SocketAddr) {
    let at = |cost: &str| ask(server, "/cost/a", &[("X-Forwarded-For", "192.0.2.5"), ("X-Cost", cost)]);
    assert_eq!((at("0").status, at("0").remaining()), (200, Some("2")), "nothing is charged");
    assert_eq!((at("18446744073709551615").status, at("3").status), (429, 429));
    assert_eq!((at("2").status, at("0").remaining()), (200, Some("0")));
    assert_eq!((at("0").status, at("1").status), (200, 429), "a cost of 0 is not denied");
}

fn responds_as_set(server: SocketAddr) {
    let responses: Vec<TestResponse> = (0..3).map(|_| ask(server, "/custom/a", &from("192.0.2.6"))).collect();
    let denied = &responses[2];
    assert_eq!((denied.status, denied.body.as_str()), (418, "no more of default/tier:anonymous/minute"));
    assert_eq!((denied.header("content-type"), denied.header("retry-after")), (Some("text/plain"), Some("7")));
    assert_eq!((denied.remaining(), denied.header("bad name")), (Some("0"), None));
}

fn reads_the_request_of_the_framework(server: SocketAddr) {
    for (key, remaining) in [("a", "1"), ("b", "1"), ("a", "0")] {
        assert_eq!(ask(server, &format!("/own/a?key={key}"), &[]).remaining(), Some(remaining), "{key}");
    }
}

fn treats_requests_without_identity(server: SocketAddr) {
    for _ in 0..3 {
        let response = ask(server, "/keys/a", &[]);
        assert_eq!((response.status, response.body.as_str(), response.remaining()), (200, "no decision", None));
    }
    let refused = ask(server, "/strict/a", &[]);
    assert_eq!((refused.status, refused.json()["status"].clone()), (403, json!(403)));
    assert_eq!(ask(server, "/strict/a", &[("Authorization", "Bearer strict")]).status, 200);
    let long = format!("/plain/{}", "a".repeat(8_192));
    assert_eq!(ask(server, &long, &from("192.0.2.7")).status, 414);
}

fn continues_after_panics(server: SocketAddr) {
    for path in ["/panics/a", "/panics_of_cost/a"] {
        for _ in 0..3 {
            let response = ask(server, path, &from("192.0.2.8"));
            assert_eq!(
                (response.status, response.body.as_str(), response.remaining()),
                (200, "internal_error", None),
                "{path}"
            );
        }
    }
    let responses: Vec<TestResponse> =
        (0..3).map(|_| ask(server, "/panics_of_response/a", &from("192.0.2.8"))).collect();
    assert_eq!((responses[2].status, responses[2].json()["status"].clone()), (429, json!(429)));
    assert_eq!(ask(server, "/plain/a", &from("192.0.2.9")).status, 200, "the server goes on");
}
