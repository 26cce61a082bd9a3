//! Reads Envoy's descriptors as requests to the engine. A value, which an end user may have written, is never an error,
//! since Envoy lets requests pass on errors. Keys are written by the operator of Envoy.

use std::{borrow::Cow, iter, ops::Range, time::Duration};

use arrayvec::ArrayVec;
use prost::Message;
use tidegate::{
    CountedIdentity, Engine, IDENTITIES_MAX, Identity, Rate, Request, RequestError,
    clock::Clock,
    descriptor::Dimension,
    policy::{DescriptorSettings, Descriptors},
    truncated_path,
};
use tidegate_middleware::extract::fitting_value;

use crate::{
    protobuf::{
        error::MessageError,
        generated::envoy::{
            extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride,
            service::ratelimit::v3::RateLimitRequest, r#type::v3::RateLimitUnit,
        },
        reader::{Fields, WireValue, text},
    },
    shared::error::Error,
};

const DESCRIPTORS_MAX: usize = 32;
/// The most entries of a descriptor.
const ENTRIES_MAX: usize = 32;
/// The digest of an empty value, which counts like other values that the engine takes as digests only.
const EMPTY: &str = "~sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// An identity of a kind that no rule counts.
static NO_RULE: EntryIdentity<'static> = (Cow::Borrowed("descriptor_of_no_rule"), Cow::Borrowed("x"), 0);
const DAY: Duration = Duration::from_hours(24);
const PERIOD_MAX: Duration = DAY.saturating_mul(366);
/// The longest malformed message that prost decodes once more for the reason, if it has no more descriptors than are
/// read. An entry of two bytes takes 48 bytes then: 400 kB in all, and twice that while their list grows.
const EXPLAINED_BYTES_MAX: usize = 16 << 10;

/// A `RateLimitRequest` whose domain and descriptors stand in its message, not copied. Of a domain or of hits that come
/// twice, the last count.
#[derive(Debug, Default)]
pub(super) struct EnvoyRequest<'m> {
    message: &'m [u8],
    pub(super) domain: &'m str,
    hits_addend: u32,
    /// The first descriptors, each as it stands in the message.
    descriptors: ArrayVec<&'m [u8], DESCRIPTORS_MAX>,
    /// The number of descriptors in the message.
    count: usize,
}

impl<'m> EnvoyRequest<'m> {
    /// Reads a message, without the contents of its descriptors.
    pub(super) fn read(message: &'m [u8]) -> Result<Self, MessageError> {
        let mut request = Self { message, ..Self::default() };
        request.read_fields().ok_or_else(|| request.malformed())?;
        Ok(request)
    }

    /// Reads the fields; `None` where the message cannot be read.
    fn read_fields(&mut self) -> Option<()> {
        for field in Fields(self.message) {
            match field? {
                (1, WireValue::Bytes(bytes)) => self.domain = text(bytes)?,
                (2, WireValue::Bytes(bytes)) => {
                    self.count += 1;
                    // An error: there are too many, and the request is refused by their count.
                    let _ = self.descriptors.try_push(bytes);
                }
                // Protobuf reads a uint32 so.
                (3, WireValue::Number(hits)) => self.hits_addend = hits as u32,
                (1..=3, _) => return None,
                _ => {}
            }
        }
        Some(())
    }

    /// Returns the error of a message that cannot be read, with the reason that prost gives, unless that would take much memory.
    fn malformed(&self) -> MessageError {
        let is_small = self.message.len() <= EXPLAINED_BYTES_MAX && self.count <= DESCRIPTORS_MAX;
        MessageError::explained::<RateLimitRequest>(self.message, || is_small)
    }
}

/// The descriptors of an Envoy request, ready to become requests to the engine.
#[derive(Debug)]
pub(super) struct DescriptorsRequest<'m> {
    domain: &'m str,
    settings: DescriptorSettings,
    descriptors: Vec<Descriptor<'m>>,
    /// The identities of all descriptors, in order.
    identities: Vec<EntryIdentity<'m>>,
}

/// Kind and value of an identity, and the index of its entry in the descriptor.
type EntryIdentity<'m> = (Cow<'m, str>, Cow<'m, str>, usize);

