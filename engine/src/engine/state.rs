//! The doors of the engine: check and publish.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::{ArcSwap, Guard};

use crate::{
    algorithm::Meter,
    base::{
        address::IPV6_PREFIX,
        clock::{Clock, SystemClock},
        hash::KeyHasher,
        time::Nanos,
    },
    engine::{
        active::{Live, LiveLimit, Newer, Order, Unlike},
        charge::{Account, Buckets, Charged},
        decision::Decision,
        fast_path::Missed,
        ledger::{Ledger, PublishError},
        names::LimitIndex,
        observer::{Asked, Observer, ObserverId, Watch},
        publish::Publish,
    },
    policy::{
        compiled::Snapshot,
        document::{DescriptorSettings, DoorSettings},
        planner::{Charge, Plan},
        request::Request,
    },
    storage::{
        counters::{Counts, NoLimit, Share, Tally, Totals},
        layout::Held,
        log_pool::{LogLimit, Spare},
        shares::TableShares,
        striping::Leases,
    },
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
    buckets: Buckets<C>,
    /// Of requests that bring their own numbers.
    rated: LiveLimit,
    live: ArcSwap<Live>,
    publisher: Mutex<Publisher>,
    tally: Tally,
    watch: Watch,
    /// Bits of an IPv6 address that are counted together.
    pub(crate) ipv6_prefix: u8,
}

/// A limit that a request met.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Met {
    /// Which.
    pub limit: LimitIndex,
    /// The identities of the request that it counts together, by their places as bits; none: everyone together.
    pub counted: u8,
    /// Would it have refused, being a shadow?
    pub shadow_denied: bool,
}

#[derive(Debug, Default)]
struct Publisher {
    ledger: Ledger,
    /// Snapshots that a check or a handle may still hold. They are freed here, never by a check.
    retired: Vec<Arc<Live>>,
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

    /// Makes a policy that of every check that begins from now on, and answers its version: one more than that of the
    /// policy before, counted from 1, unless the [`Publish`] names another.
    ///
    /// What was used stays used, limit by limit, by full name: 100 used of 100, raised to 1,000, leaves 900; or as
    /// [`Publish::carrying`] says. What was used of a limit that is in no policy any more stays too, in case it comes back, until
    /// the engine needs its place. There are [`KNOWN_LIMITS_MAX`](crate::KNOWN_LIMITS_MAX) places; the policy in force and the
    /// new one need one for each name in either. Places of limits of which nothing is used are taken back first, then those of
    /// the oldest names, but for those that a [`Handle`](crate::Handle) on an older policy holds. Names stay, about 100 bytes and
    /// their text each.
    ///
    /// Where it has sliding window logs of a size that the engine has not met yet, their rings are allocated first, at most
    /// 32 MiB for each power of two up to 4,096; they stay.
    ///
    /// The new policy decides at once. Where it changes a limit's numbers, this then goes through the whole table before it
    /// returns (milliseconds for a million keys), while checks go on.
    pub fn publish(&self, publish: impl Into<Publish>) -> Result<u64, PublishError> {
        let publish = publish.into();
        let mut publisher = self.publisher();
        let order = self.order();
        let version = publish.version.unwrap_or(order.version() + 1);
        let next = order.followed_by(version, publish.is_anew);
        let next = next.ok_or(PublishError::OldVersion { given: version, present: order.version() })?;
        self.put_in_force(&mut publisher, publish, next.0)?;
        Ok(version)
    }

    /// Has windows and the ends of overrides follow wall time, where that was set back by a minute or more since the last
    /// publish, or forward again: see [`Clock`]. Returns whether it had to. To be called every few seconds, as the server does;
    /// until then windows begin and end by the time of before.
    ///
    /// What a key has used of its present window counts in the window of the new wall time. This is a publish of the policy in
    /// force, under its version, and takes as long where there are windows. An engine follows some thousand times, and then no
    /// more.
    ///
    /// ```
    /// use tidegate::{Engine, clock::ManualClock};
    ///
    /// let clock = ManualClock::at(1_790_035_200_000_000_000);
    /// let engine = Engine::with_clock(1_000, clock.clone());
    /// clock.set_wall_back(3_600_000_000_000);
    /// assert!(engine.follow_wall_time());
    /// assert!(!engine.follow_wall_time());
    /// ```
    pub fn follow_wall_time(&self) -> bool {
        let clock = &self.buckets.clock;
        // A clock looks at wall time when it is read.
        clock.now();
        let is_bound = || self.live_now().ahead == clock.ahead_ns();
        if is_bound() {
            return false;
        }
        let mut publisher = self.publisher();
        if is_bound() {
            // Another thread was faster.
            return false;
        }
        let Some(next) = self.order().bound_anew() else { return false };
        let publish = Publish::of(Arc::clone(&self.live().snapshot));
        self.put_in_force(&mut publisher, publish, next.0).is_ok()
    }

