//! The lease of a node on one key of a `leased` limit: tokens that it took in advance. Pure: time is an argument, and
//! nothing here sends a request.

use std::time::Duration;

use tidegate::{
    algorithm::Meter,
    internals::{Receipt, StoreAnswer, Verdict},
    time::{Nanos, SECOND_NS},
};

use crate::store::{
    client::clock_reading::ClockReading,
    script::grant::{Grant, LeaseRequest},
};

/// The longest and the shortest time for which a batch should last at the key's current rate.
const HORIZON_MAX: Duration = Duration::from_secs(8);

const HORIZON_MIN: Duration = Duration::from_millis(100);

/// The time for which the first batch should last. A batch that may last as long has at least a 64th of the limit:
/// otherwise a key that is used now and then would ask again and again for all that is left.
const HORIZON_FIRST: Duration = Duration::from_secs(1);

/// The time before its end at which a batch is renewed, at the key's current rate.
const AHEAD: Duration = Duration::from_millis(100);

/// The age at which a lease in use is renewed, the time without use after which it goes back, and the interval of the
/// checks for both.
const fn renewed_at_ns(lease_ns: Nanos) -> Nanos {
    lease_ns / 3 * 2
}

const fn unused_ns(lease_ns: Nanos) -> Nanos {
    lease_ns / 2
}

pub(crate) const fn look_every(lease_ns: Nanos) -> Duration {
    Duration::from_nanos(lease_ns / 6)
}

/// The longest pause after the store had fewer tokens than were wanted; it is shorter where a 16th of the limit comes
/// back sooner. No node takes the tokens that come back meanwhile, but they are not lost.
const PAUSE_MAX_NS: Nanos = SECOND_NS / 10;

/// The time for which a denial by the store's last answer is repeated without asking again.
const STALE_NS: Nanos = SECOND_NS;

/// The time within which a store that is reachable answers, even on a busy machine.
const ANSWER_NS: Nanos = SECOND_NS / 20;

/// The retry time of a denial while an answer is about to arrive.
const SOON_NS: Nanos = SECOND_NS / 1_000;

/// The number of denials in a pause from which on checks are a crowd: they are denied at once instead of waiting for an
/// answer.
const CROWD: u32 = 32;

/// A lease: tokens that were taken in advance. Times are by this node's own clock, except the end of a window.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
// The fields that each check needs come first and lie together, so that they are in the first two cache lines of the quota.
#[repr(C)]
pub(crate) struct Lease {
    left: u64,
    /// The time from which on nothing of it is spent.
    over_at: Nanos,
    /// The bucket state as if all tokens that other nodes hold, and those that were spent here, had been charged.
    word: u64,
    /// The number of tokens below which it is renewed.
    mark: u64,
    closed_until: Nanos,
    used_at: Nanos,
    /// The tokens that were spent since the last request, and the time of that request.
    spent: u64,
    asked_at: Nanos,
    heard_at: Nanos,
    /// Denials since the last crowd, and the time until which there is a crowd.
    denied: u32,
    pub(crate) is_asking: bool,
    crowd_until: Nanos,
    /// The time from which on what is spent belongs to this lease.
    since: Nanos,
    /// The lease as the store counts it: the epoch, the end of the window, and the tokens that are out.
    epoch: u64,
    ends: Nanos,
    out: u64,
    /// The rate of use, tokens a second.
    rate: f64,
    horizon: Duration,
}

/// The result of spending tokens of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpendResult {
    /// The answer, and whether it is time to renew the lease.
    Answer(StoreAnswer, bool),
    /// The store must be asked.
    Ask,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Upkeep {
    Keep,
    Renew,
    GiveBack,
    /// The node can forget the lease.
    Forget,
}

impl Lease {
    pub(crate) fn new() -> Self {
        Self { horizon: HORIZON_FIRST, ..Self::default() }
    }

    /// Returns the tokens that can be spent.
    fn left(&self, now: ClockReading) -> u64 {
        if now.own < self.over_at { self.left } else { 0 }
    }

    /// Returns the tokens that the store counts as out for it.
    pub(crate) fn out(&self) -> u64 {
        self.out
    }

