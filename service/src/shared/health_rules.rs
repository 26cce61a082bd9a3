//! The rules of the server's health: the faults that follow from the counts of the last minute, the age of the policy,
//! and the states of the store, the certificate and the clock.

use std::{
    collections::VecDeque,
    iter,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use derive_more::Display;
use tidegate::{
    KNOWN_LIMITS_MAX,
    clock::{WallStep, WallSteps},
    time::Timestamp,
};
use tidegate_fleet::store::{StoreFault, StoreStats};

use super::reservations::OPEN_MAX;

/// The samples that are kept. Counts are compared with the oldest of them, which is a minute old, or that of the start.
const SAMPLES: usize = 12;
/// The fewest responses of which a percentage is meaningful.
const RESPONSES_MIN: u64 = 100;
/// The percentage of checks that end in an error or without a decision, from which on that is a fault.
const ERRORS_PERCENT: u64 = 1;
/// The mean latency from which on it is a fault.
const MEAN_NS: u64 = 2_000_000;
/// The percentage of checks whose keys find no slot in the table, from which on that is a fault.
const OVERFLOW_PERCENT: u64 = 10;
/// The percentage of taken places for open reservations from which on it is a fault.
const RESERVATIONS_PERCENT: usize = 80;
/// The time without a message of the admin server from which on it is a fault.
const STALE: Duration = Duration::from_mins(1);
/// The percentage of the limits that an engine can know above which it is a fault.
const KNOWN_LIMITS_PERCENT: usize = 80;
/// The time for which a step of wall time is shown.
const CLOCK_SHOWN: Duration = Duration::from_mins(10);

/// The counts since the start, at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HealthSample {
    /// Responses of one decision.
    pub(crate) responses: u64,
    /// The sum of their latencies.
    pub(crate) ns: u64,
    /// Errors of the server, and outcomes without a decision.
    pub(crate) errors: u64,
    /// Decisions, with those of batches.
    pub(crate) checks: u64,
    /// New keys that found no slot. Each took an overflow bucket, or was denied.
    pub(crate) overflow: u64,
    /// New keys that were denied for want of a slot and an overflow bucket.
    pub(crate) without_room: u64,
}

/// A fault of the server, with the text that health pages show.
#[derive(Clone, PartialEq, Debug, Display)]
pub(crate) enum HealthFault {
    /// The first number of checks ended in an error or without a decision, of the second number.
    #[display("{_0} of {_1} checks ended in an error or without a decision in the last minute")]
    Errors(u64, u64),
    /// Responses had this mean latency.
    #[display("answers took {_0:.1?} on average in the last minute")]
    Slow(Duration),
    /// The first number of charges found no slot, of the second number of checks.
    #[display("{_0} charges of {_1} checks found no slot in the table in the last minute: raise --max-keys")]
    Overflow(u64, u64),
    /// Charges, in this number, were denied for want of an overflow bucket.
    #[display(
        "{_0} charges were denied in the last minute because neither the table nor the overflow buckets of their limits had \
         room: raise --max-keys, or see in tidegate_limit_slots which limit is flooded"
    )]
    WithoutRoom(u64),
    /// The admin server was silent for this time.
    #[display("the admin server was not heard for {} s; the policy may be old", _0.as_secs())]
    Stale(Duration),
    #[display("the files of the certificate cannot be used; the one of before is in use")]
    Certificate,
    /// The store has these faults. Where `is_away`, shared limits are decided without it.
    #[display("{}", store_text(*is_away, faults))]
    Store { is_away: bool, faults: Vec<StoreFault> },
    /// Nearly all places for open reservations are taken: this many.
    #[display("{_0} of {OPEN_MAX} places for open reservations are taken: settle or refund each when its work is done")]
    Reservations(usize),
    /// The engine knows this many limits, nearly as many as it can.
    #[display(
        "the engine knows {_0} limits, those of earlier policies included, of {KNOWN_LIMITS_MAX} that it can: have fewer \
         limits of single clients"
    )]
    Limits(usize),
    /// The clock waits for wall time, which was set back by this much.
    #[display("the clock waits for the system's, which was set back by {_0:.1?}: no quota comes back meanwhile")]
    ClockStands(Duration),
    /// Wall time was set by the first duration, backwards if true, and that long ago.
    #[display(
        "the system's clock was set {} by {_0:.1?} {} s ago: check its time service",
        if *_1 { "back" } else { "forward" },
        _2.as_secs()
    )]
    Clock(Duration, bool, Duration),
}

