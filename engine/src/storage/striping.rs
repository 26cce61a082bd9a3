//! Token striping: threads spend the tokens of a hot key from stripes, a padded word for each few threads, instead of
//! from its slot.
//!
//! While a key's slot is marked *striped*, a *reserve* of L tokens (at most a 16th of the burst) is taken out of its
//! bucket: the slot's word is charged as if L more were used, and the stripes hold the rest of the reserve, their
//! *stock*. A stripe that has too few tokens is refilled: as many as it lacks are charged to the word. When the
//! striping ends, the stock is collected and what is missing of L is charged to the word. So every token that a stripe
//! gave is *paid* for once. The time from the mark to its removal is a *session*; metrics and the public API call it a
//! lease.
//!
//! # Why striping admits no more
//!
//! A charge is dated by the time that it was decided with; the bound b + n t/p is over dates from s to s + t. Two rules
//! tie the dates of stripes to those of the word:
//!
//! * *Paid later.* A thread that pays, by a refill or an end, reads the clock after it took the stripe: no payment is
//!   dated before anything that it pays for.
//! * *Dated anew.* A token is dated not before its stripe was filled last: `filled_at`, which is read before and after
//!   the swap. Where it has changed in between, the token may be paid already, so it is not used.
//!
//! So of the tokens that a stripe gave with dates up to s + t, only those since its last filling with such a date can
//! be paid after s + t: they are at most its share, and in all stripes L. All others with dates from s on are paid, at
//! dates from s to s + t. What is charged to a word at such dates, payments included, is at most the capacity at its
//! last charge and n t/p, because each charge fits under the capacity as of its date. If the key was striped at that
//! charge, this is b - L, and with what is paid later b. If not, either no token was given since, or a session began
//! with such a date, and found room for L in b; so it is b again. At one instant that is b exactly.
//!
//! Giving back mints nothing either. What a stripe gave is paid behind the word that the charge saw, or not at all yet,
//! and the receipt names that word's place in the queue; time repays it no earlier than if it had been charged there.
//!
//! # What striping may deny
//!
//! A token is charged when it is paid, so later than it was spent: time repays up to L tokens later than it would have.
//! While a thread stalls that begins or ends a session, up to L tokens are out of reach; while one refills, the share
//! of its stripe is. Where a session ends beside a refill for a cost of c, and the bucket is nearly full, up to c - 1
//! tokens that the refilling thread held are not given back. A refund that needs more than the word holds ends the
//! session first. Where other threads begin and end sessions of the key meanwhile, the rest of that refund may be lost.
//! A publish that changes the limit's numbers takes all of L as used.
//!
//! # The protocol
//!
//! Keys share a few groups of stripes. A group's *control* word names the key that uses the group, and is the right to
//! begin or end a session: free, opening, open, closing. A slot is striped only while the control of its group names
//! its key and is not free. Only the thread that holds the control marks a slot striped or takes the mark away; but a
//! publish takes it away too.
//!
//! * *Opening*: free -> opening; the slot is marked, if there is room for L; each stripe, empty so far, gets its share;
//!   -> open.
//! * *Closing*: open -> closing; each stripe is emptied; the slot is charged for what is missing, and its mark taken
//!   away; -> free.
//! * *Refilling*: the stripe is marked as filling, with a nonce that no other attempt has; the word is charged; the
//!   stripe gets its share less the cost, if it still has the nonce: a stripe that was emptied meanwhile belongs to
//!   another session by now. The tokens that the thread still holds are then given back to the word.
//!
//! *Why no thread waits.* A thread that stalls leaves a stripe that is filling, or a group that is opening or closing.
//! The keys of that group are charged by their words meanwhile, under b - L where they are striped.
//!
//! A stripe's stock has an id of the key and the limit's generation, so a swap that comes late finds the stock of its
//! own session, or of a later one of the same key and numbers, whose stock is as good, or it fails. A publish converts
//! a striped slot as one of which all of L is used, which pays for whatever such a swap takes.

mod pool;

pub(crate) use pool::{StripePool, StripeSpend, StripeTerms, with_reserve_used};

use crate::{
    algorithm::{Meter, Receipt, Verdict},
    base::time::Nanos,
    storage::{
        atomic_update::Next,
        layout::{BucketState, Generation},
        refund_log::{Mark, RefundLog},
        sliding_log::StepResult,
        table::{HashedKey, RaceCounts, Table},
    },
};
use pool::{
    FREE, Group, ID, IN_A_ROW, KEY_ID, LIMIT, NONE, OPEN, OPENING, PHASE, REFILLS, STRIPE, Stripe, TOKENS, stock_id,
    tokens_of,
};

