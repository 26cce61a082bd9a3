//! Is the server well? By what it counted in the last minute, and by how old its policy is.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tidegate::{
    KNOWN_LIMITS_MAX,
    clock::{WallStep, WallSteps},
    time::Nanos,
};
use tidegate_fleet::store::{StoreFault, StoreStats};

use crate::shared::reservations::OPEN_MAX;

/// What the counts are compared with: those of so many samples ago, which is a minute, or of the start.
const LOOKS: usize = 12;
/// Below so many answers shares say nothing.
const ANSWERS_MIN: u64 = 100;
/// Per cent of the answers that are errors, or given without a decision.
const ERRORS_PERCENT: u64 = 1;
/// Mean time to an answer.
const MEAN_NS: u64 = 2_000_000;
/// Per cent of the checks whose keys found no slot in the table.
const OVERFLOW_PERCENT: u64 = 10;
/// The part of the places for open reservations that is taken.
const RESERVATIONS_PERCENT: usize = 80;
/// Without a word of the admin server.
const STALE: Duration = Duration::from_mins(1);
/// Per cent of the limits that an engine can know.
const KNOWN_LIMITS_PERCENT: usize = 80;
/// How long a step of wall time is shown.
const CLOCK_SHOWN: Duration = Duration::from_mins(10);

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Answers of one decision, and the time that they took.
    pub(crate) answers: u64,
    pub(crate) ns: u64,
    /// Errors of ours, and answers without a decision.
    pub(crate) errors: u64,
    /// Decisions, also those of a batch.
    pub(crate) checks: u64,
    /// New keys that found no slot: each took an overflow bucket, or was denied.
    pub(crate) overflow: u64,
    /// Those that were denied.
    pub(crate) without_room: u64,
}

/// What is wrong.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fault {
    /// So many of so many that were to be decided.
    Errors(u64, u64),
    /// The mean.
    Slow(Duration),
    /// So many of so many checks.
    Overflow(u64, u64),
    /// So many were denied for want of a bucket.
    WithoutRoom(u64),
    /// So long without the admin server.
    Stale(Duration),
    /// Whose certificate cannot be used.
    Certificate,
    /// The faults of the store. `is_away`: limits that nodes share are decided without it.
    Store { is_away: bool, faults: Vec<StoreFault> },
    /// So many reservations are open, nearly as many as there can be.
    Reservations(usize),
    /// The engine knows so many limits, of as many as it can.
    Limits(usize),
    /// Waits for wall time, which was set back by so much.
    ClockStands(Duration),
    /// How far wall time was set, in which direction (back: true), and how long ago.
    Clock(Duration, bool, Duration),
}

impl Fault {
    /// As a label of a metric; all of them in [`NAMES`](Self::NAMES).
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

    /// What is wrong where so many reservations are open, if anything is.
    pub(crate) fn of_reservations(open: usize) -> Option<Self> {
        (open * 100 >= OPEN_MAX * RESERVATIONS_PERCENT).then_some(Self::Reservations(open))
    }

    /// What is wrong with a store of these figures, if anything is.
    pub(crate) fn of_store(figures: StoreStats) -> Option<Self> {
        let StoreStats { is_open: is_away, faults, .. } = figures;
        // The store's own words are not for everyone who may ask for the health.
        let faults: Vec<_> = faults.iter().map(|fault| fault.code).collect();
        (is_away || !faults.is_empty()).then_some(Self::Store { is_away, faults })
    }

    /// What is wrong where an engine knows so many limits.
    pub(crate) fn of_limits(known: usize) -> Option<Self> {
        (known * 100 > KNOWN_LIMITS_MAX * KNOWN_LIMITS_PERCENT).then_some(Self::Limits(known))
    }

