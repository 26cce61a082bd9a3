//! What is asked of the store, and what is made of its answers: from charges to the arguments of the script, and back.

use std::cmp::Ordering;

use tidegate::{
    Answer, StoreCharge,
    algorithm::{Addition, Carry, Meter, Receipt, Transition, Verdict},
    time::{Nanos, SECOND_NS},
};

use crate::store::script::record::{Found, Held, LEASE_NS, Leases, Under, head, is_instant, parts};
#[cfg(test)]
use crate::store::simulation::Mutation;

/// What is wished of one word.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// So many tokens.
    Charge(u64),
    /// What a charge of so many tokens (0: of one) would come to.
    Look(u64),
    /// That a charge is taken back.
    GiveBack(Receipt),
    /// Tokens that are charged whether they fit or not, as far as at most `max_debt` are owed above the capacity then.
    Overcharge { tokens: u64, max_debt: u64 },
    /// Tokens to spend later.
    Lease(LeaseAsk),
    /// Tokens that were spent: whether they fit or not, and once only.
    Delta {
        /// The key of the last number that this node sent.
        sent: String,
        number: u64,
        tokens: u64,
    },
    /// That all is forgotten.
    Reset,
}

/// What a node says of the lease that it has, and what it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeaseAsk {
    /// Of the lease: the epoch in which it was lent, when its window ends, how many tokens that was, and how many of them are
    /// left.
    pub(crate) epoch: u64,
    pub(crate) ends: Nanos,
    pub(crate) out: u64,
    pub(crate) left: u64,
    /// Of those that are left: how many it goes on with.
    pub(crate) keep: u64,
    /// How many more it would like.
    pub(crate) want: u64,
    /// What waits for them: so many, or none.
    pub(crate) need: u64,
}

impl LeaseAsk {
    /// Returns the tokens with which the node would like to go on.
    pub(crate) fn wanted(&self) -> u64 {
        self.keep.saturating_add(self.want)
    }

    /// Returns the tokens of the lease that were spent.
    fn spent(&self) -> u64 {
        #[cfg(test)]
        if Mutation::SpentTokensAreNotCharged.is_on() {
            return 0;
        }
        self.out.saturating_sub(self.left)
    }
}

/// What a node may spend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) epoch: u64,
    /// When the window ends in which they count.
    pub(crate) ends: Nanos,
    /// Whether the store still counted the lease that the node had as out.
    pub(crate) is_counted: bool,
    /// The tokens of it that the node keeps: none unless they were counted. And those that it was given.
    pub(crate) kept: u64,
    pub(crate) given: u64,
    /// The word as if all that others have was spent.
    pub(crate) word: u64,
    /// What waits, charged at once.
    pub(crate) is_charged: bool,
    /// There was more, but no more may be out.
    pub(crate) is_all_out: bool,
}

/// One word of a question.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) key: String,
    pub(super) own: Under,
    wish: Wish,
    pub(super) is_shadow: bool,
    /// What the store had last.
    pub(super) found: Option<Found>,
    /// What a swap grants, if it is made.
    grant: Option<Grant>,
    /// By what was found it was refused, so that it was only looked at.
    pub(super) is_refused: bool,
    /// How often it was asked in vain.
    pub(super) tries: u8,
    /// How often the store had it too late, though its word was as it was known.
    late: u8,
    /// The life of a lease, and the length of an epoch.
    lease_ns: Nanos,
}

/// A swap that comes later is not made: the first try, and those after it.
const SWAP_IN: [Nanos; 3] = [SECOND_NS / 10, SECOND_NS, 10 * SECOND_NS];

/// What a swap charges, and what is given back, is reckoned for a time by which the store has it: for the first try, and those after
/// one that came too late. A race that is lost says nothing of lateness.
const TAKE_IN: [Nanos; 3] = [SECOND_NS / 200, SECOND_NS / 20, SECOND_NS / 2];

/// Words of one slot that are charged all or none.
pub(crate) type Question = Vec<Part>;

