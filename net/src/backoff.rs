//! Exponential backoff with jitter, such as for the stream of a node from its admin server: a state machine without clocks and
//! sockets.

use std::time::Duration;

/// The first pause after a connection that broke.
const FIRST: Duration = Duration::from_millis(250);
/// The longest pause: however long the server was away, it is asked again after this.
const LONGEST: Duration = Duration::from_secs(30);
/// The first pause after a refusal, which lasts until an administrator changes something.
const REFUSED: Duration = Duration::from_secs(5);

/// The way in which a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disconnect {
    /// The connection could not be made, broke, or was silent for too long.
    Broken,
    /// The server refused the client: its token, its name or its address.
    Refused,
    /// The server asked the client to start again, or is about to stop for a moment.
    Restart,
}

/// The pauses between the attempts of one client.
#[derive(Debug, Default)]
pub struct Backoff {
    /// Attempts in a row that achieved nothing.
    failures: u32,
}

impl Backoff {
    /// Starts again with the shortest pause: the connection achieved something.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns how long to wait before the next attempt. `random` picks a length from the upper half of the range, since the
    /// nodes of a fleet lose their connections together and must not come back together.
    #[must_use]
    pub fn pause(&mut self, disconnect: Disconnect, random: u64) -> Duration {
        match disconnect {
            Disconnect::Restart => between(FIRST / 2, FIRST, random),
            Disconnect::Broken => self.longer(FIRST, random),
            Disconnect::Refused => self.longer(REFUSED, random),
        }
    }

    /// Returns twice the pause before, but at most the longest, from the upper half of that range.
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
            let mut backoff = Backoff::default();
            for (what, random) in all {
                let disconnect = match what {
                    0 => Disconnect::Broken,
                    1 => Disconnect::Refused,
                    2 => Disconnect::Restart,
                    _ => {
                        backoff.reset();
                        continue;
                    }
                };
                prop_assert!((FIRST / 2..=LONGEST).contains(&backoff.pause(disconnect, random)));
            }
        }

        #[test]
        fn pauses_grow_until_something_is_in_force(failures in 1..40u32, random in any::<u64>()) {
            let mut backoff = Backoff::default();
            let mut before = Duration::ZERO;
            for _ in 0..failures {
                let pause = backoff.pause(Disconnect::Broken, random);
                prop_assert!(pause >= before);
                before = pause;
            }
            backoff.reset();
            prop_assert!(backoff.pause(Disconnect::Broken, random) <= FIRST);
        }
    }

    #[test]
    fn neighbours_wait_differently() {
        let pause = |random| Backoff::default().pause(Disconnect::Broken, random);
        assert_eq!((pause(0), pause(u64::MAX)), (FIRST / 2, FIRST));
        assert_ne!(pause(u64::MAX / 3), pause(u64::MAX / 2));
    }
}
