//! Test only: one run of the simulation, from its scenario to the check of what was admitted.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tidegate::{
    Answer, Begun, Identity, Request, Snapshot,
    policy::{Algorithm, Sharing},
    time::{Nanos, SECOND_NS},
};
use tokio::{
    runtime,
    time::{Instant, sleep},
};

use super::{
    judge::{Admission, judge},
    network::{Network, Traffic, Weather, trace},
    node::{Limit, Node, place_of, snapshot},
    random::Random,
};
use crate::{
    lock::lock,
    store::{
        config::StoreSettings,
        script::{plan::excess, record::StoredRecord},
    },
};

/// The store's time at the beginning of simulations: 2026.
pub(super) const EPOCH: Nanos = 1_790_035_200 * SECOND_NS;

/// The period of a window that is longer than a run.
const LONG_WINDOW_S: u64 = 86_400;

/// The scenario of a run.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    seed: u64,
    limits: Vec<Limit>,
    /// The limits of a newer policy.
    changed: Vec<Limit>,
    keys: usize,
    nodes: usize,
    steps: usize,
    /// The most checks of a step.
    crowd: u64,
    is_uneven: bool,
    is_cluster: bool,
    has_refunds: bool,
    settings: StoreSettings,
    weather: Weather,
    /// The chance, in thousandths, that something breaks in a step.
    trouble: u64,
    /// The only thing that breaks, if set, always at the last node.
    only: Option<Trouble>,
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// A node is killed.
    Kill,
    /// A node stops.
    Stop,
    /// A node is cut off, or reconnected.
    Cut,
    /// Answers to a node are held back.
    Hold,
    /// The store is paused.
    Stand,
    /// The conditions of the network change.
    Weather,
}

impl Trouble {
    fn any(random: &mut Random) -> Self {
        use Trouble::{Cut, Hold, Kill, Stand, Stop, Weather};
        random.one_of(&[Kill, Kill, Kill, Stop, Cut, Cut, Hold, Stand, Stand, Weather, Weather])
    }
}

impl Scenario {
    pub(super) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let count = 1 + usize::from(random.happens(250));
        let has_change = random.happens(300);
        let limits: Vec<_> = (0..count).map(|_| limit(random)).collect();
        let other = |limit: &Limit, random: &mut Random| {
            let times = |tokens: u64, random: &mut Random| (tokens * random.within(1, 16) / 4).max(1);
            let (tokens, burst) = (times(limit.tokens, random), times(limit.burst, random));
            if has_change { Limit { tokens, burst, ..*limit } } else { *limit }
        };
        let changed = limits.iter().map(|limit| other(limit, random)).collect();
        let ms = |choices: &[u64], random: &mut Random| Duration::from_millis(random.one_of(choices));
        let settings = StoreSettings {
            timeout: ms(&[5, 5, 20], random),
            pause: ms(&[200, 1_000, 5_000], random),
            sync_interval: ms(&[20, 100, 500], random),
            lease: ms(&[1_000, 3_000, 6_000], random),
            ..StoreSettings::default()
        };
        let weather = Weather {
            delay_ms: random.one_of(&[0, 1, 2]),
            slow: random.one_of(&[0, 0, 5, 20]),
            lost: random.one_of(&[0, 0, 5, 20]),
        };
        let drawn = Self {
            seed,
            limits,
            changed,
            keys: random.within(1, 3) as usize,
            nodes: random.within(1, 5) as usize,
            steps: random.within(100, 500) as usize,
            crowd: random.one_of(&[1, 6, 6]),
            is_uneven: random.happens(500),
            is_cluster: random.happens(300),
            has_refunds: random.happens(300),
            settings,
            weather,
            trouble: random.one_of(&[0, 10, 30, 60]),
            only: None,
        };
        match random.below(8) {
            0 => drawn.counted(random),
            1 => drawn.cut_off(random),
            _ => drawn,
        }
    }

    /// Makes it a scenario in which the store's count of a window is compared with what was admitted.
    fn counted(self, random: &mut Random) -> Self {
        let limit = Limit {
            sharing: Sharing::Synced,
            algorithm: Algorithm::FixedWindow,
            tokens: random.within(4, 300),
            period_s: LONG_WINDOW_S,
            burst: 1,
        };
        let (limits, changed) = (vec![limit], vec![limit]);
        Self { limits, changed, has_refunds: false, weather: Weather { lost: 20, ..self.weather }, ..self }
    }

    /// Makes it a scenario in which a node with little load holds a lease when it is cut off, while others use the
    /// limit up.
    fn cut_off(self, random: &mut Random) -> Self {
        let tokens = random.within(50, 300);
        let (sharing, algorithm) = (Sharing::Leased, Algorithm::TokenBucket);
        let limit = Limit { sharing, algorithm, tokens, period_s: 1, burst: tokens };
        let settings = StoreSettings { lease: Duration::from_secs(1), ..self.settings };
        let (limits, changed) = (vec![limit], vec![limit]);
        let nodes = random.within(2, 3) as usize;
        Self {
            limits,
            changed,
            keys: 1,
            nodes,
            is_uneven: true,
            crowd: 6,
            only: Some(Trouble::Cut),
            trouble: 15,
            settings,
            weather: Weather::CALM,
            ..self
        }
    }

    /// Returns whether all limits have this sharing mode.
    pub(super) fn is_all(&self, sharing: Sharing) -> bool {
        self.limits.iter().all(|limit| limit.sharing == sharing)
    }

    fn has_change(&self) -> bool {
        self.limits.iter().zip(&self.changed).any(|(one, other)| (one.tokens, one.burst) != (other.tokens, other.burst))
    }
}

