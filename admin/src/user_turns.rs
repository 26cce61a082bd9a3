//! Turns of users: one piece of work of each user at a time is done or waits for what all users share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// A turn for each user. Work waits for the turn of its user first, and then for what all users share: so it waits there for one
/// piece of work of each other user at most.
#[derive(Debug, Default)]
pub(crate) struct UserTurns(Mutex<HashMap<String, Arc<Semaphore>>>);

impl UserTurns {
    /// Waits for the turn of this user, until `end` at most.
    pub(crate) async fn turn(&self, user: &str, end: Instant) -> Option<OwnedSemaphorePermit> {
        timeout_at(end, self.of(user).acquire_owned()).await.ok()?.ok()
    }

    fn of(&self, user: &str) -> Arc<Semaphore> {
        // Nothing in here panics.
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(user.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_user_has_one_turn_and_takes_no_memory_without_work() {
        let turns = UserTurns::default();
        let soon = || Instant::now() + Duration::from_millis(20);
        let of_ana = turns.turn("ana", soon()).await.expect("it is free");
        assert!(turns.turn("ana", soon()).await.is_none());
        let of_ben = turns.turn("ben", soon()).await.expect("it is free");
        drop((of_ana, of_ben));
        assert!(turns.turn("ana", soon()).await.is_some());
        assert_eq!(turns.0.lock().expect("whole").len(), 1);
    }
}
