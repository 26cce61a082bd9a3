//! `Engine`: the rate limiter's state and constructors, and what it says of the policy in force.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use arc_swap::ArcSwap;

use crate::{
    base::{
        address::IPV6_PREFIX,
        clock::{Clock, SystemClock},
        hash::KeyHasher,
    },
    engine::{
        active_policy::{ActiveLimit, ActivePolicy, PolicyOrder},
        buckets::Buckets,
        limit_ids::LimitIds,
        names::LimitIndex,
        observer::{Observer, ObserverId, Observers},
    },
    policy::document::{DescriptorSettings, ResponseSettings},
    storage::{counters::StripedCounters, striping::StripePool, table_shares::TableShares},
};

/// The number of keys that an engine has room for by default.
pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

/// A rate limiter with many limits, by a policy. Checks never wait, lock or allocate; a publish swaps the whole policy
/// between two checks.
///
/// ```
/// use tidegate::{Engine, Identity, Request, Snapshot, formats::Format};
///
/// let engine = Engine::new();
/// engine.publish(Snapshot::parse(r#"
///     [domains.default]
///     defaults = { user = "free" }
///     [[domains.default.tiers]]
///     id = "free"
///     limits = [{ id = "minute", algorithm = "token_bucket", limit = 2, period = "1m" }]
/// "#, Format::Toml)?)?;
///
/// let who = [Identity::new("user", "ada")?];
/// assert!(engine.check(&Request::new(&who)?).is_allowed());
/// assert!(engine.check(&Request::new(&who)?).is_allowed());
/// let third = engine.check(&Request::new(&who)?);
/// assert!(!third.is_allowed());
/// assert_eq!(third.limit_id(), Some("default/tier:free/minute"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<C = SystemClock> {
    pub(super) buckets: Buckets<C>,
    /// The limit of requests that bring their own numbers, which come with each.
    pub(super) rated: ActiveLimit,
    pub(super) active: ArcSwap<ActivePolicy>,
    pub(super) publisher: Mutex<PublisherState>,
    pub(super) counters: StripedCounters,
    pub(super) observers: Observers,
    /// The bits of an IPv6 address that are counted together.
    pub(crate) ipv6_prefix: u8,
}

#[derive(Debug, Default)]
pub(super) struct PublisherState {
    pub(super) limit_ids: LimitIds,
    /// Snapshots that a check or a handle may still hold. The publisher frees them, never a check.
    pub(super) retired: Vec<Arc<ActivePolicy>>,
}

impl<C> fmt::Debug for Engine<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A policy may have a hundred thousand clients.
        let version = PolicyOrder(self.buckets.version.load()).version();
        f.debug_struct("Engine").field("version", &version).field("watch", &self.observers).finish_non_exhaustive()
    }
}

impl Engine {
    /// Returns an engine with room for a million keys (24 MB) and without a policy: it allows everything until one is
    /// published.
    #[must_use]
    pub fn new() -> Self {
        Self::with(DEFAULT_MAX_KEYS, SystemClock::new(), KeyHasher::random())
    }

