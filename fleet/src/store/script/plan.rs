//! Plans the operation on each key of a request, from the record that the store had last.

use std::cmp::Ordering;

use tidegate::{
    algorithm::{Carry, Meter},
    internals::{Receipt, RemoteAdd, RemoteStep, StoreCharge, Verdict},
    time::{Nanos, SECOND_NS},
};

#[cfg(test)]
use crate::store::simulation::Mutation;
use crate::store::{
    config::LEASE_NS,
    script::{
        grant::{Grant, LeaseRequest, granted},
        op::ScriptOp,
        record::{Leases, Record, StoredRecord, VersionedMeter, head, is_instant},
    },
};

/// The time within which a swap must reach the store, for the first and later tries. A swap that arrives later is not
/// made.
const SWAP_IN: [Nanos; 3] = [SECOND_NS / 10, SECOND_NS, 10 * SECOND_NS];

/// The time by which the store is assumed to have a swap, for which charges and refunds are computed: for the first
/// try, and for tries after one that came too late. A lost race does not mean that a try was late.
const TAKE_IN: [Nanos; 3] = [SECOND_NS / 200, SECOND_NS / 20, SECOND_NS / 2];

/// The purpose of a request for one key.
#[derive(Clone, Debug)]
pub(crate) enum Intent {
    /// Charges this many tokens.
    Charge(u64),
    /// Finds out what a charge of this many tokens (0: of one) would lead to.
    Look(u64),
    /// Takes a charge back.
    GiveBack(Receipt),
    /// Charges tokens whether they fit or not, as far as at most `max_debt` tokens are owed above the capacity.
    Overcharge { tokens: u64, max_debt: u64 },
    /// Takes tokens in advance.
    Lease(LeaseRequest),
    /// Charges tokens that were spent, whether they fit or not, and exactly once.
    Delta {
        /// The key of the last number that this node sent.
        sent: String,
        number: u64,
        tokens: u64,
    },
    /// Clears the record.
    Reset,
}

#[derive(Debug)]
pub(crate) struct KeyRequest {
    pub(crate) key: String,
    pub(super) own: VersionedMeter,
    pub(super) intent: Intent,
    pub(super) is_shadow: bool,
    /// The record that the store had last.
    pub(super) found: Option<StoredRecord>,
    /// The grant of a swap, if it is made.
    pub(super) grant: Option<Grant>,
    /// Whether the stored record refused it, so that it was only looked at.
    pub(super) is_refused: bool,
    /// The number of failed tries.
    pub(super) tries: u8,
    /// The number of tries that came too late, though the record was as expected.
    pub(super) late: u8,
    /// The life of a lease, and the length of an epoch.
    pub(crate) lease_ns: Nanos,
}

/// Requests for keys of one slot, of which all are charged or none.
pub(crate) type SlotRequest = Vec<KeyRequest>;

impl KeyRequest {
    pub(crate) fn new(key: String, charge: &StoreCharge<'_>, intent: Intent) -> Self {
        let own = VersionedMeter { meter: charge.meter, version: charge.version };
        Self { is_shadow: charge.is_shadow, ..Self::again(key, own, intent, None) }
    }

    /// Makes a request for a key whose record is known: `text` is its text.
    pub(crate) fn again(key: String, own: VersionedMeter, intent: Intent, text: Option<&str>) -> Self {
        let found = text.map(|text| StoredRecord::read(text.to_owned(), &own.meter));
        Self {
            key,
            own,
            intent,
            is_shadow: false,
            found,
            grant: None,
            is_refused: false,
            tries: 0,
            late: 0,
            lease_ns: LEASE_NS,
        }
    }

    /// Returns the second key of the request, if it has one.
    pub(super) fn sent(&self) -> Option<&str> {
        if let Intent::Delta { sent, .. } = &self.intent { Some(sent) } else { None }
    }

    /// Returns the record under the numbers of the newest policy, and whether its text in the store differs.
    pub(super) fn held(&self, now: Nanos) -> (Record, bool) {
        match self.found.as_ref().and_then(|found| found.held) {
            Some(held) if held.under.meter == self.own.meter || held.under.version > self.own.version => {
                let at = held.at(now, self.lease_ns);
                (at, at.word != held.word || !at.leases.lie_as(&held.leases))
            }
            Some(held) => {
                let Record { under, word, leases } = held.at(now, self.lease_ns);
                let word = under.meter.carry_over(word, now, &self.own.meter, Carry::Keep);
                (Record { under: self.own, word, leases }, true)
            }
            // A value that is not understood is overwritten.
            None => (Record { under: self.own, word: 0, leases: Leases::default() }, self.text() != ""),
        }
    }

    fn text(&self) -> &str {
        self.found.as_ref().map_or("", |found| &found.text)
    }

