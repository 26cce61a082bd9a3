//! Traffic from recorded requests, and their compact encoding.

use std::{io, sync::Arc};

use arrayvec::ArrayVec;
use tidegate::{IDENTITIES_MAX, Identity, Request, RequestParts, time::Nanos};

use super::{DecideFn, Traffic};
use crate::log::record::with_parts;

/// Longest encoded request. Requests with usual paths and names take 60 to 150 bytes.
pub const RECORD_BYTES_MAX: usize = 496;

/// An encoded request.
pub type RecordedRequest = ArrayVec<u8, RECORD_BYTES_MAX>;

/// Bit in the encoded cost that marks an [exact](Request::exactly) request. Costs are below 2^53.
const EXACT: u64 = 1 << 63;

/// Encoded length of a missing text.
const NONE: u16 = u16::MAX;

/// Encodes a request, without the query of its endpoint; returns `None` if it is too long.
#[must_use]
pub fn encode_request(at: Nanos, parts: &RequestParts<'_>) -> Option<RecordedRequest> {
    let mut record = RecordedRequest::new();
    record.try_extend_from_slice(&at.to_le_bytes()).ok()?;
    let cost = if parts.is_exact { parts.cost | EXACT } else { parts.cost };
    record.try_extend_from_slice(&cost.to_le_bytes()).ok()?;
    // Rules ignore the query, and it may contain secrets.
    let endpoint = parts.endpoint.map(|endpoint| endpoint.split(['?', '#']).next().unwrap_or_default());
    for text in [Some(parts.domain), endpoint, parts.method, parts.tier] {
        put(&mut record, text)?;
    }
    for identity in parts.identities {
        put(&mut record, Some(identity.kind()))?;
        put(&mut record, Some(identity.value()))?;
    }
    Some(record)
}

fn put(record: &mut RecordedRequest, text: Option<&str>) -> Option<()> {
    let length = text.map_or(Some(NONE), |text| u16::try_from(text.len()).ok().filter(|length| *length != NONE))?;
    record.try_extend_from_slice(&length.to_le_bytes()).ok()?;
    record.try_extend_from_slice(text.unwrap_or_default().as_bytes()).ok()
}

fn number<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*number)
}

/// Decodes the next text, which may be missing; returns `None` if the bytes are invalid.
#[expect(clippy::option_option, reason = "the outer option is about the bytes, the inner one about the request")]
fn text<'r>(bytes: &mut &'r [u8]) -> Option<Option<&'r str>> {
    let length = u16::from_le_bytes(number(bytes)?);
    if length == NONE {
        return Some(None);
    }
    let (text, rest) = bytes.split_at_checked(length.into())?;
    *bytes = rest;
    str::from_utf8(text).ok().map(Some)
}

/// Returns the time of an encoded request.
#[must_use]
pub fn recorded_at(record: &[u8]) -> Nanos {
    record.first_chunk().map_or(0, |at| Nanos::from_le_bytes(*at))
}

/// Decodes a request; returns `None` if the bytes are invalid.
fn read<T>(mut record: &[u8], run: impl FnOnce(Nanos, &Request<'_>) -> T) -> Option<T> {
    let bytes = &mut record;
    let at = Nanos::from_le_bytes(number(bytes)?);
    let cost = u64::from_le_bytes(number(bytes)?);
    let (domain, endpoint, method, tier) = (text(bytes)??, text(bytes)?, text(bytes)?, text(bytes)?);
    let mut identities = ArrayVec::<_, IDENTITIES_MAX>::new();
    while !bytes.is_empty() {
        identities.try_push(Identity::new(text(bytes)??, text(bytes)??).ok()?).ok()?;
    }
    let request = if cost & EXACT == 0 { Request::new(&identities) } else { Request::exactly(&identities) };
    let request = request.ok()?.domain(domain).cost(cost & !EXACT).ok()?;
    Some(run(at, &with_parts(request, [endpoint, method, tier]).ok()?))
}

/// Recorded requests in order of time.
#[derive(Debug)]
pub struct RecordedTraffic {
    records: std::vec::IntoIter<Arc<[u8]>>,
}

impl RecordedTraffic {
    /// Creates traffic from encoded requests in any order.
    #[must_use]
    pub fn new(mut records: Vec<Arc<[u8]>>) -> Self {
        // Threads record concurrently. The sort is stable for requests of the same instant.
        records.sort_by_key(|record| recorded_at(record));
        Self { records: records.into_iter() }
    }
}

impl Traffic for RecordedTraffic {
    fn step(&mut self, decide: &mut DecideFn<'_>) -> io::Result<bool> {
        let Some(record) = self.records.next() else { return Ok(false) };
        read(&record, |at, request| decide(at, request));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use tidegate::Retry;

    use super::*;

    #[test]
    fn a_request_is_the_same_after_it_was_recorded() {
        let identities: Vec<_> =
            ["a", "b", "c"].iter().map(|kind| Identity::new(kind, "wert: ä").expect("valid")).collect();
        let whole = Request::new(&identities).and_then(|it| it.endpoint("/p?secret=1#x")?.cost(7)).expect("valid");
        let whole = whole.domain("web").method("PATCH").tier("pro");
        let plain = Request::exactly(&identities[..1]).expect("valid");
        let records =
            [(20, &whole), (10, &plain)].map(|(at, it)| Arc::from(&*encode_request(at, &it.parts()).expect("short")));
        let mut traffic = RecordedTraffic::new(records.to_vec());
        let mut seen = 0;
        let mut ask = |now: Nanos, request: &Request<'_>| {
            let expected = if now == 10 { plain } else { whole.endpoint("/p").expect("valid") };
            assert_eq!(request.parts(), expected.parts());
            seen = seen * 100 + now;
            Retry::Now
        };
        while traffic.step(&mut ask).expect("memory") {}
        assert_eq!(seen, 10_20);
    }

    #[test]
    fn what_is_too_long_is_not_recorded_and_rubbish_asks_nothing() {
        let long = "x".repeat(RECORD_BYTES_MAX);
        let who = [Identity::new("user", &long).expect("valid")];
        assert_eq!(encode_request(0, &Request::new(&who).expect("valid").parts()), None);
        let who = [Identity::new("user", "ada").expect("valid")];
        let whole = encode_request(7, &Request::new(&who).expect("valid").parts()).expect("short");
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut], |_, _| ()).is_none(), "{cut} bytes");
        }
        assert!(read(&whole, |_, _| ()).is_some());
    }
}
