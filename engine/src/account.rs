//! One limit of one check: how its bucket is found, looked at, charged and given back to.

use crate::{
    algorithm::{Receipt, Verdict},
    bucket::{Next, Swap, update},
    clock::Clock,
    decision::{DecidedBy, Decision, Shadows},
    hash::KeyHasher,
    registry::{Live, LiveLimit, Newer, Registry},
    snapshot::Charge,
    sync::{Cell64, Cell128, Counter},
    table::{Key, Met, Table},
    time::Nanos,
    word::{Held, KeyBits, Slot},
};

/// All buckets, and what it takes to charge them.
#[derive(Debug)]
pub(crate) struct Buckets<C> {
    pub(crate) clock: C,
    pub(crate) hasher: KeyHasher,
    pub(crate) table: Table,
    pub(crate) registry: Registry,
    /// Version of the newest snapshot; that is in place before its version is.
    pub(crate) version: Cell64,
    pub(crate) overflow_charges: Counter,
    pub(crate) give_backs: Counter,
}

pub(crate) fn overflow_slot(limit: u32, held: Held) -> Slot {
    Slot::active(KeyBits::new(limit, 0), held)
}

/// One limit of a check, with the key that it counts.
#[derive(Clone, Copy)]
pub(crate) struct Account<'l> {
    limit: &'l LiveLimit,
    /// Of the snapshot that `limit` belongs to.
    version: u64,
    key: Key,
    cost: u64,
}

/// A verdict, the word that it left or found, and the time at which it was decided.
#[derive(Clone, Copy)]
pub(crate) struct Charged {
    verdict: Verdict,
    word: u64,
    now: Nanos,
    site: Site,
}

/// Where a bucket was found.
#[derive(Clone, Copy)]
pub(crate) enum Site {
    Slot,
    Overflow,
}

impl Charged {
    pub(crate) fn is_admitted(&self) -> bool {
        matches!(self.verdict, Verdict::Admit(_))
    }

    fn receipt(&self, cost: u64) -> Receipt {
        Receipt { cost, charged_at: self.now, word: self.word }
    }
}

impl<'l> Account<'l> {
    #[inline(always)]
    pub(crate) fn new<C>(buckets: &Buckets<C>, live: &'l Live, charge: &Charge) -> Self {
        let limit = &live.limits[charge.limit as usize];
        let key = Key::new(limit.index, buckets.hasher.key(limit.hash, charge.identity));
        Self { limit, version: live.version, key, cost: charge.cost }
    }

