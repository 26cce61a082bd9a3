//! When a server is not asked any more, and when it is tried again: a pure step. Crates for this count failures in a share of
//! calls, or let every call through while they try; a server of limits is to be tried by one call at a time.

use std::time::Duration;

use tokio::time::Instant;

/// So many failures in a row, and then so long a pause before each trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Breaker {
    /// Failures in a row after which it opens.
    pub failures_max: u32,
    /// From its opening, or a trial, to the next trial.
    pub pause: Duration,
}

/// What is known of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It is asked; so many calls in a row failed.
    Closed {
        /// In a row.
        failures: u32,
    },
    /// It is not asked.
    Open {
        /// When the next call may be made.
        trial_at: Instant,
        /// Was it brought forward?
        hurried: bool,
    },
}

/// That a call may be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permit {
    /// As all are.
    Usual,
    /// To see whether the server is back.
    Trial,
}

impl Breaker {
    /// May a call be made? A trial whose outcome never comes is followed by another after the pause.
    #[must_use]
    pub fn ask(self, state: State, now: Instant) -> (State, Option<Permit>) {
        match state {
            State::Closed { .. } => (state, Some(Permit::Usual)),
            State::Open { trial_at, .. } if now < trial_at => (state, None),
            State::Open { hurried, .. } => (State::Open { trial_at: now + self.pause, hurried }, Some(Permit::Trial)),
        }
    }

    /// What a call came to. Of those that began before it opened nothing is learnt.
    #[must_use]
    pub fn learn(self, state: State, permit: Permit, succeeded: bool, now: Instant) -> State {
        match (state, permit, succeeded) {
            (State::Open { .. }, Permit::Usual, _) => state,
            (_, _, true) => State::Closed { failures: 0 },
            (State::Closed { failures }, _, false) if failures + 1 < self.failures_max => {
                State::Closed { failures: failures + 1 }
            }
            (State::Closed { .. }, _, false) => State::Open { trial_at: now + self.pause, hurried: false },
            (State::Open { hurried, .. }, _, false) => State::Open { trial_at: now + self.pause, hurried },
        }
    }

    /// An answer came to a call that had failed by then: the server is there, and its connection stands now. So the next trial
    /// is at once; but only one, since a server that is always late would get one after the other.
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
        /// An answer comes to one that had failed.
        Late,
        Pass(u64),
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
            let mut state = State::Closed { failures: 0 };
            let mut now = Instant::now();
            let mut under_way = Vec::new();
            // Outcomes since it closed, when it opened or was tried last, and whether the next trial is at once.
            let (mut outcomes, mut refused_since) = (Vec::new(), None);
            let (mut is_due, mut was_hurried) = (false, false);
            for event in events {
                match event {
                    Event::Pass(ms) => now += Duration::from_millis(ms),
                    Event::Ask => {
                        let (next, permit) = breaker.ask(state, now);
                        state = next;
                        let expected = match refused_since {
                            None => Some(Permit::Usual),
                            Some(since) if is_due || now >= since + breaker.pause => {
                                (refused_since, is_due) = (Some(now), false);
                                Some(Permit::Trial)
                            }
                            Some(_) => None,
                        };
                        prop_assert_eq!(permit, expected);
                        under_way.extend(permit);
                    }
                    Event::Late => {
                        state = Breaker::late(state, now);
                        is_due |= refused_since.is_some() && !was_hurried;
                        was_hurried |= refused_since.is_some();
                    }
                    Event::End(place, succeeded) if place < under_way.len() => {
                        let permit = under_way.remove(place);
                        state = breaker.learn(state, permit, succeeded, now);
                        match (refused_since, permit, succeeded) {
                            (Some(_), Permit::Usual, _) => {}
                            (Some(_), Permit::Trial, false) => (refused_since, is_due) = (Some(now), false),
                            (Some(_), Permit::Trial, true) => {
                                (outcomes, refused_since) = (Vec::new(), None);
                                (is_due, was_hurried) = (false, false);
                            }
                            (None, _, _) => outcomes.push(succeeded),
                        }
                        let last = outcomes.iter().rev().take_while(|&&succeeded| !succeeded).count();
                        if last >= failures_max as usize {
                            (outcomes, refused_since) = (Vec::new(), Some(now));
                        }
                    }
                    Event::End(..) => {}
                }
                prop_assert_eq!(matches!(state, State::Open { .. }), refused_since.is_some());
            }
        }
    }
}
