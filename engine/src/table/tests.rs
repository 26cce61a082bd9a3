//! Which slot a new key takes.

use super::*;

fn key(name: u64) -> Key {
    Key::new(7, name.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Two lines, so every key may be in either; `name` is touched at time 0, and idle from `idle` on.
fn touch(table: &Table, name: u64, now: Nanos, idle: Nanos) {
    let write = |_: Option<Held>, _: Nanos| Next::Write(Held { word: idle, ..Held::default() }, ());
    assert_eq!(table.update(key(name), now, || now, &mut Met::default(), write), Ok(()), "key {name}");
}

fn present(table: &Table, names: std::ops::Range<u64>) -> Vec<u64> {
    names.filter(|name| table.has(key(*name))).collect()
}

#[test]
fn an_empty_slot_is_taken_before_an_idle_one() {
    let table = Table::new(1);
    for name in 0..8 {
        // All the others are idle by then.
        touch(&table, name, 100 * name, 100 * name + 1);
        assert_eq!(present(&table, 0..8).len() as u64, name + 1, "nobody's slot was taken");
    }
}

#[test]
fn the_slot_that_has_been_idle_for_the_longest_is_taken() {
    // In another order than that of places.
    for longest in 0..8 {
        let table = Table::new(1);
        for name in 0..8 {
            touch(&table, name, 0, 10 + (name + 8 - longest) % 8);
        }
        touch(&table, 8, 1_000, 2_000);
        let expected: Vec<u64> = (0..9).filter(|name| *name != longest).collect();
        assert_eq!(present(&table, 0..9), expected);
        // Now the line of the new key has fewer that are idle, so the next one takes the oldest of the other line.
        touch(&table, 9, 1_000, 2_000);
        let [first, second] = table.candidates(0);
        let live = |line: &Line| line.iter().filter(|cell| !Swap::load(*cell).is_free(1_000)).count();
        assert_eq!((live(first), live(second)), (1, 1));
    }
}
