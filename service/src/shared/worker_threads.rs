//! Lanes: threads that serve the connections of a door, each by a runtime of its own, so that what one connection does touches
//! no other thread. One listener hands them out in turn: unlike listeners of each thread (`SO_REUSEPORT`), all lanes have
//! as many, and a second server at the same address is told that it is taken.

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

use crate::shared::timeouts::Periods;

/// A connection is idle after this many looks in a row that find it unused.
const IDLE_LOOKS: u32 = 12;
/// After a connection that could not be taken: the system has no more descriptors, say.
const BREATH: Duration = Duration::from_millis(100);
/// Bytes that cost one unit of the budget that tokio gives a task for a turn. The budget has 128 units, so a turn reads 64 KiB.
/// Tokio itself takes one unit for each read, whatever it brings: turns would be of 1 MiB.
const UNIT_BYTES: usize = 512;

/// What a lane does with its connections.
pub(crate) trait Door: Sized + 'static {
    /// Serves a connection to its end; from when `leave` is told, what came is still answered, and nothing more is read.
    /// Where connections authenticate, `permit` is told so. What runs in tasks of its own runs in `turns`, as this does.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
        self: Rc<Self>,
        stream: S,
        peer: SocketAddr,
        permit: Rc<ConnectionPermit>,
        turns: Rc<PeerTurns>,
        leave: Leave,
    );
}

/// Resolves when a connection is to end.
pub(crate) type Leave = oneshot::Receiver<Infallible>;

/// Where a door's connections come in.
pub(crate) struct Lanes {
    pub(crate) listener: net::TcpListener,
    pub(crate) tls: Option<ServerConfig>,
    /// Counts the connections.
    pub(crate) connections: Arc<ConnectionLimiter>,
    /// What a peer is told whose connection is refused, unless it speaks TLS.
    pub(crate) refusal: &'static [u8],
    /// Of the threads.
    pub(crate) name: &'static str,
    /// How many of them.
    pub(crate) count: usize,
    /// True: stop.
    pub(crate) stop: watch::Receiver<bool>,
    /// How long open connections may take then.
    pub(crate) drain: Duration,
    pub(crate) periods: Periods,
}

/// A connection on its way to a lane.
struct Accepted {
    socket: net::TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
}

impl Lanes {
    /// Starts the lanes, each with a door of its own; what it returns takes connections until all is over.
    pub(crate) fn open<D: Door>(
        self,
        door: impl Fn() -> D + Clone + Send + 'static,
    ) -> io::Result<impl Future<Output = ()> + Send> {
        let Self { listener, tls, connections, refusal, name, count, stop, drain, periods } = self;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let refusal = if tls.is_none() { refusal } else { &[] };
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let (living, mut ended) = mpsc::channel::<Infallible>(1);
        let mut lanes = Vec::with_capacity(count);
        for number in 0..count {
            let (lane, accepted) = mpsc::unbounded_channel();
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let (door, tls, stop, living) = (door.clone(), tls.clone(), stop.clone(), living.clone());
            thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                LocalSet::new().block_on(&runtime, run(accepted, &Rc::new(door()), tls.as_ref(), &stop, &periods));
                drop(living);
            })?;
            lanes.push(lane);
        }
        drop(living);
        Ok(async move {
            accept(&listener, lanes, name, (&connections, refusal), stop).await;
            drop(listener);
            if timeout(drain, ended.recv()).await.is_err() {
                tracing::warn!(door = name, "connections that did not end in time are cut off");
            }
        })
    }
}