    /// Plans the operation for the script. Fails with the verdict if the stored record already decides.
    // Long: one arm for each intent, over the same record.
    pub(super) fn op(&mut self, now: Nanos) -> Result<ScriptOp, Verdict> {
        let (held, is_other) = self.held(now);
        let meter = held.under.meter;
        let before = || self.text().to_owned();
        // A bucket state contains the time for which it was computed, so the store must not take it much later.
        let soon = now.saturating_add(SWAP_IN[usize::from(self.tries).min(SWAP_IN.len() - 1)]);
        // The node may know an old time of the store. A bucket refills meanwhile, so charges and refunds are computed
        // for a time by which the store has them.
        let by = now.saturating_add(TAKE_IN[usize::from(self.late).min(TAKE_IN.len() - 1)]);
        let swap = |after: &Record, (from, until): (Nanos, Nanos)| {
            let (leases_until, ends) = (after.leases.until(self.lease_ns), after.under.meter.window_end(after.word));
            let (mut after, mut until) = (*after, until.min(soon).min(leases_until).min(ends));
            if is_instant(&meter) && after.word > held.word {
                // While tokens are missing, all of them are back at the same time whenever more are charged.
                until = until.min(held.word.max(by));
                after.word = after.word.saturating_add(until.saturating_sub(held.word.max(now)));
            }
            ScriptOp::Swap { before: before(), after: after.write(), from, until }
        };
        let force =
            |tokens, max_debt| match meter.plan_overcharge(held.word, now, tokens, max_debt).filter(|_| !is_other) {
                // The script refuses where more is owed than was known here; then the request starts again with the
                // record that it found.
                Some(add)
                    if add.is_instant
                        || self.found.is_some() && meter.tail_of(held.word).saturating_add(tokens) <= add.most =>
                {
                    ScriptOp::add(&held, add, self.lease_ns)
                }
                _ => swap(&Record { word: held.with(tokens, now), ..held }, (now, Nanos::MAX)),
            };
        match self.intent {
            Intent::Look(_) => Ok(ScriptOp::Look),
            // There is no record.
            Intent::GiveBack(_) if self.found.as_ref().is_some_and(|found| found.held.is_none()) => Err(Verdict::Never),
            Intent::GiveBack(receipt) => {
                if let Some(take) = self.own.meter.plan_give_back(now, by, &receipt)
                    && (self.found.is_none()
                        || !is_other && meter == self.own.meter && held.word - meter.tail_of(held.word) == take.head)
                {
                    return Ok(ScriptOp::Take { head: head(&self.own.meter, take.head), take });
                }
                // The record to take from is not known.
                if self.found.is_none() {
                    return Ok(ScriptOp::Look);
                }
                let (at, until) = if is_instant(&meter) { (by, by) } else { (now, Nanos::MAX) };
                let after = meter.give_back(held.word, at, &receipt).filter(|_| meter == self.own.meter);
                let after = Record { word: after.ok_or(Verdict::Never)?, ..held };
                if is_other {
                    return Ok(swap(&after, (now, until)));
                }
                Ok(ScriptOp::Swap { before: before(), after: after.write(), from: 0, until: soon.min(until) })
            }
            Intent::Reset => Ok(ScriptOp::Clear),
            Intent::Overcharge { tokens, max_debt } => match tokens.min(meter.debt_room(held.word, now, max_debt)) {
                // The debt is at its most.
                0 => Err(Verdict::Never),
                tokens => Ok(force(tokens, max_debt)),
            },
            Intent::Delta { tokens, .. } => Ok(force(tokens, u64::MAX)),
            Intent::Charge(cost) => {
                // Lent tokens are taken off the capacity.
                let full = held.full(now);
                let admitted = match meter.step(full, now, cost) {
                    Verdict::Admit(_) => meter.step(held.word, now, cost),
                    refused => refused,
                };
                match (meter.plan_charge(held.word, now, cost), admitted) {
                    // A record that this node has not seen may exist all the same.
                    (RemoteStep::Add(add), Verdict::Admit(_)) if !is_other => {
                        let lent = if add.is_instant { full - held.word.max(now).min(full) } else { held.leases.out() };
                        #[cfg(test)]
                        let lent = if Mutation::ChargeIgnoresLeases.is_on() { 0 } else { lent };
                        Ok(ScriptOp::add(
                            &held,
                            RemoteAdd { most: add.most.saturating_sub(lent), ..add },
                            self.lease_ns,
                        ))
                    }
                    (RemoteStep::Add(add), Verdict::Admit(word)) => {
                        Ok(swap(&Record { word, ..held }, (add.from.max(now), add.until)))
                    }
                    (RemoteStep::Swap { after, from, until }, Verdict::Admit(_)) => {
                        Ok(swap(&Record { word: after, ..held }, (from, until)))
                    }
                    (_, refused) => Err(refused),
                }
            }
            Intent::Lease(ask) => {
                let (after, grant) = granted(held, now, &ask, self.lease_ns);
                let is_known = self.found.as_ref().is_some_and(|found| found.held.is_some());
                let op = match ScriptOp::lend(&held, now, &ask, &grant, self.lease_ns) {
                    _ if after == held && !is_other => ScriptOp::Look,
                    Some(lend) if is_known && !is_other => lend,
                    _ => swap(&after, (now, Nanos::MAX)),
                };
                self.grant = Some(grant);
                Ok(op)
            }
        }
    }
}

/// Returns how many tokens are used above the capacity.
pub(crate) fn excess(meter: &Meter, word: u64, now: Nanos) -> u64 {
    let over = |used: u64, most: u64| used.saturating_sub(most);
    if is_instant(meter) {
        let over_ns = over(meter.reset_after_ns(word, now), meter.period_ns());
        let tokens = u128::from(over_ns) * u128::from(meter.capacity()) / u128::from(meter.period_ns().max(1));
        return u64::try_from(tokens).unwrap_or(u64::MAX);
    }
    match meter.window_end(word).cmp(&now) {
        Ordering::Greater => over(meter.tail_of(word), meter.capacity()),
        _ => 0,
    }
}
