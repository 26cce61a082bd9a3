//! A circuit breaker as a pure step function: it decides when a server is left alone and when it is tried again. Existing crates
//! count failures as a share of calls, or let every call through while they try; a server of limits must be tried by one call
//! at a time.

use std::time::Duration;

use tokio::time::Instant;

/// A circuit breaker. It opens after `failures_max` failures in a row, each of a call that began after the one before it
/// had failed, and lets one call through after each `pause`. Calls that wait at the same time meet the same fault, which
/// may be one short stop of this process: together they count once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Breaker {
    /// Failures in a row after which it opens.
    pub failures_max: u32,
    /// The time from its opening, or from a trial, to the next trial.
    pub pause: Duration,
}

/// The state of the breaker of one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The server is asked.
    Closed {
        /// Failures in a row.
        failures: u32,
        /// The time at which the last of them was counted.
        counted_at: Option<Instant>,
    },
    /// Calls are refused until the next trial.
    Open {
        /// The time from which the next call may be made.
        trial_at: Instant,
        /// Whether that time was brought forward.
        hurried: bool,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0, counted_at: None }
    }
}

/// The permission to make a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallPermit {
    /// A call as usual.
    Usual,
    /// A call that shows whether the server is back.
    Trial,
}

/// The end of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallOutcome {
    /// The server answered.
    Answered,
    /// The server did not answer.
    Failed {
        /// The time at which the call began.
        since: Instant,
        /// Failures that it counts as: more than 1 where it waited for as long as several calls would have, one after the
        /// other.
        failures: u32,
    },
}

impl Breaker {
    /// Returns a permit if a call may be made. A trial whose outcome never comes is followed by another after the pause.
    #[must_use]
    pub fn ask(self, state: State, now: Instant) -> (State, Option<CallPermit>) {
        match state {
            State::Closed { .. } => (state, Some(CallPermit::Usual)),
            State::Open { trial_at, .. } if now < trial_at => (state, None),
            State::Open { hurried, .. } => {
                (State::Open { trial_at: now + self.pause, hurried }, Some(CallPermit::Trial))
            }
        }
    }

    /// Learns from the end of a call, unless the call began before the breaker opened.
    #[must_use]
    pub fn learn(self, state: State, permit: CallPermit, outcome: CallOutcome, now: Instant) -> State {
        match (state, permit, outcome) {
            (State::Open { .. }, CallPermit::Usual, _) => state,
            (_, _, CallOutcome::Answered) => State::default(),
            (State::Closed { failures: before, counted_at }, _, CallOutcome::Failed { since, failures }) => {
                let is_next = counted_at.is_none_or(|at| at <= since);
                let after = if is_next { before.saturating_add(failures) } else { before.max(failures) };
                if after >= self.failures_max {
                    State::Open { trial_at: now + self.pause, hurried: false }
                } else if after > before {
                    State::Closed { failures: after, counted_at: Some(now) }
                } else {
                    state
                }
            }
            (State::Open { hurried, .. }, _, CallOutcome::Failed { .. }) => {
                State::Open { trial_at: now + self.pause, hurried }
            }
        }
    }

    /// Learns that an answer came to a call that had failed by then: the server is there, and its connection stands now. So the
    /// next trial is at once; but only one, since a server that is always late would get one after the other.
    #[must_use]
    pub fn late(state: State, now: Instant) -> State {
        match state {
            State::Open { trial_at, hurried: false } => State::Open { trial_at: trial_at.min(now), hurried: true },
            State::Open { hurried: true, .. } | State::Closed { .. } => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// A call is asked for.
        Ask,
        /// The call of this place among those under way ends.
        End(usize, bool),
        /// A call that counted as failed gets its response.
        Late,
        Pass(u64),
    }

    struct Ended {
        since: Instant,
        at: Instant,
    }

    /// Returns the length of the longest chain of calls of which each began after the one before it had ended. `calls` are in
    /// the order of their ends.
    fn one_after_the_other(calls: &[Ended]) -> u32 {
        let mut chains: Vec<u32> = Vec::new();
        for call in calls {
            let before = calls.iter().zip(&chains).filter(|(before, _)| before.at <= call.since);
            chains.push(1 + before.map(|(_, &chain)| chain).max().unwrap_or(0));
        }
        chains.into_iter().max().unwrap_or(0)
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            4 => Just(Event::Ask),
            4 => (0_usize..8, prop::bool::weighted(0.3)).prop_map(|(place, succeeded)| Event::End(place, succeeded)),
            1 => Just(Event::Late),
            2 => (0_u64..1_500).prop_map(Event::Pass),
        ];
        prop::collection::vec(event, 0..200)
    }

