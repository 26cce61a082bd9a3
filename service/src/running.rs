//! Doors that are open, until they have stopped.

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

/// The doors of a process, with what is done beside answering. They run while this is awaited, on a runtime of tokio, and
/// leave signals to the process: stop them through the handle.
#[must_use = "they run while it is awaited"]
pub struct Running {
    /// HTTP; it ends with the process's doors. `None`: it has.
    pub(crate) http: Option<Server>,
    /// The doors on lanes.
    pub(crate) lanes: JoinSet<()>,
    /// They end with the doors.
    pub(crate) beside: JoinSet<Infallible>,
    pub(crate) http_handle: ServerHandle,
    /// True tells the doors on lanes to stop.
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) is_leaving: Arc<AtomicBool>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

impl Running {
    /// To stop them.
    #[must_use]
    pub fn handle(&self) -> Handle {
        let (http, stop, is_leaving) = (self.http_handle.clone(), self.stop.clone(), Arc::clone(&self.is_leaving));
        Handle { http, stop, is_leaving }
    }
}

impl Future for Running {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        while let Poll::Ready(Some(Err(error))) = self.beside.poll_join_next(context) {
            tracing::error!(%error, "what follows files, or looks at how well the server is, has ended");
        }
        if let Some(http) = &mut self.http
            && let Poll::Ready(ended) = Pin::new(http).poll(context)
        {
            self.http = None;
            ended?;
        }
        while let Poll::Ready(Some(ended)) = self.lanes.poll_join_next(context) {
            ended.map_err(io::Error::other)?;
        }
        if self.http.is_none() && self.lanes.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// Stops the doors.
#[derive(Clone)]
pub struct Handle {
    http: ServerHandle,
    stop: watch::Sender<bool>,
    is_leaving: Arc<AtomicBool>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl Handle {
    /// From now on the server says that it is not ready; for `delay` it goes on as before, so that whoever sends requests here
    /// sees that and sends them elsewhere. Then it takes no more connections, and ends when the open requests have.
    pub async fn drain(&self, delay: Duration) {
        self.is_leaving.store(true, Ordering::Relaxed);
        sleep(delay).await;
        self.stop.send_replace(true);
        self.http.stop(true).await;
    }
}
