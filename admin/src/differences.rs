//! What differs between two policies, and one version undone: structured, by object, limit and field.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};
use tidegate::policy::Policy;

use crate::{
    editing::Editing,
    objects::{self, Kind, Object, ObjectKey},
};

/// One difference. Without `field`, the whole object, or limit, is new (`from` is absent) or gone (`to` is).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Difference {
    domain: String,
    /// `tier`, `rule`, `client`, or `domain` for the settings of one.
    kind: &'static str,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Value>,
}

/// What differs, object by object: tiers, rules, clients, then the settings of domains, in the order of their names.
pub(crate) fn differences(from: &Policy, to: &Policy) -> Vec<Difference> {
    let mut found = Vec::new();
    let (from, to) = (by_key(from), by_key(to));
    let keys: BTreeSet<&ObjectKey> = from.keys().chain(to.keys()).collect();
    for key in keys {
        let value = |objects: &BTreeMap<ObjectKey, Object>| objects.get(key).map(|object| json!(object));
        let object = Of { domain: &key.domain, kind: key.kind.name(), id: &key.id };
        object.compare(value(&from), value(&to), &mut found);
    }
    found
}

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

pub(crate) fn changed(before: &Policy, after: &Policy) -> Changed {
    let (before, after) = (by_key(before), by_key(after));
    let touched = after.iter().filter(|(key, object)| before.get(key) != Some(object)).map(|(key, _)| key.clone());
    let removed = before.keys().filter(|key| !after.contains_key(key)).cloned();
    Changed { touched: touched.collect(), removed: removed.collect() }
}

/// Whose differences they are.
struct Of<'a> {
    domain: &'a str,
    kind: &'static str,
    id: &'a str,
}

impl Of<'_> {
    fn difference(
        &self,
        limit: Option<&str>,
        field: Option<&str>,
        from: Option<Value>,
        to: Option<Value>,
    ) -> Difference {
        Difference {
            domain: self.domain.to_owned(),
            kind: self.kind,
            id: self.id.to_owned(),
            limit: limit.map(str::to_owned),
            field: field.map(str::to_owned),
            from,
            to,
        }
    }

    fn compare(&self, from: Option<Value>, to: Option<Value>, found: &mut Vec<Difference>) {
        match (from, to) {
            (Some(Value::Object(from)), Some(Value::Object(to))) => self.compare_fields(None, &from, &to, found),
            (from, to) if from != to => found.push(self.difference(None, None, from, to)),
            _ => {}
        }
    }

    fn compare_fields(
        &self,
        limit: Option<&str>,
        from: &Map<String, Value>,
        to: &Map<String, Value>,
        found: &mut Vec<Difference>,
    ) {
        let fields: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
        for field in fields {
            let (from, to) = (from.get(field), to.get(field));
            match (limit, from, to) {
                _ if from == to => {}
                (None, Some(Value::Array(from)), Some(Value::Array(to))) if field == "limits" => {
                    self.compare_limits(from, to, found);
                }
                _ => found.push(self.difference(limit, Some(field), from.cloned(), to.cloned())),
            }
        }
    }

    /// Limits are the same by their id, wherever they stand; where only the order differs, that is the difference.
    fn compare_limits(&self, from: &[Value], to: &[Value], found: &mut Vec<Difference>) {
        let id = |limit: &Value| limit["id"].as_str().unwrap_or_default().to_owned();
        let by_id =
            |limits: &[Value]| limits.iter().map(|limit| (id(limit), limit.clone())).collect::<BTreeMap<_, _>>();
        let (olds, news) = (by_id(from), by_id(to));
        let ids: BTreeSet<&String> = olds.keys().chain(news.keys()).collect();
        for id in ids {
            match (olds.get(id), news.get(id)) {
                (Some(Value::Object(from)), Some(Value::Object(to))) => {
                    self.compare_fields(Some(id), from, to, found);
                }
                (from, to) => found.push(self.difference(Some(id), None, from.cloned(), to.cloned())),
            }
        }
        let order = |limits: &[Value]| limits.iter().map(id).collect::<Vec<_>>();
        let (from, to) = (order(from), order(to));
        if from != to && olds.keys().eq(news.keys()) {
            found.push(self.difference(None, Some("order"), Some(json!(from)), Some(json!(to))));
        }
    }
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
                if !undone.put(key, place, object.clone()) {
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
    use super::*;

    fn policy(domain: &Value) -> Policy {
        serde_json::from_value(json!({ "domains": { "default": domain } })).expect("a policy")
    }

    fn limit(id: &str, limit: u64) -> Value {
        json!({ "id": id, "algorithm": "token_bucket", "limit": limit, "period": "1m" })
    }

    #[test]
    fn differences_are_told_by_object_limit_and_field() {
        let from = policy(&json!({
            "defaults": { "user": "free" },
            "tiers": [
                { "id": "free", "limits": [limit("minute", 60), limit("day", 1_000)] },
                { "id": "old", "unlimited": true },
                { "id": "same", "limits": [limit("a", 1), limit("b", 1)] },
            ],
        }));
        let to = policy(&json!({
            "defaults": { "user": "free", "ip": "free" },
            "tiers": [
                { "id": "free", "limits": [limit("minute", 100), limit("hour", 500)] },
                { "id": "same", "limits": [limit("b", 1), limit("a", 1)] },
            ],
            "clients": [{ "kind": "user", "value": "bob", "tier": "free" }],
        }));
        let told = json!(differences(&from, &to));
        let of = |kind: &str, id: &str| json!({ "domain": "default", "kind": kind, "id": id });
        let with = |mut value: Value, more: Value| {
            let more = more.as_object().expect("an object").clone();
            value.as_object_mut().expect("an object").extend(more);
            value
        };
        let free = || of("tier", "free");
        assert_eq!(
            told,
            json!([
                with(free(), json!({ "limit": "day", "from": limit("day", 1_000) })),
                with(free(), json!({ "limit": "hour", "to": limit("hour", 500) })),
                with(free(), json!({ "limit": "minute", "field": "limit", "from": 60, "to": 100 })),
                with(of("tier", "old"), json!({ "from": { "id": "old", "unlimited": true } })),
                with(of("tier", "same"), json!({ "field": "order", "from": ["a", "b"], "to": ["b", "a"] })),
                with(of("client", "user:bob"), json!({ "to": { "kind": "user", "value": "bob", "tier": "free" } })),
                with(
                    of("domain", "default"),
                    json!({ "field": "defaults", "from": { "user": "free" }, "to": { "user": "free", "ip": "free" } })
                ),
            ])
        );
        assert_eq!(differences(&from, &from), []);
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
