//! Messages of checks: what the engine is asked by them, and how its answers are told.

use std::{str, time::Duration};

use actix_web::web::{BufMut, BytesMut};
use arrayvec::ArrayVec;
use prost::{
    Message,
    encoding::{
        DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint, skip_field,
    },
};
use tidegate::{
    CountedIdentity, DEFAULT_DOMAIN, Decision, Engine, Identity, Request, RequestError, Retry, clock::Clock,
};
use tonic::Status;

use super::{proto::tidegate::v1::RateLimitRequest, refuse};
use crate::{
    http::{
        error::{CHECKS_MAX, Error},
        response_body::ms_rounded_up,
    },
    listeners::Shared,
    shared::{
        caller_shares::Caller,
        decider::{Answer, Decider},
        request_id_cache::{Call, RequestId},
        tokens::Rights,
    },
};

/// The identities of one request, the identifier among them.
const IDENTITIES_MAX: usize = 8;
/// Fields, by their numbers.
pub(crate) const REQUESTS: u32 = 1;
const IDENTITIES: u32 = 8;

/// Why a request is not decided.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Its bytes are no message; what prost says.
    NoMessage(String),
    Wrong(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Wrong(error)
    }
}

impl Refusal {
    /// As the status of a call, or of a part of its message, which stands at `within`.
    pub(crate) fn told<C>(self, shared: &Shared<C>, within: Option<&str>) -> Status {
        match (self, within) {
            (Self::NoMessage(why), Some(place)) => Status::invalid_argument(format!("{place}: {why}")),
            (Self::NoMessage(why), None) => Status::invalid_argument(why),
            (Self::Wrong(error), _) => refuse(shared, &error, within),
        }
    }
}

/// What is wrong, and with which request of a batch.
pub(crate) type Wrong = (Refusal, Option<usize>);

/// A `RateLimitRequest` as it stands in its message, of which nothing is copied. Of a field that comes twice the last counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked<'m> {
    identifier: &'m str,
    identifier_type: &'m str,
    endpoint: &'m str,
    tokens_requested: i32,
    method: &'m str,
    domain: &'m str,
    tier: &'m str,
    request_id: &'m str,
    peek: bool,
    /// All of it, where the other identities are, and how many.
    message: &'m [u8],
    others: usize,
}

/// A field of a message.
pub(crate) enum Value<'m> {
    Number(u64),
    Bytes(&'m [u8]),
    /// Of a type that nothing here has.
    Other,
}

/// The fields of a message with their numbers, up to where it cannot be read: there comes one `None`.
pub(crate) struct Fields<'m>(pub(crate) &'m [u8]);

impl<'m> Iterator for Fields<'m> {
    type Item = Option<(u32, Value<'m>)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut rest = std::mem::take(&mut self.0);
        let mut field = || {
            let (field, kind) = decode_key(&mut rest).ok()?;
            let value = match kind {
                WireType::Varint => Value::Number(decode_varint(&mut rest).ok()?),
                WireType::LengthDelimited => {
                    let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
                    let (bytes, after) = rest.split_at_checked(length)?;
                    rest = after;
                    Value::Bytes(bytes)
                }
                _ => {
                    skip_field(kind, field, &mut rest, DecodeContext::default()).ok()?;
                    Value::Other
                }
            };
            Some((field, value))
        };
        let field = field();
        if field.is_some() {
            self.0 = rest;
        }
        Some(field)
    }
}

/// How many values with bytes a field of a message has, as far as it can be read. What a message has too many of is known by it
/// before there is memory for each.
pub(crate) fn count(message: &[u8], field: u32) -> usize {
    Fields(message).filter(|read| matches!(read, Some((read, Value::Bytes(_))) if *read == field)).count()
}

pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    str::from_utf8(bytes).ok()
}

impl<'m> Asked<'m> {
    /// Reads it where it is: to move it costs as much as to read it.
    pub(crate) fn read(&mut self, message: &'m [u8]) -> Result<(), Refusal> {
        self.fields(message).ok_or_else(|| unread(message))
    }

