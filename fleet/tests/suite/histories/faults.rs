//! A schedule of faults, drawn from one seed.
//!
//! The store, each node and the policy have a lane of their own, in which faults follow each other with quiet times
//! between them. Lanes do not wait for each other, so faults of different lanes overlap. A lane uses each of its kinds
//! once, in random order, before it begins again, so that a history of a minute has each kind.

use std::time::Duration;

/// The nodes of a history.
pub(crate) const NODES: usize = 4;

/// A random number generator with a seed: `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// Returns the generator of one part of a history.
    pub(crate) fn of(seed: u64, part: u64) -> Self {
        let mut random = Self(seed ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `least` to `most`.
    pub(crate) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    pub(crate) fn ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.within(least, most))
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for place in (1..all.len()).rev() {
            all.swap(place, self.within(0, place as u64) as usize);
        }
    }
}

/// The kinds of faults, as they are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FaultKind {
    /// The store is killed, and started again without data.
    StoreKilled,
    /// The store is paused, and goes on.
    StorePaused,
    /// The store forgets its scripts.
    ScriptsFlushed,
    /// Answers to a node are held back.
    Held,
    /// Answers to a node are late.
    Delayed,
    /// Half of the answers to a node are lost, with their connections.
    Dropped,
    /// A node dies, and another one with another clock takes its place.
    NodeKilled,
    /// A node gets other numbers.
    Published,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 8] = [
        Self::StoreKilled,
        Self::StorePaused,
        Self::ScriptsFlushed,
        Self::Held,
        Self::Delayed,
        Self::Dropped,
        Self::NodeKilled,
        Self::Published,
    ];
    const OF_STORE: [Self; 3] = [Self::StoreKilled, Self::StorePaused, Self::ScriptsFlushed];
    const OF_NODE: [Self; 4] = [Self::Held, Self::Delayed, Self::Dropped, Self::NodeKilled];
}

/// A step of a fault: its beginning or its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultStep {
    KillStore,
    StartStore,
    PauseStore,
    ResumeStore,
    FlushScripts,
    Hold {
        node: usize,
        holds: bool,
    },
    Delay {
        node: usize,
        by: Duration,
    },
    Drop {
        node: usize,
        drops: bool,
    },
    /// The clock of the node that takes over is wrong by so many seconds.
    KillNode {
        node: usize,
        wrong_by_s: i64,
    },
    /// A node gets the numbers of this version: so many hundredths of the usual ones.
    Publish {
        node: usize,
        version: u64,
        percent: u64,
    },
}

impl FaultStep {
    /// Returns the fault that this step begins.
    pub(crate) fn begins(self) -> Option<FaultKind> {
        Some(match self {
            Self::KillStore => FaultKind::StoreKilled,
            Self::PauseStore => FaultKind::StorePaused,
            Self::FlushScripts => FaultKind::ScriptsFlushed,
            Self::Hold { holds: true, .. } => FaultKind::Held,
            Self::Delay { by, .. } if !by.is_zero() => FaultKind::Delayed,
            Self::Drop { drops: true, .. } => FaultKind::Dropped,
            Self::KillNode { .. } => FaultKind::NodeKilled,
            Self::Publish { .. } => FaultKind::Published,
            Self::StartStore | Self::ResumeStore | Self::Hold { .. } | Self::Delay { .. } | Self::Drop { .. } => {
                return None;
            }
        })
    }
}

/// A step and the time at which it is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlannedStep {
    pub(crate) at: Duration,
    pub(crate) step: FaultStep,
}

/// The time without faults at the beginning and at the end.
const QUIET: Duration = Duration::from_secs(2);

