//! gRPC of the real binary: checks, and rules and resets by way of the admin server, also from a node.

use std::{fs, future::poll_fn, time::Duration};

use serde_json::json;
use tempfile::TempDir;
use tidegate_service::grpc::proto::tidegate::v1::{
    CreateRateLimitRequest, DeleteRateLimitRequest, ListRateLimitsRequest, RateLimit, RateLimitRequest,
    ResetRateLimitRequest, UpdateRateLimitRequest, rate_limiter_client::RateLimiterClient,
    rate_limiter_config_client::RateLimiterConfigClient, rate_limiter_health_client::RateLimiterHealthClient,
};
use tidegate_testkit::{PATIENCE, hostile};
use tokio::time::{sleep, timeout};
use tonic::{
    Code, Request,
    body::Body,
    codegen::{Service, http},
    transport::{Channel, Endpoint},
};

use crate::support::{
    fleet::write_token,
    server::Served,
    session::{Session, check},
    shared::publish,
};

async fn channel(served: &Served) -> Channel {
    let url = served.grpc.clone().expect("it says where");
    Endpoint::from_shared(url).expect("an address").connect().await.expect("it listens")
}

/// The secret of a new token of this role.
fn token(served: &Served, ana: &Session, role: &str) -> String {
    let (status, made) = ana.send(served, "POST", "/tokens", &json!({ "name": role, "role": role }));
    assert_eq!(status, 201, "{made}");
    made["secret"].as_str().expect("a secret").to_owned()
}

/// Returns a request with this token.
fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("text"));
    request
}

fn posts(limit: u64, algorithm: &str) -> RateLimit {
    RateLimit {
        id: String::new(),
        endpoint: "/api/v1/posts".to_owned(),
        identifier_type: "user".to_owned(),
        limit,
        window_seconds: 3_600,
        algorithm: algorithm.to_owned(),
        enabled: true,
    }
}

fn create(rule: RateLimit) -> CreateRateLimitRequest {
    CreateRateLimitRequest { rate_limit: Some(rule) }
}

fn update(rule: RateLimit) -> UpdateRateLimitRequest {
    UpdateRateLimitRequest { rate_limit: Some(rule) }
}

fn post_of(user: &str) -> RateLimitRequest {
    RateLimitRequest {
        identifier: user.to_owned(),
        identifier_type: "user".to_owned(),
        endpoint: "/api/v1/posts".to_owned(),
        ..RateLimitRequest::default()
    }
}

