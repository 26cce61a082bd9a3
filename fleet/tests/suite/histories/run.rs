//! Runs a history: four nodes of one store, each behind a proxy of its own, callers that offer more than the limits have, and the
//! faults of a schedule.

use std::{
    sync::{Arc, RwLock},
    time::Duration,
};

use redis::cmd;
use serde_json::{Value, json};
use tidegate::{
    Engine, Identity, Publish, Request, Snapshot,
    policy::{Algorithm, Sharing},
};
use tidegate_fleet::store::{Shared, StoreAddress, StoreSettings};
use tidegate_testkit::{fault_proxy::FaultProxy, redis::Redis};
use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    LIMITS,
    faults::{NODES, Planned, Random, Step, schedule},
    record::{Check, History, Limit, Made, Outcome, store_time},
};
use crate::nodes::{Node, Skewed, run};

/// A store that does not answer is noticed within a second, and a slow machine shows as degraded. Leases run out within the history.
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

/// A defect that a history has, which the judge is to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutation {
    /// The proxies of all nodes write this into the script, in the place of text that is as long or longer.
    Script { this: &'static str, instead_of: &'static str },
    /// One node has so many hundredths of each limit, under the same version.
    Numbers { percent: u64 },
}

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) lasts: Duration,
    pub(crate) has_faults: bool,
    pub(crate) mutation: Option<Mutation>,
}

/// The place of a node, in which one comes after the other.
struct Place {
    proxy: FaultProxy,
    /// The node that is there, and which one of all it is.
    node: RwLock<Option<(Arc<Node>, usize)>>,
}

impl Place {
    fn set(&self, node: Option<(Arc<Node>, usize)>) {
        *self.node.write().expect("no panic") = node;
    }

    fn node(&self) -> Option<(Arc<Node>, usize)> {
        self.node.read().expect("no panic").clone()
    }
}

/// Runs a history.
pub(crate) fn history(plan: Plan) -> History {
    run(play(plan))
}

async fn play(plan: Plan) -> History {
    let redis = Redis::start();
    let proxy = || match plan.mutation {
        Some(Mutation::Script { this, instead_of }) => {
            let this = format!("{this:length$}", length = instead_of.len());
            FaultProxy::that_writes(redis.address(), this.as_bytes(), instead_of.as_bytes())
        }
        _ => FaultProxy::before(redis.address()),
    };
    let places: Arc<[Place]> = (0..NODES).map(|_| Place { proxy: proxy(), node: RwLock::new(None) }).collect();
    for (number, place) in places.iter().enumerate() {
        let node = node(place, (plan, number), (1, 100), 0).await;
        place.set(Some((Arc::new(node), number)));
    }
    let (began, began_at) = (store_time(), Instant::now());
    let ends = began_at + plan.lasts;
    let mut callers = JoinSet::new();
    for (place, limit) in (0..NODES).flat_map(|place| (0..LIMITS.len()).map(move |limit| (place, limit))) {
        for caller in 0..callers_of(&LIMITS[limit]) {
            let random = Random::of(plan.seed, 1_000 + ((place * LIMITS.len() + limit) * 10 + caller) as u64);
            callers.spawn(call(Arc::clone(&places), (place, limit), random, ends));
        }
    }
    let (of, handle) = (Arc::clone(&places), Handle::current());
    let steps = if plan.has_faults { schedule(plan.seed, plan.lasts) } else { Vec::new() };
    let made = tokio::task::spawn_blocking(move || make(redis, &of, &handle, (plan, began_at), &steps));
    let mut checks = callers.join_all().await.concat();
    let made = made.await.expect("no panic");
    checks.sort_by_key(|check| check.earliest);
    let ended = store_time();
    let wall = Duration::from_nanos(ended.saturating_sub(began));
    let clock_set_by = wall.abs_diff(began_at.elapsed());
    History { seed: plan.seed, began, ended, lease: SETTINGS.lease, checks, made, clock_set_by }
}

/// A view is covered in the order of its admissions, so one caller after the other asks for a synced limit.
fn callers_of(limit: &Limit) -> usize {
    if limit.sharing == Sharing::Synced { 1 } else { 2 }
}

