//! Counts the connections of a listener by peer, and rejects those beyond a cap.

use std::{
    cell::Cell,
    fmt,
    io::{Read, Write},
    mem,
    net::{IpAddr, Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
};
use tokio::time::Instant;

use crate::{owner_counts::OwnerCounts, peer::PeerNetwork};

/// The most connections of a listener for checks.
pub const CONNECTIONS_MAX: usize = 10_000;
/// The default cap of connections of one peer: an eighth of those of a listener for checks. One proxy before the listener, or one
/// host with a pool for each of its workers, needs fewer.
pub const DEFAULT_PEER_CONNECTIONS: usize = 1_250;
/// The divisor of a peer's cap that gives the cap of its unauthenticated connections.
const UNAUTHENTICATED_DIVISOR: usize = 5;
/// The shortest time between two log lines about rejected connections of a listener.
const LOG_PERIOD: Duration = Duration::from_mins(1);

/// The caps of a listener's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionCaps {
    /// The cap of all connections.
    pub listener: usize,
    /// The cap of the connections of one peer: an address, or the first 64 bits of an IPv6 address.
    pub peer: usize,
    /// The cap of the unauthenticated connections of one peer, at a listener whose connections authenticate.
    pub unauthenticated: usize,
}

impl ConnectionCaps {
    /// Returns the caps of a listener with `listener` connections, of which one peer may have `peer`, a fifth of them
    /// unauthenticated.
    #[must_use]
    pub fn new(listener: usize, peer: usize) -> Self {
        Self { listener, peer, unauthenticated: (peer / UNAUTHENTICATED_DIVISOR).max(1) }
    }
}

impl Default for ConnectionCaps {
    fn default() -> Self {
        Self::new(CONNECTIONS_MAX, DEFAULT_PEER_CONNECTIONS)
    }
}

/// The reason why a connection was rejected or closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionRefusal {
    /// The listener has reached its cap.
    Listener,
    /// The peer has reached its cap.
    Peer,
    /// The peer has reached its cap of unauthenticated connections.
    Unauthenticated,
    /// The connection did not authenticate in time.
    Overdue,
}

impl ConnectionRefusal {
    const ALL: [Self; 4] = [Self::Listener, Self::Peer, Self::Unauthenticated, Self::Overdue];

    /// Returns the name in metrics and in the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Peer => "peer",
            Self::Unauthenticated => "unauthenticated",
            Self::Overdue => "overdue",
        }
    }
}

/// The counts of a listener: plain data that gets the current time as an argument.
#[derive(Debug, Default)]
struct ConnectionCounts {
    open: OwnerCounts<PeerNetwork>,
    /// The open connections that have not authenticated.
    unauthenticated: OwnerCounts<PeerNetwork>,
    /// The number of refusals for each reason, in the order of [`ConnectionRefusal::ALL`].
    refused: [u64; ConnectionRefusal::ALL.len()],
    /// The time of the last log line.
    logged: Option<Instant>,
    /// The number of refusals since then.
    unlogged: u64,
}

impl ConnectionCounts {
    fn admit(
        &mut self,
        peer: PeerNetwork,
        caps: &ConnectionCaps,
        is_authenticated: bool,
    ) -> Result<(), ConnectionRefusal> {
        if self.open.of(&peer) >= caps.peer {
            return Err(ConnectionRefusal::Peer);
        }
        if !is_authenticated && self.unauthenticated.of(&peer) >= caps.unauthenticated {
            return Err(ConnectionRefusal::Unauthenticated);
        }
        if self.open.sum() >= caps.listener {
            return Err(ConnectionRefusal::Listener);
        }
        self.open.add(peer, 1);
        self.unauthenticated.add(peer, usize::from(!is_authenticated));
        Ok(())
    }

    fn close(&mut self, peer: PeerNetwork, is_authenticated: bool) {
        self.open.subtract(&peer, 1);
        self.unauthenticated.subtract(&peer, usize::from(!is_authenticated));
    }