    #[inline(always)]
    pub(crate) fn decision<'e, C: Clock>(
        &self,
        buckets: &'e Buckets<C>,
        place: usize,
        charged: Charged,
    ) -> Decision<'e> {
        let Charged { verdict, word, now, .. } = charged;
        let decided_by = DecidedBy { place, limit: self.limit.index, meter: self.limit.meter, word, now };
        Decision {
            policy_version: self.version,
            verdict,
            delay_ns: self.delay_ns(&charged),
            decided_by: Some(decided_by),
            shadows: Shadows::default(),
            registry: &buckets.registry,
        }
    }

    #[inline(always)]
    pub(crate) fn delay_ns(&self, charged: &Charged) -> u64 {
        match self.limit.meter {
            Some(meter) if charged.is_admitted() => meter.delay_ns(charged.word, charged.now, self.cost),
            _ => 0,
        }
    }

    #[inline(always)]
    fn step(&self, word: u64, now: Nanos, site: Site) -> Charged {
        let verdict = self.limit.meter.map_or(Verdict::Never, |meter| meter.step(word, now, self.cost));
        let word = if let Verdict::Admit(word) = verdict { word } else { word };
        Charged { verdict, word, now, site }
    }

    /// Is it evaluated and counted only?
    pub(crate) fn is_shadow(&self) -> bool {
        self.limit.is_shadow
    }

    pub(crate) fn index(&self) -> u32 {
        self.limit.index
    }

    /// What the charge would answer. Writes nothing.
    pub(crate) fn look<C: Clock>(&self, buckets: &Buckets<C>, now: Nanos) -> Result<Charged, Newer> {
        let word = self.word(buckets, buckets.table.get(self.key))?;
        Ok(self.step(word, now, Site::Slot))
    }

    /// The word of the key's slot; without one, that of its overflow bucket, from which a slot would start.
    #[inline(always)]
    fn word<C: Clock>(&self, buckets: &Buckets<C>, held: Option<Held>) -> Result<u64, Newer> {
        let held = match held {
            Some(held) => held,
            None => self.held_by_overflow(buckets),
        };
        self.current(buckets, held)
    }

    #[cold]
    fn held_by_overflow<C: Clock>(&self, buckets: &Buckets<C>) -> Held {
        Swap::load(self.overflow(buckets)).held()
    }

    /// What was read, under the numbers of the snapshot, if that is still the newest.
    #[inline(always)]
    fn current<C: Clock>(&self, buckets: &Buckets<C>, held: Held) -> Result<u64, Newer> {
        if self.is_stale(buckets) { Err(Newer) } else { self.limit.current(held) }
    }

    #[inline(always)]
    fn is_stale<C: Clock>(&self, buckets: &Buckets<C>) -> bool {
        // A snapshot is in place before its version is: a newer one than the version says is the newest.
        buckets.version.load() > self.version
    }

    fn overflow<'e, C: Clock>(&self, buckets: &'e Buckets<C>) -> &'e Cell128 {
        buckets.registry.overflow(self.limit.index, self.key)
    }

    #[inline(always)]
    pub(crate) fn charge<C: Clock>(&self, buckets: &Buckets<C>, now: Nanos) -> Result<Charged, Newer> {
        if self.limit.meter.is_none() {
            return Ok(self.step(0, now, Site::Slot));
        }
        loop {
            let read_clock = || buckets.clock.now();
            let outcome = buckets.table.update(self.key, now, read_clock, &mut Met::default(), |held, now| match self
                .word(buckets, held)
            {
                Ok(word) => self.next(self.step(word, now, Site::Slot)),
                Err(newer) => Next::Leave(Err(newer)),
            });
            if let Ok(charged) = outcome {
                return charged;
            }
            // At a time read now, as a first touch: this check may have stalled.
            let charged = self.charge_overflow(buckets, buckets.clock.now())?;
            // Somebody may have found a slot for the key meanwhile, or be about to: then that is where it counts.
            if !charged.is_admitted() || !buckets.table.has(self.key) {
                return Ok(charged);
            }
            self.give_back(buckets, &charged);
        }
    }

    #[cold]
    fn charge_overflow<C: Clock>(&self, buckets: &Buckets<C>, now: Nanos) -> Result<Charged, Newer> {
        buckets.overflow_charges.next();
        let cell = self.overflow(buckets);
        update(cell, Swap::load(cell), &mut 0, |slot| match self.current(buckets, slot.held()) {
            Ok(word) => match self.next(self.step(word, now, Site::Overflow)) {
                Next::Write(held, charged) => Next::Write(overflow_slot(self.limit.index, held), charged),
                Next::Leave(charged) => Next::Leave(charged),
            },
            Err(newer) => Next::Leave(Err(newer)),
        })
    }

    #[inline(always)]
    fn next(&self, charged: Charged) -> Next<Held, Result<Charged, Newer>> {
        match charged.verdict {
            Verdict::Admit(word) => Next::Write(Held { generation: self.limit.generation, word }, Ok(charged)),
            _ => Next::Leave(Ok(charged)),
        }
    }

    /// The largest cost that would be admitted after `charged`.
    pub(crate) fn remaining(&self, charged: &Charged) -> u64 {
        self.limit.meter.map_or(0, |meter| meter.remaining(charged.word, charged.now))
    }

    /// Gives a charge back to the bucket as it is now, if the same numbers rule it. Where a publish has changed them
    /// meanwhile the charge stands, against the client.
    #[cold]
    pub(crate) fn give_back<C: Clock>(&self, buckets: &Buckets<C>, charged: &Charged) {
        let receipt = charged.receipt(self.cost);
        let given_back = |held: Held| {
            let meter = self.limit.meter.filter(|_| held.generation == self.limit.generation)?;
            // The clock after the word: what time has returned up to now must not be returned again.
            let word = meter.give_back(held.word, buckets.clock.now(), &receipt)?;
            Some(Held { word, ..held })
        };
        match charged.site {
            Site::Slot => {
                let now = receipt.charged_at;
                // A full table cannot be met: without a slot nothing is written.
                let _ = buckets.table.update(
                    self.key,
                    now,
                    || now,
                    &mut Met::default(),
                    |held, _| held.and_then(given_back).map_or(Next::Leave(()), |held| Next::Write(held, ())),
                );
            }
            Site::Overflow => {
                let cell = self.overflow(buckets);
                update(cell, Swap::load(cell), &mut 0, |slot: Slot| match given_back(slot.held()) {
                    Some(held) => Next::Write(overflow_slot(self.limit.index, held), ()),
                    None => Next::Leave(()),
                });
            }
        }
    }
}
