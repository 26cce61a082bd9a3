//! Collects the kinds of identity that a domain names.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    iter, slice,
};

use crate::{
    base::hash::kind_hash,
    policy::{
        client_map::ClientMap,
        compiled::DomainKind,
        document::{self, ClientRef, EVERYONE, Per},
        request::is_kind,
    },
};

/// Returns every kind that the domain names, ordered by name, so that the order of the file does not change any key. Kinds in
/// `previous` keep their clients.
pub(super) fn kinds_of<'p>(
    domain: &'p document::Domain,
    clients: impl Iterator<Item = ClientRef<'p>>,
    previous: Vec<DomainKind>,
) -> Vec<DomainKind> {
    let mut previous: BTreeMap<Box<str>, DomainKind> =
        previous.into_iter().map(|kind| (kind.name.clone(), kind)).collect();
    let per = |rule: &'p document::Rule| match &rule.per {
        Per::One(kind) => slice::from_ref(kind),
        Per::Each(kinds) => kinds,
    };
    let with_clients: Vec<_> =
        previous.values().filter(|kind| kind.clients.len() > 0).map(|kind| kind.name.clone()).collect();
    let mut names: BTreeSet<&str> = domain.defaults.keys().map(String::as_str).collect();
    names.extend(with_clients.iter().map(|name| &**name));
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (client, count) in runs(clients, |one, other| one.kind == other.kind) {
        *counts.entry(client.kind).or_default() += count;
    }
    names.extend(counts.keys());
    names
        .extend(domain.rules.iter().flat_map(|rule| per(rule).iter().chain(rule.condition.keys())).map(String::as_str));
    let new = |name: &str| DomainKind {
        hash: kind_hash(name),
        name: name.into(),
        default_tier: None,
        clients: ClientMap::with_room_for(name, counts.get(name).copied().unwrap_or(0)),
        exceptions: Vec::new(),
        members: Vec::new(),
    };
    let kind = |name: &str| previous.remove(name).unwrap_or_else(|| new(name));
    names.into_iter().filter(|name| is_kind(name) && *name != EVERYONE).map(kind).collect()
}

/// Returns the first client of each run of equal neighbours, and the length of the run.
fn runs<'p>(
    clients: impl Iterator<Item = ClientRef<'p>>,
    is_like: impl Fn(&ClientRef<'p>, &ClientRef<'p>) -> bool,
) -> impl Iterator<Item = (ClientRef<'p>, usize)> {
    let mut clients = clients.peekable();
    iter::from_fn(move || {
        let first = clients.next()?;
        let mut count = 1;
        while clients.next_if(|next| is_like(&first, next)).is_some() {
            count += 1;
        }
        Some((first, count))
    })
}
