//! Deltas for nodes: the message that turns one version of a policy into the next without its unchanged clients. A node that has
//! compiled the earlier version compiles only the rest, by
//! [`Snapshot::compile_delta`](super::compiled::Snapshot::compile_delta). For the differences that people read, see
//! [`diff`](super::diff).

use std::collections::BTreeMap;

use rapidhash::RapidHashMap;
use serde::Serialize;

use crate::policy::document::{Client, Domain, Limit, Policy};

/// A serializable delta between two documents; [`borrowed::Delta`](super::document::borrowed::Delta) is read from it.
///
/// A delta has all of the later document except the clients that did not change, of which there may be a hundred thousand.
///
/// ```
/// use tidegate::{Snapshot, policy::{Delta, Policy, borrowed}};
///
/// let policy = |limit: u64| -> Policy {
///     let user = |n| format!(r#"{{"kind": "user", "value": "u{n}", "tier": "free"}}"#);
///     let users = (1..=limit).map(user).collect::<Vec<_>>().join(", ");
///     serde_json::from_str(&format!(r#"{{"domains": {{"default": {{"tiers": [{{"id": "free", "unlimited": true}}],
///         "clients": [{users}]}}}}}}"#)).unwrap()
/// };
/// let (before, after) = (policy(1_000), policy(1_001));
/// let delta = serde_json::to_string(&Delta::between(&before, &after)).unwrap();
/// assert!(delta.len() < 300);
///
/// let read: borrowed::Delta<'_> = serde_json::from_str(&delta).unwrap();
/// assert!(Snapshot::compile(&before).unwrap().compile_delta(&read).is_ok());
/// ```
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Delta<'p> {
    /// The later document, with only its new and changed clients.
    policy: Policy,
    /// The kinds and values of changed and removed clients of the earlier document, by domain.
    gone: BTreeMap<&'p str, Vec<(&'p str, &'p str)>>,
}

impl<'p> Delta<'p> {
    /// Returns the delta from `before` to `after`. If the time zone of a domain changes, its clients with limits of calendar periods
    /// count as changed.
    #[must_use]
    pub fn between(before: &'p Policy, after: &'p Policy) -> Self {
        let mut delta = Self { policy: Policy { domains: BTreeMap::new() }, gone: BTreeMap::new() };
        for (name, domain) in &after.domains {
            let clients = match before.domains.get(name) {
                None => domain.clients.clone(),
                Some(before) => {
                    let is_same_zone = before.timezone == domain.timezone;
                    let is_same = |before: &Client, after: &Client| {
                        before == after && (is_same_zone || !depends_on_timezone(after))
                    };
                    let (gone, clients) = changed_clients(&before.clients, &domain.clients, is_same);
                    if !gone.is_empty() {
                        delta.gone.insert(name, gone);
                    }
                    clients
                }
            };
            let (tiers, rules) = (domain.tiers.clone(), domain.rules.clone());
            delta.policy.domains.insert(name.clone(), Domain { tiers, clients, rules, ..domain.settings() });
        }
        delta
    }
}

/// Returns the ids of changed and removed clients of the earlier list, and the new and changed clients of the later one.
fn changed_clients<'p>(
    before: &'p [Client],
    after: &'p [Client],
    is_same: impl Fn(&Client, &Client) -> bool,
) -> (Vec<(&'p str, &'p str)>, Vec<Client>) {
    let same = before.iter().zip(after).take_while(|(before, after)| is_same(before, after)).count();
    let (before, after) = (&before[same..], &after[same..]);
    let same = before.iter().rev().zip(after.iter().rev()).take_while(|(before, after)| is_same(before, after)).count();
    let (before, after) = (&before[..before.len() - same], &after[..after.len() - same]);
    let id = |client: &'p Client| (client.kind.as_str(), client.value.as_str());
    let by_id =
        |clients: &'p [Client]| clients.iter().map(|client| (id(client), client)).collect::<RapidHashMap<_, _>>();
    let (befores, afters) = (by_id(before), by_id(after));
    let gone = before.iter().filter(|client| afters.get(&id(client)).is_none_or(|after| !is_same(client, after)));
    let new = after.iter().filter(|client| befores.get(&id(client)).is_none_or(|before| !is_same(before, client)));
    (gone.map(id).collect(), new.cloned().collect())
}

/// Returns whether the limits of a client's override depend on the domain's time zone.
fn depends_on_timezone(client: &Client) -> bool {
    client.exception.iter().flat_map(|exception| &exception.limits).any(Limit::is_of_calendar)
}