/// A descriptor whose fields were read.
#[derive(Debug)]
struct Descriptor<'m> {
    /// The range of its identities among those of all descriptors.
    identities: Range<usize>,
    endpoint: Option<Cow<'m, str>>,
    method: Option<Cow<'m, str>>,
    hits: u64,
    rate: Option<Rate>,
}

/// The fields of a descriptor without its identities.
#[derive(Default)]
struct DescriptorFields<'m> {
    endpoint: Option<Cow<'m, str>>,
    method: Option<Cow<'m, str>>,
    limit: Option<RateLimitOverride>,
    hits: Option<u64>,
    is_negative_hits: bool,
    /// The number of entries of the descriptor.
    count: usize,
    /// The index of the first entry without a key.
    nameless: Option<usize>,
}

impl DescriptorFields<'_> {
    /// Returns the rate that the descriptor brings, or the part of the descriptor that is wrong, and why.
    fn rate(&self) -> Result<Option<Rate>, (Cow<'static, str>, Cow<'static, str>)> {
        let wrong = |part: &'static str, problem: &'static str| Err((part.into(), problem.into()));
        match self.count {
            1..=ENTRIES_MAX => {}
            0 => return wrong("entries", "there are none; give one at least"),
            count => return Err(("entries".into(), format!("{count} given; give one to {ENTRIES_MAX}").into())),
        }
        if self.is_negative_hits {
            let problem = "hits are not given back here; reserve what a request may cost, and settle what it did";
            return wrong("is_negative_hits", problem);
        }
        if let Some(place) = self.nameless {
            return Err((format!("entries/{place}/key").into(), "is empty; name what the value is".into()));
        }
        self.limit.as_ref().map(override_rate).transpose().or_else(|(part, problem)| wrong(part, problem))
    }
}

impl<'m> DescriptorsRequest<'m> {
    /// Reads a request to a domain with these settings. An error names the field, such as `descriptors/1/entries/0/key`.
    pub(super) fn read(message: &EnvoyRequest<'m>, settings: DescriptorSettings) -> Result<Self, MessageError> {
        let EnvoyRequest { domain, hits_addend, descriptors, count, .. } = message;
        if domain.is_empty() {
            return Err(field_error("domain", "is empty; name a domain of the policy, such as `default`").into());
        }
        match *count {
            1..=DESCRIPTORS_MAX => {}
            0 => return Err(field_error("descriptors", "there are none; give one at least").into()),
            count => {
                return Err(field_error("descriptors", &format!("{count} given; at most {DESCRIPTORS_MAX} fit")).into());
            }
        }
        let hits = u64::from(*hits_addend).max(1);
        let (descriptors_max, identities) = (descriptors.len(), Vec::with_capacity(IDENTITIES_MAX));
        let mut request = Self { domain, settings, descriptors: Vec::with_capacity(descriptors_max), identities };
        for (place, bytes) in descriptors.iter().enumerate() {
            let start = request.identities.len();
            let fields = request.read_descriptor(bytes).ok_or_else(|| message.malformed())?;
            let rate = fields.rate();
            let rate = rate.map_err(|(part, problem)| field_error(&format!("descriptors/{place}/{part}"), &problem))?;
            request.descriptors.push(Descriptor {
                identities: start..request.identities.len(),
                endpoint: fields.endpoint.map(bounded_path),
                method: fields.method,
                hits: fields.hits.unwrap_or(hits),
                rate,
            });
        }
        Ok(request)
    }

