//! Loom models of the table: the interleavings of a few threads over two candidate slots. Models with too many
//! interleavings explore those with as many preemptions as they say.

use loom::{model::Builder, sync::Arc, thread};

use super::*;

const NOW: Nanos = 10;
/// A word that is live at `NOW`, and stays live when charges are added to it or taken off.
const LIVE: u64 = 1_000;

fn table() -> Arc<Table> {
    with_overflow(0)
}

/// Makes a table of two slots and so many overflow buckets.
fn with_overflow(buckets: usize) -> Arc<Table> {
    let table = Table::with_overflow(1, buckets);
    assert_eq!(table.cells().len(), 2, "two candidates for every key");
    Arc::new(table)
}

fn key(name: u64) -> HashedKey {
    HashedKey::new(1, name.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Adds one charge to the key's bucket.
fn charge(table: &Table, key: HashedKey) -> Result<(), TableFull> {
    table.update(
        key,
        NOW,
        || NOW,
        &mut RaceCounts::default(),
        |held, _| {
            let held = held.unwrap_or_default();
            Next::Write(BucketState { word: held.word.max(LIVE) + 1, ..held }, ())
        },
    )
}

/// Makes the key's bucket idle, as a refund or a reset may.
fn empty(table: &Table, key: HashedKey) {
    let outcome = table.update(
        key,
        NOW,
        || NOW,
        &mut RaceCounts::default(),
        |held, _| match held {
            Some(held) => Next::Write(BucketState { word: 0, ..held }, ()),
            None => Next::Leave(()),
        },
    );
    assert_eq!(outcome, Ok(()));
}

fn slots(table: &Table) -> impl Iterator<Item = Slot> {
    table.cells().iter().chain(table.shares.overflow(1)).map(Swap::load)
}

/// Returns the words of all active slots of a key.
fn words(table: &Table, key: HashedKey) -> Vec<u64> {
    slots(table)
        .filter(|slot| slot.holds(key.bits) && slot.state() == SlotState::Active)
        .map(|slot| slot.word)
        .collect()
}

fn claims(table: &Table) -> usize {
    slots(table).filter(|slot| slot.state() == SlotState::Claimed).count()
}

/// All interleavings with at most this many preemptions.
fn check_within(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

#[test]
fn two_threads_that_insert_one_key_share_one_slot() {
    check_within(None, || {
        let table = table();
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || charge(&other, key(1)));
        assert_eq!(charge(&table, key(1)), Ok(()));
        assert_eq!(thread.join().expect("no panic"), Ok(()));
        assert_eq!(words(&table, key(1)), [LIVE + 2], "one slot, both charges");
        assert_eq!(claims(&table), 0, "no claim is left behind");
    });
}

#[test]
fn three_threads_that_insert_one_key_share_one_slot() {
    check_within(Some(2), || {
        let table = table();
        let spawn = || {
            let table = Arc::clone(&table);
            thread::spawn(move || charge(&table, key(1)))
        };
        let threads = [spawn(), spawn()];
        assert_eq!(charge(&table, key(1)), Ok(()));
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), Ok(()));
        }
        assert_eq!(words(&table, key(1)), [LIVE + 3], "one slot, all charges");
    });
}

/// One thread claims the higher place because the lower one is live, another the lower one once it is idle, and a third
/// helps.
#[test]
fn claims_in_different_places_leave_one_slot() {
    check_within(Some(3), || {
        let table = table();
        // The neighbour takes the place that key 1 scans first.
        let neighbour =
            (2..).map(key).find(|&k| std::ptr::eq(table.lines.of(k.hash)[0], table.lines.of(key(1).hash)[0]));
        let neighbour = neighbour.expect("half of all keys");
        assert_eq!(charge(&table, neighbour), Ok(()));
        let spawn = |empties: bool| {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                if empties {
                    empty(&table, neighbour);
                }
                charge(&table, key(1))
            })
        };
        let threads = [spawn(false), spawn(true)];
        assert_eq!(charge(&table, key(1)), Ok(()));
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), Ok(()));
        }
        assert_eq!(words(&table, key(1)), [LIVE + 3]);
    });
}

#[test]
fn a_reuse_and_a_charge_of_the_idle_key_do_not_both_get_the_slot() {
    check_within(None, || {
        let table = table();
        let (idle, live, new) = (key(1), key(2), key(3));
        assert_eq!(charge(&table, idle), Ok(()));
        assert_eq!(charge(&table, live), Ok(()));
        empty(&table, idle);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || charge(&other, new));
        let charged = charge(&table, idle);
        let reused = thread.join().expect("no panic");
        assert_eq!(charged.is_ok(), words(&table, idle) == [LIVE + 1]);
        assert_eq!(reused.is_ok(), words(&table, new) == [LIVE + 1]);
        assert!(charged.is_ok() != reused.is_ok(), "one slot for two keys: {charged:?}, {reused:?}");
        assert_eq!(words(&table, live), [LIVE + 1], "a live slot is never evicted");
    });
}

