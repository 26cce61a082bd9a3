use tidegate::{Engine, Identity, Request, clock::ManualClock};

use super::*;

const NOW: Nanos = 1_700_000_000 * SECOND_NS;

fn reservation(engine: &Engine<ManualClock>) -> Held {
    let who = [Identity::new("user", "ada").expect("valid")];
    Held::Here(engine.reserve(&Request::new(&who).expect("valid")).1.expect("allowed"))
}

fn engine() -> Engine<ManualClock> {
    Engine::for_simulation(10, ManualClock::at(NOW), 7)
}

fn random() -> ReservationId {
    ReservationId::random().expect("the system has secrets")
}

#[test]
fn an_id_is_text_that_is_read_back_and_nothing_else_is() {
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
fn one_is_taken_once_and_within_its_hour() {
    let (engine, reservations) = (engine(), Reservations::default());
    let [settled, late, last] = [random(), random(), random()];
    for id in [settled, late, last] {
        reservations.put(id, reservation(&engine), NOW);
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
fn there_is_room_for_so_many_and_again_when_they_are_over() {
    let (engine, reservations) = (engine(), Reservations::default());
    let first = random();
    reservations.put(first, reservation(&engine), NOW);
    for _ in 1..OPEN_MAX {
        assert!(reservations.has_room(NOW));
        reservations.put(random(), reservation(&engine), NOW + 1);
    }
    assert!(!reservations.has_room(NOW + LIFE_NS - 1));
    assert!(reservations.take(first, NOW + 1).is_ok());
    assert!(reservations.has_room(NOW + 1));
    reservations.put(random(), reservation(&engine), NOW + 1);
    assert!(reservations.has_room(NOW + 1 + LIFE_NS));
    assert_eq!(reservations.counts(), (OPEN_MAX - CLEARED_MAX, CLEARED_MAX as u64));
}
