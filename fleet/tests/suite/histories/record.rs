//! The record of a history: every check with the store's time, and every fault.

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tidegate::{
    policy::{Algorithm, Sharing},
    time::Nanos,
};

use tokio::time::Instant;

use super::{
    faults::{FaultKind, FaultStep, NODES},
    judge::{InForce, KeyHistory, LimitNumbers, RecordedAdmission, StoreLoss},
};

/// Returns the time of the store: a Redis of this machine uses the wall clock, in whole microseconds.
#[expect(clippy::disallowed_methods, reason = "the store's clock is the wall clock of this machine")]
pub(crate) fn store_time() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_nanos()).expect("before 2554")
}

/// The two clocks of this machine at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedClock {
    pub(crate) wall: Nanos,
    pub(crate) steady: Instant,
}

impl RecordedClock {
    /// Reads both clocks, again if this thread was stopped between them.
    pub(crate) fn now() -> Self {
        let read = || {
            let before = Instant::now();
            let reading = Self { wall: store_time(), steady: before };
            (before.elapsed(), reading)
        };
        let readings = (0..1_000).map(|_| read());
        let mut nearest = read();
        for reading in readings {
            if nearest.0 < Duration::from_micros(50) {
                break;
            }
            nearest = if reading.0 < nearest.0 { reading } else { nearest };
        }
        nearest.1
    }

    /// Returns the time by which the wall clock was set since another reading.
    pub(crate) fn set_since(&self, before: &Self) -> Duration {
        Duration::from_nanos(self.wall.saturating_sub(before.wall)).abs_diff(self.steady - before.steady)
    }
}

/// A limit of a history. Each has a key of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TestedLimit {
    pub(crate) name: &'static str,
    pub(crate) sharing: Sharing,
    pub(crate) algorithm: Algorithm,
    /// The limit in the first version of the policy. A later version has a fraction of it, or more.
    pub(crate) tokens: u64,
    pub(crate) burst: Option<u64>,
    pub(crate) period: Duration,
}

impl TestedLimit {
    pub(crate) fn numbers(&self, percent: u64) -> LimitNumbers {
        let part = |number: u64| number * percent / 100;
        let limit = part(self.tokens);
        LimitNumbers { limit, burst: self.burst.map_or(limit, part) }
    }
}

/// The outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckOutcome {
    Admitted,
    Denied,
    /// Denied without the store.
    Degraded,
}

/// A check that was decided between these two instants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CheckRecord {
    pub(crate) limit: usize,
    /// The node; one that takes the place of a dead node has another number.
    pub(crate) node: usize,
    pub(crate) cost: u64,
    pub(crate) earliest: Nanos,
    pub(crate) latest: Nanos,
    pub(crate) uncovered: u64,
    pub(crate) outcome: CheckOutcome,
}

/// A step that was made between these two instants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StepRecord {
    pub(crate) step: FaultStep,
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
}

/// The record of a history: checks, steps and clock changes.
#[derive(Clone, Debug)]
pub(crate) struct HistoryRecord {
    pub(crate) seed: u64,
    pub(crate) began: Nanos,
    pub(crate) ended: Nanos,
    pub(crate) lease: Duration,
    /// The checks, in the order of their beginnings.
    pub(crate) checks: Vec<CheckRecord>,
    pub(crate) made: Vec<StepRecord>,
    /// The time by which the wall clock was set during the history.
    pub(crate) clock_set_by: Duration,
}

/// The longest time for which a request is under way after a paused store goes on, even on a busy machine.
const UNDER_WAY: Duration = Duration::from_secs(1);

impl HistoryRecord {
    /// Returns the history of one limit for the judge.
    pub(crate) fn of(&self, place: usize, limit: &TestedLimit) -> KeyHistory {
        let checks = || self.checks.iter().filter(move |check| check.limit == place);
        let mut admissions: Vec<_> = checks()
            .filter(|check| check.outcome == CheckOutcome::Admitted)
            .map(|check| RecordedAdmission {
                node: check.node,
                cost: check.cost,
                // A store's clock has microseconds.
                earliest: check.earliest / 1_000 * 1_000,
                latest: check.latest,
                uncovered: check.uncovered,
            })
            .collect();
        admissions.sort_by_key(|it| it.latest);
        // Nodes may ask a paused store under the old numbers of a limit, and then spend a lease for its whole life.
        let lease_ns = if limit.sharing == Sharing::Leased { nanos(self.lease) } else { 0 };
        // A check of a synced limit does not wait for the store, and its interval is long where its node does not know
        // the time yet.
        let waits = checks().filter(|_| limit.sharing != Sharing::Synced);
        let longest_ns = waits.map(|check| check.latest - check.earliest).max().unwrap_or(0);
        let under_way_ns = longest_ns.max(self.longest_pause()) + nanos(UNDER_WAY) + lease_ns;
        let losses = self.made.iter().filter(|made| made.step == FaultStep::KillStore);
        KeyHistory {
            sharing: limit.sharing,
            algorithm: limit.algorithm,
            period_ns: nanos(limit.period),
            lease_ns: nanos(self.lease),
            under_way_ns,
            in_force: self.in_force(limit),
            losses: losses.map(|made| StoreLoss { from: made.from, until: made.until }).collect(),
            admissions,
        }
    }

