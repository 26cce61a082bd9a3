//! Conformance of imported policies to the files of other limiters. The listener for Envoy decides random descriptors
//! by the policy, and a slow model of the other limiter decides them by the file: where the report notes no changed
//! decisions, both must decide the same.

mod envoy;
mod limitador;
mod served;

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use tidegate::{
    Engine, Snapshot, TableShares,
    clock::ManualClock,
    import::{Case, CaseVerdict},
    policy::Policy,
    time::{SECOND_NS, Timestamp},
};
use tidegate_service::{
    Decider,
    grpc::{
        decide_descriptors,
        proto::envoy::{
            extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
            service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code},
        },
    },
};

/// The beginning of a day, in Unix seconds.
const START: u64 = 20_000 * 86_400;

/// The entries of a descriptor: keys with their values.
type Entries<'e> = Vec<(&'e str, &'e str)>;

/// A descriptor, and its hits.
type Call<'e> = (Entries<'e>, u64);

/// The status of a descriptor: whether it is within its limit, and the limit with what is left of it.
type Status = (bool, Option<(u64, u64)>);

/// The numbers of compared cases of each kind.
#[derive(Debug, Default)]
struct Coverage(RefCell<BTreeMap<&'static str, u32>>);

impl Coverage {
    /// Counts a case of a kind, if it is of that kind.
    fn count(&self, kind: &'static str, is_one: bool) {
        *self.0.borrow_mut().entry(kind).or_default() += u32::from(is_one);
    }

    /// Returns whether each kind has at least this many cases.
    fn is_enough(&self, least: &[(&str, u32)]) -> bool {
        let counts = self.0.borrow();
        least.iter().all(|(kind, least)| counts.get(kind).is_some_and(|count| count >= least))
    }
}

/// The Envoy service, with a policy and a manual clock.
struct Listener {
    decider: Decider<ManualClock>,
    clock: ManualClock,
}

impl Listener {
    fn new(policy: &Policy) -> Self {
        let clock = ManualClock::at(Timestamp::from_nanos(START * SECOND_NS));
        let engine = Engine::for_simulation(4_096, clock.clone(), 1).with_shares(TableShares::WHOLE);
        engine.publish(Snapshot::compile(policy).expect("a right policy")).expect("room");
        Self { decider: Decider::new(Arc::new(engine)).expect("metrics"), clock }
    }

    /// Decides descriptors together at a time, in seconds since the start.
    fn decide(&self, domain: &str, calls: &[Call<'_>], seconds: u64) -> Result<Vec<Status>, String> {
        self.clock.set(Timestamp::from_nanos((START + seconds) * SECOND_NS));
        let (_, response) = decide_descriptors(&self.decider, &request(domain, calls))?;
        let status = |(is_over, limit, left): (bool, Option<u32>, u32)| {
            (!is_over, limit.map(|limit| (limit.into(), left.into())))
        };
        let statuses = response.statuses.iter().map(|it| {
            let limit = it.current_limit.as_ref().map(|limit| limit.requests_per_unit);
            status((it.code() == Code::OverLimit, limit, it.limit_remaining))
        });
        let statuses: Vec<Status> = statuses.collect();
        assert_eq!(response.overall_code() == Code::Ok, statuses.iter().all(|(is_within, _)| *is_within));
        Ok(statuses)
    }
}

/// Returns the cases of an importer that the listener decides otherwise than they expect.
fn differing<'c>(policy: &Policy, cases: &'c [Case]) -> Result<Vec<&'c Case>, String> {
    let listener = Listener::new(policy);
    let mut differing = Vec::new();
    for case in cases {
        let entries = case.descriptors[0].entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
        let (is_within, limit) = listener.decide(&case.domain, &[(entries, case.cost)], 0)?[0];
        let is_expected = is_within == (case.expect == CaseVerdict::Allowed);
        if !is_expected || (case.limit == Some("none") && limit.is_some()) {
            differing.push(case);
        }
    }
    Ok(differing)
}

/// Returns the request that Envoy sends.
fn request(domain: &str, calls: &[Call<'_>]) -> RateLimitRequest {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).into() };
    let descriptor = |(entries, hits): &Call<'_>| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        hits_addend: Some(*hits),
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest { domain: domain.to_owned(), descriptors: calls.iter().map(descriptor).collect(), hits_addend: 0 }
}