    /// Returns the upkeep that the lease needs now; called [at intervals](look_every). A lease is renewed in the last
    /// third of its life, and goes back if it is no longer used.
    pub(crate) fn look_after(&self, now: ClockReading, lease_ns: Nanos) -> Upkeep {
        let is_used = now.own.saturating_sub(self.used_at) < unused_ns(lease_ns);
        match self.out {
            _ if self.is_asking => Upkeep::Keep,
            0 if is_used => Upkeep::Keep,
            0 => Upkeep::Forget,
            _ if !is_used => Upkeep::GiveBack,
            _ if now.own.saturating_sub(self.asked_at) < renewed_at_ns(lease_ns) => Upkeep::Keep,
            _ => Upkeep::Renew,
        }
    }

    pub(crate) fn spend(&mut self, meter: &Meter, cost: u64, now: ClockReading) -> SpendResult {
        let decided = |verdict, word| StoreAnswer::Decided { verdict, word, now: now.store };
        self.used_at = now.own;
        if self.left(now) >= cost {
            self.left -= cost;
            self.spent = self.spent.saturating_add(cost);
            self.word = meter.overcharge(self.word, now.store, cost);
            let is_low = self.left < self.mark && !self.is_asking && now.own >= self.closed_until;
            return SpendResult::Answer(decided(Verdict::Admit(self.word), self.word), is_low);
        }
        let verdict = meter.step(self.word, now.store, cost);
        let is_fresh = now.own.saturating_sub(self.heard_at) < STALE_NS;
        let pause_ns = self.closed_until.saturating_sub(now.own);
        let (wait_ns, is_time) = match verdict {
            Verdict::Never => return SpendResult::Answer(decided(verdict, self.word), false),
            Verdict::Later { wait_ns } if is_fresh => (wait_ns.max(pause_ns), false),
            _ if pause_ns > 0 => (pause_ns, false),
            _ if now.own < self.crowd_until && !self.is_silent(now) => (SOON_NS, !self.is_asking),
            // The lease ran out before the answer arrived, and the limit had too few tokens: a later check takes what
            // the answer brings.
            _ if self.is_asked_of_little(now) => (SOON_NS, false),
            _ => return SpendResult::Ask,
        };
        self.denied += 1;
        if self.denied >= CROWD {
            (self.denied, self.crowd_until) = (0, now.own + PAUSE_MAX_NS);
        }
        SpendResult::Answer(decided(Verdict::Later { wait_ns }, self.word), is_time)
    }

    /// Returns whether an answer is overdue.
    fn is_silent(&self, now: ClockReading) -> bool {
        self.is_asking && now.own.saturating_sub(self.asked_at) >= ANSWER_NS
    }

    /// Returns whether an answer is about to arrive from a store that had fewer tokens than were wanted.
    fn is_asked_of_little(&self, now: ClockReading) -> bool {
        self.is_asking
            && !self.is_silent(now)
            && self.closed_until > 0
            && now.own < self.closed_until.saturating_add(STALE_NS)
    }

    /// Returns what a charge would lead to, as far as it is known here.
    pub(crate) fn look(&self, meter: &Meter, cost: u64, now: ClockReading) -> Option<StoreAnswer> {
        match Self::clone(self).spend(meter, cost.max(1), now) {
            SpendResult::Answer(StoreAnswer::Decided { verdict: Verdict::Admit(_), .. }, _) => {
                Some(StoreAnswer::WouldAdmit { word: self.word, now: now.store })
            }
            SpendResult::Answer(answer, _) => Some(answer),
            SpendResult::Ask => None,
        }
    }

    /// Puts back a charge of a denied request, as far as it was charged to this lease. Returns the other tokens, which
    /// the store must take back.
    pub(crate) fn put_back(&mut self, meter: &Meter, receipt: &Receipt, now: ClockReading) -> u64 {
        let age_ns = now.store.saturating_sub(receipt.charged_at);
        let is_its = now.own < self.over_at
            && age_ns < now.own.saturating_sub(self.since)
            && meter.window_end(receipt.word) == self.ends;
        let here = if is_its { receipt.cost.min(self.out.saturating_sub(self.left)) } else { 0 };
        self.left += here;
        if let Some(word) = meter.give_back(self.word, now.store, receipt) {
            self.word = word;
        }
        receipt.cost - here
    }