/// What became of one word.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) answer: Answer,
    /// Of a lease.
    pub(crate) grant: Option<Grant>,
    /// In the numbers of the one who asks, as if all that is lent had been spent.
    pub(crate) word: u64,
    /// As it lies there.
    pub(crate) text: String,
    pub(crate) now: Nanos,
}

/// What to do with a word.
#[derive(Debug)]
pub(super) enum Deed {
    Look,
    Clear,
    /// Writes a value where another one is, within a time.
    Swap {
        before: String,
        after: String,
        from: Nanos,
        until: Nanos,
    },
    /// Adds to a tail, wherever the head and the leases are these.
    Add {
        head: String,
        leases: String,
        addition: Addition,
    },
    /// Takes off a tail, wherever the head is this.
    Take {
        head: String,
        take: Addition,
    },
    /// Adds to a tail, and to what is out, wherever the head is this and the epoch of the leases that.
    Lend {
        head: String,
        epoch: u64,
        more: [i64; 2],
        out_most: u64,
        addition: Addition,
    },
}

/// What the script did with a word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Done {
    Charged,
    Refused,
    /// It fits; another of the same question does not.
    Spared,
    Looked,
    /// It was made before.
    Known,
    /// The word is another than the deed was for.
    Other,
    /// One before it was refused.
    Unasked,
}

impl Done {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "charged" => Self::Charged,
            "refused" => Self::Refused,
            "spared" => Self::Spared,
            "looked" => Self::Looked,
            "known" => Self::Known,
            "other" => Self::Other,
            "unasked" => Self::Unasked,
            _ => return None,
        })
    }

    /// Returns the name that the script gives it.
    #[cfg(any(test, feature = "model"))]
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Charged => "charged",
            Self::Refused => "refused",
            Self::Spared => "spared",
            Self::Looked => "looked",
            Self::Known => "known",
            Self::Other => "other",
            Self::Unasked => "unasked",
        }
    }
}

impl Deed {
    fn add(held: &Held, addition: Addition, lease_ns: Nanos) -> Self {
        let until = addition.until.min(held.leases.until(lease_ns));
        let addition = Addition { until, ..addition };
        Self::Add { head: head(&held.under.meter, addition.head), leases: held.leases.write(), addition }
    }

    /// Lends what is asked for by additions, which need not know what others did meanwhile: while no more than a quarter is out,
    /// and no more than the other three are used. `None`: it is to be done by a swap, which knows what there is.
    fn lend(held: &Held, now: Nanos, ask: &LeaseAsk, grant: &Grant, lease_ns: Nanos) -> Option<Self> {
        let Held { under: Under { meter, .. }, word, leases } = held;
        if grant.is_charged || grant.kept + grant.given < ask.wanted() {
            return None;
        }
        let epoch = now / lease_ns;
        let signed = |tokens: u64| i64::try_from(tokens).ok();
        let mut more = [signed(grant.kept + grant.given)?, 0];
        let mut spent = 0;
        if grant.is_counted {
            more[usize::from(ask.epoch < epoch)] -= signed(ask.out)?;
            spent = ask.spent();
        }
        let out_most = meter.capacity() / 4;
        let addition = meter.lent(*word, now, spent, out_most)?;
        // Else the script would find the same.
        let fits = leases.with(epoch, more)?.out() <= out_most && addition.tail(meter.tail(*word), now).is_some();
        let (from, until) = (addition.from.max(epoch * lease_ns), addition.until.min((epoch + 1) * lease_ns));
        let addition = Addition { from, until, ..addition };
        fits.then(|| Self::Lend { head: head(meter, addition.head), epoch, more, out_most, addition })
    }
}

impl Part {
    pub(crate) fn new(key: String, charge: &StoreCharge<'_>, wish: Wish) -> Self {
        let own = Under { meter: charge.meter, version: charge.version };
        Self {
            key,
            own,
            wish,
            is_shadow: charge.is_shadow,
            found: None,
            grant: None,
            is_refused: false,
            tries: 0,
            late: 0,
            lease_ns: LEASE_NS,
        }
    }

