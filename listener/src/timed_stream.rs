//! A connection over HTTP that ends when its next request does not come in time.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use crate::{connections::ConnectionPermit, http_listener::HttpPeriods};

/// A connection, with TLS or without.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream for S {}

/// The time that a connection has for its next request.
///
/// actix-http has a timer for a connection's first head, and none for the rest of a later one: that for the time between requests
/// it stops at the first byte, and begins again whenever the connection's task is woken. This one is for all that comes after the
/// first request. A head that comes together with the request before it does not show here: it has as long as a connection may
/// rest.
#[derive(Debug)]
pub(crate) struct RequestTimer {
    periods: HttpPeriods,
    /// Whether a first request has come.
    has_begun: Cell<bool>,
    /// How many requests are being answered.
    answering: Cell<usize>,
    /// When the last answer was made, or part of it was written after that.
    since: Cell<Instant>,
    /// When the next head's first byte came, or part of the last answer was written after that.
    head: Cell<Option<Instant>>,
}

impl RequestTimer {
    fn new(periods: HttpPeriods) -> Rc<Self> {
        Rc::new(Self {
            periods,
            has_begun: Cell::new(false),
            answering: Cell::new(0),
            since: Cell::new(Instant::now()),
            head: Cell::new(None),
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
pub(crate) struct RequestGuard(Rc<RequestTimer>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A connection that has its place until it is dropped, and ends when its next request does not come in time.
pub(crate) struct TimedStream {
    stream: Box<dyn ByteStream>,
    requests: Rc<RequestTimer>,
    /// Wakes the task of the connection at its deadline, or before that.
    alarm: Pin<Box<Sleep>>,
    _permit: ConnectionPermit,
}

impl TimedStream {
    pub(crate) fn new(stream: Box<dyn ByteStream>, permit: ConnectionPermit, periods: HttpPeriods) -> Self {
        let alarm = Box::pin(sleep(periods.idle));
        Self { stream, requests: RequestTimer::new(periods), alarm, _permit: permit }
    }

    pub(crate) fn requests(&self) -> &Rc<RequestTimer> {
        &self.requests
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

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_pending() && self.is_overdue(context) {
            // The end of the stream: actix-http closes the connection as when the peer has closed its side.
            return Poll::Ready(Ok(()));
        }
        if buffer.filled().len() > before {
            self.requests.has_read();
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
        self.in_time(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.in_time(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.in_time(polled, context)
    }
}