    /// Plans the request for the tokens that a check waits for, and for those that are likely to be needed. `keep`
    /// means that the node goes on with what is left.
    pub(crate) fn ask(&mut self, meter: &Meter, need: u64, keep: bool, now: ClockReading) -> LeaseRequest {
        let since = Duration::from_nanos(now.own.saturating_sub(self.asked_at)).as_secs_f64().max(1e-6);
        // The recent rate if it is higher, otherwise the mean of both.
        let rate = self.spent as f64 / since;
        self.rate = if rate > self.rate { rate } else { f64::midpoint(self.rate, rate) };
        let left = self.left(now);
        let most = (meter.capacity() / 16).max(1);
        let least = meter.capacity() as f64 / 64.0 * self.horizon.div_duration_f64(HORIZON_FIRST).min(1.0);
        #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "a part of the capacity")]
        let batch = self.within(self.horizon).max(least as u64).clamp(1, most);
        let (kept, want) = if keep { (left, batch.max(need).saturating_sub(left)) } else { (0, 0) };
        // Tokens of a lease that ran out were not spent.
        let ask =
            LeaseRequest { epoch: self.epoch, ends: self.ends, out: self.out, left: self.left, keep: kept, want, need };
        // Until the answer arrives, the store may count the old lease or the new one, so nothing is reported as out.
        self.left = kept;
        self.out = 0;
        self.is_asking = true;
        (self.asked_at, self.spent) = (now.own, 0);
        ask
    }

    /// Takes in the answer, which the store gave at `heard_at` of its clock.
    pub(crate) fn granted(
        &mut self,
        meter: &Meter,
        ask: &LeaseRequest,
        grant: &Grant,
        (heard_at, now): (Nanos, ClockReading),
        lease_ns: Nanos,
    ) {
        let Grant { epoch, ends, kept, given, word, .. } = *grant;
        self.is_asking = false;
        let spent = kept.saturating_sub(self.left);
        (self.epoch, self.ends, self.out) = (epoch, ends, kept + given);
        // Tokens that were spent meanwhile are of the old lease, if the store no longer counts it.
        self.since = if grant.is_counted { self.asked_at } else { now.own };
        // Without new tokens, the rest of the old lease is good until it is over.
        if self.out > 0 {
            self.left = kept - spent + given;
            self.over_at = self.asked_at.saturating_add(lease_ns.min(ends.saturating_sub(heard_at)));
        }
        self.word = if spent > 0 { meter.overcharge(word, heard_at, spent) } else { word };
        self.heard_at = now.own;
        let batch = self.out;
        self.mark = self.within(AHEAD).clamp(batch / 8, batch.div_ceil(2));
        if grant.is_charged || grant.is_all_out {
            // The limit has enough, but no more of it may be lent: until more may, each check asks the store.
            (self.closed_until, self.denied, self.crowd_until) = (0, 0, 0);
            self.horizon = (self.horizon / 2).max(HORIZON_MIN);
        } else if kept + given < ask.wanted() {
            // Other nodes want the tokens too: smaller batches, after a pause.
            self.horizon = (self.horizon / 2).max(HORIZON_MIN);
            self.closed_until = now.own + PAUSE_MAX_NS.min(meter.period_ns() / 16);
        } else {
            self.closed_until = 0;
            self.horizon = (self.horizon * 5 / 4).min(HORIZON_MAX);
        }
    }

    /// Returns the tokens that are likely to be used in this time.
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "it is not negative, and saturates")]
    fn within(&self, time: Duration) -> u64 {
        (self.rate * time.as_secs_f64()).ceil() as u64
    }

    /// Records that no answer arrived. What is left is good until it is over; the store will count what it lent as
    /// spent.
    pub(crate) fn failed(&mut self) {
        (self.is_asking, self.closed_until, self.denied, self.crowd_until) = (false, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests;