    fn fields(&mut self, message: &'m [u8]) -> Option<()> {
        self.message = message;
        for field in Fields(message) {
            match field? {
                (1, Value::Bytes(bytes)) => self.identifier = text(bytes)?,
                (2, Value::Bytes(bytes)) => self.identifier_type = text(bytes)?,
                (3, Value::Bytes(bytes)) => self.endpoint = text(bytes)?,
                // As protobuf reads an int32.
                (4, Value::Number(tokens)) => self.tokens_requested = tokens as i32,
                // The caller's time.
                (5, Value::Number(_)) => {}
                (6, Value::Bytes(bytes)) => self.method = text(bytes)?,
                (7, Value::Bytes(bytes)) => self.domain = text(bytes)?,
                (IDENTITIES, Value::Bytes(bytes)) => {
                    identity(bytes)?;
                    self.others += 1;
                }
                (9, Value::Bytes(bytes)) => self.tier = text(bytes)?,
                (10, Value::Bytes(bytes)) => self.request_id = text(bytes)?,
                (11, Value::Number(peek)) => self.peek = peek != 0,
                (1..=11, _) => return None,
                _ => {}
            }
        }
        Some(())
    }

    /// Kind and value of the identities beside the identifier.
    fn others(&self) -> ArrayVec<(&'m str, &'m str), IDENTITIES_MAX> {
        let identities = Fields(self.message).filter_map(|field| match field? {
            (IDENTITIES, Value::Bytes(bytes)) => identity(bytes),
            _ => None,
        });
        identities.take(IDENTITIES_MAX).collect()
    }

    /// Returns an error unless the rights hold in its domain.
    pub(crate) fn permit(&self, rights: &Rights) -> Result<(), Error> {
        Ok(rights.permit_domain(self.domain())?)
    }

