//! The quota of one key that a node holds: the lease of a `leased` limit, or the view of a `synced` one.

use hashbrown::HashTable;
use tidegate::{internals::StoreAnswer, policy::Sharing};
use tokio::sync::oneshot;

use crate::store::{
    key::KeyName,
    local::{lease::Lease, synced::SyncedUsage},
    script::record::VersionedMeter,
};

pub(super) const SHARDS: usize = 64;

/// A shard of the quotas, by the hash of the key, which is random already.
pub(super) type Shard = HashTable<LocalQuota>;

/// The quota of one key. The fields that each check needs come first, in two cache lines, which processors fetch
/// together.
#[repr(C, align(128))]
pub(super) struct LocalQuota {
    pub(super) hash: u64,
    pub(super) own: VersionedMeter,
    pub(super) kind: QuotaKind,
    pub(super) name: Box<KeyName>,
    pub(super) generation: u64,
}

/// A reference to one quota: its key, and its generation.
#[derive(Clone, Copy)]
pub(super) struct QuotaRef {
    pub(super) hash: u64,
    pub(super) generation: u64,
}

// The tag comes first.
#[repr(u64)]
pub(super) enum QuotaKind {
    Leased { lease: Lease, text: String, waiters: Waiters },
    Synced { view: SyncedUsage, text: Option<String> },
}

/// The checks that wait for a lease, each with its cost. The answer `None` means that the charge is for the store.
pub(super) type Waiters = Vec<(u64, oneshot::Sender<Option<StoreAnswer>>)>;

/// The answer of a node's quotas to a charge.
pub(crate) enum LocalAnswer {
    Answer(StoreAnswer),
    /// The answer arrives soon; `None` means that the charge is for the store.
    Waits(oneshot::Receiver<Option<StoreAnswer>>),
    /// The charge is for the store.
    Store,
}

impl LocalQuota {
    pub(super) fn reference(&self) -> QuotaRef {
        QuotaRef { hash: self.hash, generation: self.generation }
    }

    /// Drops the quota. Checks that wait for it are charged in the store.
    pub(super) fn release_waiters(mut self) {
        if let QuotaKind::Leased { waiters, .. } = &mut self.kind {
            answer_all(waiters, None);
        }
    }

    pub(super) fn is_of(&self, sharing: Sharing) -> bool {
        matches!(
            (&self.kind, sharing),
            (QuotaKind::Leased { .. }, Sharing::Leased) | (QuotaKind::Synced { .. }, Sharing::Synced)
        )
    }

    pub(super) fn out(&self) -> i64 {
        match &self.kind {
            QuotaKind::Leased { lease, .. } => i64::try_from(lease.out()).unwrap_or(i64::MAX),
            QuotaKind::Synced { .. } => 0,
        }
    }
}

/// Gives all checks that wait the same answer.
pub(super) fn answer_all(waiters: &mut Waiters, answer: Option<StoreAnswer>) {
    for (_, waiter) in waiters.drain(..) {
        // A send error is ignored: the check may have given up.
        let _ = waiter.send(answer);
    }
}

pub(super) fn find(shard: &mut Shard, hash: u64) -> Option<&mut LocalQuota> {
    shard.find_mut(spread_hash(hash), |it| it.hash == hash)
}

/// Returns the quota of a reference, unless another one has taken its reference.
pub(super) fn find_same(shard: &mut Shard, reference: QuotaRef) -> Option<&mut LocalQuota> {
    find(shard, reference.hash).filter(|it| it.generation == reference.generation)
}

/// Spreads the hashes of a shard, which have their lowest bits in common.
pub(super) fn spread_hash(hash: u64) -> u64 {
    hash.rotate_right(SHARDS.trailing_zeros())
}
