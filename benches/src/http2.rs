//! A minimal HTTP/2 client (RFC 9113) that loads gRPC servers: it sends calls that were encoded before, and counts the messages
//! of responses without decoding them.
#![expect(clippy::cast_possible_wrap, reason = "windows are shorter than 2^31 bytes")]

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

use crate::BenchResult;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// The largest frame that every peer accepts.
const FRAME_BYTES: usize = 16_384;
/// The flow-control window unless settings change it.
const WINDOW: i64 = 65_535;
/// Our own window, large enough never to stop the server.
const OWN_WINDOW: u32 = (1 << 31) - 1;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;

fn frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    to.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
    to.extend_from_slice(payload);
}

/// Returns the headers of a call (RFC 7541), none of which enters the server's table.
fn headers(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    let mut literal = |name: &str, value: &str| {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    };
    literal(":path", path);
    literal(":authority", "127.0.0.1");
    literal("content-type", "application/grpc");
    literal("te", "trailers");
    block
}

/// Returns a call with one message on stream 0; [`append_request`] sets the stream.
#[must_use]
pub fn request(path: &str, message: &[u8]) -> Vec<u8> {
    let body = [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat();
    let mut bytes = Vec::new();
    frame(&mut bytes, HEADERS, END_HEADERS, 0, &headers(path));
    let last = body.chunks(FRAME_BYTES).len() - 1;
    for (place, chunk) in body.chunks(FRAME_BYTES).enumerate() {
        frame(&mut bytes, DATA, if place == last { END_STREAM } else { 0 }, 0, chunk);
    }
    bytes
}

/// Returns the bytes that open a connection; `window_bytes` is the window of each stream for responses.
#[must_use]
pub fn preface(window_bytes: u32) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window_bytes.to_be_bytes()].concat());
    bytes
}

/// Appends a [`request`] on this stream. Returns the number of bytes that count for flow control.
pub fn append_request(to: &mut Vec<u8>, stream: u32, request: &[u8]) -> i64 {
    let (mut rest, mut counted) = (request, 0);
    while let Some((head, body)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let (payload, after) = body.split_at(length(head));
        frame(to, head[3], head[4], stream, payload);
        if head[3] == DATA {
            counted += payload.len() as i64;
        }
        rest = after;
    }
    counted
}

/// An HTTP/2 connection to a server on this machine.
#[derive(Debug)]
pub struct Http2Connection {
    socket: TcpStream,
    unsent: Vec<u8>,
    received: Vec<u8>,
    buffer: Box<[u8]>,
    next: u32,
    open: usize,
    /// The bytes that may be sent on the connection, on a new stream, and on the stream that was opened last.
    window: i64,
    initial_window: i64,
    stream_window: i64,
    stream: u32,
    /// The bytes of the current message that have not arrived, and the part of its head that has.
    missing: usize,
    head: Vec<u8>,
    messages: u64,
    ended: u64,
    /// The data of a response, if the caller wants it.
    response: Option<Vec<u8>>,
}