    /// Returns the longest pause of the store.
    fn longest_pause(&self) -> Nanos {
        let pauses = self.made.iter().enumerate().filter(|(_, made)| made.step == FaultStep::PauseStore);
        let lasts = |(place, made): (usize, &StepRecord)| {
            let ends = self.made[place..].iter().find(|after| after.step == FaultStep::ResumeStore);
            ends.map_or(0, |end| end.until - made.from)
        };
        pauses.map(lasts).max().unwrap_or(0)
    }

    fn in_force(&self, limit: &TestedLimit) -> Vec<InForce> {
        let first = InForce { numbers: limit.numbers(100), from: 0, everywhere_from: 0, until: Nanos::MAX };
        let mut all = vec![first];
        let mut versions: Vec<(u64, u64)> = Vec::new();
        for made in &self.made {
            if let FaultStep::Publish { version, percent, .. } = made.step
                && !versions.contains(&(version, percent))
            {
                versions.push((version, percent));
            }
        }
        for (version, percent) in versions {
            let of_it = || {
                let is_its = move |made: &&StepRecord| matches!(made.step, FaultStep::Publish { version: of, .. } if of == version);
                self.made.iter().filter(is_its)
            };
            let from = of_it().map(|made| made.from).min().unwrap_or(0);
            // Where a node did not get the new numbers, both stay in force.
            let is_everywhere = of_it().count() == NODES;
            let everywhere_from =
                if is_everywhere { of_it().map(|made| made.until).max().unwrap_or(0) } else { Nanos::MAX };
            if let Some(before) = all.last_mut() {
                before.until = everywhere_from;
            }
            all.push(InForce { numbers: limit.numbers(percent), from, everywhere_from, until: Nanos::MAX });
        }
        all
    }

    /// Returns how many faults of a kind occurred under load: at least one check began and ended during the fault, or
    /// in the second after one that is over at once.
    pub(crate) fn faults_under_load(&self, kind: FaultKind) -> usize {
        let begun = self.made.iter().enumerate().filter(|(_, made)| made.step.begins() == Some(kind));
        let is_under_load = |(place, made): &(usize, &StepRecord)| {
            let is_end = |after: &&StepRecord| match made.step {
                FaultStep::KillStore => after.step == FaultStep::StartStore,
                FaultStep::PauseStore => after.step == FaultStep::ResumeStore,
                FaultStep::Hold { node, .. } => after.step == FaultStep::Hold { node, holds: false },
                FaultStep::Drop { node, .. } => after.step == FaultStep::Drop { node, drops: false },
                FaultStep::Delay { node, .. } => after.step == FaultStep::Delay { node, by: Duration::ZERO },
                _ => false,
            };
            let ends = self.made[*place..].iter().find(is_end).map_or(made.until + 1_000_000_000, |end| end.from);
            self.checks.iter().any(|check| check.earliest >= made.from && check.latest <= ends)
        };
        begun.filter(is_under_load).count()
    }

    /// Returns the steps of a stretch of time, and those just before it.
    pub(crate) fn faults_in(&self, from: Nanos, until: Nanos) -> String {
        let from = from.saturating_sub(5_000_000_000);
        let within = self.made.iter().filter(|made| made.until >= from && made.from <= until);
        within.fold(String::new(), |mut text, made| {
            let _ = write!(text, "\n    {:.3} s: {:?}", self.seconds(made.from), made.step);
            text
        })
    }

    /// Returns the seconds from the beginning of the history to this time.
    pub(crate) fn seconds(&self, at: Nanos) -> f64 {
        (at as f64 - self.began as f64) / 1e9
    }

    /// Writes the record to a file of the temporary folder, which is kept.
    pub(crate) fn write(&self, limits: &[TestedLimit], why: &str) -> PathBuf {
        let mut text = format!("seed {}, began at {} ns, ended at {} ns\n{why}\n", self.seed, self.began, self.ended);
        for made in &self.made {
            let _ = writeln!(text, "step\t{}\t{}\t{:?}", made.from, made.until, made.step);
        }
        text.push_str("check\tearliest\tlatest\tlimit\tnode\tcost\tuncovered\toutcome\n");
        for check in &self.checks {
            let CheckRecord { limit, node, cost, earliest, latest, uncovered, outcome } = check;
            let name = limits[*limit].name;
            let _ = writeln!(text, "check\t{earliest}\t{latest}\t{name}\t{node}\t{cost}\t{uncovered}\t{outcome:?}");
        }
        let path = std::env::temp_dir().join(format!("tidegate-history-{}-{}.tsv", self.seed, std::process::id()));
        fs::write(&path, text).expect("the temporary folder has room");
        path
    }
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}