    /// Returns the domain, which is the default one unless it names another.
    fn domain(&self) -> &'m str {
        if self.domain.is_empty() { DEFAULT_DOMAIN } else { self.domain }
    }

    /// Appends the identities as they are counted: the identifier first.
    pub(crate) fn identities<C: Clock>(
        &self,
        engine: &Engine<C>,
        to: &mut impl Extend<CountedIdentity<'m>>,
    ) -> Result<(), Error> {
        let count = 1 + self.others;
        if count > IDENTITIES_MAX {
            let error = RequestError::Identities(count);
            return Err(Error::Request { field: "identities".to_owned(), error });
        }
        let domain = self.domain();
        let identity = |kind, value, place| {
            let counted = Identity::new(kind, value).and_then(|identity| engine.counted(domain, identity));
            counted.map_err(|error| self.refused(error, place))
        };
        to.extend([identity(self.identifier_type, self.identifier, 0)?]);
        if self.others > 0 {
            for (place, (kind, value)) in self.others().into_iter().enumerate() {
                to.extend([identity(kind, value, place + 1)?]);
            }
        }
        Ok(())
    }

    /// The request, about these identities.
    pub(crate) fn request<'r>(&self, identities: &'r [Identity<'r>]) -> Result<Request<'r>, Error>
    where
        'm: 'r,
    {
        let refused = |error| self.refused(error, 0);
        let mut request = Request::new(identities).map_err(refused)?;
        // What is empty was not given.
        if !self.endpoint.is_empty() {
            request = request.endpoint(self.endpoint).map_err(refused)?;
        }
        if self.tokens_requested != 0 {
            let Ok(cost) = u64::try_from(self.tokens_requested) else {
                let problem = format!("{} is out of range; from 1 to {} fit, 0 is 1", self.tokens_requested, i32::MAX);
                return Err(Error::Field { field: "tokens_requested".to_owned(), problem });
            };
            request = request.cost(cost).map_err(refused)?;
        }
        if !self.domain.is_empty() {
            request = request.domain(self.domain);
        }
        if !self.method.is_empty() {
            request = request.method(self.method);
        }
        if !self.tier.is_empty() {
            request = request.tier(self.tier);
        }
        Ok(request)
    }

    /// The id, if it has one.
    fn id(&self) -> Result<Option<RequestId<'m>>, Error> {
        let id = Some(self.request_id).filter(|id| !id.is_empty());
        id.map(RequestId::new).transpose().map_err(Error::RequestId)
    }

    /// Is it a check that is decided by nothing but the policy? What is wrong with its id is told.
    pub(crate) fn is_plain(&self) -> Result<bool, Error> {
        Ok(self.id()?.is_none() && !self.peek)
    }

    /// Returns whether it is a check that the policy alone decides, with nothing wrong; then its identities are appended.
    pub(crate) fn append_plain<C: Clock>(
        &self,
        engine: &Engine<C>,
        rights: &Rights,
        to: &mut Vec<CountedIdentity<'m>>,
    ) -> bool {
        let start = to.len();
        let is_plain = matches!(self.is_plain(), Ok(true))
            && self.permit(rights).is_ok()
            && self.identities(engine, to).is_ok()
            && {
                let own: ArrayVec<_, IDENTITIES_MAX> = to[start..].iter().map(CountedIdentity::identity).collect();
                self.request(&own).is_ok()
            };
        if !is_plain {
            to.truncate(start);
        }
        is_plain
    }

    /// Has it decided, if its caller has rights in its domain; with a peek, only says what would be decided.
    pub(crate) async fn decide<'e, C: Clock>(
        &self,
        decider: &'e Decider<C>,
        call: Call,
        caller: &Caller,
    ) -> Result<Answer<'e>, Error> {
        self.permit(&caller.rights)?;
        let mut counted = ArrayVec::<_, IDENTITIES_MAX>::new();
        self.identities(decider.engine(), &mut counted)?;
        let identities: ArrayVec<_, IDENTITIES_MAX> = counted.iter().map(CountedIdentity::identity).collect();
        self.decided(decider, call, caller, &self.request(&identities)?).await
    }

    /// The same, of a request that was made of it.
    pub(crate) async fn decided<'e, C: Clock>(
        &self,
        decider: &'e Decider<C>,
        call: Call,
        caller: &Caller,
        request: &Request<'_>,
    ) -> Result<Answer<'e>, Error> {
        let id = self.id()?;
        match (call, self.peek) {
            (Call::Check, true) => Ok(decider.peek(request, caller).await),
            (Call::Check, false) => decider.check(request, id, caller).await.map_err(Error::Reused),
            (Call::Reserve, true) => Err(Error::PeekOfReservation),
            (Call::Reserve, false) => decider.reserve(request, id, caller).await.map_err(Error::from),
        }
    }

    /// Names the field; `place` is that of the identity in question, of which the identifier is the first.
    fn refused(&self, error: RequestError, place: usize) -> Error {
        let of = |own: &str, name: &str, place: usize| match place {
            0 => own.to_owned(),
            place => format!("identities/{}/{name}", place - 1),
        };
        let field = match &error {
            RequestError::Identities(_) => "identities".to_owned(),
            RequestError::RepeatedKind(kind) => {
                let last = self.others().iter().rposition(|(other, _)| other == kind);
                of("identifier_type", "kind", last.map_or(0, |last| last + 1))
            }
            RequestError::Kind(_) => of("identifier_type", "kind", place),
            RequestError::Value { .. } | RequestError::Address(_) => of("identifier", "value", place),
            RequestError::Endpoint(_) => "endpoint".to_owned(),
            RequestError::Cost(_) => "tokens_requested".to_owned(),
        };
        Error::Request { field, error }
    }
}

/// Kind and value of an `Identity`.
fn identity(message: &[u8]) -> Option<(&str, &str)> {
    let (mut kind, mut value) = ("", "");
    for field in Fields(message) {
        match field? {
            (1, Value::Bytes(bytes)) => kind = text(bytes)?,
            (2, Value::Bytes(bytes)) => value = text(bytes)?,
            (1 | 2, _) => return None,
            _ => {}
        }
    }
    Some((kind, value))
}

/// Prost says what is wrong, unless that took more memory than any request may.
#[cold]
fn unread(message: &[u8]) -> Refusal {
    let is_small = count(message, IDENTITIES) < IDENTITIES_MAX;
    let why = is_small.then(|| RateLimitRequest::decode(message).err()).flatten();
    why.map_or_else(no_message, |error| Refusal::NoMessage(error.to_string()))
}

pub(crate) fn no_message() -> Refusal {
    Refusal::NoMessage("this is no message".to_owned())
}