    /// What is wrong with a clock that shows `now` and has met these steps of wall time.
    pub(crate) fn of_clock(steps: &WallSteps, now: Nanos) -> Option<Self> {
        let WallStep { at, ns, is_back } = steps.last?;
        let (by, ago) = (Duration::from_nanos(ns), Duration::from_nanos(now.saturating_sub(at)));
        if steps.is_standing {
            return Some(Self::ClockStands(by));
        }
        (ago < CLOCK_SHOWN).then_some(Self::Clock(by, is_back, ago))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errors(errors, answers) => {
                write!(f, "{errors} of {answers} checks ended in an error or without a decision in the last minute")
            }
            Self::Slow(mean) => write!(f, "answers took {mean:.1?} on average in the last minute"),
            Self::Overflow(overflow, checks) => write!(
                f,
                "{overflow} charges of {checks} checks found no slot in the table in the last minute: raise --max-keys"
            ),
            Self::WithoutRoom(denied) => write!(
                f,
                "{denied} charges were denied in the last minute because neither the table nor the overflow buckets of their \
                 limits had room: raise --max-keys, or see in tidegate_limit_slots which limit is flooded"
            ),
            Self::Stale(age) => {
                write!(f, "the admin server was not heard for {} s; the policy may be old", age.as_secs())
            }
            Self::Certificate => {
                f.write_str("the files of the certificate cannot be used; the one of before is in use")
            }
            Self::Store { is_away, faults } => {
                let is_silent = faults.iter().all(|code| code.is_warning() || code.is_silence());
                f.write_str(match (is_away, is_silent) {
                    (true, true) => "the store does not answer; limits that nodes share are decided without it",
                    (true, false) => "the store is left alone; limits that nodes share are decided without it",
                    (false, _) => "the store",
                })?;
                faults.iter().try_for_each(|code| write!(f, ": {code}: {}", code.means()))
            }
            Self::Reservations(open) => write!(
                f,
                "{open} of {OPEN_MAX} places for open reservations are taken: settle or refund each when its work is done"
            ),
            Self::Limits(known) => write!(
                f,
                "the engine knows {known} limits, those of earlier policies included, of {KNOWN_LIMITS_MAX} that it can: have \
                 fewer limits of single clients"
            ),
            Self::ClockStands(by) => {
                write!(
                    f,
                    "the clock waits for the system's, which was set back by {by:.1?}: no quota comes back meanwhile"
                )
            }
            Self::Clock(by, is_back, ago) => {
                let way = if *is_back { "back" } else { "forward" };
                write!(
                    f,
                    "the system's clock was set {way} by {by:.1?} {} s ago: check its time service",
                    ago.as_secs()
                )
            }
        }
    }
}

/// The samples of the last minute. The first one, of zeros, is that of the start.
#[derive(Debug)]
pub(crate) struct Health(Mutex<VecDeque<Look>>);

impl Default for Health {
    fn default() -> Self {
        Self(Mutex::new([Look::default()].into()))
    }
}

impl Health {
    /// Takes in what is counted now; at the period [`health_sample`](crate::Periods::health_sample).
    pub(crate) fn look(&self, now: Look) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() == LOOKS {
            looks.pop_front();
        }
        looks.push_back(now);
    }

    /// What is wrong, `now` being what is counted now, and `silence` how long the admin server was not heard.
    pub(crate) fn faults(&self, now: &Look, silence: Option<Duration>, has_certificate: bool) -> Vec<Fault> {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).front().copied().unwrap_or_default();
        let stale = silence.filter(|silence| *silence >= STALE).map(Fault::Stale);
        let certificate = (!has_certificate).then_some(Fault::Certificate);
        between(&before, now).into_iter().chain(stale).chain(certificate).collect()
    }
}

