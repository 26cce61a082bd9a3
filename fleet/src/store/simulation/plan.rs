//! Test only: a measurement of many nodes with leases, for comparison with the plan in `docs/sharing.md`.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tidegate::{
    Identity, Request,
    algorithm::Meter,
    internals::{BeginResult, Verdict},
    policy::{Algorithm, Sharing},
    time::SECOND_NS,
};
use tokio::{runtime, time::sleep};

use super::{
    network::{Network, NetworkConditions},
    node::{SharedLimit, SimulatedNode, snapshot},
    random::SimulationRandom,
    scenario::EPOCH,
};
use crate::{lock::lock, store::config::StoreSettings};

/// The parameters of a measurement: the keys follow Zipf's law with an exponent of 1, and some of the nodes get the
/// checks of each key.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPlan {
    pub(super) nodes: usize,
    pub(super) keys: usize,
    /// The nodes that get the checks of the same key.
    pub(super) nodes_of_key: usize,
    /// Checks a second, of all nodes together.
    pub(super) checks: u64,
    /// The limit of each key: tokens a second, and the burst.
    pub(super) tokens: u64,
    pub(super) warm_s: u64,
    pub(super) measured_s: u64,
}

/// The measurements, as means per second.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    pub(super) checks: f64,
    pub(super) denied: f64,
    /// Checks that were denied although the limit had room at that time.
    pub(super) early: f64,
    /// Checks that a single bucket with the same load denies.
    pub(super) denied_by_one: f64,
    /// Checks that were decided without the store.
    pub(super) degraded: f64,
    /// Checks that waited for the store.
    pub(super) waited: f64,
    pub(super) scripts: f64,
    /// Keys of these scripts.
    pub(super) commands: f64,
}

#[derive(Clone, Copy, Default)]
struct MeasuredCounts {
    checks: u64,
    denied: u64,
    early: u64,
    denied_by_one: u64,
    degraded: u64,
    waited: u64,
}

/// Two buckets for each key, one that is charged what the nodes admitted and one that decides alone, with counts.
struct BucketPair {
    meter: Meter,
    words: Vec<u64>,
    alone: Vec<u64>,
    counts: MeasuredCounts,
}

impl RunPlan {
    /// Returns the chance of each key.
    fn chances(&self) -> Vec<f64> {
        let sum: f64 = (1..=self.keys).map(|rank| 1.0 / rank as f64).sum();
        (1..=self.keys).map(|rank| 1.0 / rank as f64 / sum).collect()
    }

    /// Returns the keys of scripts per second by a formula for one node and one key, whose arguments are the checks and
    /// the admissions per second.
    fn sum(&self, of_one: impl Fn(f64, f64) -> f64) -> f64 {
        let nodes = self.nodes_of_key as f64;
        let of_key = |chance: &f64| {
            let asked = chance * self.checks as f64;
            of_one(asked / nodes, asked.min(self.tokens as f64) / nodes) * nodes
        };
        self.chances().iter().map(of_key).sum()
    }

    /// Returns the tokens of a lease at this rate: enough for eight seconds, at least a 64th and at most a 16th of the
    /// limit.
    fn batch(&self, admitted: f64) -> f64 {
        (8.0 * admitted).ceil().clamp((self.tokens / 64).max(1) as f64, (self.tokens / 16).max(1) as f64)
    }

    /// Counts one request for each batch, at most ten a second, and at least one in 45 seconds where the key is used.
    pub(super) fn by_the_plan(&self) -> f64 {
        self.sum(|asked, admitted| (admitted / self.batch(admitted)).max(asked.min(1.0 / 45.0)).min(10.0))
    }

    /// Counts also the requests after a lease went back, which happens after 30 seconds without use; Poisson's law
    /// gives their rate.
    pub(super) fn with_returns(&self) -> f64 {
        self.sum(|asked, admitted| {
            let (batch, idle) = (self.batch(admitted), (-30.0 * asked).exp());
            let renewed = (admitted / batch).max((1.0 - idle) / 45.0).min(10.0);
            // Each lease that goes back costs a request, and another one follows unless it was its last token.
            renewed + asked * idle * if batch > 1.0 { 2.0 } else { 1.0 }
        })
    }

    /// Runs the measurement.
    pub(super) fn measure(&self, seed: u64) -> Measured {
        let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(self.run(seed))
    }

