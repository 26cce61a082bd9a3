//! What is written beside the answers, such as who was refused and who was here: one after the other, whether or not somebody
//! still waits for his answer, and all of it before the server ends.

use std::{
    fmt::{self, Debug},
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
};

use tokio::sync::mpsc::{Receiver, Sender, channel};

/// So much waits at most.
const WAITING_MAX: usize = 10_000;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes what is to be written.
#[derive(Debug)]
pub(crate) struct Beside(Mutex<Option<Sender<Work>>>);

/// Writes it.
pub(crate) struct Clerk(Receiver<Work>);

impl Debug for Clerk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clerk")
    }
}

impl Beside {
    pub(crate) fn new() -> (Self, Clerk) {
        Self::with_waiting(WAITING_MAX)
    }

    fn with_waiting(count_max: usize) -> (Self, Clerk) {
        let (sender, receiver) = channel(count_max);
        (Self(Mutex::new(Some(sender))), Clerk(receiver))
    }

    /// Has it written when it is its turn.
    pub(crate) fn write(&self, work: impl Future<Output = ()> + Send + 'static) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.as_ref().is_none_or(|sender| sender.try_send(Box::pin(work)).is_err()) {
            tracing::warn!("who was here or was refused is not written: too much waits for the database");
        }
    }

    /// Takes no more.
    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Clerk {
    /// Works until no more can come.
    pub(crate) async fn work(mut self) {
        while let Some(work) = self.0.recv().await {
            work.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_flood_of_lines_changes_no_order_and_is_left_out() {
        let (beside, mut clerk) = Beside::with_waiting(3);
        let written: Arc<Mutex<Vec<&str>>> = Arc::default();
        let write = |line| {
            let written = Arc::clone(&written);
            beside.write(async move { written.lock().expect("whole").push(line) });
        };
        write("ana");
        (0..100).for_each(|_| write("mallory"));
        // The database takes the first one.
        clerk.0.recv().await.expect("it waits").await;
        write("ben");
        (0..100).for_each(|_| write("mallory"));
        beside.end();
        write("eve");
        clerk.work().await;
        assert_eq!(*written.lock().expect("whole"), ["ana", "mallory", "mallory", "ben"]);
    }
}
