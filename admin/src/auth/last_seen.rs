//! When somebody was last here: written once a minute at most, however often he asks.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Seconds between two notes about the same one.
const EVERY_S: i64 = 60;
/// So many are remembered before those are forgotten whose minute is over.
const COUNT: usize = 1_000;

/// Notes that were made in the last minute: SHA-256 of the session or token, and when in Unix seconds.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashMap<String, i64>>);

impl Seen {
    /// Is it time for another note? `noted_at` is what the database has.
    pub(crate) fn is_due(&self, id: &str, noted_at: i64, now: i64) -> bool {
        if now < noted_at + EVERY_S {
            return false;
        }
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if made.get(id).is_some_and(|at| now < at + EVERY_S) {
            return false;
        }
        if made.len() >= COUNT {
            made.retain(|_, at| now < *at + EVERY_S);
        }
        made.insert(id.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_due_once_a_minute() {
        let seen = Seen::default();
        assert!(!seen.is_due("a", 100, 159), "the database knows");
        assert!(seen.is_due("a", 100, 160));
        assert!(!seen.is_due("a", 100, 160) && !seen.is_due("a", 100, 219), "it is being written");
        assert!(seen.is_due("b", 0, 160), "another");
        assert!(seen.is_due("a", 100, 220), "that one was not written");
        for id in 0..3_000 {
            assert!(seen.is_due(&id.to_string(), 0, 1_000 + id));
        }
        assert!(seen.0.lock().expect("whole").len() <= COUNT + 1);
    }
}