    /// Counts a refusal. Returns the number of refusals since the last log line, if it is time for another line.
    fn refuse(&mut self, refusal: ConnectionRefusal, now: Instant) -> Option<u64> {
        self.refused[refusal as usize] += 1;
        self.unlogged += 1;
        if self.logged.is_some_and(|logged| now < logged + LOG_PERIOD) {
            return None;
        }
        self.logged = Some(now);
        Some(mem::take(&mut self.unlogged))
    }
}

/// Counts the connections of a listener, and rejects those beyond its caps.
#[derive(Debug)]
pub struct ConnectionLimiter {
    listener: &'static str,
    caps: ConnectionCaps,
    /// Whether connections authenticate.
    has_authentication: bool,
    counts: Mutex<ConnectionCounts>,
}

impl ConnectionLimiter {
    /// Returns the limiter of a listener, which has this name in metrics and in the log.
    #[must_use]
    pub fn new(listener: &'static str, caps: ConnectionCaps, has_authentication: bool) -> Arc<Self> {
        Arc::new(Self { listener, caps, has_authentication, counts: Mutex::default() })
    }

    /// Returns the caps.
    #[must_use]
    pub fn caps(&self) -> ConnectionCaps {
        self.caps
    }

    /// Counts a connection from this address until the permit is dropped.
    ///
    /// # Errors
    ///
    /// A cap is reached. The refusal is counted and logged.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPermit, ConnectionRefusal> {
        let (peer, is_authenticated) = (PeerNetwork::from(address), !self.has_authentication);
        // The lock ends with this statement: counting a refusal takes it again.
        let admitted = self.counts().admit(peer, &self.caps, is_authenticated);
        admitted.inspect_err(|&refusal| self.refuse(peer, refusal))?;
        Ok(ConnectionPermit { limiter: Arc::clone(self), peer, is_authenticated: Cell::new(is_authenticated) })
    }

    fn refuse(&self, peer: PeerNetwork, refusal: ConnectionRefusal) {
        let mut counts = self.counts();
        let refused = counts.refuse(refusal, Instant::now());
        let (of_peer, open) = (counts.open.of(&peer), counts.open.sum());
        drop(counts);
        if let Some(refused) = refused {
            let (listener, reason) = (self.listener, refusal.name());
            tracing::warn!(listener, %peer, reason, of_peer, open, refused, "connections are refused");
        }
    }

    fn open(&self) -> usize {
        self.counts().open.sum()
    }

    /// Returns the number of refusals for each reason, with its name.
    fn refused(&self) -> [(&'static str, u64); ConnectionRefusal::ALL.len()] {
        let refused = self.counts().refused;
        ConnectionRefusal::ALL.map(|refusal| (refusal.name(), refused[refusal as usize]))
    }

    fn counts(&self) -> MutexGuard<'_, ConnectionCounts> {
        // No code panics while it holds the lock.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permit of an open connection, which counts until the permit is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    peer: PeerNetwork,
    is_authenticated: Cell<bool>,
}

impl ConnectionPermit {
    /// Counts the connection as authenticated from now on.
    pub fn authenticate(&self) {
        if !self.is_authenticated.replace(true) {
            self.limiter.counts().unauthenticated.subtract(&self.peer, 1);
        }
    }

    /// Returns whether the connection has authenticated, or does not need to.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated.get()
    }

    /// Counts and logs that the connection is closed because it did not authenticate in time.
    pub fn refuse_overdue(&self) {
        self.limiter.refuse(self.peer, ConnectionRefusal::Overdue);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limiter.counts().close(self.peer, self.is_authenticated());
    }
}

/// Closes a rejected connection after writing `reply`, as far as the system accepts it at once. The socket must be non-blocking.
pub fn refuse(mut socket: TcpStream, reply: &[u8]) {
    // Ignores errors: the peer has closed the connection. Reads, because unread bytes would make the system discard the reply.
    drop(socket.write_all(reply));
    drop(socket.read(&mut [0; 1_024]));
    drop(socket.shutdown(Shutdown::Write));
}

/// A collector of the connection metrics of these listeners.
#[derive(Debug)]
pub struct ConnectionCollector(pub Vec<Arc<ConnectionLimiter>>);