    proptest! {
        #[test]
        fn it_opens_after_failures_in_a_row_and_tries_one_call_a_pause(events in events(), failures_max in 1_u32..6) {
            let breaker = Breaker { failures_max, pause: Duration::from_secs(1) };
            let mut state = State::default();
            let mut now = Instant::now();
            let mut under_way = Vec::new();
            // Failures since the last answer, when it opened or was tried last, and whether the next trial is at once.
            let (mut failed, mut refused_since) = (Vec::new(), None);
            let (mut is_due, mut was_hurried) = (false, false);
            for event in events {
                match event {
                    Event::Pass(ms) => now += Duration::from_millis(ms),
                    Event::Ask => {
                        let (next, permit) = breaker.ask(state, now);
                        state = next;
                        let expected = match refused_since {
                            None => Some(CallPermit::Usual),
                            Some(since) if is_due || now >= since + breaker.pause => {
                                (refused_since, is_due) = (Some(now), false);
                                Some(CallPermit::Trial)
                            }
                            Some(_) => None,
                        };
                        prop_assert_eq!(permit, expected);
                        under_way.extend(permit.map(|permit| (permit, now)));
                    }
                    Event::Late => {
                        state = Breaker::late(state, now);
                        is_due |= refused_since.is_some() && !was_hurried;
                        was_hurried |= refused_since.is_some();
                    }
                    Event::End(place, succeeded) if place < under_way.len() => {
                        let (permit, since) = under_way.remove(place);
                        let outcome =
                            if succeeded { CallOutcome::Answered } else { CallOutcome::Failed { since, failures: 1 } };
                        state = breaker.learn(state, permit, outcome, now);
                        match (refused_since, permit, succeeded) {
                            (Some(_), CallPermit::Usual, _) => {}
                            (Some(_), CallPermit::Trial, false) => (refused_since, is_due) = (Some(now), false),
                            (Some(_), CallPermit::Trial, true) => {
                                (failed, refused_since) = (Vec::new(), None);
                                (is_due, was_hurried) = (false, false);
                            }
                            (None, _, true) => failed.clear(),
                            (None, _, false) => failed.push(Ended { since, at: now }),
                        }
                        if one_after_the_other(&failed) >= failures_max {
                            (failed, refused_since) = (Vec::new(), Some(now));
                        }
                    }
                    Event::End(..) => {}
                }
                prop_assert_eq!(matches!(state, State::Open { .. }), refused_since.is_some());
            }
        }
    }

    const BREAKER: Breaker = Breaker { failures_max: 5, pause: Duration::from_secs(30) };

    fn learn_all(failed: impl IntoIterator<Item = (Instant, u32, Instant)>) -> State {
        failed.into_iter().fold(State::default(), |state, (since, failures, now)| {
            BREAKER.learn(state, CallPermit::Usual, CallOutcome::Failed { since, failures }, now)
        })
    }

    #[test]
    fn calls_that_wait_at_the_same_time_count_once() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let state = learn_all((0..1_000).map(|call| (at(call % 5), 1, at(5 + call / 500))));
        assert_eq!(state, State::Closed { failures: 1, counted_at: Some(at(5)) });
    }

    #[test]
    fn a_call_that_waited_for_long_counts_for_as_many_but_never_twice() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        // Twenty milliseconds of silence are four failures of five, whatever was counted of it before.
        let state = learn_all([(at(0), 1, at(5)), (at(5), 1, at(10)), (at(0), 4, at(20))]);
        assert_eq!(state, State::Closed { failures: 4, counted_at: Some(at(20)) });
        assert!(matches!(learn_all([(at(0), 4, at(20)), (at(20), 1, at(25))]), State::Open { .. }));
        assert!(matches!(learn_all([(at(0), 1, at(5)), (at(0), 5, at(25))]), State::Open { .. }));
    }
}