    async fn run(&self, seed: u64) -> Measured {
        let mut random = SimulationRandom::new(seed);
        let network = Network::new(random.next(), EPOCH, (true, false), NetworkConditions::IDEAL);
        let (sharing, algorithm) = (Sharing::Leased, Algorithm::TokenBucket);
        let limit = SharedLimit { sharing, algorithm, tokens: self.tokens, period_s: 1, burst: self.tokens };
        let policy = snapshot(&[limit]);
        let mut nodes = Vec::new();
        for place in 0..self.nodes {
            let policy = (Arc::clone(&policy), 1);
            let node = SimulatedNode::start(&network, place, policy, StoreSettings::default(), network.now()).await;
            nodes.push(Arc::new(node));
        }
        let meter = format!("token_bucket/{0}/{SECOND_NS}/{0}", self.tokens).parse().expect("a meter");
        let buckets = BucketPair {
            meter,
            words: vec![0; self.keys],
            alone: vec![0; self.keys],
            counts: MeasuredCounts::default(),
        };
        let buckets = Arc::new(Mutex::new(buckets));
        let mut cumulated = 0.0;
        let chances: Vec<f64> = self.chances().into_iter().map(|chance| (cumulated += chance, cumulated).1).collect();
        let (mut counts, mut traffic) = (MeasuredCounts::default(), network.traffic());
        for ms in 0..(self.warm_s + self.measured_s) * 1_000 {
            if ms == self.warm_s * 1_000 {
                (counts, traffic) = (lock(&buckets).counts, network.traffic());
            }
            for _ in 0..self.checks / 1_000 {
                let share = random.share();
                let key = chances.partition_point(|chance| *chance < share).min(self.keys - 1);
                let node = (key * 7_919 + random.below(self.nodes_of_key as u64) as usize) % self.nodes;
                check(&nodes[node], &network, &buckets, key);
            }
            sleep(Duration::from_millis(1)).await;
        }
        let (after, now) = (network.traffic(), lock(&buckets).counts);
        let a_second = |before: u64, after: u64| (after - before) as f64 / self.measured_s as f64;
        Measured {
            checks: a_second(counts.checks, now.checks),
            denied: a_second(counts.denied, now.denied),
            early: a_second(counts.early, now.early),
            denied_by_one: a_second(counts.denied_by_one, now.denied_by_one),
            degraded: a_second(counts.degraded, now.degraded),
            waited: a_second(counts.waited, now.waited),
            scripts: a_second(traffic.scripts, after.scripts),
            commands: a_second(traffic.charges, after.charges),
        }
    }
}

/// Makes one check, in a task of its own where it must ask the store.
fn check(node: &Arc<SimulatedNode>, network: &Arc<Network>, buckets: &Arc<Mutex<BucketPair>>, key: usize) {
    let user = key.to_string();
    let who = [Identity::new("user", &user).expect("a user")];
    let request = Request::new(&who).expect("a request");
    match node.shared.begin(&request) {
        BeginResult::Decided(decision) => {
            let is_degraded = decision.degraded().is_some();
            lock(buckets).note(network, key, decision.is_allowed(), is_degraded);
        }
        BeginResult::Pending(_) => {
            lock(buckets).counts.waited += 1;
            let (node, network, buckets) = (Arc::clone(node), Arc::clone(network), Arc::clone(buckets));
            let user = user.clone();
            // The check begins anew in the task: nothing is charged so far.
            tokio::spawn(async move {
                let who = [Identity::new("user", &user).expect("a user")];
                let request = Request::new(&who).expect("a request");
                let Some(BeginResult::Pending(pending)) = node.shared.begin_if_shared(&request, false) else { return };
                let answers = node.shared.ask(&pending).await;
                let decision = node.shared.finish(pending, &answers);
                let is_degraded = decision.degraded().is_some();
                lock(&buckets).note(&network, key, decision.is_allowed(), is_degraded);
            });
        }
    }
}

impl BucketPair {
    fn note(&mut self, network: &Network, key: usize, is_allowed: bool, is_degraded: bool) {
        let (now, word) = (network.now(), &mut self.words[key]);
        self.counts.checks += 1;
        match self.meter.step(self.alone[key], now, 1) {
            Verdict::Admit(after) => self.alone[key] = after,
            _ => self.counts.denied_by_one += 1,
        }
        if is_allowed {
            *word = self.meter.overcharge(*word, now, 1);
            return;
        }
        self.counts.degraded += u64::from(is_degraded);
        self.counts.denied += 1;
        self.counts.early += u64::from(matches!(self.meter.step(*word, now, 1), Verdict::Admit(_)));
    }
}
