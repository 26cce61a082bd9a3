//! Reads the checks of gRPC messages where they stand, and decides them.

use arrayvec::ArrayVec;
use tidegate::{CountedIdentity, DEFAULT_DOMAIN, Engine, Identity, Request, RequestError, clock::Clock};

use crate::{
    protobuf::{
        error::MessageError,
        generated::tidegate::v1::RateLimitRequest,
        reader::{Fields, WireValue, count, text},
    },
    shared::{
        caller_shares::Caller,
        decider::{CheckResult, Decider},
        error::{CHECKS_MAX, Error},
        request_id_cache::{CallKind, RequestId},
        tokens::Rights,
    },
};

/// The most identities of one request, with the identifier.
const IDENTITIES_MAX: usize = 8;
/// The field number of the requests of a `BatchRateLimitRequest`.
pub(super) const REQUESTS: u32 = 1;
/// The field number of the identities of a `RateLimitRequest`.
const IDENTITIES: u32 = 8;

/// An error, with the index of the request of a batch that it is about.
pub(super) type BatchError = (MessageError, Option<usize>);

/// A `RateLimitRequest` whose fields stand in its message, not copied. Of a field that comes twice, the last counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CheckRequest<'m> {
    identifier: &'m str,
    identifier_type: &'m str,
    endpoint: &'m str,
    tokens_requested: i32,
    method: &'m str,
    domain: &'m str,
    tier: &'m str,
    request_id: &'m str,
    peek: bool,
    /// The whole message, in which the identities beside the identifier stand.
    message: &'m [u8],
    /// The number of those identities.
    others: usize,
}

impl<'m> CheckRequest<'m> {
    /// Reads a message into this value, since moving a value costs as much as reading it.
    pub(super) fn read(&mut self, message: &'m [u8]) -> Result<(), MessageError> {
        self.read_fields(message).ok_or_else(|| {
            // Decoding more identities takes more memory than any request may.
            MessageError::explained::<RateLimitRequest>(message, || count(message, IDENTITIES) < IDENTITIES_MAX)
        })
    }

    /// Reads the fields; `None` where the message cannot be read.
    fn read_fields(&mut self, message: &'m [u8]) -> Option<()> {
        self.message = message;
        for field in Fields(message) {
            match field? {
                (1, WireValue::Bytes(bytes)) => self.identifier = text(bytes)?,
                (2, WireValue::Bytes(bytes)) => self.identifier_type = text(bytes)?,
                (3, WireValue::Bytes(bytes)) => self.endpoint = text(bytes)?,
                // Protobuf reads an int32 so.
                (4, WireValue::Number(tokens)) => self.tokens_requested = tokens as i32,
                // The caller's timestamp, which is not used.
                (5, WireValue::Number(_)) => {}
                (6, WireValue::Bytes(bytes)) => self.method = text(bytes)?,
                (7, WireValue::Bytes(bytes)) => self.domain = text(bytes)?,
                (IDENTITIES, WireValue::Bytes(bytes)) => {
                    read_identity(bytes)?;
                    self.others += 1;
                }
                (9, WireValue::Bytes(bytes)) => self.tier = text(bytes)?,
                (10, WireValue::Bytes(bytes)) => self.request_id = text(bytes)?,
                (11, WireValue::Number(peek)) => self.peek = peek != 0,
                (1..=11, _) => return None,
                _ => {}
            }
        }
        Some(())
    }

    /// Returns kind and value of the identities beside the identifier.
    fn others(&self) -> ArrayVec<(&'m str, &'m str), IDENTITIES_MAX> {
        let identities = Fields(self.message).filter_map(|field| match field? {
            (IDENTITIES, WireValue::Bytes(bytes)) => read_identity(bytes),
            _ => None,
        });
        identities.take(IDENTITIES_MAX).collect()
    }

    /// Returns an error unless the rights hold in the request's domain.
    pub(super) fn permit(&self, rights: &Rights) -> Result<(), Error> {
        Ok(rights.permit_domain(self.domain())?)
    }

