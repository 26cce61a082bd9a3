//! A world of one striped key, its clock and its policy version, for models and stress tests.

use std::time::Duration;

use super::*;
use crate::{
    algorithm::TokenBucket,
    base::{atomic::Cell64, time::PERIOD_MIN_NS},
};

/// The time in which a token comes back: a millisecond.
pub(crate) const TOKEN_NS: u64 = PERIOD_MIN_NS;
pub(crate) const EARLY: Nanos = 1_000 * TOKEN_NS;
/// An instant at which all of a burst has come back.
pub(crate) const LATE: Nanos = EARLY + 10 * TOKEN_NS;

/// A time or a version. One that does not change is a constant, so that loom does not switch threads at it.
pub(crate) enum FixtureValue {
    Fixed(u64),
    Cell(Cell64),
}

impl FixtureValue {
    pub(crate) fn load(&self) -> u64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Cell(cell) => cell.load(),
        }
    }

    pub(crate) fn store(&self, value: u64) {
        let Self::Cell(cell) = self else { panic!("is fixed") };
        cell.store(value);
    }
}

/// A table with one key, and the stripes that it may use.
pub(crate) struct World {
    pub(crate) table: Table,
    pub(crate) stripes: StripePool,
    pub(crate) refund_log: RefundLog,
    pub(crate) meter: Meter,
    pub(crate) terms: StripeTerms,
    pub(crate) clock: FixtureValue,
    /// The version of the newest snapshot. Generations are versions here.
    pub(crate) version: FixtureValue,
}

/// The id of the key's limit.
pub(crate) const LIMIT: u32 = 1;

pub(crate) fn key(name: u64) -> HashedKey {
    HashedKey::new(LIMIT, name.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

pub(crate) fn generation(version: u64) -> Generation {
    (0..version).fold(Generation::default(), |generation, _| generation.next())
}

impl World {
    pub(crate) fn new(burst: u64, share: u64, stripes: usize) -> Self {
        Self {
            table: Table::new(1),
            stripes: StripePool::with(1, stripes),
            refund_log: RefundLog::new(),
            meter: Meter::TokenBucket(TokenBucket::new(1, Duration::from_nanos(TOKEN_NS), burst).expect("fits")),
            terms: StripeTerms { share, stripes },
            clock: FixtureValue::Fixed(EARLY),
            version: FixtureValue::Fixed(0),
        }
    }

    /// Makes a world whose key is striped, with `used` tokens used and none spent from the stripes.
    pub(crate) fn leased(burst: u64, share: u64, stripes: usize, used: u64) -> Self {
        let world = Self::new(burst, share, stripes);
        world.touch(used);
        world.open();
        assert!(world.is_striped());
        world
    }

    /// Gives the key a slot with `used` tokens used.
    pub(crate) fn touch(&self, used: u64) {
        let held = BucketState::word(Generation::default(), EARLY + used * TOKEN_NS);
        assert_eq!(
            self.table.update(key(1), 0, || 0, &mut RaceCounts::default(), |_, _| Next::Write(held, ())),
            Ok(())
        );
    }

    pub(crate) fn with_striped_key<T>(
        &self,
        thread: usize,
        version: u64,
        cost: u64,
        with: impl FnOnce(&StripedKey<'_>) -> T,
    ) -> T {
        with(&StripedKey {
            stripes: &self.stripes,
            table: &self.table,
            refund_log: &self.refund_log,
            key: key(1),
            meter: &self.meter,
            generation: generation(version),
            terms: self.terms,
            cost,
            thread,
            read_clock: &|| self.clock.load(),
            is_stale: &|| self.version.load() > version,
        })
    }

    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method alone is of one lifetime")]
    pub(crate) fn open(&self) {
        self.with_striped_key(0, 0, 1, |striped| striped.open());
    }

    #[expect(clippy::redundant_closure_for_method_calls, reason = "as above")]
    pub(crate) fn close(&self) -> bool {
        self.with_striped_key(0, 0, 1, |striped| striped.close())
    }

    pub(crate) fn held(&self) -> BucketState {
        self.table.get(key(1)).expect("a slot")
    }

    pub(crate) fn is_striped(&self) -> bool {
        self.held().is_striped
    }

    /// Charges a cost, and returns when it was admitted and the word that the charge saw.
    pub(crate) fn charge_at(&self, thread: usize, version: u64, cost: u64) -> Option<StepResult> {
        let now = self.clock.load();
        self.with_striped_key(thread, version, cost, |striped| {
            loop {
                let seen = self.table.update(
                    key(1),
                    now,
                    || self.clock.load(),
                    &mut RaceCounts::default(),
                    |held, now| {
                        let held = held.unwrap_or(BucketState::word(generation(version), 0));
                        if self.version.load() > version || held.generation != generation(version) {
                            return Next::Leave(Ok(None));
                        }
                        if held.is_striped {
                            return Next::Leave(Err(held.word));
                        }
                        match self.meter.step(held.word, now, cost) {
                            Verdict::Admit(word) => Next::Write(
                                BucketState { word, ..held },
                                Ok(Some(StepResult { verdict: Verdict::Admit(word), word, now })),
                            ),
                            _ => Next::Leave(Ok(None)),
                        }
                    },
                );
                let word = match seen.unwrap_or(Ok(None)) {
                    Ok(decided) => return decided,
                    Err(word) => word,
                };
                match striped.charge(word, now) {
                    StripedOutcome::Decided(stepped) => {
                        return matches!(stepped.verdict, Verdict::Admit(_)).then_some(stepped);
                    }
                    StripedOutcome::Ended => {}
                    StripedOutcome::Stale => return None,
                }
            }
        })
    }

    /// Charges a cost, and returns the tokens that were admitted: all or none.
    pub(crate) fn charge(&self, thread: usize, cost: u64) -> u64 {
        if self.charge_at(thread, 0, cost).is_some() { cost } else { 0 }
    }

    /// Gives a charge back as `Account::give_back` does.
    pub(crate) fn give_back(&self, cost: u64, charged: StepResult, mark: Mark) {
        let receipt = |_| {
            let moved_ns = self.refund_log.since(key(1), mark)?;
            Some(Receipt { cost, charged_at: charged.now, word: charged.word, moved_ns })
        };
        let end_striping = || {
            self.close();
        };
        self.refund_log.give_back(&self.table, key(1), &self.meter, receipt, || self.clock.load(), end_striping);
    }

    pub(crate) fn reset(&self) {
        self.close();
        self.table.change(key(1), |held| {
            self.refund_log.reset(key(1));
            Some(BucketState { word: 0, ..held })
        });
    }

    pub(crate) fn publish(&self) {
        self.version.store(1);
        self.table.sweep(
            |_| true,
            |_, held, _| {
                if held.generation == generation(1) {
                    return held;
                }
                let lent = if held.is_striped { self.terms.reserve() } else { 0 };
                BucketState::word(generation(1), self.meter.overcharge(held.word, EARLY, lent))
            },
        );
        self.stripes.revoke(&self.table, || self.clock.load(), |_| Some(generation(1)));
    }

    /// Charges one token at a time until a charge is denied. Returns the number of tokens.
    pub(crate) fn drain(&self, version: u64) -> u64 {
        std::iter::from_fn(|| self.charge_at(0, version, 1)).count() as u64
    }

    /// Returns whether no session is open and no stripe holds a token.
    pub(crate) fn is_at_rest(&self) -> bool {
        let group = &self.stripes.groups[0];
        group.control.load() == FREE
            && group.stripes.iter().all(|stripe| stripe.stock.load() == NONE)
            && !self.is_striped()
    }
}
