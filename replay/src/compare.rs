//! Compares two policies over the same traffic, request by request: which decisions differ, for which clients, and when.
//!
//! Each policy decides in its own engine on a virtual clock; real traffic is not affected. The same policies and traffic give
//! the same bytes. Memory is bounded: clients that do not fit are missing from the lists and from the counts of clients, but
//! never from the decisions and the counts of requests. The result says how many are missing.

mod clients;
mod decisions;
mod limits;
mod result;
mod result_builder;
mod series;
mod side;
mod summary;

use std::collections::HashMap;

use arrayvec::ArrayVec;
use tidegate::{
    CountedIdentity, IDENTITIES_MAX, Problems, PublishError, Request, Retry, Snapshot, policy, time::Nanos,
};

use crate::compare::result_builder::TotalCounts;
use clients::ComparedClients;
use decisions::{DecisionLog, anonymized};
use series::{BucketCounts, SeriesSet};

pub(crate) use decisions::{ms, retry_ms};
use side::with_identities;
pub(crate) use side::{PolicySide, SideDecision};

pub use clients::{CLIENT_BYTES_MAX, CLIENTS_KEPT_MAX};
pub use decisions::{DECISIONS_MAX, DecisionDetails, DecisionFilter, DecisionRow};
pub use limits::{CLIENT_LIMITS_MAX, LimitComparison, LimitResult};
pub use result::{ComparisonResult, DecisionPage};
pub use result_builder::TOP;
pub use series::{BUCKETS_MS, CELLS_MAX};
pub use summary::{
    ChangeCounts, ClientChangeCounts, ClientComparison, ClientOrder, ClientTimeline, DecisionsKept, FirstDenial,
    KeptCounts, LongestRun, SideSummary, Summary, TimelineBucket,
};

/// Both policies, `A` and `B`.
pub(crate) const SIDES: usize = 2;

/// Function that returns whether an identity is in the sample, by kind and value.
pub type SampleFilter = dyn Fn(&str, &str) -> bool + Send;

/// A running comparison of two policies.
pub struct Comparison {
    sides: [PolicySide; SIDES],
    totals: TotalCounts,
    clients: ComparedClients,
    series: SeriesSet,
    decisions: DecisionLog,
    sample: Option<Box<SampleFilter>>,
    /// Whether identities are removed from paths.
    is_hiding: bool,
}

impl Comparison {
    /// Compares the policies `A` and `B`; a missing one allows everything. Each engine has room for `room` counters.
    pub fn new(policies: [Option<Snapshot>; SIDES], room: usize) -> Result<Self, PublishError> {
        let [a, b] = policies;
        Ok(Self {
            sides: [PolicySide::new(a, room)?, PolicySide::new(b, room)?],
            totals: TotalCounts::default(),
            clients: ComparedClients::default(),
            series: SeriesSet::default(),
            decisions: DecisionLog::default(),
            sample: None,
            is_hiding: false,
        })
    }

    /// Declares that the traffic is a sample: it has every request of the identities for which `sample` returns true, and some
    /// requests of others. The others are not listed, and the counts of limits exclude them.
    #[must_use]
    pub fn of_sample(mut self, sample: Box<SampleFilter>) -> Self {
        self.sample = Some(sample);
        self
    }

    /// Replaces the identities of a request in its path before anything else reads it: `/users/{user}`. Rules match the
    /// remaining path, so that no decision reveals an identity.
    #[must_use]
    pub fn hiding(mut self) -> Self {
        self.is_hiding = true;
        self
    }

    /// Accepts whole addresses. Each policy counts IPv6 addresses by this prefix, or by a longer one if it names a smaller
    /// network. They are listed as `B` counts them, or as `A` does if there is no `B`.
    #[must_use]
    pub fn counting_addresses(mut self, ipv6_prefix: u8) -> Self {
        self.sides = self.sides.map(|side| side.counting_addresses(ipv6_prefix));
        self
    }

