//! Counts of each identity of a replay. A known identity costs a lookup and no allocation; a new one costs its name and a
//! few dozen bytes.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidegate::time::Nanos;

use crate::{report::ClientRow, timestamp::Utc};

/// Index of an identity in [`Clients`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ClientId(u32);

/// Kinds of identities that a log contains.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum IdentityKind {
    Ip,
    /// Users, or the kind that [`LogKey`](crate::LogKey) names.
    User,
}

impl IdentityKind {
    /// The kind of addresses.
    pub(crate) const IP: &'static str = "ip";
    /// The kind of the others, unless a [`LogKey`](crate::LogKey) names another one.
    pub(crate) const USER: &'static str = "user";
}

#[derive(Debug)]
struct Client {
    kind: IdentityKind,
    value: Arc<str>,
    allowed: u64,
    denied: u64,
    first_denied_at: Option<Nanos>,
}

/// The identities of a log, with their counts.
#[derive(Debug)]
pub(crate) struct Clients {
    /// The kind of users.
    pub(crate) kind: String,
    rows: Vec<Client>,
    places: [FxHashMap<Arc<str>, u32>; 2],
}

impl Clients {
    pub(crate) fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), rows: Vec::new(), places: Default::default() }
    }

    /// Returns the index of an identity, and adds the identity if it is new.
    #[inline]
    pub(crate) fn id(&mut self, kind: IdentityKind, value: &str) -> ClientId {
        let places = &mut self.places[kind as usize];
        if let Some(&place) = places.get(value) {
            return ClientId(place);
        }
        let (place, value) = (self.rows.len() as u32, Arc::<str>::from(value));
        places.insert(Arc::clone(&value), place);
        self.rows.push(Client { kind, value, allowed: 0, denied: 0, first_denied_at: None });
        ClientId(place)
    }

    #[inline]
    pub(crate) fn value(&self, id: ClientId) -> &str {
        &self.rows[id.0 as usize].value
    }

    #[inline]
    pub(crate) fn count(&mut self, id: ClientId, now: Nanos, is_allowed: bool) {
        let row = &mut self.rows[id.0 as usize];
        if is_allowed {
            row.allowed += 1;
        } else {
            row.denied += 1;
            row.first_denied_at.get_or_insert(now);
        }
    }

    /// Returns the first `top` identities (0: all) by most denied, then most allowed, then name.
    pub(crate) fn into_rows(self, top: usize) -> Vec<ClientRow> {
        let Self { kind, mut rows, places } = self;
        // The maps share the values; without them each row is the only owner.
        drop(places);
        rows.sort_unstable_by(|a, b| {
            (b.denied, b.allowed, a.kind, &a.value).cmp(&(a.denied, a.allowed, b.kind, &b.value))
        });
        rows.truncate(if top == 0 { usize::MAX } else { top });
        let row = |client: Client| ClientRow {
            kind: if client.kind == IdentityKind::Ip { IdentityKind::IP.to_owned() } else { kind.clone() },
            value: client.value.as_ref().into(),
            allowed: client.allowed,
            denied: client.denied,
            first_denied_at: client.first_denied_at.map(Utc),
        };
        rows.into_iter().map(row).collect()
    }
}
