//! Worker threads that serve the connections of the gRPC and RESP listeners. Each has a runtime of its own, so that
//! nothing that a connection does is shared between threads. One socket accepts connections and hands them to the
//! threads in turn. Unlike a socket for each thread (`SO_REUSEPORT`), that gives all threads equally many, and a second
//! server at the same address fails to bind.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::{Future, pending, poll_fn},
    io,
    net::{self, SocketAddr},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
    time::Duration,
};

use rustls::ServerConfig;
use tidegate_listener::{ConnectionLimiter, ConnectionPermit, PeerTurns, Turns, WriteDeadline, refuse};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    runtime,
    sync::{mpsc, oneshot, watch},
    task::{JoinSet, LocalSet, coop, spawn_local},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{latency::ListenerLatencies, listener_counts::ListenerCounts, timeouts::Timeouts};

/// A connection is idle after this many polls in a row that find it unused.
const IDLE_POLLS: u32 = 12;
/// The pause after an error of `accept`: the system may have no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that cost one unit of the budget that tokio gives a task for a turn. The budget has 128 units, so a turn reads 64 KiB.
/// Tokio itself takes one unit for each read, whatever it brings: turns would be of 1 MiB.
const UNIT_BYTES: usize = 512;

pub(crate) trait ConnectionHandler: Sized + 'static {
    /// Serves a connection to its end. Once `stop` resolves, it answers what came and reads nothing more. A connection that
    /// authenticates says so to `permit`. Further tasks of the connection must run within `turns`, as this one does.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
        self: Rc<Self>,
        stream: S,
        peer: SocketAddr,
        permit: Rc<ConnectionPermit>,
        turns: Rc<PeerTurns>,
        stop: StopSignal,
    );
}

/// A future that resolves when a connection is to end.
pub(crate) type StopSignal = oneshot::Receiver<Infallible>;

/// The worker threads of a listener, before they start.
pub(crate) struct WorkerThreads {
    pub(crate) counts: ListenerCounts,
    pub(crate) tls: Option<ServerConfig>,
    pub(crate) count: usize,
    /// Becomes true when the listener is to stop.
    pub(crate) stop: watch::Receiver<bool>,
    /// The time in which open connections must end then.
    pub(crate) drain: Duration,
    pub(crate) timeouts: Timeouts,
}

/// A connection on its way to a worker thread.
struct AcceptedConnection {
    socket: net::TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
}

impl WorkerThreads {
    /// Starts the threads, each with a handler of its own. `refusal` is sent to a peer whose connection is refused, unless
    /// the listener has TLS. The future that it returns accepts connections, and resolves when the listener has stopped
    /// and all connections have ended.
    pub(crate) fn start<H: ConnectionHandler>(
        self,
        listener: net::TcpListener,
        refusal: &'static [u8],
        handler: impl Fn(&ListenerLatencies) -> H + Clone + Send + 'static,
    ) -> io::Result<impl Future<Output = ()> + Send> {
        let Self { counts: ListenerCounts { latencies, connections }, tls, count, stop, drain, timeouts } = self;
        let name = latencies.kind.name;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let refusal = if tls.is_none() { refusal } else { &[] };
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let (living, mut ended) = mpsc::channel::<Infallible>(1);
        let mut workers = Vec::with_capacity(count);
        for number in 0..count {
            let (worker, accepted) = mpsc::unbounded_channel();
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let (handler, latencies, living) = (handler.clone(), latencies.clone(), living.clone());
            let (tls, stop) = (tls.clone(), stop.clone());
            thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                LocalSet::new().block_on(
                    &runtime,
                    serve_accepted(accepted, &Rc::new(handler(&latencies)), tls.as_ref(), &stop, &timeouts),
                );
                drop(living);
            })?;
            workers.push(worker);
        }
        drop(living);
        Ok(async move {
            accept(&listener, workers, name, (&connections, refusal), stop).await;
            drop(listener);
            if timeout(drain, ended.recv()).await.is_err() {
                tracing::warn!(door = name, "connections that did not end in time are cut off");
            }
        })
    }
}