    /// Would a publish of `snapshot` be refused for its limits? To be asked before a policy is written down.
    pub fn has_room_for(&self, snapshot: &Snapshot) -> Result<(), PublishError> {
        let mut publisher = self.publisher();
        let Publisher { ledger, retired } = &mut *publisher;
        free_unused(retired);
        let lacking = ledger.lacking(snapshot);
        if lacking > 0 && ledger.unreachable(snapshot, &self.live(), retired).len() < lacking {
            return Err(PublishError::TooManyLimits);
        }
        Ok(())
    }

    /// Takes ids back from names that no policy has any more: those of which nothing is used where there are many, and as many
    /// more as `snapshot` needs. The head of `ledger.rs` says why no check meets another name's bucket.
    fn make_room(
        &self,
        Publisher { ledger, retired }: &mut Publisher,
        snapshot: &Snapshot,
    ) -> Result<(), PublishError> {
        free_unused(retired);
        let (live, lacking) = (self.live(), ledger.lacking(snapshot));
        if lacking == 0 && !ledger.is_full_of_gone(&live) {
            return Ok(());
        }
        let unreachable = ledger.unreachable(snapshot, &live, retired);
        if unreachable.len() < lacking {
            return Err(PublishError::TooManyLimits);
        }
        if !unreachable.is_empty() {
            let mut empty: HashSet<u32> = unreachable.iter().copied().collect();
            let in_use = self.clear(&empty, false);
            empty.retain(|id| !in_use.contains(id));
            ledger.take_back(&empty);
            // They are fewer than lacking only where as many are in use.
            let more = unreachable.into_iter().filter(|id| in_use.contains(id));
            let more: HashSet<u32> = more.take(lacking.saturating_sub(empty.len())).collect();
            if !more.is_empty() {
                self.clear(&more, true);
                ledger.take_back(&more);
            }
        }
        ledger.has_looked_through(&live);
        Ok(())
    }

    /// Empties the slots and overflow buckets of limits, by id, that no check can reach: those that are idle, or where it
    /// `is_forced` all. Returns the ids of which something is left.
    fn clear(&self, ids: &HashSet<u32>, is_forced: bool) -> HashSet<u32> {
        let Buckets { table, leases, clock, .. } = &self.buckets;
        leases.end(table, || clock.now(), |limit| ids.contains(&limit));
        let (now, mut left) = (clock.now(), HashSet::new());
        table.clear(
            |limit| ids.contains(&limit),
            |slot| is_forced || slot.is_free(now),
            |limit| {
                left.insert(limit);
            },
        );
        left
    }

    fn publisher(&self) -> MutexGuard<'_, Publisher> {
        // Nothing in a publish panics, so nothing half done is taken over here.
        self.publisher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_in_force(&self, publisher: &mut Publisher, publish: Publish, version: u64) -> Result<(), PublishError> {
        self.make_room(publisher, &publish.snapshot)?;
        let Publisher { ledger, retired } = publisher;
        let buckets = &self.buckets;
        let (ahead, shares) = (buckets.clock.ahead_ns(), &buckets.table.shares);
        let mut live = ledger.bind(publish, version, ahead, &buckets.hasher, &buckets.registry, shares);
        let of_many = live.limits.iter().filter(|limit| limit.tally.is_some()).count();
        shares.come_into_force(live.limits.len(), of_many, live.snapshot.domains.len());
        self.tally.make_room(ledger.tallied());
        let logs = live.limits.iter().filter_map(|limit| match limit.meter {
            Some(Meter::SlidingWindowLog(log)) => {
                Some(LogLimit { capacity: log.capacity(), is_of_one_client: limit.tally.is_none() })
            }
            _ => None,
        });
        buckets.table.rings.come_into_force(logs, shares.among_others());
        let changed: HashSet<u32> =
            live.limits.iter().filter(|limit| limit.has_changed()).map(|limit| limit.id).collect();
        if !changed.is_empty() {
            buckets.leases.hold_back(&buckets.table, || buckets.clock.now(), |limit| changed.contains(&limit));
        }
        // As late as can be: what is charged between this instant and the swap counts as charged at it.
        live.comes_into_force(buckets.clock.now());
        let live = Arc::new(live);
        // Right before the swap: until that is done, a check of a bucket that must be settled tries again and again.
        self.buckets.announced.store(version);
        retired.push(self.live.swap(Arc::clone(&live)));
        buckets.registry.published(ahead, ledger.known());
        self.buckets.version.store(version);
        self.watch.set_version(version);
        self.convert_buckets(&live);
        free_unused(retired);
        Ok(())
    }

