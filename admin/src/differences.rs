//! The objects that differ between two policies, and one version undone.

use std::collections::{BTreeMap, BTreeSet};

use tidegate::policy::Policy;

use crate::{
    editing::Editing,
    objects::{self, Kind, Object, ObjectKey},
};

fn by_key(policy: &Policy) -> BTreeMap<ObjectKey, Object> {
    objects::all(policy).collect()
}

/// The objects of a policy that are not as before.
#[derive(PartialEq, Debug)]
pub(crate) struct Changed {
    /// Those that are new, or other than before.
    pub(crate) touched: Vec<ObjectKey>,
    pub(crate) removed: Vec<ObjectKey>,
}

impl Changed {
    pub(crate) fn is_none(&self) -> bool {
        self.touched.is_empty() && self.removed.is_empty()
    }
}

pub(crate) fn changed(before: &Policy, after: &Policy) -> Changed {
    let (before, after) = (by_key(before), by_key(after));
    let touched = after.iter().filter(|(key, object)| before.get(key) != Some(object)).map(|(key, _)| key.clone());
    let removed = before.keys().filter(|key| !after.contains_key(key)).cloned();
    Changed { touched: touched.collect(), removed: removed.collect() }
}

/// `present` without what was changed from `before` to `after`; or the objects that were changed again since.
pub(crate) fn undo(before: &Policy, after: &Policy, present: &Policy) -> Result<Policy, Vec<ObjectKey>> {
    let (old, new, now) = (by_key(before), by_key(after), by_key(present));
    let changed = old.keys().chain(new.keys()).filter(|key| old.get(key) != new.get(key));
    let (undoable, conflicts): (BTreeSet<_>, BTreeSet<_>) = changed.partition(|key| new.get(key) == now.get(key));
    if !conflicts.is_empty() {
        return Err(conflicts.into_iter().cloned().collect());
    }
    let mut undone = Editing::of(present.clone());
    let (domains, others): (Vec<_>, Vec<_>) = undoable.into_iter().partition(|key| key.kind == Kind::Domain);
    // Domains that were removed come first, so that what was in them has a place again; those that came with the version go
    // last, once nothing is in them.
    let (again, gone): (Vec<_>, Vec<_>) = domains.into_iter().partition(|key| old.contains_key(*key));
    let mut homeless: Vec<ObjectKey> = Vec::new();
    for key in again.into_iter().chain(others) {
        let place = undone.find(key).map(|(place, _)| place);
        match (old.get(key), place) {
            (Some(object), place) => {
                if key.kind == Kind::Domain || undone.has_domain(&key.domain) {
                    undone.put(key, place, object.clone());
                } else {
                    homeless.push(key.clone());
                }
            }
            (None, Some(place)) => drop(undone.remove(key, place)),
            (None, None) => {}
        }
    }
    let mut undone = undone.done();
    for key in gone {
        match undone.domains.remove(&key.domain) {
            Some(domain) if !(domain.tiers.is_empty() && domain.rules.is_empty() && domain.clients.is_empty()) => {
                homeless.push(key.clone());
            }
            _ => {}
        }
    }
    if !homeless.is_empty() {
        return Err(homeless);
    }
    Ok(undone)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(domain: &Value) -> Policy {
        serde_json::from_value(json!({ "domains": { "default": domain } })).expect("a policy")
    }

    fn limit(id: &str, limit: u64) -> Value {
        json!({ "id": id, "algorithm": "token_bucket", "limit": limit, "period": "1m" })
    }

    #[test]
    fn what_a_version_changed_is_undone_unless_it_was_changed_again() {
        let tiers = |free: u64, pro: u64| json!([{ "id": "free", "limits": [limit("m", free)] }, { "id": "pro", "limits": [limit("m", pro)] }]);
        let before = policy(&json!({ "tiers": tiers(1, 10) }));
        let after = policy(&json!({
            "tiers": tiers(2, 10), "tier_hint": true, "clients": [{ "kind": "user", "value": "bob", "tier": "pro" }],
        }));
        let client = json!([{ "kind": "user", "value": "bob", "tier": "pro" }]);
        let present = policy(&json!({ "tiers": tiers(2, 20), "tier_hint": true, "clients": client }));
        let undone = undo(&before, &after, &present);
        assert_eq!(undone, Ok(policy(&json!({ "tiers": tiers(1, 20) }))), "what came later stays");
        let again = policy(&json!({ "tiers": tiers(3, 20), "tier_hint": true, "clients": client }));
        let refused = undo(&before, &after, &again).expect_err("it was changed again");
        assert_eq!(refused.iter().map(ToString::to_string).collect::<Vec<_>>(), ["tier:free"]);
        // What was in a domain that is gone has no place to come back to.
        let web = |clients: &Value| -> Policy {
            serde_json::from_value(
                json!({ "domains": { "default": { "tiers": tiers(1, 1) }, "web": { "clients": clients } } }),
            )
            .expect("a policy")
        };
        let none = policy(&json!({ "tiers": tiers(1, 1) }));
        let refused = undo(&web(&client), &web(&json!([])), &none).expect_err("its domain is gone");
        assert_eq!(refused.iter().map(ToString::to_string).collect::<Vec<_>>(), ["web/client:user:bob"]);
        let refused = undo(&none, &web(&json!([])), &web(&client)).expect_err("somebody uses it");
        assert_eq!(refused.iter().map(ToString::to_string).collect::<Vec<_>>(), ["domain:web"]);
        // A domain that came with it.
        let two = |web: bool| {
            let mut policy = policy(&json!({ "tiers": tiers(1, 1) }));
            if web {
                policy.domains.insert("web".to_owned(), after.domains["default"].clone());
            }
            policy
        };
        assert_eq!(undo(&two(false), &two(true), &two(true)), Ok(two(false)));
        assert_eq!(undo(&two(true), &two(false), &two(false)), Ok(two(true)));
    }
}
