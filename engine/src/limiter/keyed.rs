//! `KeyedLimiter`: one rate for each of many keys, over the engine's table, without a policy.

#[cfg(feature = "wait")]
use crate::limiter::wait_queue::WaitQueues;
use crate::{
    algorithm::{Meter, rate::Rate},
    base::{
        clock::{Clock, SystemClock},
        hash::{IdentityHash, KeyHash, KeyHasher},
        key::Key,
    },
    engine::{
        account::{Account, ChargeResult},
        active_policy::{ActiveLimit, SnapshotResult},
        buckets::Buckets,
        decision::Outcome,
        fast_path::FastPathMiss,
        fast_path_metered::MeteredLimit,
        fast_path_one_token::OneTokenLimit,
        state::DEFAULT_MAX_KEYS,
    },
    storage::{striping::StripePool, table::KeyLines},
};

/// Limits each key by itself: each user, each address, each user of each tenant.
///
/// Its memory is bounded, 24 bytes a key, and taken as keys come: at most 24 MB for the million keys that it has room
/// for by default. A key that is idle, with all of its quota, gives its slot away; a live one is never forgotten. If no
/// slot is left, eight new keys get overflow buckets, with the same numbers, and others are denied until a slot is
/// idle; none is let through uncounted. [`overflow_charges`](Self::overflow_charges) and
/// [`denied_without_room`](Self::denied_without_room) return how often that was.
///
/// ```
/// use tidegate::KeyedLimiter;
///
/// let limiter = KeyedLimiter::per_second(2);
/// assert!(limiter.check("ada").is_allowed());
/// assert!(limiter.check("ada").is_allowed());
/// assert!(!limiter.check("ada").is_allowed());
/// assert!(limiter.check(("ada", 7_u64)).is_allowed()); // any Key
/// ```
///
/// The [`Engine`](crate::Engine) has several limits at once, tiers, and numbers that change while it runs.
#[derive(Debug)]
pub struct KeyedLimiter<C = SystemClock> {
    pub(crate) buckets: Buckets<C>,
    pub(crate) limit: ActiveLimit,
    /// Serves checks that cost one token, where the limit has a fast path for them.
    pub(crate) one_token: Option<OneTokenLimit>,
    /// Serves checks of any cost, where the limit has a fast path.
    pub(crate) metered: Option<MeteredLimit>,
    #[cfg(feature = "wait")]
    pub(crate) queues: WaitQueues,
}

constructors_by_rate!(KeyedLimiter, " for each key, and as many at once. It has room for a million keys.");

impl KeyedLimiter {
    /// Returns a limiter by a [`Rate`] or a [`Meter`], for each key, with room for a million keys. `None` denies
    /// everything.
    #[must_use]
    pub fn new(meter: impl Into<Option<Meter>>) -> Self {
        Self::with_max_keys(meter, DEFAULT_MAX_KEYS)
    }

    /// Returns a limiter as [`new`](Self::new) does, with room for `max_keys` live keys, 24 bytes each.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use tidegate::{KeyedLimiter, Rate};
    ///
    /// let limiter = KeyedLimiter::with_max_keys(Rate::per_minute(30).burst(5), 10_000); // 240 kB
    /// assert_eq!(limiter.check(Ipv4Addr::new(192, 0, 2, 7)).remaining(), 4);
    /// ```
    #[must_use]
    pub fn with_max_keys(meter: impl Into<Option<Meter>>, max_keys: usize) -> Self {
        Self::with_clock(meter, max_keys, SystemClock::new())
    }
}

impl<C: Clock> KeyedLimiter<C> {
    /// Returns a limiter as [`with_max_keys`](KeyedLimiter::with_max_keys) does, by another clock: for tests and
    /// simulation.
    #[must_use]
    pub fn with_clock(meter: impl Into<Option<Meter>>, max_keys: usize, clock: C) -> Self {
        let meter = meter.into();
        // Without a meter of its own there are no leases: it admits nothing, or its numbers come with each check.
        let stripes = if meter.is_some() { StripePool::new() } else { StripePool::none() };
        let buckets = Buckets::new(max_keys, clock, KeyHasher::random(), stripes);
        let limit = ActiveLimit::without_policy(meter);
        if let Some(meter @ Meter::SlidingWindowLog(_)) = limit.meter {
            buckets.table.rings.make_room(meter.capacity());
        }
        Self {
            one_token: OneTokenLimit::new(&limit, &buckets.stripes),
            metered: MeteredLimit::new(&limit),
            buckets,
            limit,
            #[cfg(feature = "wait")]
            queues: WaitQueues::default(),
        }
    }

