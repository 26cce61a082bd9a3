//! Scrapes of a server's metrics beside what is timed, on the same thread: what a scrape brings is read piece by piece.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::servers::Outcome;

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Scrapes a server, again and again.
#[derive(Debug)]
pub struct Scraper {
    port: u16,
    period: Duration,
    /// When the next scrape begins.
    next: Instant,
    /// The scrape that is under way, and the bytes of it that have come.
    scrape: Option<(TcpStream, usize)>,
    buffer: Box<[u8]>,
    /// The bytes of each answer.
    pages: Vec<usize>,
}

impl Scraper {
    /// Scrapes the server at this port once in a period, from now on.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "it scrapes in real time")]
    pub fn new(port: u16, period: Duration) -> Self {
        let buffer = vec![0; PIECE_BYTES].into();
        Self { port, period, next: Instant::now(), scrape: None, buffer, pages: Vec::new() }
    }

    /// Begins a scrape that is due, or reads a piece of the one that is under way. It waits for nothing.
    #[expect(clippy::disallowed_methods, reason = "it scrapes in real time")]
    pub fn go_on(&mut self) -> Outcome<()> {
        let Some((socket, bytes)) = &mut self.scrape else {
            if Instant::now() >= self.next {
                let mut socket = TcpStream::connect(("127.0.0.1", self.port))?;
                socket.write_all(REQUEST)?;
                socket.set_nonblocking(true)?;
                self.scrape = Some((socket, 0));
                self.next += self.period;
            }
            return Ok(());
        };
        match socket.read(&mut self.buffer) {
            Ok(0) => {
                self.pages.push(*bytes);
                self.scrape = None;
            }
            Ok(read) => {
                if *bytes == 0 && !self.buffer[..read].starts_with(b"HTTP/1.1 200") {
                    return Err("a scrape was refused".into());
                }
                *bytes += read;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Returns the bytes of each answer that has come.
    #[must_use]
    pub fn pages(&self) -> &[usize] {
        &self.pages
    }
}