/// A session begins after so many lost races of one key.
const CONTENDED: u64 = 16;

/// A session ends after so many refills of one stripe in a row: no other thread spends from the others.
const ALONE: u64 = 16;

/// A session also ends when a stripe gives a token in this many nanoseconds, or fewer tokens.
const SELDOM_NS: u64 = 10_000;

/// Races that are spread over more nanoseconds than this do not begin a session.
const CONTENDED_WITHIN_NS: u64 = 100_000_000;

/// The outcome of a charge or a look at a striped key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StripedOutcome {
    Decided(StepResult),
    /// The key is no longer striped, or not under these numbers.
    Ended,
    /// The snapshot is not the newest.
    Stale,
}

/// One key of a limit that may be striped, and the cost to charge or check.
pub(crate) struct StripedKey<'b> {
    pub(crate) stripes: &'b StripePool,
    pub(crate) table: &'b Table,
    pub(crate) refund_log: &'b RefundLog,
    pub(crate) key: HashedKey,
    pub(crate) meter: &'b Meter,
    pub(crate) generation: Generation,
    pub(crate) terms: StripeTerms,
    pub(crate) cost: u64,
    /// The number of the calling thread. It chooses the thread's stripe.
    pub(crate) thread: usize,
    pub(crate) read_clock: &'b dyn Fn() -> Nanos,
    /// Returns whether the snapshot is not the newest. It is called after a slot or a stripe was read.
    pub(crate) is_stale: &'b dyn Fn() -> bool,
}

