//! A stream of checks: answers the messages that have come, in their order, into one buffer that is sent as a whole.
//! Where there is a store, several checks wait for it at once.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use actix_web::web::{Buf, Bytes, BytesMut};
use futures_util::{
    FutureExt,
    future::BoxFuture,
    stream::{FuturesOrdered, StreamExt},
};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use tidegate::clock::Clock;
use tonic::Status;

use super::{
    check_request::{CheckRequest, read_streamed},
    limiter::LimiterService,
    request_body::RequestBody,
    response_body::GRPC_STATUS,
    response_buffer::{BUFFER_BYTES, ResponseBuffer, answer_framed, split_message},
    status::reject,
};
use crate::shared::{caller_shares::Caller, decider::CONCURRENT_CHECKS_MAX, error::Error};

/// Bytes of responses that are sent together on all streams of a connection: while many are open, each has its part of them.
const CONNECTION_BYTES: usize = 256 << 10;
/// The most bytes of answered messages whose memory is kept for the next messages.
const KEPT_BYTES: usize = 2 << 10;
/// Bytes of messages that wait for a store, beyond which no more are read.
const WAITING_BYTES: usize = 64 << 10;

/// The body of the response to a stream of checks.
pub(super) struct CheckStream<C> {
    limiter: Arc<LimiterService<C>>,
    caller: Caller,
    body: RequestBody<C>,
    /// Bytes of messages that came and are not answered.
    unanswered: BytesMut,
    responses: ResponseBuffer,
    /// Responses that wait for a store, each with the length of its message, which it keeps.
    waiting: FuturesOrdered<BoxFuture<'static, Result<(BytesMut, usize), Status>>>,
    /// Bytes of the messages of those responses.
    waiting_bytes: usize,
    progress: Progress,
}

/// The progress of a stream.
enum Progress {
    /// More messages may come.
    Open,
    /// The stream ends with this status once all responses are sent.
    Ending(Result<(), Status>),
    Ended,
}

impl<C: Clock> CheckStream<C> {
    pub(super) fn new(limiter: Arc<LimiterService<C>>, caller: Caller, body: RequestBody<C>) -> Self {
        Self {
            limiter,
            caller,
            body,
            unanswered: BytesMut::new(),
            responses: ResponseBuffer::default(),
            waiting: FuturesOrdered::new(),
            waiting_bytes: 0,
            progress: Progress::Open,
        }
    }

    /// Answers the messages that have come, as far as the buffer has room and no more wait for the store than may.
    fn answer(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        loop {
            self.begin_answers()?;
            let before = self.waiting.len();
            while !self.responses.is_full()
                && let Poll::Ready(Some(response)) = self.waiting.poll_next_unpin(context)
            {
                let (response, message_bytes) = response?;
                self.responses.bytes.extend_from_slice(&response);
                self.waiting_bytes -= message_bytes;
            }
            if self.waiting.len() == before {
                return Ok(());
            }
        }
    }

    /// Answers messages, or where there is a store begins to.
    fn begin_answers(&mut self) -> Result<(), Status> {
        let can_wait = self.limiter.0.decider.can_wait();
        let mut rest = &self.unanswered[..];
        let mut answered = Ok(());
        while answered.is_ok()
            && !self.responses.is_full()
            && !self.is_waiting_full()
            && let Some((message, after)) = split_message(rest)
        {
            if can_wait {
                let (limiter, caller) = (Arc::clone(&self.limiter), self.caller.clone());
                let message = Bytes::copy_from_slice(message);
                self.waiting_bytes += message.len();
                let response = async move {
                    let mut response = BytesMut::new();
                    let mut check = CheckRequest::default();
                    let read = read_streamed(&message, &mut check);
                    answer_framed(&limiter, read, &check, &caller, &mut response).await?;
                    Ok((response, message.len()))
                };
                self.waiting.push_back(response.boxed());
                rest = after;
            } else {
                match self.responses.answer(rest, &self.limiter, &self.caller) {
                    Ok(after) => rest = after,
                    Err(status) => answered = Err(status),
                }
            }
        }
        let answered_bytes = self.unanswered.len() - rest.len();
        if rest.is_empty() || answered_bytes > KEPT_BYTES {
            self.unanswered = BytesMut::from(rest);
        } else {
            self.unanswered.advance(answered_bytes);
        }
        let kept = self.body.keep(self.waiting_bytes);
        answered?;
        kept.map_err(|error| reject(&self.limiter.0, &error, None))
    }

    /// Returns whether as much waits for the store as may, so that nothing more is read.
    fn is_waiting_full(&self) -> bool {
        self.waiting.len() >= CONCURRENT_CHECKS_MAX || self.waiting_bytes >= WAITING_BYTES
    }

    /// Drops the checks that wait for the store.
    fn drop_waiting(&mut self) {
        (self.waiting, self.waiting_bytes) = (FuturesOrdered::new(), 0);
    }

    /// Ends the stream with an error once all responses are sent. The messages that came are dropped now.
    fn fail(&mut self, status: Status) {
        self.unanswered = BytesMut::new();
        self.body.close();
        self.progress = Progress::Ending(Err(status));
    }
}

impl<C: Clock> Body for CheckStream<C> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        this.responses.bytes_max = BUFFER_BYTES.min(CONNECTION_BYTES / this.body.streams().max(1));
        while matches!(this.progress, Progress::Open) || !this.waiting.is_empty() {
            if let Err(status) = this.answer(context) {
                this.drop_waiting();
                this.fail(status);
                break;
            }
            if this.responses.is_full() {
                break;
            }
            // Nothing more is read while the store is waited for, or once the stream ends.
            if this.is_waiting_full() || !matches!(this.progress, Progress::Open) {
                if this.responses.bytes.is_empty() && !this.waiting.is_empty() {
                    return Poll::Pending;
                }
                break;
            }
            match this.body.poll_chunk(context) {
                Poll::Ready(Ok(Some(chunk))) => this.unanswered.extend_from_slice(&chunk),
                Poll::Ready(Ok(None)) => this.progress = Progress::Ending(Ok(())),
                Poll::Ready(Err(error)) => {
                    if matches!(error, Error::Overload | Error::TooSlow) {
                        // The messages that wait have no part of the body budget any more.
                        this.drop_waiting();
                    }
                    let status = reject(&this.limiter.0, &error, None);
                    this.fail(status);
                }
                Poll::Pending if this.responses.bytes.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if !this.responses.bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(this.responses.bytes.split().freeze()))));
        }
        let Progress::Ending(end) = mem::replace(&mut this.progress, Progress::Ended) else { return Poll::Ready(None) };
        let mut trailers = HeaderMap::new();
        let written = match end {
            Ok(()) => {
                trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
                Ok(())
            }
            Err(status) => status.add_header(&mut trailers),
        };
        Poll::Ready(Some(written.map(|()| Frame::trailers(trailers))))
    }
}
