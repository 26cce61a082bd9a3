//! Ports that no other test takes, in this process or in another, of any user and any clone of the repository.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddress, UnixListener},
    },
};

/// The first port that is given out, and how many there are: below those that systems give to outgoing connections, and above
/// 10080, which browsers refuse as a bad port.
const FIRST: u16 = 11_000;
const COUNT: u16 = 9_000;

/// The length of an abstract name: all that there is room for, as Node binds it for the tests of the dashboard
/// (`web/e2e/ports.ts`).
const NAME_BYTES: usize = 107;

/// The nodes of a Redis cluster speak with each other at a port that is so much higher.
pub(crate) const BUS: u16 = 10_000;

/// A port of loopback that is reserved until this is dropped, whether a server listens there or not.
///
/// An abstract Unix socket is the lock: the system knows it in the same namespace as ports, and releases it with the process.
/// Listeners of other programs are seen by binding the port once.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    _lock: UnixListener,
}

impl ReservedPort {
    /// Reserves a port on which nothing listens.
    ///
    /// # Panics
    ///
    /// No port of 11000 to 19999 is free.
    #[must_use]
    pub fn new() -> Self {
        Self::with(is_free)
    }

    /// Reserves a port for a node of a cluster, with the one at which it speaks with the others.
    ///
    /// # Panics
    ///
    /// No port of 11000 to 19999 is free.
    #[must_use]
    pub fn of_cluster_node() -> Self {
        Self::with(|port| is_free(port) && is_free(port + BUS))
    }

    fn with(is_free: impl Fn(u16) -> bool) -> Self {
        let count = candidates();
        // Each begins elsewhere, so that few meet.
        let start = RandomState::new().hash_one(std::process::id()) % u64::from(count);
        let all = (0..count).map(|at| FIRST + ((u64::from(at) + start) % u64::from(count)) as u16);
        let mut locked = all.filter_map(|port| Some(Self { port, _lock: lock(port)? }));
        locked.find(|reserved| is_free(reserved.port)).expect("a free port of 11000 to 19999")
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port, on loopback.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

impl Default for ReservedPort {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns how many ports are given out: those below the range of ports of outgoing connections. Where fewer than a
/// thousand are below it, the ports are taken from it all the same, since some are needed.
fn candidates() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first: u16 = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(FIRST + COUNT);
    if first >= FIRST + 1_000 { COUNT.min(first - FIRST) } else { COUNT }
}

/// Returns the lock of a port, unless another test has it.
fn lock(port: u16) -> Option<UnixListener> {
    let mut name = format!("tidegate-test-port-{port}").into_bytes();
    name.resize(NAME_BYTES, 0);
    let address = UnixAddress::from_abstract_name(name).ok()?;
    UnixListener::bind_addr(&address).ok()
}

/// Returns whether nothing listens at a port, at no address of this machine.
fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, thread};

    use super::*;

    #[test]
    fn ports_that_are_reserved_at_the_same_time_differ_and_are_released() {
        let threads: Vec<_> =
            (0..8).map(|_| thread::spawn(|| (0..20).map(|_| ReservedPort::new()).collect::<Vec<_>>())).collect();
        let reserved: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        let ports: HashSet<_> = reserved.iter().map(ReservedPort::port).collect();
        assert_eq!(ports.len(), 160);
        let port = reserved[0].port();
        assert!(lock(port).is_none(), "it is reserved");
        drop(reserved);
        assert!(lock(port).is_some(), "it is released");
    }

    #[test]
    fn a_port_at_which_another_program_listens_is_not_given_out() {
        let reserved = ReservedPort::new();
        let _listener = TcpListener::bind(reserved.address()).expect("it is free");
        assert!(!is_free(reserved.port()));
    }

    #[test]
    fn a_server_listens_at_a_reserved_port() {
        let reserved = ReservedPort::of_cluster_node();
        drop(TcpListener::bind(reserved.address()).expect("it is free"));
        drop(TcpListener::bind((Ipv4Addr::LOCALHOST, reserved.port() + BUS)).expect("so is the other"));
    }
}
