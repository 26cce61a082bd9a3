//! Two policies over the same traffic, request by request: what differs, for whom, and when.
//!
//! Each policy decides in an engine of its own, on a virtual clock; nothing of the traffic is decided by it. The same
//! policies and traffic give the same bytes. Memory is bounded: what no longer fits is left out of the lists, and of what is
//! counted of the clients that are listed; never out of the decisions and of what is counted of requests. The answer says how
//! much.

mod clients;
mod decisions;
mod limits;
mod result;
mod series;
mod side;

use std::collections::HashMap;

use arrayvec::ArrayVec;
use tidegate::{
    CountedIdentity, IDENTITIES_MAX, Problems, PublishError, Request, Retry, Snapshot, policy, time::Nanos,
};

use crate::{Utc, compare::result::Totals};
use clients::People;
use decisions::{Decisions, without_whom};
use series::{Counts, Strips};

pub(crate) use decisions::{ms, retry_ms};
use side::with_identities;
pub(crate) use side::{Said, Side};

pub use clients::{CLIENT_BYTES_MAX, CLIENTS_KEPT_MAX};
pub use decisions::{DECISIONS_MAX, DecidedBy, DecisionRow, Which};
pub use limits::{CLIENT_LIMITS_MAX, LimitFigures, LimitRow};
pub use result::{
    Bucket, Changed, ClientRow, ClientsChanged, DecisionPage, DecisionsKept, FirstDenial, Kept, LongestRun, Outcome,
    SideSummary, Sort, Summary, TOP, TimelineRow,
};
pub use series::{BUCKETS_MS, CELLS_MAX};

/// Both policies, `A` and `B`.
pub(crate) const SIDES: usize = 2;

/// Says whether an identity is in the sample, by kind and value.
pub type Sample = dyn Fn(&str, &str) -> bool + Send;

/// Asks two policies the same.
pub struct Compare {
    sides: [Side; SIDES],
    totals: Totals,
    people: People,
    strips: Strips,
    decisions: Decisions,
    sample: Option<Box<Sample>>,
    /// Paths are seen without whom they name.
    is_hiding: bool,
}

impl Compare {
    /// Of these policies, `A` and `B`; without one everything is allowed. `room` is for so many counters at once, in each
    /// engine.
    pub fn new(policies: [Option<Snapshot>; SIDES], room: usize) -> Result<Self, PublishError> {
        let [a, b] = policies;
        Ok(Self {
            sides: [Side::new(a, room)?, Side::new(b, room)?],
            totals: Totals::default(),
            people: People::default(),
            strips: Strips::default(),
            decisions: Decisions::default(),
            sample: None,
            is_hiding: false,
        })
    }

    /// The traffic holds every request of the identities for which `sample` says so, and of others only some: they are not
    /// listed, and what a limit counts of them is left out.
    #[must_use]
    pub fn of_sample(mut self, sample: Box<Sample>) -> Self {
        self.sample = Some(sample);
        self
    }

    /// Takes the identities of a request out of its path, before anything sees it: `/users/{user}`. Rules are found by what is
    /// left, so that no decision tells whom the path names.
    #[must_use]
    pub fn hiding(mut self) -> Self {
        self.is_hiding = true;
        self
    }

    /// Takes whole addresses, of which each policy counts so many bits of IPv6, or more where it names a smaller network. They
    /// are listed as `B` counts them, or as `A` does where there is no `B`.
    #[must_use]
    pub fn counting_addresses(mut self, ipv6_prefix: u8) -> Self {
        self.sides = self.sides.map(|side| side.counting_addresses(ipv6_prefix));
        self
    }

    /// Has a request decided by both, and answers what `B` says. Requests come in order of time.
    pub fn ask(&mut self, now: Nanos, request: &Request<'_>) -> Retry {
        let hidden = request.parts().endpoint.filter(|_| self.is_hiding).map(|path| without_whom(request, path));
        // It is cut to what fits.
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
        let counts = Counts { requests: 1, denied: is_denied.map(u64::from) };
        self.strips.count_all(now, counts);
        let (mut who, mut first) = (Vec::with_capacity(parts.identities.len()), None);
        for (place, identity) in parts.identities.iter().enumerate() {
            let is_listed = whole >> place & 1 == 1;
            let Some(client) = self.people.meet(identity.kind(), identity.value(), is_listed) else { continue };
            who.push(client);
            if is_listed {
                first.get_or_insert(client);
                self.people.count(client, now, is_denied);
                self.strips.count_one(self.people.strip(client), now, counts);
            }
        }
        self.totals.asked_by(first, now, is_denied);
        if self.strips.are_too_many() {
            self.strips.coarsen(self.people.strips());
        }
        let retry = b.retry;
        self.decisions.keep(number, now, &parts, who, [a, b]);
        retry
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.totals.requests
    }

    /// What was found. `show` writes an identity as it may be shown, by kind, value and its number among all.
    #[must_use]
    pub fn finish(self, show: impl Fn(&str, &str, usize) -> String) -> Outcome {
        result::put_together(self, show)
    }
}

/// Compiles a policy as one node decides by it that stands for all: limits that nodes share are counted in one place. What is
/// wrong with how they are shared is wrong here too.
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

/// Room for counters that is enough for so many identities under these policies: each may have one of every limit that a
/// request can meet, and a table that is half empty finds a slot for every one. At least 256, at most 4 million (100 MB).
#[must_use]
pub fn room_for(identities: u64, policies: [Option<&Snapshot>; SIDES]) -> usize {
    let most = policies.into_iter().flatten().map(Snapshot::most_limits_per_request).max().unwrap_or(0) as u64;
    identities.saturating_mul(2 * most).clamp(1 << 8, 1 << 22) as usize
}

/// Places of names, given in the order in which they come.
#[derive(Debug, Default)]
pub(crate) struct Names {
    places: HashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

impl Names {
    pub(crate) fn place(&mut self, name: &str) -> u32 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.names.len() as u32;
        self.places.insert(name.into(), place);
        self.names.push(name.into());
        place
    }

    pub(crate) fn into_names(self) -> Vec<Box<str>> {
        self.names
    }
}

/// An instant, if there was one.
fn utc(instant: Option<Nanos>) -> Option<Utc> {
    instant.map(Utc)
}
