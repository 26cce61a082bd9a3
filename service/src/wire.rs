//! Bodies: what is read is plain data that borrows from the text; the engine's own types decide whether it is right.

use std::{borrow::Cow, fmt, marker::PhantomData, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;
use serde_path_to_error::Segment;
use tidegate::{
    DEFAULT_DOMAIN, Decision, Degraded, Engine, Identity, Request, RequestError, Retry, clock::Clock,
    policy::DoorSettings,
};

use crate::error::{CHECKS_MAX, Error, ErrorBody};

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
    cost: Option<Cost>,
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
struct Batch<'a> {
    #[serde(borrow)]
    checks: Vec<&'a RawValue>,
}

/// Reads a check, and has the engine decide it, or say what it would decide. Also what its domain asks of the door.
pub(crate) fn decide<'e, C: Clock>(engine: &'e Engine<C>, text: &str) -> Result<(Decision<'e>, DoorSettings), Error> {
    let Object(check) = parse::<Object<Check<'_>>>(text)?;
    if check.request_id.is_some() {
        return Err(Error::NotBuilt { field: "request_id" });
    }
    let identities = check.identities.iter().enumerate().map(|(place, Object(identity))| {
        Identity::new(&identity.kind, &identity.value).map_err(|error| refused(&error, &check, place))
    });
    let identities = identities.collect::<Result<Vec<_>, _>>()?;
    let request = request(&check, &identities).map_err(|error| refused(&error, &check, 0))?;
    let decision = if check.peek { engine.peek(&request) } else { engine.check(&request) };
    let domain = check.domain.as_ref().map_or(DEFAULT_DOMAIN, |Text(domain)| domain);
    Ok((decision, engine.door_settings(domain)))
}

/// Reads a batch: the text of each check.
pub(crate) fn batch(text: &str) -> Result<Vec<&str>, Error> {
    let Object(Batch { checks }) = parse::<Object<Batch<'_>>>(text)?;
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
        Some(Cost(0)) if check.peek => request.without_cost(),
        Some(Cost(cost)) => request.cost(cost)?,
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
        RequestError::Value { .. } => format!("identities/{place}/value"),
        RequestError::Endpoint(_) => "endpoint".to_owned(),
        RequestError::Cost(_) => "cost".to_owned(),
    };
    Error::Request { field, error: error.clone() }
}

/// Reads a document. Where it is wrong, it is read once more to learn at which field: right documents do not pay for that.
fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Error> {
    let error = match serde_json::from_str(text) {
        Ok(document) => return Ok(document),
        Err(error) => error,
    };
    if !error.is_data() {
        return Err(Error::NotJson(error.to_string()));
    }
    let field = match serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(text)) {
        Ok(_) => String::new(),
        Err(error) => error.path().iter().filter_map(named).collect::<Vec<_>>().join("/"),
    };
    // The field says where better than the place in the text, which in a batch would be that in one check.
    let problem = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    Err(Error::Field { field, problem: problem.strip_suffix(&place).unwrap_or(&problem).to_owned() })
}

fn named(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Unknown => None,
    }
}

/// Text that is borrowed where it has no escapes, also in an `Option`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A whole number. Its range is the engine's to judge.
#[derive(Clone, Copy, Debug)]
struct Cost(u64);

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeNumber;
        impl Visitor<'_> for WholeNumber {
            type Value = Cost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 1 to 9007199254740991")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Cost, E> {
                Ok(Cost(number))
            }
        }
        deserializer.deserialize_u64(WholeNumber)
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

/// Body of a decision.
#[derive(Debug, Serialize)]
pub(crate) struct DecisionBody<'e> {
    allowed: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_after_ms: Option<u64>,
    /// 0 when allowed; nothing when it will never be, and when no limit applied.
    retry_after_ms: Option<u64>,
    delay_ms: Option<u64>,
    limit_id: Option<&'e str>,
    policy_version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shadow_denied: Vec<&'e str>,
}

impl<'e> From<&Decision<'e>> for DecisionBody<'e> {
    fn from(decision: &Decision<'e>) -> Self {
        let limit_id = decision.limit_id();
        let retry_after_ms = match decision.retry() {
            Retry::Now => limit_id.map(|_| 0),
            Retry::After(wait) => Some(ms_rounded_up(wait)),
            Retry::Never => None,
        };
        Self {
            allowed: decision.is_allowed(),
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_after_ms: decision.reset_after().map(ms_rounded_up),
            retry_after_ms,
            delay_ms: limit_id.map(|_| ms_rounded_up(decision.delay())),
            limit_id,
            policy_version: decision.policy_version(),
            degraded: decision.degraded().map(Degraded::name),
            shadow_denied: decision.shadow_denied().collect(),
        }
    }
}

fn ms_rounded_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Body of the answer to a batch.
#[derive(Serialize)]
pub(crate) struct BatchBody<'e> {
    pub(crate) decisions: Vec<Item<'e>>,
}

/// What became of one check of a batch.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Item<'e> {
    Decision(DecisionBody<'e>),
    Error(ErrorBody),
}