/// A charge stalls between reading the word and swapping it; its key is emptied, and the slot reaches the same word under
/// another key. The swap must fail.
#[test]
fn a_stale_charge_never_lands_on_the_next_owner() {
    check_within(None, || {
        let table = table();
        let (old, filler, new) = (key(1), key(2), key(3));
        assert_eq!(charge(&table, old), Ok(()));
        assert_eq!(charge(&table, filler), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            empty(&other, old);
            charge(&other, new)
        });
        let charged = charge(&table, old);
        if thread.join().expect("no panic").is_ok() {
            assert_eq!(words(&table, new), [LIVE + 1], "the new owner's own charge and nothing else");
            assert!(words(&table, old).is_empty());
        } else {
            assert_eq!(charged, Ok(()), "only a charge can have kept the slot");
        }
        assert_eq!(words(&table, filler), [LIVE + 1]);
    });
}

/// A thread is about to take a slot from an idle key; meanwhile the slot becomes another key's, idle, and the first
/// key's again. The swap must fail, or find the very same state.
#[test]
fn a_stale_reuse_never_evicts() {
    check_within(Some(3), || {
        let table = table();
        let (first, filler, taker) = (key(1), key(2), key(3));
        assert_eq!(charge(&table, first), Ok(()));
        assert_eq!(charge(&table, filler), Ok(()));
        empty(&table, first);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            let reused = charge(&other, key(4)).is_ok();
            if reused {
                empty(&other, key(4));
            }
            charge(&other, first)
        });
        let took = charge(&table, taker);
        let kept = thread.join().expect("no panic");
        assert_eq!(took.is_ok(), words(&table, taker) == [LIVE + 1]);
        assert_eq!(kept.is_ok(), words(&table, first) == [LIVE + 1]);
        assert_eq!(words(&table, filler), [LIVE + 1]);
    });
}

/// A look whose slot goes to another key meanwhile answers for its own key or for none, never with the other key's
/// word.
#[test]
fn a_look_never_answers_with_a_strangers_word() {
    check_within(None, || {
        let table = table();
        let (old, filler, new) = (key(1), key(2), key(3));
        assert_eq!(charge(&table, old), Ok(()));
        assert_eq!(charge(&table, filler), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            empty(&other, old);
            let _ = charge(&other, new);
            let _ = charge(&other, new);
        });
        let seen = table.get(old).map(|held| held.word);
        assert!(matches!(seen, None | Some(0) | Some(1_001)), "{seen:?}");
        thread.join().expect("no panic");
    });
}

/// A check reads the clock and stalls; its key's bucket is used, becomes idle, and is taken over. The stalled check
/// must not be admitted at its old time, as if nothing had been charged.
#[test]
fn a_stalled_check_is_not_admitted_at_a_time_that_was_used_up() {
    check_within(Some(3), || {
        let (table, clock) = (table(), Arc::new(crate::base::atomic::Cell64::new(10)));
        // The limit has one token, which comes back with the next tick.
        let admit = |table: &Table, clock: &crate::base::atomic::Cell64, key: HashedKey| {
            let outcome = table.update(
                key,
                clock.load(),
                || clock.load(),
                &mut RaceCounts::default(),
                |held, now| match held {
                    Some(held) if held.word > now => Next::Leave(None),
                    _ => Next::Write(BucketState { word: now + 1, ..BucketState::default() }, Some(now)),
                },
            );
            // A check whose time is past may find no slot that was idle at that time.
            outcome.unwrap_or(None)
        };
        let (other, its_clock) = (Arc::clone(&table), Arc::clone(&clock));
        let thread = thread::spawn(move || {
            let first = admit(&other, &its_clock, key(1));
            its_clock.store(11);
            for other_key in [key(2), key(3)] {
                let _ = admit(&other, &its_clock, other_key);
            }
            // A refund makes the slots free at any time.
            empty(&other, key(2));
            empty(&other, key(3));
            first
        });
        let second = admit(&table, &clock, key(1));
        let first = thread.join().expect("no panic");
        assert!(first.is_none() || first != second, "admitted twice at {first:?}");
    });
}

