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
/// The end of a page.
const PAGE_END: &[u8] = b"# EOF\n";

/// Scrapes a server, again and again.
#[derive(Debug)]
pub struct Scraper {
    port: u16,
    period: Duration,
    /// When the next scrape begins.
    next: Instant,
    /// The scrape that is under way.
    scrape: Option<TcpStream>,
    /// What has come of its answer.
    page: Vec<u8>,
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
        Self { port, period, next: Instant::now(), scrape: None, page: Vec::new(), buffer, pages: Vec::new() }
    }

    /// Begins a scrape that is due, or reads a piece of the one that is under way. It waits for the connection, not for
    /// the answer. An error: an answer is no whole page.
    #[expect(clippy::disallowed_methods, reason = "it scrapes in real time")]
    pub fn go_on(&mut self) -> Outcome<()> {
        let Some(socket) = &mut self.scrape else {
            if Instant::now() >= self.next {
                let mut socket = TcpStream::connect(("127.0.0.1", self.port))?;
                socket.write_all(REQUEST)?;
                socket.set_nonblocking(true)?;
                self.page.clear();
                self.scrape = Some(socket);
                self.next += self.period;
            }
            return Ok(());
        };
        match socket.read(&mut self.buffer) {
            Ok(0) => {
                // A chunk's end may follow it.
                let last = self.page.len().saturating_sub(PAGE_END.len() + 16);
                let is_whole = self.page[last..].windows(PAGE_END.len()).any(|bytes| bytes == PAGE_END);
                if !is_whole || !self.page.starts_with(b"HTTP/1.1 200") {
                    return Err("a scrape was refused, or its page was cut short".into());
                }
                self.pages.push(self.page.len());
                self.scrape = None;
            }
            Ok(read) => self.page.extend_from_slice(&self.buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Reads the scrape that is under way to its end, and returns the bytes of each answer that has come.
    pub fn finish(mut self) -> Outcome<Vec<usize>> {
        if let Some(socket) = &self.scrape {
            socket.set_nonblocking(false)?;
        }
        let begun = self.pages.len() + usize::from(self.scrape.is_some());
        while self.pages.len() < begun {
            self.go_on()?;
        }
        Ok(self.pages)
    }
}
