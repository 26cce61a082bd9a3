//! Scrapes of a server's metrics on the thread that times requests: a scrape is read piece by piece between them.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::BenchResult;

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
/// The most bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// The end of a page of metrics.
const PAGE_END: &[u8] = b"# EOF\n";

/// Scrapes a server periodically, without blocking.
#[derive(Debug)]
pub struct Scraper {
    port: u16,
    period: Duration,
    /// The time of the next scrape.
    next: Instant,
    /// The connection of the current scrape.
    scrape: Option<TcpStream>,
    /// The part of the response that has arrived.
    page: Vec<u8>,
    buffer: Box<[u8]>,
    /// The number of bytes of each response.
    pages: Vec<usize>,
}

impl Scraper {
    /// Returns a scraper of the server at this port, which scrapes once in a period, from now on.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "it scrapes in real time")]
    pub fn new(port: u16, period: Duration) -> Self {
        let buffer = vec![0; PIECE_BYTES].into();
        Self { port, period, next: Instant::now(), scrape: None, page: Vec::new(), buffer, pages: Vec::new() }
    }

    /// Begins a scrape that is due, or reads a piece of the current one. It blocks on the connection, not on the response.
    /// It fails if a response is not a whole page.
    #[expect(clippy::disallowed_methods, reason = "it scrapes in real time")]
    pub fn poll(&mut self) -> BenchResult<()> {
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
                // The end of an HTTP chunk may follow the page.
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

    /// Reads the current scrape to its end, and returns the number of bytes of each response.
    pub fn finish(mut self) -> BenchResult<Vec<usize>> {
        if let Some(socket) = &self.scrape {
            socket.set_nonblocking(false)?;
        }
        let begun = self.pages.len() + usize::from(self.scrape.is_some());
        while self.pages.len() < begun {
            self.poll()?;
        }
        Ok(self.pages)
    }
}