    /// Of a key that was asked for before, and what it had then.
    pub(crate) fn again(key: String, own: Under, wish: Wish, text: Option<&str>) -> Self {
        let found = text.map(|text| Found::read(text.to_owned(), &own.meter));
        Self {
            key,
            own,
            wish,
            is_shadow: false,
            found,
            grant: None,
            is_refused: false,
            tries: 0,
            late: 0,
            lease_ns: LEASE_NS,
        }
    }

    /// Reckons with leases of this life from now on.
    pub(crate) fn set_lease(&mut self, lease_ns: Nanos) {
        self.lease_ns = lease_ns;
    }

    /// Another key that it is about.
    fn sent(&self) -> Option<&str> {
        if let Wish::Delta { sent, .. } = &self.wish { Some(sent) } else { None }
    }

    /// What the store has, in the numbers that count: the newest policy's. Also whether it lies there otherwise.
    fn held(&self, now: Nanos) -> (Held, bool) {
        match self.found.as_ref().and_then(|found| found.held) {
            Some(held) if held.under.meter == self.own.meter || held.under.version > self.own.version => {
                let at = held.at(now, self.lease_ns);
                (at, at.word != held.word || !at.leases.lie_as(&held.leases))
            }
            Some(held) => {
                let Held { under, word, leases } = held.at(now, self.lease_ns);
                let word = under.meter.carry_over(word, now, &self.own.meter, Carry::Keep);
                (Held { under: self.own, word, leases }, true)
            }
            // What is not understood is overwritten.
            None => (Held { under: self.own, word: 0, leases: Leases::default() }, self.text() != ""),
        }
    }

    /// Returns the time by which the store has the word, however late it was so far.
    fn taken_by(&self, now: Nanos) -> Nanos {
        now.saturating_add(TAKE_IN[usize::from(self.late).min(TAKE_IN.len() - 1)])
    }

    fn text(&self) -> &str {
        self.found.as_ref().map_or("", |found| &found.text)
    }

