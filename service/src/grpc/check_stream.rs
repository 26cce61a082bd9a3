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
    check_message::{self, Asked, Refusal},
    limiter::Limiter,
    refuse,
    request_body::{self, HEAD_BYTES},
    response_body::{GRPC_STATUS, end_message, put_head},
};
use crate::{
    http::error::Error,
    shared::{
        caller_shares::Caller,
        decider::{Answer, TOGETHER, TURN_CHECKS},
    },
};

/// Answers that are ready together leave together, up to so many bytes: with the last of them, they fit into a frame of HTTP/2.
const TOGETHER_BYTES: usize = 15 << 10;
/// Bytes of answers that leave together on all streams of a connection: while many are open, each has its part of them.
const CONNECTION_BYTES: usize = 256 << 10;

/// Checks that are decided together, at most. Where answers become longer than those before, so many of them may be more than is to
/// leave together.
const PLAIN_MAX: usize = 32;
// So many are decided in one turn: they wait for nothing.
const _: () = assert!(PLAIN_MAX <= TURN_CHECKS);
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
    body: request_body::Body<C>,
    /// What came and is not answered.
    came: BytesMut,
    answers: AnswerBuffer,
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
    pub(super) fn new(limiter: Arc<Limiter<C>>, caller: Caller, body: request_body::Body<C>) -> Self {
        Self {
            limiter,
            caller,
            body,
            came: BytesMut::new(),
            answers: AnswerBuffer::default(),
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
            while !self.answers.is_full()
                && let Poll::Ready(Some(told)) = self.waiting.poll_next_unpin(context)
            {
                let (told, message_bytes) = told?;
                self.answers.bytes.extend_from_slice(&told);
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
            && !self.answers.is_full()
            && !self.is_waiting()
            && let Some((message, after)) = split_message(rest)
        {
            if waits {
                let (limiter, caller) = (Arc::clone(&self.limiter), self.caller.clone());
                let message = Bytes::copy_from_slice(message);
                self.waiting_bytes += message.len();
                let told = async move {
                    let mut told = BytesMut::new();
                    let mut asked = Asked::default();
                    let read = check_message::streamed(&message, &mut asked);
                    framed(&limiter, read, &asked, &caller, &mut told).await?;
                    Ok((told, message.len()))
                };
                self.waiting.push_back(told.boxed());
                rest = after;
            } else {
                match self.answers.answer(rest, &self.limiter, &self.caller) {
                    Ok(after) => rest = after,
                    Err(status) => answered = Err(status),
                }
            }
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

/// Answers that leave together.
struct AnswerBuffer {
    bytes: BytesMut,
    /// Once it has so many bytes, no more messages are answered.
    bytes_max: usize,
    /// The length that is expected of an answer, by the longest ones of the last groups. As many checks are decided together as
    /// have room for such answers.
    answer_bytes: usize,
}

impl Default for AnswerBuffer {
    fn default() -> Self {
        Self { bytes: BytesMut::new(), bytes_max: TOGETHER_BYTES, answer_bytes: ANSWER_BYTES }
    }
}

impl AnswerBuffer {
    fn is_full(&self) -> bool {
        self.bytes.len() >= self.bytes_max
    }

    /// Answers the first message. If it is a check that the policy alone decides, those that follow it are decided with it, as many
    /// as have room, and the message after them is answered alone. No message is read twice, but one that has no room any more.
    /// Returns the messages that are left.
    fn answer<'m, C: Clock>(
        &mut self,
        messages: &'m [u8],
        limiter: &Limiter<C>,
        caller: &Caller,
    ) -> Result<&'m [u8], Status> {
        let Some((message, mut rest)) = split_message(messages) else { return Ok(messages) };
        let engine = limiter.0.decider.engine();
        let mut first = Asked::default();
        let read = check_message::streamed(message, &mut first);
        // At least two in an empty buffer, or the length that is expected would never fall again.
        let expected_bytes = self.answer_bytes.min(self.bytes_max / 2);
        let count_max = (self.bytes_max.saturating_sub(self.bytes.len()) / expected_bytes).min(PLAIN_MAX);
        let mut counted = Vec::new();
        let first_id = match read {
            Ok(id)
                if count_max > 1
                    && split_message(rest).is_some()
                    && first.append_plain(engine, &caller.rights, &mut counted) =>
            {
                id
            }
            read => return self.answer_one(read, &first, limiter, caller).map(|()| rest),
        };
        let mut checks = Vec::with_capacity(count_max);
        checks.push((first_id, first, counted.len()));
        counted.reserve(count_max);
        let mut other = None;
        while checks.len() < count_max
            && let Some((message, after)) = split_message(rest)
        {
            // It is read where it stays.
            let (id, asked, end) = checks.push_mut((0, Asked::default(), 0));
            match check_message::streamed(message, asked) {
                Ok(own_id) if asked.append_plain(engine, &caller.rights, &mut counted) => {
                    (*id, *end) = (own_id, counted.len());
                    rest = after;
                }
                read => {
                    other = Some((read, *asked, after));
                    checks.pop();
                    break;
                }
            }
        }
        self.answer_plain(&checks, &counted, limiter, caller)?;
        if let Some((read, asked, after)) = other
            && !self.is_full()
        {
            self.answer_one(read, &asked, limiter, caller)?;
            rest = after;
        }
        Ok(rest)
    }

    /// Decides checks together: each has its correlation id, and where its identities end.
    fn answer_plain<C: Clock>(
        &mut self,
        checks: &[(u64, Asked<'_>, usize)],
        counted: &[CountedIdentity<'_>],
        limiter: &Limiter<C>,
        caller: &Caller,
    ) -> Result<(), Status> {
        let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
        let mut start = 0;
        let requests = checks.iter().map(|(_, asked, end)| {
            let request = asked.request(&identities[start..*end]);
            start = *end;
            request
        });
        let requests = requests.collect::<Result<Vec<_>, _>>().map_err(|error| refuse(&limiter.0, &error, None))?;
        let (mut ids, mut longest) = (checks.iter().map(|(id, ..)| *id), 0);
        let tell = |answer: Answer<'_>| {
            let at = put_head(&mut self.bytes);
            check_message::streamed_response(ids.next().unwrap_or_default(), &answer, &mut self.bytes);
            let Ok(()) = end_message(&mut self.bytes, at, Ok::<_, Infallible>(()));
            longest = longest.max(self.bytes.len() - at);
        };
        at_once(limiter.0.decider.check_batch(&requests, caller, tell))?;
        // It falls again after long answers, not at once: an answer in ten may be long.
        self.answer_bytes = longest.max(self.answer_bytes / 2).max(ANSWER_BYTES);
        Ok(())
    }

    /// Answers a message that was read alone.
    fn answer_one<C: Clock>(
        &mut self,
        read: Result<u64, Refusal>,
        asked: &Asked<'_>,
        limiter: &Limiter<C>,
        caller: &Caller,
    ) -> Result<(), Status> {
        at_once(framed(limiter, read, asked, caller, &mut self.bytes))?
    }
}

/// Returns what a future comes to that waits for nothing, since there is no store.
fn at_once<T>(answered: impl Future<Output = T>) -> Result<T, Status> {
    answered.now_or_never().ok_or_else(|| Status::internal("a check waits for nothing"))
}

async fn framed<C: Clock>(
    limiter: &Limiter<C>,
    read: Result<u64, Refusal>,
    asked: &Asked<'_>,
    caller: &Caller,
    to: &mut BytesMut,
) -> Result<(), Status> {
    let at = put_head(to);
    let written = limiter.streamed(read, asked, caller, to).await;
    end_message(to, at, written)
}

impl<C: Clock> Body for Exchange<C> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        this.answers.bytes_max = TOGETHER_BYTES.min(CONNECTION_BYTES / this.body.streams().max(1));
        while matches!(this.end, End::Open) || !this.waiting.is_empty() {
            if let Err(status) = this.answer(context) {
                this.drop_waiting();
                this.fail(status);
                break;
            }
            if this.answers.is_full() {
                break;
            }
            // Nothing more is read, but what waits.
            if this.is_waiting() || !matches!(this.end, End::Open) {
                if this.answers.bytes.is_empty() && !this.waiting.is_empty() {
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
                Poll::Pending if this.answers.bytes.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if !this.answers.bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(this.answers.bytes.split().freeze()))));
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use prost::Message;
    use tidegate::{Engine, Snapshot, clock::ManualClock, formats::Format};

    use super::{
        super::proto::tidegate::v1::{
            CheckStreamRequest, CheckStreamResponse, Identity, RateLimitRequest, check_stream_response::Result as Told,
        },
        *,
    };
    use crate::{
        http::Browsers,
        listeners::Shared,
        shared::{
            body_budget::BodyBudget, decider::Decider, health_monitor::Watch, metrics::Metrics, timeouts::Periods,
        },
    };

    /// Answers about a robot are long: each names as many limits as fit.
    fn limiter() -> Limiter<ManualClock> {
        let limits = (0..30).map(|number| {
            let id = format!("a-limit-with-a-long-name-{number}");
            format!(r#"{{ id = "{id}", algorithm = "fixed_window", limit = 0, period = "1m", mode = "shadow" }}"#)
        });
        let policy = format!(
            r#"
            [domains.default]
            defaults = {{ user = "free", robot = "seen" }}
            [[domains.default.tiers]]
            id = "free"
            limits = [{{ id = "minute", algorithm = "fixed_window", limit = 100, period = "1m" }}]
            [[domains.default.tiers]]
            id = "seen"
            limits = [{}]
            "#,
            limits.collect::<Vec<_>>().join(", ")
        );
        let engine = Engine::for_simulation(1_000, ManualClock::at(1_700_000_040_000_000_000), 7);
        engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a right policy")).expect("room");
        let decider = Arc::new(Decider::new(Arc::new(engine)).expect("random numbers"));
        let periods = Periods::default();
        let body_budget = Arc::new(BodyBudget::new(&periods));
        let watch = Arc::new(Watch::new(Arc::clone(&decider), Vec::new(), None, None));
        let refusals = Arc::default();
        let metrics = Metrics::new(&decider, &body_budget, Vec::new(), Vec::new(), None, &watch, refusals);
        Limiter(Arc::new(Shared {
            decider,
            metrics,
            body_budget,
            watch,
            tokens: None,
            metrics_tokens: None,
            browsers: Browsers::default(),
            traces: None,
            periods,
            is_leaving: Arc::default(),
        }))
    }

    fn caller() -> Caller {
        Caller::without_token(IpAddr::from([192, 0, 2, 1]).into())
    }

    fn check(kind: &str) -> RateLimitRequest {
        RateLimitRequest {
            identifier_type: kind.to_owned(),
            identifier: "ada".to_owned(),
            ..RateLimitRequest::default()
        }
    }

    /// Writes messages as they come on a stream, with the ids 0, 1, 2 and so on.
    fn written(requests: impl IntoIterator<Item = RateLimitRequest>) -> BytesMut {
        let mut to = BytesMut::new();
        for (correlation_id, request) in (0..).zip(requests) {
            let at = put_head(&mut to);
            let message = CheckStreamRequest { correlation_id, request: Some(request) };
            message.encode(&mut to).expect("room");
            let Ok(()) = end_message(&mut to, at, Ok::<_, Infallible>(()));
        }
        to
    }

    /// Takes the answers out of a buffer.
    fn taken(buffer: &mut AnswerBuffer) -> Vec<CheckStreamResponse> {
        let bytes = buffer.bytes.split();
        let (mut rest, mut answers) = (&bytes[..], Vec::new());
        while let Some((message, after)) = split_message(rest) {
            answers.push(CheckStreamResponse::decode(message).expect("a message"));
            rest = after;
        }
        assert!(rest.is_empty());
        answers
    }

    /// Requests that are not decided with others: wrong ones, of which some mistakes show late, and one with an id, and a peek.
    fn others() -> [RateLimitRequest; 7] {
        let twice = Identity { kind: "user".to_owned(), value: "bob".to_owned() };
        [
            check(""),
            RateLimitRequest { identities: vec![twice], ..check("user") },
            RateLimitRequest { tokens_requested: -1, ..check("user") },
            RateLimitRequest { endpoint: "/".repeat(8_193), ..check("user") },
            RateLimitRequest { request_id: "i".repeat(129), ..check("user") },
            RateLimitRequest { request_id: "i".to_owned(), ..check("user") },
            RateLimitRequest { peek: true, ..check("user") },
        ]
    }

    #[test]
    fn a_group_ends_at_its_length_and_after_the_first_message_of_another_kind() {
        let (limiter, caller) = (limiter(), caller());
        let mut buffer = AnswerBuffer::default();
        let mut answered = |requests: Vec<RateLimitRequest>| {
            let messages = written(requests);
            let _ = buffer.answer(&messages, &limiter, &caller).expect("it goes on");
            taken(&mut buffer).len()
        };
        assert_eq!(answered(vec![check("user"); 40]), PLAIN_MAX);
        for other in others() {
            for before in [0, 1, 5, PLAIN_MAX - 1] {
                let plain = vec![check("user"); before];
                let requests = [plain, vec![other.clone()], vec![check("user"); 5]].concat();
                assert_eq!(answered(requests), before + 1, "{other:?}");
            }
        }
    }

    #[test]
    fn after_a_long_answer_groups_are_smaller_for_a_while() {
        let (limiter, caller) = (limiter(), caller());
        let mut buffer = AnswerBuffer { bytes_max: 2 << 10, ..AnswerBuffer::default() };
        let mut answered = |kind| {
            let messages = written(vec![check(kind); 40]);
            let _ = buffer.answer(&messages, &limiter, &caller).expect("it goes on");
            taken(&mut buffer).len()
        };
        assert_eq!([answered("user"), answered("robot")], [16, 16]);
        // An answer about a robot has some 400 bytes.
        assert_eq!([answered("robot"), answered("user"), answered("user"), answered("user")], [5, 5, 10, 16]);
    }

    #[test]
    fn an_answer_of_more_than_half_the_room_does_not_end_groups_for_good() {
        let (limiter, caller) = (limiter(), caller());
        let mut buffer = AnswerBuffer { bytes_max: 700, ..AnswerBuffer::default() };
        let mut answered = |kind| {
            let messages = written(vec![check(kind); 40]);
            let _ = buffer.answer(&messages, &limiter, &caller).expect("it goes on");
            taken(&mut buffer).len()
        };
        let kinds = ["robot", "robot", "user", "user", "user"];
        assert_eq!(kinds.map(&mut answered), [5, 2, 2, 3, 5]);
    }

    #[test]
    fn every_message_is_read_once() {
        let (limiter, caller) = (limiter(), caller());
        for other in others() {
            for plain in [0, 1, 31, 100] {
                let requests =
                    (0..400).map(|number| if number % (plain + 1) < plain { check("user") } else { other.clone() });
                let messages = written(requests);
                let (mut buffer, mut rest, mut parts) = (AnswerBuffer::default(), &messages[..], 0);
                check_message::STREAMED.set(0);
                let mut answers = Vec::new();
                while !rest.is_empty() {
                    rest = buffer.answer(rest, &limiter, &caller).expect("it goes on");
                    if buffer.is_full() {
                        parts += 1;
                        answers.extend(taken(&mut buffer));
                    }
                }
                answers.extend(taken(&mut buffer));
                assert!((0..400).eq(answers.iter().map(|answer| answer.correlation_id)));
                // But the first one that has no room.
                let read = check_message::STREAMED.get();
                assert!(read <= answers.len() + parts, "{read} in {parts} parts, {other:?} after {plain}");
                let is_wrong = |answer: &&CheckStreamResponse| matches!(answer.result, Some(Told::Error(_)));
                let wrong = answers.iter().filter(is_wrong).count();
                let is_other_right = other.peek || other.request_id == "i";
                assert_eq!(wrong, if is_other_right { 0 } else { 400 / (plain + 1) });
            }
        }
    }
}
