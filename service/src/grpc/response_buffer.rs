//! Answers the checks of a stream into one buffer. Checks that the policy alone decides are decided together.

use actix_web::web::BytesMut;
use futures_util::FutureExt;
use tidegate::{CountedIdentity, clock::Clock};
use tonic::Status;

use super::{
    check_request::{CheckRequest, read_streamed},
    check_response::put_streamed_response,
    limiter::LimiterService,
    request_body::HEAD_BYTES,
    response_body::{begin_message, end_message},
    status::reject,
};
use crate::{
    protobuf::error::MessageError,
    shared::{
        caller_shares::Caller,
        decider::{CheckResult, TURN_CHECKS},
    },
};

/// Bytes of responses that are sent together: with the last of them, they fit into a frame of HTTP/2.
pub(super) const BUFFER_BYTES: usize = 15 << 10;
/// The most checks that are decided together. Where responses become longer than those before, these may have more
/// bytes than are to be sent together.
const PLAIN_MAX: usize = 32;
// All of them are decided in one turn, since they wait for nothing.
const _: () = assert!(PLAIN_MAX <= TURN_CHECKS);
/// Bytes that most responses fit into.
const RESPONSE_BYTES: usize = 128;

/// Splits off the first message, if it is whole. Compressed messages and those that are too long were refused before.
pub(super) fn split_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[_, length @ ..], after) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    after.split_at_checked(u32::from_be_bytes(length) as usize)
}

/// A buffer of the responses that are sent together.
pub(super) struct ResponseBuffer {
    pub(super) bytes: BytesMut,
    /// The length from which on no more messages are answered.
    pub(super) bytes_max: usize,
    /// The expected length of a response, by the longest responses of the last groups. As many checks are decided
    /// together as have room for such responses.
    response_bytes: usize,
}

impl Default for ResponseBuffer {
    fn default() -> Self {
        Self { bytes: BytesMut::new(), bytes_max: BUFFER_BYTES, response_bytes: RESPONSE_BYTES }
    }
}

