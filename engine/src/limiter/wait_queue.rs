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
pub(crate) struct Line(tokio::sync::Mutex<()>);

impl Line {
    /// Stands in line, then repeats `attempt` until it is allowed.
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

/// A line for each key that somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<u64, Shared>>);

#[derive(Debug, Default)]
struct Shared {
    line: Arc<Line>,
    /// How many stand in it; the last to leave removes it.
    standing: usize,
}

impl Lines {
    /// The line of the keys with this hash. Keys that meet wait for each other, no more.
    pub(crate) fn join(&self, hash: u64) -> Place<'_> {
        let mut lines = self.lock();
        let shared = lines.entry(hash).or_default();
        shared.standing += 1;
        Place { line: Arc::clone(&shared.line), hash, lines: self }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Shared>> {
        // Nothing under the lock panics half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody's place in the line of a key.
#[derive(Debug)]
pub(crate) struct Place<'l> {
    pub(crate) line: Arc<Line>,
    hash: u64,
    lines: &'l Lines,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut shared) = self.lines.lock().entry(self.hash) {
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
        let lines = Lines::default();
        let (first, second, other) = (lines.join(7), lines.join(7), lines.join(8));
        assert!(Arc::ptr_eq(&first.line, &second.line) && !Arc::ptr_eq(&first.line, &other.line));
        drop((first, other));
        assert_eq!(lines.lock().keys().collect::<Vec<_>>(), [&7]);
        drop(second);
        assert!(lines.lock().is_empty());
    }
}
