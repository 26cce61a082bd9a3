//! Bodies of requests: plain data that borrows from the text; the engine's own types decide whether it is right.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, value::RawValue};
use tidegate::{
    CountedIdentity, DEFAULT_DOMAIN, Identity, Request, RequestError,
    algorithm::NUMBER_MAX,
    clock::Clock,
    formats::{JsonError, from_json_value, plain_json_error},
    policy::DoorSettings,
};

use crate::{
    http::error::{CHECKS_MAX, Error},
    shared::{
        caller_shares::Caller,
        decider::{Answer, Decider},
        request_id_cache::{Call, RequestId},
        reservations::{Gone, ReservationId},
    },
};

/// Body of a check.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check<'a> {
    #[serde(borrow)]
    domain: Option<Text<'a>>,
    #[serde(borrow, default)]
    identities: Vec<Object<WireIdentity<'a>>>,
    #[serde(borrow)]
    endpoint: Option<Text<'a>>,
    #[serde(borrow)]
    method: Option<Text<'a>>,
    cost: Option<Whole<1>>,
    #[serde(borrow)]
    tier: Option<Text<'a>>,
    #[serde(borrow)]
    request_id: Option<Text<'a>>,
    #[serde(default)]
    peek: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireIdentity<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
}

/// Body of a batch. Each check is read when its turn comes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<T> {
    checks: Vec<T>,
}

/// Body of a settlement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settlement<'a> {
    #[serde(borrow)]
    reservation: Text<'a>,
    actual: Whole<0>,
}

/// Body of a refund.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refund<'a> {
    #[serde(borrow)]
    reservation: Text<'a>,
}

/// Reads a check, and has it decided, if its caller has rights in its domain; with a peek, only says what would be decided.
/// Also the response settings of that domain.
pub(crate) async fn decide<'e, C: Clock>(
    decider: &'e Decider<C>,
    call: Call,
    caller: &Caller,
    text: &str,
) -> Result<(Answer<'e>, DoorSettings), Error> {
    let Object::<Check<'_>>(check) = parse(text, |value| from_json_value::<Object<Check<'_>>>(value, text).map(drop))?;
    let domain = check.domain.as_ref().map_or(DEFAULT_DOMAIN, |Text(domain)| domain);
    caller.rights.permit_domain(domain)?;
    let id = check.request_id.as_ref().map(|Text(id)| RequestId::new(id)).transpose().map_err(Error::RequestId)?;
    let counted = check.identities.iter().enumerate().map(|(place, Object(WireIdentity { kind, value }))| {
        let identity = Identity::new(kind, value);
        let counted = identity.and_then(|identity| decider.engine().counted(domain, identity));
        counted.map_err(|error| refused(&error, &check, place))
    });
    let counted = counted.collect::<Result<Vec<_>, _>>()?;
    let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
    let request = request(&check, &identities).map_err(|error| refused(&error, &check, 0))?;
    let answer = match (call, check.peek) {
        (Call::Check, true) => decider.peek(&request, caller).await,
        (Call::Check, false) => decider.check(&request, id, caller).await.map_err(Error::Reused)?,
        (Call::Reserve, true) => return Err(Error::PeekOfReservation),
        (Call::Reserve, false) => decider.reserve(&request, id, caller).await?,
    };
    Ok((answer, decider.engine().door_settings(domain)))
}

