//! A door that is open, until it has stopped.

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
use tokio::{task::JoinSet, time::sleep};

/// A server, with what it does beside answering. It runs while it is awaited, on a runtime of tokio, and leaves signals to the
/// process: stop it through its handle.
#[must_use = "it runs while it is awaited"]
pub struct Running {
    pub(crate) server: Server,
    /// They end with it.
    pub(crate) beside: JoinSet<Infallible>,
    pub(crate) is_leaving: Arc<AtomicBool>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

impl Running {
    /// To stop it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { server: self.server.handle(), is_leaving: Arc::clone(&self.is_leaving) }
    }
}

impl Future for Running {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        while let Poll::Ready(Some(Err(error))) = self.beside.poll_join_next(context) {
            tracing::error!(%error, "what follows files, or looks at how well the server is, has ended");
        }
        Pin::new(&mut self.server).poll(context)
    }
}

/// Stops a server.
#[derive(Clone)]
pub struct Handle {
    server: ServerHandle,
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
        self.server.stop(true).await;
    }
}
