//! Writes the outcomes of checks as gRPC messages, byte for byte as prost would; tests compare the two.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_web::web::{BufMut, BytesMut};
use arrayvec::ArrayVec;
use tidegate::{Decision, Retry};
use tidegate_api::ms_rounded_up;

use crate::{
    protobuf::writer::{put_message, put_text, put_varint},
    shared::decider::CheckResult,
};

/// Writes the `CheckStreamResponse` of a decision.
pub(super) fn put_streamed_response(correlation_id: u64, outcome: &CheckResult<'_>, to: &mut BytesMut) {
    put_correlation_id(correlation_id, to);
    put_message(2, to, |to| put_response(outcome, to));
}

/// Writes the correlation ID of a message: the beginning of a `CheckStreamResponse`.
pub(super) fn put_correlation_id(correlation_id: u64, to: &mut BytesMut) {
    put_varint(1, correlation_id, to);
}

/// Writes the `RateLimitResponse` of a decision.
pub(super) fn put_response(outcome: &CheckResult<'_>, to: &mut BytesMut) {
    let decision = outcome.decision.as_ref();
    let limit_id = decision.and_then(Decision::limit_id);
    let remaining = decision.and_then(Decision::remaining);
    let wait = match decision.map(Decision::retry) {
        Some(Retry::Now) => Some(Duration::ZERO),
        Some(Retry::After(wait)) => Some(wait),
        Some(Retry::Never) => None,
        None if outcome.is_allowed => Some(Duration::ZERO),
        None => Some(CheckResult::CLOSED_WAIT),
    };
    let has_wait = limit_id.is_some() || !outcome.is_allowed;
    let remaining_tokens = match remaining {
        Some(remaining) => clamped(remaining),
        None if outcome.is_allowed => i32::MAX,
        None => 0,
    };
    let retry_after_seconds = wait.map_or(i32::MAX, |wait| clamped(seconds(wait)));
    // A reader takes absent ones for 0.
    let or_zero: [_; OR_ZERO] = [
        (1, u64::from(outcome.is_allowed)),
        (2, u64::from(remaining_tokens.cast_unsigned())),
        (3, decision.and_then(Decision::reset_at).map_or(0, |at| seconds(since_epoch(at)))),
        (4, u64::from(retry_after_seconds.cast_unsigned())),
        (11, outcome.policy_version),
    ];
    let where_known: [_; WHERE_KNOWN] = [
        (5, decision.and_then(Decision::limit)),
        (6, remaining),
        (7, decision.and_then(Decision::reset_after).map(ms_rounded_up)),
        (8, wait.filter(|_| has_wait).map(ms_rounded_up)),
        (9, decision.filter(|_| limit_id.is_some()).map(Decision::delay).map(ms_rounded_up)),
    ];
    let mut numbers = Numbers::new();
    for (field, number) in or_zero {
        if number != 0 {
            put_number(field, number, &mut numbers);
        }
    }
    for (field, number) in where_known {
        if let Some(number) = number {
            put_number(field, number, &mut numbers);
        }
    }
    to.put_slice(&numbers);
    if let Some(limit_id) = limit_id {
        put_text(10, limit_id, to);
    }
    if let Some(reason) = outcome.degraded {
        put_text(12, reason.name(), to);
    }
    for limit in decision.into_iter().flat_map(Decision::shadow_denied) {
        put_text(13, limit, to);
    }
}

/// The number of fields that are written unless they are 0.
const OR_ZERO: usize = 5;
/// The number of fields that are written where they are known.
const WHERE_KNOWN: usize = 5;
/// A buffer for all of these fields: each has a byte for its key, and at most ten for its value.
type Numbers = ArrayVec<u8, { (OR_ZERO + WHERE_KNOWN) * 11 }>;