/// A check finds no slot and claims an overflow bucket; another finds a slot that has just become idle.
#[test]
fn a_claim_of_an_overflow_bucket_and_one_of_a_slot_leave_one_bucket() {
    check_within(Some(3), || {
        let table = with_overflow(1);
        assert_eq!(charge(&table, key(2)), Ok(()));
        assert_eq!(charge(&table, key(3)), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            empty(&other, key(2));
            charge(&other, key(1))
        });
        assert_eq!(charge(&table, key(1)), Ok(()));
        assert_eq!(thread.join().expect("no panic"), Ok(()));
        assert_eq!(words(&table, key(1)), [LIVE + 2], "one bucket, both charges");
        assert_eq!(words(&table, key(3)), [LIVE + 1], "a live slot is never evicted");
    });
}

/// Two keys want the one overflow bucket of their limit; the key that does not get it is denied.
#[test]
fn an_overflow_bucket_is_one_keys_and_no_others() {
    check_within(Some(3), || {
        let table = with_overflow(1);
        assert_eq!(charge(&table, key(2)), Ok(()));
        assert_eq!(charge(&table, key(3)), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || charge(&other, key(4)));
        let outcomes = [charge(&table, key(1)), thread.join().expect("no panic")];
        for (key, outcome) in [key(1), key(4)].into_iter().zip(outcomes) {
            assert_eq!(words(&table, key).len(), usize::from(outcome.is_ok()), "{outcome:?}");
        }
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    });
}

/// A thread empties an idle slot of a limit that holds its share, while the slot's key is charged.
#[test]
fn an_idle_slot_is_emptied_or_charged_and_no_charge_is_lost() {
    check_within(None, || {
        let table = table();
        assert_eq!(charge(&table, key(1)), Ok(()));
        empty(&table, key(1));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || other.reclaim(1, Some(Shortage::Limit), NOW));
        assert_eq!(charge(&table, key(1)), Ok(()));
        thread.join().expect("no panic");
        assert_eq!(words(&table, key(1)), [LIVE + 1]);
        assert_eq!((claims(&table), table.shares.held(1)), (0, 1), "and each slot is counted once");
    });
}

/// A claim from before a sweep does not become active after it.
#[test]
fn a_sweep_swaps_claims_away() {
    check_within(None, || {
        let (table, version) = (table(), Arc::new(crate::base::atomic::Cell64::new(0)));
        let (other, its_version) = (Arc::clone(&table), Arc::clone(&version));
        let next = BucketState::default().generation.next();
        let thread = thread::spawn(move || {
            its_version.store(1);
            other.sweep(|_| true, |_, held, _| BucketState { generation: next, ..held });
        });
        // A check writes the old generation while the old version is the newest.
        let outcome = table.update(
            key(1),
            NOW,
            || NOW,
            &mut RaceCounts::default(),
            |_, _| {
                if version.load() > 0 {
                    Next::Leave(())
                } else {
                    Next::Write(BucketState { word: LIVE, ..BucketState::default() }, ())
                }
            },
        );
        assert_eq!(outcome, Ok(()));
        thread.join().expect("no panic");
        let generation = table.get(key(1)).map(|held| held.generation);
        assert!(generation.is_none_or(|generation| generation == next), "a bucket of before the sweep was left");
    });
}

#[test]
fn in_a_full_table_new_keys_are_denied_and_no_key_is_evicted() {
    check_within(None, || {
        let table = table();
        assert_eq!(charge(&table, key(1)), Ok(()));
        assert_eq!(charge(&table, key(2)), Ok(()));
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || charge(&other, key(3)));
        // The error names the key that becomes idle first.
        let full = Err(TableFull { idle_at: LIVE + 1 });
        assert_eq!(charge(&table, key(4)), full);
        assert_eq!(thread.join().expect("no panic"), full);
        assert_eq!((words(&table, key(1)), words(&table, key(2))), (vec![LIVE + 1], vec![LIVE + 1]));
    });
}

/// A sweep converts every bucket to new numbers once, beside a charge.
#[test]
fn a_sweep_beside_a_charge_loses_neither() {
    check_within(None, || {
        let table = table();
        assert_eq!(charge(&table, key(1)), Ok(()));
        let other = Arc::clone(&table);
        let next = BucketState::default().generation.next();
        let thread = thread::spawn(move || {
            other.sweep(|limit| limit == 1, |_, held, _| BucketState::word(next, held.word + 100));
        });
        assert_eq!(charge(&table, key(1)), Ok(()));
        thread.join().expect("no panic");
        assert_eq!(words(&table, key(1)), [LIVE + 102]);
        assert_eq!(table.get(key(1)).map(|held| held.generation), Some(next));
    });
}
