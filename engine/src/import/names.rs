//! Names that our policies take, made of names that may be anything.

use std::collections::{BTreeMap, BTreeSet};

use super::{Notes, Place};
use crate::{
    policy::{EVERYONE, ID_BYTES_MAX, is_id},
    request::{KIND_BYTES_MAX, is_kind},
};

/// Ids of one list, each once.
#[derive(Debug, Default)]
pub(super) struct Ids(Taken);

impl Ids {
    /// An id like `name`.
    pub(super) fn like(&mut self, name: &str) -> String {
        self.0.take(&id_of(name), ID_BYTES_MAX, '-')
    }

    /// Keeps a name that is an id for whoever has it, so that a name like it gets another.
    pub(super) fn keep(&mut self, name: &str) {
        if is_id(name) {
            self.0.kept.insert(name.to_owned());
        }
    }

    /// The id of `name`: its own, if it was kept.
    pub(super) fn of(&mut self, name: &str) -> String {
        if self.0.kept.contains(name) { name.to_owned() } else { self.like(name) }
    }
}

/// `name` as an id: `[a-z][a-z0-9_-]{0,63}`.
pub(super) fn id_of(name: &str) -> String {
    if is_id(name) { name.to_owned() } else { plain(name, '-', "id", ID_BYTES_MAX) }
}

/// Can `key` be a kind as it is?
fn is_free_kind(key: &str) -> bool {
    is_kind(key) && key != EVERYONE
}

/// The kinds of one domain, by the key that they stand for, and the how manieth such key of its descriptor that is.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    by_key: BTreeMap<(String, usize), String>,
    taken: Taken,
}

/// Names of which each is given once.
#[derive(Debug, Default)]
struct Taken {
    names: BTreeSet<String>,
    /// Whose they are is known beforehand.
    kept: BTreeSet<String>,
    /// With which number to go on, by name: a file may have one name ten thousand times.
    next: BTreeMap<String, u64>,
}

impl Taken {
    /// `name`, or it with the first number that is free.
    fn take(&mut self, name: &str, bytes_max: usize, separator: char) -> String {
        let mut numbered = name.to_owned();
        let next = self.next.entry(name.to_owned()).or_insert(2);
        while self.kept.contains(&numbered) || !self.names.insert(numbered.clone()) {
            let suffix = format!("{separator}{next}");
            *next += 1;
            numbered = format!("{}{suffix}", &name[..name.len().min(bytes_max - suffix.len())]);
        }
        numbered
    }
}

impl Kinds {
    /// The kind of the `nth` entry (from 0) with this key in a descriptor.
    pub(super) fn of(&mut self, at: &Place, notes: &mut Notes, field: &str, key: &str, nth: usize) -> String {
        if let Some(kind) = self.by_key.get(&(key.to_owned(), nth)) {
            return kind.clone();
        }
        let kind = if nth == 0 && self.taken.kept.contains(key) {
            key.to_owned()
        } else {
            let like = match written(key, '_') {
                lower if lower == EVERYONE => format!("{EVERYONE}_"),
                _ if is_kind(key) => key.to_owned(),
                _ => plain(key, '_', "k", KIND_BYTES_MAX),
            };
            self.taken.take(&like, KIND_BYTES_MAX, '_')
        };
        if kind != key {
            let instead = format!("it is the kind `{kind}`: requests say so");
            let what = match nth {
                0 => format!("`{key}` is not a kind of identity"),
                _ => format!("a second `{key}`; a request has each kind once"),
            };
            notes.warn(at, field, what, instead);
        }
        self.by_key.insert((key.to_owned(), nth), kind.clone());
        kind
    }

    /// Keeps a key that is a kind as it is, so that a key like it gets another.
    pub(super) fn keep(&mut self, key: &str) {
        if is_free_kind(key) {
            self.taken.kept.insert(key.to_owned());
        }
    }
}

/// In lower case, with `other` for what a name may not have.
fn written(name: &str, other: char) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == other;
    name.chars().map(|c| c.to_ascii_lowercase()).map(|c| if fits(c) { c } else { other }).collect()
}

/// The same, beginning with a letter and of at most `bytes_max`.
fn plain(name: &str, other: char, before: &str, bytes_max: usize) -> String {
    let mut plain = written(name, other);
    if !plain.starts_with(|c: char| c.is_ascii_lowercase()) {
        plain = format!("{before}{other}{plain}");
    }
    plain.truncate(bytes_max);
    plain.trim_end_matches(other).to_owned()
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_to_fit() {
        let mut ids = Ids::default();
        let long = "a".repeat(70);
        for (name, id) in [
            ("gold", "gold"),
            ("gold", "gold-2"),
            ("Gold Plan!", "gold-plan"),
            ("/api/v1", "id--api-v1"),
            ("", "id"),
            ("404", "id-404"),
            (long.as_str(), &long[..64]),
            (long.as_str(), &format!("{}-2", &long[..62])),
            ("ends-in_", "ends-in_"),
            ("gold", "gold-3"),
        ] {
            assert_eq!(ids.like(name), id, "{name}");
        }
        // Whoever has a right name has it, wherever it stands.
        ids.keep("silver");
        for (name, id) in [("Silver", "silver-2"), ("silver", "silver"), ("silver", "silver"), ("SILVER", "silver-3")] {
            assert_eq!(ids.of(name), id, "{name}");
        }
        let (at, mut notes, mut kinds) =
            (Place { file: 0, line: 1, path: String::new() }, Notes::default(), Kinds::default());
        for key in ["user", "tenant_", "everyone", "Agent"] {
            kinds.keep(key);
        }
        for (key, nth, kind, changes) in [
            ("api_key", 0, "api_key", None),
            ("remote.Address", 0, "remote_address", Some(true)),
            ("User", 0, "user_2", Some(true)),
            ("user", 0, "user", None),
            ("user", 1, "user_3", Some(true)),
            ("tenant_", 0, "tenant_", None),
            ("agent", 0, "agent", None),
            ("api-key", 0, "api_key_2", Some(true)),
            ("api_key", 1, "api_key_3", Some(true)),
            ("api-key", 0, "api_key_2", None),
            ("everyone", 0, "everyone_", Some(true)),
            ("1st", 0, "k_1st", Some(true)),
        ] {
            notes.0.clear();
            assert_eq!(kinds.of(&at, &mut notes, "key", key, nth), kind, "{key}");
            assert_eq!(notes.0.first().map(|(_, note)| note.changes_decisions), changes, "{key}");
        }
    }
}
