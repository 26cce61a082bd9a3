//! Runs a history: four nodes of one store, each behind a proxy of its own, callers that want more than the limits
//! have, and the faults of a schedule.

use std::{
    sync::{Arc, RwLock},
    time::Duration,
};

use redis::cmd;
use serde_json::{Value, json};
use tidegate::{Engine, Identity, Publish, Request, Snapshot, policy::Sharing};
use tidegate_fleet::store::{SharedEngine, StoreAddress, StoreSettings};
use tidegate_testkit::{fault_proxy::FaultProxy, redis::Redis};
use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    LIMITS,
    faults::{FaultStep, NODES, PlannedStep, SeededRandom, schedule},
    record::{CheckOutcome, CheckRecord, HistoryRecord, RecordedClock, StepRecord, TestedLimit, store_time},
};
use crate::nodes::{Node, Skewed, run};

/// Settings with which a store that does not answer is noticed within a second, and a slow machine shows as degraded.
/// Leases run out within the history.
pub(crate) const SETTINGS: StoreSettings = StoreSettings {
    timeout: Duration::from_millis(100),
    failures_max: 5,
    pause: Duration::from_millis(300),
    sync_interval: Duration::from_millis(100),
    lease: Duration::from_secs(2),
    watch_interval: Duration::from_secs(1),
    operator_timeout: Duration::from_secs(1),
    close_timeout: Duration::from_secs(1),
};

/// A defect of a history, which the judge must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HistoryMutation {
    /// The proxies of all nodes replace a part of the script by this text, which is at most as long.
    Script { this: &'static str, instead_of: &'static str },
    /// One node has so many hundredths of each limit, under the same version.
    Numbers { percent: u64 },
}

/// A history to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HistoryPlan {
    pub(crate) seed: u64,
    pub(crate) lasts: Duration,
    pub(crate) has_faults: bool,
    pub(crate) mutation: Option<HistoryMutation>,
}

/// A place for a node, which several nodes take in turn.
struct NodeSlot {
    proxy: FaultProxy,
    /// The node that has the place, and its number among all nodes.
    node: RwLock<Option<(Arc<Node>, usize)>>,
}

impl NodeSlot {
    fn set(&self, node: Option<(Arc<Node>, usize)>) {
        *self.node.write().expect("no panic") = node;
    }

    fn node(&self) -> Option<(Arc<Node>, usize)> {
        self.node.read().expect("no panic").clone()
    }
}

/// A time in which the callers of a limit check on a node with the same pauses.
#[derive(Clone, Copy, Debug)]
struct Phase {
    until: Duration,
    /// The factor of the pauses between two checks; `None`: the callers do not check.
    slowness: Option<u32>,
}

/// Draws the phases of the callers of a limit on one node. All callers begin busy, and now and then check seldom or not
/// at all, so that leases run out and go back.
fn phases(random: &mut SeededRandom, lasts: Duration) -> Vec<Phase> {
    let (mut phases, mut at) = (Vec::new(), Duration::ZERO);
    while at < lasts {
        let (slowness, ms) = match random.within(0, 5) {
            0 => (None, (500, 3_000)),
            1 => (Some(10), (1_000, 5_000)),
            _ => (Some(1), (2_000, 5_000)),
        };
        let slowness = if phases.is_empty() { Some(1) } else { slowness };
        at = lasts.min(at + random.ms(ms.0, ms.1));
        phases.push(Phase { until: at, slowness });
    }
    phases
}

/// Runs a history.
pub(crate) fn history(plan: HistoryPlan) -> HistoryRecord {
    run(play(plan))
}

