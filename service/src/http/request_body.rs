//! Reads the JSON bodies of requests into plain data that borrows from the text, and has checks decided. The engine's
//! types validate the values.

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
    policy::ResponseSettings,
};

use crate::shared::{
    caller_shares::Caller,
    decider::{CheckResult, Decider},
    error::{CHECKS_MAX, Error},
    request_id_cache::{CallKind, RequestId},
    reservations::{Gone, ReservationId},
};

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

/// The body of a batch. Each check is read when its turn comes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<T> {
    checks: Vec<T>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settlement<'a> {
    #[serde(borrow)]
    reservation: Text<'a>,
    actual: Whole<0>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refund<'a> {
    #[serde(borrow)]
    reservation: Text<'a>,
}

/// Reads a check and decides it, if its caller has rights in its domain. A check with `peek` charges nothing. Returns
/// the response settings of the domain, too.
pub(crate) async fn decide<'e, C: Clock>(
    decider: &'e Decider<C>,
    call: CallKind,
    caller: &Caller,
    text: &str,
) -> Result<(CheckResult<'e>, ResponseSettings), Error> {
    let Object::<Check<'_>>(check) = parse(text, |value| from_json_value::<Object<Check<'_>>>(value, text).map(drop))?;
    let domain = check.domain.as_ref().map_or(DEFAULT_DOMAIN, |Text(domain)| domain);
    caller.rights.permit_domain(domain)?;
    let id = check.request_id.as_ref().map(|Text(id)| RequestId::new(id)).transpose()?;
    let counted = check.identities.iter().enumerate().map(|(place, Object(WireIdentity { kind, value }))| {
        let identity = Identity::new(kind, value);
        let counted = identity.and_then(|identity| decider.engine().counted(domain, identity));
        counted.map_err(|error| request_error(&error, &check, place))
    });
    let counted = counted.collect::<Result<Vec<_>, _>>()?;
    let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
    let request = request(&check, domain, &identities).map_err(|error| request_error(&error, &check, 0))?;
    let outcome = match (call, check.peek) {
        (CallKind::Check, true) => decider.peek(&request, caller).await,
        (CallKind::Check, false) => decider.check(&request, id, caller).await?,
        (CallKind::Reserve, true) => return Err(Error::PeekOfReservation),
        (CallKind::Reserve, false) => decider.reserve(&request, id, caller).await?,
    };
    Ok((outcome, decider.engine().response_settings(domain)))
}

/// Reads a settlement: the ID of the reservation, and the actual cost.
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

fn request<'a>(
    check: &'a Check<'a>,
    domain: &'a str,
    identities: &'a [Identity<'a>],
) -> Result<Request<'a>, RequestError> {
    let mut request = Request::new(identities)?.domain(domain);
    if let Some(Text(endpoint)) = &check.endpoint {
        request = request.endpoint(endpoint)?;
    }
    request = match check.cost {
        Some(Whole(0)) if check.peek => request.without_cost(),
        Some(Whole(cost)) => request.cost(cost)?,
        None => request,
    };
    if let Some(Text(method)) = &check.method {
        request = request.method(method);
    }
    if let Some(Text(tier)) = &check.tier {
        request = request.tier(tier);
    }
    Ok(request)
}

/// Returns the error with its field. `place` is the index of the identity in question.
fn request_error(error: &RequestError, check: &Check<'_>, place: usize) -> Error {
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

/// Reads a document. A wrong document is read once more, by `check`, to learn the field; right documents do not pay for that.
fn parse<'a, T: Deserialize<'a>>(text: &'a str, check: impl Fn(&Value) -> Result<(), JsonError>) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| match plain_json_error(text, &error, check) {
        // The error is deeper than any value that is read here.
        JsonError::Syntax(problem) if error.is_data() => Error::Field { field: String::new(), problem },
        JsonError::Syntax(problem) => Error::NotJson(problem),
        JsonError::Field { pointer, message } => Error::Field { field: pointer, problem: message },
    })
}

/// Text that is borrowed where it has no escapes, in an `Option` too.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    /// Reads a reservation ID. Text that is no ID is reported as an unknown one.
    fn id(&self) -> Result<ReservationId, Error> {
        self.0.parse().map_err(|_| Gone::Unknown.into())
    }
}

/// A whole number. The error message says that it is `MIN` at least; its reader checks the range.
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
