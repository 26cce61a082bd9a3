//! Converts the names of other limiters' files to ids and kinds of our policies.

use std::collections::{BTreeMap, BTreeSet};

use super::{Notes, SourcePosition, regions::kind_of};
use crate::{
    base::address::IP,
    policy::document::{ID_BYTES_MAX, is_id},
};

/// The ids of one list, each given once.
#[derive(Debug, Default)]
pub(super) struct Ids {
    given: BTreeSet<String>,
    /// The next number of each id: a file may have one name ten thousand times.
    next: BTreeMap<String, u64>,
}

impl Ids {
    /// Returns an unused id like `name`: with the first unused number, if the id itself is in use.
    pub(super) fn like(&mut self, name: &str) -> String {
        let id = id_of(name);
        let mut numbered = id.clone();
        let next = self.next.entry(id.clone()).or_insert(2);
        while !self.given.insert(numbered.clone()) {
            let suffix = format!("-{next}");
            *next += 1;
            numbered = format!("{}{suffix}", &id[..id.len().min(ID_BYTES_MAX - suffix.len())]);
        }
        numbered
    }
}

/// Returns the ids of domains by their names in the files. A name that is an id stays as it is.
pub(super) fn domain_ids<'n>(names: impl Iterator<Item = &'n String>) -> BTreeMap<String, String> {
    let (kept, others): (Vec<_>, Vec<_>) = names.partition(|name| is_id(name));
    let (mut ids, mut by_name) = (Ids::default(), BTreeMap::new());
    for name in kept.into_iter().chain(others) {
        by_name.entry(name.clone()).or_insert_with(|| ids.like(name));
    }
    by_name
}

/// Converts a name to an id, `[a-z][a-z0-9_-]{0,63}`: in lower case, after `id-` if it does not begin with a letter, with `-` for
/// characters that an id cannot have.
pub(super) fn id_of(name: &str) -> String {
    if is_id(name) {
        return name.to_owned();
    }
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let mut id: String = name.chars().map(|c| c.to_ascii_lowercase()).map(|c| if fits(c) { c } else { '-' }).collect();
    if !id.starts_with(|c: char| c.is_ascii_lowercase()) {
        id = format!("id-{id}");
    }
    id.truncate(ID_BYTES_MAX);
    id.trim_end_matches('-').to_owned()
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
    }

    #[test]
    fn a_name_of_a_domain_that_is_an_id_stays_at_any_position() {
        let names = ["Silver", "silver", "silver", "SILVER"].map(str::to_owned);
        let ids = [("Silver", "silver-2"), ("silver", "silver"), ("SILVER", "silver-3")];
        assert_eq!(domain_ids(names.iter()), ids.map(|(name, id)| (name.to_owned(), id.to_owned())).into());
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