    /// `Err`: what the word, as it was found, says of it already.
    pub(super) fn deed(&mut self, now: Nanos) -> Result<Deed, Verdict> {
        let (held, is_other) = self.held(now);
        let meter = held.under.meter;
        let before = || self.text().to_owned();
        // A word has the time in it at which it was reckoned, so it is not taken by a store whose own time is another.
        let soon = now.saturating_add(SWAP_IN[usize::from(self.tries).min(SWAP_IN.len() - 1)]);
        // What a node knows of the store's time may be late. A bucket refills meanwhile, so what is charged or given back is reckoned
        // for a time by which the store has it.
        let by = self.taken_by(now);
        let swap = |after: &Held, (from, until): (Nanos, Nanos)| {
            let (leases_until, ends) = (after.leases.until(self.lease_ns), after.under.meter.ends(after.word));
            let (mut after, mut until) = (*after, until.min(soon).min(leases_until).min(ends));
            if is_instant(&meter) && after.word > held.word {
                // While tokens are missing, they come back at the same time whenever more is charged.
                until = until.min(held.word.max(by));
                after.word = after.word.saturating_add(until.saturating_sub(held.word.max(now)));
            }
            Deed::Swap { before: before(), after: after.write(), from, until }
        };
        let force = |tokens, max_debt| match meter.forced(held.word, now, tokens, max_debt).filter(|_| !is_other) {
            // The script refuses where more is owed than was known here, and then this begins again with what it found.
            Some(add)
                if add.is_instant
                    || self.found.is_some() && meter.tail(held.word).saturating_add(tokens) <= add.most =>
            {
                Deed::add(&held, add, self.lease_ns)
            }
            _ => swap(&Held { word: held.with(tokens, now), ..held }, (now, Nanos::MAX)),
        };
        match self.wish {
            Wish::Look(_) => Ok(Deed::Look),
            // There is nothing.
            Wish::GiveBack(_) if self.found.as_ref().is_some_and(|found| found.held.is_none()) => Err(Verdict::Never),
            Wish::GiveBack(receipt) => {
                if let Some(take) = self.own.meter.deduction(now, by, &receipt)
                    && (self.found.is_none()
                        || !is_other && meter == self.own.meter && held.word - meter.tail(held.word) == take.head)
                {
                    return Ok(Deed::Take { head: head(&self.own.meter, take.head), take });
                }
                // It is not known what there is to take from.
                if self.found.is_none() {
                    return Ok(Deed::Look);
                }
                let (at, until) = if is_instant(&meter) { (by, by) } else { (now, Nanos::MAX) };
                let after = meter.give_back(held.word, at, &receipt).filter(|_| meter == self.own.meter);
                let after = Held { word: after.ok_or(Verdict::Never)?, ..held };
                if is_other {
                    return Ok(swap(&after, (now, until)));
                }
                Ok(Deed::Swap { before: before(), after: after.write(), from: 0, until: soon.min(until) })
            }
            Wish::Reset => Ok(Deed::Clear),
            Wish::Overcharge { tokens, max_debt } => match tokens.min(meter.debt_room(held.word, now, max_debt)) {
                // As much is owed as may be.
                0 => Err(Verdict::Never),
                tokens => Ok(force(tokens, max_debt)),
            },
            Wish::Delta { tokens, .. } => Ok(force(tokens, u64::MAX)),
            Wish::Charge(cost) => {
                // What is lent is taken off the capacity.
                let full = held.full(now);
                let admitted = match meter.step(full, now, cost) {
                    Verdict::Admit(_) => meter.step(held.word, now, cost),
                    refused => refused,
                };
                match (meter.transition(held.word, now, cost), admitted) {
                    // What nobody has seen yet may be there all the same.
                    (Transition::Add(add), Verdict::Admit(_)) if !is_other => {
                        let lent = if add.is_instant { full - held.word.max(now).min(full) } else { held.leases.out() };
                        #[cfg(test)]
                        let lent = if Mutation::ChargeIgnoresLeases.is_on() { 0 } else { lent };
                        Ok(Deed::add(&held, Addition { most: add.most.saturating_sub(lent), ..add }, self.lease_ns))
                    }
                    (Transition::Add(add), Verdict::Admit(word)) => {
                        Ok(swap(&Held { word, ..held }, (add.from.max(now), add.until)))
                    }
                    (Transition::Swap { after, from, until }, Verdict::Admit(_)) => {
                        Ok(swap(&Held { word: after, ..held }, (from, until)))
                    }
                    (_, refused) => Err(refused),
                }
            }
            Wish::Lease(ask) => {
                let (after, grant) = granted(held, now, &ask, self.lease_ns);
                let is_known = self.found.as_ref().is_some_and(|found| found.held.is_some());
                let deed = match Deed::lend(&held, now, &ask, &grant, self.lease_ns) {
                    _ if after == held && !is_other => Deed::Look,
                    Some(lend) if is_known && !is_other => lend,
                    _ => swap(&after, (now, Nanos::MAX)),
                };
                self.grant = Some(grant);
                Ok(deed)
            }
        }
    }

