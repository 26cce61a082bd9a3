//! Headers that tell a decision to clients. So far the family `X-RateLimit-*` with the reset as Unix seconds; other
//! families belong beside it.

use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tidegate::{Decision, Retry};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Sets what there is to tell: the three numbers where a limit applied, and `Retry-After` on a denial that ends.
pub(crate) fn set(headers: &mut HeaderMap, decision: &Decision<'_>) {
    let numbers = [
        (LIMIT, decision.limit()),
        (REMAINING, decision.remaining()),
        (RESET, decision.reset_at().map(seconds_rounded_up)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            headers.insert(name, HeaderValue::from(number));
        }
    }
    if let Retry::After(wait) = decision.retry() {
        // Zero would say: now.
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds_rounded_up(wait).max(1)));
    }
}

fn seconds_rounded_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}
