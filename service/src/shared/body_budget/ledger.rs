//! Decides whose body gets part of the body budget, and whose part is revoked for it: plain data without locks and tasks.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use tidegate_listener::{OwnerCounts, PeerNetwork};
use tokio::time::Instant;

use super::{BUDGET_BYTES, BudgetRefusal, CONNECTION_BYTES, PEER_BYTES, PermitPhase, permit_state::PermitState};
use crate::shared::timeouts::Timeouts;

#[derive(Clone, Copy, Debug)]
pub(super) struct BudgetLimits {
    pub(super) budget: usize,
    pub(super) peer: usize,
    pub(super) connection: usize,
    /// The time after which a holder may be dropped for another one.
    pub(super) grace: Duration,
    /// The time for which a holder may wait for the rest of a body.
    pub(super) body: Duration,
    /// The time for which a holder may wait until its response is read.
    pub(super) answer: Duration,
}

impl BudgetLimits {
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        Self {
            budget: BUDGET_BYTES,
            peer: PEER_BYTES,
            connection: CONNECTION_BYTES,
            grace: timeouts.body_grace,
            body: timeouts.request,
            answer: timeouts.unread_replies,
        }
    }
}

/// A holder of part of the budget.
#[derive(Debug)]
pub(super) struct BodyHolder {
    pub(super) peer: PeerNetwork,
    pub(super) connection: u64,
    pub(super) bytes: usize,
    pub(super) phase: PermitPhase,
    /// The time at which its phase began.
    pub(super) since: Instant,
    pub(super) state: Arc<PermitState>,
}

/// The record of the holders and their bytes: plain data, to which the time is an argument.
#[derive(Debug)]
pub(super) struct BudgetLedger {
    pub(super) limits: BudgetLimits,
    /// The holders in the order in which they were first charged.
    pub(super) holders: BTreeMap<u64, BodyHolder>,
    last_number: u64,
    /// The bytes of each peer, and of all.
    pub(super) by_peer: OwnerCounts<PeerNetwork>,
    pub(super) by_connection: OwnerCounts<u64>,
    /// The count of each refusal, in the order of [`BudgetRefusal::ALL`].
    pub(super) refused: [u64; BudgetRefusal::ALL.len()],
}

impl BudgetLedger {
    pub(super) fn new(limits: BudgetLimits) -> Self {
        Self {
            limits,
            holders: BTreeMap::new(),
            last_number: 0,
            by_peer: OwnerCounts::default(),
            by_connection: OwnerCounts::default(),
            refused: [0; BudgetRefusal::ALL.len()],
        }
    }

    /// Charges a new holder for the bytes that it is to have. Returns its number, and how many others were dropped for it.
    pub(super) fn admit(&mut self, holder: BodyHolder) -> Result<(u64, usize), BudgetRefusal> {
        let bytes = holder.bytes;
        let dropped = self.make_room((holder.peer, holder.connection), None, bytes, holder.since)?;
        self.last_number += 1;
        self.holders.insert(self.last_number, BodyHolder { bytes: 0, ..holder });
        self.set_bytes(self.last_number, bytes);
        Ok((self.last_number, dropped))
    }

    /// Charges a holder for `bytes` in all. Returns how many others were dropped for it.
    pub(super) fn resize(&mut self, number: u64, bytes: usize, now: Instant) -> Result<usize, BudgetRefusal> {
        let Some(holder) = self.holders.get(&number) else { return Ok(0) };
        let (of, more) = ((holder.peer, holder.connection), bytes.saturating_sub(holder.bytes));
        let dropped = if more > 0 { self.make_room(of, Some(number), more, now)? } else { 0 };
        self.set_bytes(number, bytes);
        Ok(dropped)
    }

    /// Drops holders until there is room for `more` bytes of this peer and connection, for the holder `number` if there is one.
    /// Returns how many were dropped; where that would not be enough, none is.
    fn make_room(
        &mut self,
        of: (PeerNetwork, u64),
        number: Option<u64>,
        more: usize,
        now: Instant,
    ) -> Result<usize, BudgetRefusal> {
        match self.victims(of, number, more, now) {
            Ok(victims) => {
                for victim in &victims {
                    self.revoke(*victim, BudgetRefusal::Dropped);
                }
                Ok(victims.len())
            }
            Err(refusal) => {
                self.count(refusal);
                Err(refusal)
            }
        }
    }

