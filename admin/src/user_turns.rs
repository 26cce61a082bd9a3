//! Turns of users: one piece of work of each user at a time is done or waits for what all users share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tidegate_listener::{Hurry, hurry};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// Users of whom none is forgotten: looking for those without work takes longer than they are worth.
const SWEEP_MIN: usize = 64;

/// The turn of a user. A task that has it does not wait for [turns of its peer](tidegate_listener::hurry): it holds, or is the next
/// to have, what other users wait for.
#[derive(Debug)]
pub(crate) struct UserTurn {
    _permit: OwnedSemaphorePermit,
    _hurry: Hurry,
}

/// A turn for each user. Work waits for the turn of its user first, and then for what all users share: so it waits there for one
/// piece of work of each other user at most.
#[derive(Debug, Default)]
pub(crate) struct UserTurns(Mutex<Users>);

#[derive(Debug, Default)]
struct Users {
    turns: HashMap<String, Arc<Semaphore>>,
    /// The number of users at which those without work are forgotten.
    sweep_at: usize,
}

impl UserTurns {
    /// Waits for the turn of this user, until `end` at most.
    pub(crate) async fn turn(&self, user: &str, end: Instant) -> Option<UserTurn> {
        let permit = timeout_at(end, self.of(user).acquire_owned()).await.ok()?.ok()?;
        Some(UserTurn { _permit: permit, _hurry: hurry() })
    }

    fn of(&self, user: &str) -> Arc<Semaphore> {
        // Nothing in here panics.
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Users { turns, sweep_at } = &mut *users;
        if let Some(turn) = turns.get(user) {
            return Arc::clone(turn);
        }
        if turns.len() >= *sweep_at {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            *sweep_at = (2 * turns.len()).max(SWEEP_MIN);
        }
        let turn = Arc::new(Semaphore::new(1));
        turns.insert(user.to_owned(), Arc::clone(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            assert!(turns.0.lock().expect("whole").turns.len() <= 2 * WORKING);
        }
        assert!(turns.turn("working-0", Instant::now()).await.is_none());
    }
}
