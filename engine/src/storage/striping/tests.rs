//! Refunds to a striped key, by one thread.

use super::fixture::{EARLY, FixtureValue, TOKEN_NS, World, key};
use crate::base::atomic::Cell64;

const SHARE: u64 = 8;

#[test]
fn giving_back_more_than_the_word_holds_loses_nothing() {
    let world = World::leased(100, SHARE, 1, 0);
    let mark = world.refund_log.mark_long(key(1));
    let charged = world.charge_at(0, 0, SHARE).expect("fits");
    assert!(world.is_striped());
    world.give_back(SHARE, charged, mark);
    assert!(!world.is_striped(), "what the stripe gave is charged to the word first");
    assert_eq!(world.drain(0), 100);
}

#[test]
fn giving_back_what_time_has_repaid_ends_no_lease() {
    let mut world = World::leased(100, SHARE, 1, 0);
    world.clock = FixtureValue::Cell(Cell64::new(EARLY));
    let mark = world.refund_log.mark_long(key(1));
    let charged = world.charge_at(0, 0, SHARE).expect("fits");
    world.clock.store(EARLY + SHARE * TOKEN_NS);
    world.give_back(SHARE, charged, mark);
    assert!(world.is_striped());
}