impl Collector for ConnectionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Connections that are open, by listener";
        let mut open = encoder.encode_descriptor("open_connections", help, None, MetricType::Gauge)?;
        for limiter in &self.0 {
            let count = limiter.open() as u64;
            open.encode_family(&[("door", limiter.listener)])?.encode_gauge(&count)?;
        }
        let help = "Connections that were refused at a cap, or closed because they did not authenticate in time, by \
                    listener and reason";
        let mut refused = encoder.encode_descriptor("refused_connections", help, None, MetricType::Counter)?;
        for limiter in &self.0 {
            for (reason, count) in limiter.refused() {
                let labels = [("door", limiter.listener), ("reason", reason)];
                ConstCounter::new(count).encode(refused.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: ConnectionCaps = ConnectionCaps { listener: 6, peer: 4, unauthenticated: 2 };

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn admit(limiter: &Arc<ConnectionLimiter>, number: u8) -> Result<ConnectionPermit, ConnectionRefusal> {
        limiter.admit(address(number))
    }

    #[test]
    fn the_cap_of_a_peer_leaves_connections_to_other_peers() {
        let limiter = ConnectionLimiter::new("test", CAPS, false);
        let mut held: Vec<ConnectionPermit> = (0..4).map(|_| admit(&limiter, 1).expect("there is room")).collect();
        assert!(held.iter().all(ConnectionPermit::is_authenticated), "no authentication is required");
        assert_eq!(admit(&limiter, 1).err(), Some(ConnectionRefusal::Peer));
        held.push(admit(&limiter, 2).expect("another peer has its own"));
        held.push(admit(&limiter, 2).expect("another peer has its own"));
        assert_eq!(admit(&limiter, 3).err(), Some(ConnectionRefusal::Listener));
        held.remove(0);
        held.push(admit(&limiter, 3).expect("a permit was dropped"));
        assert_eq!(limiter.open(), 6);
        drop(held);
        assert_eq!(limiter.counts().open, OwnerCounts::default());
        assert_eq!(limiter.refused()[..2], [("listener", 1), ("peer", 1)]);
    }

    #[test]
    fn unauthenticated_connections_have_a_cap_of_their_own() {
        let limiter = ConnectionLimiter::new("test", CAPS, true);
        let of_peer = || {
            let (counts, peer) = (limiter.counts(), PeerNetwork::from(address(1)));
            (counts.open.of(&peer), counts.unauthenticated.of(&peer))
        };
        let [first, second] = [(); 2].map(|()| admit(&limiter, 1).expect("there is room"));
        assert!(!first.is_authenticated());
        assert_eq!(admit(&limiter, 1).err(), Some(ConnectionRefusal::Unauthenticated));
        first.authenticate();
        first.authenticate();
        let third = admit(&limiter, 1).expect("one has authenticated");
        assert_eq!(admit(&limiter, 1).err(), Some(ConnectionRefusal::Unauthenticated));
        assert_eq!(of_peer(), (3, 2));
        second.refuse_overdue();
        drop((second, first));
        assert_eq!(of_peer(), (1, 1));
        drop(third);
        assert_eq!(of_peer(), (0, 0));
        assert_eq!(limiter.refused()[2..], [("unauthenticated", 2), ("overdue", 1)]);
    }

    #[test]
    fn the_first_refusal_is_logged_and_then_at_most_one_a_minute() {
        let (mut counts, begun) = (ConnectionCounts::default(), Instant::now());
        let mut refuse = |after: Duration| counts.refuse(ConnectionRefusal::Peer, begun + after);
        assert_eq!(refuse(Duration::ZERO), Some(1));
        assert_eq!([1, 30, 59].map(|seconds| refuse(Duration::from_secs(seconds))), [None; 3]);
        assert_eq!(refuse(LOG_PERIOD), Some(4));
        assert_eq!(refuse(LOG_PERIOD), None);
        assert_eq!(counts.refused, [0, 6, 0, 0]);
    }

    #[test]
    fn a_fifth_of_a_peers_connections_may_be_unauthenticated() {
        assert_eq!(ConnectionCaps::default(), ConnectionCaps { listener: 10_000, peer: 1_250, unauthenticated: 250 });
        assert_eq!(ConnectionCaps::new(10, 3).unauthenticated, 1);
    }
}
