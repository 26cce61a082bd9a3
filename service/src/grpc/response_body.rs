//! The bodies of answers: one message and that all went well, or what tonic makes of a refusal or of messages as they come. A
//! stream is told how it ended when it has ended, and ends when its connection is to.

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

use super::request_body::HEAD_BYTES;
use crate::shared::body_budget::{BodyPermit, PermitPhase};

pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// As much of a message is sent at once.
const PIECE_BYTES: usize = 16 << 10;
/// What most answers fit into.
const MESSAGE_BYTES: usize = 128;

/// An answer.
pub(crate) type Told = Response<Answer>;

/// Its body.
pub(crate) enum Answer {
    /// A message that is to be sent, and then that all went well; and its permit until both are.
    Message {
        bytes: Bytes,
        _permit: Option<BodyPermit>,
    },
    Over,
    Made(tonic::body::Body),
    Stream(Box<Stream>),
}

/// Since when the last part of a stream waits for the peer to read; `None`: it does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadSince(Rc<Cell<Option<Instant>>>);

impl UnreadSince {
    /// Resolves when a part of the stream has waited for this period.
    pub(crate) async fn lasts(&self, period: Duration) {
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

/// Messages as they come.
pub(crate) struct Stream {
    made: Answer,
    unread: UnreadSince,
    /// Resolves when the connection is to end.
    leaving: Pin<Box<dyn Future<Output = ()>>>,
    /// How long it may go on then, if there is always something to say.
    end_period: Duration,
    last_words: Option<Pin<Box<Sleep>>>,
    ended: Ended,
}

/// Is told with which code a stream ended, and whether the refusal was counted.
struct Ended(Option<Box<dyn FnOnce(Code, bool)>>);

/// Appends the head of a message that is written next; says where it begins.
pub(crate) fn put_head(to: &mut BytesMut) -> usize {
    let at = to.len();
    to.put_bytes(0, HEAD_BYTES);
    at
}

/// The message that begins there is written. What could not be is not there.
pub(crate) fn end_message<E>(to: &mut BytesMut, at: usize, written: Result<(), E>) -> Result<(), E> {
    if written.is_err() {
        to.truncate(at);
    } else {
        let length = (to.len() - at - HEAD_BYTES) as u32;
        to[at + 1..at + HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
    }
    written
}

/// What a message is written to as the answer of a call, for which so many bytes are taken at first.
pub(crate) fn begun(capacity: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(capacity.max(MESSAGE_BYTES));
    put_head(&mut bytes);
    bytes
}

/// The same, written.
pub(crate) fn whole(capacity: usize, write: impl FnOnce(&mut BytesMut)) -> Result<Told, Status> {
    let mut bytes = begun(capacity);
    write(&mut bytes);
    sent(bytes, None)
}

/// A message that was [begun](begun) and written, with its permit.
pub(crate) fn sent(mut bytes: BytesMut, mut permit: Option<BodyPermit>) -> Result<Told, Status> {
    end_message(&mut bytes, 0, Ok::<_, Status>(()))?;
    if let Some(permit) = &mut permit {
        // Where there is no more room it holds what it did: what was decided is told.
        let _ = permit.hold(bytes.capacity());
        permit.enter(PermitPhase::Answer);
    }
    let mut told = Response::new(Answer::Message { bytes: bytes.freeze(), _permit: permit });
    told.headers_mut().insert(CONTENT_TYPE, GRPC);
    Ok(told)
}

/// Messages as they come, as a body makes them.
pub(crate) fn exchange(body: impl Body<Data = Bytes, Error = Status> + Send + 'static) -> Told {
    let mut told = Response::new(Answer::Made(tonic::body::Body::new(body)));
    told.headers_mut().insert(CONTENT_TYPE, GRPC);
    told
}

/// The body of a stream, which is to end when `leaving` resolves, within `end_period`. `unread` is told while a part of it waits
/// for the peer; `ended` is told with which code it did, and whether that was counted as a refusal.
pub(crate) fn stream(
    made: Answer,
    leaving: impl Future<Output = ()> + 'static,
    end_period: Duration,
    unread: UnreadSince,
    ended: impl FnOnce(Code, bool) + 'static,
) -> Answer {
    let ended = Ended(Some(Box::new(ended)));
    Answer::Stream(Box::new(Stream { made, unread, leaving: Box::pin(leaving), end_period, last_words: None, ended }))
}

/// How a call ended, by its trailers or by its head.
pub(crate) fn code(headers: &HeaderMap) -> Option<Code> {
    headers.get(&GRPC_STATUS).map(|code| Code::from_bytes(code.as_bytes()))
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match &mut *self {
            // In pieces: what is given away whole waits in the connection, where nobody counts it.
            Self::Message { bytes, .. } if !bytes.is_empty() => {
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Self::Message { .. } => {
                *self = Self::Over;
                let well = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
                Poll::Ready(Some(Ok(Frame::trailers(well))))
            }
            Self::Over => Poll::Ready(None),
            Self::Made(made) => Pin::new(made).poll_frame(context),
            Self::Stream(stream) => {
                let frame = ready!(stream.poll(context));
                if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
                    *self = Self::Over;
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Over => true,
            Self::Made(made) => made.is_end_stream(),
            _ => false,
        }
    }
}

impl Stream {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // hyper asks for the next part when the peer lets some of the one before come.
        self.unread.0.set(None);
        if self.last_words.is_none() && self.leaving.as_mut().poll(context).is_ready() {
            self.last_words = Some(Box::pin(sleep(self.end_period)));
        }
        let is_over = self.last_words.as_mut().is_some_and(|last| last.as_mut().poll(context).is_ready());
        let frame = if is_over { Poll::Pending } else { Pin::new(&mut self.made).poll_frame(context) };
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    let is_counted = trailers.contains_key(super::status::CODE);
                    self.ended.tell(code(trailers).unwrap_or(Code::Ok), is_counted);
                } else {
                    self.unread.0.set(Some(Instant::now()));
                }
            }
            Poll::Ready(Some(Err(status))) => self.ended.tell(status.code(), false),
            Poll::Ready(None) => self.ended.tell(Code::Ok, false),
            Poll::Pending if self.last_words.is_some() => {
                let why = "the server is stopping; send what was not answered elsewhere";
                let mut trailers = HeaderMap::new();
                let status = Status::unavailable(why);
                self.ended.tell(status.code(), false);
                let made = status.add_header(&mut trailers);
                return Poll::Ready(Some(made.map(|()| Frame::trailers(trailers))));
            }
            Poll::Pending => {}
        }
        frame
    }
}

impl Ended {
    fn tell(&mut self, code: Code, is_counted: bool) {
        if let Some(tell) = self.0.take() {
            tell(code, is_counted);
        }
    }
}

/// Whoever asked went away.
impl Drop for Ended {
    fn drop(&mut self) {
        self.tell(Code::Cancelled, false);
    }
}
