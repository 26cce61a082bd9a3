//! `RatedLimiter`: a limiter of keys whose rate comes with each check, over the engine's table.

use std::{fmt, num::NonZeroU16};

use crate::{
    algorithm::{Meter, TokenBucket},
    base::{
        clock::{Clock, SystemClock},
        hash::IdentityHash,
        key::Key,
    },
    engine::{account::Account, active_policy::ActiveLimit, decision::Outcome, state::DEFAULT_MAX_KEYS},
    limiter::keyed::KeyedLimiter,
    storage::caller_groups::{CallerGroup, NO_GROUP},
};

/// Limits each key by the rate that comes with the check, for callers that have their own rates, as with `CL.THROTTLE`
/// of redis-cell.
///
/// A bucket keeps the time at which its key has all of its quota again, and no rate: a check by another rate goes on
/// from that time, so what was used of a fast bucket is little of a slow one, and the other way round. Its memory is
/// bounded as that of a [`KeyedLimiter`]; where there is no slot for a key, the key is denied until one is idle: none
/// is let through uncounted. [`overflow_charges`](Self::overflow_charges) and
/// [`denied_without_room`](Self::denied_without_room) return how often that was.
///
/// Callers name the keys, and a key is the same for all callers. If one of them might bring so many that there is no
/// slot for the keys of others, give each a group: see [`with_groups`](Self::with_groups).
///
/// ```
/// use tidegate::{Rate, RatedLimiter};
///
/// let limiter = RatedLimiter::new();
/// let rate = Rate::per_minute(30).burst(5);
/// assert_eq!(limiter.check("ada", rate).remaining(), 4);
/// assert!(!limiter.check_n("ada", rate, 5).is_allowed());
/// ```
///
/// A [`Rate`](crate::Rate) is converted at each check. Where a rate is used for many checks, convert it once:
/// `Option::<TokenBucket>::from(rate)`.
pub struct RatedLimiter<C = SystemClock>(KeyedLimiter<C>);

impl<C> fmt::Debug for RatedLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RatedLimiter")
    }
}

impl RatedLimiter {
    /// Returns a limiter with room for a million keys.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max_keys(DEFAULT_MAX_KEYS)
    }

    /// Returns a limiter with room for `max_keys` live keys, 24 bytes each.
    #[must_use]
    pub fn with_max_keys(max_keys: usize) -> Self {
        Self::with_clock(max_keys, SystemClock::new())
    }
}

impl Default for RatedLimiter {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> RatedLimiter<C> {
    /// Returns a limiter with room for `max_keys` keys and this clock: for tests and simulation.
    #[must_use]
    pub fn with_clock(max_keys: usize, clock: C) -> Self {
        Self(KeyedLimiter::with_clock(None, max_keys, clock))
    }

    /// Returns a limiter in which each group of callers has a share of the slots, for checks by
    /// [`check_n_in_group`](Self::check_n_in_group).
    ///
    /// A group alone has room for `max_keys` keys; a second one, for 80 % of the slots that are free then; and so on.
    /// 15 % of the slots are kept for groups that have few, a 64th of them for each. So the more slots others have, the
    /// smaller the share of a group is. At its share a group brings a new key only where a key that it brought is idle;
    /// otherwise the new key is denied. A key that has a slot is decided in the same way for every group. Checks
    /// without a group have no share, and take any free slot.
    ///
    /// This takes 3 bytes more for each key, and half a megabyte.
    #[must_use]
    pub fn with_groups(max_keys: usize, clock: C) -> Self {
        let mut limiter = KeyedLimiter::with_clock(None, max_keys, clock);
        limiter.buckets.table.share_by_group();
        Self(limiter)
    }

    /// Charges one token to the bucket of `key`, or changes nothing and says why not. The rate is a [`Rate`](crate::Rate)
    /// or a [`TokenBucket`]. `None` denies everything, as does a rate of 0.
    pub fn check(&self, key: impl Key, rate: impl Into<Option<TokenBucket>>) -> Outcome {
        self.check_n(key, rate, 1)
    }