fn store_text(is_away: bool, faults: &[StoreFault]) -> String {
    let is_silent = faults.iter().all(|code| code.is_warning() || code.is_silence());
    let state = match (is_away, is_silent) {
        (true, true) => "the store does not answer; limits that nodes share are decided without it",
        (true, false) => "the store is left alone; limits that nodes share are decided without it",
        (false, _) => "the store",
    };
    let faults = faults.iter().map(|code| format!(": {code}: {}", code.means()));
    iter::once(state.to_owned()).chain(faults).collect()
}

impl HealthFault {
    /// Returns the label of the fault in metrics, which is one of [`NAMES`](Self::NAMES).
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Errors(..) => "errors",
            Self::Slow(_) => "slow",
            Self::Overflow(..) => "overflow",
            Self::WithoutRoom(_) => "full",
            Self::Stale(_) => "stale_policy",
            Self::Certificate => "certificate",
            Self::Store { .. } => "store",
            Self::Reservations(_) => "reservations",
            Self::Limits(_) => "limits",
            Self::ClockStands(_) | Self::Clock(..) => "clock",
        }
    }

    pub(crate) const NAMES: [&str; 10] = [
        "errors",
        "slow",
        "overflow",
        "full",
        "stale_policy",
        "certificate",
        "store",
        "reservations",
        "limits",
        "clock",
    ];

    /// Returns the fault of too many open reservations, if there is one.
    pub(crate) fn of_reservations(open: usize) -> Option<Self> {
        (open * 100 >= OPEN_MAX * RESERVATIONS_PERCENT).then_some(Self::Reservations(open))
    }

    /// Returns the fault of a store with these statistics, if there is one.
    pub(crate) fn of_store(stats: StoreStats) -> Option<Self> {
        let StoreStats { is_open: is_away, faults, .. } = stats;
        // The health page shows the codes alone: the store's own messages are not for all who may read the page.
        let faults: Vec<_> = faults.iter().map(|fault| fault.code).collect();
        (is_away || !faults.is_empty()).then_some(Self::Store { is_away, faults })
    }

    /// Returns the fault of an engine that knows too many limits, if there is one.
    pub(crate) fn of_limits(known: usize) -> Option<Self> {
        (known * 100 > KNOWN_LIMITS_MAX * KNOWN_LIMITS_PERCENT).then_some(Self::Limits(known))
    }

    /// Returns the fault of a clock that shows `now` and has met these steps of wall time, if there is one.
    pub(crate) fn of_clock(steps: &WallSteps, now: Timestamp) -> Option<Self> {
        let WallStep { at, size: by, is_back } = steps.last?;
        let ago = now.duration_since(at);
        if steps.is_standing {
            return Some(Self::ClockStands(by));
        }
        (ago < CLOCK_SHOWN).then_some(Self::Clock(by, is_back, ago))
    }
}

/// The samples of the last minute. The first one, of zeros, is that of the start.
#[derive(Debug)]
pub(crate) struct HealthHistory(Mutex<VecDeque<HealthSample>>);

impl Default for HealthHistory {
    fn default() -> Self {
        Self(Mutex::new([HealthSample::default()].into()))
    }
}

impl HealthHistory {
    /// Adds a sample, which is taken after each [`health_sample`](crate::Timeouts::health_sample).
    pub(crate) fn add(&self, now: HealthSample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(now);
    }

    /// Returns the faults. `now` has the present counts, and `silence` is the time since the last message of the admin server.
    pub(crate) fn faults(
        &self,
        now: &HealthSample,
        silence: Option<Duration>,
        has_certificate: bool,
    ) -> Vec<HealthFault> {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).front().copied().unwrap_or_default();
        let stale = silence.filter(|silence| *silence >= STALE).map(HealthFault::Stale);
        let certificate = (!has_certificate).then_some(HealthFault::Certificate);
        between(&before, now).into_iter().chain(stale).chain(certificate).collect()
    }
}

