//! Tests of shares, and of the table against a model.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use proptest::prelude::*;

use super::*;

const HALF: u8 = 50;

fn table(places: usize, percent: u8) -> CallerTable<u64, ()> {
    CallerTable::new(places, CallerShare::percent(percent))
}

/// Adds entries of a caller until it has no room. Returns how many it has, and why it may have no more.
fn fill(table: &mut CallerTable<u64, ()>, caller: u64) -> (usize, NoRoom) {
    let mut added = 0;
    loop {
        if let Err(reason) = table.check_room(CallerKey(caller)) {
            return (added, reason);
        }
        table.insert(caller << 32 | added as u64, CallerKey(caller), ());
        added += 1;
    }
}

#[test]
fn a_caller_may_have_as_many_entries_as_places_are_free() {
    let mut table = table(100_000, HALF);
    assert_eq!(fill(&mut table, 1), (50_000, NoRoom::Caller));
    assert_eq!(fill(&mut table, 2), (25_000, NoRoom::Caller));
    assert_eq!(fill(&mut table, 3), (12_500, NoRoom::Caller));
    // What one gives up others may have.
    for _ in 0..50_000 {
        assert_eq!(table.pop_front_of(CallerKey(1)), Some(()));
    }
    assert_eq!(table.pop_front_of(CallerKey(1)), None);
    assert_eq!(fill(&mut table, 4), (31_250, NoRoom::Caller));
}

#[test]
fn a_share_is_as_large_as_its_setting() {
    for (percent, entries) in [(0, 10), (1, 10), (10, 100), (90, 900), (99, 990)] {
        assert_eq!(fill(&mut table(1_000, percent), 1), (entries, NoRoom::Caller), "{percent}");
    }
    for percent in [100, 255] {
        let mut table = table(1_000, percent);
        assert_eq!(fill(&mut table, 1), (1_000, NoRoom::Table), "{percent}: there are no shares");
        assert_eq!(fill(&mut table, 2), (0, NoRoom::Table));
    }
}

#[test]
fn in_a_full_table_a_caller_with_its_share_is_refused_for_that() {
    let mut table = table(10, HALF);
    for caller in 1..=9 {
        fill(&mut table, caller);
    }
    assert_eq!(table.len(), 10);
    assert_eq!(table.check_room(CallerKey(1)), Err(NoRoom::Caller));
    assert_eq!(table.check_room(CallerKey(10)), Err(NoRoom::Table));
}

#[test]
fn a_caller_with_no_less_than_the_average_is_large() {
    let mut table = table(1_000, HALF);
    assert_eq!(fill(&mut table, 1), (500, NoRoom::Caller));
    assert!(table.is_large(CallerKey(1)), "it is alone");
    assert_eq!(fill(&mut table, 2), (250, NoRoom::Caller));
    let are_large = [1, 2].map(|caller| table.is_large(CallerKey(caller)));
    assert_eq!(are_large, [true, false]);
}

