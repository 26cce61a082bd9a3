//! Tests of open reservations over an engine with a manual clock.

use proptest::prelude::*;
use tidegate::{Engine, Identity, Request, clock::ManualClock, time::Timestamp};
use tidegate_listener::OwnerCounts;

use super::*;

const NOW: Nanos = 1_700_000_000 * SECOND_NS;
const GOOD: CallerKey = CallerKey::for_test(1);
const HOSTILE: CallerKey = CallerKey::for_test(2);

fn reservation(engine: &Engine<ManualClock>) -> ReservationCharge {
    let who = [Identity::new("user", "ada").expect("valid")];
    ReservationCharge::Local(engine.reserve(&Request::new(&who).expect("valid")).1.expect("allowed"))
}

/// Returns empty tables of which one caller may have everything.
fn unshared() -> Reservations {
    Reservations::new(CallerShare::percent(100))
}

fn engine() -> Engine<ManualClock> {
    Engine::for_simulation(10, ManualClock::at(Timestamp::from_nanos(NOW)), 7)
}

fn random() -> ReservationId {
    ReservationId::random().expect("the system has secrets")
}

#[test]
fn an_id_is_read_back_from_its_text_and_other_text_is_refused() {
    let id = random();
    let text = id.to_string();
    assert_eq!(text.len(), 24);
    assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
    assert!(text.parse() == Ok(id) && id != random());
    for text in ["", &text[1..], &format!("{text}A"), &format!("{text}="), &text.replace(&text[..1], "+")] {
        assert!(text.parse::<ReservationId>().is_err(), "{text}");
    }
    assert!(!format!("{id:?}").contains(&text));
}

#[test]
fn a_reservation_is_taken_once_and_within_its_hour() {
    let (engine, reservations) = (engine(), unshared());
    let [settled, late, last] = [random(), random(), random()];
    for id in [settled, late, last] {
        assert_eq!(reservations.put(id, reservation(&engine), GOOD, NOW), Ok(()));
    }
    assert!(reservations.take(settled, NOW).is_ok());
    assert!(reservations.take(last, NOW + LIFE_NS - 1).is_ok());
    for (now, gone) in [(NOW + LIFE_NS - 1, Gone::Settled), (NOW + LIFE_NS, Gone::Unknown)] {
        for id in [settled, last] {
            assert_eq!(reservations.take(id, now).err(), Some(gone));
        }
    }
    assert_eq!(reservations.take(late, NOW + LIFE_NS).err(), Some(Gone::Unknown));
    assert_eq!(reservations.take(random(), NOW).err(), Some(Gone::Unknown));
    assert_eq!(reservations.counts(), (0, 1));
}

#[test]
fn the_places_are_free_again_when_reservations_expire() {
    let (engine, reservations) = (engine(), unshared());
    let put = |id, now| reservations.put(id, reservation(&engine), GOOD, now);
    let first = random();
    assert_eq!(put(first, NOW), Ok(()));
    for _ in 1..OPEN_MAX {
        assert_eq!(put(random(), NOW + 1), Ok(()));
    }
    assert_eq!(put(random(), NOW + LIFE_NS - 1), Err(NoRoom::Table));
    assert_eq!(reservations.share_taken(GOOD, NOW + LIFE_NS - 1), None, "there are no shares");
    assert!(reservations.take(first, NOW + 1).is_ok());
    assert_eq!(put(random(), NOW + 1), Ok(()));
    assert_eq!(put(random(), NOW + 1 + LIFE_NS), Ok(()));
    assert_eq!(reservations.counts(), (OPEN_MAX - EXPIRED_REMOVED_MAX + 1, EXPIRED_REMOVED_MAX as u64));
    assert_eq!(reservations.refused(), [("caller", 0), ("table", 1)]);
}

#[test]
fn a_caller_that_has_its_share_leaves_room_for_others() {
    let (engine, reservations) = (engine(), Reservations::new(CallerShare::percent(50)));
    let put = |caller| {
        let id = random();
        reservations.put(id, reservation(&engine), caller, NOW).map(|()| id)
    };
    let held: Vec<_> = (0..OPEN_MAX).map_while(|_| put(HOSTILE).ok()).collect();
    assert_eq!(held.len(), OPEN_MAX / 2);
    assert_eq!(reservations.share_taken(HOSTILE, NOW), Some(ShareTaken { open: OPEN_MAX / 2 }));
    assert_eq!(reservations.share_taken(GOOD, NOW), None);
    assert_eq!((0..OPEN_MAX).map_while(|_| put(GOOD).ok()).count(), OPEN_MAX / 4);
    assert!((0..OPEN_MAX / 4).all(|place| reservations.take(held[place], NOW).is_ok()));
    assert!(put(GOOD).is_ok(), "as many places are free again");
    assert!(put(HOSTILE).is_ok(), "it is below its share");
}