#[tokio::test]
async fn rules_of_one_limit_are_managed_and_in_force() {
    let folder = TempDir::new().expect("a folder");
    let served = Served::start(&folder.path().join("data"));
    let ana = Session::of_first_administrator(&served);
    let [viewer, editor] = ["viewer", "editor"].map(|role| token(&served, &ana, role));
    let mut config = RateLimiterConfigClient::new(channel(&served).await);
    let mut limiter = RateLimiterClient::new(channel(&served).await);

    let refusal = config.create_rate_limit(by(&viewer, create(posts(3, "fixed_window")))).await.expect_err("a viewer");
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal:?}");
    let refusal = config.list_rate_limits(by("nobody", ListRateLimitsRequest {})).await.expect_err("nobody");
    assert_eq!(refusal.code(), Code::Unauthenticated, "{refusal:?}");

    let made = config.create_rate_limit(by(&editor, create(posts(3, "fixed_window")))).await.expect("it is made");
    let made = made.into_inner();
    assert_eq!(made, RateLimit { id: "user-api-v1-posts".to_owned(), ..posts(3, "fixed_window") });
    for left in [2, 1, 0] {
        let told = limiter.check_rate_limit(post_of("ada")).await.expect("an answer").into_inner();
        assert_eq!((told.allowed, told.remaining_tokens), (true, left), "{told:?}");
    }
    assert!(!limiter.check_rate_limit(post_of("ada")).await.expect("an answer").into_inner().allowed);

    for id in ["", "other"] {
        let again = RateLimit { id: id.to_owned(), ..posts(9, "token_bucket") };
        let refusal = config.create_rate_limit(by(&editor, create(again))).await.expect_err("it is taken");
        assert_eq!(refusal.code(), Code::AlreadyExists, "{refusal:?}");
    }
    let same = RateLimit { id: made.id.clone(), endpoint: "*".to_owned(), ..posts(9, "token_bucket") };
    let refusal = config.create_rate_limit(by(&editor, create(same.clone()))).await.expect_err("the id is taken");
    assert_eq!(refusal.code(), Code::AlreadyExists, "{refusal:?}");

    // What was used stays used: two more are left of five.
    let more = RateLimit { limit: 5, ..made.clone() };
    assert_eq!(
        config.update_rate_limit(by(&editor, update(more.clone()))).await.expect("it is changed").into_inner(),
        more
    );
    let told = limiter.check_rate_limit(post_of("ada")).await.expect("an answer").into_inner();
    assert_eq!((told.allowed, told.remaining_tokens), (true, 1), "{told:?}");

    // A note is for those who read the policy, and stays.
    let path = format!("/rules/{}", more.id);
    assert_eq!(ana.send_if(&served, "PATCH", &path, &json!({ "note": "asked for by sales" }), "*").0, 201);
    let log = RateLimit { algorithm: "sliding_window".to_owned(), ..more.clone() };
    let log = config.update_rate_limit(by(&editor, update(log))).await.expect("it is changed").into_inner();
    assert_eq!(log.algorithm, "sliding_window_log");
    assert_eq!(ana.send(&served, "GET", &path, &json!(null)).1["value"]["note"], "asked for by sales");
    let large = RateLimit { limit: 1_000_000, ..log.clone() };
    let refusal = config.update_rate_limit(by(&editor, update(large))).await.expect_err("too large");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(refusal.message().contains("limit") && refusal.message().contains("sliding_window_counter"), "{refusal:?}");
    for (wrong, field) in [
        (RateLimit { algorithm: "guess".to_owned(), ..log.clone() }, "algorithm"),
        (RateLimit { window_seconds: 0, ..log.clone() }, "window_seconds"),
        (RateLimit { endpoint: String::new(), ..log.clone() }, "endpoint"),
        (RateLimit { identifier_type: "User".to_owned(), ..log.clone() }, "per"),
    ] {
        let refusal = config.update_rate_limit(by(&editor, update(wrong))).await.expect_err(field);
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
        assert!(refusal.message().contains(field), "{refusal:?}");
    }

    // A rule that says more is not told, and not changed.
    let rich = json!({
        "id": "rich", "endpoint": "/rich", "method": "GET", "per": "user",
        "limits": [{ "id": "minute", "algorithm": "token_bucket", "limit": 5, "period": "1m" }],
    });
    assert_eq!(ana.send(&served, "POST", "/rules", &rich).0, 201);
    let of_rich = RateLimit { id: "rich".to_owned(), endpoint: "/rich".to_owned(), ..posts(1, "token_bucket") };
    let refusal = config.update_rate_limit(by(&editor, update(of_rich))).await.expect_err("it says more");
    assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal:?}");
    let delete = |id: &str| by(&editor, DeleteRateLimitRequest { id: id.to_owned() });
    let refusal = config.delete_rate_limit(delete("rich")).await.expect_err("it says more");
    assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal:?}");
    let listed = config.list_rate_limits(by(&viewer, ListRateLimitsRequest {})).await.expect("a list").into_inner();
    assert!(listed.rate_limits.contains(&log), "{listed:?}");
    assert!(listed.rate_limits.iter().all(|rule| rule.id != "rich"), "{listed:?}");

    config.delete_rate_limit(delete(&log.id)).await.expect("it is there");
    assert_eq!(config.delete_rate_limit(delete(&log.id)).await.expect_err("it is gone").code(), Code::NotFound);
    let refusal = config.update_rate_limit(by(&editor, update(log))).await.expect_err("it is gone");
    assert_eq!(refusal.code(), Code::NotFound);
}

#[tokio::test]
async fn a_reset_says_that_no_node_reached_the_store() {
    let folder = TempDir::new().expect("a folder");
    // No store listens there.
    let served = Served::start_with(folder.path(), &["--redis", "redis://127.0.0.1:9"]);
    let ana = Session::of_first_administrator(&served);
    let operator = token(&served, &ana, "operator");
    let mut health = RateLimiterHealthClient::new(channel(&served).await);
    let reset = || ResetRateLimitRequest {
        identifier: "ada".to_owned(),
        identifier_type: "user".to_owned(),
        ..ResetRateLimitRequest::default()
    };
    let done = health.reset_rate_limit(by(&operator, reset())).await.expect("it is forgotten").into_inner();
    assert_eq!((done.nodes.len(), &done.missing), (1, &vec![]), "nothing is shared: {done:?}");
    let limit = json!({ "id": "s", "algorithm": "token_bucket", "limit": 10, "period": "1h", "sharing": "strict" });
    publish(&served, &ana, &limit);
    let done = health.reset_rate_limit(by(&operator, reset())).await.expect("it is forgotten").into_inner();
    assert_eq!((done.nodes.len(), done.missing), (1, vec!["the store".to_owned()]));
    let lines = ana.get(&served, "/audit?action=keys.reset");
    assert_eq!(lines["items"][0]["result"], "done on 1 of 1 nodes, not in the store");
}