    /// What the script is told of this word, whose key is at `place`, and the key of what was sent at another.
    fn tell(&self, deed: Deed, now: Nanos, (place, sent): (usize, usize), is_last: bool) -> Vec<u8> {
        let mut packed = Packed::default();
        let (what, from, until) = match &deed {
            Deed::Look => ("look", 0, 0),
            Deed::Clear => ("clear", 0, 0),
            Deed::Swap { from, until, .. } => ("swap", *from, *until),
            Deed::Add { addition, .. } => ("add", addition.from, addition.until),
            Deed::Take { take, .. } => ("take", take.from, take.until),
            Deed::Lend { addition, .. } => ("lend", addition.from, addition.until),
        };
        packed.flag(is_last).text(what).number(place as u64).flag(self.is_shadow);
        if matches!(deed, Deed::Look | Deed::Clear) {
            return packed.0;
        }
        // A word says nothing any more after the time in which all comes back; a window's, two of them. What is used above the
        // limit comes back later. Leases are counted for two epochs.
        let debt_ns = match &deed {
            Deed::Swap { after, .. } => Found::read(after.clone(), &self.own.meter).held,
            _ => None,
        }
        .map_or(0, |held| held.under.meter.reset_after_ns(held.word, now));
        // Others may have newer numbers.
        let theirs = self.found.as_ref().and_then(|found| found.held).map_or(0, |held| held.under.meter.period_ns());
        let life_ns = self.own.meter.period_ns().max(theirs).saturating_mul(2).max(debt_ns);
        let leased_ns = life_ns.max(2 * self.lease_ns);
        // Microseconds: a store's clock has no more, and a double holds them.
        packed.number(from.div_ceil(1_000)).number(until / 1_000);
        packed.number(life_ns.div_ceil(SECOND_NS) + 1).number(leased_ns.div_ceil(SECOND_NS) + 1).number(sent as u64);
        packed.number(if let Wish::Delta { number, .. } = self.wish { number } else { 0 });
        match deed {
            Deed::Look | Deed::Clear => {}
            Deed::Swap { before, after, .. } => {
                packed.text(&after).text(&before);
            }
            Deed::Add { head, leases, addition } => {
                self.tell_addition(&head, &addition, &mut packed).text(&leases);
            }
            Deed::Take { head, take } => {
                let (seconds, rest) = parts(take.is_instant, take.add);
                packed.flag(take.is_instant).text(&head).less(seconds).less(rest);
                packed.number(u64::MAX).number(0).number(self.own.version);
            }
            Deed::Lend { head, epoch, more, out_most, addition } => {
                let packed = self.tell_addition(&head, &addition, &mut packed).number(epoch);
                packed.signed(more[0]).signed(more[1]).number(out_most);
            }
        }
        packed.0
    }

    fn tell_addition<'p>(&self, head: &str, it: &Addition, packed: &'p mut Packed) -> &'p mut Packed {
        let ((add, add_ns), (most, most_ns)) = (parts(it.is_instant, it.add), parts(it.is_instant, it.most));
        packed.flag(it.is_instant).text(head);
        packed.number(add).number(add_ns).number(most).number(most_ns).number(self.own.version)
    }

    /// Takes in what was done. `None`: it is to be asked again.
    pub(super) fn answer(&mut self, done: Done, text: String, now: Nanos) -> Option<Told> {
        let told = |answer, word, text| Told { answer, grant: None, word, text, now };
        if done == Done::Unasked {
            return Some(told(Answer::Failed, 0, String::new()));
        }
        if done == Done::Other && self.found.as_ref().is_some_and(|found| found.text == text) {
            self.late = self.late.saturating_add(1);
        }
        self.found = Some(Found::read(text.clone(), &self.own.meter));
        let (held, _) = self.held(now);
        let own = self.own.meter;
        let seen = |word| if held.under.meter == own { word } else { carried(&held.under.meter, word, now, &own) };
        let (word, full) = (seen(held.word), seen(held.full(now)));
        let failed = |is_over: bool| is_over.then(|| told(Answer::Failed, full, text.clone()));
        match self.wish {
            // Taken back or charged, or there is nothing left to take, or no room to owe more.
            Wish::GiveBack(_) | Wish::Overcharge { .. } => failed(done == Done::Charged || self.deed(now).is_err()),
            Wish::Reset => failed(done == Done::Charged),
            Wish::Delta { .. } => failed(matches!(done, Done::Charged | Done::Known)),
            Wish::Lease(ask) => {
                match done {
                    Done::Charged => {}
                    // There was nothing to swap, and is nothing now.
                    Done::Looked if self.deed(now).is_ok_and(|deed| matches!(deed, Deed::Look)) => {}
                    _ => return None,
                }
                // Others may have used and lent more meanwhile.
                let grant = self.grant?;
                let others = held.leases.out().saturating_sub(grant.kept + grant.given);
                let grant = Grant { word: seen(held.with(others, now)), ..grant };
                let verdict = match own.step(full, now, ask.need.max(1)) {
                    _ if grant.is_charged || grant.kept + grant.given >= ask.need => Verdict::Admit(grant.word),
                    // By what was known at an earlier time it did not fit.
                    Verdict::Admit(_) => Verdict::Later { wait_ns: 1 },
                    refused => refused,
                };
                let answer = Answer::Decided { verdict, word: grant.word, now };
                Some(Told { grant: Some(grant), ..told(answer, full, text) })
            }
            // A look is a step of one token whose word is not stored.
            Wish::Look(cost) => {
                let answer = match held.under.meter.step(held.full(now), now, cost.max(1)) {
                    Verdict::Admit(_) => Answer::WouldAdmit { word: full, now },
                    verdict => Answer::Decided { verdict, word: full, now },
                };
                Some(told(answer, full, text))
            }
            Wish::Charge(cost) => {
                let step = held.under.meter.step(held.full(now), now, cost);
                let answer = match (done, step) {
                    (Done::Charged, _) => Answer::Decided { verdict: Verdict::Admit(word), word: full, now },
                    // It fits by now, and was not charged.
                    (Done::Looked, Verdict::Admit(_)) if self.is_refused => return None,
                    (Done::Spared, _) | (Done::Looked, Verdict::Admit(_)) => Answer::WouldAdmit { word: full, now },
                    // By what was known at an earlier time it did not fit.
                    (Done::Refused, Verdict::Admit(_)) | (Done::Other | Done::Unasked | Done::Known, _) => return None,
                    (Done::Refused | Done::Looked, verdict) => Answer::Decided { verdict, word: full, now },
                };
                Some(told(answer, full, text))
            }
        }
    }
}