/// Hands connections out that are not refused, until it is to stop.
async fn accept(
    listener: &TcpListener,
    lanes: Vec<mpsc::UnboundedSender<Accepted>>,
    name: &'static str,
    (connections, refusal): (&Arc<ConnectionLimiter>, &'static [u8]),
    mut stop: watch::Receiver<bool>,
) {
    let accept = async {
        for lane in lanes.iter().cycle() {
            let accepted = loop {
                match listener.accept().await.and_then(|(socket, peer)| Ok((socket.into_std()?, peer))) {
                    Ok((socket, peer)) => match connections.admit(peer.ip()) {
                        Ok(permit) => break Accepted { socket, peer, permit },
                        Err(_) => refuse(socket, refusal),
                    },
                    Err(error) => {
                        tracing::warn!(door = name, %error, "a connection could not be taken");
                        sleep(BREATH).await;
                    }
                }
            };
            if lane.send(accepted).is_err() {
                tracing::error!(door = name, "a thread that serves connections has ended");
            }
        }
    };
    tokio::select! {
        () = accept => {}
        _ = stop.wait_for(|is_stopping| *is_stopping) => {}
    }
}

/// A lane: serves what it is handed, until there is no more.
async fn run<D: Door>(
    mut connections: mpsc::UnboundedReceiver<Accepted>,
    door: &Rc<D>,
    tls: Option<&TlsAcceptor>,
    stop: &watch::Receiver<bool>,
    periods: &Periods,
) {
    let mut open = JoinSet::new();
    let (periods, turns) = (Rc::new(*periods), Turns::new());
    loop {
        tokio::select! {
            accepted = connections.recv() => match accepted {
                Some(accepted) => {
                    let turns = turns.peer_turns(accepted.peer.ip().into());
                    let (door, tls, periods) = (Rc::clone(door), tls.cloned(), Rc::clone(&periods));
                    open.spawn_local(connection(accepted, door, tls, stop.clone(), periods, turns))
                }
                None => break,
            },
            Some(_) = open.join_next() => continue,
        };
    }
    while open.join_next().await.is_some() {}
}

async fn connection<D: Door>(
    Accepted { socket, peer, permit }: Accepted,
    door: Rc<D>,
    tls: Option<TlsAcceptor>,
    mut stop: watch::Receiver<bool>,
    periods: Rc<Periods>,
    turns: Rc<PeerTurns>,
) {
    let Ok(socket) = socket.set_nodelay(true).and_then(|()| TcpStream::from_std(socket)) else { return };
    let moved = Rc::new(Cell::new(false));
    let socket = Rc::new(RefCell::new(WriteDeadline::new(socket, periods.unread_replies)));
    let watched = Watched { socket: Rc::clone(&socket), moved: Rc::clone(&moved) };
    let (tell, leave) = oneshot::channel();
    let permit = Rc::new(permit);
    let (serving_permit, handshake) = (Rc::clone(&permit), periods.handshake);
    let serving_turns = Rc::clone(&turns);
    let serve = async move {
        match tls {
            None => door.serve(watched, peer, serving_permit, serving_turns, leave).await,
            Some(tls) => match timeout(handshake, tls.accept(watched)).await {
                Ok(Ok(stream)) => door.serve(stream, peer, serving_permit, serving_turns, leave).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
                Err(_) => tracing::debug!(%peer, "no TLS in time"),
            },
        }
    };
    // A task of its own: what is sent wakes it alone, and not the timers beside it.
    let mut serving = spawn_local(turns.run(serve));
    let overdue = async {
        tokio::select! {
            () = idle(periods.idle, || moved.take()) => {}
            () = unauthenticated(&permit, periods.authentication) => permit.refuse_overdue(),
        }
    };
    tokio::select! {
        _ = &mut serving => {}
        _ = stop.wait_for(|is_stopping| *is_stopping) => {
            drop(tell);
            // As long as something moves: the door's stop is bounded as a whole.
            tokio::select! {
                _ = &mut serving => hear_out(&socket, &periods).await,
                () = idle(periods.idle, || moved.take()) => {}
            }
        }
        () = overdue => {
            drop(tell);
            // An error: it was cut off, or it panicked, which was logged.
            let _ = timeout(periods.linger, &mut serving).await;
        }
    }
    serving.abort();
}

/// Reads and drops what a peer still sends, until it closes, sends nothing for the period `quiet`, or has sent for the period
/// `linger`: where a socket is closed with something unread, it is reset, and the peer may lose what was written to it last.
async fn hear_out<S: AsyncRead + AsyncWrite + Unpin>(socket: &RefCell<S>, periods: &Periods) {
    let heard_out = async {
        let _ = poll_fn(|context| Pin::new(&mut *socket.borrow_mut()).poll_shutdown(context)).await;
        let mut room = vec![0; 4 << 10];
        loop {
            let read = poll_fn(|context| {
                let mut part = ReadBuf::new(&mut room);
                ready!(Pin::new(&mut *socket.borrow_mut()).poll_read(context, &mut part))?;
                Poll::Ready(io::Result::Ok(part.filled().len()))
            });
            let Ok(Ok(1..)) = timeout(periods.quiet, read).await else { break };
        }
    };
    let _ = timeout(periods.linger, heard_out).await;
}

/// Waits until a connection has not been used for this period; `was_used` returns whether it was since the last look.
pub(crate) async fn idle(period: Duration, was_used: impl Fn() -> bool) {
    let mut looks = 0;
    while looks < IDLE_LOOKS {
        sleep(period / IDLE_LOOKS).await;
        looks = if was_used() { 0 } else { looks + 1 };
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

/// A socket that notes when something is sent. Its reads are paid for by the byte, so that a connection that always has more to
/// read leaves the others of its lane their turns.
struct Watched<S> {
    /// Shared with what hears the peer out at the end.
    socket: Rc<RefCell<S>>,
    moved: Rc<Cell<bool>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut *self.socket.borrow_mut()).poll_read(context, buffer))?;
        self.moved.set(true);
        for _ in 0..(buffer.filled().len() - before) / UNIT_BYTES {
            // Pending: the budget is spent, and the next read waits for the next turn.
            let Poll::Ready(unit) = coop::poll_proceed(context) else { break };
            unit.made_progress();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut *self.socket.borrow_mut()).poll_write(context, bytes))?;
        self.moved.set(true);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut *self.socket.borrow_mut()).poll_write_vectored(context, bytes))?;
        self.moved.set(true);
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
        let mut socket = Watched { socket, moved: Rc::default() };
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
        // Not much less, either: a long message is to be read in few turns.
        assert!(turns.iter().all(|bytes| (48 << 10..=64 << 10).contains(bytes)), "{turns:?}");
    }

    /// Returns for how long a peer is heard out that sends a byte every 100 ms for this long, and then neither sends nor closes.
    async fn heard_for(sending: Duration) -> Duration {
        let (mut peer, socket) = duplex(1);
        let (socket, periods) = (RefCell::new(socket), Periods::default());
        let began = Instant::now();
        let send = async {
            while began.elapsed() < sending && peer.write_all(b"x").await.is_ok() {
                sleep(Duration::from_millis(100)).await;
            }
            pending::<()>().await;
        };
        tokio::select! {
            () = hear_out(&socket, &periods) => began.elapsed(),
            () = send => unreachable!("it does not end"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_is_heard_out_until_it_is_quiet_closes_or_has_had_its_time() {
        let Periods { quiet, linger, .. } = Periods::default();
        assert_eq!(heard_for(Duration::ZERO).await, quiet);
        let heard = heard_for(Duration::from_secs(2)).await;
        assert!(heard >= Duration::from_secs(2) && heard <= Duration::from_secs(2) + quiet, "{heard:?}");
        assert_eq!(heard_for(Duration::from_mins(1)).await, linger);
        let (peer, socket) = duplex(1);
        drop(peer);
        let began = Instant::now();
        hear_out(&RefCell::new(socket), &Periods::default()).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