/// Reads a settlement: of which reservation, and what it really cost.
pub(crate) fn settlement(text: &str) -> Result<(ReservationId, u64), Error> {
    let Object(Settlement { reservation, actual: Whole(actual) }) =
        parse(text, |value| from_json_value::<Object<Settlement<'_>>>(value, text).map(drop))?;
    if actual > NUMBER_MAX {
        return Err(Error::Actual(actual));
    }
    Ok((reservation.id()?, actual))
}

/// Reads a refund: a settlement at no cost.
pub(crate) fn refund(text: &str) -> Result<(ReservationId, u64), Error> {
    let Object(Refund { reservation }) =
        parse(text, |value| from_json_value::<Object<Refund<'_>>>(value, text).map(drop))?;
    Ok((reservation.id()?, 0))
}

/// Reads a batch: the text of each check.
pub(crate) fn batch(text: &str) -> Result<Vec<&str>, Error> {
    let Object(Batch::<&RawValue> { checks }) =
        parse(text, |value| from_json_value::<Object<Batch<IgnoredAny>>>(value, text).map(drop))?;
    if checks.len() > CHECKS_MAX {
        return Err(Error::TooManyChecks(checks.len()));
    }
    Ok(checks.into_iter().map(RawValue::get).collect())
}

fn request<'a>(check: &'a Check<'a>, identities: &'a [Identity<'a>]) -> Result<Request<'a>, RequestError> {
    let mut request = Request::new(identities)?;
    if let Some(Text(endpoint)) = &check.endpoint {
        request = request.endpoint(endpoint)?;
    }
    request = match check.cost {
        Some(Whole(0)) if check.peek => request.without_cost(),
        Some(Whole(cost)) => request.cost(cost)?,
        None => request,
    };
    if let Some(Text(domain)) = &check.domain {
        request = request.domain(domain);
    }
    if let Some(Text(method)) = &check.method {
        request = request.method(method);
    }
    if let Some(Text(tier)) = &check.tier {
        request = request.tier(tier);
    }
    Ok(request)
}

/// Names the field; `place` is that of the identity in question.
fn refused(error: &RequestError, check: &Check<'_>, place: usize) -> Error {
    let field = match error {
        RequestError::Identities(_) => "identities".to_owned(),
        RequestError::RepeatedKind(kind) => {
            let last = check.identities.iter().rposition(|Object(identity)| identity.kind == *kind).unwrap_or(place);
            format!("identities/{last}/kind")
        }
        RequestError::Kind(_) => format!("identities/{place}/kind"),
        RequestError::Value { .. } | RequestError::Address(_) => format!("identities/{place}/value"),
        RequestError::Endpoint(_) => "endpoint".to_owned(),
        RequestError::Cost(_) => "cost".to_owned(),
    };
    Error::Request { field, error: error.clone() }
}

/// Reads a document. Where it is wrong, it is read once more, by `check`, to learn at which field: right documents do not
/// pay for that.
fn parse<'a, T: Deserialize<'a>>(text: &'a str, check: impl Fn(&Value) -> Result<(), JsonError>) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| match plain_json_error(text, &error, check) {
        // Deeper than any value that is read here.
        JsonError::Syntax(problem) if error.is_data() => Error::Field { field: String::new(), problem },
        JsonError::Syntax(problem) => Error::NotJson(problem),
        JsonError::Field { pointer, message } => {
            Error::Field { field: pointer.trim_start_matches('/').to_owned(), problem: message }
        }
    })
}

/// Text that is borrowed where it has no escapes, also in an `Option`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    /// What is no id is one that nobody gave.
    fn id(&self) -> Result<ReservationId, Error> {
        self.0.parse().map_err(|_| Error::Reservation(Gone::Unknown))
    }
}

/// A whole number, which is to be `MIN` at least. Whether it is in range is judged by whoever knows what is allowed there.
#[derive(Clone, Copy, Debug)]
struct Whole<const MIN: u64>(u64);

impl<'de, const MIN: u64> Deserialize<'de> for Whole<MIN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeNumber<const MIN: u64>;
        impl<const MIN: u64> Visitor<'_> for WholeNumber<MIN> {
            type Value = Whole<MIN>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {MIN} to {NUMBER_MAX}")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole<MIN>, E> {
                Ok(Whole(number))
            }
        }
        deserializer.deserialize_u64(WholeNumber::<MIN>)
    }
}

/// An object, never a list of its fields' values, which serde would take too.
#[derive(Debug)]
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}