/// Hands accepted connections to the threads in turn, until it is to stop. Connections above a cap are refused.
async fn accept(
    listener: &TcpListener,
    workers: Vec<mpsc::UnboundedSender<AcceptedConnection>>,
    name: &'static str,
    (connections, refusal): (&Arc<ConnectionLimiter>, &'static [u8]),
    mut stop: watch::Receiver<bool>,
) {
    let accept = async {
        for worker in workers.iter().cycle() {
            let accepted = loop {
                match listener.accept().await.and_then(|(socket, peer)| Ok((socket.into_std()?, peer))) {
                    Ok((socket, peer)) => match connections.admit(peer.ip()) {
                        Ok(permit) => break AcceptedConnection { socket, peer, permit },
                        Err(_) => refuse(socket, refusal),
                    },
                    Err(error) => {
                        tracing::warn!(door = name, %error, "a connection could not be taken");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            };
            if worker.send(accepted).is_err() {
                tracing::error!(door = name, "a thread that serves connections has ended");
            }
        }
    };
    tokio::select! {
        () = accept => {}
        _ = stop.wait_for(|is_stopping| *is_stopping) => {}
    }
}

/// Serves the connections of one worker thread, until no more are accepted and all have ended.
async fn serve_accepted<H: ConnectionHandler>(
    mut connections: mpsc::UnboundedReceiver<AcceptedConnection>,
    handler: &Rc<H>,
    tls: Option<&TlsAcceptor>,
    stop: &watch::Receiver<bool>,
    timeouts: &Timeouts,
) {
    let mut open = JoinSet::new();
    let (timeouts, turns) = (Rc::new(*timeouts), Turns::new());
    loop {
        tokio::select! {
            accepted = connections.recv() => match accepted {
                Some(accepted) => {
                    let turns = turns.peer_turns(accepted.peer.ip().into());
                    let (handler, tls, timeouts) = (Rc::clone(handler), tls.cloned(), Rc::clone(&timeouts));
                    open.spawn_local(serve_connection(accepted, handler, tls, stop.clone(), timeouts, turns))
                }
                None => break,
            },
            Some(_) = open.join_next() => continue,
        };
    }
    while open.join_next().await.is_some() {}
}

/// Serves one connection: its TLS handshake, its handler, and its end, be that by the peer, a stop, or a timeout.
async fn serve_connection<H: ConnectionHandler>(
    AcceptedConnection { socket, peer, permit }: AcceptedConnection,
    handler: Rc<H>,
    tls: Option<TlsAcceptor>,
    mut stop: watch::Receiver<bool>,
    timeouts: Rc<Timeouts>,
    turns: Rc<PeerTurns>,
) {
    let Ok(socket) = socket.set_nodelay(true).and_then(|()| TcpStream::from_std(socket)) else { return };
    let was_used = Rc::new(Cell::new(false));
    let socket = Rc::new(RefCell::new(WriteDeadline::new(socket, timeouts.unread_replies)));
    let tracked = TrackedSocket { socket: Rc::clone(&socket), was_used: Rc::clone(&was_used) };
    let (stop_handler, stop_signal) = oneshot::channel();
    let permit = Rc::new(permit);
    let (serving_permit, handshake) = (Rc::clone(&permit), timeouts.handshake);
    let serving_turns = Rc::clone(&turns);
    let serve = async move {
        match tls {
            None => handler.serve(tracked, peer, serving_permit, serving_turns, stop_signal).await,
            Some(tls) => match timeout(handshake, tls.accept(tracked)).await {
                Ok(Ok(stream)) => handler.serve(stream, peer, serving_permit, serving_turns, stop_signal).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
                Err(_) => tracing::debug!(%peer, "no TLS in time"),
            },
        }
    };
    // Its own task, so that bytes on the socket wake that alone and not the timers beside it.
    let mut serving = spawn_local(turns.run(serve));
    let overdue = async {
        tokio::select! {
            () = idle(timeouts.idle, || was_used.take()) => {}
            () = unauthenticated(&permit, timeouts.authentication) => permit.refuse_overdue(),
        }
    };
    tokio::select! {
        _ = &mut serving => {}
        _ = stop.wait_for(|is_stopping| *is_stopping) => {
            drop(stop_handler);
            // As long as bytes move: the stop of the listener is bounded as a whole.
            tokio::select! {
                _ = &mut serving => discard_input(&socket, &timeouts).await,
                () = idle(timeouts.idle, || was_used.take()) => {}
            }
        }
        () = overdue => {
            drop(stop_handler);
            // An error: the handler took too long, or it panicked, which was logged.
            let _ = timeout(timeouts.linger, &mut serving).await;
        }
    }
    serving.abort();
}

/// Reads and drops what a peer still sends, until it closes, sends nothing for the time `quiet`, or has sent for the
/// time `linger`. The system resets a socket that is closed with unread bytes, and then the peer may lose what was
/// written to it last.
async fn discard_input<S: AsyncRead + AsyncWrite + Unpin>(socket: &RefCell<S>, timeouts: &Timeouts) {
    let discard = async {
        let _ = poll_fn(|context| Pin::new(&mut *socket.borrow_mut()).poll_shutdown(context)).await;
        let mut buffer = vec![0; 4 << 10];
        loop {
            let read = poll_fn(|context| {
                let mut part = ReadBuf::new(&mut buffer);
                ready!(Pin::new(&mut *socket.borrow_mut()).poll_read(context, &mut part))?;
                Poll::Ready(io::Result::Ok(part.filled().len()))
            });
            let Ok(Ok(1..)) = timeout(timeouts.quiet, read).await else { break };
        }
    };
    let _ = timeout(timeouts.linger, discard).await;
}

/// Resolves when a connection has not been used for this period. `was_used` returns whether it was used since the last call.
pub(crate) async fn idle(period: Duration, was_used: impl Fn() -> bool) {
    let mut polls = 0;
    while polls < IDLE_POLLS {
        sleep(period / IDLE_POLLS).await;
        polls = if was_used() { 0 } else { polls + 1 };
    }
}

/// Resolves when a connection that must authenticate has not done so within this period.
async fn unauthenticated(permit: &ConnectionPermit, period: Duration) {
    if !permit.is_authenticated() {
        sleep(period).await;
    }
    if permit.is_authenticated() {
        pending::<()>().await;
    }
}

/// A socket that notes when bytes are read or written. Its reads use tokio's budget of a turn by the byte, so that a
/// connection that always has more to read leaves the other connections of its thread their turns.
struct TrackedSocket<S> {
    /// The socket, shared with the function that discards the peer's input at the end.
    socket: Rc<RefCell<S>>,
    was_used: Rc<Cell<bool>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedSocket<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut *self.socket.borrow_mut()).poll_read(context, buffer))?;
        self.was_used.set(true);
        for _ in 0..(buffer.filled().len() - before) / UNIT_BYTES {
            // Pending means that the budget is spent: the next read waits for the next turn.
            let Poll::Ready(unit) = coop::poll_proceed(context) else { break };
            unit.made_progress();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedSocket<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut *self.socket.borrow_mut()).poll_write(context, bytes))?;
        self.was_used.set(true);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut *self.socket.borrow_mut()).poll_write_vectored(context, bytes))?;
        self.was_used.set(true);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, mem};

    use tokio::{
        io::{AsyncWriteExt, duplex},
        time::Instant,
    };

    use super::*;

    #[tokio::test]
    async fn a_connection_that_always_has_more_to_read_reads_64_kib_a_turn() {
        const SENT_BYTES: usize = 1 << 20;
        let (mut sender, socket) = duplex(SENT_BYTES);
        sender.write_all(&vec![0; SENT_BYTES]).await.expect("there is room");
        drop(sender);
        let socket = Rc::new(RefCell::new(socket));
        let mut socket = TrackedSocket { socket, was_used: Rc::default() };
        let (mut turns, mut turn, mut room) = (Vec::new(), 0, [0_u8; 8 << 10]);
        poll_fn(|context| {
            loop {
                let mut part = ReadBuf::new(&mut room);
                match Pin::new(&mut socket).poll_read(context, &mut part) {
                    Poll::Ready(read) => {
                        read.expect("it does not fail");
                        turn += part.filled().len();
                        if part.filled().is_empty() {
                            return Poll::Ready(());
                        }
                    }
                    Poll::Pending => {
                        turns.push(mem::take(&mut turn));
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
        assert_eq!(turns.iter().sum::<usize>() + turn, SENT_BYTES);
        // Not much less, so that a long message is read in few turns.
        assert!(turns.iter().all(|bytes| (48 << 10..=64 << 10).contains(bytes)), "{turns:?}");
    }

    /// Returns for how long the input of a peer is discarded that sends a byte every 100 ms for this time, and then
    /// neither sends nor closes.
    async fn discarded_for(sending: Duration) -> Duration {
        let (mut peer, socket) = duplex(1);
        let (socket, timeouts) = (RefCell::new(socket), Timeouts::default());
        let began = Instant::now();
        let send = async {
            while began.elapsed() < sending && peer.write_all(b"x").await.is_ok() {
                sleep(Duration::from_millis(100)).await;
            }
            pending::<()>().await;
        };
        tokio::select! {
            () = discard_input(&socket, &timeouts) => began.elapsed(),
            () = send => unreachable!("it does not end"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn input_is_discarded_until_the_peer_is_quiet_closes_or_has_sent_for_too_long() {
        let Timeouts { quiet, linger, .. } = Timeouts::default();
        assert_eq!(discarded_for(Duration::ZERO).await, quiet);
        let discarded = discarded_for(Duration::from_secs(2)).await;
        assert!(discarded >= Duration::from_secs(2) && discarded <= Duration::from_secs(2) + quiet, "{discarded:?}");
        assert_eq!(discarded_for(Duration::from_mins(1)).await, linger);
        let (peer, socket) = duplex(1);
        drop(peer);
        let began = Instant::now();
        discard_input(&RefCell::new(socket), &Timeouts::default()).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