    /// Returns the domain, which is the default one unless the message names another.
    fn domain(&self) -> &'m str {
        if self.domain.is_empty() { DEFAULT_DOMAIN } else { self.domain }
    }

    /// Appends the identities in the form in which the engine counts them, the identifier first.
    pub(super) fn identities<C: Clock>(
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
            counted.map_err(|error| self.request_error(error, place))
        };
        to.extend([identity(self.identifier_type, self.identifier, 0)?]);
        if self.others > 0 {
            for (place, (kind, value)) in self.others().into_iter().enumerate() {
                to.extend([identity(kind, value, place + 1)?]);
            }
        }
        Ok(())
    }

    /// Returns the request to the engine, with these identities.
    pub(super) fn request<'r>(&self, identities: &'r [Identity<'r>]) -> Result<Request<'r>, Error>
    where
        'm: 'r,
    {
        let refused = |error| self.request_error(error, 0);
        let mut request = Request::new(identities).map_err(refused)?.domain(self.domain());
        // Proto3 cannot tell an empty field from an absent one.
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
        if !self.method.is_empty() {
            request = request.method(self.method);
        }
        if !self.tier.is_empty() {
            request = request.tier(self.tier);
        }
        Ok(request)
    }

    fn id(&self) -> Result<Option<RequestId<'m>>, Error> {
        let id = Some(self.request_id).filter(|id| !id.is_empty());
        Ok(id.map(RequestId::new).transpose()?)
    }

    /// Returns whether the policy alone decides the check: it has no request ID and no `peek`. Returns an error where
    /// the ID is wrong.
    pub(super) fn is_plain(&self) -> Result<bool, Error> {
        Ok(self.id()?.is_none() && !self.peek)
    }

    /// Returns whether the policy alone decides the check and nothing in it is wrong. If so, appends its identities.
    pub(super) fn append_plain<C: Clock>(
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

    /// Decides the check, if its caller has rights in its domain. A check with `peek` charges nothing.
    pub(super) async fn decide<'e, C: Clock>(
        &self,
        decider: &'e Decider<C>,
        call: CallKind,
        caller: &Caller,
    ) -> Result<CheckResult<'e>, Error> {
        self.permit(&caller.rights)?;
        let mut counted = ArrayVec::<_, IDENTITIES_MAX>::new();
        self.identities(decider.engine(), &mut counted)?;
        let identities: ArrayVec<_, IDENTITIES_MAX> = counted.iter().map(CountedIdentity::identity).collect();
        self.decide_request(decider, call, caller, &self.request(&identities)?).await
    }

    /// Decides the check, of which `request` was made.
    pub(super) async fn decide_request<'e, C: Clock>(
        &self,
        decider: &'e Decider<C>,
        call: CallKind,
        caller: &Caller,
        request: &Request<'_>,
    ) -> Result<CheckResult<'e>, Error> {
        let id = self.id()?;
        match (call, self.peek) {
            (CallKind::Check, true) => Ok(decider.peek(request, caller).await),
            (CallKind::Check, false) => Ok(decider.check(request, id, caller).await?),
            (CallKind::Reserve, true) => Err(Error::PeekOfReservation),
            (CallKind::Reserve, false) => decider.reserve(request, id, caller).await,
        }
    }

    /// Returns the error with its field. `place` is the index of the identity in question, where the identifier is the first.
    fn request_error(&self, error: RequestError, place: usize) -> Error {
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

/// Returns kind and value of an `Identity`; `None` where its bytes are no message.
fn read_identity(message: &[u8]) -> Option<(&str, &str)> {
    let (mut kind, mut value) = ("", "");
    for field in Fields(message) {
        match field? {
            (1, WireValue::Bytes(bytes)) => kind = text(bytes)?,
            (2, WireValue::Bytes(bytes)) => value = text(bytes)?,
            (1 | 2, _) => return None,
            _ => {}
        }
    }
    Some((kind, value))
}

/// Reads the requests of a `BatchRateLimitRequest`.
pub(super) fn read_batch(message: &[u8]) -> Result<Vec<CheckRequest<'_>>, BatchError> {
    let count = count(message, REQUESTS);
    if count > CHECKS_MAX {
        let problem = format!("{count} in one batch; at most {CHECKS_MAX} fit, send the others in another");
        return Err((Error::Field { field: "requests".to_owned(), problem }.into(), None));
    }
    let mut requests = Vec::with_capacity(count);
    for field in Fields(message) {
        match field {
            Some((REQUESTS, WireValue::Bytes(request))) => {
                let mut check = CheckRequest::default();
                check.read(request).map_err(|error| (error, Some(requests.len())))?;
                requests.push(check);
            }
            Some((REQUESTS, _)) | None => return Err((MessageError::malformed(), None)),
            Some(_) => {}
        }
    }
    Ok(requests)
}