    /// Charges `cost` tokens to the bucket of `key`, all or nothing. A cost above the burst is never allowed, one of 0
    /// charges nothing.
    pub fn check_n(&self, key: impl Key, rate: impl Into<Option<TokenBucket>>, cost: u64) -> Outcome {
        self.charge(NO_GROUP, &key, rate.into(), cost)
    }

    /// Charges `cost` tokens to the bucket of `key`, as [`check_n`](Self::check_n) does, for a caller of this group.
    /// The group is a number that the program gives each caller, such as some bits of a keyed hash of its address.
    /// Callers with the same number have one share. Only a limiter made by [`with_groups`](Self::with_groups) has
    /// shares.
    ///
    /// ```
    /// use std::{num::NonZeroU16, time::Duration};
    /// use tidegate::{RatedLimiter, algorithm::TokenBucket, clock::SystemClock};
    ///
    /// let limiter = RatedLimiter::with_groups(1_000, SystemClock::new());
    /// let year = TokenBucket::new(1, Duration::from_hours(365 * 24), 1)?; // 1 a year
    /// for key in 0..10_000_u64 {
    ///     limiter.check_n_in_group(NonZeroU16::MIN, key, year, 1);
    /// }
    /// assert!(!limiter.check_n_in_group(NonZeroU16::MIN, 10_000_u64, year, 1).is_allowed(), "it has its share");
    /// assert!(limiter.check_n_in_group(NonZeroU16::MAX, 10_000_u64, year, 1).is_allowed(), "another group has its own");
    /// # Ok::<(), tidegate::algorithm::Unfit>(())
    /// ```
    pub fn check_n_in_group(
        &self,
        group: NonZeroU16,
        key: impl Key,
        rate: impl Into<Option<TokenBucket>>,
        cost: u64,
    ) -> Outcome {
        self.charge(group.get(), &key, rate.into(), cost)
    }

    /// Returns what [`check`](Self::check) would answer now. Charges nothing.
    pub fn peek(&self, key: impl Key, rate: impl Into<Option<TokenBucket>>) -> Outcome {
        self.peek_n(key, rate, 1)
    }

    /// Returns what [`check_n`](Self::check_n) would answer now. Charges nothing.
    pub fn peek_n(&self, key: impl Key, rate: impl Into<Option<TokenBucket>>, cost: u64) -> Outcome {
        self.0.look(&self.limit(NO_GROUP, rate.into()), self.0.hash(&key), cost)
    }

    fn charge(&self, group: CallerGroup, key: &impl Key, bucket: Option<TokenBucket>, cost: u64) -> Outcome {
        let (limit, hash) = (self.limit(group, bucket), self.0.hash(key));
        if cost == 0 { self.0.look(&limit, hash, cost) } else { self.0.charge(&limit, hash, cost) }
    }

    /// Forgets what the key has used. Returns whether there was something to forget.
    pub fn reset(&self, key: impl Key) -> bool {
        Account::without_policy(&self.0.limit, IdentityHash::of(self.0.hash(&key)), 0).reset(&self.0.buckets)
    }

    /// Returns how often a check or a peek brought a new key for which the table had no slot: it took an overflow
    /// bucket, or was denied.
    #[must_use]
    pub fn overflow_charges(&self) -> u64 {
        self.0.overflow_charges()
    }

    /// Returns how often such a key was denied, because the overflow buckets had live keys too.
    #[must_use]
    pub fn denied_without_room(&self) -> u64 {
        self.0.denied_without_room()
    }

    /// Returns how often a new key was denied because its group had its share of the slots. Neither of the two methods
    /// above counts these.
    #[must_use]
    pub fn denied_by_share(&self) -> u64 {
        self.0.buckets.table.groups.as_ref().map_or(0, |groups| groups.refused.count())
    }

    /// Returns the clock that the limiter reads.
    #[must_use]
    pub fn clock(&self) -> &C {
        self.0.clock()
    }

    fn limit(&self, group: CallerGroup, bucket: Option<TokenBucket>) -> ActiveLimit {
        self.0.limit.rated(bucket.map(Meter::TokenBucket), group)
    }
}
