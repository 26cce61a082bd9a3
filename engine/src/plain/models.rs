//! Loom models of the short way, over the two slots of a small table.

use loom::{model::Builder, sync::Arc, thread};

use super::*;
use crate::{
    algorithm::TokenBucket,
    bucket::Next,
    hash::KeyHash,
    table::{Full, Key, Met},
    time::SECOND_NS,
    word::{Generation, Held},
};

const NOW: Nanos = 1_000 * SECOND_NS;
const LIMIT: u32 = 1;

fn check_within(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

fn hash(name: u64) -> u64 {
    name.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// One token a second, ten at once.
fn limit() -> OneTokenLimit {
    let meter = Meter::TokenBucket(TokenBucket::new(1, SECOND_NS, 10).expect("fits"));
    let generation = Generation::default();
    OneTokenLimit::new(OneTokenParts {
        plain: PlainLimit::new(LIMIT, generation, &meter).expect("no log"),
        hash: 0,
        meter,
        index: 0,
        generation,
        terms: None,
    })
    .expect("a bucket")
}

/// Charges by the short way, as often as another thread swaps the slot.
fn charge(table: &Table, name: u64) -> Result<Stepped, Missed> {
    let identity = IdentityHash::of(KeyHash(hash(name)));
    loop {
        match limit().charge(table, identity, || NOW, || true) {
            Err(Missed::Race) => thread::yield_now(),
            charged => return charged,
        }
    }
}

/// Sets what a key holds, as any other operation may.
fn set(table: &Table, name: u64, word: u64) -> Result<(), Full> {
    let key = Key::new(LIMIT, hash(name));
    table.update(
        key,
        NOW,
        || NOW,
        &mut Met::default(),
        |held, _| Next::Write(Held { word, ..held.unwrap_or_default() }, ()),
    )
}

fn word(table: &Table, name: u64) -> Option<u64> {
    table.get(Key::new(LIMIT, hash(name))).map(|held| held.word)
}

#[test]
fn two_charges_on_the_short_way_both_count() {
    check_within(None, || {
        let table = Arc::new(Table::new(1));
        assert_eq!(set(&table, 1, NOW), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || charge(&other, 1).is_ok());
        assert!(charge(&table, 1).is_ok() && thread.join().expect("no panic"));
        assert_eq!(word(&table, 1), Some(NOW + 2 * SECOND_NS));
    });
}

/// The slot's key becomes idle and another takes the slot over, with a word that is as good: whatever of both the check has seen,
/// it charges its own key or none.
#[test]
fn a_charge_on_the_short_way_never_lands_on_the_next_owner() {
    check_within(None, || {
        let table = Arc::new(Table::new(1));
        assert_eq!(set(&table, 1, NOW + SECOND_NS), Ok(()));
        assert_eq!(set(&table, 2, NOW + 5 * SECOND_NS), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            assert_eq!(set(&other, 1, 0), Ok(()));
            // It may be charged again by now, and so not idle.
            set(&other, 3, NOW + SECOND_NS).is_ok()
        });
        let charged = charge(&table, 1);
        let is_taken_over = thread.join().expect("no panic");
        if is_taken_over {
            assert_eq!(word(&table, 3), Some(NOW + SECOND_NS), "nobody charged it");
        } else {
            assert!(charged.is_ok(), "the key was live again");
        }
        assert_eq!(word(&table, 2), Some(NOW + 5 * SECOND_NS), "nobody charged the neighbour");
    });
}

/// As above, where the next owner has nothing left: a check of a key of which nothing is used is not refused by its word.
#[test]
fn a_denial_on_the_short_way_is_never_of_the_next_owner() {
    check_within(None, || {
        let table = Arc::new(Table::new(1));
        assert_eq!(set(&table, 1, NOW), Ok(()));
        assert_eq!(set(&table, 2, NOW + 5 * SECOND_NS), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || set(&other, 3, NOW + 10 * SECOND_NS).is_ok());
        match charge(&table, 1) {
            Ok(Stepped { verdict: Verdict::Admit(after), .. }) => assert_eq!(after, NOW + SECOND_NS),
            Ok(refused) => panic!("{refused:?}"),
            Err(_) => {}
        }
        thread.join().expect("no panic");
    });
}