#[test]
fn a_token_has_a_group_of_its_own() {
    let (secret, peer) = (RandomState::new(), PeerNetwork::from(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let group =
        |byte: u8| CallerKey::new(&secret, &Caller { token: Some([byte; 32]), ..Caller::without_token(peer) }).group();
    let groups: BTreeSet<NonZeroU16> = (0..100).map(group).collect();
    assert!(groups.len() >= 95, "{}: two of them rarely have one in common", groups.len());
    assert_eq!(group(7), group(7));
}

#[test]
fn callers_differ_by_their_network_and_their_token() {
    let secret = RandomState::new();
    let key = |address: IpAddr, token: Option<u8>| {
        CallerKey::new(
            &secret,
            &Caller { token: token.map(|byte| [byte; 32]), ..Caller::without_token(address.into()) },
        )
    };
    let host = |last: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, last));
    let other_network = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 1));
    let [one, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
    assert_eq!(key(host(1), None), key(host(2), None));
    assert_eq!(key(one, Some(1)), key(one, Some(1)));
    let different = [
        key(host(1), None),
        key(other_network, None),
        key(one, None),
        key(one, Some(1)),
        key(one, Some(2)),
        key(other, None),
    ];
    for (place, caller) in different.iter().enumerate() {
        assert!(!different[..place].contains(caller), "{place}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Adds an entry if there is room.
    Add {
        key: u8,
        caller: u64,
    },
    /// Adds an entry, and removes the oldest of the caller, or of all, if there is no room.
    Push {
        key: u8,
        caller: u64,
    },
    Remove(u8),
    PopFront,
    PopFrontOf(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (key, caller) = (0..40_u8, 0..5_u64);
    let step = prop_oneof![
        3 => (key.clone(), caller.clone()).prop_map(|(key, caller)| Step::Add { key, caller }),
        2 => (key.clone(), caller.clone()).prop_map(|(key, caller)| Step::Push { key, caller }),
        2 => key.prop_map(Step::Remove),
        1 => Just(Step::PopFront),
        1 => caller.prop_map(Step::PopFrontOf),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// Compares the table with a model: a list of entries, oldest first.
    #[test]
    fn the_counts_of_callers_are_those_of_their_entries(steps in steps(), places in 1..30_usize, percent in 1..=100_u8) {
        let share = CallerShare::percent(percent);
        let mut table = CallerTable::new(places, share);
        let mut model: Vec<(u8, CallerKey)> = Vec::new();
        for step in steps {
            match step {
                Step::Add { key, caller } => {
                    let caller = CallerKey(caller);
                    let free = places - model.len();
                    let has = model.iter().filter(|(_, of)| *of == caller).count();
                    let room = table.check_room(caller);
                    let is_below = has * usize::from(100 - percent) < free * usize::from(percent);
                    prop_assert_eq!(room.is_ok(), free > 0 && is_below);
                    prop_assert!(room != Err(NoRoom::Table) || free == 0);
                    if room.is_ok() {
                        table.insert(key, caller, (key, caller));
                        model.retain(|(other, _)| *other != key);
                        model.push((key, caller));
                    }
                }
                Step::Push { key, caller } => {
                    let caller = CallerKey(caller);
                    if let Err(reason) = table.check_room(caller) {
                        let of_caller = model.iter().position(|(_, of)| *of == caller);
                        let (popped, place) = match reason {
                            NoRoom::Caller => (table.pop_front_of(caller), of_caller.expect("it has its share")),
                            NoRoom::Table => (table.pop_front(), 0),
                        };
                        prop_assert_eq!(popped, Some(model.remove(place)));
                    }
                    table.insert(key, caller, (key, caller));
                    model.retain(|(other, _)| *other != key);
                    model.push((key, caller));
                }
                Step::Remove(key) => {
                    let place = model.iter().position(|(other, _)| *other == key);
                    let removed = place.map(|place| model.remove(place));
                    prop_assert_eq!(table.remove(&key), removed);
                }
                Step::PopFront => {
                    let popped = (!model.is_empty()).then(|| model.remove(0));
                    prop_assert_eq!(table.pop_front(), popped);
                }
                Step::PopFrontOf(caller) => {
                    let place = model.iter().position(|(_, of)| *of == CallerKey(caller));
                    let popped = place.map(|place| model.remove(place));
                    prop_assert_eq!(table.pop_front_of(CallerKey(caller)), popped);
                }
            }
            prop_assert!(table.len() <= places && table.len() == model.len());
            prop_assert_eq!(table.front(), model.first());
            let mut shares = OwnerCounts::default();
            for (key, caller) in &model {
                prop_assert_eq!(table.get(key).copied(), Some((*key, *caller)));
                shares.add(*caller, 1);
            }
            prop_assert_eq!(table.shares(), shares);
            prop_assert_eq!(table.shares().sum(), table.len());
        }
    }
}