fn policy(percent: u64) -> Snapshot {
    let limit = |limit: &Limit| {
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

fn publish(engine: &Engine<Skewed>, (plan, number): (Plan, usize), (version, percent): (u64, u64)) {
    let percent = match plan.mutation {
        Some(Mutation::Numbers { percent: of_node }) if number == 0 => percent * of_node / 100,
        _ => percent,
    };
    engine.publish(Publish::of(policy(percent)).under_version(version)).expect("a newer version, and few limits");
}

async fn node(place: &Place, which: (Plan, usize), numbers: (u64, u64), wrong_by_s: i64) -> Node {
    let engine = Arc::new(Engine::with_clock(1_000, Skewed::by_seconds(wrong_by_s)));
    publish(&engine, which, numbers);
    let address = StoreAddress::new(&[place.proxy.url()]);
    let shared = Shared::new(Arc::clone(&engine), &address, SETTINGS).await.expect("an address");
    Node { engine, shared }
}

/// Makes the steps, each when it is due or as soon after it as it can be.
fn make(
    mut redis: Redis,
    places: &[Place],
    handle: &Handle,
    (plan, began_at): (Plan, Instant),
    steps: &[Planned],
) -> Vec<Made> {
    let mut made = Vec::new();
    let mut numbers = [(1, 100); NODES];
    let mut nodes = NODES;
    for &Planned { at, step } in steps {
        std::thread::sleep(at.saturating_sub(began_at.elapsed()));
        let from = store_time();
        match step {
            Step::KillStore => redis.kill(),
            Step::StartStore => redis.start_again(),
            Step::PauseStore => redis.pause(),
            Step::ResumeStore => redis.resume(),
            Step::FlushScripts => redis.ask::<()>(cmd("SCRIPT").arg("FLUSH")).expect("it answers"),
            Step::Hold { node, holds } => places[node].proxy.hold(holds),
            Step::Delay { node, by } => places[node].proxy.delay(by),
            Step::Drop { node, drops } => places[node].proxy.drop_half(drops),
            Step::KillNode { node: at, wrong_by_s } => {
                // Its leases are not given back, and what it has not told is lost.
                places[at].set(None);
                let new = handle.block_on(node(&places[at], (plan, at), numbers[at], wrong_by_s));
                places[at].set(Some((Arc::new(new), nodes)));
                nodes += 1;
            }
            Step::Publish { node, version, percent } => {
                numbers[node] = (version, percent);
                if let Some((it, _)) = places[node].node() {
                    publish(&it.engine, (plan, node), numbers[node]);
                }
            }
        }
        made.push(Made { step, from, until: store_time() });
    }
    std::thread::sleep(plan.lasts.saturating_sub(began_at.elapsed()));
    made
}

/// Asks the node of a place for one limit again and again, and records what it says.
async fn call(places: Arc<[Place]>, (place, limit): (usize, usize), mut random: Random, ends: Instant) -> Vec<Check> {
    let Limit { name, sharing, algorithm, .. } = LIMITS[limit];
    let who = [Identity::new(name, "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let is_synced = sharing == Sharing::Synced;
    let mut checks = Vec::new();
    while Instant::now() < ends {
        // Now and then many at once.
        let pause = match random.within(0, 9) {
            0 => random.ms(100, 300),
            1..=3 => Duration::ZERO,
            _ => random.ms(10, 80),
        };
        sleep(pause / if is_synced { 2 } else { 1 }).await;
        let Some((node, number)) = places[place].node() else { continue };
        let cost = cost(&mut random, sharing, algorithm);
        let (idea, uncovered) = if is_synced { node.shared.unanswered(&request) } else { (0, 0) };
        let before = store_time();
        let said = node.check_of(&[(name, "ada")], cost).await;
        let latest = store_time();
        let earliest = if is_synced {
            // By how much the node's idea of the store's time is late: before the check, or after it.
            let behind = (before.saturating_sub(idea)).max(latest.saturating_sub(node.shared.unanswered(&request).0));
            before.saturating_sub(behind)
        } else {
            before
        };
        assert!(!said.allowed || said.degraded.is_none(), "{name} is closed, and was admitted without the store");
        let outcome = match (said.allowed, said.degraded) {
            (true, _) => Outcome::Admitted,
            (false, None) => Outcome::Denied,
            (false, Some(_)) => Outcome::Degraded,
        };
        checks.push(Check { limit, node: number, cost, earliest, latest, uncovered, outcome });
    }
    checks
}

/// Mostly little, and now and then much.
fn cost(random: &mut Random, sharing: Sharing, algorithm: Algorithm) -> u64 {
    let cost = match random.within(0, 19) {
        0 => random.within(6, 20),
        1..=4 => random.within(2, 5),
        _ => 1,
    };
    match (sharing, algorithm) {
        (Sharing::Leased, _) => 6 * cost,
        (Sharing::Synced, _) => 3 * cost,
        _ => cost,
    }
}