fn limit(random: &mut Random) -> Limit {
    use Algorithm::{FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket};
    let sharing = random.one_of(&[Sharing::Strict, Sharing::Leased, Sharing::Leased, Sharing::Synced]);
    let algorithm = match sharing {
        Sharing::Strict => {
            random.one_of(&[TokenBucket, LeakyBucket, FixedWindow, SlidingWindowCounter, SlidingWindowLog])
        }
        Sharing::Leased => random.one_of(&[TokenBucket, TokenBucket, FixedWindow, SlidingWindowCounter]),
        _ => random.one_of(&[TokenBucket, LeakyBucket, FixedWindow, FixedWindow, SlidingWindowCounter]),
    };
    let period_s = match algorithm {
        FixedWindow => random.one_of(&[1, 5, 20, LONG_WINDOW_S, LONG_WINDOW_S]),
        _ => random.one_of(&[1, 5, 20, 60]),
    };
    let largest = random.one_of(&[10, 60, 300]);
    let (tokens, burst) = (random.within(4, largest), random.within(4, largest));
    Limit { sharing, algorithm, tokens, period_s, burst }
}

/// The results of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Report {
    pub(super) checks: u64,
    pub(super) admitted: u64,
    /// Checks that were decided without the store.
    pub(super) degraded: u64,
    pub(super) killed: u64,
    /// The most tokens above a synced limit.
    pub(super) exceeded: u64,
    /// Keys whose limit was used up in some stretch of time.
    pub(super) used_up: u64,
    /// Runs in which the limit was used again after the faults, and runs in which the store's count was compared.
    pub(super) recovered: u64,
    pub(super) counted: u64,
    pub(super) traffic: Traffic,
    /// Timers of nodes that fired, computed from the ages of the nodes.
    pub(super) ticks: u64,
    /// A digest of all decisions and their times.
    pub(super) digest: u64,
}

impl Report {
    pub(super) fn add(&mut self, other: &Self) {
        self.checks += other.checks;
        self.admitted += other.admitted;
        self.degraded += other.degraded;
        self.killed += other.killed;
        self.exceeded = self.exceeded.max(other.exceeded);
        self.used_up += other.used_up;
        self.recovered += other.recovered;
        self.counted += other.counted;
        self.traffic.scripts += other.traffic.scripts;
        self.traffic.charges += other.traffic.charges;
        self.traffic.messages += other.traffic.messages;
        self.traffic.lost += other.traffic.lost;
        self.ticks += other.ticks;
        self.digest ^= other.digest;
    }

    /// Returns the number of events: checks, messages and timers.
    pub(super) fn events(&self) -> u64 {
        self.checks + self.traffic.messages + self.ticks
    }
}

/// Runs a scenario from its beginning to its end. The error states what is wrong.
pub(super) fn run(scenario: &Scenario, is_traced: bool) -> Result<Report, String> {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let outcome = runtime.expect("a runtime").block_on(async { Run::start(scenario, is_traced).await.finish().await });
    outcome.map_err(|why| format!("{why}\nrun it again: TIDEGATE_SIMULATION={}\n{scenario:?}", scenario.seed))
}

/// The record of the checks of a run.
#[derive(Default)]
struct History {
    admissions: Vec<Admission>,
    report: Report,
    limits: usize,
    is_traced: bool,
}

impl History {
    fn note(&mut self, now: Nanos, what: impl FnOnce() -> String) {
        if self.is_traced {
            trace(now, &what());
        }
    }

