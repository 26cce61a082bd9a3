//! An answer that is worked out once for all who ask for it at the same time.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{spawn, sync::watch, time::Instant};

/// The last answer to a question that is asked often and costs much. A task of its own works out the next one, so no caller waits
/// for the task of another, which may have to wait for [its turn](crate::PeerTurns).
pub struct SharedAnswer<T>(Arc<Inner<T>>);

struct Inner<T> {
    /// The last answer, and when it was there. `None`: there is none yet, or the work for it panicked.
    last: watch::Sender<Option<(Instant, T)>>,
    is_working: AtomicBool,
}

impl<T: Clone + Send + Sync + 'static> SharedAnswer<T> {
    /// Returns the last answer if it `is_fresh` at its age, else a new one, which `work` gives. While that is worked out, later
    /// callers wait for the same answer. `None`: the work panicked.
    pub async fn get<F>(&self, is_fresh: impl FnOnce(Duration, &T) -> bool, work: impl FnOnce() -> F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut last = self.0.last.subscribe();
        if let Some((at, answer)) = &*last.borrow_and_update()
            && is_fresh(at.elapsed(), answer)
        {
            return Some(answer.clone());
        }
        if !self.0.is_working.swap(true, Ordering::AcqRel) {
            let (working, work) = (Working { inner: Arc::clone(&self.0), answer: None }, work());
            spawn(async move { working.end(work.await) });
        }
        last.changed().await.ok()?;
        last.borrow().as_ref().map(|(_, answer)| answer.clone())
    }
}

impl<T> Default for SharedAnswer<T> {
    fn default() -> Self {
        Self(Arc::new(Inner { last: watch::Sender::new(None), is_working: AtomicBool::new(false) }))
    }
}

impl<T> fmt::Debug for SharedAnswer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedAnswer").field("is_working", &self.0.is_working).finish_non_exhaustive()
    }
}

/// The work for an answer. When this is dropped, also by a panic, those who wait go on.
struct Working<T> {
    inner: Arc<Inner<T>>,
    answer: Option<T>,
}

impl<T> Working<T> {
    fn end(mut self, answer: T) {
        self.answer = Some(answer);
    }
}

impl<T> Drop for Working<T> {
    fn drop(&mut self) {
        // Before those who wait are told: who comes in between begins new work.
        self.inner.is_working.store(false, Ordering::Release);
        self.inner.last.send_replace(self.answer.take().map(|answer| (Instant::now(), answer)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(1);

    fn is_fresh<T>(age: Duration, _: &T) -> bool {
        age < PERIOD
    }

    #[tokio::test(start_paused = true)]
    async fn one_works_for_all_who_ask_and_again_when_the_answer_is_old() {
        let (shared, works) = (SharedAnswer::default(), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let works = Arc::clone(&works);
            let work = || async move {
                sleep(Duration::from_millis(10)).await;
                works.fetch_add(1, Ordering::Relaxed) + 1
            };
            shared.get(is_fresh, work)
        };
        assert!(join_all((0..100).map(|_| ask())).await.into_iter().all(|answer| answer == Some(1)));
        sleep(PERIOD / 2).await;
        assert_eq!(ask().await, Some(1));
        sleep(PERIOD).await;
        assert!(join_all((0..100).map(|_| ask())).await.into_iter().all(|answer| answer == Some(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_where_the_one_who_asked_first_goes_away() {
        let shared = SharedAnswer::default();
        let work = || async {
            sleep(Duration::from_millis(10)).await;
            7
        };
        let (first, second) = (Box::pin(shared.get(is_fresh, work)), shared.get(is_fresh, || async { 8 }));
        let wait = async {
            tokio::select! {
                biased;
                _ = first => None,
                () = sleep(Duration::from_millis(1)) => Some(()),
            }
        };
        wait.await.expect("it is not there yet");
        assert_eq!(second.await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_gives_no_answer_and_is_begun_again() {
        let shared = SharedAnswer::<usize>::default();
        let panic = || async { panic!("as it is to") };
        assert_eq!(join_all((0..3).map(|_| shared.get(is_fresh, panic))).await, [None; 3]);
        assert_eq!(shared.get(is_fresh, || async { 1 }).await, Some(1));
    }
}