/// Writes a number field with a field number below 16.
fn put_number(field: u8, mut number: u64, to: &mut Numbers) {
    to.push(field << 3);
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Writes the `ReserveResponse` of a decision.
pub(super) fn put_reserved(outcome: &CheckResult<'_>, to: &mut BytesMut) {
    put_message(1, to, |to| put_response(outcome, to));
    if let Some(id) = outcome.reservation {
        put_text(2, &id.to_string(), to);
    }
}

fn clamped(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Returns the time since the Unix epoch.
fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns whole seconds, rounded up.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc};

    use futures_util::FutureExt;
    use proptest::prelude::*;
    use prost::Message;
    use tidegate::{
        Engine, Request, Snapshot, algorithm::NUMBER_MAX, clock::ManualClock, formats::Format, time::Timestamp,
    };

    use super::*;
    use crate::{
        protobuf::generated::tidegate::v1::{RateLimitResponse, ReserveResponse},
        shared::{caller_shares::Caller, decider::Decider},
    };

    /// Returns the output of a future that waits for nothing, since there is no store.
    fn now<T>(future: impl Future<Output = T>) -> T {
        future.now_or_never().expect("it is ready")
    }

    /// Returns the message of prost for an outcome, field by field.
    fn reference(outcome: &CheckResult<'_>) -> RateLimitResponse {
        let decision = outcome.decision;
        let limit_id = decision.and_then(|decision| decision.limit_id().map(str::to_owned));
        let remaining = decision.and_then(|decision| decision.remaining());
        let up = |duration: Duration| u64::try_from(duration.as_nanos().div_ceil(1_000_000)).expect("it fits");
        let wait = match decision.map(|decision| decision.retry()) {
            None if !outcome.is_allowed => Some(Duration::from_secs(1)),
            None | Some(Retry::Now) => Some(Duration::ZERO),
            Some(Retry::After(wait)) => Some(wait),
            Some(Retry::Never) => None,
        };
        let has_wait = limit_id.is_some() || !outcome.is_allowed;
        let whole = |duration: Duration| duration.as_nanos().div_ceil(1_000_000_000);
        RateLimitResponse {
            allowed: outcome.is_allowed,
            remaining_tokens: remaining.map_or(if outcome.is_allowed { i32::MAX } else { 0 }, |remaining| {
                remaining.min(i32::MAX as u64) as i32
            }),
            reset_time: decision
                .and_then(|decision| decision.reset_at())
                .map_or(0, |at| whole(at.duration_since(UNIX_EPOCH).expect("after 1970")) as i64),
            retry_after_seconds: wait.map_or(i32::MAX, |wait| whole(wait).min(i32::MAX as u128) as i32),
            limit: decision.and_then(|decision| decision.limit()),
            remaining,
            reset_after_ms: decision.and_then(|decision| decision.reset_after()).map(up),
            retry_after_ms: wait.filter(|_| has_wait).map(up),
            delay_ms: limit_id.as_ref().and(decision).map(|decision| up(decision.delay())),
            limit_id,
            policy_version: outcome.policy_version,
            degraded: outcome.degraded.map(|reason| reason.name().to_owned()).unwrap_or_default(),
            shadow_denied: decision.iter().flat_map(Decision::shadow_denied).map(str::to_owned).collect(),
            error: None,
        }
    }

    proptest! {
        #[test]
        fn responses_are_written_as_prost_reads_them(
            limit in 1_u64..=1 << 24,
            other in 1_u64..=1 << 24,
            mode in prop_oneof![Just("enforce"), Just("shadow")],
            costs in prop::collection::vec(prop_oneof![1_u64..=1 << 24, 1_u64..=NUMBER_MAX], 1..6),
            is_known: bool,
        ) {
            let policy = format!(
                r#"
                [domains.default]
                defaults = {{ user = "free" }}
                [[domains.default.tiers]]
                id = "free"
                limits = [
                    {{ id = "a", algorithm = "fixed_window", limit = {limit}, period = "1d", mode = "{mode}" }},
                    {{ id = "b", algorithm = "fixed_window", limit = {other}, period = "1h" }},
                ]
                "#
            );
            let engine = Engine::for_simulation(10, ManualClock::at(Timestamp::from_nanos(1_700_000_000_000_000_000)), 7);
            engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a right policy")).expect("room");
            let decider = Decider::new(Arc::new(engine)).expect("random numbers");
            let who = [tidegate::Identity::new(if is_known { "user" } else { "ip" }, "192.0.2.7").expect("valid")];
            let caller = Caller::without_token(IpAddr::from([192, 0, 2, 7]).into());
            for cost in costs {
                let request = Request::new(&who).and_then(|request| request.cost(cost)).expect("valid");
                let checked = now(decider.check(&request, None, &caller)).expect("no id");
                let kept = now(decider.reserve(&request, None, &caller)).expect("room");
                for outcome in [checked, kept, decider.undecided("default")] {
                    let mut written = BytesMut::new();
                    put_response(&outcome, &mut written);
                    let read = RateLimitResponse::decode(&*written).expect("a message");
                    prop_assert_eq!(&read, &reference(&outcome));
                    let mut written = BytesMut::new();
                    put_reserved(&outcome, &mut written);
                    let reservation = outcome.reservation.map(|id| id.to_string()).unwrap_or_default();
                    let expected = ReserveResponse { response: Some(read), reservation };
                    prop_assert_eq!(ReserveResponse::decode(&*written).expect("a message"), expected);
                }
            }
        }

        #[test]
        fn numbers_are_written_as_prost_writes_them(number: u64, shift in 0_u32..64, field in 1_u8..16) {
            let number = number >> shift;
            let (mut ours, mut theirs) = (Numbers::new(), Vec::new());
            put_number(field, number, &mut ours);
            prost::encoding::uint64::encode(u32::from(field), &number, &mut theirs);
            prop_assert_eq!(&ours[..], &theirs[..]);
        }
    }
}
