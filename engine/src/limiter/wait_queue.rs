//! Wait queues: first come, first served.
//!
//! Tasks that wait stand in a queue, and only the first of them looks at the bucket and sleeps. A token is taken in the same
//! poll in which the future is ready, so a future that is dropped before has taken nothing and lets the next task move up.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout_at};

use crate::engine::decision::{Outcome, Retry};

/// Why a wait ended without a token. Nothing was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitError {
    /// It would have waited forever: it costs more than the limit ever holds, or the limit admits nothing.
    Never,
    /// Its turn does not come before the deadline.
    TooLate,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "the limit never admits this cost",
            Self::TooLate => "the limit does not admit this cost before the deadline",
        })
    }
}

impl std::error::Error for WaitError {}

/// Those who wait for one bucket.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue(tokio::sync::Mutex<()>);

impl WaitQueue {
    /// Stands in queue, then repeats `attempt` until it is allowed.
    pub(crate) async fn wait(&self, deadline: Option<Instant>, attempt: impl Fn() -> Outcome) -> Result<(), WaitError> {
        let _turn = before(deadline, self.0.lock()).await?;
        loop {
            match attempt().retry() {
                Retry::Now => return Ok(()),
                Retry::Never => return Err(WaitError::Never),
                Retry::After(wait) if is_too_late(wait, deadline) => return Err(WaitError::TooLate),
                Retry::After(wait) => sleep(wait).await,
            }
        }
    }
}

async fn before<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Result<T, WaitError> {
    match deadline {
        Some(deadline) => timeout_at(deadline, future).await.map_err(|_| WaitError::TooLate),
        None => Ok(future.await),
    }
}

fn is_too_late(wait: Duration, deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline.saturating_duration_since(Instant::now()) < wait)
}

/// A queue for each key that somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues(Mutex<HashMap<u64, SharedQueue>>);

#[derive(Debug, Default)]
struct SharedQueue {
    queue: Arc<WaitQueue>,
    /// How many stand in it; the last to leave removes it.
    standing: usize,
}

impl WaitQueues {
    /// The queue of the keys with this hash. Keys that meet wait for each other, no more.
    pub(crate) fn join(&self, hash: u64) -> QueueTicket<'_> {
        let mut queues = self.lock();
        let shared = queues.entry(hash).or_default();
        shared.standing += 1;
        QueueTicket { queue: Arc::clone(&shared.queue), hash, queues: self }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, SharedQueue>> {
        // Nothing under the lock panics half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody's place in the queue of a key.
#[derive(Debug)]
pub(crate) struct QueueTicket<'l> {
    pub(crate) queue: Arc<WaitQueue>,
    hash: u64,
    queues: &'l WaitQueues,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut shared) = self.queues.lock().entry(self.hash) {
            shared.get_mut().standing -= 1;
            if shared.get().standing == 0 {
                shared.remove();
            }
        }
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_there_as_long_as_somebody_stands_in_it() {
        let queues = WaitQueues::default();
        let (first, second, other) = (queues.join(7), queues.join(7), queues.join(8));
        assert!(Arc::ptr_eq(&first.queue, &second.queue) && !Arc::ptr_eq(&first.queue, &other.queue));
        drop((first, other));
        assert_eq!(queues.lock().keys().collect::<Vec<_>>(), [&7]);
        drop(second);
        assert!(queues.lock().is_empty());
    }
}