    /// Decides a request by both policies, and returns the retry of `B`. Requests must be in order of time.
    pub fn decide(&mut self, now: Nanos, request: &Request<'_>) -> Retry {
        let hidden = request.parts().endpoint.filter(|_| self.is_hiding).map(|path| anonymized(request, path));
        // The path was truncated to a valid length.
        let request = &hidden.as_deref().and_then(|path| request.endpoint(path).ok()).unwrap_or(*request);
        let parts = request.parts();
        let mut whole = u8::MAX;
        if let Some(sample) = &self.sample {
            let places = parts.identities.iter().enumerate();
            whole = places.fold(0, |whole, (place, who)| whole | u8::from(sample(who.kind(), who.value())) << place);
        }
        let sample = self.sample.is_some().then_some(whole);
        let has_state = self.decisions.has_room();
        let [a, b] = self.sides.each_mut().map(|side| side.decide(now, request, sample, has_state));
        let counted = self.sides.iter().rev().find_map(|side| side.counted(request));
        let counted: Option<ArrayVec<_, IDENTITIES_MAX>> =
            counted.as_ref().map(|counted| counted.iter().map(CountedIdentity::identity).collect());
        let request = &counted.as_ref().and_then(|counted| with_identities(request, counted)).unwrap_or(*request);
        let parts = request.parts();
        let is_denied = [!a.is_allowed, !b.is_allowed];
        let number = self.totals.count(now, is_denied);
        let counts = BucketCounts { requests: 1, denied: is_denied.map(u64::from) };
        self.series.count_all(now, counts);
        let (mut who, mut first) = (Vec::with_capacity(parts.identities.len()), None);
        for (place, identity) in parts.identities.iter().enumerate() {
            let is_listed = whole >> place & 1 == 1;
            let Some(client) = self.clients.index(identity.kind(), identity.value(), is_listed) else { continue };
            who.push(client);
            if is_listed {
                first.get_or_insert(client);
                self.clients.count(client, now, is_denied);
                self.series.count_one(&mut self.clients.all[client as usize].series, now, counts);
            }
        }
        self.totals.note_first_denial(first, now, is_denied);
        if self.series.are_too_many() {
            self.series.coarsen(self.clients.all.iter_mut().map(|client| &mut client.series));
        }
        let retry = b.retry;
        self.decisions.keep(number, now, &parts, who, [a, b]);
        retry
    }

    /// Returns the number of requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.totals.requests
    }

    /// Returns the result. `show` formats an identity for display, from its kind, its value and its index.
    #[must_use]
    pub fn finish(self, show: impl Fn(&str, &str, usize) -> String) -> ComparisonResult {
        result_builder::build(self, show)
    }
}

/// Compiles a policy for a single node that represents all: shared limits become local ones. Errors in the settings of sharing
/// are still errors.
pub fn as_one_node(policy: &policy::Policy) -> Result<Snapshot, Problems> {
    let whole = Snapshot::compile(policy)?;
    let mut policy = policy.clone();
    let mut is_shared = false;
    for domain in policy.domains.values_mut() {
        let of_tiers = domain.tiers.iter_mut().flat_map(|tier| &mut tier.limits);
        let of_rules = domain.rules.iter_mut().flat_map(|rule| &mut rule.limits);
        let exceptions = domain.clients.iter_mut().filter_map(|client| client.exception.as_mut());
        for limit in of_tiers.chain(of_rules).chain(exceptions.flat_map(|own| &mut own.limits)) {
            is_shared |= limit.sharing != policy::Sharing::Local;
            (limit.sharing, limit.on_failure) = (policy::Sharing::Local, None);
        }
    }
    if is_shared { Snapshot::compile(&policy) } else { Ok(whole) }
}

/// Returns the number of counters that is enough for this many identities under these policies: each identity may need one for
/// every limit of a request, and a table that is half empty has a slot for each. At least 256, at most 4 million (100 MB).
#[must_use]
pub fn room_for(identities: u64, policies: [Option<&Snapshot>; SIDES]) -> usize {
    let most = policies.into_iter().flatten().map(Snapshot::most_limits_per_request).max().unwrap_or(0) as u64;
    identities.saturating_mul(2 * most).clamp(1 << 8, 1 << 22) as usize
}

/// Index of names, in the order of their first use.
#[derive(Debug, Default)]
pub(crate) struct NameIndex {
    places: HashMap<Box<str>, u32>,
    pub(crate) names: Vec<Box<str>>,
}

impl NameIndex {
    pub(crate) fn place(&mut self, name: &str) -> u32 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.names.len() as u32;
        self.places.insert(name.into(), place);
        self.names.push(name.into());
        place
    }
}
