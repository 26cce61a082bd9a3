//! Token striping: a hot key gets a *lease*. Its tokens are spent from stripes, a padded word for each few threads, instead of
//! from its slot.
//!
//! While a key's slot is marked *leased*, a *reserve* of L tokens (at most a 16th of the burst) is taken out of its
//! bucket: the slot's word is charged as if L more were used, and the stripes hold the rest of the reserve, their *stock*.
//! A stripe that has too little is refilled: as much as it lacks is charged to the word. When the lease ends, the stock is
//! collected and what is missing of L is charged to the word. So every token that a stripe gave is *paid* for once.
//!
//! # Why a lease admits no more
//!
//! A charge is dated by the time that it was decided with; the bound b + n t/p is over dates from s to s + t. Two rules
//! tie the dates of stripes to those of the word:
//!
//! * *Paid later.* Whoever pays, by a refill or an end, reads the clock after it took the stripe: no payment is dated
//!   before anything that it pays for.
//! * *Dated anew.* A token is dated not before its stripe was filled last: `filled_at`, which is read before and after the
//!   swap. Where it has changed in between, the token may be paid already: it is let go.
//!
//! So of the tokens that a stripe gave with dates up to s + t, only those since its last filling with such a date can be
//! paid after s + t: they are at most its share, and in all stripes L. All others with dates from s on are paid, at dates
//! from s to s + t. What is charged to a word at such dates, payments included, is at most the capacity at its last
//! charge and n t/p, because each charge fits under the capacity as of its date. If the key was leased at that charge,
//! this is b - L, and with what is paid later b. If not, either no token was given since, or a lease began with such a
//! date, and found room for L in b; so it is b again. At one instant that is b exactly.
//!
//! Nothing is minted by giving back either. What a stripe gave is paid behind the word that the charge saw, or not at all
//! yet, and that word's place in the queue is what its receipt says; time repays it no earlier than if it had been charged
//! there.
//!
//! # What it may deny
//!
//! A token is charged when it is paid, so later than it was spent: time repays up to L tokens later than it would have.
//! While a thread stalls that opens or closes the lease, up to L tokens are out of reach; while one refills, the share of
//! its stripe is. Where a lease ends beside a refill for a cost of c, and the bucket is nearly full, up to c - 1 tokens that
//! were in hand are not given back. A refund that needs more than the word holds ends the lease first. Where other threads
//! begin and end leases of the key meanwhile, the rest of that refund may be lost. A publish that changes the limit's
//! numbers takes all of L as used.
//!
//! # The protocol
//!
//! Keys share a few groups of stripes; a group's *control* word says whose lease it has, and is the right to begin or end
//! one: free, opening, open, closing. A slot is leased only while the control of its group names its key and is not free;
//! and none but who holds the control marks a slot leased, or takes the mark away; but a publish takes it away too.
//!
//! * *Opening*: free -> opening; the slot is marked, if there is room for L; each stripe, empty so far, gets its share;
//!   -> open.
//! * *Closing*: open -> closing; each stripe is emptied; the slot is charged for what is missing, and its mark taken away;
//!   -> free.
//! * *Refilling*: the stripe is marked as filling, with a nonce that no other attempt has; the word is charged; the stripe
//!   gets its share less the cost, if it still has the nonce: a stripe that was emptied meanwhile is another lease's by
//!   now. What is then in hand is given back to the word.
//!
//! *Why nobody waits.* A thread that stalls leaves a stripe that is filling, or a group that is opening or closing. The
//! keys of that group are charged by their words meanwhile, under b - L where they are leased.
//!
//! A stripe's stock has an id of the key and the limit's generation, so a swap that comes late finds the stock of its own
//! lease, or of a later one of the same key and numbers, whose stock is as good, or it fails. A publish converts a leased
//! slot as one of which all of L is used, which pays for whatever such a swap takes.

mod pool;

pub(crate) use pool::{Leases, Spend, Terms, without_reserve};

use crate::{
    algorithm::{Meter, Receipt, Verdict},
    base::time::Nanos,
    storage::{
        atomic_update::Next,
        layout::{Generation, Held},
        refund_log::{Mark, Moves},
        sliding_log::Stepped,
        table::{Key, Met, Table},
    },
};
use pool::{
    FREE, Group, ID, IN_A_ROW, LEASE, LIMIT, NONE, OPEN, OPENING, PHASE, REFILLS, STRIPE, Stripe, TOKENS, lease_id,
    tokens_of,
};

/// A lease begins after so many lost races of one key.
const CONTENDED: u64 = 16;

/// A lease ends after so many refills of one stripe in a row: nobody else is there.
const ALONE: u64 = 16;

/// And when a stripe gives a token in so many nanoseconds, or fewer.
const SELDOM_NS: u64 = 10_000;

/// Races that are further apart than this, all together, are no jam.
const CONTENDED_WITHIN_NS: u64 = 100_000_000;

/// What a charge or a look at a key with a lease came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leased {
    Decided(Stepped),
    /// The key has no lease any more, or not under these numbers.
    Ended,
    /// The snapshot is not the newest.
    Stale,
}