impl ResponseBuffer {
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= self.bytes_max
    }

    /// Answers the first message. If the policy alone decides it, the following such messages are decided with it, as
    /// many as have room, and the message after them is answered by itself. No message is read twice, except one that
    /// no longer has room. Returns the messages that are left.
    pub(super) fn answer<'m, C: Clock>(
        &mut self,
        messages: &'m [u8],
        limiter: &LimiterService<C>,
        caller: &Caller,
    ) -> Result<&'m [u8], Status> {
        let Some((message, mut rest)) = split_message(messages) else { return Ok(messages) };
        let engine = limiter.0.decider.engine();
        let mut first = CheckRequest::default();
        let read = read_streamed(message, &mut first);
        // An empty buffer has room for two at least, or the expected length would never fall again.
        let expected_bytes = self.response_bytes.min(self.bytes_max / 2);
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
            // It is read into its final place.
            let (id, check, end) = checks.push_mut((0, CheckRequest::default(), 0));
            match read_streamed(message, check) {
                Ok(own_id) if check.append_plain(engine, &caller.rights, &mut counted) => {
                    (*id, *end) = (own_id, counted.len());
                    rest = after;
                }
                read => {
                    other = Some((read, *check, after));
                    checks.pop();
                    break;
                }
            }
        }
        self.answer_plain(&checks, &counted, limiter, caller)?;
        if let Some((read, check, after)) = other
            && !self.is_full()
        {
            self.answer_one(read, &check, limiter, caller)?;
            rest = after;
        }
        Ok(rest)
    }

    /// Decides checks together, each with its correlation ID and the end of its identities in `counted`.
    fn answer_plain<C: Clock>(
        &mut self,
        checks: &[(u64, CheckRequest<'_>, usize)],
        counted: &[CountedIdentity<'_>],
        limiter: &LimiterService<C>,
        caller: &Caller,
    ) -> Result<(), Status> {
        let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
        let mut start = 0;
        let requests = checks.iter().map(|(_, check, end)| {
            let request = check.request(&identities[start..*end]);
            start = *end;
            request
        });
        let requests = requests.collect::<Result<Vec<_>, _>>().map_err(|error| reject(&limiter.0, &error, None))?;
        let (mut ids, mut longest) = (checks.iter().map(|(id, ..)| *id), 0);
        let write = |outcome: CheckResult<'_>| {
            let at = begin_message(&mut self.bytes);
            put_streamed_response(ids.next().unwrap_or_default(), &outcome, &mut self.bytes);
            end_message(&mut self.bytes, at);
            longest = longest.max(self.bytes.len() - at);
        };
        ready_output(limiter.0.decider.check_batch(&requests, caller, write))?;
        // After a long response it falls by half with each group, not at once: one response in ten may be long.
        self.response_bytes = longest.max(self.response_bytes / 2).max(RESPONSE_BYTES);
        Ok(())
    }

    /// Answers a message by itself.
    fn answer_one<C: Clock>(
        &mut self,
        read: Result<u64, MessageError>,
        check: &CheckRequest<'_>,
        limiter: &LimiterService<C>,
        caller: &Caller,
    ) -> Result<(), Status> {
        ready_output(answer_framed(limiter, read, check, caller, &mut self.bytes))?
    }
}

/// Returns the output of a future that waits for nothing, since there is no store.
fn ready_output<T>(future: impl Future<Output = T>) -> Result<T, Status> {
    future.now_or_never().ok_or_else(|| Status::internal("a check waits for nothing"))
}

/// Answers a message, and writes the response with its head.
pub(super) async fn answer_framed<C: Clock>(
    limiter: &LimiterService<C>,
    read: Result<u64, MessageError>,
    check: &CheckRequest<'_>,
    caller: &Caller,
    to: &mut BytesMut,
) -> Result<(), Status> {
    let at = begin_message(to);
    limiter.decide_streamed(read, check, caller, to).await.inspect_err(|_| to.truncate(at))?;
    end_message(to, at);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc};

    use prost::Message;
    use tidegate::{Engine, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};

    use super::*;
    use crate::{
        grpc::check_request::STREAMED,
        protobuf::generated::tidegate::v1::{
            CheckStreamRequest, CheckStreamResponse, Identity, RateLimitRequest,
            check_stream_response::Result as StreamResult,
        },
        shared::{
            body_budget::BodyBudget, decider::Decider, health_monitor::HealthMonitor, metrics::Metrics,
            service_state::ServiceState, timeouts::Timeouts,
        },
    };

    /// Returns a service whose responses about a robot are long: each names as many limits as fit.
    fn limiter() -> LimiterService<ManualClock> {
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
        let engine =
            Engine::for_simulation(1_000, ManualClock::at(Timestamp::from_nanos(1_700_000_040_000_000_000)), 7);
        engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a right policy")).expect("room");
        let decider = Arc::new(Decider::new(Arc::new(engine)).expect("random numbers"));
        let timeouts = Timeouts::default();
        let body_budget = Arc::new(BodyBudget::new(&timeouts));
        let health_monitor = Arc::new(HealthMonitor::new(Arc::clone(&decider), Vec::new(), None, None));
        let rejections = Arc::default();
        let metrics = Metrics::new(&decider, &body_budget, Vec::new(), Vec::new(), None, &health_monitor, rejections);
        LimiterService(Arc::new(ServiceState {
            decider,
            metrics,
            body_budget,
            health_monitor,
            tokens: None,
            metrics_tokens: None,
            traces: None,
            timeouts,
            is_draining: Arc::default(),
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

    /// Returns the messages of a stream with these requests, with the correlation IDs 0, 1, 2 and so on.
    fn stream_of(requests: impl IntoIterator<Item = RateLimitRequest>) -> BytesMut {
        let mut to = BytesMut::new();
        for (correlation_id, request) in (0..).zip(requests) {
            let at = begin_message(&mut to);
            let message = CheckStreamRequest { correlation_id, request: Some(request) };
            message.encode(&mut to).expect("room");
            end_message(&mut to, at);
        }
        to
    }

    /// Takes the responses out of a buffer.
    fn take_responses(buffer: &mut ResponseBuffer) -> Vec<CheckStreamResponse> {
        let bytes = buffer.bytes.split();
        let (mut rest, mut responses) = (&bytes[..], Vec::new());
        while let Some((message, after)) = split_message(rest) {
            responses.push(CheckStreamResponse::decode(message).expect("a message"));
            rest = after;
        }
        assert!(rest.is_empty());
        responses
    }

    /// Returns requests that are not decided together with others: wrong ones, some of whose mistakes show late, one
    /// with an ID, and one with `peek`.
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
        let mut buffer = ResponseBuffer::default();
        let mut answered = |requests: Vec<RateLimitRequest>| {
            let messages = stream_of(requests);
            let _ = buffer.answer(&messages, &limiter, &caller).expect("it goes on");
            take_responses(&mut buffer).len()
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
    fn groups_are_smaller_for_a_while_after_a_long_response() {
        let (limiter, caller) = (limiter(), caller());
        let mut buffer = ResponseBuffer { bytes_max: 2 << 10, ..ResponseBuffer::default() };
        let mut answered = |kind| {
            let messages = stream_of(vec![check(kind); 40]);
            let _ = buffer.answer(&messages, &limiter, &caller).expect("it goes on");
            take_responses(&mut buffer).len()
        };
        assert_eq!([answered("user"), answered("robot")], [16, 16]);
        // A response about a robot has some 400 bytes.
        assert_eq!([answered("robot"), answered("user"), answered("user"), answered("user")], [5, 5, 10, 16]);
    }

    #[test]
    fn a_response_of_more_than_half_the_buffer_does_not_end_groups_for_good() {
        let (limiter, caller) = (limiter(), caller());
        let mut buffer = ResponseBuffer { bytes_max: 700, ..ResponseBuffer::default() };
        let mut answered = |kind| {
            let messages = stream_of(vec![check(kind); 40]);
            let _ = buffer.answer(&messages, &limiter, &caller).expect("it goes on");
            take_responses(&mut buffer).len()
        };
        let kinds = ["robot", "robot", "user", "user", "user"];
        assert_eq!(kinds.map(&mut answered), [5, 2, 2, 3, 5]);
    }

    #[test]
    fn every_message_is_read_once_except_the_first_without_room() {
        let (limiter, caller) = (limiter(), caller());
        for other in others() {
            for plain in [0, 1, 31, 100] {
                let requests =
                    (0..400).map(|number| if number % (plain + 1) < plain { check("user") } else { other.clone() });
                let messages = stream_of(requests);
                let (mut buffer, mut rest, mut parts) = (ResponseBuffer::default(), &messages[..], 0);
                STREAMED.set(0);
                let mut answers = Vec::new();
                while !rest.is_empty() {
                    rest = buffer.answer(rest, &limiter, &caller).expect("it goes on");
                    if buffer.is_full() {
                        parts += 1;
                        answers.extend(take_responses(&mut buffer));
                    }
                }
                answers.extend(take_responses(&mut buffer));
                assert!((0..400).eq(answers.iter().map(|answer| answer.correlation_id)));
                // The first message without room is read again.
                let read = STREAMED.get();
                assert!(read <= answers.len() + parts, "{read} in {parts} parts, {other:?} after {plain}");
                let is_wrong = |answer: &&CheckStreamResponse| matches!(answer.result, Some(StreamResult::Error(_)));
                let wrong = answers.iter().filter(is_wrong).count();
                let is_other_right = other.peek || other.request_id == "i";
                assert_eq!(wrong, if is_other_right { 0 } else { 400 / (plain + 1) });
            }
        }
    }
}