    /// Brings every bucket of a limit that changed to its new numbers. Checks do the same for what they meet on the way;
    /// this is for the others: a stranger judges by the old word whether a bucket is idle, and the next publish must not
    /// meet two generations.
    fn convert_buckets<'b>(&'b self, live: &Live) {
        let changed: HashMap<u32, &LiveLimit> =
            live.limits.iter().filter(|limit| limit.has_changed()).map(|limit| (limit.id, limit)).collect();
        if changed.is_empty() {
            return;
        }
        let table = &self.buckets.table;
        let convert = |limit: u32, held: Held, spare: &mut Option<Spare<'b>>| {
            let Some(limit) = changed.get(&limit).filter(|limit| limit.generation != held.generation) else {
                return held;
            };
            let next = limit.to_close(held).or_else(|| limit.in_new_ring(held, table, spare));
            next.unwrap_or_else(|| match limit.current(held, &table.rings, || self.buckets.clock.now()) {
                Ok(word) => Held::word(limit.generation, word),
                Err(Unlike::Stray) => limit.settled(held, self.buckets.clock.now()),
                Err(Unlike::Lost) => held,
            })
        };
        table.sweep(|limit| changed.contains_key(&limit), convert);
        let generation = |limit| changed.get(&limit).map(|limit| limit.generation);
        self.buckets.leases.revoke(table, || self.buckets.clock.now(), generation);
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

    /// How often a check or a peek brought a new key for which the table had no slot: it took an overflow bucket of its limit,
    /// or was denied. If this grows, the engine needs more `max_keys`, or the limit a larger [share](TableShares).
    #[must_use]
    pub fn overflow_charges(&self) -> u64 {
        self.buckets.overflow_charges()
    }

    /// How often such a key was denied, because the overflow buckets of its limit had live keys too. The decision says when the
    /// first bucket that it could have is idle.
    #[must_use]
    pub fn denied_without_room(&self) -> u64 {
        self.buckets.denied_without_room()
    }

    /// Limits of the present policy's tiers and rules whose overflow buckets all have live keys: a new key of theirs is denied
    /// if the table has no slot for it.
    #[must_use]
    pub fn drained_limits(&self) -> Vec<LimitIndex> {
        let (live, now) = (self.live.load(), self.buckets.clock.now());
        let limits = live.limits.iter().filter(|limit| limit.tally.is_some());
        let drained = limits.filter(|limit| self.buckets.table.shares.is_drained(limit.id, now));
        drained.map(|limit| LimitIndex(limit.index)).collect()
    }

    /// The limits of the present policy's tiers and rules, in its order, with how many slots of the table the keys of each hold:
    /// those of its live keys, and those of idle ones that no other key has taken yet. Overflow buckets are not counted.
    #[must_use]
    pub fn slots_held(&self) -> Vec<(LimitIndex, u64)> {
        let live = self.live.load();
        let limits = live.limits.iter().filter(|limit| limit.tally.is_some());
        limits.map(|limit| (LimitIndex(limit.index), self.buckets.table.shares.held(limit.id))).collect()
    }

    /// How many slots the table has: one and a half for each of `max_keys`.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.buckets.table.slots()
    }

    /// How full the table is, from 0 to 1: the part of its slots that hold a live key, estimated from a few thousand of them. It
    /// has room for `max_keys` at two thirds.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.buckets.table.fill(self.buckets.clock.now())
    }

    /// How many keys are live, estimated from as many slots. [`count_live_keys`](Self::count_live_keys) is exact.
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "a part of a whole number is not negative")]
    pub fn live_keys(&self) -> u64 {
        (self.fill() * self.buckets.table.slots() as f64) as u64
    }

    /// Counts the keys that are live, one by one. `None`: there are more than `most`, or the engine has room for more than
    /// 89 million, of which counting would take too long.
    ///
    /// It reads the table until it has found as many, so where there are few it reads all of it: some milliseconds for a million
    /// keys. Checks go on meanwhile.
    #[must_use]
    pub fn count_live_keys(&self, most: usize) -> Option<usize> {
        self.buckets.table.count_live(self.buckets.clock.now(), most)
    }

    /// How often a key that everybody hits was given a lease since the engine was made: its tokens are then spent from
    /// several places, a few for each processor, and `remaining` may be too high by up to a 16th of its limit's burst.
    ///
    /// Only `token_bucket` limits with a burst of 1,024 or more lease, at most 64 keys at a time. A lease begins when
    /// threads get into each other's way, and ends when they do not, or when the key has nothing left.
    #[must_use]
    pub fn leases_begun(&self) -> u64 {
        self.buckets.leases.begun()
    }

    /// How many of these leases have ended.
    #[must_use]
    pub fn leases_ended(&self) -> u64 {
        self.buckets.leases.ended()
    }

    /// How often a sliding window log was charged without a ring of its own, because its pool had none left: stricter than
    /// its limit says. If this grows, the engine needs more `max_keys`, or the policy fewer or smaller logs.
    #[must_use]
    pub fn log_charges_without_ring(&self) -> u64 {
        self.buckets.table.rings.missed()
    }

    /// How often a charge was given back because a later limit of the same check refused in a race. Until it was, neighbours
    /// may have been denied that would just have fitted: in any serial order, for each of its tokens one at most.
    #[must_use]
    pub fn give_backs(&self) -> u64 {
        self.buckets.give_backs.count()
    }

    /// Decisions since the engine was made.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.tally.totals()
    }

    /// The limits of the present policy's tiers and rules, in its order, with what each decided since the engine was made.
    /// Those of single clients are counted in the totals alone: there may be a hundred thousand.
    #[must_use]
    pub fn limit_counts(&self) -> Vec<(LimitIndex, Counts)> {
        let live = self.live.load();
        let counts = |limit: &LiveLimit| Some((LimitIndex(limit.index), self.tally.counts(limit.tally?.number())));
        live.limits.iter().filter_map(counts).collect()
    }

    /// What a limit decided since the engine was made, also one that the present policy does not have any more; `None` for that
    /// of a single client.
    #[must_use]
    pub fn counts(&self, limit: LimitIndex) -> Option<Counts> {
        Some(self.tally.counts(self.buckets.registry.tally(limit.0)?))
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

    /// How many limits the engine knows: those of the policy in force, and those of earlier ones whose places it did not take back
    /// yet. At most [`KNOWN_LIMITS_MAX`](crate::KNOWN_LIMITS_MAX): then a policy with more names is refused.
    #[must_use]
    pub fn known_limits(&self) -> usize {
        self.buckets.registry.known()
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

    /// Decides a request, and charges it when it is allowed. All its limits are charged, or none.
    ///
    /// A limit that nodes share is decided without its store, by its `on_failure`; [`begin`](Self::begin) asks first.
    pub fn check(&self, request: &Request<'_>) -> Decision<'_> {
        self.with_plan(request, |live, plan, now| self.decide_plan(live, request, plan, now))
    }

    /// As [`check`](Self::check); tells `met` of each limit that was looked at, in order, the deciding one included.
    pub fn check_observing(&self, request: &Request<'_>, mut met: impl FnMut(Met)) -> Decision<'_> {
        self.with_plan(request, |live, plan, now| {
            let decision = self.decide_plan(live, request, plan, now)?;
            let looked_at =
                if decision.is_allowed() { plan.len() } else { decision.place().map_or(0, |place| place + 1) };
            for (place, charge) in plan[..looked_at].iter().enumerate() {
                let limit = &live.limits[charge.limit as usize];
                // A denial left shadow limits unasked.
                if decision.is_allowed() || !limit.is_shadow {
                    let shadow_denied = decision.shadows.places >> place & 1 == 1;
                    met(Met { limit: LimitIndex(limit.index), counted: charge.counted, shadow_denied });
                }
            }
            Ok(decision)
        })
    }

    /// What [`check`](Self::check) would answer now. Charges nothing and counts nothing.
    ///
    /// ```
    /// # use tidegate::{Engine, Identity, Request, RequestError};
    /// # let engine = Engine::with_max_keys(10);
    /// let who = [Identity::new("user", "ada")?];
    /// let now = engine.peek(&Request::new(&who)?.without_cost());
    /// println!("{:?} left", now.remaining());
    /// # Ok::<(), RequestError>(())
    /// ```
    pub fn peek(&self, request: &Request<'_>) -> Decision<'_> {
        self.with_plan(request, |live, plan, now| self.buckets.peek(live, plan, now))
    }

    /// Returns whether a limit counts a request, also one that only counts (`shadow`).
    ///
    /// ```
    /// # use tidegate::{Engine, Identity, Request, RequestError};
    /// # let engine = Engine::with_max_keys(10);
    /// let who = [Identity::new("user", "ada")?];
    /// assert!(!engine.has_limit(&Request::new(&who)?), "there is no policy");
    /// # Ok::<(), RequestError>(())
    /// ```
    #[must_use]
    pub fn has_limit(&self, request: &Request<'_>) -> bool {
        self.with_plan(request, |_, plan, _| Ok(!plan.is_empty()))
    }

    /// Works out the limits of a request and has them decided; again as long as a publish comes between.
    pub(crate) fn with_plan<T>(
        &self,
        request: &Request<'_>,
        decide: impl FnMut(&Arc<Live>, &Plan, Nanos) -> Result<T, Newer>,
    ) -> T {
        self.with_plan_at(request, || self.buckets.clock.now(), decide)
    }

    pub(crate) fn with_plan_at<T>(
        &self,
        request: &Request<'_>,
        read_clock: impl Fn() -> Nanos,
        decide: impl FnMut(&Arc<Live>, &Plan, Nanos) -> Result<T, Newer>,
    ) -> T {
        self.with_plan_by(Snapshot::plan, request, read_clock, decide)
    }

    pub(crate) fn with_plan_by<T>(
        &self,
        plan_by: impl Fn(&Snapshot, &Request<'_>, Nanos, &KeyHasher, &mut Plan),
        request: &Request<'_>,
        read_clock: impl Fn() -> Nanos,
        mut decide: impl FnMut(&Arc<Live>, &Plan, Nanos) -> Result<T, Newer>,
    ) -> T {
        loop {
            let live = self.live.load();
            let now = read_clock();
            let mut plan = Plan::new();
            plan_by(&live.snapshot, request, live.wall(now), &self.buckets.hasher, &mut plan);
            // By the newest snapshot, which is in place by now or in a moment.
            if let Ok(decided) = decide(&live, &plan, now) {
                return decided;
            }
        }
    }

    pub(crate) fn decide_plan(
        &self,
        live: &Live,
        request: &Request<'_>,
        plan: &[Charge],
        now: Nanos,
    ) -> Result<Decision<'_>, Newer> {
        if request.cost == 0 {
            return self.buckets.peek(live, plan, now);
        }
        let asked = Asked::Request(request);
        match plan {
            [one] if live.limits[one.limit as usize].is_enforced_here => {
                let account = Account::new(live, one);
                let charged = self.charge_one(&account, asked, *one, &|| now, Missed::Untried)?;
                self.tally.spot(account.tally()).decided(charged.is_admitted());
                Ok(account.decision(&self.buckets, 0, charged))
            }
            several => self.decide_any(live, asked, several, now),
        }
    }

    /// Charges the one limit of a plan, after the short way was `missed`, and shows what came of it. The caller
    /// counts it, and makes the decision at its very
    /// end: it is large, and written once then.
    #[inline(always)]
    pub(crate) fn charge_one(
        &self,
        account: &Account<'_>,
        asked: Asked<'_>,
        charge: Charge,
        read_clock: &impl Fn() -> Nanos,
        missed: Missed,
    ) -> Result<Charged, Newer> {
        let charged = account.charge_after(&self.buckets, read_clock, missed)?;
        self.watch.show(asked, || (Some(charge), account.decision(&self.buckets, 0, charged)), charged.now);
        Ok(charged)
    }

    /// Decides any plan. Apart, because its kilobytes of stack would be every check's.
    #[inline(never)]
    pub(crate) fn decide_any(
        &self,
        live: &Live,
        asked: Asked<'_>,
        plan: &[Charge],
        now: Nanos,
    ) -> Result<Decision<'_>, Newer> {
        let decision = self.buckets.decide(live, plan, now)?;
        self.count(live, asked, plan, &decision, now);
        Ok(decision)
    }

    /// Counts a decision at time `now`, and shows it to the observers.
    pub(crate) fn count(&self, live: &Live, asked: Asked<'_>, plan: &[Charge], decision: &Decision<'_>, now: Nanos) {
        self.watch.show(asked, || (decision.place().and_then(|place| plan.get(place)).copied(), *decision), now);
        if plan.is_empty() {
            let known = match asked {
                Asked::Request(request) | Asked::Rated(request) => live.snapshot.has_domain(request.domain),
                Asked::Handle { .. } => true,
            };
            return self.tally.no_limit(if known { NoLimit::Applies } else { NoLimit::UnknownDomain });
        }
        let tally = |charge: &Charge| live.limits[charge.limit as usize].tally;
        match decision.place() {
            Some(place) if !decision.is_allowed() => self.tally.spot(plan.get(place).and_then(tally)).decided(false),
            _ => {
                let shadows = decision.shadows.places;
                if shadows == 0 && is_each_owner_whole(live, plan) {
                    self.tally.allowed(plan.iter().filter_map(|charge| share_alone(live, charge)));
                } else {
                    self.tally.allowed((0..plan.len()).filter_map(|place| share(live, plan, shadows, place)));
                }
            }
        }
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

/// Drops the snapshots that no check and no handle has any more.
fn free_unused(retired: &mut Vec<Arc<Live>>) {
    retired.retain(|live| Arc::strong_count(live) > 1);
}

/// Returns whether each limit of a plan counts what it would count alone: no owner stands there twice, and its first limit before
/// its others. May be false where that is so.
fn is_each_owner_whole(live: &Live, plan: &[Charge]) -> bool {
    let (mut present, mut seen) = (u32::MAX, 0_u64);
    plan.iter().all(|charge| {
        let owner = live.limits[charge.limit as usize].owner;
        if charge.limit != owner {
            return owner == present;
        }
        // Two owners may have the same bit.
        let bit = 1 << (owner % u64::BITS);
        let is_new = seen & bit == 0;
        (present, seen) = (owner, seen | bit);
        is_new
    })
}

/// Returns what a limit counts of a request that was allowed, where it counts what it would count alone.
fn share_alone(live: &Live, charge: &Charge) -> Option<Share> {
    let place = live.limits[charge.limit as usize].tally?;
    Some(Share { place, is_refused: false, is_refused_first: false })
}

/// What the limit at `place` of a plan counts of a request that was allowed, whatever the number of identities that it was
/// charged for; nothing where it has counted it. `shadows` that would have refused it are bits of their places.
fn share(live: &Live, plan: &[Charge], shadows: u64, place: usize) -> Option<Share> {
    let this = plan[place].limit;
    let LiveLimit { owner, tally, .. } = live.limits[this as usize];
    let is_of_owner = |charge: &&Charge| live.limits[charge.limit as usize].owner == owner;
    let is_refused = |limit: u32| (0..plan.len()).any(|at| shadows >> at & 1 == 1 && plan[at].limit == limit);
    let before = || plan[..place].iter().filter(is_of_owner);
    if before().any(|charge| charge.limit == this) {
        return None;
    }
    // The first of its owner's limits counts for the owner; where it is not asked, the one that is asked first.
    let is_for_owner = this == owner || before().next().is_none() && plan.iter().all(|charge| charge.limit != owner);
    let place = tally.map(|place| if is_for_owner { place.for_owner() } else { place })?;
    let is_refused_now = shadows != 0 && is_refused(this);
    let is_refused_first = is_refused_now && !before().any(|charge| is_refused(charge.limit));
    Some(Share { place, is_refused: is_refused_now, is_refused_first })
}

#[cfg(all(test, engine_loom))]
mod models;
#[cfg(all(test, not(engine_loom)))]
mod names;
#[cfg(all(test, not(engine_loom)))]
mod owners;
#[cfg(all(test, not(engine_loom)))]
mod strays;
