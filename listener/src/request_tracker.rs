//! Tracks the requests of a connection over HTTP: when the next one is overdue, and whether more may be read.

use std::{
    cell::{Cell, RefCell},
    mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use actix_http::{BoxedPayloadStream, Payload, Request, error::PayloadError, h1};
use actix_web::{http::header::CONTENT_LENGTH, web::Bytes};
use futures_util::Stream;
use tokio::time::Instant;

use crate::{http_listener::HttpPeriods, turns::turn_time};

/// The requests of a connection: the deadline of the next one, and whether more may be read.
///
/// actix-http has a timer for the first head of a connection, but none for the rest of a later head: its timer for the time
/// between requests stops at the first byte, and restarts whenever the connection's task is woken. This tracker times all heads
/// after the first request. A head that arrives together with the request before it is not seen here: its limit is the time for
/// which a connection may be idle.
///
/// actix-http also does not stop reading while an answer waits for the peer or for the server, and it parses all that it has read.
/// A request may take 30 kB of memory. If it has parsed a head whose body is not complete, it mistakes that body for the unread
/// body of the request before, writes `connection: close` in the answer to that request, and may cut off later answers. Therefore
/// the stream hands out one request at a time, and only while actix-http waits for a head or for more of a body.
#[derive(Debug)]
pub(crate) struct RequestTracker {
    pub(crate) periods: HttpPeriods,
    /// Whether the first request has arrived.
    has_begun: Cell<bool>,
    /// The number of requests that are being answered.
    answering: Cell<usize>,
    /// The start of the turn in which the last answer was made, or in which a part of it was written later.
    since: Cell<Instant>,
    /// The start of the turn in which the first byte of the next head arrived, or in which a part of the last answer was written
    /// later.
    head: Cell<Option<Instant>>,
    /// Whether the request that is being answered waits for more of its body.
    awaits_body: Cell<bool>,
    /// The number of bytes of that body that have not arrived, if its head has its length.
    pub(crate) body_bytes: Cell<usize>,
    /// The waker of the reader of that body, from the first poll until the next one, or until the task writes, flushes or ends.
    body_reader: RefCell<Option<Waker>>,
    /// The waker of the connection's task, while the task waits for permission to read.
    pub(crate) reader: RefCell<Option<Waker>>,
}

impl RequestTracker {
    pub(crate) fn new(periods: HttpPeriods) -> Rc<Self> {
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

    /// Notes that the head of a request has arrived. The request is being answered until the guard is dropped.
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

    /// Counts bytes of a body of known length that are handed out. After the last byte the request does not wait for more.
    pub(crate) fn hand_out_body(&self, bytes: usize) {
        self.body_bytes.update(|left| left - bytes);
        if self.body_bytes.get() == 0 {
            self.awaits_body.set(false);
        }
    }

    /// Returns whether the server can do nothing before it reads more.
    pub(crate) fn is_waiting(&self) -> bool {
        self.answering.get() == 0 || self.awaits_body.get()
    }

    /// Wakes the task of the connection if it waits for permission to read.
    pub(crate) fn wake_reader(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Wakes a reader of a body that had to wait because the bytes that arrived with the head were not parsed yet, unless it has
    /// polled again.
    pub(crate) fn wake_body_reader(&self) {
        if let Some(reader) = self.body_reader.take() {
            reader.wake();
        }
    }

    /// Notes that bytes were handed out: outside of a request they begin a head.
    pub(crate) fn note_read(&self) {
        if self.answering.get() == 0 && self.head.get().is_none() {
            self.head.set(Some(turn_time()));
        }
    }

    /// Notes that a part of an answer was written, which restarts the time of the next request.
    pub(crate) fn note_written(&self) {
        if self.answering.get() == 0 {
            let now = turn_time();
            self.since.set(now);
            self.head.update(|head| head.map(|_| now));
        }
    }

    /// Returns the time at which the connection ends, or `None` if a request is being answered or the first one has not arrived.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let is_waiting = self.has_begun.get() && self.answering.get() == 0;
        let HttpPeriods { idle, request_head, .. } = self.periods;
        is_waiting.then(|| self.head.get().map_or(self.since.get() + idle, |head| head + request_head))
    }
}

/// A guard for a request that is being answered.
#[derive(Debug)]
pub(crate) struct RequestGuard(Rc<RequestTracker>);

impl RequestGuard {
    /// Wraps the body of the request, so that the tracker knows when its reader waits.
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
/// actix-http polls a request before it parses the part of the body that arrived with the head, then parses that part, and polls
/// again. If the unparsed body knew its reader, it would wake the connection's task for a third poll, which would find nothing to
/// do. So the first time the reader has to wait, the tracker keeps the waker. If the reader is not polled again, the stream wakes
/// it when the task writes or flushes, or when the stream is dropped. After each poll of a request actix-http does one of these:
/// it flushes, or before that it writes unsent bytes, which may have to wait for the peer.
struct TrackedPayload {
    payload: h1::Payload,
    requests: Rc<RequestTracker>,
    /// The number of bytes that the reader has not taken, if the head has the length of the body.
    left: usize,
    /// Whether the reader has polled the body.
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
            // The reader has taken all bytes that were handed out.
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
