//! Loom models of token striping: the interleavings of a few threads over one key, one group and a stripe or two. Where
//! all threads have ended and the session is closed, exactly the burst was admitted: nothing is minted, and nothing
//! lost.

use loom::{model::Builder, sync::Arc, thread};

use super::{
    fixture::{EARLY, FixtureValue, LATE, World, key},
    *,
};
use crate::base::atomic::Cell64;

/// All interleavings with at most this many preemptions.
fn check_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn spawn<T: 'static>(world: &Arc<World>, work: impl FnOnce(&World) -> T + 'static) -> thread::JoinHandle<T> {
    let world = Arc::clone(world);
    thread::spawn(move || work(&world))
}

fn end<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().expect("no panic")
}

#[test]
fn two_threads_on_one_stripe_and_a_close_admit_the_burst() {
    check_within(3, || {
        let world = Arc::new(World::leased(6, 2, 1, 1));
        let other = spawn(&world, |world| world.charge(0, 2) + world.charge(0, 1));
        let closer = spawn(&world, World::close);
        let mine = world.charge(0, 1);
        let admitted = mine + end(other);
        end(closer);
        assert_eq!(admitted + world.drain(0), 5);
        assert!(world.is_at_rest());
    });
}

#[test]
fn refills_of_two_stripes_admit_the_burst() {
    check_within(3, || {
        let world = Arc::new(World::leased(6, 1, 2, 1));
        let other = spawn(&world, |world| world.charge(1, 1) + world.charge(1, 1));
        let mine = world.charge(0, 1) + world.charge(0, 1);
        let admitted = mine + end(other);
        assert_eq!(admitted, 4, "there was room for all");
        assert_eq!(admitted + world.drain(0), 5);
        assert!(world.is_at_rest());
    });
}

/// The word refuses; the thread that finds that takes all stock back, and is not denied the tokens in it.
#[test]
fn two_denials_that_close_admit_what_is_left() {
    check_within(3, || {
        let world = Arc::new(World::leased(4, 2, 1, 1));
        let other = spawn(&world, |world| world.charge(0, 3));
        let mine = world.charge(0, 3);
        let admitted = mine + end(other);
        assert_eq!(admitted + world.drain(0), 3);
        assert!(world.is_at_rest());
    });
}

#[test]
fn two_openers_and_a_closer_leave_one_lease_or_none() {
    check_within(3, || {
        let world = Arc::new(World::new(4, 1, 2));
        world.touch(0);
        let opener = spawn(&world, |world| {
            world.open();
            world.charge(0, 1)
        });
        let closer = spawn(&world, |world| world.close());
        world.open();
        let admitted = world.charge(1, 1) + end(opener);
        end(closer);
        assert_eq!(admitted + world.drain(0), 4);
        assert!(world.is_at_rest());
    });
}

/// Three of four tokens are used, and a session would reserve two.
#[test]
fn a_lease_is_not_begun_without_room_for_its_reserve() {
    check_within(3, || {
        let world = Arc::new(World::new(4, 2, 1));
        world.touch(2);
        let opener = spawn(&world, |world| {
            world.open();
            world.charge(0, 1)
        });
        let mine = world.charge(0, 1);
        let admitted = mine + end(opener);
        assert_eq!(admitted + world.drain(0), 2);
        assert!(world.is_at_rest());
    });
}

/// A refilling thread stalls; its stripe is emptied, and belongs to another session when the thread continues.
#[test]
fn a_stalled_refiller_puts_nothing_into_the_next_lease() {
    check_within(3, || {
        let world = Arc::new(World::leased(7, 2, 1, 1));
        let spent = world.charge(0, 1);
        let refiller = spawn(&world, |world| world.charge(0, 2));
        world.close();
        world.open();
        let mine = world.charge(0, 1);
        let admitted = spent + mine + end(refiller);
        assert_eq!(admitted + world.drain(0), 6);
        assert!(world.is_at_rest());
    });
}

