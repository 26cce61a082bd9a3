//! A connection over HTTP that ends when its next request does not come in time, and of which little is read ahead.

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
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use crate::{connections::ConnectionPermit, http_listener::HttpPeriods};

/// Bytes that are read beyond the request that is being answered. actix-http reads up to 128 KiB, and parses all requests in
/// them at once: the shortest ones have 18 bytes, and take more than 7,000 bytes of memory each.
const READ_AHEAD_BYTES: usize = 1 << 10;

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
/// Nor does actix-http stop reading while an answer waits for the peer, or for the server. So more is read only where a head is
/// waited for, or more of a body.
#[derive(Debug)]
pub(crate) struct RequestTracker {
    periods: HttpPeriods,
    /// Whether a first request has come.
    has_begun: Cell<bool>,
    /// How many requests are being answered.
    answering: Cell<usize>,
    /// When the last answer was made, or part of it was written after that.
    since: Cell<Instant>,
    /// When the next head's first byte came, or part of the last answer was written after that.
    head: Cell<Option<Instant>>,
    /// Whether the request that is being answered waits for more of its body.
    awaits_body: Cell<bool>,
    /// How many bytes of its body may still come, where its head says that.
    body_bytes: Cell<usize>,
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
        self.since.set(Instant::now());
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

    /// Returns whether nothing goes on before more is read.
    fn is_waiting(&self) -> bool {
        self.answering.get() == 0 || self.awaits_body.get()
    }

