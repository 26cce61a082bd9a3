//! A stream of checks: the messages that have come are answered in their order into one buffer, which goes out as a whole. Checks
//! that the policy alone decides are decided together; where there is a store, several checks wait for it together.

use std::{
    convert::Infallible,
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
use tidegate::{CountedIdentity, clock::Clock};
use tonic::Status;

use super::{
    answers::{GRPC_STATUS, end_message, put_head},
    body::{self, HEAD_BYTES},
    limiter::Limiter,
    refuse,
    wire::{self, Asked},
};
use crate::{
    callers::Caller,
    decider::{self, TOGETHER},
    error::Error,
};

/// Answers that are ready together leave together, up to so many bytes: with the last of them, they fit into a frame of HTTP/2.
const TOGETHER_BYTES: usize = 15 << 10;
/// Bytes of answers that leave together on all streams of a connection: while many are open, each has its part of them.
const CONNECTION_BYTES: usize = 256 << 10;

/// Checks that are decided together, at most. Where their answers are longer than each before them, so many of them are more than
/// what is to leave together.
const PLAIN_MAX: usize = 32;
/// Bytes that most answers fit into.
const ANSWER_BYTES: usize = 128;

/// Bytes that were answered, and whose memory is kept for what comes next.
const KEPT_BYTES: usize = 2 << 10;
/// Bytes of messages that wait for a store, beyond which no more are read.
const WAITING_BYTES: usize = 64 << 10;

/// The body of the answer to a stream.
pub(super) struct Exchange<C> {
    limiter: Arc<Limiter<C>>,
    caller: Caller,
    body: body::Body<C>,
    /// What came and is not answered.
    came: BytesMut,
    told: BytesMut,
    /// Bytes of answers that leave together.
    told_bytes_max: usize,
    /// Bytes of the longest answer so far: as many checks are decided together as have room for such answers.
    answer_bytes: usize,
    /// Answers that wait for a store, each with the length of its message, which it keeps.
    waiting: FuturesOrdered<BoxFuture<'static, Result<(BytesMut, usize), Status>>>,
    /// Bytes of the messages of those.
    waiting_bytes: usize,
    end: End,
}

/// How far it is.
enum End {
    Open,
    /// It is told how it ended once all answers are out.
    Near(Result<(), Status>),
    Over,
}

impl<C: Clock> Exchange<C> {
    pub(super) fn new(limiter: Arc<Limiter<C>>, caller: Caller, body: body::Body<C>) -> Self {
        Self {
            limiter,
            caller,
            body,
            came: BytesMut::new(),
            told: BytesMut::new(),
            told_bytes_max: TOGETHER_BYTES,
            answer_bytes: ANSWER_BYTES,
            waiting: FuturesOrdered::new(),
            waiting_bytes: 0,
            end: End::Open,
        }
    }

    /// Answers what has come, as far as it fits into what goes out together, and waits together.
    fn answer(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        loop {
            self.begin()?;
            let before = self.waiting.len();
            while self.told.len() < self.told_bytes_max
                && let Poll::Ready(Some(told)) = self.waiting.poll_next_unpin(context)
            {
                let (told, message_bytes) = told?;
                self.told.extend_from_slice(&told);
                self.waiting_bytes -= message_bytes;
            }
            if self.waiting.len() == before {
                return Ok(());
            }
        }
    }

    fn begin(&mut self) -> Result<(), Status> {
        let waits = self.limiter.0.decider.waits();
        let mut rest = &self.came[..];
        let mut answered = Ok(());
        while answered.is_ok()
            && self.told.len() < self.told_bytes_max
            && !self.is_waiting()
            && let Some((message, after)) = split_message(rest)
        {
            let room = (self.told_bytes_max - self.told.len()) / self.answer_bytes;
            if !waits && room > 1 && split_message(after).is_some() {
                let plain = answer_plain(&self.limiter, rest, room.min(PLAIN_MAX), &self.caller, &mut self.told);
                self.answer_bytes = self.answer_bytes.max(plain.answer_bytes);
                if plain.message_bytes > 0 {
                    rest = &rest[plain.message_bytes..];
                    continue;
                }
            }
            if waits {
                let (limiter, caller) = (Arc::clone(&self.limiter), self.caller.clone());
                let message = Bytes::copy_from_slice(message);
                self.waiting_bytes += message.len();
                let told = async move {
                    let mut told = BytesMut::new();
                    framed(&limiter, &message, &caller, &mut told).await?;
                    Ok((told, message.len()))
                };
                self.waiting.push_back(told.boxed());
            } else {
                let before = self.told.len();
                let told = framed(&self.limiter, message, &self.caller, &mut self.told).now_or_never();
                self.answer_bytes = self.answer_bytes.max(self.told.len() - before);
                answered = told.unwrap_or_else(|| Err(Status::internal("a check waits for nothing")));
            }
            rest = after;
        }
        let answered_bytes = self.came.len() - rest.len();
        if rest.is_empty() || answered_bytes > KEPT_BYTES {
            self.came = BytesMut::from(rest);
        } else {
            self.came.advance(answered_bytes);
        }
        let kept = self.body.keep(self.waiting_bytes);
        answered?;
        kept.map_err(|error| refuse(&self.limiter.0, &error, None))
    }

    /// Returns whether so much waits for a store that nothing more is read.
    fn is_waiting(&self) -> bool {
        self.waiting.len() >= TOGETHER || self.waiting_bytes >= WAITING_BYTES
    }

    fn drop_waiting(&mut self) {
        (self.waiting, self.waiting_bytes) = (FuturesOrdered::new(), 0);
    }

    /// Ends with an error when all answers are out. Nothing that came is kept until then.
    fn fail(&mut self, status: Status) {
        self.came = BytesMut::new();
        self.body.close();
        self.end = End::Near(Err(status));
    }
}

/// Splits off the first message, if it is whole. Compressed messages, and those that are too long, do not come this far.
fn split_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[_, length @ ..], after) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    after.split_at_checked(u32::from_be_bytes(length) as usize)
}

