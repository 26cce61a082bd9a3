//! A policy while changes are made on it: its objects are found, put and taken out by name, at a cost that does not grow
//! with the clients for each change.

use std::collections::{BTreeMap, BTreeSet};

use tidegate::policy::{Client, Domain, Policy};

use crate::domain::objects::{self, Kind, Object, ObjectKey};

/// No object is changed twice, so clients stay where they are until [`done`](Self::done).
pub(crate) struct Editing {
    policy: Policy,
    /// By domain.
    new_clients: BTreeMap<String, Vec<Client>>,
    /// Places of clients that go, by domain.
    gone_clients: BTreeMap<String, BTreeSet<usize>>,
}

impl Editing {
    /// Of a policy whose clients are in order.
    pub(crate) fn of(policy: Policy) -> Self {
        Self { policy, new_clients: BTreeMap::new(), gone_clients: BTreeMap::new() }
    }

    /// An object as it was before, with its place in the list of its domain.
    pub(crate) fn find(&self, key: &ObjectKey) -> Option<(usize, Object)> {
        objects::find(&self.policy, key)
    }

    pub(crate) fn has_domain(&self, name: &str) -> bool {
        self.policy.domains.contains_key(name)
    }

    /// Puts `object` in its place, or beside the others of its kind. Its domain is there, unless it is one itself.
    pub(crate) fn put(&mut self, key: &ObjectKey, place: Option<usize>, object: Object) {
        if let Object::Domain(settings) = object {
            let domain = self.policy.domains.entry(key.domain.clone()).or_default();
            let Domain { tiers, rules, clients, .. } = std::mem::take(domain);
            *domain = Domain { tiers, rules, clients, ..*settings };
            return;
        }
        let Some(domain) = self.policy.domains.get_mut(&key.domain) else { return };
        match object {
            Object::Tier(tier) => put_in(&mut domain.tiers, place, tier),
            Object::Rule(rule) => put_in(&mut domain.rules, place, rule),
            Object::Client(client) => match place {
                Some(_) => put_in(&mut domain.clients, place, client),
                None => self.new_clients.entry(key.domain.clone()).or_default().push(client),
            },
            Object::Domain(_) => {}
        }
    }

    /// Takes an object out, and answers what went: a domain goes with all that is in it.
    pub(crate) fn remove(&mut self, key: &ObjectKey, place: usize) -> Vec<ObjectKey> {
        let mut gone = vec![key.clone()];
        let Some(domain) = self.policy.domains.get_mut(&key.domain) else { return gone };
        match key.kind {
            Kind::Tier => drop(domain.tiers.remove(place)),
            Kind::Rule => drop(domain.rules.remove(place)),
            Kind::Client => drop(self.gone_clients.entry(key.domain.clone()).or_default().insert(place)),
            Kind::Domain => {
                gone = objects::all_of(&key.domain, domain).map(|(key, _)| key).collect();
                self.policy.domains.remove(&key.domain);
            }
        }
        gone
    }

    /// The policy with all changes made, its clients in order.
    pub(crate) fn done(self) -> Policy {
        let Self { mut policy, new_clients, gone_clients } = self;
        for (name, gone) in gone_clients {
            let Some(domain) = policy.domains.get_mut(&name) else { continue };
            let mut places = 0..;
            domain.clients.retain(|_| places.next().is_none_or(|place| !gone.contains(&place)));
        }
        for (name, clients) in new_clients {
            if let Some(domain) = policy.domains.get_mut(&name) {
                domain.clients.extend(clients);
            }
        }
        objects::sort_clients(&mut policy);
        policy
    }
}

fn put_in<T>(list: &mut Vec<T>, place: Option<usize>, object: T) {
    match place.and_then(|place| list.get_mut(place)) {
        Some(present) => *present = object,
        None => list.push(object),
    }
}