/// The requests of a batch.
pub(crate) fn batch(message: &[u8]) -> Result<Vec<Asked<'_>>, Wrong> {
    let count = count(message, REQUESTS);
    if count > CHECKS_MAX {
        let problem = format!("{count} in one batch; at most {CHECKS_MAX} fit, send the others in another");
        return Err((Error::Field { field: "requests".to_owned(), problem }.into(), None));
    }
    let mut requests = Vec::with_capacity(count);
    for field in Fields(message) {
        match field {
            Some((REQUESTS, Value::Bytes(request))) => {
                let mut asked = Asked::default();
                asked.read(request).map_err(|refusal| (refusal, Some(requests.len())))?;
                requests.push(asked);
            }
            Some((REQUESTS, _)) | None => return Err((no_message(), None)),
            Some(_) => {}
        }
    }
    Ok(requests)
}

#[cfg(test)]
thread_local! {
    /// Counts the messages of streams that were read.
    pub(crate) static STREAMED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Reads the request of a message on a stream, and says its correlation id. A request that comes twice, which no library writes, is none.
pub(crate) fn streamed<'m>(message: &'m [u8], asked: &mut Asked<'m>) -> Result<u64, Refusal> {
    #[cfg(test)]
    STREAMED.set(STREAMED.get() + 1);
    let (mut correlation_id, mut request) = (0, None);
    for field in Fields(message) {
        match (field, request) {
            (Some((1, Value::Number(id))), _) => correlation_id = id,
            (Some((2, Value::Bytes(bytes))), None) => request = Some(bytes),
            (Some((1 | 2, _)) | None, _) => return Err(no_message()),
            (Some(_), _) => {}
        }
    }
    asked.read(request.unwrap_or_default())?;
    Ok(correlation_id)
}

/// Writes the `CheckStreamResponse` of a decision.
pub(crate) fn streamed_response(correlation_id: u64, answer: &Answer<'_>, to: &mut BytesMut) {
    put_correlation_id(correlation_id, to);
    put_within(2, to, |to| response(answer, to));
}

/// Writes the id of the message that is answered: the beginning of a `CheckStreamResponse`.
pub(crate) fn put_correlation_id(correlation_id: u64, to: &mut BytesMut) {
    put_varint(1, correlation_id, to);
}

/// Writes the `RateLimitResponse` of a decision.
pub(crate) fn response(answer: &Answer<'_>, to: &mut BytesMut) {
    let decision = answer.decision.as_ref();
    let limit_id = decision.and_then(Decision::limit_id);
    let remaining = decision.and_then(Decision::remaining);
    let wait = match decision.map(Decision::retry) {
        Some(Retry::Now) => Some(Duration::ZERO),
        Some(Retry::After(wait)) => Some(wait),
        Some(Retry::Never) => None,
        None if answer.is_allowed => Some(Duration::ZERO),
        None => Some(Answer::CLOSED_WAIT),
    };
    let has_wait = limit_id.is_some() || !answer.is_allowed;
    let remaining_tokens = match remaining {
        Some(remaining) => clamped(remaining),
        None if answer.is_allowed => i32::MAX,
        None => 0,
    };
    let retry_after_seconds = wait.map_or(i32::MAX, |wait| clamped(seconds(wait)));
    // Where they are absent they are 0 to whoever reads them.
    let or_zero: [_; OR_ZERO] = [
        (1, u64::from(answer.is_allowed)),
        (2, u64::from(remaining_tokens.cast_unsigned())),
        (3, decision.and_then(Decision::reset_at).map_or(0, seconds)),
        (4, u64::from(retry_after_seconds.cast_unsigned())),
        (11, answer.policy_version),
    ];
    let where_known: [_; WHERE_KNOWN] = [
        (5, decision.and_then(Decision::limit)),
        (6, remaining),
        (7, decision.and_then(Decision::reset_after).map(ms_rounded_up)),
        (8, wait.filter(|_| has_wait).map(ms_rounded_up)),
        (9, decision.filter(|_| limit_id.is_some()).map(Decision::delay).map(ms_rounded_up)),
    ];
    let mut numbers = Numbers::new();
    for (field, number) in or_zero {
        if number != 0 {
            put_number(field, number, &mut numbers);
        }
    }
    for (field, number) in where_known {
        if let Some(number) = number {
            put_number(field, number, &mut numbers);
        }
    }
    to.put_slice(&numbers);
    if let Some(limit_id) = limit_id {
        put_text(10, limit_id, to);
    }
    if let Some(reason) = answer.degraded {
        put_text(12, reason.name(), to);
    }
    for limit in decision.into_iter().flat_map(Decision::shadow_denied) {
        put_text(13, limit, to);
    }
}

