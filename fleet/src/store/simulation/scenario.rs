//! Test only: the scenario of a run, which a seed decides.

use std::time::Duration;

use tidegate::{
    policy::{Algorithm, Sharing},
    time::{Nanos, SECOND_NS},
};

use super::{network::NetworkConditions, node::SharedLimit, random::SimulationRandom};
use crate::store::config::StoreSettings;

/// The store's time at the beginning of simulations: 2026.
pub(super) const EPOCH: Nanos = 1_790_035_200 * SECOND_NS;

/// The period of a window that is longer than a run.
pub(super) const LONG_WINDOW_S: u64 = 86_400;

/// The scenario of a run.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) limits: Vec<SharedLimit>,
    /// The limits of a newer policy.
    pub(super) changed: Vec<SharedLimit>,
    pub(super) keys: usize,
    pub(super) nodes: usize,
    pub(super) steps: usize,
    /// The most checks of a step.
    pub(super) crowd: u64,
    pub(super) is_uneven: bool,
    pub(super) is_cluster: bool,
    pub(super) has_refunds: bool,
    pub(super) settings: StoreSettings,
    pub(super) conditions: NetworkConditions,
    /// The chance, in thousandths, that something breaks in a step.
    pub(super) fault_chance: u64,
    /// The only thing that breaks, if set, always at the last node.
    pub(super) only: Option<InjectedFault>,
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InjectedFault {
    /// A node is killed.
    Kill,
    /// A node stops.
    Stop,
    /// A node is cut off, or reconnected.
    CutOff,
    /// Answers to a node are held back.
    HoldAnswers,
    /// The store is paused.
    PauseStore,
    /// The conditions of the network change.
    NetworkConditions,
}

impl InjectedFault {
    pub(super) fn any(random: &mut SimulationRandom) -> Self {
        use InjectedFault::{CutOff, HoldAnswers, Kill, NetworkConditions, PauseStore, Stop};
        random.one_of(&[
            Kill,
            Kill,
            Kill,
            Stop,
            CutOff,
            CutOff,
            HoldAnswers,
            PauseStore,
            PauseStore,
            NetworkConditions,
            NetworkConditions,
        ])
    }
}

impl Scenario {
    pub(super) fn of(seed: u64) -> Self {
        let mut random = SimulationRandom::new(seed);
        let random = &mut random;
        let count = 1 + usize::from(random.happens(250));
        let has_change = random.happens(300);
        let limits: Vec<_> = (0..count).map(|_| limit(random)).collect();
        let other = |limit: &SharedLimit, random: &mut SimulationRandom| {
            let times = |tokens: u64, random: &mut SimulationRandom| (tokens * random.within(1, 16) / 4).max(1);
            let (tokens, burst) = (times(limit.tokens, random), times(limit.burst, random));
            if has_change { SharedLimit { tokens, burst, ..*limit } } else { *limit }
        };
        let changed = limits.iter().map(|limit| other(limit, random)).collect();
        let ms = |choices: &[u64], random: &mut SimulationRandom| Duration::from_millis(random.one_of(choices));
        let settings = StoreSettings {
            timeout: ms(&[5, 5, 20], random),
            pause: ms(&[200, 1_000, 5_000], random),
            sync_interval: ms(&[20, 100, 500], random),
            lease: ms(&[1_000, 3_000, 6_000], random),
            ..StoreSettings::default()
        };
        let conditions = NetworkConditions {
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
            conditions,
            fault_chance: random.one_of(&[0, 10, 30, 60]),
            only: None,
        };
        match random.below(8) {
            0 => drawn.counted(random),
            1 => drawn.cut_off(random),
            _ => drawn,
        }
    }

    /// Makes it a scenario in which the store's count of a window is compared with what was admitted.
    fn counted(self, random: &mut SimulationRandom) -> Self {
        let limit = SharedLimit {
            sharing: Sharing::Synced,
            algorithm: Algorithm::FixedWindow,
            tokens: random.within(4, 300),
            period_s: LONG_WINDOW_S,
            burst: 1,
        };
        let (limits, changed) = (vec![limit], vec![limit]);
        Self {
            limits,
            changed,
            has_refunds: false,
            conditions: NetworkConditions { lost: 20, ..self.conditions },
            ..self
        }
    }

    /// Makes it a scenario in which a node with little load holds a lease when it is cut off, while others use the
    /// limit up.
    fn cut_off(self, random: &mut SimulationRandom) -> Self {
        let tokens = random.within(50, 300);
        let (sharing, algorithm) = (Sharing::Leased, Algorithm::TokenBucket);
        let limit = SharedLimit { sharing, algorithm, tokens, period_s: 1, burst: tokens };
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
            only: Some(InjectedFault::CutOff),
            fault_chance: 15,
            settings,
            conditions: NetworkConditions::IDEAL,
            ..self
        }
    }

    /// Returns whether all limits have this sharing mode.
    pub(super) fn is_all(&self, sharing: Sharing) -> bool {
        self.limits.iter().all(|limit| limit.sharing == sharing)
    }

    pub(super) fn has_change(&self) -> bool {
        self.limits.iter().zip(&self.changed).any(|(one, other)| (one.tokens, one.burst) != (other.tokens, other.burst))
    }
}

fn limit(random: &mut SimulationRandom) -> SharedLimit {
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
    SharedLimit { sharing, algorithm, tokens, period_s, burst }
}
