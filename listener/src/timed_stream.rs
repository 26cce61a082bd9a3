//! A connection over HTTP that ends when its next request does not come in time, and of which little is read ahead. Names of
//! headers at which actix-http panics are not handed to it.

use std::{
    cell::{Cell, RefCell},
    io, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use actix_http::{BoxedPayloadStream, Payload, Request, error::PayloadError, h1};
use actix_web::{http::header::CONTENT_LENGTH, web::Bytes};
use futures_util::Stream;
use memchr::memchr_iter;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use crate::{connections::ConnectionPermit, http_listener::HttpPeriods, turns::turn_time};

/// Bytes that are read at a time, and that may be read before they are waited for.
const READ_BYTES: usize = 16 << 10;
/// The longest run of characters of a header's name that is handed out, outside of bodies whose length is known. actix-http panics
/// at a name of 64 KiB.
const NAME_BYTES_MAX: usize = 60 << 10;

/// A connection, with TLS or without.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream for S {}

/// The requests of a connection: how long the next one may take to come, and whether more is read.
///
/// actix-http has a timer for a connection's first head, and none for the rest of a later one: that for the time between requests
/// it stops at the first byte, and begins again whenever the connection's task is woken. This one is for all that comes after the
/// first request. A head that comes together with the request before it does not show here: it has as long as a connection may
/// rest.
///
/// Nor does actix-http stop reading while an answer waits for the peer, or for the server; and it parses all that it has read. A
/// request may take 30 kB of memory. If it has parsed a head whose body is not complete, it takes that body for the unread one of
/// the request before, says `connection: close` in the answer to that one, and may cut off later answers. Therefore it is handed
/// one request at a time, and only while it waits for a head or for more of a body.
#[derive(Debug)]
pub(crate) struct RequestTracker {
    periods: HttpPeriods,
    /// Whether a first request has come.
    has_begun: Cell<bool>,
    /// How many requests are being answered.
    answering: Cell<usize>,
    /// When the turn began in which the last answer was made, or part of it was written after that.
    since: Cell<Instant>,
    /// When the turn began in which the next head's first byte came, or part of the last answer was written after that.
    head: Cell<Option<Instant>>,
    /// Whether the request that is being answered waits for more of its body.
    awaits_body: Cell<bool>,
    /// How many bytes of that body are still to come, where its head says that.
    body_bytes: Cell<usize>,
    /// The waker of that body's reader, from its first poll until its next poll, or until the task writes, flushes or ends.
    body_reader: RefCell<Option<Waker>>,
    /// The task of the connection, while it wants to read and may not.
    reader: RefCell<Option<Waker>>,
}

impl RequestTracker {
    fn new(periods: HttpPeriods) -> Rc<Self> {
        Rc::new(Self {
            periods,
            has_begun: Cell::new(false),
            answering: Cell::new(0),
            since: Cell::new(Instant::now()),
            head: Cell::new(None),
            awaits_body: Cell::new(false),
            body_bytes: Cell::new(0),
            body_reader: RefCell::default(),
            reader: RefCell::default(),
        })
    }

    /// Notes that the head of a request has come, which is answered until the guard is dropped.
    pub(crate) fn begin(self: &Rc<Self>) -> RequestGuard {
        self.has_begun.set(true);
        self.answering.update(|answering| answering + 1);
        RequestGuard(Rc::clone(self))
    }

    fn end(&self) {
        self.answering.update(|answering| answering - 1);
        self.since.set(turn_time());
        self.head.set(None);
        self.body_bytes.set(0);
        self.wake_reader();
    }

    /// Notes whether the request that is being answered waits for more of its body.
    fn await_body(&self, awaits_body: bool) {
        if !self.awaits_body.replace(awaits_body) && awaits_body {
            self.wake_reader();
        }
    }

    /// Counts bytes of a body of known length that are handed out. After the last one no more is awaited.
    fn hand_out_body(&self, bytes: usize) {
        self.body_bytes.update(|left| left - bytes);
        if self.body_bytes.get() == 0 {
            self.awaits_body.set(false);
        }
    }

    /// Returns whether nothing goes on before more is read.
    fn is_waiting(&self) -> bool {
        self.answering.get() == 0 || self.awaits_body.get()
    }

    fn wake_reader(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Wakes the reader of a body that was told to wait before what came with the head was parsed, and has not looked again.
    fn wake_body_reader(&self) {
        if let Some(reader) = self.body_reader.take() {
            reader.wake();
        }
    }

    fn has_read(&self) {
        if self.answering.get() == 0 && self.head.get().is_none() {
            self.head.set(Some(turn_time()));
        }
    }

    fn has_written(&self) {
        if self.answering.get() == 0 {
            let now = turn_time();
            self.since.set(now);
            self.head.update(|head| head.map(|_| now));
        }
    }

    /// Returns when the connection is to end; `None`: a request is being answered, or the first one has not come.
    fn deadline(&self) -> Option<Instant> {
        let is_waiting = self.has_begun.get() && self.answering.get() == 0;
        let HttpPeriods { idle, request_head, .. } = self.periods;
        is_waiting.then(|| self.head.get().map_or(self.since.get() + idle, |head| head + request_head))
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct RequestGuard(Rc<RequestTracker>);

impl RequestGuard {
    /// Follows how the body of the request is read.
    pub(crate) fn follow_body(&self, request: &mut Request) {
        let length = request.head().headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.trim().parse().ok());
        if let Payload::H1 { payload } = request.take_payload() {
            let (requests, left) = (Rc::clone(&self.0), length.unwrap_or(0));
            let payload: BoxedPayloadStream = Box::pin(TrackedPayload { payload, requests, left, is_polled: false });
            *request.payload() = Payload::Stream { payload };
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The body of a request that is being answered.
///
/// actix-http polls a request before it parses what came of the body together with the head, then parses that, and polls again.
/// If a body that is still to be parsed knew its reader, it would wake the connection's task for a third poll, which finds
/// nothing to do. So the first time its reader is told to wait, the tracker keeps the waker: in case the reader is not polled
/// again, the stream wakes it when the task writes or flushes, or is dropped. After each poll of a request actix-http does one of
/// these: it flushes, or before that writes what has not gone out, which may have to wait for the peer.
struct TrackedPayload {
    payload: h1::Payload,
    requests: Rc<RequestTracker>,
    /// How many bytes of it were not taken yet, where its head says how many it has.
    left: usize,
    /// Whether its reader has polled it.
    is_polled: bool,
}

impl Stream for TrackedPayload {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = if mem::replace(&mut self.is_polled, true) {
            self.requests.body_reader.replace(None);
            Pin::new(&mut self.payload).poll_next(context)
        } else {
            let polled = Pin::new(&mut self.payload).poll_next(&mut Context::from_waker(Waker::noop()));
            self.requests.body_reader.replace(polled.is_pending().then(|| context.waker().clone()));
            polled
        };
        match &polled {
            Poll::Ready(Some(Ok(bytes))) => self.left = self.left.saturating_sub(bytes.len()),
            Poll::Ready(_) => {}
            // All that was handed out of it was taken.
            Poll::Pending => self.requests.body_bytes.set(self.left),
        }
        self.requests.await_body(polled.is_pending());
        polled
    }
}

impl Drop for TrackedPayload {
    fn drop(&mut self) {
        self.requests.body_reader.replace(None);
        self.requests.await_body(false);
    }
}

/// A connection that has its place until it is dropped, ends when its next request does not come in time, and reads little ahead.
pub(crate) struct TimedStream {
    stream: Box<dyn ByteStream>,
    requests: Rc<RequestTracker>,
    /// Wakes the task of the connection at its deadline, or before that.
    alarm: Pin<Box<Sleep>>,
    /// Bytes that were read and not handed out.
    ahead: Bytes,
    /// Whether the task has not parsed what it was handed last: it does when it is told to wait.
    is_unparsed: bool,
    /// Whether a write waits for the peer.
    is_blocked: bool,
    /// The characters of a name that were handed out last, without anything else between them.
    name_bytes: usize,
    /// Whether a name is too long. What comes after it is thrown away.
    is_discarding: bool,
    _permit: ConnectionPermit,
}

impl TimedStream {
    pub(crate) fn new(stream: Box<dyn ByteStream>, permit: ConnectionPermit, periods: HttpPeriods) -> Self {
        let alarm = Box::pin(sleep(periods.idle));
        let requests = RequestTracker::new(periods);
        Self {
            stream,
            requests,
            alarm,
            ahead: Bytes::new(),
            is_unparsed: false,
            is_blocked: false,
            name_bytes: 0,
            is_discarding: false,
            _permit: permit,
        }
    }

    pub(crate) fn requests(&self) -> &Rc<RequestTracker> {
        &self.requests
    }

    /// Returns whether the task can go on with more than it was handed.
    fn is_needed(&self) -> bool {
        !self.is_blocked && self.requests.is_waiting()
    }

    /// Reads what comes, and hands out what the task can go on with. Where that is nothing, the task is woken when it changes.
    fn poll_part(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let is_needed = self.is_needed();
        if is_needed && self.is_discarding {
            return self.poll_discard(context, buffer);
        }
        let body_bytes = if is_needed { self.requests.body_bytes.get() } else { 0 };
        let part_bytes = |came: &[u8], is_unparsed: bool| match body_bytes {
            0 if !is_needed || is_unparsed => 0,
            0 => request_end(came),
            _ => came.len().min(body_bytes),
        };
        let before = buffer.filled().len();
        let bytes = if self.ahead.is_empty() {
            ready!(poll_read_within(&mut self.stream, context, buffer, body_bytes.max(READ_BYTES)))?;
            let came = &buffer.filled()[before..];
            if came.is_empty() {
                // The end of the stream.
                return Poll::Ready(Ok(()));
            }
            let bytes = part_bytes(came, self.is_unparsed);
            self.ahead = Bytes::copy_from_slice(&came[bytes..]);
            buffer.set_filled(before + bytes);
            bytes
        } else {
            let came = &self.ahead[..self.ahead.len().min(buffer.remaining())];
            let bytes = part_bytes(came, self.is_unparsed);
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
            self.requests.has_read();
            return Poll::Ready(Ok(()));
        }
        if is_needed {
            // What was handed out is parsed first.
            context.waker().wake_by_ref();
        } else {
            *self.requests.reader.borrow_mut() = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Notes what is handed out, outside of bodies whose length is known. Returns whether it has a name that is too long.
    fn is_name_too_long(&mut self, bytes: &[u8]) -> bool {
        // A run that begins and ends within them is shorter: they are 16 KiB at most.
        let first = bytes.iter().take_while(|byte| is_of_name(**byte)).count();
        let name_bytes = self.name_bytes + first;
        let is_whole = first == bytes.len();
        let last = || bytes.iter().rev().take_while(|byte| is_of_name(**byte)).count();
        self.name_bytes = if is_whole { name_bytes } else { last() };
        name_bytes > NAME_BYTES_MAX
    }

    /// Throws away what comes, until the time of the connection is over: where the rest of a body is thrown away whose answer is
    /// there, actix-http would do the same, and the peer can read the answer.
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

    /// Notes whether a write waits for the peer, and fails one whose time is over.
    fn written<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if mem::replace(&mut self.is_blocked, polled.is_pending()) && !self.is_blocked {
            self.requests.wake_reader();
        }
        self.in_time(polled, context)
    }

    /// Returns whether the deadline is over; otherwise the task is woken at it, or before that.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        let mut now = turn_time();
        loop {
            let deadline = self.requests.deadline();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return true;
            }
            // Where there is none it looks again later, and not too late: a request ends without a word to the stream.
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

    /// Fails what waits for a peer whose time is over.
    fn in_time<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.is_overdue(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

/// Reads at most so many bytes.
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

/// Returns how many of these bytes are handed out together, so that at most one head ends in them. Each head ends with a blank
/// line: where there is text between two blank lines, they end after the blank lines before that text. Blank lines of a body
/// count, too; the rest of the body is handed out next.
fn request_end(bytes: &[u8]) -> usize {
    // Where a line begins, where the blank lines that came first end, and whether text followed them.
    let (mut line_start, mut end, mut has_text) = (0, None, false);
    for newline in memchr_iter(b'\n', bytes) {
        let is_blank = matches!(&bytes[line_start..newline], b"" | b"\r");
        line_start = newline + 1;
        match end {
            Some(end) if is_blank && has_text => return end,
            Some(_) if !is_blank => has_text = true,
            // One after the other.
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
                // The end of the stream: actix-http closes the connection as when the peer has closed its side.
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
            self.requests.has_written();
        }
        self.written(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.requests.wake_body_reader();
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.written(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.in_time(polled, context)
    }
}

impl Drop for TimedStream {
    fn drop(&mut self) {
        self.requests.wake_body_reader();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
        time::Duration,
    };

    use actix_web::http::header::HeaderValue;

    use super::*;
    use crate::connections::{ConnectionCaps, ConnectionLimiter};

    /// The shortest request.
    const REQUEST: &[u8] = b"G / HTTP/1.1\n\n";

    /// A peer that sends these bytes again and again, and reads while it is told to.
    struct Peer {
        sends: &'static [u8],
        is_reading: Rc<Cell<bool>>,
    }

    impl AsyncRead for Peer {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            buffer.put_slice(&self.sends.repeat(buffer.remaining() / self.sends.len()));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Peer {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.is_reading.get() { Poll::Ready(Ok(bytes.len())) } else { Poll::Pending }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Connection {
        stream: TimedStream,
        is_reading: Rc<Cell<bool>>,
        woken: Arc<Woken>,
    }

    impl Connection {
        fn new(sends: &'static [u8]) -> Self {
            let minute = Duration::from_mins(1);
            let periods =
                HttpPeriods { idle: minute, handshake: minute, request_head: minute, unread: minute, linger: minute };
            let permit =
                ConnectionLimiter::new("test", ConnectionCaps::default(), false).admit(Ipv4Addr::LOCALHOST.into());
            let is_reading = Rc::default();
            let peer = Box::new(Peer { sends, is_reading: Rc::clone(&is_reading) });
            let stream = TimedStream::new(peer, permit.expect("it is the first"), periods);
            Self { stream, is_reading, woken: Arc::default() }
        }

        fn waker(&self) -> Waker {
            Waker::from(Arc::clone(&self.woken))
        }

        /// Returns whether its task was woken since the last look.
        fn is_woken(&self) -> bool {
            self.woken.0.swap(0, Ordering::Relaxed) > 0
        }

        /// Reads until there is nothing more. Returns how many bytes were read, and whether the task is to go on at once.
        fn read(&mut self) -> (usize, bool) {
            let waker = self.waker();
            let (mut bytes, mut room) = (0, vec![0; 64 << 10]);
            loop {
                let mut buffer = ReadBuf::new(&mut room);
                match Pin::new(&mut self.stream).poll_read(&mut Context::from_waker(&waker), &mut buffer) {
                    Poll::Ready(read) => {
                        read.expect("the peer is there");
                        bytes += buffer.filled().len();
                    }
                    Poll::Pending => return (bytes, self.is_woken()),
                }
            }
        }

        fn is_written(&mut self) -> bool {
            let waker = self.waker();
            Pin::new(&mut self.stream).poll_write(&mut Context::from_waker(&waker), b"a").is_ready()
        }
    }

    #[tokio::test]
    async fn one_request_is_handed_out_at_a_time_and_none_while_one_is_answered() {
        let mut connection = Connection::new(REQUEST);
        for _ in 0..3 {
            assert_eq!(connection.read(), (REQUEST.len(), true), "a head is waited for");
        }
        let request = connection.stream.requests().begin();
        assert_eq!(connection.read(), (0, false));
        drop(request);
        assert!(connection.is_woken());
        assert_eq!(connection.read(), (REQUEST.len(), true), "the next head is waited for");

        let mut other = Connection::new(REQUEST);
        let _request = other.stream.requests().begin();
        assert_eq!(other.read(), (0, false));
        assert_eq!(other.stream.ahead.len() / REQUEST.len(), READ_BYTES / REQUEST.len(), "so much is read ahead");
    }

    #[tokio::test]
    async fn a_body_is_handed_out_as_far_as_it_is_waited_for() {
        const BODY: usize = 2_000 * REQUEST.len();
        let mut connection = Connection::new(REQUEST);
        let guard = connection.stream.requests().begin();
        let (mut sender, payload) = h1::Payload::create(false);
        let payload: Payload = Payload::H1 { payload };
        let mut request = Request::with_payload(payload);
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(BODY));
        guard.follow_body(&mut request);
        assert_eq!(connection.read(), (0, false), "it is not waited for");
        // Its beginning came with the head.
        sender.feed_data(Bytes::from_static(REQUEST));
        let (mut body, waker) = (request.take_payload(), connection.waker());
        let mut poll = || Pin::new(&mut body).poll_next(&mut Context::from_waker(&waker));
        assert!(poll().is_ready() && poll().is_pending());
        assert!(connection.is_woken());
        let rest = BODY - REQUEST.len();
        assert_eq!(connection.read(), (rest, false), "the rest of it, and no request after it");
        sender.feed_data(Bytes::from(REQUEST.repeat(rest / REQUEST.len())));
        sender.feed_eof();
        assert!([poll(), poll()].iter().all(Poll::is_ready) && connection.is_woken(), "all of it came");
        assert_eq!(connection.read(), (0, false), "it is answered");
        drop((body, guard));
        assert_eq!(connection.read(), (REQUEST.len(), true), "the next head is waited for");
    }

    #[tokio::test]
    async fn a_body_that_came_with_its_head_wakes_no_reader_and_one_that_did_not_does_at_the_flush() {
        let connection = &mut Connection::new(REQUEST);
        let guard = connection.stream.requests().begin();
        for comes_with_head in [true, false] {
            let (mut sender, payload) = h1::Payload::create(false);
            let payload: Payload = Payload::H1 { payload };
            let mut request = Request::with_payload(payload);
            guard.follow_body(&mut request);
            let (mut body, waker) = (request.take_payload(), connection.waker());
            let context = &mut Context::from_waker(&waker);
            assert!(Pin::new(&mut body).poll_next(context).is_pending(), "it is not parsed");
            if comes_with_head {
                sender.feed_data(Bytes::from_static(REQUEST));
                sender.feed_eof();
                assert!(Pin::new(&mut body).poll_next(context).is_ready());
            }
            assert!(!connection.is_woken());
            assert!(Pin::new(&mut connection.stream).poll_flush(context).is_ready());
            assert_eq!(connection.is_woken(), !comes_with_head);
            assert_eq!(Pin::new(&mut body).poll_next(context).is_ready(), comes_with_head);
            sender.feed_data(Bytes::from_static(REQUEST));
            assert_eq!(connection.is_woken(), !comes_with_head, "its reader waits for more");
        }
    }

    #[tokio::test]
    async fn a_reader_that_was_told_to_wait_is_woken_by_a_write_that_waits_and_by_the_end_of_the_stream() {
        for is_dropped in [false, true] {
            let mut connection = Connection::new(REQUEST);
            let guard = connection.stream.requests().begin();
            let (_sender, payload) = h1::Payload::create(false);
            let payload: Payload = Payload::H1 { payload };
            let mut request = Request::with_payload(payload);
            guard.follow_body(&mut request);
            let (mut body, reader) = (request.take_payload(), Arc::new(Woken::default()));
            let waker = Waker::from(Arc::clone(&reader));
            assert!(Pin::new(&mut body).poll_next(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(reader.0.load(Ordering::Relaxed), 0);
            if is_dropped {
                drop(connection.stream);
            } else {
                assert!(!connection.is_written());
            }
            assert_eq!(reader.0.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_is_handed_out_up_to_each_blank_line() {
        let mut connection = Connection::new(REQUEST);
        let guard = connection.stream.requests().begin();
        let (_sender, payload) = h1::Payload::create(false);
        let payload: Payload = Payload::H1 { payload };
        let mut request = Request::with_payload(payload);
        guard.follow_body(&mut request);
        let (mut body, waker) = (request.take_payload(), connection.waker());
        assert!(Pin::new(&mut body).poll_next(&mut Context::from_waker(&waker)).is_pending());
        for _ in 0..2 {
            assert_eq!(connection.read(), (REQUEST.len(), true));
        }
        drop(body);
        assert_eq!(connection.read(), (0, false), "it is not waited for any more");
    }

    #[tokio::test]
    async fn nothing_is_handed_out_while_the_peer_reads_nothing() {
        let mut connection = Connection::new(REQUEST);
        assert!(!connection.is_written());
        assert_eq!(connection.read(), (0, false));
        connection.is_reading.set(true);
        assert!(connection.is_written() && connection.is_woken());
        assert_eq!(connection.read(), (REQUEST.len(), true));
    }

    #[tokio::test]
    async fn a_long_head_is_read_as_fast_as_it_comes() {
        let mut connection = Connection::new(b"a");
        for _ in 0..3 {
            assert_eq!(connection.read(), (READ_BYTES, true));
        }
    }

    #[tokio::test]
    async fn a_name_that_actix_http_cannot_take_is_not_handed_out() {
        let mut connection = Connection::new(b"a");
        let parts: Vec<_> = (0..6).map(|_| connection.read()).collect();
        assert_eq!(parts, [[(READ_BYTES, true); 3], [(0, true); 3]].concat(), "what comes after it is thrown away");
        let mut stream = Connection::new(b"a").stream;
        let name = vec![b'a'; NAME_BYTES_MAX];
        assert!(!stream.is_name_too_long(&name) && !stream.is_name_too_long(b": b\r\n"));
        assert!(!stream.is_name_too_long(&name) && stream.is_name_too_long(b"a: b\r\n"), "a part that ends otherwise");
    }

    #[test]
    fn one_head_at_most_ends_in_what_is_parsed_together() {
        let head = &b"POST /v1/check HTTP/1.1\r\ncontent-length: 9\r\n\r\n"[..];
        let check = [head, b"{\n\"a\":1}"].concat();
        for (bytes, end) in [
            (&b""[..], 0),
            (&head[..20], 20),
            (&check, check.len()),
            (&[&check, &head[..head.len() - 2]].concat(), check.len() + head.len() - 2),
            (&check.repeat(2), head.len()),
            (&[b"\r\n", head].concat(), 2),
            (&REQUEST.repeat(3), REQUEST.len()),
            (&[&REQUEST[REQUEST.len() - 1..], REQUEST].concat(), 1),
            (&[b"\n".repeat(3), REQUEST.repeat(2)].concat(), 3),
            (&[REQUEST, b"\r\n\n", REQUEST].concat(), REQUEST.len() + 3),
            // Parsed again from their first byte with each part.
            (&b"\n".repeat(READ_BYTES), READ_BYTES),
            // The end of one in chunks, and the next head.
            (&[b"1\r\na\r\n0\r\n\r\n", head].concat(), 11),
        ] {
            assert_eq!(request_end(bytes), end, "{}", bytes.escape_ascii());
        }
    }
}