/// One key of a limit that may lease, and what it is to be charged or asked for.
pub(crate) struct Lease<'b> {
    pub(crate) leases: &'b Leases,
    pub(crate) table: &'b Table,
    pub(crate) moves: &'b Moves,
    pub(crate) key: Key,
    pub(crate) meter: &'b Meter,
    pub(crate) generation: Generation,
    pub(crate) terms: Terms,
    pub(crate) cost: u64,
    /// Number of the calling thread: it says which stripe is its.
    pub(crate) thread: usize,
    pub(crate) read_clock: &'b dyn Fn() -> Nanos,
    /// To be asked after a slot or a stripe was read.
    pub(crate) is_stale: &'b dyn Fn() -> bool,
}

impl<'b> Lease<'b> {
    fn group(&self) -> &'b Group {
        self.leases.group(self.key.hash())
    }

    fn id(&self) -> u64 {
        lease_id(self.key.hash(), self.generation)
    }

    fn stock(&self, tokens: u64) -> u64 {
        ID.put(self.id()) | TOKENS.put(tokens)
    }

    fn control(&self, phase: u64) -> u64 {
        LIMIT.put(self.key.bits().limit().into()) | LEASE.put(self.id()) | PHASE.put(phase)
    }

    /// Is it the group's control in any phase of this key's lease?
    fn is_own(&self, control: u64) -> bool {
        control ^ PHASE.put(control) == self.control(FREE)
    }

    /// The calling thread's, and its number in the group.
    fn stripe(&self) -> (usize, &'b Stripe) {
        let number = self.thread & (self.terms.stripes - 1);
        (number, &self.group().stripes[number])
    }

    /// How many tokens of this lease a stripe holds; `None` where it is filling, or holds none of this lease.
    fn tokens(&self, stock: u64) -> Option<u64> {
        tokens_of(self.id(), stock)
    }

    /// The common charge: see [`Leases::spend`].
    #[inline(always)]
    pub(crate) fn spend(&self, word: u64, now: Nanos) -> Option<Stepped> {
        let &Self { terms, generation, thread, cost, .. } = self;
        let spend = Spend { terms, hash: self.key.hash(), generation, thread, cost };
        let now = self.leases.spend(spend, now, || !(self.is_stale)())?;
        Some(self.spent(word, now))
    }

    /// Charges the cost at time `now`, or a later one. `word` is what the key's slot held, marked as leased.
    pub(crate) fn charge(&self, word: u64, now: Nanos) -> Leased {
        let (number, stripe) = self.stripe();
        loop {
            if let Some(spent) = self.spend(word, now) {
                return Leased::Decided(spent);
            }
            let stock = stripe.stock.load();
            if (self.is_stale)() {
                return Leased::Stale;
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

    /// Admitted from a stripe. What it says of the word is true but for the reserve.
    #[inline(always)]
    fn spent(&self, word: u64, now: Nanos) -> Stepped {
        let word = self.meter.step(word, now, self.cost).admitted().unwrap_or(word);
        Stepped { verdict: Verdict::Admit(word), word, now }
    }

    /// Fills a stripe that holds `tokens`, less than the cost, and spends from it. `None` if it changed.
    #[cold]
    fn refill(&self, number: usize, stripe: &Stripe, tokens: u64, now: Nanos) -> Option<Leased> {
        let mark = self.moves.mark_brief();
        let filling = self.leases.filling();
        stripe.stock.compare_exchange(self.stock(tokens), filling).ok()?;
        // After the stripe: no payment is dated before what it pays for.
        let (filled_before, filled_at) = (stripe.filled_at.load(), (self.read_clock)());
        // Fails where it was emptied; then its tokens are charged as used, at a time after `now`.
        let put = |tokens| stripe.stock.compare_exchange(filling, self.stock(tokens)).is_ok();
        let paid = self.charge_word(filled_at, self.terms.share - tokens);
        if let Leased::Decided(Stepped { verdict: Verdict::Admit(_), .. }) = paid {
            stripe.is_filled_at(filled_at);
            if put(self.terms.share - self.cost) {
                self.count_refill(number, filled_at.saturating_sub(filled_before));
                return Some(paid);
            }
            self.give_back(self.terms.share - tokens, filled_at, mark);
            self.give_back(tokens, now, mark);
            return Some(Leased::Ended);
        }
        if !put(tokens) {
            self.give_back(tokens, now, mark);
        }
        match paid {
            Leased::Decided(_) if self.close() => Some(Leased::Ended),
            Leased::Decided(_) => Some(self.charge_word(now, self.cost)),
            other => Some(other),
        }
    }

    /// A refusal takes back all stock first.
    #[cold]
    fn charge_word_or_close(&self, now: Nanos) -> Leased {
        match self.charge_word(now, self.cost) {
            Leased::Decided(Stepped { verdict: Verdict::Later { .. }, .. }) if self.close() => Leased::Ended,
            decided => decided,
        }
    }

    /// Charges the word of the slot while it is leased.
    fn charge_word(&self, now: Nanos, cost: u64) -> Leased {
        let charged = self.table.update(self.key, now, self.read_clock, &mut Met::default(), |held, now| {
            let Some(held) = held.filter(|held| held.is_leased && held.generation == self.generation) else {
                return Next::Leave(Leased::Ended);
            };
            if (self.is_stale)() {
                return Next::Leave(Leased::Stale);
            }
            match self.step(held.word, now, cost) {
                decided @ Stepped { verdict: Verdict::Admit(word), .. } => {
                    Next::Write(Held { word, ..held }, Leased::Decided(decided))
                }
                refused => Next::Leave(Leased::Decided(refused)),
            }
        });
        // Only a key without a slot finds the table full.
        charged.unwrap_or(Leased::Ended)
    }

    /// A step over a leased word: as if the reserve were used too.
    fn step(&self, word: u64, now: Nanos, cost: u64) -> Stepped {
        let lifted = self.meter.overcharge(word, now, self.terms.reserve());
        match self.meter.step(lifted, now, cost) {
            Verdict::Admit(after) => {
                let word = after - (lifted - word.max(now));
                Stepped { verdict: Verdict::Admit(word), word, now }
            }
            verdict => Stepped { verdict, word: lifted, now },
        }
    }

    /// What [`charge`](Self::charge) would answer. Writes nothing. `None`: the snapshot is not the newest.
    pub(crate) fn look(&self, word: u64, now: Nanos) -> Option<Stepped> {
        let tokens = |stripe: &Stripe| self.tokens(stripe.stock.load()).unwrap_or(0);
        let here = tokens(self.stripe().1);
        let stepped = self.step(word, now, self.cost);
        let looked = if here >= self.cost {
            self.spent(word, now)
        } else if matches!(stepped.verdict, Verdict::Admit(_)) {
            stepped
        } else {
            // As if the lease ended.
            let group = self.group();
            let left = group.stripes.iter().map(|stripe| tokens(stripe)).sum();
            let word = word.max(now).saturating_add(group.spent_ns(left));
            let verdict = self.meter.step(word, now, self.cost);
            Stepped { verdict, word: verdict.admitted().unwrap_or(word), now }
        };
        (!(self.is_stale)()).then_some(looked)
    }

    /// Gives tokens back to the word that were charged to it at or after `charged_at`, and not spent.
    #[cold]
    fn give_back(&self, tokens: u64, charged_at: Nanos, mark: Mark) {
        let receipt = Receipt { cost: tokens, charged_at, word: 0, moved_ns: u64::MAX };
        self.table.change(self.key, |held| {
            // Forgotten, or converted: then so are these.
            self.moves.since(self.key, mark).filter(|_| held.generation == self.generation)?;
            self.moves.given_back(self.key, held, self.meter, &receipt, (self.read_clock)())
        });
    }

    /// Ends the key's lease; false while another thread begins or ends it.
    #[cold]
    pub(crate) fn close(&self) -> bool {
        let control = self.group().control.load();
        !self.is_own(control) || self.leases.close(self.group(), control, self.table, self.read_clock)
    }

    /// Ends the lease where one thread is alone, or where threads come so seldom that they hardly meet. `since_ns` has
    /// passed since the stripe was filled before.
    fn count_refill(&self, stripe: usize, since_ns: u64) {
        if since_ns / SELDOM_NS >= self.terms.share {
            self.close();
            return;
        }
        let group = self.group();
        let seen = group.refills.load();
        let in_a_row = if STRIPE.get(seen) == stripe as u64 { IN_A_ROW.get(seen) + 1 } else { 1 };
        let counted = REFILLS.put(REFILLS.get(seen) + 1) | STRIPE.put(stripe as u64) | IN_A_ROW.put(in_a_row);
        // Who was faster is not alone.
        if group.refills.compare_exchange(seen, counted).is_ok() && in_a_row >= ALONE {
            self.close();
        }
    }

    /// Takes note of races that a charge of the key lost, and begins a lease when there were many. A few keys share a
    /// count: it is that of the one with the most.
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

    /// The slot as leased, and since when, if there is room for the reserve.
    fn marked(&self, held: Held) -> Option<(Held, Nanos)> {
        if held.is_leased || held.generation != self.generation || (self.is_stale)() || self.leases.are_held_back() {
            return None;
        }
        let now = (self.read_clock)();
        let fits = matches!(self.meter.step(held.word, now, self.terms.reserve()), Verdict::Admit(_));
        fits.then_some((Held { is_leased: true, ..held }, now))
    }

    /// Begins a lease, if the group is free, or nobody is at the lease that it has.
    fn open(&self) {
        if self.leases.are_held_back() {
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
            self.leases.close(group, control, self.table, self.read_clock);
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
            &mut Met::default(),
            |held, _| {
                held.and_then(|held| self.marked(held))
                    .map_or(Next::Leave(None), |(held, at)| Next::Write(held, Some(at)))
            },
        );
        let Ok(Some(at)) = marked else {
            return group.control.store(FREE);
        };
        // Nobody else writes to them but who holds the control, or has a nonce that they hold.
        for stripe in &group.stripes[..self.terms.stripes] {
            stripe.is_filled_at(at);
            stripe.stock.store(self.stock(self.terms.share));
        }
        self.leases.has_begun();
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