    /// Reads the fields of a descriptor, and appends its identities. Returns `None` where its bytes are no message.
    fn read_descriptor(&mut self, message: &'m [u8]) -> Option<DescriptorFields<'m>> {
        let mut fields = DescriptorFields::default();
        let start = self.identities.len();
        for field in Fields(message) {
            match field? {
                (1, WireValue::Bytes(bytes)) => self.add_entry(read_entry(bytes)?, start, &mut fields),
                (2, WireValue::Bytes(bytes)) => fields.limit.get_or_insert_default().merge(bytes).ok()?,
                (3, WireValue::Bytes(bytes)) => fields.hits = Some(read_wrapped(bytes, fields.hits)?),
                (4, WireValue::Number(is)) => fields.is_negative_hits = is != 0,
                (1..=4, _) => return None,
                _ => {}
            }
        }
        Some(fields)
    }

    /// Adds an entry to the descriptor whose identities begin at `start`.
    fn add_entry(&mut self, (key, value): (&'m str, &'m [u8]), start: usize, fields: &mut DescriptorFields<'m>) {
        let place = fields.count;
        fields.count += 1;
        if key.is_empty() {
            fields.nameless.get_or_insert(place);
        }
        // The descriptor will be refused once all of it is read.
        if fields.count > ENTRIES_MAX || fields.nameless.is_some() {
            return;
        }
        let is_taken = |dimension: &Dimension<'_>| match dimension {
            Dimension::Endpoint => fields.endpoint.is_some(),
            Dimension::Method => fields.method.is_some(),
            Dimension::Kind(kind) => self.identities[start..].iter().any(|(earlier, ..)| earlier == kind),
        };
        match Dimension::of(key, self.settings.paths, is_taken) {
            Dimension::Endpoint => fields.endpoint = Some(String::from_utf8_lossy(value)),
            Dimension::Method => fields.method = Some(String::from_utf8_lossy(value)),
            Dimension::Kind(kind) => {
                let value = if value.is_empty() { EMPTY.into() } else { fitting_value(value) };
                self.identities.push((kind, value, place));
            }
        }
    }

    /// Calls `decide` with the requests, each with the rate that it brings. An error names the field of a request that the engine
    /// would not take.
    pub(super) async fn with_requests<C: Clock, T>(
        &self,
        engine: &Engine<C>,
        decide: impl AsyncFnOnce(&[(Request<'_>, Option<Rate>)]) -> T,
    ) -> Result<T, Error> {
        let mut counted = Vec::with_capacity(self.identities.len());
        let mut ranges = Vec::with_capacity(self.descriptors.len());
        for (place, descriptor) in self.descriptors.iter().enumerate() {
            let start = counted.len();
            for (kind, value, entry) in self.counted_identities(engine, descriptor) {
                let identity = Identity::new(kind, value);
                let part = if matches!(identity, Err(RequestError::Value { .. })) { "value" } else { "key" };
                let field = || format!("descriptors/{place}/entries/{entry}/{part}");
                let identity = identity.map_err(|error| Error::Request { field: field(), error })?;
                // A value of the kind `ip` that is no address counts as it is: it is never an error.
                counted.push(engine.counted(self.domain, identity).unwrap_or_else(|_| identity.into()));
            }
            ranges.push(start..counted.len());
        }
        let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
        let request = |(place, descriptor): (usize, _)| {
            let request = self.request(descriptor, &identities[ranges[place].clone()]);
            request.map_err(|error| Error::Request { field: self.field(place, descriptor, &error), error })
        };
        let requests = self.descriptors.iter().enumerate().map(request).collect::<Result<Vec<_>, _>>()?;
        Ok(decide(&requests).await)
    }

    /// Returns the identities of a descriptor that the engine is to count. A descriptor may have more than a request
    /// can have, and then no rule names all of their kinds. Where a limit holds for exactly its kinds, no limit
    /// applies, so one identity of another kind stands for all of them. Where a limit holds for a subset of the kinds,
    /// the first identities of kinds that the domain names are counted.
    fn counted_identities<C: Clock>(
        &self,
        engine: &Engine<C>,
        descriptor: &Descriptor<'_>,
    ) -> ArrayVec<&EntryIdentity<'m>, ENTRIES_MAX> {
        let own = &self.identities[descriptor.identities.clone()];
        if own.len() <= IDENTITIES_MAX || descriptor.rate.is_some() {
            return own.iter().collect();
        }
        let is_named = |(kind, ..): &&EntryIdentity<'_>| engine.names_kind(self.domain, kind);
        match self.settings.descriptors {
            Descriptors::Exact => iter::once(&NO_RULE).collect(),
            Descriptors::Subset => own.iter().filter(is_named).take(IDENTITIES_MAX).collect(),
        }
    }

    /// Makes the request to the engine, with its rate.
    fn request<'a>(
        &'a self,
        descriptor: &'a Descriptor<'_>,
        identities: &'a [Identity<'a>],
    ) -> Result<(Request<'a>, Option<Rate>), RequestError> {
        let Descriptor { endpoint, method, hits, rate, .. } = descriptor;
        let mut request = Request::exactly(identities)?.domain(self.domain);
        if let Some(endpoint) = endpoint {
            request = request.endpoint(endpoint)?;
        }
        if let Some(method) = method {
            request = request.method(method);
        }
        let request = if *hits == 0 { request.without_cost() } else { request.cost(*hits)? };
        Ok((request, *rate))
    }