    fn digest(&mut self, numbers: [u64; 4]) {
        for number in numbers {
            self.report.digest = Random::new(self.report.digest ^ number).next();
        }
    }
}

struct Run {
    scenario: Scenario,
    random: Random,
    network: Arc<Network>,
    nodes: Vec<Arc<Node>>,
    history: Arc<Mutex<History>>,
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
        let mut random = Random::new(scenario.seed.rotate_left(32) ^ 0x5eed);
        let epoch = EPOCH + random.below(100_000_000) * 1_000;
        let network = Network::new(random.next(), epoch, (scenario.is_cluster, is_traced), scenario.weather);
        let policies = [snapshot(&scenario.limits), snapshot(&scenario.changed)];
        let history = Arc::new(Mutex::new(History { limits: scenario.limits.len(), is_traced, ..History::default() }));
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
    async fn node(&mut self, place: usize) -> Node {
        // A node that starts late may have an old policy.
        let version = usize::from(self.is_changed && self.random.happens(500));
        let policy = (Arc::clone(&self.policies[version]), 1 + version as u64);
        let at_first = self.network.now() - 1_800 * SECOND_NS + self.random.below(3_600 * SECOND_NS);
        Node::start(&self.network, place, policy, self.scenario.settings, at_first).await
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
        self.bury(&node);
        drop(node);
        let node = self.node(place).await;
        self.nodes[place] = Arc::new(node);
    }

    fn bury(&mut self, node: &Node) {
        node.wire.kill();
        self.untold += node.untold_max();
        self.lost += node.shared.holdings.unanswered_max();
        let mut history = lock(&self.history);
        history.report.killed += 1;
        history.report.ticks += self.ticks(node);
    }

