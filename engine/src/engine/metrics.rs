//! Metrics of the engine: how full its table is, the decisions that it made, and the slots that its limits hold.

use crate::{
    base::clock::Clock,
    engine::{active_policy::ActiveLimit, names::LimitIndex, state::Engine},
    storage::counters::{Counts, Totals},
};

impl<C: Clock> Engine<C> {
    /// Returns how often a check or a peek brought a new key for which the table had no slot: it took an overflow
    /// bucket of its limit, or was denied. If this grows, the engine needs more `max_keys`, or the limit a larger
    /// [share](crate::TableShares).
    #[must_use]
    pub fn overflow_charges(&self) -> u64 {
        self.buckets.overflow_charges()
    }

    /// Returns how often such a key was denied, because the overflow buckets of its limit had live keys too. The
    /// decision says when the first bucket that it could have is idle.
    #[must_use]
    pub fn denied_without_room(&self) -> u64 {
        self.buckets.denied_without_room()
    }

    /// Returns the limits of the present policy's tiers and rules whose overflow buckets all have live keys: a new key
    /// of theirs is denied if the table has no slot for it.
    #[must_use]
    pub fn drained_limits(&self) -> Vec<LimitIndex> {
        let (active, now) = (self.active.load(), self.buckets.now());
        let limits = active.limits.iter().filter(|limit| limit.counter.is_some());
        let drained = limits.filter(|limit| self.buckets.table.shares.is_drained(limit.id, now));
        drained.map(|limit| LimitIndex(limit.index)).collect()
    }

    /// Returns the limits of the present policy's tiers and rules, in its order, with the number of slots of the table
    /// that the keys of each hold: those of its live keys, and those of idle ones that no other key has taken yet.
    /// Overflow buckets are not counted.
    #[must_use]
    pub fn slots_held(&self) -> Vec<(LimitIndex, u64)> {
        let active = self.active.load();
        let limits = active.limits.iter().filter(|limit| limit.counter.is_some());
        limits.map(|limit| (LimitIndex(limit.index), self.buckets.table.shares.held(limit.id))).collect()
    }

    /// Returns the number of slots of the table: one and a half for each of `max_keys`.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.buckets.table.slots()
    }

    /// Returns how full the table is, from 0 to 1: the part of its slots that hold a live key, estimated from a few
    /// thousand of them. With `max_keys` live keys it is two thirds full.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.buckets.table.fill(self.buckets.now())
    }

    /// Returns the number of live keys, estimated from as many slots. [`count_live_keys`](Self::count_live_keys) is
    /// exact.
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "a part of a whole number is not negative")]
    pub fn live_keys(&self) -> u64 {
        (self.fill() * self.buckets.table.slots() as f64) as u64
    }

    /// Counts the live keys one by one. Returns `None` if there are more than `most`, or if the engine has room for
    /// more than 89 million, since counting these would take too long.
    ///
    /// It reads the table until it has found as many, so where there are few it reads all of it: some milliseconds for
    /// a million keys. Checks go on meanwhile.
    #[must_use]
    pub fn count_live_keys(&self, most: usize) -> Option<usize> {
        self.buckets.table.count_live(self.buckets.now(), most)
    }

    /// Returns how often a hot key, which many threads hit, was given a lease since the engine was made: its tokens are
    /// then spent from several places, a few for each processor, and `remaining` may be too high by up to a 16th of its
    /// limit's burst.
    ///
    /// Only `token_bucket` limits with a burst of 1,024 or more have leases, at most 64 keys at a time. A lease begins
    /// when threads get into each other's way, and ends when they do not, or when the key has nothing left.
    #[must_use]
    pub fn leases_begun(&self) -> u64 {
        self.buckets.stripes.counters.begun.count()
    }

    /// Returns how many of these leases have ended.
    #[must_use]
    pub fn leases_ended(&self) -> u64 {
        self.buckets.stripes.counters.ended.count()
    }

    /// Returns how often a sliding window log was charged without a ring of its own, because its pool had none left:
    /// then it is stricter than its limit says. If this grows, the engine needs more `max_keys`, or the policy fewer or
    /// smaller logs.
    #[must_use]
    pub fn log_charges_without_ring(&self) -> u64 {
        self.buckets.table.rings.missed.count()
    }

    /// Returns how often a charge was given back because a later limit of the same check refused in a race. Until it
    /// was given back, neighbours may have been denied that would just have fitted: in any serial order, at most one
    /// for each of its tokens.
    #[must_use]
    pub fn give_backs(&self) -> u64 {
        self.buckets.give_backs.count()
    }

    /// Returns the totals of all decisions since the engine was made.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.counters.totals()
    }

    /// Returns the limits of the present policy's tiers and rules, in its order, with the decisions of each since the
    /// engine was made. Those of single clients are counted in the totals alone: there may be a hundred thousand.
    #[must_use]
    pub fn limit_counts(&self) -> Vec<(LimitIndex, Counts)> {
        let active = self.active.load();
        let counts =
            |limit: &ActiveLimit| Some((LimitIndex(limit.index), self.counters.counts(limit.counter?.number())));
        active.limits.iter().filter_map(counts).collect()
    }

    /// Returns the decisions of a limit since the engine was made, also of one that the present policy does not have
    /// any more; `None` for the limit of a single client.
    #[must_use]
    pub fn counts(&self, limit: LimitIndex) -> Option<Counts> {
        Some(self.counters.counts(self.buckets.names.counter(limit.0)?))
    }

    /// Returns how many limits the engine knows: those of the policy in force, and those of earlier ones whose ids it
    /// has not taken back yet. At most [`KNOWN_LIMITS_MAX`](crate::KNOWN_LIMITS_MAX): a policy with more names is
    /// refused.
    #[must_use]
    pub fn known_limits(&self) -> usize {
        self.buckets.names.known()
    }
}