async fn play(plan: HistoryPlan) -> HistoryRecord {
    let redis = Redis::start();
    let proxy = || match plan.mutation {
        Some(HistoryMutation::Script { this, instead_of }) => {
            let this = format!("{this:length$}", length = instead_of.len());
            FaultProxy::that_writes(redis.address(), this.as_bytes(), instead_of.as_bytes())
        }
        _ => FaultProxy::before(redis.address()),
    };
    let places: Arc<[NodeSlot]> = (0..NODES).map(|_| NodeSlot { proxy: proxy(), node: RwLock::new(None) }).collect();
    for (number, place) in places.iter().enumerate() {
        let node = node(place, (plan, number), (1, 100), 0).await;
        place.set(Some((Arc::new(node), number)));
    }
    let began = RecordedClock::now();
    let began_at = began.steady;
    let mut callers = JoinSet::new();
    for (place, limit) in (0..NODES).flat_map(|place| (0..LIMITS.len()).map(move |limit| (place, limit))) {
        let part = 100 + (place * LIMITS.len() + limit) as u64;
        let phases: Arc<[_]> = phases(&mut SeededRandom::of(plan.seed, part), plan.lasts).into();
        for caller in 0..callers_of(&LIMITS[limit]) {
            let random = SeededRandom::of(plan.seed, 1_000 + ((place * LIMITS.len() + limit) * 10 + caller) as u64);
            callers.spawn(call(Arc::clone(&places), (place, limit), random, (began_at, Arc::clone(&phases))));
        }
    }
    let (of, handle) = (Arc::clone(&places), Handle::current());
    let steps = if plan.has_faults { schedule(plan.seed, plan.lasts) } else { Vec::new() };
    let made = tokio::task::spawn_blocking(move || make(redis, &of, &handle, (plan, began_at), &steps));
    let mut checks = callers.join_all().await.concat();
    let made = made.await.expect("no panic");
    checks.sort_by_key(|check| check.earliest);
    let ended = RecordedClock::now();
    HistoryRecord {
        seed: plan.seed,
        began: began.wall,
        ended: ended.wall,
        lease: SETTINGS.lease,
        checks,
        made,
        clock_set_by: ended.set_since(&began),
    }
}

/// Returns the number of callers of a limit: one for a synced limit, since a view is covered in the order of its
/// admissions.
fn callers_of(limit: &TestedLimit) -> usize {
    if limit.sharing == Sharing::Synced { 1 } else { 2 }
}

fn policy(percent: u64) -> Snapshot {
    let limit = |limit: &TestedLimit| {
        let numbers = limit.numbers(percent);
        let mut value = json!({
            "id": "s", "algorithm": limit.algorithm, "limit": numbers.limit, "sharing": limit.sharing, "on_failure": "closed",
            "period": format!("{}s", limit.period.as_secs()),
        });
        if limit.burst.is_some() {
            value["burst"] = json!(numbers.burst);
        }
        value
    };
    let tiers: Vec<Value> = LIMITS.iter().map(|it| json!({ "id": it.name, "limits": [limit(it)] })).collect();
    let defaults: serde_json::Map<_, _> = LIMITS.iter().map(|it| (it.name.to_owned(), json!(it.name))).collect();
    let policy = json!({ "domains": { "default": { "defaults": defaults, "tiers": tiers } } });
    Snapshot::compile(&serde_json::from_value(policy).expect("a policy")).expect("it is right")
}

fn publish(engine: &Engine<Skewed>, (plan, number): (HistoryPlan, usize), (version, percent): (u64, u64)) {
    let percent = match plan.mutation {
        Some(HistoryMutation::Numbers { percent: of_node }) if number == 0 => percent * of_node / 100,
        _ => percent,
    };
    engine.publish(Publish::of(policy(percent)).under_version(version)).expect("a newer version, and few limits");
}

async fn node(place: &NodeSlot, which: (HistoryPlan, usize), numbers: (u64, u64), wrong_by_s: i64) -> Node {
    let engine = Arc::new(Engine::with_clock(1_000, Skewed::by_seconds(wrong_by_s)));
    publish(&engine, which, numbers);
    let address = StoreAddress::new(&[place.proxy.url()]);
    let shared = SharedEngine::new(Arc::clone(&engine), &address, SETTINGS).await.expect("an address");
    Node { engine, shared }
}

