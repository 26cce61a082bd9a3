//! Collects the kinds of identity that a domain names.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    iter,
};

use crate::{
    base::hash::kind_hash,
    policy::{
        client_map::ClientMap,
        compiled::DomainKind,
        document::{self, ClientRef, EVERYONE},
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
    let with_clients: Vec<_> =
        previous.values().filter(|kind| kind.clients.len() > 0).map(|kind| kind.name.clone()).collect();
    let mut names: BTreeSet<&str> = domain.defaults.keys().map(String::as_str).collect();
    names.extend(with_clients.iter().map(|name| &**name));
    let mut counts: HashMap<&str, usize> = HashMap::new();
    // Neighbours mostly have the same kind, which is looked up once.
    let mut clients = clients.peekable();
    while let Some(ClientRef { kind, .. }) = clients.next() {
        let more = iter::from_fn(|| clients.next_if(|next| next.kind == kind)).count();
        *counts.entry(kind).or_default() += 1 + more;
    }
    names.extend(counts.keys());
    let of_rule = |rule: &'p document::Rule| rule.per.kinds().iter().chain(rule.condition.keys());
    names.extend(domain.rules.iter().flat_map(of_rule).map(String::as_str));
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
