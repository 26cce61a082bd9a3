//! Test only: one run of the simulation, from its scenario to the check of what was admitted.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tidegate::{
    Snapshot,
    policy::{Algorithm, Sharing},
    time::SECOND_NS,
};
use tokio::{
    runtime,
    time::{Instant, sleep},
};

use super::{
    check::check,
    history::{RunHistory, RunReport},
    judge::judge,
    network::{Network, NetworkConditions},
    node::{SharedLimit, SimulatedNode, snapshot},
    random::SimulationRandom,
    scenario::{EPOCH, InjectedFault, LONG_WINDOW_S, Scenario},
};
use crate::{
    lock::lock,
    store::script::{plan::excess, record::StoredRecord},
};

/// Runs a scenario from its beginning to its end. The error states what is wrong.
pub(super) fn run(scenario: &Scenario, is_traced: bool) -> Result<RunReport, String> {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let outcome = runtime.expect("a runtime").block_on(async { Run::start(scenario, is_traced).await.finish().await });
    outcome.map_err(|why| format!("{why}\nrun it again: TIDEGATE_SIMULATION={}\n{scenario:?}", scenario.seed))
}

struct Run {
    scenario: Scenario,
    random: SimulationRandom,
    network: Arc<Network>,
    nodes: Vec<Arc<SimulatedNode>>,
    history: Arc<Mutex<RunHistory>>,
    policies: [Arc<Snapshot>; 2],
    /// Whether the newer policy was published on a node.
    is_changed: bool,
    /// The tokens above a synced limit that nodes which are gone may have admitted.
    untold: u64,
    /// The tokens that those nodes had spent and not sent.
    lost: u64,
}

impl Run {
    async fn start(scenario: &Scenario, is_traced: bool) -> Self {
        let mut random = SimulationRandom::new(scenario.seed.rotate_left(32) ^ 0x5eed);
        let epoch = EPOCH + random.below(100_000_000) * 1_000;
        let network = Network::new(random.next(), epoch, (scenario.is_cluster, is_traced), scenario.conditions);
        let policies = [snapshot(&scenario.limits), snapshot(&scenario.changed)];
        let history =
            Arc::new(Mutex::new(RunHistory { limits: scenario.limits.len(), is_traced, ..RunHistory::default() }));
        let nodes = Vec::new();
        let scenario = scenario.clone();
        let mut run =
            Self { scenario, random, network, nodes, history, policies, is_changed: false, untold: 0, lost: 0 };
        for place in 0..run.scenario.nodes {
            run.pass(run.random.clone().below(1_000)).await;
            let node = run.node(place).await;
            run.nodes.push(Arc::new(node));
        }
        run
    }

    /// Starts a node whose clock is wrong by up to half an hour.
    async fn node(&mut self, place: usize) -> SimulatedNode {
        // A node that starts late may have an old policy.
        let version = usize::from(self.is_changed && self.random.happens(500));
        let policy = (Arc::clone(&self.policies[version]), 1 + version as u64);
        let at_first = self.network.now() - 1_800 * SECOND_NS + self.random.below(3_600 * SECOND_NS);
        SimulatedNode::start(&self.network, place, policy, self.scenario.settings, at_first).await
    }

    async fn pass(&mut self, ms: u64) {
        let ms = self.random.within(0, ms);
        sleep(Duration::from_millis(ms)).await;
    }

    fn note(&self, what: impl FnOnce() -> String) {
        lock(&self.history).note(self.network.now(), what);
    }

    /// Stops or kills a node, and starts another one in its place.
    async fn replace(&mut self, place: usize, is_closed: bool) {
        let node = Arc::clone(&self.nodes[place]);
        self.note(|| format!("node {place} {}", if is_closed { "stops" } else { "is killed" }));
        if is_closed {
            node.shared.close().await;
        }
        self.remove(&node);
        drop(node);
        let node = self.node(place).await;
        self.nodes[place] = Arc::new(node);
    }

    fn remove(&mut self, node: &SimulatedNode) {
        node.wire.kill();
        self.untold += node.untold_max();
        self.lost += node.shared.quotas.unanswered_max();
        let mut history = lock(&self.history);
        history.report.killed += 1;
        history.report.ticks += self.ticks(node);
    }

    /// Returns how often the timers of a node fired: one each for its quotas, its health monitor, its probe and its
    /// exchange.
    fn ticks(&self, node: &SimulatedNode) -> u64 {
        let every_ms = [50, 50, 25, self.scenario.settings.sync_interval.as_millis()];
        every_ms.iter().map(|every| (node.age().as_millis() / every) as u64).sum()
    }

    /// Makes one check, in a task of its own.
    fn check(&mut self, place: usize, key: usize, cost: u64) {
        let refund = (self.scenario.has_refunds && self.random.happens(100)).then(|| self.random.below(400));
        let node = Arc::clone(&self.nodes[place]);
        let (network, history) = (Arc::clone(&self.network), Arc::clone(&self.history));
        tokio::spawn(
            async move { check(&node, &network, &history, (key, cost), refund.map(Duration::from_millis)).await },
        );
    }

