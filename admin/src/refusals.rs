//! Who was refused, for the audit log: one by one as long as it is few, and the rest counted, so that a flood of refusals does
//! not fill the disk.

use std::{
    convert::Infallible,
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time;

use crate::store::{Audit, Store};

/// So many are written one by one in a minute.
const WRITTEN_MAX: u32 = 60;
const MINUTE: Duration = Duration::from_mins(1);
/// The most of a path or a name that is kept, in characters.
const CHARACTERS_MAX: usize = 200;

/// Refusals of this minute.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    written: u32,
    left_out: u64,
}

impl Refusals {
    /// Is there room for another one? Otherwise it is counted.
    fn has_room(&self) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = counts.written < WRITTEN_MAX;
        if has_room {
            counts.written += 1;
        } else {
            counts.left_out += 1;
        }
        has_room
    }

    /// Writes a refusal, or counts it. What the database says against it is in the server's log: the refusal stands.
    pub(crate) async fn write(&self, store: &Store, line: Audit<'_>) {
        if !self.has_room() {
            return;
        }
        let (actor, object) = (shown(line.actor), shown(line.object));
        if let Err(error) = store.audit(Audit { actor: &actor, object: &object, ..line }).await {
            tracing::warn!(%error, action = line.action, "a refusal is not in the audit log");
        }
    }

    /// Begins a minute, and writes how many the one before left out.
    pub(crate) async fn turn(&self, store: &Store) {
        let Counts { left_out, .. } = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if left_out == 0 {
            return;
        }
        let result = format!("{left_out} more within a minute");
        let line = Audit { actor: "tidegate", address: "", action: "refused", object: "", result: &result };
        if let Err(error) = store.audit(line).await {
            tracing::warn!(%error, left_out, "refusals are not in the audit log");
        }
    }

    /// Turns once a minute, for ever.
    pub(crate) async fn run(&self, store: &Store) -> Infallible {
        let mut minutes = time::interval_at(time::Instant::now() + MINUTE, MINUTE);
        loop {
            minutes.tick().await;
            self.turn(store).await;
        }
    }
}

/// Whoever asks chooses it: no more of it is kept, and nothing that would be read as more than one line.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted() {
        let refusals = Refusals::default();
        let written = (0..1_000).filter(|_| refusals.has_room()).count();
        assert_eq!(written, WRITTEN_MAX as usize);
        assert_eq!(refusals.0.lock().expect("whole").left_out, 1_000 - u64::from(WRITTEN_MAX));
        assert_eq!(shown("a\u{7}b\n"), "ab");
        assert_eq!(shown(&"x".repeat(1_000)).len(), CHARACTERS_MAX);
    }
}
