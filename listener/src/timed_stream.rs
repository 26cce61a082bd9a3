//! A stream of a connection over HTTP that ends if the next request is overdue, reads little ahead, and keeps from actix-http the
//! header names at which actix-http panics.

use std::{
    io, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use actix_web::web::Bytes;
use memchr::memchr_iter;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use crate::{
    connections::ConnectionPermit, http_listener::HttpPeriods, request_tracker::RequestTracker, turns::turn_time,
};

/// The most bytes that are read at a time, and that are read ahead.
const READ_BYTES: usize = 16 << 10;
/// The longest run of characters of a header name that is handed out, except in bodies of known length. actix-http panics at a
/// name of 64 KiB.
const NAME_BYTES_MAX: usize = 60 << 10;

/// A connection, with TLS or without.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream for S {}

/// A connection that ends if the next request is overdue, reads little ahead, and counts as open until it is dropped.
pub(crate) struct TimedStream {
    stream: Box<dyn ByteStream>,
    pub(crate) requests: Rc<RequestTracker>,
    /// A timer that wakes the task of the connection at its deadline or earlier.
    alarm: Pin<Box<Sleep>>,
    /// The bytes that were read and not handed out.
    ahead: Bytes,
    /// Whether the task has not parsed the bytes that were handed out last. It parses them when a read returns `Pending`.
    is_unparsed: bool,
    /// Whether a write waits for the peer.
    is_blocked: bool,
    /// The length of the run of name characters at the end of the bytes that were handed out.
    name_bytes: usize,
    /// Whether a name was too long, so that all further bytes are discarded.
    is_discarding: bool,
    _permit: ConnectionPermit,
}

impl TimedStream {
    /// Returns the stream of a connection that was admitted with this permit.
    pub(crate) fn new(stream: Box<dyn ByteStream>, permit: ConnectionPermit, periods: HttpPeriods) -> Self {
        Self {
            stream,
            requests: RequestTracker::new(periods),
            alarm: Box::pin(sleep(periods.idle)),
            ahead: Bytes::new(),
            is_unparsed: false,
            is_blocked: false,
            name_bytes: 0,
            is_discarding: false,
            _permit: permit,
        }
    }

    /// Reads, and hands out the bytes that the task needs now. If there are none, the task is woken when that changes.
    fn poll_part(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let is_needed = !self.is_blocked && self.requests.is_waiting();
        if is_needed && self.is_discarding {
            return self.poll_discard(context, buffer);
        }
        let body_bytes = if is_needed { self.requests.body_bytes.get() } else { 0 };
        let part_bytes = |new_bytes: &[u8], is_unparsed: bool| match body_bytes {
            0 if !is_needed || is_unparsed => 0,
            0 => request_end(new_bytes),
            _ => new_bytes.len().min(body_bytes),
        };
        let before = buffer.filled().len();
        let bytes = if self.ahead.is_empty() {
            ready!(poll_read_within(&mut self.stream, context, buffer, body_bytes.max(READ_BYTES)))?;
            let new_bytes = &buffer.filled()[before..];
            if new_bytes.is_empty() {
                // The end of the stream.
                return Poll::Ready(Ok(()));
            }
            let bytes = part_bytes(new_bytes, self.is_unparsed);
            self.ahead = Bytes::copy_from_slice(&new_bytes[bytes..]);
            buffer.set_filled(before + bytes);
            bytes
        } else {
            let new_bytes = &self.ahead[..self.ahead.len().min(buffer.remaining())];
            let bytes = part_bytes(new_bytes, self.is_unparsed);
            buffer.put_slice(&self.ahead.split_to(bytes));
            bytes
        };
        if bytes > 0 {
            if body_bytes > 0 {
                self.requests.hand_out_body(bytes);
                self.name_bytes = 0;
            } else if self.is_name_too_long(&buffer.filled()[before..]) {
                self.is_discarding = true;
                buffer.set_filled(before);
                return self.poll_discard(context, buffer);
            } else {
                self.is_unparsed = true;
            }
            self.requests.note_read();
            return Poll::Ready(Ok(()));
        }
        if is_needed {
            // The task first parses the bytes that were handed out.
            context.waker().wake_by_ref();
        } else {
            *self.requests.reader.borrow_mut() = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Notes bytes that are handed out, except in bodies of known length. Returns whether they have a name that is too long.
    fn is_name_too_long(&mut self, bytes: &[u8]) -> bool {
        // A run that begins and ends within these bytes is short enough: they are 16 KiB at most.
        let first = bytes.iter().take_while(|byte| is_of_name(**byte)).count();
        let name_bytes = self.name_bytes + first;
        let is_whole = first == bytes.len();
        let last = || bytes.iter().rev().take_while(|byte| is_of_name(**byte)).count();
        self.name_bytes = if is_whole { name_bytes } else { last() };
        name_bytes > NAME_BYTES_MAX
    }

    /// Discards all bytes until the deadline of the connection. If they are the rest of a body whose answer is there, actix-http
    /// would also discard them, and the peer can read the answer.
    fn poll_discard(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.ahead = Bytes::new();
        let before = buffer.filled().len();
        ready!(poll_read_within(&mut self.stream, context, buffer, READ_BYTES))?;
        if buffer.filled().len() == before {
            // The end of the stream.
            return Poll::Ready(Ok(()));
        }
        buffer.set_filled(before);
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Notes whether a write waits for the peer, and fails it after the deadline.
    fn check_write<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if mem::replace(&mut self.is_blocked, polled.is_pending()) && !self.is_blocked {
            self.requests.wake_reader();
        }
        self.fail_if_overdue(polled, context)
    }

    /// Returns whether the deadline is over; otherwise the task is woken at the deadline or earlier.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        let mut now = turn_time();
        loop {
            let deadline = self.requests.deadline();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return true;
            }
            // Without a deadline the timer looks again after the idle time, because the stream is not notified when a request ends.
            let next = deadline.unwrap_or(now + self.requests.periods.idle);
            if self.alarm.is_elapsed() || self.alarm.deadline() > next {
                self.alarm.as_mut().reset(next);
            }
            if self.alarm.as_mut().poll(context).is_pending() {
                return false;
            }
            now = Instant::now();
        }
    }

    /// Fails a pending operation after the deadline.
    fn fail_if_overdue<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.is_overdue(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

fn poll_read_within(
    stream: &mut Box<dyn ByteStream>,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
    bytes_max: usize,
) -> Poll<io::Result<()>> {
    if bytes_max >= buffer.remaining() {
        return Pin::new(stream).poll_read(context, buffer);
    }
    let mut part = ReadBuf::new(buffer.initialize_unfilled_to(bytes_max));
    ready!(Pin::new(stream).poll_read(context, &mut part))?;
    let bytes = part.filled().len();
    buffer.advance(bytes);
    Poll::Ready(Ok(()))
}

/// Returns the number of bytes that may be handed out together such that at most one head ends in them. Each head ends with a
/// blank line: if there is text between two blank lines, the part ends after the blank lines before that text. Blank lines of a
/// body count too; the rest of the body is handed out next.
fn request_end(bytes: &[u8]) -> usize {
    // The start of the current line, the end of the first blank lines, and whether text follows them.
    let (mut line_start, mut end, mut has_text) = (0, None, false);
    for newline in memchr_iter(b'\n', bytes) {
        let is_blank = matches!(&bytes[line_start..newline], b"" | b"\r");
        line_start = newline + 1;
        match end {
            Some(end) if is_blank && has_text => return end,
            Some(_) if !is_blank => has_text = true,
            // Another blank line directly after the first ones.
            Some(_) => end = Some(line_start),
            None if is_blank => end = Some(line_start),
            None => {}
        }
    }
    bytes.len()
}

/// Returns whether a header's name may have this character (RFC 9110, section 5.6.2).
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let polled = this.poll_part(context, buffer);
        if polled.is_pending() {
            this.is_unparsed = false;
            if this.is_overdue(context) {
                // Reports the end of the stream, at which actix-http closes the connection as if the peer had closed its side.
                return Poll::Ready(Ok(()));
            }
        }
        polled
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.requests.wake_body_reader();
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.requests.note_written();
        }
        self.check_write(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.requests.wake_body_reader();
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.check_write(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.fail_if_overdue(polled, context)
    }
}

impl Drop for TimedStream {
    fn drop(&mut self) {
        self.requests.wake_body_reader();
    }
}

#[cfg(test)]
mod tests;
