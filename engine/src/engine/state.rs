//! The engine's state: its table, its policy and its observers, and questions about that policy.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use arc_swap::{ArcSwap, Guard};

use crate::{
    base::{
        address::IPV6_PREFIX,
        clock::{Clock, SystemClock},
        hash::KeyHasher,
    },
    engine::{
        active::{Live, LiveLimit, Order},
        charge::Buckets,
        ledger::Ledger,
        names::LimitIndex,
        observer::{Observer, ObserverId, Watch},
    },
    policy::document::{DescriptorSettings, DoorSettings},
    storage::{counters::Tally, striping::Leases, table_shares::TableShares},
};

/// How many keys an engine has room for unless told otherwise.
pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

/// The rate limiter. Checks never wait, lock or allocate; a publish swaps the whole policy between two checks.
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
    /// Of requests that bring their own numbers.
    pub(super) rated: LiveLimit,
    pub(super) live: ArcSwap<Live>,
    pub(super) publisher: Mutex<Publisher>,
    pub(super) tally: Tally,
    pub(super) watch: Watch,
    /// Bits of an IPv6 address that are counted together.
    pub(crate) ipv6_prefix: u8,
}

#[derive(Debug, Default)]
pub(super) struct Publisher {
    pub(super) ledger: Ledger,
    /// Snapshots that a check or a handle may still hold. They are freed here, never by a check.
    pub(super) retired: Vec<Arc<Live>>,
}

impl<C> fmt::Debug for Engine<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A policy may have a hundred thousand clients.
        let version = Order(self.buckets.version.load()).version();
        f.debug_struct("Engine").field("version", &version).field("watch", &self.watch).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine with room for a million keys (24 MB), without a policy: it allows everything until one is published.
    #[must_use]
    pub fn new() -> Self {
        Self::with(DEFAULT_MAX_KEYS, SystemClock::new(), KeyHasher::random())
    }

    /// An engine with room for `max_keys` live keys, 24 bytes each. That much is set aside at once, and taken from the machine
    /// as keys come; making an engine takes no longer for a hundred million. Where the system refuses it, the process ends, as
    /// with any allocation.
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
    /// An engine with room for `max_keys` live keys that reads `clock`; the module [`clock`](crate::clock) says which to take.
    #[must_use]
    pub fn with_clock(max_keys: usize, clock: C) -> Self {
        Self::with(max_keys, clock, KeyHasher::random())
    }

    /// An engine for simulation: another clock, and a fixed `seed` instead of random secrets, so that every run is the
    /// same. Not for traffic of strangers, who could learn which keys meet.
    #[must_use]
    pub fn for_simulation(max_keys: usize, clock: C, seed: u64) -> Self {
        Self::with(max_keys, clock, KeyHasher::new(seed))
    }

    fn with(max_keys: usize, clock: C, hasher: KeyHasher) -> Self {
        let mut buckets = Buckets::new(max_keys, clock, hasher, Leases::new());
        buckets.table.share(TableShares::default());
        Self {
            rated: LiveLimit::alone(None),
            buckets,
            live: ArcSwap::from_pointee(Live::nothing()),
            publisher: Mutex::default(),
            tally: Tally::new(),
            watch: Watch::default(),
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

    /// The clock that it reads.
    #[must_use]
    pub fn clock(&self) -> &C {
        &self.buckets.clock
    }

    /// Version of the policy that decides now; 0 before the first publish.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.order().version()
    }

    /// Grows with every publish.
    #[inline(always)]
    pub(crate) fn order(&self) -> Order {
        Order(self.buckets.version.load())
    }

    /// Has the present policy this domain? Of one that it does not have, no limit applies.
    #[must_use]
    pub fn has_domain(&self, domain: &str) -> bool {
        self.live.load().snapshot.has_domain(domain)
    }

    /// Returns the settings of a domain for descriptors of Envoy; of one that the policy does not have, the usual ones.
    #[must_use]
    pub fn descriptor_settings(&self, domain: &str) -> DescriptorSettings {
        self.live.load().snapshot.descriptor_settings(domain)
    }

    /// Returns whether some limit of a domain of the present policy is in shadow mode.
    #[must_use]
    pub fn has_shadow_limits(&self, domain: &str) -> bool {
        self.live.load().snapshot.has_shadow_limits(domain)
    }

    /// Returns whether a domain of the present policy names this kind of identity.
    #[must_use]
    pub fn names_kind(&self, domain: &str, kind: &str) -> bool {
        self.live.load().snapshot.names_kind(domain, kind)
    }

    /// What a domain of the present policy asks of the doors.
    #[must_use]
    pub fn door_settings(&self, domain: &str) -> DoorSettings {
        self.live.load().snapshot.door_settings(domain)
    }

    /// Full name of a limit.
    #[must_use]
    pub fn limit_name(&self, limit: LimitIndex) -> &str {
        self.buckets.registry.name(limit.0)
    }

    /// Shows decisions to `observer` from now on: exactly one in `one_in` of those that each thread makes, allowed or
    /// denied, by whichever door (of all engines of a process that have an observer, together). Peeks and requests without a
    /// cost are not shown. An engine may have several observers, each with a share of its own. One stays for good, or until
    /// [`stop_observing`](Self::stop_observing).
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
        self.watch.add(one_in, observer)
    }

    /// Shows an observer of this engine nothing any more, and drops it: at once, or where a thread is just showing it a decision
    /// right after that. Decisions then cost what they did before it came.
    pub fn stop_observing(&self, id: ObserverId) {
        self.watch.remove(id);
    }

    pub(crate) fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// As [`live`](Self::live), without counting a reference: to be held for a moment.
    pub(crate) fn live_now(&self) -> Guard<Arc<Live>> {
        self.live.load()
    }

    pub(crate) fn rated(&self) -> &LiveLimit {
        &self.rated
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(crate) fn buckets(&self) -> &Buckets<C> {
        &self.buckets
    }
}

#[cfg(all(test, engine_loom))]
mod models;
