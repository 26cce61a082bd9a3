//! Test only: the record of a run: its admissions and its counts.

use tidegate::time::Nanos;

use super::{
    judge::Admission,
    network::{NetworkCounts, trace},
    random::SimulationRandom,
};

/// The results of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RunReport {
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
    pub(super) traffic: NetworkCounts,
    /// Timers of nodes that fired, computed from the ages of the nodes.
    pub(super) ticks: u64,
    /// A digest of all decisions and their times.
    pub(super) digest: u64,
}

impl RunReport {
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

/// The record of the checks of a run.
#[derive(Default)]
pub(super) struct RunHistory {
    pub(super) admissions: Vec<Admission>,
    pub(super) report: RunReport,
    pub(super) limits: usize,
    pub(super) is_traced: bool,
}

impl RunHistory {
    pub(super) fn note(&mut self, now: Nanos, what: impl FnOnce() -> String) {
        if self.is_traced {
            trace(now, &what());
        }
    }

    pub(super) fn digest(&mut self, numbers: [u64; 4]) {
        for number in numbers {
            self.report.digest = SimulationRandom::new(self.report.digest ^ number).next();
        }
    }
}
