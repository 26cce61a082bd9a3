//! Queues of work that takes long: it is done beside the threads that answer, two pieces of a queue at a time, of which a user
//! has one. So a user who may read cannot keep others from reading and publishing.

use std::{future::Future, marker::PhantomData, ops::Deref, sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use crate::{
    base::{
        caller,
        user_turns::{UserTurn, UserTurns},
    },
    capacity::read_turns::ReadTurns,
    domain::error::Problem,
};

/// Pieces of work of one queue that are done at a time.
const AT_ONCE: usize = 2;
/// The longest that work waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The places for one kind of work, and the queue for them. A user, with the tokens that they made, has one piece of work in a place or
/// in the queue at a time; their further work waits behind it, so other users wait for one piece of theirs at most.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    places: Arc<Semaphore>,
    turns: UserTurns,
    patience: Duration,
    /// Says that other work of the same user is not done yet.
    own_first: &'static str,
}

/// The work of one user in a queue.
#[derive(Clone, Debug)]
pub(crate) struct UserWork {
    queue: Arc<WorkQueue>,
    user: String,
}

/// The work of the caller in the queue `Q`: an argument of handlers that have some.
#[derive(Clone, Debug)]
pub(crate) struct CallerWork<Q> {
    work: UserWork,
    caller: String,
    reads: Arc<ReadTurns>,
    queue: PhantomData<fn() -> Q>,
}

/// The queue of work on whole policies, and of long searches of the audit log.
#[derive(Clone, Debug)]
pub(crate) enum HeavyQueue {}

/// The queue of queries, which a page of the dashboard makes when it opens.
#[derive(Clone, Debug)]
pub(crate) enum QueryQueue {}

pub(crate) type Heavy = CallerWork<HeavyQueue>;
pub(crate) type Queries = CallerWork<QueryQueue>;

/// A place for one piece of work, and its user's turn. The work keeps both until it is done, also if its caller disconnects.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    _turn: UserTurn,
}

/// An answer that is JSON already.
#[derive(Debug)]
pub(crate) struct Written<T> {
    pub(crate) text: String,
    of: PhantomData<fn() -> T>,
}

impl WorkQueue {
    /// Creates the queue of work on whole policies.
    pub(crate) fn heavy() -> Arc<Self> {
        Self::new("Other work of yours on whole policies, or of your tokens, is not done yet; wait for its answers.")
    }

    /// Creates the queue of queries, which do not wait for work on whole policies.
    pub(crate) fn queries() -> Arc<Self> {
        Self::new("Other queries of yours, or of your tokens, are not done yet; wait for their answers.")
    }

    fn new(own_first: &'static str) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Arc::new(Self { places, turns: UserTurns::default(), patience: PATIENCE, own_first })
    }

    /// Returns the work of this user, with that of the tokens that they made.
    pub(crate) fn of(self: &Arc<Self>, user: &str) -> UserWork {
        UserWork { queue: Arc::clone(self), user: user.to_owned() }
    }
}

impl UserWork {
    /// Waits for the user's turn, and then for a place.
    pub(crate) async fn place(&self) -> Result<Place, Problem> {
        let end = Instant::now() + self.queue.patience;
        let turn = self.queue.turns.turn(&self.user, end).await.ok_or(Problem::Busy(self.queue.own_first))?;
        let permit = timeout_at(end, Arc::clone(&self.queue.places).acquire_owned()).await.ok().and_then(Result::ok);
        let permit = permit.ok_or(Problem::Busy("As much is worked on as may be at a time; come again."))?;
        Ok(Place { _permit: permit, _turn: turn })
    }

    /// Does this work when it is its turn.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.place().await?.work(work).await
    }
}

impl Place {
    /// Does this work.
    pub(crate) async fn work<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        self.step(work).await.map(|(_, done)| done)
    }

    /// Does this work, and keeps the place for more.
    pub(crate) async fn step<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(Self, T), Problem> {
        let done = spawn_blocking(move || {
            let done = work();
            (self, done)
        });
        done.await.map_err(|error| Problem::Internal(error.to_string()))
    }

    /// Makes an answer and writes it as JSON.
    pub(crate) async fn write<T: Serialize + 'static>(
        self,
        make: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<Written<T>, Problem> {
        self.work(move || {
            let text = serde_json::to_string(&make()?).map_err(|error| Problem::Internal(error.to_string()))?;
            Ok(Written { text, of: PhantomData })
        })
        .await?
    }

    /// Waits for what does such work itself.
    pub(crate) async fn whole<T: 'static>(self, work: impl Future<Output = T> + 'static) -> Result<(Self, T), Problem> {
        let done = caller::spawn(async move { (self, work.await) });
        done.await.map_err(|error| Problem::Internal(error.to_string()))
    }
}

