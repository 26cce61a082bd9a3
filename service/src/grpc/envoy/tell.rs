//! Decisions as statuses of descriptors, and as headers.

use std::{fmt::Write, ops::RangeInclusive, time::Duration};

use tidegate::{Decision, Inspected, policy::DoorSettings};
use tidegate_middleware::headers;

use super::super::proto::envoy::{
    config::core::v3::HeaderValue,
    service::ratelimit::v3::{
        RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
    },
};
use crate::decider::Answer;

/// Seconds of Envoy's units, the longest first.
const UNITS: [(u64, Unit); 7] = [
    (365 * 86_400, Unit::Year),
    (30 * 86_400, Unit::Month),
    (7 * 86_400, Unit::Week),
    (86_400, Unit::Day),
    (3_600, Unit::Hour),
    (60, Unit::Minute),
    (1, Unit::Second),
];
/// Seconds of the mean month of a calendar, of which the years may be few.
const MEAN_MONTH: RangeInclusive<u64> = 2_629_646..=2_629_846;
/// A bucket's tokens take whole nanoseconds each, which makes its period longer by at most one part in so many.
const ROUNDING: u128 = 1_000;

/// The answer to the descriptors that these statuses are of; `decided` is what its headers tell.
pub(super) fn response(
    decided: &Answer<'_>,
    statuses: Vec<DescriptorStatus>,
    settings: DoorSettings,
) -> RateLimitResponse {
    let header = |(name, value): (&str, headers::Value)| HeaderValue { key: name.to_owned(), value: value.to_string() };
    let told = decided.decision.iter().flat_map(|decision| headers::each(decision, settings));
    RateLimitResponse {
        overall_code: code(decided.is_allowed).into(),
        statuses,
        response_headers_to_add: told.map(header).collect(),
    }
}

/// Returns the status of a descriptor. Of one that no limit applied to, it has the numbers of the tightest limit that only
/// counts (`shadow`), if those are numbers that Envoy knows.
pub(super) fn status(decision: Option<&Decision<'_>>, shadows: &[Inspected<'_>]) -> DescriptorStatus {
    let is_allowed = decision.is_none_or(Decision::is_allowed);
    let limited = decision.and_then(|decision| {
        let (name, limit, period) = (decision.limit_id()?, decision.limit()?, decision.period()?);
        Some((name, limit, period, decision.remaining()?, decision.reset_after()?))
    });
    let shadow = || {
        let known = shadows.iter().filter(|it| it.is_shadow && u32::try_from(it.state.limit()).is_ok());
        let Inspected { limit_id, state, .. } = known.min_by_key(|it| it.state.remaining())?;
        Some((*limit_id, state.limit(), state.period(), state.remaining(), state.reset_after()))
    };
    let Some((name, limit, period, remaining, reset_after)) = limited.or_else(shadow) else {
        return DescriptorStatus { code: code(is_allowed).into(), ..DescriptorStatus::default() };
    };
    let (unit, times) = units(period);
    DescriptorStatus {
        code: code(is_allowed).into(),
        current_limit: Some(RateLimit {
            requests_per_unit: clamped(limit),
            unit: unit.into(),
            unit_multiplier: Some(times).filter(|times| *times > 1),
            name: printable(name),
        }),
        limit_remaining: clamped(remaining),
        duration_until_reset: Some(whole_seconds(reset_after)),
    }
}

fn code(is_allowed: bool) -> Code {
    if is_allowed { Code::Ok } else { Code::OverLimit }
}

fn clamped(number: u64) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

/// The longest unit of which the period is so many. Envoy writes no window into its header where that is unknown: one that
/// is no whole number of seconds.
pub(super) fn units(period: Duration) -> (Unit, u32) {
    let seconds = period.as_secs();
    if MEAN_MONTH.contains(&seconds) {
        return (Unit::Month, 1);
    }
    let is_whole = u128::from(period.subsec_nanos()) * ROUNDING <= u128::from(seconds) * 1_000_000_000;
    let longest = UNITS.iter().find(|(unit, _)| is_whole && seconds > 0 && seconds.is_multiple_of(*unit));
    longest.map_or((Unit::Unknown, 1), |(unit, name)| (*name, clamped(seconds / unit)))
}

/// Rounded up: Envoy tells its clients the seconds alone.
fn whole_seconds(duration: Duration) -> prost_types::Duration {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    prost_types::Duration { seconds: seconds.try_into().unwrap_or(i64::MAX), nanos: 0 }
}

/// A name as it may stand between quotes in a header, where Envoy writes it: of other bytes, their numbers.
pub(super) fn printable(name: &str) -> String {
    let mut printable = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\' | b'%') => printable.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(printable, "%{byte:02X}")),
        }
    }
    printable
}
