//! How long a follower waits before it connects again: a machine without clocks and sockets.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(250);
/// The longest: after this the admin server is asked again, however long it was away.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// After a refusal, which lasts until somebody does something about it.
const REFUSED: Duration = Duration::from_secs(5);

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It could not be made, broke, or was silent for too long.
    Broken,
    /// The admin server refused: the token, the name, the address.
    Refused,
    /// The admin server asked to begin anew, or has to stop for a moment.
    Restart,
}

/// The follower, as far as its connection goes.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// Tries in a row at whose end there was nothing to show for them.
    failures: u32,
}

impl Steps {
    /// There is something to show for the connection.
    pub(crate) fn is_well(&mut self) {
        self.failures = 0;
    }

    /// After what pause to connect. `random` draws it: the nodes of a fleet lose their connection together, and are not to
    /// come back together.
    pub(crate) fn pause(&mut self, ended: Ended, random: u64) -> Duration {
        match ended {
            Ended::Restart => between(FIRST / 2, FIRST, random),
            Ended::Broken => self.longer(FIRST, random),
            Ended::Refused => self.longer(REFUSED, random),
        }
    }

    /// Twice the pause before, at most the longest; somewhere in its upper half.
    fn longer(&mut self, first: Duration, random: u64) -> Duration {
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

    proptest! {
        #[test]
        fn pauses_are_bounded(all in prop::collection::vec((0..4, any::<u64>()), 0..200)) {
            let mut steps = Steps::default();
            for (what, random) in all {
                let ended = match what {
                    0 => Ended::Broken,
                    1 => Ended::Refused,
                    2 => Ended::Restart,
                    _ => {
                        steps.is_well();
                        continue;
                    }
                };
                prop_assert!((FIRST / 2..=LONGEST).contains(&steps.pause(ended, random)));
            }
        }

        #[test]
        fn pauses_grow_until_something_is_in_force(failures in 1..40u32, random in any::<u64>()) {
            let mut steps = Steps::default();
            let mut before = Duration::ZERO;
            for _ in 0..failures {
                let pause = steps.pause(Ended::Broken, random);
                prop_assert!(pause >= before);
                before = pause;
            }
            steps.is_well();
            prop_assert!(steps.pause(Ended::Broken, random) <= FIRST);
        }
    }

    #[test]
    fn neighbours_wait_differently() {
        let pause = |random| Steps::default().pause(Ended::Broken, random);
        assert_eq!((pause(0), pause(u64::MAX)), (FIRST / 2, FIRST));
        assert_ne!(pause(u64::MAX / 3), pause(u64::MAX / 2));
    }
}