/// What a node is granted, and what the store has after it.
pub(crate) fn granted(held: Held, now: Nanos, ask: &LeaseAsk, lease_ns: Nanos) -> (Held, Grant) {
    let Held { under, word, mut leases } = held;
    let meter = under.meter;
    let mut word = meter.rolled(word, now);
    let ends = meter.ends(word);
    // Tokens that the store still counts as out are kept. Others were counted as spent, or with a window that is over: the node asks
    // for as many anew, which are there or not.
    let is_counted = ask.out > 0 && ask.ends == ends && leases.take_back(ask.epoch, ask.out);
    let (kept, want) = if is_counted { (ask.keep, ask.want) } else { (0, ask.wanted()) };
    if is_counted {
        word = Held { under, word, leases }.with(ask.spent(), now);
    }
    let others = leases.out();
    #[cfg(test)]
    let others = if Mutation::GrantIgnoresOthers.is_on() { 0 } else { others };
    let taken = Held { under, word, leases }.with(others + kept, now);
    let room = meter.remaining(taken, now);
    // At most a quarter is lent.
    let lendable = (meter.capacity() / 4).saturating_sub(others + kept);
    let mut given = want.min(room).min(lendable);
    let is_all_out = given < want.min(room);
    let is_short = kept + given < ask.need;
    let is_charged = is_short && ask.need <= room;
    if is_short {
        given = 0;
    }
    if is_charged {
        word = Held { under, word, leases }.with(ask.need, now);
    }
    leases.lend(now, kept + given, lease_ns);
    let after = Held { under, word, leases };
    let word = after.with(others, now);
    (after, Grant { epoch: leases.epoch, ends, is_counted, kept, given, word, is_charged, is_all_out })
}

fn carried(from: &Meter, word: u64, now: Nanos, to: &Meter) -> u64 {
    from.carry_over(word, now, to, Carry::Keep)
}

/// By how many tokens more is used than there is.
pub(crate) fn excess(meter: &Meter, word: u64, now: Nanos) -> u64 {
    let over = |used: u64, most: u64| used.saturating_sub(most);
    if is_instant(meter) {
        let over_ns = over(meter.reset_after_ns(word, now), meter.period_ns());
        let tokens = u128::from(over_ns) * u128::from(meter.capacity()) / u128::from(meter.period_ns().max(1));
        return u64::try_from(tokens).unwrap_or(u64::MAX);
    }
    match meter.ends(word).cmp(&now) {
        Ordering::Greater => over(meter.tail(word), meter.capacity()),
        _ => 0,
    }
}

