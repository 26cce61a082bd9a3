//! Converts the names of other limiters' files to ids and kinds of our policies.

use std::collections::{BTreeMap, BTreeSet};

use super::{Notes, SourcePosition, regions::kind_of};
use crate::{
    base::address::IP,
    policy::document::{ID_BYTES_MAX, is_id},
};

/// The ids of one list, each given once.
#[derive(Debug, Default)]
pub(super) struct Ids(Taken);

impl Ids {
    /// Returns an unused id like `name`.
    pub(super) fn like(&mut self, name: &str) -> String {
        self.0.take(&id_of(name))
    }

    /// Reserves a name that is an id already, so that a similar name gets another id.
    pub(super) fn keep(&mut self, name: &str) {
        if is_id(name) {
            self.0.kept.insert(name.to_owned());
        }
    }

    /// Returns the id for `name`: the name itself, if it is reserved.
    pub(super) fn of(&mut self, name: &str) -> String {
        if self.0.kept.contains(name) { name.to_owned() } else { self.like(name) }
    }
}

/// Converts a name to an id: `[a-z][a-z0-9_-]{0,63}`.
pub(super) fn id_of(name: &str) -> String {
    if is_id(name) { name.to_owned() } else { plain(name) }
}

/// A set of names, each given once.
#[derive(Debug, Default)]
struct Taken {
    names: BTreeSet<String>,
    /// The reserved names.
    kept: BTreeSet<String>,
    /// The next number of each name: a file may have one name ten thousand times.
    next: BTreeMap<String, u64>,
}

impl Taken {
    /// Returns `name`, or `name` with the first unused number.
    fn take(&mut self, name: &str) -> String {
        let mut numbered = name.to_owned();
        let next = self.next.entry(name.to_owned()).or_insert(2);
        while self.kept.contains(&numbered) || !self.names.insert(numbered.clone()) {
            let suffix = format!("-{next}");
            *next += 1;
            numbered = format!("{}{suffix}", &name[..name.len().min(ID_BYTES_MAX - suffix.len())]);
        }
        numbered
    }
}

/// The keys of one domain, by their kinds.
#[derive(Debug, Default)]
pub(super) struct DomainKeys(BTreeMap<String, BTreeSet<String>>);

impl DomainKeys {
    /// Reports, at the first occurrence of each key, that its kind is spelled differently or is also the kind of another key.
    pub(super) fn note(&mut self, at: &SourcePosition, notes: &mut Notes, field: &str, key: &str, kind: &str) {
        let keys = self.0.entry(kind.to_owned()).or_default();
        let other = keys.first().cloned();
        if !keys.insert(key.to_owned()) {
            return;
        }
        if kind == IP && other.is_none() {
            let what = "the kind `ip`, whose values are addresses";
            let instead = "all spellings of an address are one, and an IPv6 address is counted by its network: that of 64 bits, \
                           or as `--ipv6-prefix` of the server says";
            notes.warn(at, field, what, instead);
        }
        if let Some(other) = other {
            let what = format!("`{key}` is the kind `{kind}` as `{other}` is");
            return notes.warn(at, field, what, "what the file says of the one holds for the other too");
        }
        if kind == key {
            return;
        }
        let is_second = kind_of(key, &[]) != kind;
        let what = if is_second { format!("a second `{key}`") } else { format!("`{key}` is not a kind of identity") };
        notes.note(at, field, what, format!("it is the kind `{kind}`, also in what Envoy asks"));
    }
}

/// Returns a name in lower case that begins with a letter, with `-` for characters that an id cannot have.
fn plain(name: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let mut plain: String =
        name.chars().map(|c| c.to_ascii_lowercase()).map(|c| if fits(c) { c } else { '-' }).collect();
    if !plain.starts_with(|c: char| c.is_ascii_lowercase()) {
        plain = format!("id-{plain}");
    }
    plain.truncate(ID_BYTES_MAX);
    plain.trim_end_matches('-').to_owned()
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_become_unique_ids() {
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
        // A reserved name stays the same, at any position.
        ids.keep("silver");
        for (name, id) in [("Silver", "silver-2"), ("silver", "silver"), ("silver", "silver"), ("SILVER", "silver-3")] {
            assert_eq!(ids.of(name), id, "{name}");
        }
    }

    #[test]
    fn keys_of_another_spelling_are_reported_once() {
        let (at, mut notes, mut keys) =
            (SourcePosition { file: 0, line: 1, path: String::new() }, Notes::default(), DomainKeys::default());
        let mut tell = |key: &str, earlier: &[&str]| {
            let earlier: Vec<String> = earlier.iter().map(|kind| (*kind).to_owned()).collect();
            notes.0.clear();
            keys.note(&at, &mut notes, "key", key, &kind_of(key, &earlier));
            notes.0.pop().filter(|(_, note)| note.line > 0).map(|(_, note)| (note.what, note.changes_decisions))
        };
        let note = |what: &str, changes| Some((what.to_owned(), changes));
        for (key, earlier, what) in [
            ("api_key", &[][..], None),
            ("remote.Address", &[], note("`remote.Address` is not a kind of identity", false)),
            ("remote.Address", &[], None),
            ("remote-address", &[], note("`remote-address` is the kind `remote_address` as `remote.Address` is", true)),
            ("user", &["user"], note("a second `user`", false)),
            ("user_2", &[], note("`user_2` is the kind `user_2` as `user` is", true)),
            ("PATH", &[], note("`PATH` is not a kind of identity", false)),
            ("endpoint", &[], None),
        ] {
            assert_eq!(tell(key, earlier), what, "{key}");
        }
    }
}
