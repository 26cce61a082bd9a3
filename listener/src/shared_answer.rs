//! An answer that is computed once for all concurrent callers.

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

/// The last answer to a frequent and expensive question. A task of its own computes the next one, so no caller waits for the task
/// of another caller, which may have to wait for [its turn](crate::PeerTurns).
pub struct SharedAnswer<T>(Arc<Inner<T>>);

struct Inner<T> {
    /// The last answer with its time, or `None` if there is none yet or if its computation panicked.
    last: watch::Sender<Option<(Instant, T)>>,
    is_working: AtomicBool,
}

impl<T: Clone + Send + Sync + 'static> SharedAnswer<T> {
    /// Returns the last answer if it `is_fresh` at its age, otherwise a new one, which `work` computes. Callers that arrive during
    /// the computation wait for the same answer. Returns `None` if the computation panicked.
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
            let (guard, work) = (ComputationGuard { inner: Arc::clone(&self.0), answer: None }, work());
            spawn(async move { guard.finish(work.await) });
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

/// The guard of a computation. Its drop, also by a panic, wakes the waiting callers.
struct ComputationGuard<T> {
    inner: Arc<Inner<T>>,
    answer: Option<T>,
}

impl<T> ComputationGuard<T> {
    fn finish(mut self, answer: T) {
        self.answer = Some(answer);
    }
}

impl<T> Drop for ComputationGuard<T> {
    fn drop(&mut self) {
        // Before waiting callers are woken: a caller that arrives in between begins a new computation.
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
    async fn concurrent_callers_share_a_computation_and_an_old_answer_is_computed_again() {
        let (shared, works) = (SharedAnswer::default(), Arc::new(AtomicUsize::new(0)));
        let get = || {
            let works = Arc::clone(&works);
            let work = || async move {
                sleep(Duration::from_millis(10)).await;
                works.fetch_add(1, Ordering::Relaxed) + 1
            };
            shared.get(is_fresh, work)
        };
        assert!(join_all((0..100).map(|_| get())).await.into_iter().all(|answer| answer == Some(1)));
        sleep(PERIOD / 2).await;
        assert_eq!(get().await, Some(1));
        sleep(PERIOD).await;
        assert!(join_all((0..100).map(|_| get())).await.into_iter().all(|answer| answer == Some(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_computation_continues_when_its_first_caller_is_dropped() {
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
        wait.await.expect("the answer is not there yet");
        assert_eq!(second.await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_computation_that_panics_gives_no_answer_and_is_started_again() {
        let shared = SharedAnswer::<usize>::default();
        let panic = || async { panic!("as it is to") };
        assert_eq!(join_all((0..3).map(|_| shared.get(is_fresh, panic))).await, [None; 3]);
        assert_eq!(shared.get(is_fresh, || async { 1 }).await, Some(1));
    }
}