impl<'b> StripedKey<'b> {
    fn group(&self) -> &'b Group {
        self.stripes.group(self.key.hash())
    }

    fn id(&self) -> u64 {
        stock_id(self.key.hash(), self.generation)
    }

    fn stock(&self, tokens: u64) -> u64 {
        ID.put(self.id()) | TOKENS.put(tokens)
    }

    fn control(&self, phase: u64) -> u64 {
        LIMIT.put(self.key.bits().limit().into()) | KEY_ID.put(self.id()) | PHASE.put(phase)
    }

    /// Returns whether a control word is that of this key, in any phase.
    fn is_own(&self, control: u64) -> bool {
        control ^ PHASE.put(control) == self.control(FREE)
    }

    /// Returns the calling thread's stripe, and its index in the group.
    fn stripe(&self) -> (usize, &'b Stripe) {
        let number = self.thread & (self.terms.stripes - 1);
        (number, &self.group().stripes[number])
    }

    /// Returns how many tokens of this key a stripe holds; `None` where it is filling, or holds none of this key.
    fn tokens(&self, stock: u64) -> Option<u64> {
        tokens_of(self.id(), stock)
    }

    /// Spends from the thread's stripe in the common case: see [`StripePool::spend`].
    #[inline(always)]
    pub(crate) fn spend(&self, word: u64, now: Nanos) -> Option<StepResult> {
        let &Self { terms, generation, thread, cost, .. } = self;
        let spend = StripeSpend { terms, hash: self.key.hash(), generation, thread, cost };
        let now = self.stripes.spend(spend, now, || !(self.is_stale)())?;
        Some(self.spent(word, now))
    }

    /// Charges the cost at time `now`, or a later one. `word` is that of the key's slot, which was striped.
    pub(crate) fn charge(&self, word: u64, now: Nanos) -> StripedOutcome {
        let (number, stripe) = self.stripe();
        loop {
            if let Some(spent) = self.spend(word, now) {
                return StripedOutcome::Decided(spent);
            }
            let stock = stripe.stock.load();
            if (self.is_stale)() {
                return StripedOutcome::Stale;
            }
            match self.tokens(stock) {
                Some(tokens) if tokens >= self.cost => {}
                Some(tokens) if self.cost <= self.terms.share => {
                    if let Some(charged) = self.refill(number, stripe, tokens, now) {
                        return charged;
                    }
                }
                _ => return self.charge_word_or_close(now),
            }
        }
    }

    /// Returns the outcome of a cost that a stripe admitted. Its word does not count the reserve as used.
    #[inline(always)]
    fn spent(&self, word: u64, now: Nanos) -> StepResult {
        let word = self.meter.step(word, now, self.cost).admitted().unwrap_or(word);
        StepResult { verdict: Verdict::Admit(word), word, now }
    }

    /// Fills a stripe that holds `tokens`, fewer than the cost, and spends from it. `None` if the stripe changed.
    #[cold]
    fn refill(&self, number: usize, stripe: &Stripe, tokens: u64, now: Nanos) -> Option<StripedOutcome> {
        let mark = self.refund_log.mark_brief();
        let filling = self.stripes.filling();
        stripe.stock.compare_exchange(self.stock(tokens), filling).ok()?;
        // After the stripe: no payment is dated before what it pays for.
        let (filled_before, filled_at) = (stripe.filled_at.load(), (self.read_clock)());
        // Fails where the stripe was emptied; then its tokens are charged as used, at a time after `now`.
        let put = |tokens| stripe.stock.compare_exchange(filling, self.stock(tokens)).is_ok();
        let paid = self.charge_word(filled_at, self.terms.share - tokens);
        if let StripedOutcome::Decided(StepResult { verdict: Verdict::Admit(_), .. }) = paid {
            stripe.raise_filled_at(filled_at);
            if put(self.terms.share - self.cost) {
                self.count_refill(number, filled_at.saturating_sub(filled_before));
                return Some(paid);
            }
            self.give_back(self.terms.share - tokens, filled_at, mark);
            self.give_back(tokens, now, mark);
            return Some(StripedOutcome::Ended);
        }
        if !put(tokens) {
            self.give_back(tokens, now, mark);
        }
        match paid {
            StripedOutcome::Decided(_) if self.close() => Some(StripedOutcome::Ended),
            StripedOutcome::Decided(_) => Some(self.charge_word(now, self.cost)),
            other => Some(other),
        }
    }

    /// Charges the slot's word. Before a refusal it ends the session, which collects all stock.
    #[cold]
    fn charge_word_or_close(&self, now: Nanos) -> StripedOutcome {
        match self.charge_word(now, self.cost) {
            StripedOutcome::Decided(StepResult { verdict: Verdict::Later { .. }, .. }) if self.close() => {
                StripedOutcome::Ended
            }
            decided => decided,
        }
    }

    /// Charges the word of the slot while it is striped.
    fn charge_word(&self, now: Nanos, cost: u64) -> StripedOutcome {
        let charged = self.table.update(self.key, now, self.read_clock, &mut RaceCounts::default(), |held, now| {
            let Some(held) = held.filter(|held| held.is_striped && held.generation == self.generation) else {
                return Next::Leave(StripedOutcome::Ended);
            };
            if (self.is_stale)() {
                return Next::Leave(StripedOutcome::Stale);
            }
            match self.step(held.word, now, cost) {
                decided @ StepResult { verdict: Verdict::Admit(word), .. } => {
                    Next::Write(BucketState { word, ..held }, StripedOutcome::Decided(decided))
                }
                refused => Next::Leave(StripedOutcome::Decided(refused)),
            }
        });
        // Only a key without a slot finds the table full.
        charged.unwrap_or(StripedOutcome::Ended)
    }

    /// Decides over a striped word, as if the reserve were used too.
    fn step(&self, word: u64, now: Nanos, cost: u64) -> StepResult {
        let lifted = self.meter.overcharge(word, now, self.terms.reserve());
        match self.meter.step(lifted, now, cost) {
            Verdict::Admit(after) => {
                let word = after - (lifted - word.max(now));
                StepResult { verdict: Verdict::Admit(word), word, now }
            }
            verdict => StepResult { verdict, word: lifted, now },
        }
    }

    /// Returns what [`charge`](Self::charge) would decide. Writes nothing. `None`: the snapshot is not the newest.
    pub(crate) fn look(&self, word: u64, now: Nanos) -> Option<StepResult> {
        let tokens = |stripe: &Stripe| self.tokens(stripe.stock.load()).unwrap_or(0);
        let here = tokens(self.stripe().1);
        let stepped = self.step(word, now, self.cost);
        let looked = if here >= self.cost {
            self.spent(word, now)
        } else if matches!(stepped.verdict, Verdict::Admit(_)) {
            stepped
        } else {
            // As if the session ended.
            let group = self.group();
            let left = group.stripes.iter().map(|stripe| tokens(stripe)).sum();
            let word = word.max(now).saturating_add(group.spent_ns(left));
            let verdict = self.meter.step(word, now, self.cost);
            StepResult { verdict, word: verdict.admitted().unwrap_or(word), now }
        };
        (!(self.is_stale)()).then_some(looked)
    }

    /// Gives back to the word tokens that were charged to it at or after `charged_at`, and not spent.
    #[cold]
    fn give_back(&self, tokens: u64, charged_at: Nanos, mark: Mark) {
        let receipt = Receipt { cost: tokens, charged_at, word: 0, moved_ns: u64::MAX };
        self.table.change(self.key, |held| {
            // A reset has forgotten these tokens with the rest, or a publish has converted them.
            self.refund_log.since(self.key, mark).filter(|_| held.generation == self.generation)?;
            self.refund_log.given_back(self.key, held, self.meter, &receipt, (self.read_clock)())
        });
    }

    /// Ends the key's session. Returns false while another thread begins or ends it.
    #[cold]
    pub(crate) fn close(&self) -> bool {
        let control = self.group().control.load();
        !self.is_own(control) || self.stripes.close(self.group(), control, self.table, self.read_clock)
    }

    /// Counts a refill, and ends the session where one thread is alone, or where threads spend so seldom that they
    /// hardly meet. `since_ns` has passed since the stripe was filled before.
    fn count_refill(&self, stripe: usize, since_ns: u64) {
        if since_ns / SELDOM_NS >= self.terms.share {
            self.close();
            return;
        }
        let group = self.group();
        let seen = group.refills.load();
        let in_a_row = if STRIPE.get(seen) == stripe as u64 { IN_A_ROW.get(seen) + 1 } else { 1 };
        let counted = REFILLS.put(REFILLS.get(seen) + 1) | STRIPE.put(stripe as u64) | IN_A_ROW.put(in_a_row);
        // A thread that loses this race is not alone.
        if group.refills.compare_exchange(seen, counted).is_ok() && in_a_row >= ALONE {
            self.close();
        }
    }

    /// Counts races that a charge of the key lost, and begins a session when there were many. A few keys share a count:
    /// it belongs to the key with the most races.
    #[cold]
    pub(crate) fn contended(&self, races: u64) {
        let group = self.group();
        let seen = group.contended.load();
        let count = TOKENS.get(seen);
        let counted = if ID.get(seen) == ID.get(self.stock(0)) {
            self.stock(count.saturating_add(races).min(CONTENDED))
        } else if count > races {
            seen - races
        } else {
            self.stock(races.min(CONTENDED))
        };
        let now = (self.read_clock)();
        if ID.get(seen) != ID.get(counted) {
            group.contended_since.store(now);
        }
        let is_much = counted == self.stock(CONTENDED);
        let counted = if is_much { NONE } else { counted };
        let is_jam = is_much && now.saturating_sub(group.contended_since.load()) <= CONTENDED_WITHIN_NS;
        if group.contended.compare_exchange(seen, counted).is_ok() && is_jam {
            self.open();
        }
    }

    /// Returns the slot's state as striped, and since when, if there is room for the reserve.
    fn marked(&self, held: BucketState) -> Option<(BucketState, Nanos)> {
        if held.is_striped || held.generation != self.generation || (self.is_stale)() || self.stripes.are_held_back() {
            return None;
        }
        let now = (self.read_clock)();
        let fits = matches!(self.meter.step(held.word, now, self.terms.reserve()), Verdict::Admit(_));
        fits.then_some((BucketState { is_striped: true, ..held }, now))
    }

    /// Begins a session, if the group is free, or the key that has it does not use it.
    fn open(&self) {
        if self.stripes.are_held_back() {
            return;
        }
        let group = self.group();
        let control = group.control.load();
        if PHASE.get(control) == OPEN {
            let refills = REFILLS.get(group.refills.load());
            if group.refills_seen.load() != refills {
                group.refills_seen.store(refills);
                return;
            }
            self.stripes.close(group, control, self.table, self.read_clock);
        }
        if group.control.compare_exchange(FREE, self.control(OPENING)).is_err() {
            return;
        }
        let reserve = self.terms.reserve();
        group.hash.store(self.key.hash());
        group.reserve.store(reserve);
        group.reserve_ns.store(self.meter.overcharge(0, 0, reserve));
        group.refills.store(REFILLS.put(REFILLS.get(group.refills.load()) + 1));
        let marked = self.table.update(
            self.key,
            0,
            || 0,
            &mut RaceCounts::default(),
            |held, _| {
                held.and_then(|held| self.marked(held))
                    .map_or(Next::Leave(None), |(held, at)| Next::Write(held, Some(at)))
            },
        );
        let Ok(Some(at)) = marked else {
            return group.control.store(FREE);
        };
        // Only the thread that holds the control writes to a stripe, or one whose nonce the stripe holds.
        for stripe in &group.stripes[..self.terms.stripes] {
            stripe.raise_filled_at(at);
            stripe.stock.store(self.stock(self.terms.share));
        }
        self.stripes.counters.begun.next();
        group.control.store(self.control(OPEN));
    }
}

#[cfg(test)]
#[cfg_attr(not(engine_loom), expect(dead_code, reason = "the models use all of it"))]
pub(crate) mod fixture;
#[cfg(all(test, engine_loom))]
mod models;
#[cfg(all(test, not(engine_loom)))]
mod stress;
#[cfg(all(test, not(engine_loom)))]
mod tests;