/// Returns the faults that follow from what was counted between two samples.
fn between(before: &HealthSample, now: &HealthSample) -> Vec<HealthFault> {
    // A sample that was added in between may be newer than `now`.
    let grew = |of: fn(&HealthSample) -> u64| of(now).saturating_sub(of(before));
    let (responses, errors) = (grew(|sample| sample.responses), grew(|sample| sample.errors));
    let (checks, overflow) = (grew(|sample| sample.checks), grew(|sample| sample.overflow));
    let all_checks = checks + errors;
    let mut faults = Vec::new();
    if all_checks >= RESPONSES_MIN && errors * 100 >= all_checks * ERRORS_PERCENT {
        faults.push(HealthFault::Errors(errors, all_checks));
    }
    if responses >= RESPONSES_MIN {
        let mean_ns = grew(|sample| sample.ns) / responses;
        if mean_ns >= MEAN_NS {
            faults.push(HealthFault::Slow(Duration::from_nanos(mean_ns)));
        }
    }
    if checks >= RESPONSES_MIN && overflow * 100 >= checks * OVERFLOW_PERCENT {
        faults.push(HealthFault::Overflow(overflow, checks));
    }
    let denied = grew(|sample| sample.without_room);
    if denied > 0 {
        faults.push(HealthFault::WithoutRoom(denied));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTHY: HealthSample =
        HealthSample { responses: 1_000, ns: 1_000_000_000, errors: 9, checks: 991, overflow: 99, without_room: 0 };

    #[test]
    fn a_fault_is_shown_at_each_bound_and_not_below_it() {
        for (now, fault) in [
            (HEALTHY, None),
            (HealthSample { errors: 10, checks: 990, overflow: 98, ..HEALTHY }, Some("10 of 1000 checks")),
            (HealthSample { ns: 2_000_000_000, ..HEALTHY }, Some("2.0ms on average")),
            (HealthSample { overflow: 100, ..HEALTHY }, Some("100 charges of 991 checks")),
            (HealthSample { without_room: 1, ..HEALTHY }, Some("1 charges were denied")),
            (HealthSample { responses: 99, checks: 50, overflow: 50, errors: 49, ns: u64::MAX, without_room: 0 }, None),
        ] {
            let health = HealthHistory::default();
            let faults = health.faults(&now, None, true);
            assert_eq!(faults.len(), usize::from(fault.is_some()), "{faults:?}");
            assert!(fault.is_none_or(|fault| faults[0].to_string().contains(fault)), "{faults:?}");
        }
        let health = HealthHistory::default();
        assert_eq!(health.faults(&HEALTHY, Some(STALE), true), [HealthFault::Stale(STALE)]);
        assert_eq!(health.faults(&HEALTHY, Some(Duration::from_secs(59)), false), [HealthFault::Certificate]);
    }

    #[test]
    fn open_reservations_are_a_fault_when_few_places_are_left() {
        assert_eq!(HealthFault::of_reservations(79_999), None);
        let fault = HealthFault::of_reservations(80_000).expect("few are left");
        assert!(fault.to_string().starts_with("80000 of 100000 places") && HealthFault::NAMES.contains(&fault.name()));
    }

    #[test]
    fn known_limits_are_a_fault_above_four_fifths() {
        let most = KNOWN_LIMITS_MAX / 5 * 4;
        assert_eq!(HealthFault::of_limits(most), None);
        let fault = HealthFault::of_limits(most + 1).expect("too many");
        assert!(HealthFault::NAMES.contains(&fault.name()));
        assert!(fault.to_string().starts_with("the engine knows 838861 limits, "), "{fault}");
    }

    #[test]
    fn a_step_of_wall_time_is_shown_while_the_clock_stands_and_for_ten_minutes() {
        const AT: Timestamp = Timestamp::from_nanos(1_790_000_000_000_000_000);
        let after = |steps: &WallSteps, ago: Duration| HealthFault::of_clock(steps, AT + ago);
        let mut steps = WallSteps::default();
        assert_eq!(after(&steps, Duration::ZERO), None);
        for (is_back, way) in [(true, "back"), (false, "forward")] {
            steps.last = Some(WallStep { at: AT, size: Duration::from_hours(1), is_back });
            let fault = after(&steps, Duration::from_secs(7)).expect("it is shown");
            assert_eq!((fault.name(), HealthFault::NAMES.contains(&fault.name())), ("clock", true));
            let message = format!("the system's clock was set {way} by 3600.0s 7 s ago: check its time service");
            assert_eq!(fault.to_string(), message);
            assert!(after(&steps, Duration::from_mins(9)).is_some());
            assert_eq!(after(&steps, CLOCK_SHOWN), None);
        }
        steps.is_standing = true;
        assert_eq!(after(&steps, CLOCK_SHOWN), Some(HealthFault::ClockStands(Duration::from_hours(1))));
    }

    #[test]
    fn faults_end_a_minute_after_their_cause() {
        let bad = HealthSample { errors: 1_000, checks: 0, overflow: 0, ..HEALTHY };
        let health = HealthHistory::default();
        assert_eq!(health.faults(&bad, None, true).len(), 1);
        for _ in 1..SAMPLES {
            health.add(bad);
            assert_eq!(health.faults(&bad, None, true).len(), 1);
        }
        health.add(bad);
        let healthy = HealthSample { responses: 3_000, ns: bad.ns + 1, checks: 2_000, ..bad };
        assert_eq!(health.faults(&healthy, None, true), []);
        assert_eq!(health.faults(&HealthSample::default(), None, true), [], "older than the samples that there are");
    }
}
