//! One look at the database for all callers that wait for one.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

use crate::problem::Problem;

/// Has callers share looks: a look serves all that waited when it began. So however many callers wait, they have one place in
/// whatever queue a look waits in.
#[derive(Debug, Default)]
pub(super) struct SharedLook {
    begun: AtomicU64,
    last: Arc<Mutex<LastLook>>,
}

/// The look that ended last: its number, and what came of it.
#[derive(Debug)]
struct LastLook {
    number: u64,
    outcome: Result<(), Problem>,
}

impl Default for LastLook {
    fn default() -> Self {
        Self { number: 0, outcome: Ok(()) }
    }
}

impl SharedLook {
    /// Returns the outcome of a look that begins from now on: of another caller's, or else of `look`. It is to call
    /// [`begin`](Self::begin) when its turn has come, and runs in a task of its own: its place in a queue is not lost when its
    /// caller disconnects. An error before that is this caller's alone. `None`: those before took until `end`.
    pub(super) async fn share<F>(&self, end: Instant, look: impl FnOnce() -> F) -> Option<Result<(), Problem>>
    where
        F: Future<Output = (Option<u64>, Result<(), Problem>)> + Send + 'static,
    {
        let needed = self.begun.load(Ordering::SeqCst) + 1;
        let mut last = timeout_at(end, Arc::clone(&self.last).lock_owned()).await.ok()?;
        if last.number >= needed {
            return Some(last.outcome.clone());
        }
        let look = look();
        let looked = tokio::spawn(async move {
            let (number, outcome) = look.await;
            if let Some(number) = number {
                *last = LastLook { number, outcome: outcome.clone() };
            }
            outcome
        });
        Some(looked.await.unwrap_or_else(|error| Err(Problem::Internal(error.to_string()))))
    }

    /// Begins a look: callers from now on need the next one. Returns its number.
    pub(super) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns how many looks have begun.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::{sync::Semaphore, task::JoinHandle, time::timeout};

    use super::*;

    struct Looks {
        shared: SharedLook,
        turn: Semaphore,
        end: Semaphore,
    }

    /// Waits for a look that has its turn, and ends, when the test says so.
    fn look(looks: &Arc<Looks>) -> JoinHandle<Option<Result<(), Problem>>> {
        let looks = Arc::clone(looks);
        tokio::spawn(async move {
            let same = Arc::clone(&looks);
            let look = || async move {
                same.turn.acquire().await.expect("open").forget();
                let number = same.shared.begin();
                same.end.acquire().await.expect("open").forget();
                (Some(number), if number == 2 { Err(Problem::Busy("a test")) } else { Ok(()) })
            };
            looks.shared.share(Instant::now() + Duration::from_mins(1), look).await
        })
    }

    async fn settle() {
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn all_that_wait_share_a_look_and_those_after_it_began_need_the_next() {
        let closed = || Semaphore::new(0);
        let looks = Arc::new(Looks { shared: SharedLook::default(), turn: closed(), end: closed() });
        let first: Vec<_> = (0..100).map(|_| look(&looks)).collect();
        settle().await;
        // Its caller disconnects, and it goes on.
        first[0].abort();
        looks.turn.add_permits(1);
        settle().await;
        assert_eq!(looks.shared.count(), 1);
        let second: Vec<_> = (0..100).map(|_| look(&looks)).collect();
        settle().await;
        looks.end.add_permits(1);
        for waited in first.into_iter().skip(1) {
            assert!(matches!(waited.await.expect("no panic"), Some(Ok(()))));
        }
        assert!(second.iter().all(|waiting| !waiting.is_finished()));
        looks.turn.add_permits(1);
        looks.end.add_permits(1);
        for waited in second {
            assert!(
                matches!(waited.await.expect("no panic"), Some(Err(Problem::Busy(_)))),
                "they share its failure too"
            );
        }
        assert_eq!(looks.shared.count(), 2);
    }

    #[tokio::test]
    async fn a_look_that_did_not_begin_fails_for_its_caller_alone() {
        let shared = Arc::new(SharedLook::default());
        let end = || Instant::now() + Duration::from_mins(1);
        let refused = shared.share(end(), || async { (None, Err(Problem::Busy("a test"))) }).await;
        assert!(matches!(refused, Some(Err(Problem::Busy(_)))));
        let same = Arc::clone(&shared);
        assert!(matches!(shared.share(end(), || async move { (Some(same.begin()), Ok(())) }).await, Some(Ok(()))));
        let endless = shared.share(end(), || async { (None, pending().await) });
        assert!(timeout(Duration::ZERO, endless).await.is_err());
        let late = shared.share(Instant::now(), || async { (None, Ok(())) }).await;
        assert!(late.is_none(), "those before took too long");
    }
}
