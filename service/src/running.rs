//! Running listeners: a future that resolves when they have stopped, and the handle that stops them.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use actix_web::dev::{Server, ServerHandle};
use tokio::{sync::watch, task::JoinSet, time::sleep};

/// The running listeners of a process, with their background tasks. They run while this future is awaited, on a runtime
/// of tokio. They do not handle signals: the process stops them through the handle.
#[must_use = "they run while it is awaited"]
pub struct RunningListeners {
    /// The HTTP listener; `None` once it has ended.
    pub(crate) http: Option<Server>,
    /// The listeners on worker threads.
    pub(crate) on_threads: JoinSet<()>,
    /// The background tasks, which end with the listeners.
    pub(crate) background: JoinSet<Infallible>,
    pub(crate) http_handle: ServerHandle,
    /// Becomes true when the listeners on worker threads are to stop.
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) is_draining: Arc<AtomicBool>,
}

impl fmt::Debug for RunningListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunningListeners")
    }
}

impl RunningListeners {
    /// Returns a handle that stops the listeners.
    #[must_use]
    pub fn handle(&self) -> Handle {
        let (http, stop, is_draining) = (self.http_handle.clone(), self.stop.clone(), Arc::clone(&self.is_draining));
        Handle { http, stop, is_draining }
    }
}

impl Future for RunningListeners {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        while let Poll::Ready(Some(Err(error))) = self.background.poll_join_next(context) {
            tracing::error!(%error, "what follows files, or looks at how well the server is, has ended");
        }
        if let Some(http) = &mut self.http
            && let Poll::Ready(ended) = Pin::new(http).poll(context)
        {
            self.http = None;
            ended?;
        }
        while let Poll::Ready(Some(ended)) = self.on_threads.poll_join_next(context) {
            ended.map_err(io::Error::other)?;
        }
        if self.http.is_none() && self.on_threads.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// A handle that stops the listeners.
#[derive(Clone, Debug)]
pub struct Handle {
    http: ServerHandle,
    stop: watch::Sender<bool>,
    is_draining: Arc<AtomicBool>,
}

impl Handle {
    /// Stops the listeners. From now on the server reports that it is not ready. For `delay` it goes on as before, so that load
    /// balancers notice and send requests elsewhere. Then it takes no more connections, and ends when the open requests have.
    pub async fn drain(&self, delay: Duration) {
        self.is_draining.store(true, Ordering::Relaxed);
        sleep(delay).await;
        self.stop.send_replace(true);
        self.http.stop(true).await;
    }
}