/// The messages that were answered together.
#[derive(Default)]
struct PlainAnswers {
    /// Bytes of the messages.
    message_bytes: usize,
    /// Bytes of the longest answer.
    answer_bytes: usize,
}

/// Answers messages up to the first one that is not a check which the policy alone decides, or is wrong: at most `count_max`.
fn answer_plain<C: Clock>(
    limiter: &Limiter<C>,
    messages: &[u8],
    count_max: usize,
    caller: &Caller,
    to: &mut BytesMut,
) -> PlainAnswers {
    let decider = &limiter.0.decider;
    let mut checks = Vec::with_capacity(count_max);
    let mut counted = Vec::with_capacity(count_max);
    let mut rest = messages;
    while checks.len() < count_max
        && let Some((message, after)) = split_message(rest)
    {
        let start = counted.len();
        // It is read where it stays.
        let (id, asked, end) = checks.push_mut((0, Asked::default(), start));
        let is_plain = wire::streamed(message, asked).is_ok_and(|correlation_id| {
            *id = correlation_id;
            matches!(asked.is_plain(), Ok(true))
                && asked.permit(&caller.rights).is_ok()
                && asked.identities(decider.engine(), &mut counted).is_ok()
        });
        if !is_plain {
            counted.truncate(start);
            checks.pop();
            break;
        }
        *end = counted.len();
        rest = after;
    }
    let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
    let mut start = 0;
    let requests = checks.iter().map_while(|(_, asked, end)| {
        let request = asked.request(&identities[start..*end]).ok()?;
        start = *end;
        Some(request)
    });
    let requests: Vec<_> = requests.collect();
    let mut plain = PlainAnswers::default();
    let (mut ids, mut rest) = (checks.iter().map(|(id, ..)| *id), messages);
    let tell = |answer: decider::Answer<'_>| {
        let at = put_head(to);
        wire::streamed_response(ids.next().unwrap_or_default(), &answer, to);
        let Ok(()) = end_message(to, at, Ok::<_, Infallible>(()));
        plain.answer_bytes = plain.answer_bytes.max(to.len() - at);
        (_, rest) = split_message(rest).unwrap_or_default();
    };
    // It does not wait: there is no store, and a turn has more checks than these.
    let _ = decider.check_batch(&requests, caller, tell).now_or_never();
    plain.message_bytes = messages.len() - rest.len();
    plain
}

async fn framed<C: Clock>(
    limiter: &Limiter<C>,
    message: &[u8],
    caller: &Caller,
    to: &mut BytesMut,
) -> Result<(), Status> {
    let at = put_head(to);
    let written = limiter.streamed(message, caller, to).await;
    end_message(to, at, written)
}

impl<C: Clock> Body for Exchange<C> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        this.told_bytes_max = TOGETHER_BYTES.min(CONNECTION_BYTES / this.body.streams().max(1));
        while matches!(this.end, End::Open) || !this.waiting.is_empty() {
            if let Err(status) = this.answer(context) {
                this.drop_waiting();
                this.fail(status);
                break;
            }
            if this.told.len() >= this.told_bytes_max {
                break;
            }
            // Nothing more is read, but what waits.
            if this.is_waiting() || !matches!(this.end, End::Open) {
                if this.told.is_empty() && !this.waiting.is_empty() {
                    return Poll::Pending;
                }
                break;
            }
            match this.body.poll_chunk(context) {
                Poll::Ready(Ok(Some(chunk))) => this.came.extend_from_slice(&chunk),
                Poll::Ready(Ok(None)) => this.end = End::Near(Ok(())),
                Poll::Ready(Err(error)) => {
                    if matches!(error, Error::Overload | Error::TooSlow) {
                        // What waits may have no part of the body budget any more.
                        this.drop_waiting();
                    }
                    let status = refuse(&this.limiter.0, &error, None);
                    this.fail(status);
                }
                Poll::Pending if this.told.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if !this.told.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(this.told.split().freeze()))));
        }
        let End::Near(end) = std::mem::replace(&mut this.end, End::Over) else { return Poll::Ready(None) };
        let mut trailers = HeaderMap::new();
        let told = match end {
            Ok(()) => {
                trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
                Ok(())
            }
            Err(status) => status.add_header(&mut trailers),
        };
        Poll::Ready(Some(told.map(|()| Frame::trailers(trailers))))
    }
}
