//! Nodes for tests: engines of this process that share their limits through a real store.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tidegate::{
    Decide, Degraded, Engine, Identity, Request, Retry, Snapshot,
    clock::{Clock, SystemClock},
    time::Timestamp,
};
use tidegate_fleet::store::{SharedEngine, StoreAddress, StoreSettings};
use tidegate_testkit::PATIENCE;
use tokio::{
    runtime,
    task::JoinSet,
    time::{Instant, sleep},
};

/// Settings with patience: machines of tests are busy, and most tests are not about slowness.
pub(crate) const PATIENT: StoreSettings = StoreSettings {
    timeout: Duration::from_secs(20),
    failures_max: 5,
    pause: Duration::from_millis(200),
    sync_interval: Duration::from_millis(100),
    lease: Duration::from_mins(1),
    watch_interval: Duration::from_mins(1),
    operator_timeout: Duration::from_secs(20),
    close_timeout: PATIENCE,
};

/// Waits until a condition holds, for a minute at most.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "waited a minute in vain: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the store has so many tokens left for these identities.
pub(crate) async fn left_becomes(node: &Node, who: &[(&str, &str)], left: u64) {
    let is_left = async || node.check_of(who, 0).await.remaining == Some(left);
    until(&format!("{left} are left of {who:?}"), is_left).await;
}

/// A clock that is wrong by so many nanoseconds.
pub(crate) struct Skewed {
    clock: SystemClock,
    by: i64,
}

impl Skewed {
    pub(crate) fn by_seconds(seconds: i64) -> Self {
        Self { clock: SystemClock::new(), by: seconds * 1_000_000_000 }
    }
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.clock.now().as_nanos().saturating_add_signed(self.by))
    }
}

/// A node with its engine, to which tests publish.
pub(crate) struct Node {
    pub(crate) engine: Arc<Engine<Skewed>>,
    pub(crate) shared: SharedEngine<Skewed>,
}

/// Publishes limits of users and of addresses.
pub(crate) fn publish(engine: &Engine<Skewed>, user: &Value, ip: &Value) {
    let tier = |id: &str, limits: &Value| json!({ "id": id, "limits": limits });
    let policy = json!({ "domains": { "default": {
        "defaults": { "user": "user", "ip": "ip" },
        "tiers": [tier("user", user), tier("ip", ip)],
    } } });
    let policy = serde_json::from_value(policy).expect("a policy");
    engine.publish(Snapshot::compile(&policy).expect("it is right")).expect("few limits");
}

pub(crate) fn limit(sharing: &str, algorithm: &str, limit: u64, period: &str) -> Value {
    json!({ "id": "s", "algorithm": algorithm, "limit": limit, "period": period, "sharing": sharing })
}

/// Returns a limit of addresses that no test reaches.
pub(crate) fn wide() -> Value {
    json!([{ "id": "w", "algorithm": "token_bucket", "limit": 1_000_000, "period": "1s" }])
}

pub(crate) async fn node(urls: &[String], settings: StoreSettings, user: &Value) -> Node {
    skewed_node(urls, settings, user, 0).await
}

/// Starts a node whose clock is wrong by so many seconds.
pub(crate) async fn skewed_node(urls: &[String], settings: StoreSettings, user: &Value, seconds: i64) -> Node {
    node_at(&StoreAddress::new(urls), settings, user, seconds).await
}

/// Starts a node of the store at this address, whose clock is wrong by so many seconds.
pub(crate) async fn node_at(address: &StoreAddress, settings: StoreSettings, user: &Value, seconds: i64) -> Node {
    let engine = Arc::new(Engine::with_clock(1_000, Skewed::by_seconds(seconds)));
    publish(&engine, &json!([user]), &wide());
    let shared = SharedEngine::new(Arc::clone(&engine), address, settings).await.expect("a store");
    Node { engine, shared }
}

/// The fields of a decision that these tests check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CheckedDecision {
    pub(crate) allowed: bool,
    pub(crate) remaining: Option<u64>,
    pub(crate) degraded: Option<Degraded>,
    pub(crate) retry: Retry,
}

impl Node {
    pub(crate) async fn check(&self, user: &str) -> CheckedDecision {
        self.check_of(&[("user", user)], 1).await
    }

    pub(crate) async fn check_of(&self, who: &[(&str, &str)], cost: u64) -> CheckedDecision {
        let who: Vec<_> = who.iter().map(|(kind, value)| Identity::new(kind, value).expect("valid")).collect();
        let request = Request::new(&who).and_then(|request| request.cost(cost.max(1))).expect("valid");
        let request = if cost == 0 { request.without_cost() } else { request };
        let decision = self.shared.decide(&request).await;
        CheckedDecision {
            allowed: decision.is_allowed(),
            remaining: decision.remaining(),
            degraded: decision.degraded(),
            retry: decision.retry(),
        }
    }
}

pub(crate) fn run<T>(what: impl Future<Output = T>) -> T {
    runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime").block_on(what)
}

/// Checks so many times on each node, and returns how many checks were allowed.
pub(crate) async fn allowed(nodes: &[Arc<Node>], each: usize, user: &'static str) -> usize {
    let mut checks = JoinSet::new();
    for node in nodes.iter().cycle().take(nodes.len() * each) {
        let node = Arc::clone(node);
        checks.spawn(async move { node.check(user).await });
    }
    let mut allowed = 0;
    while let Some(said) = checks.join_next().await {
        let said = said.expect("no panic");
        assert_eq!(said.degraded, None);
        allowed += usize::from(said.allowed);
    }
    allowed
}

pub(crate) async fn four(urls: &[String], limit: &Value) -> Vec<Arc<Node>> {
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(Arc::new(node(urls, PATIENT, limit).await));
    }
    nodes
}
