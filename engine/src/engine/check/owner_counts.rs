//! Tests of what limits count for their tiers and rules: the short computation agrees with the full one.

use std::{cell::Cell, sync::Arc};

use proptest::{collection::vec, prelude::*, sample::subsequence};

use super::*;
use crate::{
    Identity,
    base::{clock::ManualClock, time::Timestamp},
    engine::state::Engine,
    policy::{compiled::Snapshot, formats::Format, request::Request},
    storage::counters::LimitCount,
};

const POLICY: &str = r#"
[domains.default]
defaults = { ip = "two", user = "two", key = "one" }
tiers = [
    { id = "one", limits = [{ id = "minute", algorithm = "token_bucket", limit = 9, period = "1m" }] },
    { id = "two", limits = [
        { id = "minute", algorithm = "token_bucket", limit = 9, period = "1m" },
        { id = "day", algorithm = "fixed_window", limit = 90, period = "1d" },
    ] },
]
clients = [
    { kind = "user", value = "0", tier = "one" },
    { kind = "user", value = "1", override = { limits = [{ id = "day", algorithm = "fixed_window", limit = 5, period = "1d" }] } },
    { kind = "key", value = "1", tier = "two", override = { limits = [
        { id = "hour", algorithm = "fixed_window", limit = 7, period = "1h" },
        { id = "minute", algorithm = "token_bucket", limit = 5, period = "1m" },
    ] } },
]
rules = [
    { id = "search", endpoint = "/search", per = "user", limits = [
        { id = "a", algorithm = "token_bucket", limit = 9, period = "1m" },
        { id = "b", algorithm = "token_bucket", limit = 90, period = "1h" },
    ] },
    { id = "all", endpoint = "*", per = "everyone", limits = [
        { id = "a", algorithm = "token_bucket", limit = 9, period = "1m" },
    ] },
]
"#;

fn identities() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let values = vec(prop::sample::select(["0", "1", "2"].as_slice()), 3);
    (subsequence(vec!["ip", "user", "key"], 1..=3).prop_shuffle(), values)
        .prop_map(|(kinds, values)| kinds.into_iter().zip(values).collect())
}

#[test]
fn counting_as_if_alone_agrees_with_the_full_computation() {
    let engine = Engine::for_simulation(100, ManualClock::at(Timestamp::from_nanos(1_790_035_200_000_000_000)), 7);
    engine.publish(Arc::new(Snapshot::parse(POLICY, Format::Toml).expect("a policy"))).expect("few limits");
    let (whole, mixed) = (Cell::new(0), Cell::new(0));
    proptest!(|(who in identities(), path in prop::sample::select(["/search", "/"].as_slice()))| {
        let who: Vec<_> = who.iter().map(|(kind, value)| Identity::new(kind, value).expect("valid")).collect();
        let request = Request::new(&who).and_then(|request| request.endpoint(path)).expect("valid");
        engine.with_plan(&request, |active, plan, _| {
            if !is_each_owner_whole(active, plan) {
                mixed.set(mixed.get() + 1);
                return Ok(());
            }
            whole.set(whole.get() + 1);
            let place_of = |share: Option<LimitCount>| share.map(|share| share.place);
            for (place, entry) in plan.iter().enumerate() {
                assert_eq!(place_of(share_alone(active, entry)), place_of(share(active, plan, 0, place)), "{plan:?} at {place}");
            }
            Ok(())
        });
    });
    assert!(whole.get() > 20 && mixed.get() > 20, "{} of one kind, {} of the other", whole.get(), mixed.get());
}
