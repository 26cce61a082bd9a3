//! Who was refused, for the audit log: one by one as long as it is few, and the rest counted, so that a flood of refusals does
//! not fill the disk. Everybody has lines of his own, so that it hides nobody else either.

use std::{
    collections::HashMap,
    convert::Infallible,
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time;

use crate::{
    auth::audit_queue::Beside,
    base::addresses::network,
    domain::roles::SERVER,
    store::{audit::Audit, database::Store},
};

const MINUTE: Duration = Duration::from_mins(1);
/// The most of a path, a name or a reason that is kept, in characters.
const CHARACTERS_MAX: usize = 300;
/// Bits of a stranger's network.
const NETWORK_BITS: u8 = 64;

/// Where lines are written: the audit log of a store, by way of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditLog<'a> {
    pub(crate) store: &'a Store,
    pub(crate) queue: &'a Beside,
}

/// Refusals of this minute.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Minute>);

#[derive(Debug)]
struct Minute {
    known: Group,
    strangers: Group,
}

/// Some who were refused, each with lines of his own; those who find no place share the one without a name.
#[derive(Debug)]
struct Group {
    /// Lines of each that are written one by one.
    written_max: u32,
    places_max: usize,
    counts: HashMap<String, Counts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    written: u32,
    left_out: u64,
}

impl Default for Minute {
    fn default() -> Self {
        let group = |written_max, places_max| Group { written_max, places_max, counts: HashMap::new() };
        Self { known: group(60, 1_000), strangers: group(20, 30) }
    }
}

impl Group {
    /// Is there room for another one of whoever is called so? Otherwise it is counted.
    fn has_room(&mut self, name: &str) -> bool {
        let has_place = self.counts.contains_key(name) || self.counts.len() < self.places_max;
        let counts = self.counts.entry(if has_place { name } else { "" }.to_owned()).or_default();
        let has_room = counts.written < self.written_max;
        if has_room {
            counts.written += 1;
        } else {
            counts.left_out += 1;
        }
        has_room
    }

    /// Of whom some were left out, and how many.
    fn left_out(self) -> impl Iterator<Item = (String, u64)> {
        self.counts.into_iter().map(|(name, counts)| (name, counts.left_out)).filter(|(_, count)| *count > 0)
    }
}

impl Refusals {
    fn has_room(&self, line: &Audit<'_>) -> bool {
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match line.actor {
            "" => minute.strangers.has_room(&network(line.address, NETWORK_BITS)),
            known => minute.known.has_room(known),
        }
    }

    /// Has a refusal written, or counts it. What the database says against it is in the server's log: the refusal stands.
    pub(crate) fn write(&self, log: AuditLog<'_>, line: Audit<'_>) {
        if self.has_room(&line) {
            write(log, line);
        }
    }

    /// Begins a minute, and has written how many the one before left out.
    pub(crate) fn turn(&self, log: AuditLog<'_>) {
        let Minute { known, strangers } = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let more = |address: &str, result: &str| {
            write(log, Audit { actor: SERVER, address, action: "refused", object: "", result, request_id: "" });
        };
        for (name, count) in known.left_out() {
            let of = if name.is_empty() { "others" } else { &name };
            more("", &format!("{count} more of {of} within a minute"));
        }
        for (network, count) in strangers.left_out() {
            let of = if network.is_empty() { " of other addresses" } else { "" };
            more(&network, &format!("{count} more{of} within a minute"));
        }
    }

    /// Turns once a minute, for ever.
    pub(crate) async fn run(&self, log: AuditLog<'_>) -> Infallible {
        let mut minutes = time::interval_at(time::Instant::now() + MINUTE, MINUTE);
        loop {
            minutes.tick().await;
            self.turn(log);
        }
    }
}

fn write(log: AuditLog<'_>, line: Audit<'_>) {
    let (store, action) = (log.store.clone(), line.action.to_owned());
    let [actor, address, object, result, request_id] =
        [shown(line.actor), line.address.into(), shown(line.object), shown(line.result), line.request_id.into()];
    log.queue.write(async move {
        let (actor, address, action, object) = (&actor, &address, &action, &object);
        let line = Audit { actor, address, action, object, result: &result, request_id: &request_id };
        if let Err(error) = store.audit(line).await {
            tracing::warn!(%error, action, "a refusal is not in the audit log");
        }
    });
}

/// Whoever asks chooses it: no more of it is kept, and nothing that would be read as more than one line.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_hides_nobody_else() {
        let refusals = Refusals::default();
        let written = |actor, address: &str, tries| {
            let line = Audit { actor, address, action: "refused", object: "", result: "", request_id: "" };
            (0..tries).filter(|_| refusals.has_room(&line)).count()
        };
        assert_eq!(written("", "192.0.2.1", 1_000), 20);
        assert_eq!(written("", "192.0.2.2", 1), 1, "another address");
        assert_eq!(written("", "2001:db8::1", 1_000), 20);
        assert_eq!(written("", "2001:db8::2", 1), 0, "of the same network");
        assert_eq!(written("ana", "192.0.2.1", 1_000), 60, "somebody who is known");
        assert_eq!(written("token:ci", "192.0.2.1", 1), 1, "another one");
        // So many addresses have a place, and the others share one.
        assert_eq!((0..1_000).map(|n| written("", &format!("198.51.100.{n}"), 1)).sum::<usize>(), 27 + 20);
        assert_eq!(written("ben", "192.0.2.1", 1), 1);
        let minute = mem::take(&mut *refusals.0.lock().expect("whole"));
        let mut left_out: Vec<_> = minute.strangers.left_out().collect();
        left_out.sort_unstable();
        let of = |name: &str, count| (name.to_owned(), count);
        assert_eq!(left_out, [of("", 1_000 - 47), of("192.0.2.1", 980), of("2001:db8::", 981)]);
        assert_eq!(minute.known.left_out().collect::<Vec<_>>(), [of("ana", 940)]);
    }

    #[test]
    fn what_is_shown_is_short_and_one_line() {
        assert_eq!(shown("a\u{7}b\n"), "ab");
        assert_eq!(shown(&"x".repeat(1_000)).len(), CHARACTERS_MAX);
    }
}