impl Http2Connection {
    /// Connects, and exchanges settings.
    pub fn connect(port: u16) -> BenchResult<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut unsent = preface(OWN_WINDOW);
        frame(&mut unsent, WINDOW_UPDATE, 0, 0, &(OWN_WINDOW - WINDOW as u32).to_be_bytes());
        let mut connection = Self {
            socket,
            unsent,
            received: Vec::new(),
            buffer: vec![0; 1 << 16].into(),
            next: 1,
            open: 0,
            window: WINDOW,
            initial_window: 0,
            stream_window: 0,
            stream: 0,
            missing: 0,
            head: Vec::new(),
            messages: 0,
            ended: 0,
            response: None,
        };
        while connection.initial_window == 0 {
            connection.poll()?;
        }
        Ok(connection)
    }

    /// Returns the number of calls that wait for their response.
    #[must_use]
    pub fn open_calls(&self) -> usize {
        self.open
    }

    /// Returns the number of messages that responses have had.
    #[must_use]
    pub fn message_count(&self) -> u64 {
        self.messages
    }

    /// Sends a [`request`] as soon as the window has room for it.
    pub fn call(&mut self, request: &[u8]) {
        let stream = self.begin();
        self.window -= append_request(&mut self.unsent, stream, request);
    }

    /// Sends a [`request`] on a connection without other calls, and returns the message of the response.
    pub fn call_and_wait(&mut self, request: &[u8]) -> BenchResult<Vec<u8>> {
        self.response = Some(Vec::new());
        self.call(request);
        while self.poll()? == 0 {}
        let response = self.response.take().unwrap_or_default();
        Ok(response.get(5..).ok_or("no message")?.to_vec())
    }

    /// Begins a streaming call.
    pub fn open_stream(&mut self, path: &str) {
        self.stream = self.begin();
        self.stream_window = self.initial_window;
        frame(&mut self.unsent, HEADERS, END_HEADERS, self.stream, &headers(path));
    }

    /// Sends these messages on the stream if the windows have room for them and nothing else is unsent.
    pub fn send_messages(&mut self, messages: &[u8]) {
        if !self.unsent.is_empty() || self.window.min(self.stream_window) < messages.len() as i64 {
            return;
        }
        for chunk in messages.chunks(FRAME_BYTES) {
            frame(&mut self.unsent, DATA, 0, self.stream, chunk);
        }
        self.window -= messages.len() as i64;
        self.stream_window -= messages.len() as i64;
    }

    fn begin(&mut self) -> u32 {
        self.open += 1;
        self.next += 2;
        self.next - 2
    }

    /// Sends and receives without blocking. Returns the number of calls that have ended.
    pub fn poll(&mut self) -> BenchResult<u64> {
        if self.window >= 0 && !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(bytes) => drop(self.unsent.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.socket.read(&mut self.buffer) {
            Ok(0) => return Err("a connection was closed".into()),
            Ok(bytes) => self.received.extend_from_slice(&self.buffer[..bytes]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        let received = std::mem::take(&mut self.received);
        let (mut rest, mut ended) = (&received[..], 0);
        while let Some((head, body)) = rest.split_first_chunk::<HEAD_BYTES>()
            && body.len() >= length(head)
        {
            let (payload, after) = body.split_at(length(head));
            ended += self.handle_frame(head, payload)?;
            rest = after;
        }
        self.received = rest.to_vec();
        Ok(ended)
    }

    /// Handles a frame. Returns 1 if it ends a call, otherwise 0.
    fn handle_frame(&mut self, head: &[u8; HEAD_BYTES], payload: &[u8]) -> BenchResult<u64> {
        let [_, _, _, kind, flags, stream @ ..] = *head;
        let stream = u32::from_be_bytes(stream);
        match kind {
            SETTINGS if flags & ACK == 0 => {
                self.initial_window = WINDOW;
                for setting in payload.chunks_exact(6) {
                    if setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes() {
                        self.initial_window = i64::from(number(&setting[2..]));
                    }
                }
                frame(&mut self.unsent, SETTINGS, ACK, 0, &[]);
            }
            PING if flags & ACK == 0 => frame(&mut self.unsent, PING, ACK, 0, payload),
            WINDOW_UPDATE if stream == 0 => self.window += i64::from(number(payload)),
            WINDOW_UPDATE if stream == self.stream => self.stream_window += i64::from(number(payload)),
            DATA => {
                self.count_messages(payload);
                if let Some(response) = &mut self.response {
                    response.extend_from_slice(payload);
                }
                // Gives back the window at once, so that it never runs out.
                frame(&mut self.unsent, WINDOW_UPDATE, 0, 0, &(payload.len().max(1) as u32).to_be_bytes());
                if stream == self.stream {
                    frame(&mut self.unsent, WINDOW_UPDATE, 0, stream, &(payload.len().max(1) as u32).to_be_bytes());
                }
            }
            RST_STREAM | GOAWAY => return Err(format!("the server ended the call: frame {kind}, {payload:?}").into()),
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            self.ended += 1;
            if self.ended > self.messages {
                return Err("a call was refused: it ended without a message".into());
            }
            self.open -= 1;
            return Ok(1);
        }
        Ok(0)
    }

    /// Counts messages. Pieces of messages of several calls never mix on these connections.
    fn count_messages(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.missing == 0 {
                let wanted = (5 - self.head.len()).min(bytes.len());
                self.head.extend_from_slice(&bytes[..wanted]);
                bytes = &bytes[wanted..];
                if self.head.len() == 5 {
                    self.missing = number(&self.head[1..]) as usize;
                    self.head.clear();
                    self.messages += u64::from(self.missing == 0);
                }
            } else {
                let taken = self.missing.min(bytes.len());
                self.missing -= taken;
                bytes = &bytes[taken..];
                self.messages += u64::from(self.missing == 0);
            }
        }
    }
}

/// Returns the length of a frame's payload.
fn length(head: &[u8; HEAD_BYTES]) -> usize {
    number(&[0, head[0], head[1], head[2]]) as usize
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
