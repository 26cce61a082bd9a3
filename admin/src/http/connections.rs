//! Connections that are open, and which of them carry streams: a stop waits for the others, not for readers who have stopped
//! reading.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

/// Counts connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<watch::Sender<Open>>);

/// How many are open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Open {
    all: usize,
    /// Of those.
    streams: usize,
}

/// One that is open, until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    connections: Connections,
    stream: OnceLock<()>,
}

impl Connections {
    pub(crate) fn begin(&self) -> Connection {
        self.0.send_modify(|open| open.all += 1);
        Connection { connections: self.clone(), stream: OnceLock::new() }
    }

    /// Changes with each that begins or ends.
    pub(crate) fn watch(&self) -> watch::Receiver<Open> {
        self.0.subscribe()
    }
}

impl Open {
    pub(crate) fn is_none(&self) -> bool {
        self.all == 0
    }

    /// Are there none but streams?
    pub(crate) fn is_streams(&self) -> bool {
        self.all == self.streams
    }
}

impl Connection {
    /// From now on it carries a stream.
    pub(crate) fn is_stream(&self) {
        if self.stream.set(()).is_ok() {
            self.connections.0.send_modify(|open| open.streams += 1);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.0.send_modify(|open| {
            open.all -= 1;
            open.streams -= usize::from(self.stream.get().is_some());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_from_other_connections() {
        let connections = Connections::default();
        let open = || *connections.watch().borrow();
        assert!(open().is_none());
        let (stream, other) = (connections.begin(), connections.begin());
        stream.is_stream();
        stream.is_stream();
        assert!(!open().is_none() && !open().is_streams());
        drop(other);
        assert!(open().is_streams() && !open().is_none());
        drop(stream);
        assert!(open().is_none());
    }
}