    /// Returns the holders that must be dropped for that, the oldest first: holders of the connection while its share
    /// is exceeded, then holders of the peer. Where the budget is exceeded, holders of the peer with the most bytes
    /// come first, if it has more than this peer would have, so that many peers cannot keep out one that has little;
    /// then holders of this peer, then any.
    ///
    /// A holder that has not waited for the grace is spared, unless its peer has the most bytes.
    fn victims(
        &self,
        (peer, connection): (PeerNetwork, u64),
        number: Option<u64>,
        more: usize,
        now: Instant,
    ) -> Result<Vec<u64>, BudgetRefusal> {
        let excess = |taken: usize, bound: usize| (taken + more).saturating_sub(bound);
        let taken = self.by_peer.of(&peer);
        let of_connection = excess(self.by_connection.of(&connection), self.limits.connection);
        let of_peer = excess(taken, self.limits.peer);
        let of_all = excess(self.by_peer.sum(), self.limits.budget);
        let (mut victims, mut freed) = (Vec::new(), 0);
        if of_connection + of_peer + of_all == 0 {
            return Ok(victims);
        }
        let largest = self.by_peer.iter().max_by_key(|&(_, taken)| taken);
        let largest = largest.filter(|&(_, largest)| largest > taken + more).map(|(peer, _)| *peer);
        // The victims so far count: they are part of each wider choice.
        let mut choose = |missing: usize, may_go: &dyn Fn(&BodyHolder) -> bool| {
            for (&other, holder) in &self.holders {
                if freed >= missing {
                    break;
                }
                let is_left = Some(other) != number && holder.phase != PermitPhase::Work && !victims.contains(&other);
                if is_left && may_go(holder) {
                    victims.push(other);
                    freed += holder.bytes;
                }
            }
            freed >= missing
        };
        let is_old = |holder: &BodyHolder| now >= holder.since + self.limits.grace;
        let is_old_of_peer = |holder: &BodyHolder| holder.peer == peer && is_old(holder);
        if !choose(of_connection, &|holder| holder.connection == connection && is_old(holder)) {
            return Err(BudgetRefusal::Connection);
        }
        if !choose(of_peer, &is_old_of_peer) {
            return Err(BudgetRefusal::Peer);
        }
        let is_enough = (largest.is_some() && choose(of_all, &|holder| Some(holder.peer) == largest))
            || choose(of_all, &is_old_of_peer)
            || choose(of_all, &is_old);
        if is_enough { Ok(victims) } else { Err(BudgetRefusal::Budget) }
    }

    /// Revokes the permits of holders that have waited for too long.
    pub(super) fn sweep(&mut self, now: Instant) {
        let BudgetLimits { body, answer, .. } = self.limits;
        let is_overdue = |holder: &BodyHolder| match holder.phase {
            PermitPhase::Body => now >= holder.since + body,
            PermitPhase::Response => now >= holder.since + answer,
            PermitPhase::Queue | PermitPhase::Work => false,
        };
        let overdue = self.holders.iter().filter(|&(_, holder)| is_overdue(holder)).map(|(number, _)| *number);
        for number in overdue.collect::<Vec<_>>() {
            self.revoke(number, BudgetRefusal::Overdue);
        }
    }

    /// Begins another phase of a holder, whose time begins anew.
    pub(super) fn enter(&mut self, number: u64, phase: PermitPhase, now: Instant) {
        if let Some(holder) = self.holders.get_mut(&number).filter(|holder| holder.phase != phase) {
            (holder.phase, holder.since) = (phase, now);
        }
    }

    fn revoke(&mut self, number: u64, refusal: BudgetRefusal) {
        if let Some(holder) = self.holders.get(&number) {
            holder.state.revoke(refusal);
            self.set_bytes(number, 0);
            self.count(refusal);
        }
    }

    /// Sets the bytes of a holder, and removes it where that is 0.
    pub(super) fn set_bytes(&mut self, number: u64, bytes: usize) {
        let Some(holder) = self.holders.get_mut(&number) else { return };
        let before = mem::replace(&mut holder.bytes, bytes);
        let (peer, connection) = (holder.peer, holder.connection);
        if bytes == 0 {
            self.holders.remove(&number);
        }
        // Adds first, so that an owner that keeps some bytes stays in the map.
        self.by_peer.add(peer, bytes);
        self.by_peer.subtract(&peer, before);
        self.by_connection.add(connection, bytes);
        self.by_connection.subtract(&connection, before);
    }

    fn count(&mut self, refusal: BudgetRefusal) {
        self.refused[refusal as usize] += 1;
    }
}
