//! The bodies of gRPC responses: one message with its status, the body of a service that tonic generated, or a stream.
//! A stream ends with its connection, and its end is counted.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_web::web::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tonic::{Code, Status};

use super::{request_body::HEAD_BYTES, status::CODE};
use crate::shared::body_budget::{BodyPermit, PermitPhase};

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// Bytes of a message that are sent at once.
const PIECE_BYTES: usize = 16 << 10;
/// Bytes that most messages fit into.
const MESSAGE_BYTES: usize = 128;

pub(super) type GrpcResponse = Response<ResponseBody>;

pub(super) enum ResponseBody {
    /// A message and the status OK, with the permit that is held until both are sent.
    Message {
        bytes: Bytes,
        _permit: Option<BodyPermit>,
    },
    /// The end: everything was sent.
    Ended,
    /// The body that a service of tonic made.
    Tonic(tonic::body::Body),
    Stream(Box<StreamBody>),
}

/// The time since when the last part of a stream waits for the peer to read it; `None` while none waits.
#[derive(Clone, Debug, Default)]
pub(super) struct UnreadSince(Rc<Cell<Option<Instant>>>);

impl UnreadSince {
    /// Resolves once a part of the stream has waited for this time.
    pub(super) async fn exceeds(&self, period: Duration) {
        loop {
            let now = Instant::now();
            let end = self.0.get().unwrap_or(now) + period;
            if end <= now {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// The body of a stream, which ends with its connection.
pub(super) struct StreamBody {
    inner: ResponseBody,
    unread: UnreadSince,
    /// Resolves when the connection is to end.
    stopping: Pin<Box<dyn Future<Output = ()>>>,
    /// The time for which the stream may then go on while it always has a message.
    end_timeout: Duration,
    end_timer: Option<Pin<Box<Sleep>>>,
    on_end: OnEnd,
}

/// A function that is called once, with the code with which a stream ended, and whether that was counted as a rejection.
struct OnEnd(Option<Box<dyn FnOnce(Code, bool)>>);

/// Appends the head of a message that is written next, and returns its position.
pub(super) fn begin_message(to: &mut BytesMut) -> usize {
    let at = to.len();
    to.put_bytes(0, HEAD_BYTES);
    at
}

/// Sets the length of the message that begins there.
pub(super) fn end_message(to: &mut BytesMut, at: usize) {
    let length = (to.len() - at - HEAD_BYTES) as u32;
    to[at + 1..at + HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// Returns a buffer for the message of a response, with room for this many bytes.
pub(super) fn begin_response(capacity: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(capacity.max(MESSAGE_BYTES));
    begin_message(&mut bytes);
    bytes
}

/// Returns the response with the message that `write` writes.
pub(super) fn message_response(capacity: usize, write: impl FnOnce(&mut BytesMut)) -> GrpcResponse {
    let mut bytes = begin_response(capacity);
    write(&mut bytes);
    finish_response(bytes, None)
}

/// Returns the response with a message that was written to the buffer of [`begin_response`], and its permit.
pub(super) fn finish_response(mut bytes: BytesMut, mut permit: Option<BodyPermit>) -> GrpcResponse {
    end_message(&mut bytes, 0);
    if let Some(permit) = &mut permit {
        // Without more room the permit holds what it held before, so that the caller learns what was decided.
        let _ = permit.hold(bytes.capacity());
        permit.enter(PermitPhase::Response);
    }
    with_content_type(ResponseBody::Message { bytes: bytes.freeze(), _permit: permit })
}

/// Returns the response whose messages a body makes.
pub(super) fn stream_response(body: impl Body<Data = Bytes, Error = Status> + Send + 'static) -> GrpcResponse {
    with_content_type(ResponseBody::Tonic(tonic::body::Body::new(body)))
}

fn with_content_type(body: ResponseBody) -> GrpcResponse {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// Returns the body of a stream that ends within `end_timeout` after `stopping` resolves. `unread` is set while a part
/// of it waits for the peer. `on_end` is called with the code of its end, and whether that was counted as a rejection.
pub(super) fn stream_body(
    inner: ResponseBody,
    stopping: impl Future<Output = ()> + 'static,
    end_timeout: Duration,
    unread: UnreadSince,
    on_end: impl FnOnce(Code, bool) + 'static,
) -> ResponseBody {
    let on_end = OnEnd(Some(Box::new(on_end)));
    let stopping = Box::pin(stopping);
    ResponseBody::Stream(Box::new(StreamBody { inner, unread, stopping, end_timeout, end_timer: None, on_end }))
}

/// Returns the code with which a call ended, by its trailers or its head.
pub(super) fn code(headers: &HeaderMap) -> Option<Code> {
    headers.get(&GRPC_STATUS).map(|code| Code::from_bytes(code.as_bytes()))
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match &mut *self {
            // Sent in pieces, since a whole message would wait in the connection, where no budget counts it.
            Self::Message { bytes, .. } if !bytes.is_empty() => {
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Self::Message { .. } => {
                *self = Self::Ended;
                let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Self::Ended => Poll::Ready(None),
            Self::Tonic(body) => Pin::new(body).poll_frame(context),
            Self::Stream(stream) => {
                let frame = ready!(stream.poll(context));
                if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
                    *self = Self::Ended;
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Ended => true,
            Self::Tonic(body) => body.is_end_stream(),
            _ => false,
        }
    }
}

impl StreamBody {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // Hyper polls for the next part once the peer has taken some of the one before.
        self.unread.0.set(None);
        if self.end_timer.is_none() && self.stopping.as_mut().poll(context).is_ready() {
            self.end_timer = Some(Box::pin(sleep(self.end_timeout)));
        }
        let is_over = self.end_timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready());
        let frame = if is_over { Poll::Pending } else { Pin::new(&mut self.inner).poll_frame(context) };
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    let is_counted = trailers.contains_key(CODE);
                    self.on_end.call(code(trailers).unwrap_or(Code::Ok), is_counted);
                } else {
                    self.unread.0.set(Some(Instant::now()));
                }
            }
            Poll::Ready(Some(Err(status))) => self.on_end.call(status.code(), false),
            Poll::Ready(None) => self.on_end.call(Code::Ok, false),
            Poll::Pending if self.end_timer.is_some() => {
                let why = "the server is stopping; send what was not answered elsewhere";
                let mut trailers = HeaderMap::new();
                let status = Status::unavailable(why);
                self.on_end.call(status.code(), false);
                let written = status.add_header(&mut trailers);
                return Poll::Ready(Some(written.map(|()| Frame::trailers(trailers))));
            }
            Poll::Pending => {}
        }
        frame
    }
}

impl OnEnd {
    fn call(&mut self, code: Code, is_counted: bool) {
        if let Some(on_end) = self.0.take() {
            on_end(code, is_counted);
        }
    }
}

/// Counts a stream whose caller has gone as cancelled.
impl Drop for OnEnd {
    fn drop(&mut self) {
        self.call(Code::Cancelled, false);
    }
}