#[test]
fn a_caller_with_few_reservations_is_not_refused_where_others_have_the_rest() {
    let (engine, reservations) = (engine(), Reservations::with_places(1_000, 1_000, CallerShare::percent(50)));
    let put = |caller| reservations.put(random(), reservation(&engine), caller, NOW);
    assert_eq!(put(GOOD), Ok(()));
    for hostile in (2..12).map(CallerKey::for_test) {
        while put(hostile).is_ok() {}
    }
    assert_eq!(reservations.counts().0, 1_000, "they have all the others");
    assert_eq!(reservations.share_taken(HOSTILE, NOW), Some(ShareTaken { open: 500 }));
    assert_eq!(reservations.share_taken(GOOD, NOW), None);
    assert_eq!(put(GOOD), Err(NoRoom::Caller), "what it is charged stands");
}

/// A settled reservation cannot be settled again, also once it is forgotten.
#[test]
fn a_caller_that_settles_without_end_leaves_others_their_reservations() {
    const SETTLED: usize = 100;
    let (engine, reservations) = (engine(), Reservations::with_places(1_000, SETTLED, CallerShare::percent(50)));
    let put = |caller| {
        let id = random();
        assert_eq!(reservations.put(id, reservation(&engine), caller, NOW), Ok(()));
        id
    };
    let [settled, open] = [put(GOOD), put(GOOD)];
    assert!(reservations.take(settled, NOW).is_ok());
    for number in 1..=2 * SETTLED {
        assert!(reservations.take(put(HOSTILE), NOW).is_ok());
        let gone = if number < SETTLED { Gone::Settled } else { Gone::Unknown };
        assert_eq!(reservations.take(settled, NOW).err(), Some(gone), "after {number}");
    }
    assert!(reservations.take(open, NOW).is_ok());
    assert_eq!(reservations.take(open, NOW).err(), Some(Gone::Settled));
    assert_eq!(reservations.counts(), (0, 0));
    assert_eq!(reservations.lock().settled.len(), SETTLED);
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(CallerKey),
    /// Settles or refunds the reservation with this index among all that were made.
    Settle(usize),
    Wait(u64),
    /// Resets what was used of all limits.
    Reset,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..4_u64).prop_map(|caller| Step::Reserve(CallerKey::for_test(caller))),
        3 => any::<usize>().prop_map(Step::Settle),
        1 => prop_oneof![0..SECOND_NS, 0..LIFE_NS / 2].prop_map(Step::Wait),
        1 => Just(Step::Reset),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn no_share_leaks_over_settlements_expiries_and_resets(steps in steps(), percent in 1..=100_u8) {
        let engine = engine();
        let reservations = Reservations::with_places(20, 1_000, CallerShare::percent(percent));
        let (mut now, mut made) = (NOW, Vec::new());
        for step in steps {
            match step {
                Step::Reserve(caller) => {
                    let id = random();
                    if reservations.put(id, reservation(&engine), caller, now).is_ok() {
                        made.push(id);
                    }
                }
                Step::Settle(place) if !made.is_empty() => {
                    let place = place % made.len();
                    let _ = reservations.take(made[place], now);
                }
                Step::Settle(_) => {}
                Step::Wait(ns) => now += ns,
                Step::Reset => {
                    let who = [Identity::new("user", "ada").expect("valid")];
                    engine.reset(&Request::new(&who).expect("valid"));
                }
            }
            let kept = reservations.lock();
            prop_assert!(kept.open.len() <= 20);
            prop_assert_eq!(kept.open.shares().sum(), kept.open.len());
        }
        now += LIFE_NS;
        for _ in 0..20 {
            reservations.lock().remove_expired(now);
        }
        prop_assert_eq!(reservations.counts().0, 0);
        prop_assert!(reservations.lock().open.shares() == OwnerCounts::default());
    }
}