/// Draws the faults of a history of this length, in their order. All of them are over at its end.
// Long: one lane after the other, from one generator.
pub(crate) fn schedule(seed: u64, lasts: Duration) -> Vec<PlannedStep> {
    let ends = lasts.saturating_sub(QUIET);
    let mut planned = Vec::new();
    lane(&mut SeededRandom::of(seed, 1), ends, &FaultKind::OF_STORE, (2_000, 5_000), |random, at, kind| match kind {
        FaultKind::StoreKilled => {
            let until = at + random.ms(200, 1_500);
            planned.extend([
                PlannedStep { at, step: FaultStep::KillStore },
                PlannedStep { at: until, step: FaultStep::StartStore },
            ]);
            until
        }
        FaultKind::StorePaused => {
            let until = at + random.ms(100, 2_500);
            planned.extend([
                PlannedStep { at, step: FaultStep::PauseStore },
                PlannedStep { at: until, step: FaultStep::ResumeStore },
            ]);
            until
        }
        _ => {
            planned.push(PlannedStep { at, step: FaultStep::FlushScripts });
            at
        }
    });
    for node in 0..NODES {
        lane(
            &mut SeededRandom::of(seed, 10 + node as u64),
            ends,
            &FaultKind::OF_NODE,
            (2_000, 7_000),
            |random, at, kind| {
                let until = at + random.ms(200, 2_500);
                let (begins, ends) = match kind {
                    FaultKind::Held => (FaultStep::Hold { node, holds: true }, FaultStep::Hold { node, holds: false }),
                    FaultKind::Delayed => (
                        FaultStep::Delay { node, by: random.ms(20, 300) },
                        FaultStep::Delay { node, by: Duration::ZERO },
                    ),
                    FaultKind::Dropped => {
                        (FaultStep::Drop { node, drops: true }, FaultStep::Drop { node, drops: false })
                    }
                    _ => {
                        let wrong_by_s = random.within(0, 20_000).cast_signed() - 10_000;
                        planned.push(PlannedStep { at, step: FaultStep::KillNode { node, wrong_by_s } });
                        return at;
                    }
                };
                planned.extend([PlannedStep { at, step: begins }, PlannedStep { at: until, step: ends }]);
                until
            },
        );
    }
    let (mut version, mut before) = (1, 100);
    lane(&mut SeededRandom::of(seed, 2), ends, &[FaultKind::Published], (7_000, 11_000), |random, at, _| {
        version += 1;
        let others = [50, 75, 100, 150].into_iter().filter(|percent| *percent != before);
        let percent = others.clone().nth(random.within(0, 2) as usize).unwrap_or(100);
        before = percent;
        let mut last = at;
        for node in 0..NODES {
            let heard_at = at + random.ms(0, 1_500);
            last = last.max(heard_at);
            planned.push(PlannedStep { at: heard_at, step: FaultStep::Publish { node, version, percent } });
        }
        last
    });
    planned.sort_by_key(|planned| planned.at);
    planned
}

/// Fills a lane with one fault after the other. `happen` returns when its fault is over.
fn lane(
    random: &mut SeededRandom,
    ends: Duration,
    kinds: &[FaultKind],
    (least, most): (u64, u64),
    mut happen: impl FnMut(&mut SeededRandom, Duration, FaultKind) -> Duration,
) {
    let (mut at, mut left) = (QUIET.saturating_sub(Duration::from_millis(least)), Vec::new());
    loop {
        at += random.ms(least, most);
        // The longest fault takes this long.
        if at + Duration::from_millis(2_500) > ends {
            return;
        }
        if left.is_empty() {
            left = kinds.to_vec();
            random.shuffle(&mut left);
        }
        at = left.pop().map_or(at, |kind| happen(random, at, kind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_seed_has_one_schedule() {
        assert_eq!(schedule(7, MINUTE), schedule(7, MINUTE));
        assert_ne!(schedule(7, MINUTE), schedule(8, MINUTE));
    }

    #[test]
    fn each_kind_of_fault_is_in_a_minute_and_all_are_over_at_its_end() {
        for seed in 0..200 {
            let planned = schedule(seed, MINUTE);
            for kind in FaultKind::ALL {
                let count = planned.iter().filter(|planned| planned.step.begins() == Some(kind)).count();
                assert!((2..60).contains(&count), "seed {seed}: {count} times {kind:?}");
            }
            let count = |step| planned.iter().filter(|planned| planned.step == step).count();
            assert_eq!(count(FaultStep::KillStore), count(FaultStep::StartStore));
            assert_eq!(count(FaultStep::PauseStore), count(FaultStep::ResumeStore));
            assert!(planned.iter().all(|planned| planned.at >= QUIET && planned.at + QUIET <= MINUTE));
        }
    }
}
