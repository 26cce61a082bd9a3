//! Work that callers share: a piece of it serves all callers that came before it began. So however many callers wait for the same
//! work, they have one place in the queue in which it waits, and all of them have its outcome at the same time.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use tokio::{select, sync::oneshot};

use crate::domain::error::Problem;

type Piece<T> = BoxFuture<'static, Result<T, Problem>>;

/// Pieces of work by what they are about, as long as they have not begun.
pub(crate) struct SharedWork<K, T>(Arc<Mutex<Waiting<K, T>>>);

struct Waiting<K, T> {
    pieces: HashMap<K, (u64, WeakShared<Piece<T>>)>,
    /// The number of the piece that was made last.
    newest: u64,
}

impl<K, T> Default for SharedWork<K, T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Waiting { pieces: HashMap::new(), newest: 0 })))
    }
}

impl<K, T> fmt::Debug for SharedWork<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWork").field("waiting", &lock(&self.0).pieces.len()).finish_non_exhaustive()
    }
}

impl<K, T> SharedWork<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Returns the outcome of work about `key` that begins from now on: of another caller's, or else of `work`, which begins when
    /// `turn` is ready and keeps what that returns. Both run in a task of their own, since callers are polled in the turns of their
    /// peers. Work that has begun goes on if all of its callers disconnect; before, it is given up with the last of them.
    pub(crate) async fn share<P: Send + 'static>(
        &self,
        key: K,
        turn: impl Future<Output = Result<P, Problem>> + Send + 'static,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        self.piece(key, turn, work).await
    }

    fn piece<P: Send + 'static>(
        &self,
        key: K,
        turn: impl Future<Output = Result<P, Problem>> + Send + 'static,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Shared<Piece<T>> {
        let mut waiting = lock(&self.0);
        if let Some(piece) = waiting.pieces.get(&key).and_then(|(_, piece)| piece.upgrade()) {
            return piece;
        }
        waiting.newest += 1;
        let number = waiting.newest;
        let entry = Entry { waiting: Arc::clone(&self.0), key: key.clone(), number };
        let (mut outcome, done) = oneshot::channel();
        tokio::spawn(async move {
            let turn = select! {
                turn = turn => turn,
                () = outcome.closed() => return,
            };
            // Callers from now on need the next piece.
            drop(entry);
            let done = match turn {
                Ok(_turn) => work.await,
                Err(problem) => Err(problem),
            };
            // Ignores send errors: all callers may have disconnected.
            let _ = outcome.send(done);
        });
        let done = done.map(|done| done.unwrap_or_else(|error| Err(Problem::Internal(error.to_string()))));
        let piece = done.boxed().shared();
        waiting.pieces.extend(piece.downgrade().map(|piece| (key, (number, piece))));
        piece
    }
}

/// The entry of a piece that has not begun.
struct Entry<K: Eq + Hash, T> {
    waiting: Arc<Mutex<Waiting<K, T>>>,
    key: K,
    number: u64,
}

impl<K: Eq + Hash, T> Drop for Entry<K, T> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        // Another piece may have come in its place, if this one was given up.
        if waiting.pieces.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            waiting.pieces.remove(&self.key);
        }
    }
}

#[cfg(test)]
impl<K, T> SharedWork<K, T> {
    /// Returns how many pieces of work were made.
    pub(crate) fn count(&self) -> u64 {
        lock(&self.0).newest
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds it panics.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::{
        sync::Semaphore,
        task::{JoinHandle, yield_now},
        time::timeout,
    };

    use super::*;

    /// Work whose turns come, and which ends, when the test says so. Its outcome is its number.
    struct Test {
        shared: SharedWork<&'static str, usize>,
        turn: Arc<Semaphore>,
        end: Semaphore,
        begun: AtomicUsize,
    }

    impl Test {
        fn new() -> Arc<Self> {
            let closed = || Semaphore::new(0);
            let begun = AtomicUsize::new(0);
            Arc::new(Self { shared: SharedWork::default(), turn: Arc::new(closed()), end: closed(), begun })
        }

        fn ask(self: &Arc<Self>, key: &'static str) -> JoinHandle<Result<usize, Problem>> {
            let (test, turns) = (Arc::clone(self), Arc::clone(&self.turn));
            tokio::spawn(async move {
                let same = Arc::clone(&test);
                let turn = async { turns.acquire_owned().await.map_err(|_| Problem::Busy("closed")) };
                let work = async move {
                    let number = same.begun.fetch_add(1, Ordering::SeqCst) + 1;
                    same.end.acquire().await.expect("open").forget();
                    if number == 2 { Err(Problem::Busy("a test")) } else { Ok(number) }
                };
                test.shared.share(key, turn, work).await
            })
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::SeqCst)
        }

        fn waiting(&self) -> usize {
            lock(&self.shared.0).pieces.len()
        }
    }

    async fn settle() {
        for _ in 0..1_000 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn all_that_wait_share_a_piece_and_those_after_it_began_need_the_next() {
        let test = Test::new();
        let first: Vec<_> = (0..100).map(|_| test.ask("a")).collect();
        settle().await;
        // The caller who made it disconnects, and it goes on.
        first[0].abort();
        test.turn.add_permits(1);
        settle().await;
        assert_eq!((test.begun(), test.waiting()), (1, 0));
        let second: Vec<_> = (0..100).map(|_| test.ask("a")).collect();
        settle().await;
        assert_eq!((test.begun(), test.waiting()), (1, 1), "the first one keeps the turn");
        test.end.add_permits(1);
        for waited in first.into_iter().skip(1) {
            assert!(matches!(waited.await.expect("no panic"), Ok(1)));
        }
        settle().await;
        assert!(second.iter().all(|waiting| !waiting.is_finished()));
        test.end.add_permits(1);
        for waited in second {
            assert!(
                matches!(waited.await.expect("no panic"), Err(Problem::Busy("a test"))),
                "they share its failure too"
            );
        }
        assert_eq!((test.begun(), test.waiting()), (2, 0));
    }

    #[tokio::test]
    async fn work_about_something_else_is_not_shared() {
        let test = Test::new();
        test.turn.add_permits(2);
        test.end.add_permits(2);
        let (first, second) = (test.ask("a"), test.ask("b"));
        assert!(first.await.expect("no panic").is_ok());
        assert!(second.await.expect("no panic").is_err());
    }

    #[tokio::test]
    async fn work_that_all_callers_left_is_given_up_unless_it_has_begun() {
        let test = Test::new();
        let given_up = [test.ask("a"), test.ask("a")];
        settle().await;
        assert_eq!(test.waiting(), 1);
        for asked in given_up {
            asked.abort();
        }
        settle().await;
        assert_eq!((test.begun(), test.waiting()), (0, 0));
        test.turn.add_permits(1);
        let left = test.ask("a");
        settle().await;
        assert_eq!(test.begun(), 1);
        left.abort();
        settle().await;
        test.end.add_permits(1);
        settle().await;
        assert_eq!(test.end.available_permits(), 0, "it came to its end");
    }

    #[tokio::test]
    async fn a_turn_that_does_not_come_is_an_error_of_all_that_wait() {
        let shared = SharedWork::<(), ()>::default();
        let refused = shared.share((), async { Err::<(), _>(Problem::Busy("a test")) }, pending()).await;
        assert!(matches!(refused, Err(Problem::Busy("a test"))));
        assert!(lock(&shared.0).pieces.is_empty());
        let endless = shared.share((), pending::<Result<(), _>>(), pending());
        assert!(timeout(Duration::ZERO, endless).await.is_err());
        settle().await;
        assert!(lock(&shared.0).pieces.is_empty());
    }
}