    /// Returns how often the timers of a node fired: one each for its quotas, its health monitor, its probe and its
    /// exchange.
    fn ticks(&self, node: &Node) -> u64 {
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

    async fn finish(mut self) -> Result<Report, String> {
        for _ in 0..self.scenario.steps {
            self.step().await;
        }
        self.heal().await;
        self.count().await?;
        self.recover().await?;
        self.judge()
    }

    async fn step(&mut self) {
        let (nodes, keys) = (self.nodes.len() as u64, self.scenario.keys as u64);
        let place = self.random.below(nodes) as usize;
        if self.random.happens(self.scenario.trouble) {
            return self.trouble(place).await;
        }
        if self.scenario.has_change() && self.random.happens(10) {
            self.is_changed = true;
            self.note(|| format!("node {place} has the newer policy"));
            self.nodes[place].publish(&self.policies[1], 2);
        }
        let burst = self.scenario.limits.iter().map(Limit::capacity).max().unwrap_or(0);
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

    async fn trouble(&mut self, place: usize) {
        let (what, place) = match self.scenario.only {
            Some(only) => (only, self.nodes.len() - 1),
            None => (Trouble::any(&mut self.random), place),
        };
        match what {
            Trouble::Kill => self.replace(place, false).await,
            Trouble::Stop => self.replace(place, true).await,
            Trouble::Cut => {
                let wire = &self.nodes[place].wire;
                wire.cut(!wire.is_cut());
                self.note(|| format!("node {place} is cut off: {}", self.nodes[place].wire.is_cut()));
            }
            Trouble::Hold => {
                let ms = self.random.one_of(&[30, 300, 600, 2_000]);
                self.note(|| format!("answers to node {place} are held back for {ms} ms"));
                self.nodes[place].wire.hold(Duration::from_millis(ms));
            }
            Trouble::Stand => {
                let ms = self.random.one_of(&[10, 30, 200, 4_000]);
                self.note(|| format!("the store stands for {ms} ms"));
                self.network.stand(Duration::from_millis(ms));
            }
            Trouble::Weather => {
                let weather = Weather {
                    delay_ms: self.random.one_of(&[0, 1, 2, 4]),
                    slow: self.random.one_of(&[0, 0, 50, 300]),
                    lost: self.random.one_of(&[0, 0, 50, 300]),
                };
                self.note(|| format!("{weather:?}"));
                self.network.set_weather(weather);
            }
        }
    }

    /// Ends all faults, and waits until everything under way has arrived.
    async fn heal(&mut self) {
        self.note(|| "all faults end".to_owned());
        self.network.set_weather(Weather::CALM);
        self.network.stand(Duration::ZERO);
        for node in &self.nodes {
            node.wire.cut(false);
            node.wire.hold(Duration::ZERO);
            node.publish(&self.policies[1], 2);
        }
        // Two nodes stay: more would only cost time.
        let nodes = self.nodes.split_off(self.nodes.len().min(2));
        for node in nodes {
            self.bury(&node);
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
            let counted = held.map_or(0, |held| held.under.meter.tail(held.word));
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
        let Limit { algorithm, tokens, burst, .. } = self.scenario.changed[limit];
        let period_ns = self.scenario.changed[limit].period_ns();
        let text = match algorithm {
            Algorithm::TokenBucket => format!("token_bucket/{tokens}/{period_ns}/{burst}"),
            Algorithm::LeakyBucket => format!("leaky_bucket/{tokens}/{period_ns}/{burst}"),
            Algorithm::FixedWindow => format!("fixed_window/{tokens}/{period_ns}"),
            Algorithm::SlidingWindowCounter => format!("sliding_window_counter/{tokens}/{period_ns}"),
            Algorithm::SlidingWindowLog => format!("sliding_window_log/{tokens}/{period_ns}"),
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

    fn judge(self) -> Result<Report, String> {
        let mut history = lock(&self.history);
        let untold = self.untold + self.nodes.iter().map(|node| node.untold_max()).sum::<u64>();
        for (place, (first, second)) in self.scenario.limits.iter().zip(&self.scenario.changed).enumerate() {
            // The larger of both: numbers that fall and rise again forget what was above them, so they change once.
            let (tokens, burst) = (first.tokens.max(second.tokens), first.burst.max(second.burst));
            let limit = Limit { tokens, burst, ..*first };
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

/// Makes one check, and records what was admitted.
async fn check(
    node: &Node,
    network: &Network,
    history: &Mutex<History>,
    (key, cost): (usize, u64),
    refund: Option<Duration>,
) {
    let user = key.to_string();
    let who = [Identity::new("user", &user).expect("a user")];
    let request = Request::new(&who).and_then(|request| request.cost(cost)).expect("a request");
    let shared = &node.shared;
    let asked_at = network.now();
    let begun = if refund.is_some() { shared.pend(&request, false).expect("a limit") } else { shared.begin(&request) };
    let mut reserved = None;
    let (decision, times) = match begun {
        Begun::Decided(decision) => (decision, Vec::new()),
        Begun::Pending(pending) => {
            let limits: Vec<_> = pending.charges().map(|charge| (place_of(charge.limit_id), charge.sharing)).collect();
            let answers = shared.ask(&pending).await;
            let times = limits.into_iter().zip(answers.iter().map(time_of)).collect();
            let decision = if refund.is_some() {
                let (decision, its) = shared.finish_reserved(pending, &answers);
                reserved = its;
                decision
            } else {
                shared.finish(pending, &answers)
            };
            (decision, times)
        }
    };
    let now = network.now();
    let admitted = {
        let mut history = lock(history);
        history.digest([now, key as u64, cost, u64::from(decision.is_allowed())]);
        history.note(now, || {
            let what = if decision.is_allowed() { "admits" } else { "denies" };
            format!("node {} {what} {cost} of key {key} {:?} {times:?}", node.place, decision.degraded())
        });
        history.report.checks += 1;
        history.report.degraded += u64::from(decision.degraded().is_some());
        // The caller of a dead node got no answer.
        if !decision.is_allowed() || decision.degraded().is_some() || node.wire.is_dead() {
            return;
        }
        history.report.admitted += 1;
        let first = history.admissions.len();
        let admission = |limit, from, until| Admission { limit, key, from, until, cost };
        if times.is_empty() || now == asked_at {
            let limits = history.limits;
            history.admissions.extend((0..limits).map(|limit| admission(limit, now, now)));
        }
        for &((limit, sharing), at) in times.iter().filter(|_| now > asked_at) {
            let at = at.unwrap_or(now);
            // For a lease or a view the node states its own time, which may be a little early.
            let until = if sharing == Sharing::Strict { at } else { now.max(at) };
            history.admissions.push(admission(limit, at.max(asked_at).min(until), until));
        }
        first..history.admissions.len()
    };
    if let (Some(refund), Some(reserved)) = (refund, reserved) {
        sleep(refund).await;
        if node.wire.is_dead() {
            return;
        }
        shared.settle(reserved, 0);
        let mut history = lock(history);
        history.note(network.now(), || format!("node {} gives back {cost} of key {key}", node.place));
        history.admissions[admitted].iter_mut().for_each(|it| it.cost = 0);
    }
}

fn time_of(answer: &Answer) -> Option<Nanos> {
    match *answer {
        Answer::Decided { now, .. } => Some(now),
        _ => None,
    }
}