/// The thread of the next session fills the stripe at the same time as the stalled one: only the nonces differ.
#[test]
fn two_refillers_of_two_leases_do_not_take_each_others_place() {
    check_within(3, || {
        let world = Arc::new(World::leased(9, 2, 1, 1));
        let spent = world.charge(0, 1);
        let refiller = spawn(&world, |world| world.charge(0, 2));
        world.close();
        world.open();
        let mine = world.charge(0, 1) + world.charge(0, 2);
        let admitted = spent + mine + end(refiller);
        assert_eq!(admitted + world.drain(0), 8);
        assert!(world.is_at_rest());
    });
}

/// Tokens that were spent and given back can be spent again, once, whatever the session does meanwhile.
#[test]
fn giving_back_beside_a_lease_neither_mints_nor_loses() {
    check_within(3, || {
        let world = Arc::new(World::leased(5, 2, 1, 1));
        let mark = world.refund_log.mark_long(key(1));
        let charged = world.charge_at(0, 0, 2).expect("fits");
        let other = spawn(&world, |world| world.charge(0, 1));
        let closer = spawn(&world, World::close);
        world.give_back(1, charged, mark);
        let admitted = 1 + end(other);
        end(closer);
        let drained = world.drain(0);
        assert_eq!(admitted + drained, 4);
        assert!(world.is_at_rest());
    });
}

/// The stripe gave two tokens, and the word holds one, which was used before. Nothing is minted; tokens are lost only
/// in a race with the thread that ends the session.
#[test]
fn giving_back_more_than_the_word_holds_mints_nothing() {
    check_within(3, || {
        let world = Arc::new(World::leased(5, 2, 1, 1));
        let mark = world.refund_log.mark_long(key(1));
        let charged = world.charge_at(0, 0, 2).expect("fits");
        let closer = spawn(&world, World::close);
        world.give_back(2, charged, mark);
        end(closer);
        let drained = world.drain(0);
        assert!((3..=4).contains(&drained), "{drained} of 4");
        assert!(world.is_at_rest());
    });
}

/// A reset forgets what was used before; the tokens that a refilling thread holds are not given back on top.
#[test]
fn a_reset_beside_a_refill_mints_nothing() {
    check_within(3, || {
        let world = Arc::new(World::leased(6, 2, 1, 2));
        world.charge(0, 1);
        let refiller = spawn(&world, |world| world.charge(0, 2));
        world.reset();
        let after = world.drain(0);
        end(refiller);
        let after = after + world.drain(0);
        // The charge of the refilling thread may have been before the reset.
        assert!((4..=6).contains(&after), "{after} of 6");
        assert!(world.is_at_rest());
    });
}

/// A publish converts the slot before, between or after the steps of a thread that opens a session or spends.
#[test]
fn a_publish_beside_an_opener_and_a_charge_mints_nothing() {
    check_within(3, || {
        let mut world = World::new(6, 2, 1);
        world.version = FixtureValue::Cell(Cell64::new(0));
        world.touch(0);
        let world = Arc::new(world);
        let opener = spawn(&world, |world| {
            world.open();
            world.charge(0, 1)
        });
        world.publish();
        let mine = world.drain(1);
        let admitted = mine + end(opener) + world.drain(1);
        assert!((4..=6).contains(&admitted), "{admitted} of 6, of which the publish takes 2 at most");
        assert!(!world.is_striped());
    });
}

#[test]
fn a_publish_beside_a_refill_mints_nothing() {
    check_within(3, || {
        let mut world = World::leased(6, 2, 1, 0);
        world.version = FixtureValue::Cell(Cell64::new(0));
        let world = Arc::new(world);
        let spent = world.charge(0, 1);
        let refiller = spawn(&world, |world| world.charge(0, 2));
        world.publish();
        let admitted = spent + world.drain(1) + end(refiller) + world.drain(1);
        assert!((4..=6).contains(&admitted), "{admitted} of 6, of which the publish takes 2 at most");
        assert!(world.is_at_rest());
    });
}