    fn wake_reader(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn has_read(&self) {
        if self.answering.get() == 0 && self.head.get().is_none() {
            self.head.set(Some(Instant::now()));
        }
    }

    fn has_written(&self) {
        if self.answering.get() == 0 {
            let now = Instant::now();
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
            self.0.body_bytes.set(length.unwrap_or(0));
            let payload: BoxedPayloadStream = Box::pin(TrackedPayload { payload, requests: Rc::clone(&self.0) });
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
struct TrackedPayload {
    payload: h1::Payload,
    requests: Rc<RequestTracker>,
}

impl Stream for TrackedPayload {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = Pin::new(&mut self.payload).poll_next(context);
        self.requests.await_body(polled.is_pending());
        polled
    }
}

impl Drop for TrackedPayload {
    fn drop(&mut self) {
        self.requests.await_body(false);
    }
}

/// A connection that has its place until it is dropped, ends when its next request does not come in time, and reads little ahead.
pub(crate) struct TimedStream {
    stream: Box<dyn ByteStream>,
    requests: Rc<RequestTracker>,
    /// Wakes the task of the connection at its deadline, or before that.
    alarm: Pin<Box<Sleep>>,
    /// Bytes that were read since something was waited for: [`READ_AHEAD_BYTES`] at most.
    ahead: usize,
    /// Whether the task was told to wait since it read last: it has parsed what it read.
    has_parsed: bool,
    /// Whether a write waits for the peer.
    is_blocked: bool,
    _permit: ConnectionPermit,
}

impl TimedStream {
    pub(crate) fn new(stream: Box<dyn ByteStream>, permit: ConnectionPermit, periods: HttpPeriods) -> Self {
        let alarm = Box::pin(sleep(periods.idle));
        let requests = RequestTracker::new(periods);
        Self { stream, requests, alarm, ahead: 0, has_parsed: false, is_blocked: false, _permit: permit }
    }

    pub(crate) fn requests(&self) -> &Rc<RequestTracker> {
        &self.requests
    }

    /// Returns how many bytes may be read at once, and whether they are of a body whose length is known. `None`: none, and the
    /// task is woken when that changes.
    fn room(&mut self, context: &Context<'_>) -> Option<(usize, bool)> {
        let is_needed = !self.is_blocked && self.requests.is_waiting();
        if is_needed && mem::take(&mut self.has_parsed) {
            self.ahead = 0;
        }
        let body_bytes = self.requests.body_bytes.get();
        if is_needed && body_bytes > 0 && self.ahead < READ_AHEAD_BYTES {
            return Some((body_bytes, true));
        }
        let room = READ_AHEAD_BYTES - self.ahead;
        if room > 0 {
            return Some((room, false));
        }
        if is_needed {
            // What has come is parsed first.
            context.waker().wake_by_ref();
        } else {
            *self.requests.reader.borrow_mut() = Some(context.waker().clone());
        }
        None
    }

    /// Notes that so many bytes were read of the room that there was.
    fn has_read(&mut self, bytes: usize, is_of_body: bool) {
        if is_of_body {
            let left = self.requests.body_bytes.get() - bytes;
            self.requests.body_bytes.set(left);
            // What comes after the body is parsed with it.
            self.ahead = if left == 0 { READ_AHEAD_BYTES } else { self.ahead };
        } else {
            self.ahead += bytes;
        }
        if bytes > 0 {
            self.requests.has_read();
        }
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
        loop {
            let (now, deadline) = (Instant::now(), self.requests.deadline());
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

/// Reads at most so many bytes, and returns how many they are.
fn poll_read_within(
    stream: &mut Box<dyn ByteStream>,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
    room: usize,
) -> Poll<io::Result<usize>> {
    let before = buffer.filled().len();
    if room >= buffer.remaining() {
        ready!(Pin::new(stream).poll_read(context, buffer))?;
        return Poll::Ready(Ok(buffer.filled().len() - before));
    }
    let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
    ready!(Pin::new(stream).poll_read(context, &mut part))?;
    let bytes = part.filled().len();
    buffer.advance(bytes);
    Poll::Ready(Ok(bytes))
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let polled = match this.room(context) {
            Some((room, is_of_body)) => {
                let polled = poll_read_within(&mut this.stream, context, buffer, room);
                polled.map_ok(|bytes| this.has_read(bytes, is_of_body))
            }
            None => Poll::Pending,
        };
        if polled.is_pending() {
            this.has_parsed = true;
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
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.requests.has_written();
        }
        self.written(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.written(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.in_time(polled, context)
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

    /// A peer that sends always, and reads while it is told to.
    struct Peer {
        is_reading: Rc<Cell<bool>>,
    }

    impl AsyncRead for Peer {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            buffer.put_slice(&vec![b'a'; buffer.remaining()]);
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
        fn new() -> Self {
            let minute = Duration::from_mins(1);
            let periods =
                HttpPeriods { idle: minute, handshake: minute, request_head: minute, unread: minute, linger: minute };
            let permit =
                ConnectionLimiter::new("test", ConnectionCaps::default(), false).admit(Ipv4Addr::LOCALHOST.into());
            let is_reading = Rc::default();
            let peer = Box::new(Peer { is_reading: Rc::clone(&is_reading) });
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
    async fn little_is_read_ahead_of_the_request_that_is_answered() {
        let mut connection = Connection::new();
        for _ in 0..3 {
            assert_eq!(connection.read(), (READ_AHEAD_BYTES, true), "a head is waited for");
        }
        let request = connection.stream.requests().begin();
        assert_eq!(connection.read(), (0, false), "what came is enough");
        drop(request);
        assert!(connection.is_woken());
        assert_eq!(connection.read(), (READ_AHEAD_BYTES, true), "the next head is waited for");

        let mut other = Connection::new();
        let _request = other.stream.requests().begin();
        assert_eq!(other.read(), (READ_AHEAD_BYTES, false), "also where nothing had been read ahead");
    }

    #[tokio::test]
    async fn a_body_is_read_as_far_as_it_is_waited_for() {
        let mut connection = Connection::new();
        let guard = connection.stream.requests().begin();
        let (_sender, payload) = h1::Payload::create(false);
        let payload: Payload = Payload::H1 { payload };
        let mut request = Request::with_payload(payload);
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(5_000_u64));
        guard.follow_body(&mut request);
        assert_eq!(connection.read(), (READ_AHEAD_BYTES, false), "it is not waited for");
        let (mut body, waker) = (request.take_payload(), connection.waker());
        assert!(Pin::new(&mut body).poll_next(&mut Context::from_waker(&waker)).is_pending());
        assert!(connection.is_woken());
        assert_eq!(connection.read(), (5_000, true), "its length is known");
        assert_eq!(connection.read(), (READ_AHEAD_BYTES, true), "as where it is not");
        drop(body);
        assert_eq!(connection.read(), (0, false), "it is not waited for any more");
    }

    #[tokio::test]
    async fn little_is_read_of_a_peer_that_reads_nothing() {
        let mut connection = Connection::new();
        assert!(!connection.is_written());
        assert_eq!(connection.read(), (READ_AHEAD_BYTES, false));
        assert_eq!(connection.read(), (0, false));
        connection.is_reading.set(true);
        assert!(connection.is_written() && connection.is_woken());
        assert_eq!(connection.read(), (READ_AHEAD_BYTES, true));
    }
}