    /// Returns an engine with room for `max_keys` live keys, 24 bytes each. That much memory is reserved at once, and
    /// taken from the machine as keys come; making an engine takes no longer for a hundred million keys. If the system
    /// refuses the memory, the process ends, as with any allocation.
    #[must_use]
    pub fn with_max_keys(max_keys: usize) -> Self {
        Self::with(max_keys, SystemClock::new(), KeyHasher::random())
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> Engine<C> {
    /// Returns an engine with room for `max_keys` live keys that reads `clock`; the module [`clock`](crate::clock) says
    /// which to take.
    #[must_use]
    pub fn with_clock(max_keys: usize, clock: C) -> Self {
        Self::with(max_keys, clock, KeyHasher::random())
    }

    /// Returns an engine for simulation, with another clock, and a fixed `seed` instead of random secrets, so that
    /// every run is the same. Not for untrusted traffic: a client could learn which keys collide.
    #[must_use]
    pub fn for_simulation(max_keys: usize, clock: C, seed: u64) -> Self {
        Self::with(max_keys, clock, KeyHasher::new(seed))
    }

    fn with(max_keys: usize, clock: C, hasher: KeyHasher) -> Self {
        let mut buckets = Buckets::new(max_keys, clock, hasher, StripePool::new());
        buckets.table.share(TableShares::default());
        Self {
            rated: ActiveLimit::without_policy(None),
            buckets,
            active: ArcSwap::from_pointee(ActivePolicy::empty()),
            publisher: Mutex::default(),
            counters: StripedCounters::new(),
            observers: Observers::default(),
            ipv6_prefix: IPV6_PREFIX,
        }
    }

    /// Sets how much of the table the keys of one limit and those of one domain may take, from the next publish on.
    ///
    /// ```
    /// use tidegate::{Engine, TableShares};
    ///
    /// let engine = Engine::new().with_shares(TableShares { limit_percent: 40, domain_percent: 60 });
    /// ```
    #[must_use]
    pub fn with_shares(mut self, shares: TableShares) -> Self {
        self.buckets.table.share(shares);
        self
    }

    /// Returns the clock that the engine reads.
    #[must_use]
    pub fn clock(&self) -> &C {
        &self.buckets.clock
    }

    /// Returns the version of the policy in force; 0 before the first publish.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.order().version()
    }

    /// Returns the rank of the newest publish, which grows with every publish.
    #[inline(always)]
    pub(crate) fn order(&self) -> PolicyOrder {
        PolicyOrder(self.buckets.version.load())
    }

    /// Returns whether the present policy has this domain. No limit applies in a domain that it does not have.
    #[must_use]
    pub fn has_domain(&self, domain: &str) -> bool {
        self.active.load().snapshot.domains.contains_key(domain)
    }

    /// Returns the settings of a domain for descriptors of Envoy; the defaults for a domain that the policy does not
    /// have.
    #[must_use]
    pub fn descriptor_settings(&self, domain: &str) -> DescriptorSettings {
        self.active.load().snapshot.domains.get(domain).map(|domain| domain.descriptors).unwrap_or_default()
    }

    /// Returns whether some limit of a domain of the present policy is in shadow mode.
    #[must_use]
    pub fn has_shadow_limits(&self, domain: &str) -> bool {
        self.active.load().snapshot.domains.get(domain).is_some_and(|domain| domain.has_shadow_limits)
    }

    /// Returns whether a domain of the present policy names this kind of identity.
    #[must_use]
    pub fn names_kind(&self, domain: &str, kind: &str) -> bool {
        let active = self.active.load();
        let domain = active.snapshot.domains.get(domain);
        domain.is_some_and(|domain| domain.kinds.iter().any(|known| *known.name == *kind))
    }

    /// Returns the response settings of a domain of the present policy.
    #[must_use]
    pub fn response_settings(&self, domain: &str) -> ResponseSettings {
        self.active.load().snapshot.response_settings(domain)
    }

    /// Returns the full name of a limit.
    #[must_use]
    pub fn limit_name(&self, limit: LimitIndex) -> &str {
        self.buckets.names.name(limit.0)
    }

    /// Shows decisions to `observer` from now on: exactly one in `one_in` of those that each thread makes, allowed or
    /// denied, through whichever listener (of all engines of a process that have an observer, together). Peeks and
    /// requests without a cost are not shown. An engine may have several observers, each with its own sampling rate. An
    /// observer stays until [`stop_observing`](Self::stop_observing).
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use tidegate::{Engine, Observed, Observer};
    ///
    /// struct Log;
    ///
    /// impl Observer for Log {
    ///     fn observe(&self, observed: &Observed<'_>) {
    ///         if !observed.decision().is_allowed() {
    ///             let who: Vec<_> = observed.identities().collect();
    ///             eprintln!("{:?} denied by {:?}", who, observed.decision().limit_id());
    ///         }
    ///     }
    /// }
    ///
    /// let engine = Engine::with_max_keys(10);
    /// engine.observe(NonZeroU32::MIN, Log);
    /// ```
    pub fn observe(&self, one_in: NonZeroU32, observer: impl Observer) -> ObserverId {
        self.observers.add(one_in, observer)
    }

    /// Removes an observer of this engine and drops it: at once, or, if a thread is just showing it a decision, right
    /// after that. Decisions then cost what they did before it was added.
    pub fn stop_observing(&self, id: ObserverId) {
        self.observers.remove(id);
    }
}

#[cfg(all(test, engine_loom))]
mod models;
