//! Writes decisions as the statuses of descriptors and as headers of a `RateLimitResponse`, byte for byte as prost would; tests
//! compare the two.

use std::{borrow::Cow, fmt::Write, ops::RangeInclusive, time::Duration};

use actix_web::web::BytesMut;
use tidegate::{Decision, InspectedLimit, policy::ResponseSettings};
use tidegate_middleware::headers;

use crate::{
    protobuf::{
        generated::envoy::service::ratelimit::v3::rate_limit_response::{Code, rate_limit::Unit},
        writer::{put_message, put_text, put_varint},
    },
    shared::decider::CheckResult,
};

/// The seconds of Envoy's units, the longest first.
const UNITS: [(u64, Unit); 7] = [
    (365 * 86_400, Unit::Year),
    (30 * 86_400, Unit::Month),
    (7 * 86_400, Unit::Week),
    (86_400, Unit::Day),
    (3_600, Unit::Hour),
    (60, Unit::Minute),
    (1, Unit::Second),
];
/// The seconds of the mean month of a calendar, where the mean may be over few years.
const MEAN_MONTH: RangeInclusive<u64> = 2_629_646..=2_629_846;
/// A token of a bucket takes whole nanoseconds, which makes the period longer by one part in this many at most.
const ROUNDING: u128 = 1_000;

/// Fields of a `RateLimitResponse`.
const OVERALL_CODE: u32 = 1;
const STATUSES: u32 = 2;
const HEADERS: u32 = 3;

/// Writes whether all descriptors are within their limits: the beginning of the response.
pub(super) fn put_overall_code(is_allowed: bool, to: &mut BytesMut) {
    put_varint(OVERALL_CODE, code(is_allowed) as u64, to);
}

/// Writes the headers of the decision: the end of the response.
pub(super) fn put_headers(outcome: &CheckResult<'_>, settings: ResponseSettings, to: &mut BytesMut) {
    for (name, value) in outcome.decision.iter().flat_map(|decision| headers::each(decision, settings)) {
        put_message(HEADERS, to, |to| {
            put_text(1, name, to);
            match value {
                headers::Value::Number(number) => put_text(2, itoa::Buffer::new().format(number), to),
                headers::Value::Text(text) => put_text(2, &text, to),
            }
        });
    }
}

/// Writes the status of a descriptor. Where no limit applied to the descriptor, the status has the numbers of the tightest limit
/// that only counts (`shadow`), if Envoy's types have room for them.
pub(super) fn put_status(decision: Option<&Decision<'_>>, shadows: &[InspectedLimit<'_>], to: &mut BytesMut) {
    let is_allowed = decision.is_none_or(Decision::is_allowed);
    let limited = decision.and_then(|decision| {
        let (name, limit, period) = (decision.limit_id()?, decision.limit()?, decision.period()?);
        Some((name, limit, period, decision.remaining()?, decision.reset_after()?))
    });
    let shadow = || {
        let known = shadows.iter().filter(|it| it.is_shadow && u32::try_from(it.state.limit()).is_ok());
        let InspectedLimit { limit_id, state, .. } = known.min_by_key(|it| it.state.remaining())?;
        Some((*limit_id, state.limit(), state.period(), state.remaining(), state.reset_after()))
    };
    put_message(STATUSES, to, |to| {
        put_varint(1, code(is_allowed) as u64, to);
        let Some((name, limit, period, remaining, reset_after)) = limited.or_else(shadow) else { return };
        let (unit, times) = units(period);
        put_message(2, to, |to| {
            put_varint(1, clamped(limit).into(), to);
            put_varint(2, unit as u64, to);
            put_text(3, &printable(name), to);
            if times > 1 {
                put_message(4, to, |to| put_varint(1, times.into(), to));
            }
        });
        put_varint(3, clamped(remaining).into(), to);
        put_message(4, to, |to| put_varint(1, whole_seconds(reset_after), to));
    });
}

fn code(is_allowed: bool) -> Code {
    if is_allowed { Code::Ok } else { Code::OverLimit }
}

fn clamped(number: u64) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

/// Returns the longest unit of which the period is a whole number, and that number. Where the period is no whole number
/// of seconds the unit is unknown, and Envoy writes no window into its header.
pub(super) fn units(period: Duration) -> (Unit, u32) {
    let seconds = period.as_secs();
    if MEAN_MONTH.contains(&seconds) {
        return (Unit::Month, 1);
    }
    let is_whole = u128::from(period.subsec_nanos()) * ROUNDING <= u128::from(seconds) * 1_000_000_000;
    let longest = UNITS.iter().find(|(unit, _)| is_whole && seconds > 0 && seconds.is_multiple_of(*unit));
    longest.map_or((Unit::Unknown, 1), |(unit, name)| (*name, clamped(seconds / unit)))
}

/// Returns whole seconds, rounded up, since Envoy passes the seconds alone to its clients.
fn whole_seconds(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    seconds.min(i64::MAX.unsigned_abs())
}

/// Returns a name that may stand between quotes in a header, where Envoy writes it: other bytes are percent-encoded.
pub(super) fn printable(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'%');
    if name.bytes().all(is_plain) {
        return name.into();
    }
    let mut printable = String::with_capacity(name.len());
    for byte in name.bytes() {
        if is_plain(byte) {
            printable.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(printable, "%{byte:02X}");
        }
    }
    printable.into()
}