/// Fields with numbers.
const OR_ZERO: usize = 5;
const WHERE_KNOWN: usize = 5;
/// Each has a byte for what it is, and ten at most for its value.
type Numbers = ArrayVec<u8, { (OR_ZERO + WHERE_KNOWN) * 11 }>;

/// Of a field below 16.
fn put_number(field: u8, mut number: u64, to: &mut Numbers) {
    to.push(field << 3);
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Writes the `ReserveResponse` of a decision.
pub(crate) fn reserved(answer: &Answer<'_>, to: &mut BytesMut) {
    put_within(1, to, |to| response(answer, to));
    if let Some(id) = answer.reservation {
        put_text(2, &id.to_string(), to);
    }
}

/// Writes a field with this number, unless that is 0, which is what is read where it is absent.
pub(crate) fn put_varint(field: u32, number: u64, to: &mut BytesMut) {
    if number != 0 {
        encode_key(field, WireType::Varint, to);
        encode_varint(number, to);
    }
}

pub(crate) fn put_text(field: u32, text: &str, to: &mut BytesMut) {
    encode_key(field, WireType::LengthDelimited, to);
    encode_varint(text.len() as u64, to);
    to.put_slice(text.as_bytes());
}

/// Writes a message within another one.
pub(crate) fn put_within(field: u32, to: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    encode_key(field, WireType::LengthDelimited, to);
    let at = to.len();
    // Most are shorter than 128 bytes, whose length is one.
    to.put_u8(0);
    write(to);
    let length = to.len() - at - 1;
    let more = encoded_len_varint(length as u64) - 1;
    to.put_bytes(0, more);
    if more > 0 {
        to.copy_within(at + 1..at + 1 + length, at + 1 + more);
    }
    encode_varint(length as u64, &mut &mut to[at..]);
}

fn clamped(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Rounded up.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use proptest::prelude::*;
    use prost::Message;
    use tidegate::{Engine, Snapshot, algorithm::NUMBER_MAX, clock::ManualClock, formats::Format};

    use super::{
        super::proto::tidegate::v1::{
            BatchRateLimitRequest, CheckStreamRequest, Identity, RateLimitResponse, ReserveResponse,
        },
        *,
    };

    /// Nothing waits without a store.
    fn now<T>(told: impl Future<Output = T>) -> T {
        told.now_or_never().expect("it is ready")
    }

    fn text_of() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), "[a-z0-9/ü]{1,12}"]
    }

    prop_compose! {
        fn message()(
            (identifier, identifier_type, endpoint, method) in (text_of(), text_of(), text_of(), text_of()),
            (domain, tier, request_id) in (text_of(), text_of(), text_of()),
            (tokens_requested, timestamp, peek) in (any::<i32>(), any::<i64>(), any::<bool>()),
            also in prop::collection::vec((text_of(), text_of()), 0..4),
        ) -> RateLimitRequest {
            let identities = also.into_iter().map(|(kind, value)| Identity { kind, value }).collect();
            RateLimitRequest {
                identifier, identifier_type, endpoint, tokens_requested, timestamp, method, domain, identities, tier,
                request_id, peek,
            }
        }
    }

    /// What an answer says, field by field.
    fn reference(answer: &Answer<'_>) -> RateLimitResponse {
        let decision = answer.decision;
        let limit_id = decision.and_then(|decision| decision.limit_id().map(str::to_owned));
        let remaining = decision.and_then(|decision| decision.remaining());
        let up = |duration: Duration| u64::try_from(duration.as_nanos().div_ceil(1_000_000)).expect("it fits");
        let wait = match decision.map(|decision| decision.retry()) {
            None if !answer.is_allowed => Some(Duration::from_secs(1)),
            None | Some(Retry::Now) => Some(Duration::ZERO),
            Some(Retry::After(wait)) => Some(wait),
            Some(Retry::Never) => None,
        };
        let is_told = limit_id.is_some() || !answer.is_allowed;
        let whole = |duration: Duration| duration.as_nanos().div_ceil(1_000_000_000);
        RateLimitResponse {
            allowed: answer.is_allowed,
            remaining_tokens: remaining.map_or(if answer.is_allowed { i32::MAX } else { 0 }, |remaining| {
                remaining.min(i32::MAX as u64) as i32
            }),
            reset_time: decision.and_then(|decision| decision.reset_at()).map_or(0, |at| whole(at) as i64),
            retry_after_seconds: wait.map_or(i32::MAX, |wait| whole(wait).min(i32::MAX as u128) as i32),
            limit: decision.and_then(|decision| decision.limit()),
            remaining,
            reset_after_ms: decision.and_then(|decision| decision.reset_after()).map(up),
            retry_after_ms: wait.filter(|_| is_told).map(up),
            delay_ms: limit_id.as_ref().and(decision).map(|decision| up(decision.delay())),
            limit_id,
            policy_version: answer.policy_version,
            degraded: answer.degraded.map(|reason| reason.name().to_owned()).unwrap_or_default(),
            shadow_denied: decision.iter().flat_map(Decision::shadow_denied).map(str::to_owned).collect(),
            error: None,
        }
    }

    fn read(bytes: &[u8]) -> Result<Asked<'_>, Refusal> {
        let mut asked = Asked::default();
        asked.read(bytes).map(|()| asked)
    }

    /// As prost has it, without the time.
    fn owned(asked: &Asked<'_>) -> RateLimitRequest {
        let other = |(kind, value): (&str, &str)| Identity { kind: kind.to_owned(), value: value.to_owned() };
        RateLimitRequest {
            identifier: asked.identifier.to_owned(),
            identifier_type: asked.identifier_type.to_owned(),
            endpoint: asked.endpoint.to_owned(),
            tokens_requested: asked.tokens_requested,
            timestamp: 0,
            method: asked.method.to_owned(),
            domain: asked.domain.to_owned(),
            identities: asked.others().into_iter().map(other).collect(),
            tier: asked.tier.to_owned(),
            request_id: asked.request_id.to_owned(),
            peek: asked.peek,
        }
    }

    proptest! {
        #[test]
        fn reads_what_prost_writes(requests in prop::collection::vec(message(), 0..4), correlation_id: u64) {
            let without_time = |request: &RateLimitRequest| RateLimitRequest { timestamp: 0, ..request.clone() };
            let whole = BatchRateLimitRequest { requests: requests.clone() }.encode_to_vec();
            let read: Vec<_> = batch(&whole).expect("a message").iter().map(owned).collect();
            prop_assert_eq!(read, requests.iter().map(without_time).collect::<Vec<_>>());
            let request = requests.first().cloned();
            let one = CheckStreamRequest { correlation_id, request: request.clone() }.encode_to_vec();
            let mut read = Asked::default();
            let id = streamed(&one, &mut read).expect("a message");
            prop_assert_eq!((id, owned(&read)), (correlation_id, without_time(&request.unwrap_or_default())));
        }

        #[test]
        fn reads_what_prost_reads(
            request in message(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut: prop::sample::Index,
        ) {
            let mut bytes = request.encode_to_vec();
            for (place, byte) in changes {
                if !bytes.is_empty() {
                    let place = place.index(bytes.len());
                    bytes[place] = byte;
                }
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            match (read(&bytes), RateLimitRequest::decode(&*bytes)) {
                (Ok(asked), Ok(request)) if asked.others <= IDENTITIES_MAX => {
                    prop_assert_eq!(owned(&asked), RateLimitRequest { timestamp: 0, ..request });
                }
                (Ok(asked), Ok(request)) => prop_assert_eq!(asked.others, request.identities.len()),
                (Err(Refusal::NoMessage(why)), Err(error)) if count(&bytes, IDENTITIES) < IDENTITIES_MAX => {
                    prop_assert_eq!(why, error.to_string());
                }
                (Err(Refusal::NoMessage(_)), Err(_)) => {}
                (ours, prost) => prop_assert!(false, "{ours:?} {prost:?}"),
            }
        }

        #[test]
        fn writes_what_prost_reads(
            limit in 1_u64..=1 << 24,
            other in 1_u64..=1 << 24,
            mode in prop_oneof![Just("enforce"), Just("shadow")],
            costs in prop::collection::vec(prop_oneof![1_u64..=1 << 24, 1_u64..=NUMBER_MAX], 1..6),
            is_known: bool,
        ) {
            let policy = format!(
                r#"
                [domains.default]
                defaults = {{ user = "free" }}
                [[domains.default.tiers]]
                id = "free"
                limits = [
                    {{ id = "a", algorithm = "fixed_window", limit = {limit}, period = "1d", mode = "{mode}" }},
                    {{ id = "b", algorithm = "fixed_window", limit = {other}, period = "1h" }},
                ]
                "#
            );
            let engine = Engine::for_simulation(10, ManualClock::at(1_700_000_000_000_000_000), 7);
            engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a right policy")).expect("room");
            let decider = Decider::new(Arc::new(engine)).expect("random numbers");
            let who = [tidegate::Identity::new(if is_known { "user" } else { "ip" }, "192.0.2.7").expect("valid")];
            let caller = Caller::without_token(std::net::IpAddr::from([192, 0, 2, 7]).into());
            for cost in costs {
                let request = Request::new(&who).and_then(|request| request.cost(cost)).expect("valid");
                let checked = now(decider.check(&request, None, &caller)).expect("no id");
                let kept = now(decider.reserve(&request, None, &caller)).expect("room");
                for answer in [checked, kept, decider.undecided("default")] {
                    let mut written = BytesMut::new();
                    response(&answer, &mut written);
                    let read = RateLimitResponse::decode(&*written).expect("a message");
                    prop_assert_eq!(&read, &reference(&answer));
                    let mut written = BytesMut::new();
                    reserved(&answer, &mut written);
                    let reservation = answer.reservation.map(|id| id.to_string()).unwrap_or_default();
                    let expected = ReserveResponse { response: Some(read), reservation };
                    prop_assert_eq!(ReserveResponse::decode(&*written).expect("a message"), expected);
                }
            }
        }

        #[test]
        fn writes_numbers_as_prost_does(number: u64, shift in 0_u32..64, field in 1_u8..16) {
            let number = number >> shift;
            let (mut ours, mut theirs) = (Numbers::new(), Vec::new());
            put_number(field, number, &mut ours);
            prost::encoding::uint64::encode(u32::from(field), &number, &mut theirs);
            prop_assert_eq!(&ours[..], &theirs[..]);
        }

        #[test]
        fn what_is_within_has_the_shortest_length(length in 0_usize..40_000) {
            let mut bytes = BytesMut::from(&b"before"[..]);
            put_within(2, &mut bytes, |to| to.put_bytes(7, length));
            let mut expected = b"before".to_vec();
            prost::encoding::bytes::encode(2, &vec![7; length], &mut expected);
            prop_assert_eq!(&bytes[..], &expected[..]);
        }
    }

    #[test]
    fn what_is_too_many_is_known_before_it_is_read() {
        let of = |identities| RateLimitRequest {
            identifier_type: "user".to_owned(),
            identifier: "ada".to_owned(),
            identities: (0..identities).map(|at| Identity { kind: format!("k{at}"), value: "v".to_owned() }).collect(),
            ..RateLimitRequest::default()
        };
        for identities in 0..12 {
            let bytes = of(identities).encode_to_vec();
            let (engine, mut to) = (Engine::with_max_keys(1), Vec::new());
            let asked = read(&bytes).expect("a message");
            assert_eq!(asked.identities(&engine, &mut to).is_ok(), identities < 8);
        }
        let batch_of = |requests| BatchRateLimitRequest { requests }.encode_to_vec();
        assert!(batch(&batch_of(vec![of(7); CHECKS_MAX])).is_ok());
        assert!(matches!(batch(&batch_of(vec![of(0); CHECKS_MAX + 1])), Err((Refusal::Wrong(_), None))));
        // Empty ones, which are two bytes each and many times that when they are read.
        assert!(matches!(batch(&[0x0a, 0].repeat(1 << 19)), Err((Refusal::Wrong(_), None))));
        let huge = [[0x42, 0].repeat(1 << 18), vec![0x0f]].concat();
        assert!(matches!(read(&huge), Err(Refusal::NoMessage(why)) if why == "this is no message"));
        let twice = [0x12, 0].repeat(2);
        let mut asked = Asked::default();
        assert!(streamed(&twice[..2], &mut asked).is_ok());
        assert!(matches!(streamed(&twice, &mut asked), Err(Refusal::NoMessage(_))));
        assert!(matches!(batch(&[0x0a, 9, 1]), Err((Refusal::NoMessage(_), None))));
        assert!(matches!(batch(&[0x0a, 0, 0x0a, 1, 0x0a]), Err((Refusal::NoMessage(_), Some(1)))));
    }
}
