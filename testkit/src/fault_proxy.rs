//! A proxy before a server that delays, holds and drops its answers, or changes requests.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// The faults that a [`FaultProxy`] makes, and its counts.
#[derive(Default, Debug)]
struct Orders {
    /// The text that is written into requests, and the text of the same length that it replaces.
    writes: Option<(Vec<u8>, Vec<u8>)>,
    delay_ms: AtomicU64,
    holds: AtomicBool,
    drops_half: AtomicBool,
    /// Answers that came while half of them are dropped.
    answers: AtomicU64,
    is_over: AtomicBool,
}

impl Orders {
    fn rewrite(&self, bytes: &mut [u8]) {
        let Some((this, instead_of)) = &self.writes else { return };
        for place in 0..bytes.len().saturating_sub(this.len() - 1) {
            if bytes[place..].starts_with(instead_of) {
                bytes[place..place + this.len()].copy_from_slice(this);
            }
        }
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms.load(Ordering::Relaxed))
    }

    /// Returns whether the answer that came is dropped. Its number decides, mixed, so that no client's own rhythm falls in with it:
    /// one whose every second answer is that to its greeting.
    fn drop_answer(&self) -> bool {
        self.drops_half.load(Ordering::Relaxed)
            && self.answers.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15).count_ones() % 2 == 1
    }
}

/// A proxy that passes connections on until it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    orders: Arc<Orders>,
}

impl FaultProxy {
    /// Starts a proxy before the server at this address.
    #[must_use]
    pub fn before(server: SocketAddr) -> Self {
        Self::with(server, Orders::default())
    }

    /// Starts a proxy that writes `this` into requests in the place of something that is as long.
    ///
    /// # Panics
    ///
    /// It is not as long.
    #[must_use]
    pub fn that_writes(server: SocketAddr, this: &[u8], instead_of: &[u8]) -> Self {
        assert_eq!(this.len(), instead_of.len());
        Self::with(server, Orders { writes: Some((this.to_vec(), instead_of.to_vec())), ..Orders::default() })
    }

    fn with(server: SocketAddr, orders: Orders) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let proxy = Self { address, server: Arc::new(Mutex::new(server)), orders: Arc::new(orders) };
        let (server, orders) = (Arc::clone(&proxy.server), Arc::clone(&proxy.orders));
        thread::spawn(move || {
            let mut clients = Vec::new();
            for client in listener.incoming() {
                if orders.is_over.load(Ordering::Relaxed) {
                    break;
                }
                let client = client.expect("a connection");
                // Where no server listens, the client is told by the end of its connection.
                let server = *server.lock().unwrap_or_else(PoisonError::into_inner);
                if let Ok(server) = TcpStream::connect(server) {
                    clients.push(client.try_clone().expect("an end"));
                    let orders = Arc::clone(&orders);
                    thread::spawn(move || carry(&client, &server, &orders));
                }
            }
            clients.iter().for_each(close);
        });
        proxy
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns where it listens, as a URL of Redis.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Passes connections that are made from now on to the server at this address; those that stand stay where they are.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }

    /// Delays answers from now on, by whole milliseconds; requests pass at once. Delays do not add up.
    pub fn delay(&self, delay: Duration) {
        self.orders.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Holds all answers back from now on, or no longer; requests pass.
    pub fn hold(&self, holds: bool) {
        self.orders.holds.store(holds, Ordering::Relaxed);
    }

    /// Drops half of the answers from now on, and ends their connections: the server has done what was asked, and the client
    /// does not hear of it. An answer is what comes in one piece. Which of them are dropped only depends on how many came before.
    pub fn drop_half(&self, drops: bool) {
        self.orders.drops_half.store(drops, Ordering::Relaxed);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.orders.is_over.store(true, Ordering::Relaxed);
        // It wakes up by one more.
        drop(TcpStream::connect(self.address));
    }
}

/// Carries bytes between both, until one of them ends the connection.
#[expect(clippy::disallowed_methods, reason = "when an answer is due")]
fn carry(mut client: &TcpStream, mut server: &TcpStream, orders: &Orders) {
    for end in [client, server] {
        end.set_nodelay(true).expect("a socket");
    }
    let (answers, due) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            // It ends with the connection. A request comes in one piece: they are small.
            while let Ok(count @ 1..) = client.read(&mut buffer) {
                orders.rewrite(&mut buffer[..count]);
                if server.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            close(server);
        });
        scope.spawn(move || {
            for (at, bytes) in due {
                thread::sleep(at.saturating_duration_since(Instant::now()));
                while orders.holds.load(Ordering::Relaxed) && !orders.is_over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
                if client.write_all(&bytes).is_err() {
                    break;
                }
            }
            close(client);
        });
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = server.read(&mut buffer)
            && !orders.drop_answer()
            && answers.send((Instant::now() + orders.delay(), buffer[..count].to_vec())).is_ok()
        {}
        drop(answers);
    });
}

fn close(end: &TcpStream) {
    // It may be closed already.
    let _ = end.shutdown(Shutdown::Both);
}