    /// Returns the field of the message that an error of the engine is about.
    fn field(&self, place: usize, descriptor: &Descriptor<'_>, error: &RequestError) -> String {
        let own = &self.identities[descriptor.identities.clone()];
        let part = match error {
            RequestError::RepeatedKind(kind) => {
                let last = own.iter().rfind(|(own, ..)| own == kind);
                last.map_or_else(|| "entries".to_owned(), |(_, _, entry)| format!("entries/{entry}/key"))
            }
            RequestError::Cost(_) => "hits_addend".to_owned(),
            _ => "entries".to_owned(),
        };
        format!("descriptors/{place}/{part}")
    }
}

/// Returns key and value of an `Entry`; `None` where its bytes are no message.
fn read_entry(message: &[u8]) -> Option<(&str, &[u8])> {
    let (mut key, mut value) = ("", &[][..]);
    for field in Fields(message) {
        match field? {
            (1, WireValue::Bytes(bytes)) => key = text(bytes)?,
            (2, WireValue::Bytes(bytes)) => value = bytes,
            (1 | 2, _) => return None,
            _ => {}
        }
    }
    Some((key, value))
}

/// Returns the number of a `UInt64Value`, or `before` where it has none, as protobuf merges a field that comes twice.
/// Returns `None` where its bytes are no message.
fn read_wrapped(message: &[u8], before: Option<u64>) -> Option<u64> {
    let mut number = before.unwrap_or_default();
    for field in Fields(message) {
        match field? {
            (1, WireValue::Number(of)) => number = of,
            (1, _) => return None,
            _ => {}
        }
    }
    Some(number)
}

/// Returns a path cut to the length that the engine takes.
fn bounded_path(path: Cow<'_, str>) -> Cow<'_, str> {
    match path {
        Cow::Borrowed(path) => truncated_path(path),
        Cow::Owned(path) => Cow::Owned(truncated_path(&path).into_owned()),
    }
}

/// Returns the rate of an override, or the field that is wrong, and why. Envoy's months have 30 days, its years 365.
fn override_rate(limit: &RateLimitOverride) -> Result<Rate, (&'static str, &'static str)> {
    let RateLimitOverride { requests_per_unit, unit, unit_multiplier } = limit;
    let unit = match RateLimitUnit::try_from(*unit) {
        Ok(RateLimitUnit::Second) => Duration::from_secs(1),
        Ok(RateLimitUnit::Minute) => Duration::from_mins(1),
        Ok(RateLimitUnit::Hour) => Duration::from_hours(1),
        Ok(RateLimitUnit::Day) => DAY,
        Ok(RateLimitUnit::Month) => 30 * DAY,
        Ok(RateLimitUnit::Year) => 365 * DAY,
        Ok(RateLimitUnit::Unknown) | Err(_) => {
            return Err(("limit/unit", "is no unit; give SECOND, MINUTE, HOUR, DAY, MONTH or YEAR"));
        }
    };
    let period = unit.saturating_mul(unit_multiplier.unwrap_or(1));
    if period.is_zero() || period > PERIOD_MAX {
        return Err(("limit/unit_multiplier", "makes 0, or more than 366 days, of the unit; give what is between"));
    }
    Ok(Rate::per(u64::from(*requests_per_unit), period))
}

fn field_error(field: &str, problem: &str) -> Error {
    Error::Field { field: field.to_owned(), problem: problem.to_owned() }
}
