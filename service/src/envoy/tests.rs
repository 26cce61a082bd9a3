//! Tests of the Envoy service over an engine with a manual clock.

mod charges;
mod identities;
mod reading;
mod responses;

use std::{
    net::IpAddr,
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix_web::web::BytesMut;
use futures_util::FutureExt;
use proptest::prelude::*;
use prost::Message;
use tidegate::{
    Engine, Snapshot,
    clock::{Clock, ManualClock},
    formats::Format,
    time::{Nanos, SECOND_NS, Timestamp},
};

use super::{decide, response};
use crate::{
    protobuf::{
        error::MessageError,
        generated::envoy::{
            config::core::v3::HeaderValue,
            extensions::common::ratelimit::v3::{
                RateLimitDescriptor,
                rate_limit_descriptor::{Entry, RateLimitOverride},
            },
            service::ratelimit::v3::{
                RateLimitRequest, RateLimitResponse,
                rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
            },
            r#type::v3::RateLimitUnit,
        },
    },
    shared::{
        caller_shares::Caller,
        decider::{CheckResult, Decider},
        error::Error,
    },
};

/// Decides a request of a peer without a token, and checks that the response is written as prost would write it.
async fn decide<'e, C: Clock>(
    decider: &'e Decider<C>,
    message: &RateLimitRequest,
) -> Result<(CheckResult<'e>, RateLimitResponse), Error> {
    let caller = Caller::without_token(IpAddr::from([192, 0, 2, 1]).into());
    let mut written = BytesMut::new();
    match decide::decide(decider, &message.encode_to_vec(), &caller, &mut written).await {
        Ok(outcome) => {
            let response = RateLimitResponse::decode(&*written).expect("a message");
            assert_eq!(response.encode_to_vec(), written);
            Ok((outcome, response))
        }
        Err(MessageError::Invalid(error)) => {
            assert!(written.is_empty());
            Err(error)
        }
        Err(MessageError::Malformed(why)) => panic!("{why}"),
    }
}

/// Returns the output of a future that waits for nothing, since there is no store.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("it is ready")
}

/// The beginning of a minute.
const START: Nanos = 1_700_000_040 * SECOND_NS;

const POLICY: &str = r#"
    [domains.edge]
    defaults = { user = "free", x_api_key = "free" }
    [[domains.edge.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 5, period = "1m" }]
    [[domains.edge.rules]]
    id = "pair"
    endpoint = "*"
    per = ["user", "remote_address"]
    limits = [{ id = "day", algorithm = "fixed_window", limit = 3, period = "1d" }]
    [[domains.edge.rules]]
    id = "search"
    endpoint = "/search"
    method = "GET"
    per = "user"
    limits = [{ id = "second", algorithm = "token_bucket", limit = 2, period = "1s" }]
    [[domains.edge.rules]]
    id = "all"
    endpoint = "/all"
    per = "everyone"
    limits = [{ id = "hour", algorithm = "token_bucket", limit = 7, period = "1h" }]
    [[domains.edge.rules]]
    id = "seen"
    endpoint = "*"
    per = "seen"
    limits = [{ id = "never", algorithm = "token_bucket", limit = 1, period = "1h", mode = "shadow" }]
    [[domains.edge.rules]]
    id = "many"
    endpoint = "*"
    per = "many"
    limits = [{ id = "many", algorithm = "token_bucket", limit = 1_000_000_000_000, period = "7d" }]
"#;

/// A clock that panics once it is broken.
#[derive(Debug)]
struct TestClock(ManualClock, Arc<AtomicBool>);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        assert!(!self.1.load(Ordering::SeqCst), "the clock is broken");
        self.0.now()
    }
}

/// Returns a decider with this policy, and the flag that breaks its clock.
fn decider(policy: &str) -> (Decider<TestClock>, Arc<AtomicBool>) {
    let is_broken = Arc::new(AtomicBool::new(false));
    let engine = Engine::for_simulation(
        1_000,
        TestClock(ManualClock::at(Timestamp::from_nanos(START)), Arc::clone(&is_broken)),
        7,
    );
    engine.publish(Snapshot::parse(policy, Format::Toml).expect("a right policy")).expect("room");
    (Decider::new(Arc::new(engine)).expect("random numbers"), is_broken)
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.into() };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        limit: None,
        hits_addend: None,
        is_negative_hits: false,
    }
}

/// Returns a request with these descriptors.
fn message(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 }
}

/// Returns a request with one descriptor.
fn request_of(entries: &[(&str, &str)]) -> RateLimitRequest {
    message(vec![descriptor(entries)])
}

/// Decides a request and returns the response.
fn respond(decider: &Decider<TestClock>, message: &RateLimitRequest) -> RateLimitResponse {
    now(decide(decider, message)).expect("a right request").1
}

/// Returns the limit of the only descriptor and what is left of it, if the descriptor has one.
fn limit_of(decider: &Decider<TestClock>, entries: &[(&str, &str)]) -> Option<(String, u32)> {
    let RateLimitResponse { mut statuses, .. } = respond(decider, &request_of(entries));
    let status = statuses.pop().expect("one");
    status.current_limit.map(|limit| (limit.name, status.limit_remaining))
}

fn codes(response: &RateLimitResponse) -> (Code, Vec<Code>) {
    (response.overall_code(), response.statuses.iter().map(DescriptorStatus::code).collect())
}

fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => proptest::sample::select(vec!["user", "path", "method", "many", "remote_address", "x"]).prop_map(str::to_owned),
        1 => ".{0,40}",
    ]
}

fn any_descriptor() -> impl Strategy<Value = RateLimitDescriptor> {
    let entry = (any_key(), prop_oneof![Just("a".to_owned()), Just("/all".to_owned()), ".{0,9}"])
        .prop_map(|(key, value)| Entry { key, value: value.into_bytes() });
    let limit = (any::<u32>(), -1..9_i32, proptest::option::of(0..9_u32)).prop_map(
        |(requests_per_unit, unit, unit_multiplier)| RateLimitOverride { requests_per_unit, unit, unit_multiplier },
    );
    let hits = prop_oneof![4 => Just(None), 2 => (0..9_u64).prop_map(Some), 1 => any::<u64>().prop_map(Some)];
    (proptest::collection::vec(entry, 0..4), proptest::option::weighted(0.2, limit), hits).prop_map(
        |(entries, limit, hits_addend)| RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits: false },
    )
}
