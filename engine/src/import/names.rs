//! Names that our policies take, made of names that may be anything.

use std::collections::{BTreeMap, BTreeSet};

use super::{Notes, Place};
use crate::request::KIND_BYTES_MAX;

const ID_BYTES_MAX: usize = 64;

/// Ids of one list, each once.
#[derive(Debug, Default)]
pub(super) struct Ids(BTreeSet<String>);

impl Ids {
    /// An id like `name`.
    pub(super) fn like(&mut self, name: &str) -> String {
        numbered(&id_of(name), ID_BYTES_MAX, '-', |id| self.0.insert(id.to_owned()))
    }
}

/// `name` as an id: `[a-z][a-z0-9_-]{0,63}`.
pub(super) fn id_of(name: &str) -> String {
    plain(name, '-', "id", ID_BYTES_MAX)
}

/// The kinds of one domain, by the key that they stand for, and the how manieth such key of its descriptor that is.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    by_key: BTreeMap<(String, usize), String>,
    taken: BTreeSet<String>,
}

impl Kinds {
    /// The kind of the `nth` entry (from 0) with this key in a descriptor.
    pub(super) fn of(&mut self, at: &Place, notes: &mut Notes, field: &str, key: &str, nth: usize) -> String {
        if let Some(kind) = self.by_key.get(&(key.to_owned(), nth)) {
            return kind.clone();
        }
        let lower = written(key, '_');
        let like = if lower == "everyone" { "everyone_".to_owned() } else { plain(key, '_', "k", KIND_BYTES_MAX) };
        let kind = numbered(&like, KIND_BYTES_MAX, '_', |kind| self.taken.insert(kind.to_owned()));
        if kind != key {
            let instead = format!("it is the kind `{kind}`: requests say so");
            match (kind == lower, nth) {
                (true, _) => notes.tell(at, field, format!("`{key}` is not a kind of identity"), instead),
                (false, 0) => notes.warn(at, field, format!("`{key}` is not a kind of identity, or is taken"), instead),
                _ => notes.warn(at, field, format!("a second `{key}`; a request has each kind once"), instead),
            }
        }
        self.by_key.insert((key.to_owned(), nth), kind.clone());
        kind
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

/// `name`, or it with the first number that `is_free`.
fn numbered(name: &str, bytes_max: usize, separator: char, mut is_free: impl FnMut(&str) -> bool) -> String {
    let mut numbered = name.to_owned();
    for number in 2.. {
        if is_free(&numbered) {
            break;
        }
        let suffix = format!("{separator}{number}");
        numbered = format!("{}{suffix}", &name[..name.len().min(bytes_max - suffix.len())]);
    }
    numbered
}

#[cfg(test)]
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
        ] {
            assert_eq!(ids.like(name), id, "{name}");
        }
        let (at, mut notes, mut kinds) =
            (Place { file: String::new(), line: 1, path: String::new() }, Notes::default(), Kinds::default());
        for (key, nth, kind, changes) in [
            ("api_key", 0, "api_key", None),
            ("remote.Address", 0, "remote_address", Some(false)),
            ("api-key", 0, "api_key_2", Some(true)),
            ("api_key", 1, "api_key_3", Some(true)),
            ("api-key", 0, "api_key_2", None),
            ("everyone", 0, "everyone_", Some(true)),
            ("1st", 0, "k_1st", Some(true)),
        ] {
            notes.0.clear();
            assert_eq!(kinds.of(&at, &mut notes, "key", key, nth), kind, "{key}");
            assert_eq!(notes.0.first().map(|note| note.changes_decisions), changes, "{key}");
        }
    }
}
