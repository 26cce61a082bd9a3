//! Turns of users, and of callers: one piece of work of each at a time is done or waits for what all users share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tidegate_listener::{HurryGuard, hurry};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::base::caller;

/// The number of users below which none is forgotten: looking for those without work would take longer than they are worth.
const SWEEP_MIN: usize = 64;

/// The turn of a user. A task that has it does not wait for [turns of its peer](tidegate_listener::hurry): it holds, or is the next
/// to have, what other users wait for.
#[derive(Debug)]
pub(crate) struct UserTurn {
    _permit: OwnedSemaphorePermit,
    _hurry: HurryGuard,
}

/// A turn for each user. Work waits for the turn of its user first, and then for what all users share: so it waits there for one
/// piece of work of each other user at most.
#[derive(Debug)]
pub(crate) struct UserTurns {
    /// The number of turns that a user has at a time.
    count: usize,
    users: Mutex<Users>,
}

/// A turn for each [caller](crate::base::caller::name), and [`OF_USER`] for each user at all addresses together. A hostile token at one
/// address leaves its user a turn at another.
#[derive(Debug)]
pub(crate) struct CallerTurns {
    callers: UserTurns,
    users: UserTurns,
}

/// Turns of a user at all addresses together.
const OF_USER: usize = 2;

/// The turn of a caller, and that of the user, where the caller is one.
#[derive(Debug)]
pub(crate) struct CallerTurn {
    _own: UserTurn,
    _of_user: Option<UserTurn>,
}

impl Default for CallerTurns {
    fn default() -> Self {
        Self { callers: UserTurns::default(), users: UserTurns::new(OF_USER) }
    }
}

impl CallerTurns {
    /// Waits for the turn of this caller, until `end` at most.
    pub(crate) async fn turn(&self, caller: &str, end: Instant) -> Option<CallerTurn> {
        let own = self.callers.turn(caller, end).await?;
        let of_user = match caller::user(caller) {
            Some(user) => Some(self.users.turn(user, end).await?),
            None => None,
        };
        Some(CallerTurn { _own: own, _of_user: of_user })
    }
}

impl Default for UserTurns {
    fn default() -> Self {
        Self::new(1)
    }
}

#[derive(Debug, Default)]
struct Users {
    turns: HashMap<String, Arc<Semaphore>>,
    /// The number of users at which those without work are forgotten.
    sweep_at: usize,
}

impl UserTurns {
    fn new(count: usize) -> Self {
        Self { count, users: Mutex::default() }
    }

    /// Waits for the turn of this user, until `end` at most.
    pub(crate) async fn turn(&self, user: &str, end: Instant) -> Option<UserTurn> {
        let permit = timeout_at(end, self.of(user).acquire_owned()).await.ok()?.ok()?;
        Some(UserTurn { _permit: permit, _hurry: hurry() })
    }

    fn of(&self, user: &str) -> Arc<Semaphore> {
        // Nothing in here panics.
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let Users { turns, sweep_at } = &mut *users;
        if let Some(turn) = turns.get(user) {
            return Arc::clone(turn);
        }
        if turns.len() >= *sweep_at {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            *sweep_at = (2 * turns.len()).max(SWEEP_MIN);
        }
        let turn = Arc::new(Semaphore::new(self.count));
        turns.insert(user.to_owned(), Arc::clone(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, net::IpAddr, rc::Rc, time::Duration};

    use tidegate_listener::Turns;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    #[tokio::test]
    async fn a_user_has_one_turn() {
        let turns = UserTurns::default();
        let soon = || Instant::now() + Duration::from_millis(20);
        let of_ana = turns.turn("ana", soon()).await.expect("it is free");
        assert!(turns.turn("ana", soon()).await.is_none());
        let of_ben = turns.turn("ben", soon()).await.expect("it is free");
        drop((of_ana, of_ben));
        assert!(turns.turn("ana", soon()).await.is_some());
    }

    #[tokio::test]
    async fn a_user_has_one_turn_at_an_address_and_two_in_all() {
        let turns = CallerTurns::default();
        let soon = || Instant::now() + Duration::from_millis(20);
        let first = turns.turn("ana@192.0.2.1", soon()).await.expect("it is free");
        assert!(turns.turn("ana@192.0.2.1", soon()).await.is_none());
        let second = turns.turn("ana@192.0.2.2", soon()).await.expect("it is free");
        assert!(turns.turn("ana@192.0.2.3", soon()).await.is_none());
        let others = ["ben@192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"];
        for other in others {
            assert!(turns.turn(other, soon()).await.is_some(), "{other}");
        }
        drop(first);
        assert!(turns.turn("ana@192.0.2.3", soon()).await.is_some());
        drop(second);
    }

    /// The tasks of a peer with many others wait for all of them, but not the one with a turn.
    #[tokio::test]
    async fn a_task_with_a_turn_does_not_wait_for_others_of_its_peer() {
        const OTHERS: usize = 1_000;
        const STEPS: usize = 20;
        let polls = Rc::new(Cell::new(0_usize));
        let test = async {
            let peer = Turns::new().peer_turns(IpAddr::from([192, 0, 2, 1]).into());
            for _ in 0..OTHERS {
                let polls = Rc::clone(&polls);
                drop(spawn_local(peer.run(async move {
                    loop {
                        polls.update(|polls| polls + 1);
                        let began = Instant::now();
                        while began.elapsed() < Duration::from_micros(50) {}
                        yield_now().await;
                    }
                })));
            }
            let polls = Rc::clone(&polls);
            let work = async move {
                let turns = UserTurns::default();
                yield_now().await;
                let turn = turns.turn("ana", Instant::now()).await.expect("it is free");
                let before = polls.get();
                for _ in 0..STEPS {
                    yield_now().await;
                }
                drop(turn);
                polls.get() - before
            };
            spawn_local(peer.run(work)).await.expect("it ends")
        };
        let meanwhile = LocalSet::new().run_until(test).await;
        assert!(meanwhile < OTHERS, "{meanwhile} polls of others");
    }

    #[tokio::test]
    async fn users_without_work_are_forgotten() {
        const WORKING: usize = 3 * SWEEP_MIN;
        let turns = UserTurns::default();
        let turn = async |user: String| turns.turn(&user, Instant::now()).await.expect("it is free");
        let mut working = Vec::new();
        for number in 0..WORKING {
            working.push(turn(format!("working-{number}")).await);
        }
        for number in 0..10 * WORKING {
            drop(turn(format!("idle-{number}")).await);
            assert!(turns.users.lock().expect("whole").turns.len() <= 2 * WORKING);
        }
        assert!(turns.turn("working-0", Instant::now()).await.is_none());
    }
}
