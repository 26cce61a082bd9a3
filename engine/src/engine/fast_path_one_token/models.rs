//! Loom models of the fast path, over the two slots of a small table.

use std::time::Duration;

use loom::{model::Builder, sync::Arc, thread};

use super::*;
use crate::{
    algorithm::TokenBucket,
    base::time::SECOND_NS,
    storage::{
        atomic_update::Next,
        layout::BucketState,
        striping::fixture::{self, World},
        table::{HashedKey, RaceCounts, Table, TableFull},
    },
};

const NOW: Nanos = 1_000 * SECOND_NS;

fn check_within(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

fn hash(name: u64) -> u64 {
    name.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns a limit of one token a second, ten at once.
fn limit() -> ActiveLimit {
    ActiveLimit::without_policy(Some(Meter::TokenBucket(
        TokenBucket::new(1, Duration::from_secs(1), 10).expect("fits"),
    )))
}

fn key(name: u64) -> HashedKey {
    HashedKey::new(limit().id, hash(name))
}

/// Charges on the fast path, and tries again whenever another thread has swapped the slot.
fn charge(table: &Table, name: u64) -> Result<StepResult, FastPathMiss> {
    let stripes = StripePool::none();
    let limit = OneTokenLimit::new(&limit(), &stripes).expect("a bucket");
    loop {
        match limit.charge(&stripes, table.key_lines(hash(name)), || NOW, || true) {
            Err(FastPathMiss::Race) => thread::yield_now(),
            charged => return charged,
        }
    }
}

/// Sets what a key holds, as any other operation may.
fn set(table: &Table, name: u64, word: u64) -> Result<(), TableFull> {
    table.update(
        key(name),
        NOW,
        || NOW,
        &mut RaceCounts::default(),
        |held, _| Next::Write(BucketState { word, ..held.unwrap_or_default() }, ()),
    )
}

fn word(table: &Table, name: u64) -> Option<u64> {
    table.get(key(name)).map(|held| held.word)
}

#[test]
fn two_charges_on_the_fast_path_both_count() {
    check_within(None, || {
        let table = Arc::new(Table::new(1));
        assert_eq!(set(&table, 1, NOW), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || charge(&other, 1).is_ok());
        assert!(charge(&table, 1).is_ok() && thread.join().expect("no panic"));
        assert_eq!(word(&table, 1), Some(NOW + 2 * SECOND_NS));
    });
}

/// The slot's key becomes idle, and another key takes the slot over, with a word that would do as well. Whichever of
/// both the check has seen, it charges its own key or none.
#[test]
fn a_charge_on_the_fast_path_never_lands_on_the_next_owner() {
    check_within(None, || {
        let table = Arc::new(Table::new(1));
        assert_eq!(set(&table, 1, NOW + SECOND_NS), Ok(()));
        assert_eq!(set(&table, 2, NOW + 5 * SECOND_NS), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert_eq!(set(&other, 1, 0), Ok(()));
            // The first key may have been charged again by now, and then it is not idle.
            set(&other, 3, NOW + SECOND_NS).is_ok()
        });
        let charged = charge(&table, 1);
        let is_taken_over = thread.join().expect("no panic");
        if is_taken_over {
            assert_eq!(word(&table, 3), Some(NOW + SECOND_NS), "no other thread charged it");
        } else {
            assert!(charged.is_ok(), "the key was active again");
        }
        assert_eq!(word(&table, 2), Some(NOW + 5 * SECOND_NS), "no thread charged the neighbour");
    });
}

/// The next owner has nothing left here: a check of a key of which nothing is used must not be refused by that owner's
/// word.
#[test]
fn a_denial_on_the_fast_path_is_never_by_the_next_owners_word() {
    check_within(None, || {
        let table = Arc::new(Table::new(1));
        assert_eq!(set(&table, 1, NOW), Ok(()));
        assert_eq!(set(&table, 2, NOW + 5 * SECOND_NS), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || set(&other, 3, NOW + 10 * SECOND_NS).is_ok());
        match charge(&table, 1) {
            Ok(StepResult { verdict: Verdict::Admit(after), .. }) => assert_eq!(after, NOW + SECOND_NS),
            Ok(refused) => panic!("{refused:?}"),
            Err(_) => {}
        }
        thread.join().expect("no panic");
    });
}

/// Charges a key of a [`World`] on the fast path, or spends from its lease.
fn charge_on_fast_path(world: &World) -> Result<StepResult, FastPathMiss> {
    let fast_path = FastPathLimit::new(fixture::LIMIT, Generation::default(), &world.meter).expect("no log");
    let limit = OneTokenLimit {
        fast_path,
        native: Native128::detect().expect("loom has it"),
        step: world.meter.one_token().expect("a bucket"),
        meter: world.meter,
        index: 0,
        generation: Generation::default(),
        terms: Some(world.terms),
    };
    let lines = world.table.key_lines(fixture::key(1).hash());
    limit.charge(&world.stripes, lines, || world.clock.load(), || world.version.load() == 0)
}

/// Charges a key on the fast path, or else on the slow path, and returns the tokens that were admitted.
fn charge_of(world: &World) -> u64 {
    let charged = charge_on_fast_path(world);
    charged.map_or_else(|_| world.charge(0, 1), |stepped| u64::from(matches!(stepped.verdict, Verdict::Admit(_))))
}

#[test]
fn the_fast_path_spends_from_a_lease() {
    check_within(None, || {
        let world = World::leased(6, 2, 1, 1);
        assert!(matches!(charge_on_fast_path(&world), Ok(StepResult { verdict: Verdict::Admit(_), .. })));
        assert!(world.is_striped());
        assert_eq!(world.drain(0), 4);
    });
}

#[test]
fn spends_on_the_fast_path_beside_a_refill_and_a_close_admit_the_burst() {
    check_within(Some(3), || {
        let world = Arc::new(World::leased(6, 2, 1, 1));
        let [spends, closes] = [(); 2].map(|()| Arc::clone(&world));
        let other = thread::spawn(move || charge_of(&spends) + charge_of(&spends));
        let closer = thread::spawn(move || closes.close());
        let admitted = charge_of(&world) + other.join().expect("no panic");
        closer.join().expect("no panic");
        assert_eq!(admitted, 3, "there was room for all");
        assert_eq!(admitted + world.drain(0), 5);
        assert!(world.is_at_rest());
    });
}

/// The publish takes all of the reserve as used, however much of it the stripe still holds.
#[test]
fn a_spend_on_the_fast_path_beside_a_publish_mints_nothing() {
    check_within(Some(3), || {
        let mut world = World::leased(6, 2, 1, 1);
        world.version = fixture::FixtureValue::Cell(crate::base::atomic::Cell64::new(0));
        let world = Arc::new(world);
        let spends = Arc::clone(&world);
        let other = thread::spawn(move || charge_of(&spends));
        world.publish();
        let admitted = other.join().expect("no panic");
        let admitted = admitted + world.drain(1);
        assert!((3..=5).contains(&admitted), "{admitted} of 5, of which the publish takes 2 at most");
        assert!(world.is_at_rest());
    });
}
