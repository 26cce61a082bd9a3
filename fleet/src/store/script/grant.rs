//! The exchange of leases: the request of a node, and the grant of the store.

use tidegate::time::Nanos;

use crate::store::script::record::Record;
#[cfg(test)]
use crate::store::simulation::Mutation;

/// A node's request for a lease: the lease that it has, and the tokens that it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeaseRequest {
    /// The lease that the node has: the epoch in which it was lent, the end of its window, the tokens that were lent,
    /// and the tokens that are left.
    pub(crate) epoch: u64,
    pub(crate) ends: Nanos,
    pub(crate) out: u64,
    pub(crate) left: u64,
    /// The tokens that the node keeps of those that are left.
    pub(crate) keep: u64,
    /// The further tokens that it would like.
    pub(crate) want: u64,
    /// The tokens that a check waits for; 0: none waits.
    pub(crate) need: u64,
}

impl LeaseRequest {
    /// Returns the tokens with which the node would like to go on.
    pub(crate) fn wanted(&self) -> u64 {
        self.keep.saturating_add(self.want)
    }

    /// Returns the tokens of the lease that were spent.
    pub(super) fn spent(&self) -> u64 {
        #[cfg(test)]
        if Mutation::SpentTokensAreNotCharged.is_on() {
            return 0;
        }
        self.out.saturating_sub(self.left)
    }
}

/// The tokens that a node may spend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) epoch: u64,
    /// The end of the window in which they count.
    pub(crate) ends: Nanos,
    /// Whether the store still counted the node's lease as out.
    pub(crate) is_counted: bool,
    /// The tokens of its lease that the node keeps (none unless the lease was counted), and the tokens that it was
    /// given.
    pub(crate) kept: u64,
    pub(crate) given: u64,
    /// The bucket state as if all tokens that other nodes hold had been spent.
    pub(crate) word: u64,
    /// Whether the tokens that a check waits for were charged at once.
    pub(crate) is_charged: bool,
    /// Whether the limit has more tokens, but no more may be lent.
    pub(crate) is_all_out: bool,
}

/// Returns the record after a grant, and the grant.
pub(crate) fn granted(mut held: Record, now: Nanos, ask: &LeaseRequest, lease_ns: Nanos) -> (Record, Grant) {
    let meter = held.under.meter;
    held.word = meter.advance_window(held.word, now);
    let ends = meter.window_end(held.word);
    // Tokens that the store still counts as out are kept. Others were counted as spent, or belong to a window that is
    // over: the node asks for as many anew.
    let is_counted = ask.out > 0 && ask.ends == ends && held.leases.take_back(ask.epoch, ask.out);
    let (kept, want) = if is_counted { (ask.keep, ask.want) } else { (0, ask.wanted()) };
    if is_counted {
        held.word = held.with(ask.spent(), now);
    }
    let others = held.leases.out();
    #[cfg(test)]
    let others = if Mutation::GrantIgnoresOthers.is_on() { 0 } else { others };
    let room = meter.remaining(held.with(others + kept, now), now);
    // At most a quarter of the capacity is lent.
    let lendable = (meter.capacity() / 4).saturating_sub(others + kept);
    let mut given = want.min(room).min(lendable);
    let is_all_out = given < want.min(room);
    let is_short = kept + given < ask.need;
    let is_charged = is_short && ask.need <= room;
    if is_short {
        given = 0;
    }
    if is_charged {
        held.word = held.with(ask.need, now);
    }
    held.leases.lend(now, kept + given, lease_ns);
    let (epoch, word) = (held.leases.epoch, held.with(others, now));
    (held, Grant { epoch, ends, is_counted, kept, given, word, is_charged, is_all_out })
}