/// The key's word is idle while stripes hold all that was used.
#[test]
fn a_stranger_does_not_take_a_leased_slot() {
    check_within(3, || {
        let world = World::leased(3, 2, 1, 0);
        let live = BucketState::word(Generation::default(), LATE);
        let put = move |table: &Table, name| {
            table.update(key(name), EARLY, || EARLY, &mut RaceCounts::default(), |_, _| Next::Write(live, ()))
        };
        assert_eq!(put(&world.table, 2), Ok(()));
        let world = Arc::new(world);
        let spent = world.charge(0, 2);
        let stranger = spawn(&world, move |world| put(&world.table, 3).is_ok());
        let closer = spawn(&world, World::close);
        let admitted = spent + world.charge(0, 1);
        assert!(!end(stranger), "its bucket is in use");
        end(closer);
        assert_eq!(admitted + world.drain(0), 3);
        let slots = [1, 2, 3].map(|name| world.table.get(key(name)).is_some());
        assert_eq!(slots, [true, true, false]);
    });
}

/// A check reads the clock and stalls, while time brings back what was used, much or nothing. It neither pays at its
/// old time for tokens that were spent since, nor is dated back to when everything was spent.
#[test]
fn a_stalled_clock_mints_at_neither_time() {
    for used_early in [0, 4] {
        check_within(4, move || {
            let mut world = World::leased(4, 2, 1, 0);
            world.clock = FixtureValue::Cell(Cell64::new(EARLY));
            let world = Arc::new(world);
            let stalled = spawn(&world, |world| world.charge_at(0, 0, 1).map(|charged| charged.now));
            let mut dates = Vec::new();
            let mut charge = |times| {
                dates.extend((0..times).filter_map(|_| world.charge_at(0, 0, 1)).map(|charged| charged.now));
            };
            charge(used_early);
            world.clock.store(LATE);
            charge(5);
            dates.extend(end(stalled));
            for at in [EARLY, LATE] {
                let admitted = dates.iter().filter(|date| **date == at).count();
                assert!(admitted <= 4, "{admitted} at {at}");
            }
        });
    }
}

/// A thread that ends a session stalls: tokens that are spent meanwhile are not paid at a time before.
#[test]
fn a_stalled_closer_pays_for_nothing_before_it_was_spent() {
    check_within(4, || {
        let mut world = World::leased(4, 2, 1, 0);
        world.clock = FixtureValue::Cell(Cell64::new(EARLY));
        let world = Arc::new(world);
        let closer = spawn(&world, World::close);
        world.clock.store(LATE);
        let admitted = world.drain(0);
        end(closer);
        let admitted = admitted + world.drain(0);
        assert_eq!(admitted, 4);
        assert!(world.is_at_rest());
    });
}

/// A refilling thread stalls beside a thread that closes the session and opens another.
#[test]
fn a_stalled_refiller_of_a_lease_that_has_ended_mints_nothing_later() {
    check_within(4, || {
        let mut world = World::leased(6, 2, 1, 0);
        world.clock = FixtureValue::Cell(Cell64::new(EARLY));
        let world = Arc::new(world);
        let spent = world.charge(0, 1);
        assert_eq!(spent, 1);
        let stalled = spawn(&world, |world| world.charge_at(0, 0, 2));
        world.close();
        world.clock.store(LATE);
        world.open();
        let mut admitted = 0;
        while world.charge_at(0, 0, 1).is_some() {
            admitted += 1;
        }
        if let Some(charged) = end(stalled) {
            admitted += if charged.now == LATE { 2 } else { 0 };
        }
        let admitted = admitted + world.drain(0);
        assert!(admitted <= 6, "{admitted} at one time");
    });
}