#[cfg(test)]
thread_local! {
    /// The number of messages of streams that were read.
    pub(super) static STREAMED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Reads the request of a `CheckStreamRequest`, and returns its correlation ID. A request that comes twice, which no
/// library writes, is malformed.
pub(super) fn read_streamed<'m>(message: &'m [u8], check: &mut CheckRequest<'m>) -> Result<u64, MessageError> {
    #[cfg(test)]
    STREAMED.set(STREAMED.get() + 1);
    let (mut correlation_id, mut request) = (0, None);
    for field in Fields(message) {
        match (field, request) {
            (Some((1, WireValue::Number(id))), _) => correlation_id = id,
            (Some((2, WireValue::Bytes(bytes))), None) => request = Some(bytes),
            (Some((1 | 2, _)) | None, _) => return Err(MessageError::malformed()),
            (Some(_), _) => {}
        }
    }
    check.read(request.unwrap_or_default())?;
    Ok(correlation_id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::protobuf::generated::tidegate::v1::{BatchRateLimitRequest, CheckStreamRequest, Identity};

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

    fn read(bytes: &[u8]) -> Result<CheckRequest<'_>, MessageError> {
        let mut check = CheckRequest::default();
        check.read(bytes).map(|()| check)
    }

    /// Returns the message of prost with the same content, without the timestamp.
    fn owned(check: &CheckRequest<'_>) -> RateLimitRequest {
        let other = |(kind, value): (&str, &str)| Identity { kind: kind.to_owned(), value: value.to_owned() };
        RateLimitRequest {
            identifier: check.identifier.to_owned(),
            identifier_type: check.identifier_type.to_owned(),
            endpoint: check.endpoint.to_owned(),
            tokens_requested: check.tokens_requested,
            timestamp: 0,
            method: check.method.to_owned(),
            domain: check.domain.to_owned(),
            identities: check.others().into_iter().map(other).collect(),
            tier: check.tier.to_owned(),
            request_id: check.request_id.to_owned(),
            peek: check.peek,
        }
    }

    proptest! {
        #[test]
        fn messages_that_prost_writes_are_read(requests in prop::collection::vec(message(), 0..4), correlation_id: u64) {
            let without_time = |request: &RateLimitRequest| RateLimitRequest { timestamp: 0, ..request.clone() };
            let whole = BatchRateLimitRequest { requests: requests.clone() }.encode_to_vec();
            let read: Vec<_> = read_batch(&whole).expect("a message").iter().map(owned).collect();
            prop_assert_eq!(read, requests.iter().map(without_time).collect::<Vec<_>>());
            let request = requests.first().cloned();
            let one = CheckStreamRequest { correlation_id, request: request.clone() }.encode_to_vec();
            let mut read = CheckRequest::default();
            let id = read_streamed(&one, &mut read).expect("a message");
            prop_assert_eq!((id, owned(&read)), (correlation_id, without_time(&request.unwrap_or_default())));
        }

        #[test]
        fn messages_are_read_as_prost_reads_them(
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
                (Ok(check), Ok(request)) if check.others <= IDENTITIES_MAX => {
                    prop_assert_eq!(owned(&check), RateLimitRequest { timestamp: 0, ..request });
                }
                (Ok(check), Ok(request)) => prop_assert_eq!(check.others, request.identities.len()),
                (Err(MessageError::Malformed(why)), Err(error)) if count(&bytes, IDENTITIES) < IDENTITIES_MAX => {
                    prop_assert_eq!(why, error.to_string());
                }
                (Err(MessageError::Malformed(_)), Err(_)) => {}
                (ours, prost) => prop_assert!(false, "{ours:?} {prost:?}"),
            }
        }
    }

    #[test]
    fn messages_with_too_many_parts_are_refused_before_memory_is_taken_for_each() {
        let of = |identities| RateLimitRequest {
            identifier_type: "user".to_owned(),
            identifier: "ada".to_owned(),
            identities: (0..identities).map(|at| Identity { kind: format!("k{at}"), value: "v".to_owned() }).collect(),
            ..RateLimitRequest::default()
        };
        for identities in 0..12 {
            let bytes = of(identities).encode_to_vec();
            let (engine, mut to) = (Engine::with_max_keys(1), Vec::new());
            let check = read(&bytes).expect("a message");
            assert_eq!(check.identities(&engine, &mut to).is_ok(), identities < 8);
        }
        let batch_of = |requests| BatchRateLimitRequest { requests }.encode_to_vec();
        assert!(read_batch(&batch_of(vec![of(7); CHECKS_MAX])).is_ok());
        assert!(matches!(read_batch(&batch_of(vec![of(0); CHECKS_MAX + 1])), Err((MessageError::Invalid(_), None))));
        // Empty ones, which are two bytes each and many times that when they are read.
        assert!(matches!(read_batch(&[0x0a, 0].repeat(1 << 19)), Err((MessageError::Invalid(_), None))));
        let huge = [[0x42, 0].repeat(1 << 18), vec![0x0f]].concat();
        assert!(matches!(read(&huge), Err(MessageError::Malformed(why)) if why == "this is no message"));
        let twice = [0x12, 0].repeat(2);
        let mut check = CheckRequest::default();
        assert!(read_streamed(&twice[..2], &mut check).is_ok());
        assert!(matches!(read_streamed(&twice, &mut check), Err(MessageError::Malformed(_))));
        assert!(matches!(read_batch(&[0x0a, 9, 1]), Err((MessageError::Malformed(_), None))));
        assert!(matches!(read_batch(&[0x0a, 0, 0x0a, 1, 0x0a]), Err((MessageError::Malformed(_), Some(1)))));
    }
}
