//! When a follower connects, waits, or takes what it is told: a machine without clocks and sockets.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(250);
/// The longest: after this the admin server is asked again, however long it was away.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// After a refusal, which lasts until somebody does something about it.
const REFUSED: Duration = Duration::from_secs(5);

/// What became of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Happened {
    /// A snapshot of this version, or the word that it is the one to have.
    Told(u64),
    /// A snapshot of this version is in force.
    InForce(u64),
    /// It could not be made, broke, or was silent for too long.
    Broken,
    /// The admin server refused: the token, the name, the address.
    Refused,
    /// The admin server asked to begin anew, or has to stop for a moment.
    Restart,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Put the snapshot in force.
    Apply,
    /// Go on reading; this one is known already.
    Ignore,
    /// Connect after this pause.
    Wait(Duration),
}

/// The follower, as far as its connection goes.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// Tries in a row at whose end there was nothing to show for them.
    failures: u32,
    /// The version in force.
    version: u64,
}

impl Steps {
    /// With this version in force; 0 for none.
    pub(crate) fn with(version: u64) -> Self {
        Self { failures: 0, version }
    }

    /// `random` draws the pause: the nodes of a fleet lose their connection together, and are not to come back together.
    pub(crate) fn next(&mut self, happened: Happened, random: u64) -> Step {
        match happened {
            // It may be damaged: until it is in force there is nothing to show for the connection.
            Happened::Told(version) if version > self.version => Step::Apply,
            Happened::Told(version) | Happened::InForce(version) => {
                self.failures = 0;
                self.version = version.max(self.version);
                Step::Ignore
            }
            Happened::Restart => Step::Wait(between(FIRST / 2, FIRST, random)),
            Happened::Broken => Step::Wait(self.pause(FIRST, random)),
            Happened::Refused => Step::Wait(self.pause(REFUSED, random)),
        }
    }

    /// Twice the pause before, at most the longest; somewhere in its upper half.
    fn pause(&mut self, first: Duration, random: u64) -> Duration {
        let whole = first.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        between(whole / 2, whole, random)
    }
}

fn between(least: Duration, most: Duration, random: u64) -> Duration {
    least + most.saturating_sub(least).mul_f64(random as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn happened() -> impl Strategy<Value = Happened> {
        prop_oneof![
            (0..20u64).prop_map(Happened::Told),
            (0..20u64).prop_map(Happened::InForce),
            Just(Happened::Broken),
            Just(Happened::Refused),
            Just(Happened::Restart),
        ]
    }

    proptest! {
        #[test]
        fn versions_only_grow_and_pauses_are_bounded(all in prop::collection::vec((happened(), any::<u64>()), 0..200)) {
            let (mut steps, mut version) = (Steps::with(3), 3);
            for (happened, random) in all {
                match (happened, steps.next(happened, random)) {
                    (Happened::Told(told), Step::Apply) => prop_assert!(told > version),
                    (Happened::Told(told), Step::Ignore) => prop_assert!(told <= version),
                    (Happened::InForce(applied), Step::Ignore) => version = version.max(applied),
                    (Happened::Broken | Happened::Refused | Happened::Restart, Step::Wait(pause)) => {
                        prop_assert!((FIRST / 2..=LONGEST).contains(&pause));
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }

        #[test]
        fn pauses_grow_until_something_is_in_force(failures in 1..40u32, random in any::<u64>()) {
            let mut steps = Steps::default();
            let mut before = Duration::ZERO;
            for _ in 0..failures {
                let Step::Wait(pause) = steps.next(Happened::Broken, random) else { panic!("it waits") };
                prop_assert!(pause >= before);
                before = pause;
            }
            // One that is damaged each time is not asked for again and again without a pause.
            prop_assert_eq!(steps.next(Happened::Told(1), random), Step::Apply);
            let Step::Wait(pause) = steps.next(Happened::Broken, random) else { panic!("it waits") };
            prop_assert!(pause >= before);
            prop_assert_eq!(steps.next(Happened::InForce(1), random), Step::Ignore);
            let Step::Wait(pause) = steps.next(Happened::Broken, random) else { panic!("it waits") };
            prop_assert!(pause <= FIRST);
        }
    }

    #[test]
    fn neighbours_wait_differently() {
        let pause = |random| Steps::default().next(Happened::Broken, random);
        assert_eq!(pause(0), Step::Wait(FIRST / 2));
        assert_eq!(pause(u64::MAX), Step::Wait(FIRST));
        assert_ne!(pause(u64::MAX / 3), pause(u64::MAX / 2));
    }
}