impl<Q> CallerWork<Q> {
    /// The work of a user in a queue, and the turns in which they read as this caller.
    pub(crate) fn new(work: UserWork, caller: String, reads: Arc<ReadTurns>) -> Self {
        Self { work, caller, reads, queue: PhantomData }
    }

    /// Reads from the database. A read of many more rows than it finds waits in this queue, others wait for those of the caller.
    pub(crate) async fn read<T: 'static>(
        &self,
        is_heavy: bool,
        read: impl Future<Output = sqlx::Result<T>> + 'static,
    ) -> Result<T, Problem> {
        if is_heavy {
            return Ok(self.place().await?.whole(read).await?.1?);
        }
        let _turn = self.reads.turn_of(&self.caller).await?;
        Ok(read.await?)
    }
}

impl<Q> Deref for CallerWork<Q> {
    type Target = UserWork;

    fn deref(&self) -> &UserWork {
        &self.work
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

    use super::*;

    fn queue(patience: Duration) -> Arc<WorkQueue> {
        let mut queue = WorkQueue::heavy();
        Arc::get_mut(&mut queue).expect("not shared yet").patience = patience;
        queue
    }

    /// A piece of work that goes on until its end is dropped.
    async fn begin(work_of_user: UserWork) -> (oneshot::Sender<()>, JoinHandle<bool>) {
        let ((end, ended), (began, begins)) = (oneshot::channel::<()>(), oneshot::channel());
        let work = move || {
            let _ = began.send(());
            let _ = ended.blocking_recv();
        };
        let working = tokio::spawn(async move { work_of_user.work(work).await.is_ok() });
        begins.await.expect("it has a place");
        (end, working)
    }

    /// Work that finds all places taken waits, and is refused after a while; what is being done keeps its place.
    #[tokio::test]
    async fn two_pieces_of_work_are_done_at_a_time() {
        let queue = queue(Duration::from_millis(20));
        let (first, of_ana) = begin(queue.of("ana")).await;
        let (second, of_ben) = begin(queue.of("ben")).await;
        // Its caller has disconnected.
        of_ben.abort();
        let refused = queue.of("eve").work(|| ()).await;
        assert!(matches!(refused, Err(Problem::Busy(why)) if !why.contains("of yours")), "{refused:?}");
        drop((first, second));
        assert!(of_ana.await.expect("no panic"));
        let of_eve = queue.of("eve");
        assert!(of_eve.work(|| ()).await.is_ok());
        let place = of_eve.place().await.expect("a place");
        assert!(matches!(place.write(|| Ok(7)).await, Ok(written) if written.text == "7"));
    }

    #[tokio::test]
    async fn work_of_one_user_waits_behind_their_own_and_leaves_others_a_place() {
        let queue = queue(Duration::from_millis(20));
        let (end, of_ana) = begin(queue.of("ana")).await;
        let refused = queue.of("ana").work(|| ()).await;
        assert!(matches!(refused, Err(Problem::Busy(why)) if why.contains("of yours")), "{refused:?}");
        for user in ["ben", "eve", "ben"] {
            assert!(queue.of(user).work(|| ()).await.is_ok(), "{user}");
        }
        drop(end);
        assert!(of_ana.await.expect("no panic"));
        assert!(queue.of("ana").work(|| ()).await.is_ok());
    }

    /// Both places are taken by users who have much more work, which they asked for before.
    #[tokio::test]
    async fn a_user_waits_for_one_piece_of_work_of_each_other_user() {
        let queue = queue(PATIENCE);
        let (end_of_ana, _) = begin(queue.of("ana")).await;
        let (_end_of_ben, _) = begin(queue.of("ben")).await;
        let wait = |user: &str| {
            let of_user = queue.of(user);
            Box::pin(async move { of_user.place().await })
        };
        let mut crowd: Vec<_> = (0..20).flat_map(|_| [wait("ana"), wait("ben")]).collect();
        let mut of_eve = wait("eve");
        for waiting in crowd.iter_mut().chain([&mut of_eve]) {
            assert!(timeout(Duration::ZERO, waiting).await.is_err(), "it waits");
        }
        drop(end_of_ana);
        drop(of_eve.await.expect("the first place that is free"));
    }
}