/// Values one after the other, in `MessagePack` (<https://github.com/msgpack/msgpack/blob/master/spec.md>), each in its longest
/// form.
#[derive(Default)]
struct Packed(Vec<u8>);

impl Packed {
    fn flag(&mut self, flag: bool) -> &mut Self {
        self.0.push(0xc2 + u8::from(flag));
        self
    }

    /// The script has doubles: beyond 2^53 only that it is large is kept.
    fn number(&mut self, number: u64) -> &mut Self {
        self.signed(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn less(&mut self, number: u64) -> &mut Self {
        self.signed(i64::try_from(number).map_or(i64::MIN, |number| -number))
    }

    fn signed(&mut self, number: i64) -> &mut Self {
        self.0.push(0xd3);
        self.0.extend(number.to_be_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        // A key's values are some hundred bytes.
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.0.push(0xdb);
        self.0.extend(length.to_be_bytes());
        self.0.extend(&text.as_bytes()[..length as usize]);
        self
    }
}

/// Returns the argument of the script that writes `after` to its first key where `before` is found, to live for so many seconds.
pub(crate) fn swap(before: &str, after: &str, life_s: u64) -> Vec<u8> {
    let mut packed = Packed::default();
    packed.flag(true).text("swap").number(1).flag(false).number(0).number(u64::MAX);
    packed.number(life_s).number(life_s).number(0).number(0).text(after).text(before);
    packed.0
}

/// What the script is told.
#[derive(Default, Debug)]
pub(crate) struct Telling {
    pub(crate) keys: Vec<String>,
    /// By charge.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// By place of the key: what a swap leaves, if it is made. Another of the same word follows it.
    left: Vec<Option<String>>,
}

impl Telling {
    /// Where a word as it was found refuses, the others of its question are only looked at.
    pub(crate) fn question(&mut self, question: &mut Question, now: Nanos) {
        let places: Vec<_> = question.iter().map(|part| self.place(&part.key)).collect();
        let sent: Vec<_> = question.iter().map(|part| part.sent().map_or(0, |key| self.place(key) + 1)).collect();
        for (part, &place) in question.iter_mut().zip(&places) {
            if let Some(left) = &self.left[place] {
                part.found = Some(Found::read(left.clone(), &part.own.meter));
            }
        }
        let deeds: Vec<_> = question.iter_mut().map(|part| part.deed(now)).collect();
        for (part, deed) in question.iter_mut().zip(&deeds) {
            part.is_refused = deed.is_err();
        }
        let is_refused = question.iter().zip(&deeds).any(|(part, deed)| deed.is_err() && !part.is_shadow);
        let last = question.len().saturating_sub(1);
        for (order, (((part, deed), place), sent)) in question.iter().zip(deeds).zip(places).zip(sent).enumerate() {
            let deed = deed.ok().filter(|_| !is_refused).unwrap_or(Deed::Look);
            if let Deed::Swap { after, .. } = &deed {
                self.left[place] = Some(after.clone());
            }
            self.arguments.push(part.tell(deed, now, (place + 1, sent), order == last));
        }
    }

    fn place(&mut self, key: &str) -> usize {
        self.keys.iter().position(|known| known == key).unwrap_or_else(|| {
            self.keys.push(key.to_owned());
            self.left.push(None);
            self.keys.len() - 1
        })
    }
}

/// What became of a question. `None`: it is to be asked again.
pub(crate) fn hear(question: &mut Question, done: Vec<(Done, String)>, now: Nanos) -> Option<Vec<Told>> {
    for part in question.iter_mut() {
        part.tries = part.tries.saturating_add(1);
    }
    let answers: Vec<_> =
        question.iter_mut().zip(done).map(|(part, (done, text))| part.answer(done, text, now)).collect();
    answers.into_iter().collect()
}
