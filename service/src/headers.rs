//! Headers that tell a decision to clients, in the family that the domain asks for.

use std::{fmt::Write, time::Duration};

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tidegate::{
    Decision, Retry,
    policy::{DoorSettings, Headers, Reset},
};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const IETF: HeaderName = HeaderName::from_static("ratelimit");
const IETF_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The largest whole number of a structured field (RFC 9651).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// Sets what there is to tell: the numbers where a limit applied, and `Retry-After` on a denial that ends.
pub(crate) fn set(headers: &mut HeaderMap, decision: &Decision<'_>, door: DoorSettings) {
    match door.headers {
        Headers::XRatelimit => set_x_ratelimit(headers, decision, door.reset),
        Headers::Ietf => set_ietf(headers, decision),
        Headers::None => {}
    }
    if let Some(wait) = retry_after(decision) {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait));
    }
}

fn set_x_ratelimit(headers: &mut HeaderMap, decision: &Decision<'_>, reset: Reset) {
    let reset = match reset {
        Reset::Epoch => decision.reset_at(),
        Reset::Delta => decision.reset_after(),
    };
    let numbers =
        [(LIMIT, decision.limit()), (REMAINING, decision.remaining()), (RESET, reset.map(seconds_rounded_up))];
    for (name, number) in numbers {
        if let Some(number) = number {
            headers.insert(name, HeaderValue::from(number));
        }
    }
}

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-10, with the limit that decided.
fn set_ietf(headers: &mut HeaderMap, decision: &Decision<'_>) {
    let (Some(id), Some(limit), Some(remaining)) = (decision.limit_id(), decision.limit(), decision.remaining()) else {
        return;
    };
    let name = quoted(id);
    let whole = |number: u64| number.min(INTEGER_MAX);
    let period = decision.period().map(seconds_rounded_up).filter(|&seconds| seconds > 0);
    let window = period.map_or(String::new(), |seconds| format!(";w={}", whole(seconds)));
    // A client that is told to come again must not read that it has to wait longer.
    let until = retry_after(decision).or(decision.reset_after().map(seconds_rounded_up)).unwrap_or_default();
    for (header, value) in [
        (IETF_POLICY, format!("{name};q={}{window}", whole(limit))),
        (IETF, format!("{name};r={};t={}", whole(remaining), whole(until))),
    ] {
        // What `quoted` writes always fits.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(header, value);
        }
    }
}

/// Whole seconds; 0 would say: now.
fn retry_after(decision: &Decision<'_>) -> Option<u64> {
    match decision.retry() {
        Retry::After(wait) => Some(seconds_rounded_up(wait).max(1)),
        Retry::Now | Retry::Never => None,
    }
}

/// As a string of a structured field, which is printable ASCII; of other bytes, their numbers.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(quoted, "%{byte:02X}")),
        }
    }
    quoted + "\""
}

fn seconds_rounded_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}
