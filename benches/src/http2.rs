//! HTTP/2 (RFC 9113) as far as it takes to ask gRPC servers at full speed: calls are written as they were made before, and
//! answers are counted, not read.
#![expect(clippy::cast_possible_wrap, reason = "windows are shorter than 2^31 bytes")]

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

use crate::servers::Outcome;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// The largest frame that everybody takes.
const FRAME_BYTES: usize = 16_384;
/// The window of whoever says nothing else.
const WINDOW: i64 = 65_535;
/// Ours: as good as none.
const OURS: u32 = (1 << 31) - 1;

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

/// Appends a frame.
fn frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    to.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
    to.extend_from_slice(payload);
}

/// The headers of a call (RFC 7541), none of which the other side is to remember.
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

/// A call with one message, on stream 0; [`append`] gives it another one.
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

/// The beginning of a connection whose client lets so many bytes of each answer come unasked.
#[must_use]
pub fn opening(window_bytes: u32) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window_bytes.to_be_bytes()].concat());
    bytes
}

/// Appends a [`request`] on this stream. Returns how many bytes of it count for the windows.
pub fn append(to: &mut Vec<u8>, stream: u32, request: &[u8]) -> i64 {
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

/// A connection to a server on this machine.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    unsent: Vec<u8>,
    received: Vec<u8>,
    buffer: Box<[u8]>,
    next: u32,
    open: usize,
    /// What may be sent: on the connection; on a stream that begins; on the stream that was opened last.
    window: i64,
    initial: i64,
    of_stream: i64,
    stream: u32,
    /// Bytes of the messages, and of a stream's last one those that are to come.
    to_come: usize,
    head: Vec<u8>,
    messages: u64,
    ended: u64,
    kept: Option<Vec<u8>>,
}

impl Connection {
    /// Connects, and exchanges settings.
    pub fn to(port: u16) -> Outcome<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut unsent = opening(OURS);
        frame(&mut unsent, WINDOW_UPDATE, 0, 0, &(OURS - WINDOW as u32).to_be_bytes());
        let mut connection = Self {
            socket,
            unsent,
            received: Vec::new(),
            buffer: vec![0; 1 << 16].into(),
            next: 1,
            open: 0,
            window: WINDOW,
            initial: 0,
            of_stream: 0,
            stream: 0,
            to_come: 0,
            head: Vec::new(),
            messages: 0,
            ended: 0,
            kept: None,
        };
        while connection.initial == 0 {
            connection.turn()?;
        }
        Ok(connection)
    }

    /// Calls that wait for an answer.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Messages of answers.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Sends a [`request`], as soon as the window has room for it.
    pub fn call(&mut self, request: &[u8]) {
        let stream = self.begin();
        self.window -= append(&mut self.unsent, stream, request);
    }

    /// The message that answers a [`request`], on a connection that nothing else is asked on.
    pub fn answer(&mut self, request: &[u8]) -> Outcome<Vec<u8>> {
        self.kept = Some(Vec::new());
        self.call(request);
        while self.turn()? == 0 {}
        let kept = self.kept.take().unwrap_or_default();
        Ok(kept.get(5..).ok_or("no message")?.to_vec())
    }

    /// Begins a call that goes on.
    pub fn open_stream(&mut self, path: &str) {
        self.stream = self.begin();
        self.of_stream = self.initial;
        frame(&mut self.unsent, HEADERS, END_HEADERS, self.stream, &headers(path));
    }

    /// Sends these messages on the stream, if the windows have room for them and nothing else waits.
    pub fn say(&mut self, messages: &[u8]) {
        if !self.unsent.is_empty() || self.window.min(self.of_stream) < messages.len() as i64 {
            return;
        }
        for chunk in messages.chunks(FRAME_BYTES) {
            frame(&mut self.unsent, DATA, 0, self.stream, chunk);
        }
        self.window -= messages.len() as i64;
        self.of_stream -= messages.len() as i64;
    }

    fn begin(&mut self) -> u32 {
        self.open += 1;
        self.next += 2;
        self.next - 2
    }

    /// Sends and takes what there is; how many calls were answered to their end.
    pub fn turn(&mut self) -> Outcome<u64> {
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
            ended += self.frame(head, payload)?;
            rest = after;
        }
        self.received = rest.to_vec();
        Ok(ended)
    }

    /// 1: it ended a call.
    fn frame(&mut self, head: &[u8; HEAD_BYTES], payload: &[u8]) -> Outcome<u64> {
        let [_, _, _, kind, flags, stream @ ..] = *head;
        let stream = u32::from_be_bytes(stream);
        match kind {
            SETTINGS if flags & ACK == 0 => {
                self.initial = WINDOW;
                for setting in payload.chunks_exact(6) {
                    if setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes() {
                        self.initial = i64::from(number(&setting[2..]));
                    }
                }
                frame(&mut self.unsent, SETTINGS, ACK, 0, &[]);
            }
            PING if flags & ACK == 0 => frame(&mut self.unsent, PING, ACK, 0, payload),
            WINDOW_UPDATE if stream == 0 => self.window += i64::from(number(payload)),
            WINDOW_UPDATE if stream == self.stream => self.of_stream += i64::from(number(payload)),
            DATA => {
                self.count(payload);
                if let Some(kept) = &mut self.kept {
                    kept.extend_from_slice(payload);
                }
                // What came is made good, so that ours never ends.
                frame(&mut self.unsent, WINDOW_UPDATE, 0, 0, &(payload.len().max(1) as u32).to_be_bytes());
                if stream == self.stream {
                    frame(&mut self.unsent, WINDOW_UPDATE, 0, stream, &(payload.len().max(1) as u32).to_be_bytes());
                }
            }
            RST_STREAM | GOAWAY => return Err(format!("the server ends it: frame {kind}, {payload:?}").into()),
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

    /// Counts messages; those of several calls never come in pieces between each other here.
    fn count(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.to_come == 0 {
                let wanted = (5 - self.head.len()).min(bytes.len());
                self.head.extend_from_slice(&bytes[..wanted]);
                bytes = &bytes[wanted..];
                if self.head.len() == 5 {
                    self.to_come = number(&self.head[1..]) as usize;
                    self.head.clear();
                    self.messages += u64::from(self.to_come == 0);
                }
            } else {
                let taken = self.to_come.min(bytes.len());
                self.to_come -= taken;
                bytes = &bytes[taken..];
                self.messages += u64::from(self.to_come == 0);
            }
        }
    }
}

/// Of a frame's payload.
fn length(head: &[u8; HEAD_BYTES]) -> usize {
    number(&[0, head[0], head[1], head[2]]) as usize
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