    /// Charges one token to `key`, or changes nothing and says why not.
    #[inline(always)]
    pub fn check(&self, key: impl Key) -> Outcome {
        let hash = self.hash(&key);
        let Some(limit) = &self.one_token else { return self.charge_metered(hash, 1, FastPathMiss::Untried) };
        // No policy is published, so none is newer.
        match limit.charge(&self.buckets.stripes, self.lines(hash), || self.buckets.now(), || true) {
            Ok(stepped) => limit.outcome(&self.buckets, stepped),
            Err(missed) => self.charge_metered(hash, 1, missed),
        }
    }

    /// Charges a cost after the fast path of one token was missed. Out of line, so that that path has the registers to
    /// itself.
    #[inline(never)]
    fn charge_metered(&self, hash: KeyHash, cost: u64, missed: FastPathMiss) -> Outcome {
        let missed = match (&self.metered, missed) {
            (Some(limit), FastPathMiss::Untried) => {
                match limit.charge(self.lines(hash), cost, || self.buckets.now(), || true) {
                    Ok(stepped) => return limit.outcome(&self.buckets, cost, stepped),
                    Err(missed) => missed,
                }
            }
            (_, missed) => missed,
        };
        self.charge_slow_path(hash, cost, missed)
    }

    #[inline(always)]
    fn lines(&self, hash: KeyHash) -> KeyLines<'_> {
        self.buckets.table.key_lines(KeyHasher::key(self.limit.hash, IdentityHash::of(hash)))
    }

    /// Charges a cost after both fast paths were missed.
    #[inline(never)]
    fn charge_slow_path(&self, hash: KeyHash, cost: u64, missed: FastPathMiss) -> Outcome {
        let account = Account::without_policy(&self.limit, IdentityHash::of(hash), cost);
        let read_clock = || self.buckets.now();
        self.first(&account, || account.charge_after(&self.buckets, &read_clock, missed))
    }

    /// Charges `cost` tokens to `key`, all or nothing. A cost above the limit's capacity is never allowed, one of 0
    /// charges nothing.
    #[inline]
    pub fn check_n(&self, key: impl Key, cost: u64) -> Outcome {
        if cost == 0 {
            return self.peek_n(key, cost);
        }
        self.charge_metered(self.hash(&key), cost, FastPathMiss::Untried)
    }

    /// Returns what [`check`](Self::check) would answer now. Charges nothing.
    pub fn peek(&self, key: impl Key) -> Outcome {
        self.peek_n(key, 1)
    }

    /// Returns what [`check_n`](Self::check_n) would answer now. Charges nothing.
    pub fn peek_n(&self, key: impl Key, cost: u64) -> Outcome {
        self.look(&self.limit, self.hash(&key), cost)
    }

    /// Returns how often a check or a peek brought a new key for which the table had no slot: it took an overflow
    /// bucket, or was denied. If this grows, there should be room for more keys.
    #[must_use]
    pub fn overflow_charges(&self) -> u64 {
        self.buckets.overflow_charges()
    }

    /// Returns how often such a key was denied, because the overflow buckets had live keys too.
    #[must_use]
    pub fn denied_without_room(&self) -> u64 {
        self.buckets.denied_without_room()
    }

    /// Returns the clock that the limiter reads.
    #[must_use]
    pub fn clock(&self) -> &C {
        &self.buckets.clock
    }

    #[inline(always)]
    pub(crate) fn hash(&self, key: &impl Key) -> KeyHash {
        key.key_hash(&self.buckets.hasher)
    }

    pub(crate) fn look(&self, limit: &ActiveLimit, hash: KeyHash, cost: u64) -> Outcome {
        let account = Account::without_policy(limit, IdentityHash::of(hash), cost);
        self.first(&account, || account.look(&self.buckets, self.buckets.now()).map(|preview| preview.charged))
    }

    #[inline(always)]
    pub(crate) fn charge(&self, limit: &ActiveLimit, hash: KeyHash, cost: u64) -> Outcome {
        let account = Account::without_policy(limit, IdentityHash::of(hash), cost);
        self.first(&account, || account.charge(&self.buckets, &|| self.buckets.now()))
    }

    /// Returns the outcome of an attempt. It is the first one, because without a publish no snapshot is stale.
    #[inline(always)]
    fn first(&self, account: &Account<'_>, mut attempt: impl FnMut() -> SnapshotResult<ChargeResult>) -> Outcome {
        loop {
            if let Ok(charged) = attempt() {
                return account.outcome(&charged).at_resolution(self.buckets.clock.resolution());
            }
        }
    }
}