/// Makes the steps, each when it is due or as soon after that as possible.
fn make(
    mut redis: Redis,
    places: &[NodeSlot],
    handle: &Handle,
    (plan, began_at): (HistoryPlan, Instant),
    steps: &[PlannedStep],
) -> Vec<StepRecord> {
    let mut made = Vec::new();
    let mut numbers = [(1, 100); NODES];
    let mut nodes = NODES;
    for &PlannedStep { at, step } in steps {
        std::thread::sleep(at.saturating_sub(began_at.elapsed()));
        let from = store_time();
        match step {
            FaultStep::KillStore => redis.kill(),
            FaultStep::StartStore => redis.start_again(),
            FaultStep::PauseStore => redis.pause(),
            FaultStep::ResumeStore => redis.resume(),
            FaultStep::FlushScripts => redis.ask::<()>(cmd("SCRIPT").arg("FLUSH")).expect("it answers"),
            FaultStep::Hold { node, holds } => places[node].proxy.hold(holds),
            FaultStep::Delay { node, by } => places[node].proxy.delay(by),
            FaultStep::Drop { node, drops } => places[node].proxy.drop_half(drops),
            FaultStep::KillNode { node: at, wrong_by_s } => {
                // Its leases are not given back, and what it has not exchanged is lost.
                places[at].set(None);
                let new = handle.block_on(node(&places[at], (plan, at), numbers[at], wrong_by_s));
                places[at].set(Some((Arc::new(new), nodes)));
                nodes += 1;
            }
            FaultStep::Publish { node, version, percent } => {
                numbers[node] = (version, percent);
                if let Some((it, _)) = places[node].node() {
                    publish(&it.engine, (plan, node), numbers[node]);
                }
            }
        }
        made.push(StepRecord { step, from, until: store_time() });
    }
    std::thread::sleep(plan.lasts.saturating_sub(began_at.elapsed()));
    made
}

/// Checks one limit on the node of a place again and again, and records each check.
async fn call(
    places: Arc<[NodeSlot]>,
    (place, limit): (usize, usize),
    mut random: SeededRandom,
    (began_at, phases): (Instant, Arc<[Phase]>),
) -> Vec<CheckRecord> {
    let TestedLimit { name, sharing, .. } = LIMITS[limit];
    let who = [Identity::new(name, "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let is_synced = sharing == Sharing::Synced;
    let mut checks = Vec::new();
    while let Some(phase) = phases.iter().find(|phase| began_at.elapsed() < phase.until) {
        let Some(slowness) = phase.slowness else {
            sleep(phase.until.saturating_sub(began_at.elapsed())).await;
            continue;
        };
        // Now and then many at once.
        let pause = match random.within(0, 9) {
            0 => random.ms(100, 300),
            1..=3 => Duration::ZERO,
            _ => random.ms(10, 80),
        };
        sleep(slowness * pause / if is_synced { 2 } else { 1 }).await;
        let Some((node, number)) = places[place].node() else { continue };
        let cost = cost(&mut random, sharing);
        let (idea, uncovered) = if is_synced { node.shared.unanswered(&request) } else { (0, 0) };
        let before = store_time();
        let said = node.check_of(&[(name, "ada")], cost).await;
        let latest = store_time();
        let earliest = if is_synced {
            // The lateness of the node's idea of the store's time: before the check, or after it.
            let behind = (before.saturating_sub(idea)).max(latest.saturating_sub(node.shared.unanswered(&request).0));
            before.saturating_sub(behind)
        } else {
            before
        };
        assert!(!said.allowed || said.degraded.is_none(), "{name} is closed, and was admitted without the store");
        let outcome = match (said.allowed, said.degraded) {
            (true, _) => CheckOutcome::Admitted,
            (false, None) => CheckOutcome::Denied,
            (false, Some(_)) => CheckOutcome::Degraded,
        };
        checks.push(CheckRecord { limit, node: number, cost, earliest, latest, uncovered, outcome });
    }
    checks
}

/// Returns the cost of a check: mostly small, and now and then large.
fn cost(random: &mut SeededRandom, sharing: Sharing) -> u64 {
    let cost = match random.within(0, 19) {
        0 => random.within(6, 20),
        1..=4 => random.within(2, 5),
        _ => 1,
    };
    match sharing {
        Sharing::Leased => 8 * cost - random.within(0, 7),
        Sharing::Synced => 4 * cost - random.within(0, 3),
        _ => cost,
    }
}
