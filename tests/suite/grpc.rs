//! Tests of the gRPC API: checks, and rules and resets that the server or a node forwards to the admin server.

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
    Code, Request, Response, Status,
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

/// Creates a token of this role, and returns its secret.
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

/// A server with clients of its gRPC API, and the tokens of a viewer and an editor.
struct RuleServer {
    served: Served,
    ana: Session,
    viewer: String,
    editor: String,
    config: RateLimiterConfigClient<Channel>,
    limiter: RateLimiterClient<Channel>,
    _folder: TempDir,
}

impl RuleServer {
    async fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        let served = Served::start(&folder.path().join("data"));
        let ana = Session::of_first_administrator(&served);
        let [viewer, editor] = ["viewer", "editor"].map(|role| token(&served, &ana, role));
        let config = RateLimiterConfigClient::new(channel(&served).await);
        let limiter = RateLimiterClient::new(channel(&served).await);
        Self { served, ana, viewer, editor, config, limiter, _folder: folder }
    }

    async fn create(&mut self, rule: RateLimit) -> Result<RateLimit, Status> {
        self.config.create_rate_limit(by(&self.editor, create(rule))).await.map(Response::into_inner)
    }

    async fn update(&mut self, rule: RateLimit) -> Result<RateLimit, Status> {
        self.config.update_rate_limit(by(&self.editor, update(rule))).await.map(Response::into_inner)
    }

    async fn delete(&mut self, id: &str) -> Result<(), Status> {
        let request = by(&self.editor, DeleteRateLimitRequest { id: id.to_owned() });
        self.config.delete_rate_limit(request).await.map(drop)
    }

    async fn list(&mut self) -> Vec<RateLimit> {
        let request = by(&self.viewer, ListRateLimitsRequest {});
        self.config.list_rate_limits(request).await.expect("a list").into_inner().rate_limits
    }

    /// Checks a post of ada. Returns whether it is allowed, and how many are left.
    async fn check(&mut self) -> (bool, i32) {
        let decision = self.limiter.check_rate_limit(post_of("ada")).await.expect("a decision").into_inner();
        (decision.allowed, decision.remaining_tokens)
    }
}

#[tokio::test]
async fn an_editor_creates_a_rule_once_and_it_is_in_force() {
    let mut server = RuleServer::start().await;
    let request = by(&server.viewer, create(posts(3, "fixed_window")));
    let refusal = server.config.create_rate_limit(request).await.expect_err("a viewer");
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal:?}");
    let request = by("unknown", ListRateLimitsRequest {});
    let refusal = server.config.list_rate_limits(request).await.expect_err("the token is unknown");
    assert_eq!(refusal.code(), Code::Unauthenticated, "{refusal:?}");

    let made = server.create(posts(3, "fixed_window")).await.expect("it is created");
    assert_eq!(made, RateLimit { id: "user-api-v1-posts".to_owned(), ..posts(3, "fixed_window") });
    for left in [2, 1, 0] {
        assert_eq!(server.check().await, (true, left));
    }
    assert!(!server.check().await.0);

    let taken = ["", "other"].map(|id| RateLimit { id: id.to_owned(), ..posts(9, "token_bucket") });
    let same_id = RateLimit { id: made.id, endpoint: "*".to_owned(), ..posts(9, "token_bucket") };
    for rule in taken.into_iter().chain([same_id]) {
        let refusal = server.create(rule).await.expect_err("the endpoint or the id is taken");
        assert_eq!(refusal.code(), Code::AlreadyExists, "{refusal:?}");
    }
}

#[tokio::test]
async fn an_update_keeps_the_count_and_the_note_and_is_validated() {
    let mut server = RuleServer::start().await;
    let made = server.create(posts(3, "fixed_window")).await.expect("it is created");
    for _ in 0..3 {
        assert!(server.check().await.0);
    }
    // The used tokens stay used: two more are left of five.
    let more = RateLimit { limit: 5, ..made };
    assert_eq!(server.update(more.clone()).await.expect("it is updated"), more);
    assert_eq!(server.check().await, (true, 1));

    // A note is for those who read the policy, and stays.
    let path = format!("/rules/{}", more.id);
    let note = json!({ "note": "asked for by sales" });
    assert_eq!(server.ana.send_if(&server.served, "PATCH", &path, &note, "*").0, 201);
    let log = RateLimit { algorithm: "sliding_window".to_owned(), ..more };
    let log = server.update(log).await.expect("it is updated");
    assert!(server.list().await.contains(&log), "the list has the updated rule");
    assert_eq!(log.algorithm, "sliding_window_log");
    let (_, stored) = server.ana.send(&server.served, "GET", &path, &json!(null));
    assert_eq!(stored["value"]["note"], "asked for by sales");
    let large = RateLimit { limit: 1_000_000, ..log.clone() };
    let refusal = server.update(large).await.expect_err("too large");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(refusal.message().contains("limit") && refusal.message().contains("sliding_window_counter"), "{refusal:?}");
    for (wrong, field) in [
        (RateLimit { algorithm: "guess".to_owned(), ..log.clone() }, "algorithm"),
        (RateLimit { window_seconds: 0, ..log.clone() }, "window_seconds"),
        (RateLimit { endpoint: String::new(), ..log.clone() }, "endpoint"),
        (RateLimit { identifier_type: "User".to_owned(), ..log.clone() }, "per"),
    ] {
        let refusal = server.update(wrong).await.expect_err(field);
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
        assert!(refusal.message().contains(field), "{refusal:?}");
    }
}

#[tokio::test]
async fn rules_are_listed_and_deleted_unless_the_message_cannot_express_them() {
    let mut server = RuleServer::start().await;
    let made = server.create(posts(3, "fixed_window")).await.expect("it is created");
    // The message has no field for the method of this rule.
    let rich = json!({
        "id": "rich", "endpoint": "/rich", "method": "GET", "per": "user",
        "limits": [{ "id": "minute", "algorithm": "token_bucket", "limit": 5, "period": "1m" }],
    });
    assert_eq!(server.ana.send(&server.served, "POST", "/rules", &rich).0, 201);
    let of_rich = RateLimit { id: "rich".to_owned(), endpoint: "/rich".to_owned(), ..posts(1, "token_bucket") };
    let refusal = server.update(of_rich).await.expect_err("it has a method");
    assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal:?}");
    let refusal = server.delete("rich").await.expect_err("it has a method");
    assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal:?}");
    let listed = server.list().await;
    assert!(listed.contains(&made), "{listed:?}");
    assert!(listed.iter().all(|rule| rule.id != "rich"), "{listed:?}");

    server.delete(&made.id).await.expect("it is there");
    assert_eq!(server.delete(&made.id).await.expect_err("it is gone").code(), Code::NotFound);
    assert_eq!(server.update(made).await.expect_err("it is gone").code(), Code::NotFound);
}

#[tokio::test]
async fn a_reset_reports_that_no_node_reached_the_store() {
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
async fn a_node_forwards_to_its_admin_server_and_reports_when_that_is_down() {
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
        config.list_rate_limits(by(&editor, ListRateLimitsRequest {})).await.expect_err("the admin server is down"),
        config
            .create_rate_limit(by(&editor, create(posts(2, "fixed_window"))))
            .await
            .expect_err("the admin server is down"),
        health.reset_rate_limit(by(&operator, reset())).await.expect_err("the admin server is down"),
    ] {
        assert_eq!(refusal.code(), Code::Unavailable, "{refusal:?}");
    }
    assert!(limiter.check_rate_limit(post_of("bob")).await.is_ok(), "it goes on deciding");
}

/// Other long responses are those of `GetMetrics` and of batches.
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
