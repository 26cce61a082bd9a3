//! Reads descriptors as requests to the engine. A value, which an end user may have written, is never an error: Envoy lets
//! requests pass on errors. Keys are written by the operator of Envoy.

use std::{borrow::Cow, iter, ops::Range, time::Duration};

use arrayvec::ArrayVec;
use tidegate::{
    CountedIdentity, Engine, IDENTITIES_MAX, Identity, Rate, Request, RequestError,
    clock::Clock,
    descriptor::Dimension,
    fitting_path,
    policy::{DescriptorSettings, Descriptors},
};
use tidegate_middleware::extract::fitting_value;

use super::super::proto::envoy::{
    extensions::common::ratelimit::v3::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::ratelimit::v3::RateLimitRequest,
    r#type::v3::RateLimitUnit,
};
use crate::error::Error;

/// The most descriptors in one request.
const DESCRIPTORS_MAX: usize = 32;
/// The most entries of a descriptor.
const ENTRIES_MAX: usize = 32;
/// The digest of an empty value, which counts like other values that the engine takes as digests only.
const EMPTY: &str = "~sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// An identity that no rule is about.
static NO_RULE: EntryIdentity<'static> = (Cow::Borrowed("descriptor_of_no_rule"), Cow::Borrowed("x"), 0);
const DAY: Duration = Duration::from_hours(24);
/// The longest period of a limit.
const PERIOD_MAX: Duration = DAY.saturating_mul(366);

/// The descriptors of a request of Envoy.
#[derive(Debug)]
pub(super) struct DescriptorsRequest<'m> {
    domain: &'m str,
    settings: DescriptorSettings,
    descriptors: Vec<Descriptor<'m>>,
    /// Those of all descriptors, in order.
    identities: Vec<EntryIdentity<'m>>,
}

/// Kind and value of an identity, and the place of its entry in the descriptor.
type EntryIdentity<'m> = (Cow<'m, str>, Cow<'m, str>, usize);

#[derive(Debug)]
struct Descriptor<'m> {
    /// The places of its identities among those of all descriptors.
    identities: Range<usize>,
    endpoint: Option<Cow<'m, str>>,
    method: Option<Cow<'m, str>>,
    hits: u64,
    rate: Option<Rate>,
}

impl<'m> DescriptorsRequest<'m> {
    /// Reads a request to a domain with these settings. An error names the place, such as `descriptors/1/entries/0/key`.
    pub(super) fn read(message: &'m RateLimitRequest, settings: DescriptorSettings) -> Result<Self, Error> {
        let RateLimitRequest { domain, descriptors, hits_addend } = message;
        if domain.is_empty() {
            return Err(wrong("domain", "is empty; name a domain of the policy, such as `default`"));
        }
        match descriptors.len() {
            1..=DESCRIPTORS_MAX => {}
            0 => return Err(wrong("descriptors", "there are none; give one at least")),
            count => return Err(wrong("descriptors", &format!("{count} given; at most {DESCRIPTORS_MAX} fit"))),
        }
        let hits = u64::from(*hits_addend).max(1);
        let mut request =
            Self { domain, settings, descriptors: Vec::with_capacity(descriptors.len()), identities: Vec::new() };
        for (place, descriptor) in descriptors.iter().enumerate() {
            let descriptor = request.descriptor(descriptor, hits, place)?;
            request.descriptors.push(descriptor);
        }
        Ok(request)
    }

    fn descriptor(
        &mut self,
        message: &'m RateLimitDescriptor,
        hits: u64,
        place: usize,
    ) -> Result<Descriptor<'m>, Error> {
        let wrong = |part: &str, problem: &str| wrong(&format!("descriptors/{place}/{part}"), problem);
        if message.entries.is_empty() {
            return Err(wrong("entries", "there are none; give one at least"));
        }
        let count = message.entries.len();
        if count > ENTRIES_MAX {
            return Err(wrong("entries", &format!("{count} given; give one to {ENTRIES_MAX}")));
        }
        if message.is_negative_hits {
            let problem = "hits are not given back here; reserve what a request may cost, and settle what it did";
            return Err(wrong("is_negative_hits", problem));
        }
        let (mut endpoint, mut method) = (None, None);
        let start = self.identities.len();
        for (number, Entry { key, value }) in message.entries.iter().enumerate() {
            if key.is_empty() {
                return Err(wrong(&format!("entries/{number}/key"), "is empty; name what the value is"));
            }
            let is_taken = |dimension: &Dimension<'_>| match dimension {
                Dimension::Endpoint => endpoint.is_some(),
                Dimension::Method => method.is_some(),
                Dimension::Kind(kind) => self.identities[start..].iter().any(|(earlier, ..)| earlier == kind),
            };
            match Dimension::of(key, self.settings.paths, is_taken) {
                Dimension::Endpoint => endpoint = Some(String::from_utf8_lossy(value)),
                Dimension::Method => method = Some(String::from_utf8_lossy(value)),
                Dimension::Kind(kind) => {
                    let value = if value.is_empty() { EMPTY.into() } else { fitting_value(value) };
                    self.identities.push((kind, value, number));
                }
            }
        }
        Ok(Descriptor {
            identities: start..self.identities.len(),
            endpoint: endpoint.map(fitting),
            method,
            hits: message.hits_addend.unwrap_or(hits),
            rate: message.limit.as_ref().map(rate).transpose().map_err(|(part, problem)| wrong(part, problem))?,
        })
    }

    /// Calls `ask` with the requests, each with the rate that it brings. An error names a request that the engine would not take.
    pub(super) async fn with_requests<C: Clock, T>(
        &self,
        engine: &Engine<C>,
        ask: impl AsyncFnOnce(&[(Request<'_>, Option<Rate>)]) -> T,
    ) -> Result<T, Error> {
        let mut counted = Vec::with_capacity(self.identities.len());
        let mut ranges = Vec::with_capacity(self.descriptors.len());
        for (place, descriptor) in self.descriptors.iter().enumerate() {
            let start = counted.len();
            for (kind, value, entry) in self.counting(engine, descriptor) {
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
        Ok(ask(&requests).await)
    }

    /// Returns the identities of a descriptor that count. Of more than a request can have, no rule names all: where a limit holds
    /// for exactly its kinds, none does, and one identity of another kind stands for them. Where some of its kinds are enough for
    /// a limit, the first of the kinds that the domain names count.
    fn counting<C: Clock>(
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

fn fitting(path: Cow<'_, str>) -> Cow<'_, str> {
    match path {
        Cow::Borrowed(path) => fitting_path(path),
        Cow::Owned(path) => Cow::Owned(fitting_path(&path).into_owned()),
    }
}

/// Returns the rate of an override; or the field that is wrong, and why. Envoy's months have 30 days, its years 365.
fn rate(limit: &RateLimitOverride) -> Result<Rate, (&'static str, &'static str)> {
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

fn wrong(field: &str, problem: &str) -> Error {
    Error::Field { field: field.to_owned(), problem: problem.to_owned() }
}
