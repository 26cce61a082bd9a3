//! What stands between a server and its database, and lets connections fall silent: as if the machine had gone away.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use crate::home::Home;

/// Passes connections on, until it is dropped.
pub(crate) struct Silence {
    address: SocketAddr,
    /// How often they fell silent: those that were made before stay so.
    falls: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Silence {
    /// Before the database server at this address.
    pub(crate) fn before(database: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (falls, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let silence = Self { address, falls: Arc::clone(&falls), is_over: Arc::clone(&is_over) };
        thread::spawn(move || {
            // Both ends of each, so that they stay open.
            let mut ends = Vec::new();
            for client in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let client = client.expect("a connection");
                let server = TcpStream::connect(database).expect("the database server");
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().expect("an end"), to.try_clone().expect("an end"));
                    let (falls, made_at) = (Arc::clone(&falls), falls.load(Ordering::Relaxed));
                    thread::spawn(move || pass(from, to, || falls.load(Ordering::Relaxed) == made_at));
                }
                ends.extend([client, server]);
            }
            for end in ends {
                // It may be closed already.
                let _ = end.shutdown(Shutdown::Both);
            }
        });
        silence
    }

    /// The same home, behind it.
    pub(crate) fn home(&self, home: &Home) -> Home {
        home.altered(|url| {
            let (user, rest) = url.split_once('@').expect("an address with a user");
            let (_, name) = rest.split_once('/').expect("an address with a database");
            format!("{user}@{}/{name}", self.address)
        })
    }

    /// Nothing more comes through the connections there are.
    pub(crate) fn fall(&self) {
        self.falls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It wakes up by one more.
        drop(TcpStream::connect(self.address));
    }
}

/// Passes on what comes, while it may.
fn pass(mut from: TcpStream, mut to: TcpStream, may: impl Fn() -> bool) {
    let mut buffer = [0; 4096];
    let mut next = || -> io::Result<bool> {
        let count = from.read(&mut buffer)?;
        if may() {
            to.write_all(&buffer[..count])?;
        }
        Ok(count > 0)
    };
    while next().unwrap_or(false) {}
    if may() {
        // It may be closed already.
        let _ = to.shutdown(Shutdown::Both);
    }
}