fn between(before: &Look, now: &Look) -> Vec<Fault> {
    // A look that came in between may be newer than `now`.
    let grew = |of: fn(&Look) -> u64| of(now).saturating_sub(of(before));
    let (answers, errors) = (grew(|look| look.answers), grew(|look| look.errors));
    let (checks, overflow) = (grew(|look| look.checks), grew(|look| look.overflow));
    let asked = checks + errors;
    let mut faults = Vec::new();
    if asked >= ANSWERS_MIN && errors * 100 >= asked * ERRORS_PERCENT {
        faults.push(Fault::Errors(errors, asked));
    }
    if answers >= ANSWERS_MIN {
        let mean_ns = grew(|look| look.ns) / answers;
        if mean_ns >= MEAN_NS {
            faults.push(Fault::Slow(Duration::from_nanos(mean_ns)));
        }
    }
    if checks >= ANSWERS_MIN && overflow * 100 >= checks * OVERFLOW_PERCENT {
        faults.push(Fault::Overflow(overflow, checks));
    }
    let denied = grew(|look| look.without_room);
    if denied > 0 {
        faults.push(Fault::WithoutRoom(denied));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Look =
        Look { answers: 1_000, ns: 1_000_000_000, errors: 9, checks: 991, overflow: 99, without_room: 0 };

    #[test]
    fn it_is_well_below_each_bound_and_not_at_it() {
        for (now, fault) in [
            (WELL, None),
            (Look { errors: 10, checks: 990, overflow: 98, ..WELL }, Some("10 of 1000 checks")),
            (Look { ns: 2_000_000_000, ..WELL }, Some("2.0ms on average")),
            (Look { overflow: 100, ..WELL }, Some("100 charges of 991 checks")),
            (Look { without_room: 1, ..WELL }, Some("1 charges were denied")),
            (Look { answers: 99, checks: 50, overflow: 50, errors: 49, ns: u64::MAX, without_room: 0 }, None),
        ] {
            let health = Health::default();
            let faults = health.faults(&now, None, true);
            assert_eq!(faults.len(), usize::from(fault.is_some()), "{faults:?}");
            assert!(fault.is_none_or(|fault| faults[0].to_string().contains(fault)), "{faults:?}");
        }
        let health = Health::default();
        assert_eq!(health.faults(&WELL, Some(STALE), true), [Fault::Stale(STALE)]);
        assert_eq!(health.faults(&WELL, Some(Duration::from_secs(59)), false), [Fault::Certificate]);
    }

    #[test]
    fn open_reservations_are_told_when_few_places_are_left() {
        assert_eq!(Fault::of_reservations(79_999), None);
        let fault = Fault::of_reservations(80_000).expect("few are left");
        assert!(fault.to_string().starts_with("80000 of 100000 places") && Fault::NAMES.contains(&fault.name()));
    }

    #[test]
    fn limits_are_too_many_above_four_fifths() {
        let most = KNOWN_LIMITS_MAX / 5 * 4;
        assert_eq!(Fault::of_limits(most), None);
        let fault = Fault::of_limits(most + 1).expect("too many");
        assert!(Fault::NAMES.contains(&fault.name()));
        assert!(fault.to_string().starts_with("the engine knows 838861 limits, "), "{fault}");
    }

    #[test]
    fn a_step_of_wall_time_is_shown_while_the_clock_stands_and_for_ten_minutes() {
        const AT: Nanos = 1_790_000_000_000_000_000;
        let after = |steps: &WallSteps, ago: Duration| Fault::of_clock(steps, AT + ago.as_nanos() as Nanos);
        let mut steps = WallSteps::default();
        assert_eq!(after(&steps, Duration::ZERO), None);
        for (is_back, way) in [(true, "back"), (false, "forward")] {
            steps.last = Some(WallStep { at: AT, ns: 3_600_000_000_000, is_back });
            let fault = after(&steps, Duration::from_secs(7)).expect("it is shown");
            assert_eq!((fault.name(), Fault::NAMES.contains(&fault.name())), ("clock", true));
            let message = format!("the system's clock was set {way} by 3600.0s 7 s ago: check its time service");
            assert_eq!(fault.to_string(), message);
            assert!(after(&steps, Duration::from_mins(9)).is_some());
            assert_eq!(after(&steps, CLOCK_SHOWN), None);
        }
        steps.is_standing = true;
        assert_eq!(after(&steps, CLOCK_SHOWN), Some(Fault::ClockStands(Duration::from_hours(1))));
    }

    #[test]
    fn what_was_a_minute_ago_is_forgotten() {
        let bad = Look { errors: 1_000, checks: 0, overflow: 0, ..WELL };
        let health = Health::default();
        assert_eq!(health.faults(&bad, None, true).len(), 1);
        for _ in 1..LOOKS {
            health.look(bad);
            assert_eq!(health.faults(&bad, None, true).len(), 1);
        }
        health.look(bad);
        let well = Look { answers: 3_000, ns: bad.ns + 1, checks: 2_000, ..bad };
        assert_eq!(health.faults(&well, None, true), []);
        assert_eq!(health.faults(&Look::default(), None, true), [], "older than the looks that there are");
    }
}