#[tokio::test]
async fn a_node_asks_its_admin_server_and_says_when_that_is_away() {
    let folder = TempDir::new().expect("a folder");
    let mut admin = Served::admin_alone("127.0.0.1:0", &folder.path().join("admin"), &[]);
    let ana = Session::of_first_administrator(&admin);
    let [viewer, operator, editor] = ["viewer", "operator", "editor"].map(|role| token(&admin, &ana, role));
    let (status, made) = ana.send(&admin, "POST", "/tokens", &json!({ "name": "nodes", "scope": "node" }));
    assert_eq!(status, 201, "{made}");
    let secret = folder.path().join("token");
    write_token(&secret, made["secret"].as_str().expect("a secret"));
    let node = Served::node(&admin.admin, &secret, "one", &folder.path().join("node"));
    let mut config = RateLimiterConfigClient::new(channel(&node).await);
    let mut limiter = RateLimiterClient::new(channel(&node).await);
    let mut health = RateLimiterHealthClient::new(channel(&node).await);

    config.create_rate_limit(by(&editor, create(posts(2, "fixed_window")))).await.expect("it is made");
    let in_force = async {
        while limiter.check_rate_limit(post_of("ada")).await.expect("an answer").into_inner().allowed {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, in_force).await.expect("the node follows");
    let reset = || ResetRateLimitRequest {
        identifier: "ada".to_owned(),
        identifier_type: "user".to_owned(),
        endpoint: "/api/v1/posts".to_owned(),
        ..ResetRateLimitRequest::default()
    };
    let refusal = health.reset_rate_limit(by(&viewer, reset())).await.expect_err("a viewer");
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal:?}");
    let done = health.reset_rate_limit(by(&operator, reset())).await.expect("it is forgotten").into_inner();
    assert!(done.nodes == ["one"] && done.keys >= 1 && done.missing.is_empty(), "{done:?}");
    let told = limiter.check_rate_limit(post_of("ada")).await.expect("an answer").into_inner();
    assert_eq!((told.allowed, told.remaining_tokens), (true, 1), "{told:?}");

    admin.kill();
    for refusal in [
        config.list_rate_limits(by(&editor, ListRateLimitsRequest {})).await.expect_err("nobody is there"),
        config.create_rate_limit(by(&editor, create(posts(2, "fixed_window")))).await.expect_err("nobody is there"),
        health.reset_rate_limit(by(&operator, reset())).await.expect_err("nobody is there"),
    ] {
        assert_eq!(refusal.code(), Code::Unavailable, "{refusal:?}");
    }
    assert!(limiter.check_rate_limit(post_of("bob")).await.is_ok(), "it goes on deciding");
}

/// Other answers that are long are those of `GetMetrics`, and of batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn lists_of_rules_that_are_not_read_leave_others_their_quota() {
    /// A list of them has 100 kB, so 84 lists fill the share of a peer.
    const RULES: usize = 1_500;
    let limit = r#"{ id = "hour", algorithm = "fixed_window", limit = 50, period = "1h" }"#;
    let rule = |number: usize| {
        let endpoint = format!("/{number}/{}", "e".repeat(20));
        format!(
            "[[domains.default.rules]]\nid = \"r-{number}\"\nendpoint = \"{endpoint}\"\nper = \"user\"\nlimits = [{limit}]\n"
        )
    };
    let tier = format!("[[domains.default.tiers]]\nid = \"free\"\nlimits = [{limit}]\n");
    let folder = TempDir::new().expect("a folder");
    let policy = folder.path().join("policy.toml");
    let rules: String = (0..RULES).map(rule).collect();
    fs::write(&policy, format!("[domains.default]\ndefaults = {{ user = \"free\" }}\n{tier}{rules}")).expect("room");
    let served = Served::start_with(&folder.path().join("data"), &["--policy", policy.to_str().expect("text")]);
    let ana = Session::of_first_administrator(&served);
    let viewer = format!("Bearer {}", token(&served, &ana, "viewer"));
    let metric = |name: &str| {
        let metrics = ureq::get(format!("{}/metrics", served.checks)).call().expect("an answer");
        let metrics = metrics.into_body().read_to_string().expect("text");
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok());
        line.expect("it is counted")
    };

    let url = served.grpc.clone().expect("it says where");
    let endpoint = Endpoint::from_shared(url.clone()).expect("an address").initial_stream_window_size(1);
    let endpoint = endpoint.local_address(Some(hostile::ADDRESS.into()));
    let mut unread = Vec::new();
    let refused = |reason| metric(&format!(r#"tidegate_refused_bodies_total{{reason="{reason}"}}"#));
    while refused("peer") + refused("dropped") == 0 {
        let mut channel = endpoint.connect().await.expect("it listens");
        for _ in 0..30 {
            let request = http::Request::post(format!("{url}/tidegate.v1.RateLimiterConfig/ListRateLimits"));
            let request = request.header("content-type", "application/grpc").header("authorization", &viewer);
            // A message of no bytes.
            let request = request.body(Body::new("\0".repeat(5))).expect("a request");
            poll_fn(|context| channel.poll_ready(context)).await.expect("it is open");
            unread.push(channel.call(request).await.expect("it begins to answer"));
        }
    }
    assert!(metric("tidegate_body_budget_bytes") > 7 << 20, "it holds its share");
    let allowed = (0..60).filter(|_| check(&served, "grace").0 == 200).count();
    assert_eq!(allowed, 50);
    assert!(metric("tidegate_body_budget_bytes") > 7 << 20, "it still does");
}