    async fn finish(mut self) -> Result<RunReport, String> {
        for _ in 0..self.scenario.steps {
            self.step().await;
        }
        self.end_faults().await;
        self.count().await?;
        self.recover().await?;
        self.judge()
    }

    async fn step(&mut self) {
        let (nodes, keys) = (self.nodes.len() as u64, self.scenario.keys as u64);
        let place = self.random.below(nodes) as usize;
        if self.random.happens(self.scenario.fault_chance) {
            return self.inject_fault(place).await;
        }
        if self.scenario.has_change() && self.random.happens(10) {
            self.is_changed = true;
            self.note(|| format!("node {place} has the newer policy"));
            self.nodes[place].publish(&self.policies[1], 2);
        }
        let burst = self.scenario.limits.iter().map(SharedLimit::capacity).max().unwrap_or(0);
        let checks = if self.random.happens(20) { burst } else { self.random.within(0, self.scenario.crowd) };
        for _ in 0..checks {
            // The last node has little load, so that it holds tokens that it does not need.
            let is_any = !self.scenario.is_uneven || nodes == 1 || self.random.happens(20);
            let node = self.random.below(if is_any { nodes } else { nodes - 1 }) as usize;
            let key = self.random.below(keys) as usize;
            let cost = if self.random.happens(800) { 1 } else { self.random.within(1, 6) };
            self.check(node, key, cost);
        }
        let lease_ms = self.scenario.settings.lease.as_millis() as u64;
        let longest = self.random.one_of(&[0, 0, 2, 2, 2, 10, 10, 40, 40, 200, 600]);
        let longest = if self.random.happens(6) { lease_ms * 2 } else { longest };
        self.pass(longest).await;
    }

    async fn inject_fault(&mut self, place: usize) {
        let (what, place) = match self.scenario.only {
            Some(only) => (only, self.nodes.len() - 1),
            None => (InjectedFault::any(&mut self.random), place),
        };
        match what {
            InjectedFault::Kill => self.replace(place, false).await,
            InjectedFault::Stop => self.replace(place, true).await,
            InjectedFault::CutOff => {
                let wire = &self.nodes[place].wire;
                wire.cut(!wire.is_cut());
                self.note(|| format!("node {place} is cut off: {}", self.nodes[place].wire.is_cut()));
            }
            InjectedFault::HoldAnswers => {
                let ms = self.random.one_of(&[30, 300, 600, 2_000]);
                self.note(|| format!("answers to node {place} are held back for {ms} ms"));
                self.nodes[place].wire.hold(Duration::from_millis(ms));
            }
            InjectedFault::PauseStore => {
                let ms = self.random.one_of(&[10, 30, 200, 4_000]);
                self.note(|| format!("the store is paused for {ms} ms"));
                self.network.pause_store(Duration::from_millis(ms));
            }
            InjectedFault::NetworkConditions => {
                let conditions = NetworkConditions {
                    delay_ms: self.random.one_of(&[0, 1, 2, 4]),
                    slow: self.random.one_of(&[0, 0, 50, 300]),
                    lost: self.random.one_of(&[0, 0, 50, 300]),
                };
                self.note(|| format!("{conditions:?}"));
                self.network.set_conditions(conditions);
            }
        }
    }

    /// Ends all faults, and waits until everything under way has arrived.
    async fn end_faults(&mut self) {
        self.note(|| "all faults end".to_owned());
        self.network.set_conditions(NetworkConditions::IDEAL);
        self.network.pause_store(Duration::ZERO);
        for node in &self.nodes {
            node.wire.cut(false);
            node.wire.hold(Duration::ZERO);
            node.publish(&self.policies[1], 2);
        }
        // Two nodes stay: more would only cost time.
        let nodes = self.nodes.split_off(self.nodes.len().min(2));
        for node in nodes {
            self.remove(&node);
        }
        sleep(Duration::from_secs(13) + self.scenario.settings.pause).await;
    }

    /// Compares the store's count with what was admitted, where all of it is in one window: each delta counts once.
    async fn count(&mut self) -> Result<(), String> {
        let Scenario { ref limits, has_refunds, .. } = self.scenario;
        let [limit] = limits[..] else { return Ok(()) };
        // A change of the numbers forgets what was used above them.
        let is_exact = !has_refunds && !self.scenario.has_change();
        if !is_exact || limit.sharing != Sharing::Synced || limit.period_s != LONG_WINDOW_S {
            return Ok(());
        }
        for node in &self.nodes {
            node.shared.close().await;
        }
        for key in 0..self.scenario.keys {
            let node = &self.nodes[0];
            let text = self.network.value(&node.key(&key.to_string(), 0));
            let meter = self.meter(0);
            let held = StoredRecord::read(text.clone(), &meter).held;
            let counted = held.map_or(0, |held| held.under.meter.tail_of(held.word));
            let admissions = lock(&self.history).admissions.clone();
            let admitted: u64 = admissions.iter().filter(|it| it.key == key).map(|it| it.cost).sum();
            if counted > admitted || counted + self.lost < admitted {
                return Err(format!("{admitted} were admitted of key {key}, and the store has {counted}: {text}"));
            }
            lock(&self.history).report.counted += u64::from(admitted > 0);
        }
        Ok(())
    }

