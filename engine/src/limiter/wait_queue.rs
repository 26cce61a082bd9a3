//! The queue of the tasks that wait for tokens, first come, first served.
//!
//! Only the first task looks at the bucket and sleeps. It takes a token in the same poll in which its future is ready,
//! so a future that is dropped before that has taken nothing and lets the next task move up.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    base::lock::lock,
    engine::decision::{Outcome, Retry},
};

/// The reason why a wait ended without a token. Nothing was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitError {
    /// The wait would never end: the cost is more than the limit ever holds, or the limit admits nothing.
    Never,
    /// No token comes before the deadline.
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

/// The tasks that wait for one bucket.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue(tokio::sync::Mutex<()>);

impl WaitQueue {
    /// Waits until the task is the first in the queue, then repeats `attempt` until it is allowed.
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

/// The wait queues by key, one for each key that tasks wait for.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues(Mutex<HashMap<u64, SharedQueue>>);

#[derive(Debug, Default)]
struct SharedQueue {
    queue: Arc<WaitQueue>,
    /// The number of tasks in the queue; the last to leave removes it.
    standing: usize,
}

impl WaitQueues {
    /// Joins the queue of the keys with this hash. Keys whose hashes collide only wait for each other.
    pub(crate) fn join(&self, hash: u64) -> QueueTicket<'_> {
        let mut queues = lock(&self.0);
        let shared = queues.entry(hash).or_default();
        shared.standing += 1;
        QueueTicket { queue: Arc::clone(&shared.queue), hash, queues: self }
    }
}

/// The place of a task in the queue of a key.
#[derive(Debug)]
pub(crate) struct QueueTicket<'l> {
    pub(crate) queue: Arc<WaitQueue>,
    hash: u64,
    queues: &'l WaitQueues,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut shared) = lock(&self.queues.0).entry(self.hash) {
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
    fn a_queue_exists_as_long_as_a_task_waits_in_it() {
        let queues = WaitQueues::default();
        let (first, second, other) = (queues.join(7), queues.join(7), queues.join(8));
        assert!(Arc::ptr_eq(&first.queue, &second.queue) && !Arc::ptr_eq(&first.queue, &other.queue));
        drop((first, other));
        assert_eq!(lock(&queues.0).keys().collect::<Vec<_>>(), [&7]);
        drop(second);
        assert!(lock(&queues.0).is_empty());
    }
}