    fn meter(&self, limit: usize) -> tidegate::algorithm::Meter {
        let SharedLimit { algorithm, tokens, burst, .. } = self.scenario.changed[limit];
        let period_ns = self.scenario.changed[limit].period_ns();
        let text = match algorithm {
            Algorithm::TokenBucket => format!("token_bucket/{tokens}/{period_ns}/{burst}"),
            Algorithm::LeakyBucket => format!("leaky_bucket/{tokens}/{period_ns}/{burst}"),
            Algorithm::FixedWindow => format!("fixed_window/{tokens}/{period_ns}"),
            Algorithm::SlidingWindowCounter => format!("sliding_window_counter/{tokens}/{period_ns}"),
            Algorithm::SlidingWindowLog => format!("sliding_window_log/{tokens}/{period_ns}"),
            _ => panic!("no meter of {algorithm:?}"),
        };
        text.parse().expect("a meter")
    }

    /// Checks that a limit can be used again two epochs after nodes died with leases out.
    async fn recover(&mut self) -> Result<(), String> {
        let [limit] = self.scenario.changed[..] else { return Ok(()) };
        if limit.period_s == LONG_WINDOW_S || limit.capacity() < 20 {
            return Ok(());
        }
        self.scenario.has_refunds = false;
        // The debt is repaid first.
        let meter = self.meter(0);
        let text = self.network.value(&self.nodes[0].key("0", 0));
        let owed =
            StoredRecord::read(text, &meter).held.map_or(0, |held| excess(&meter, held.word, self.network.now()));
        let refill = limit.capacity().max(limit.tokens).saturating_add(owed).div_ceil(limit.tokens) * limit.period_s;
        let wait = 2 * self.scenario.settings.lease + Duration::from_secs(refill + limit.period_s + 1);
        if wait > Duration::from_secs(40) {
            return Ok(());
        }
        self.note(|| format!("nothing happens for {wait:?}"));
        // A check now and then keeps the key alive. A log in a store ages with its youngest entry.
        let until = Instant::now() + wait;
        while Instant::now() < until {
            if limit.algorithm != Algorithm::SlidingWindowLog {
                self.check(0, 0, 1);
            }
            sleep(wait / 10).await;
        }
        let before = lock(&self.history).admissions.len();
        let history = Arc::clone(&self.history);
        let admitted = || lock(&history).admissions[before..].iter().map(|it| it.cost).sum::<u64>();
        // Up to a quarter may be lent to another node, and a few tokens were used while nothing else happened.
        let share = match (limit.sharing, limit.algorithm) {
            (Sharing::Leased, _) => limit.capacity() / 4,
            // What is sent after the end of a window counts in the next one, where it weighs more than in the one
            // before.
            (Sharing::Synced, Algorithm::SlidingWindowCounter) => limit.capacity() / 2,
            _ => 0,
        };
        let least = limit.capacity().saturating_sub(share + 12);
        for turn in 0..(4 * limit.capacity() + 100) as usize {
            if admitted() >= least {
                lock(&self.history).report.recovered += 1;
                break;
            }
            self.check(turn % self.nodes.len(), 0, 1);
            sleep(Duration::from_millis(5)).await;
        }
        if admitted() < least {
            return Err(format!(
                "after {wait:?} without faults {} were admitted, {least} are there: {limit:?}",
                admitted()
            ));
        }
        Ok(())
    }

    fn judge(self) -> Result<RunReport, String> {
        let mut history = lock(&self.history);
        let untold = self.untold + self.nodes.iter().map(|node| node.untold_max()).sum::<u64>();
        for (place, (first, second)) in self.scenario.limits.iter().zip(&self.scenario.changed).enumerate() {
            // The larger of both: numbers that fall and rise again forget what was above them, so they change once.
            let (tokens, burst) = (first.tokens.max(second.tokens), first.burst.max(second.burst));
            let limit = SharedLimit { tokens, burst, ..*first };
            // While nodes have different numbers, views of the same key are of different limits, and no bound holds for
            // both.
            if limit.sharing == Sharing::Synced && self.scenario.has_change() {
                continue;
            }
            let above = if limit.sharing == Sharing::Synced { untold } else { 0 };
            for key in 0..self.scenario.keys {
                let its = history.admissions.iter().filter(|it| (it.limit, it.key) == (place, key));
                let (exceeded, is_used_up) = judge(&limit, &its.copied().collect::<Vec<_>>(), above)?;
                history.report.exceeded = history.report.exceeded.max(exceeded);
                history.report.used_up += u64::from(is_used_up);
            }
        }
        let ticks: u64 = self.nodes.iter().map(|node| self.ticks(node)).sum();
        let report = &mut history.report;
        report.ticks += ticks;
        report.traffic = self.network.traffic();
        Ok(*report)
    }
}
