//! One version undone, field by field: what later versions changed of other fields stays, and where they changed the same
//! one again, a person says what holds.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tidegate::policy::Policy;

use crate::domain::{
    change_list::default_domain,
    diff::by_key,
    editor::Editing,
    objects::{Kind, Object, ObjectKey},
};

/// A field of the policy, as differences name it: without `limit` and `field` the whole object, without `field` the whole
/// limit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FieldKey {
    kind: Kind,
    #[serde(default = "default_domain")]
    domain: String,
    id: String,
    /// The id of the limit in which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    /// With `override.`, `defaults.` or `where.` before what is in these; `order` is that of the limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

/// Which value a field gets that was changed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Take {
    /// That of before the version that is undone.
    Before,
    /// The one that it has.
    Now,
}

/// What a person says of a field.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Choice {
    pub(crate) at: FieldKey,
    take: Take,
}

impl Choice {
    /// Its domain need not be said twice of a domain.
    pub(crate) fn placed(mut self) -> Self {
        if self.at.kind == Kind::Domain {
            self.at.domain.clone_from(&self.at.id);
        }
        self
    }
}

/// A field that the version changed, and a later one changed again. A value that is absent: there was nothing.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub(crate) struct Clash {
    pub(crate) at: FieldKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Value>,
    /// What the version made of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<Value>,
    /// What was chosen; without, it stays as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) take: Option<Take>,
}

impl Clash {
    pub(crate) fn object(&self) -> ObjectKey {
        let FieldKey { kind, domain, id, .. } = self.at.clone();
        ObjectKey { kind, domain, id }
    }
}

/// A policy without what one version changed.
#[derive(PartialEq, Debug)]
pub(crate) struct Undone {
    pub(crate) policy: Policy,
    pub(crate) clashes: Vec<Clash>,
}

/// `present` without what was changed from `before` to `after`; or, once all is chosen, the objects that have no place to come
/// back to, or cannot go because something is in them.
pub(crate) fn undo(
    before: &Policy,
    after: &Policy,
    present: &Policy,
    choices: &[Choice],
) -> Result<Undone, Vec<ObjectKey>> {
    let (old, new, now) = (by_key(before), by_key(after), by_key(present));
    let choices = choices.iter().map(|choice| (&choice.at, choice.take)).collect();
    let mut merging = Merging { choices, clashes: Vec::new() };
    let mut homeless: Vec<ObjectKey> = Vec::new();
    let mut made: Vec<(&ObjectKey, Option<Object>)> = Vec::new();
    let keys: BTreeSet<&ObjectKey> = old.keys().chain(new.keys()).collect();
    for key in keys.into_iter().filter(|key| old.get(key) != new.get(key)) {
        let values = [&old, &new, &now].map(|objects| objects.get(key).map(|object| json!(object)));
        let [before, after, now] = values.each_ref().map(Option::as_ref);
        match merging.object(key, Three { before, after, now }).map(|value| Object::read(key.kind, value)) {
            None => made.push((key, None)),
            Some(Ok(object)) => made.push((key, Some(object))),
            Some(Err(_)) => homeless.push(key.clone()),
        }
    }
    let mut undone = Editing::of(present.clone());
    let (domains, others): (Vec<_>, Vec<_>) = made.into_iter().partition(|(key, _)| key.kind == Kind::Domain);
    // Domains that were removed come first, so that what was in them has a place again; those that came with the version go
    // last, once nothing is in them.
    let (again, gone): (Vec<_>, Vec<_>) = domains.into_iter().partition(|(_, object)| object.is_some());
    for (key, object) in again.into_iter().chain(others) {
        let place = undone.find(key).map(|(place, _)| place);
        match (object, place) {
            (Some(object), place) if key.kind == Kind::Domain || undone.has_domain(&key.domain) => {
                undone.put(key, place, object);
            }
            (Some(_), _) => homeless.push(key.clone()),
            (None, Some(place)) => drop(undone.remove(key, place)),
            (None, None) => {}
        }
    }
    let mut policy = undone.done();
    for (key, _) in gone {
        match policy.domains.remove(&key.domain) {
            Some(domain) if !(domain.tiers.is_empty() && domain.rules.is_empty() && domain.clients.is_empty()) => {
                homeless.push(key.clone());
            }
            _ => {}
        }
    }
    // What is still to be chosen may make room for it.
    let is_open = merging.clashes.iter().any(|clash| clash.take.is_none());
    if homeless.is_empty() || is_open { Ok(Undone { policy, clashes: merging.clashes }) } else { Err(homeless) }
}

/// Something before the version, as the version made it, and now.
#[derive(Clone, Copy, Debug)]
struct Three<T> {
    before: T,
    after: T,
    now: T,
}

impl<T> Three<T> {
    fn map<U>(self, with: impl Fn(T) -> U) -> Three<U> {
        Three { before: with(self.before), after: with(self.after), now: with(self.now) }
    }
}

impl<T> Three<Option<T>> {
    /// All of them, if all are there.
    fn all(self) -> Option<Three<T>> {
        Some(Three { before: self.before?, after: self.after?, now: self.now? })
    }
}

/// The fields of an object, or of a part of one.
type Fields = Map<String, Value>;

fn value_of<'v>(name: &str) -> impl Fn(&'v Fields) -> Option<&'v Value> {
    move |fields| fields.get(name)
}

fn names(of: Three<&Fields>) -> BTreeSet<String> {
    of.before.keys().chain(of.after.keys()).chain(of.now.keys()).cloned().collect()
}

/// Where in an object, to name a clash by it.
#[derive(Clone, Copy)]
struct At<'a> {
    object: &'a ObjectKey,
    limit: Option<&'a str>,
    /// What stands before the names of fields.
    below: &'a str,
}

struct Merging<'c> {
    choices: BTreeMap<&'c FieldKey, Take>,
    clashes: Vec<Clash>,
}

impl Merging<'_> {
    fn object(&mut self, key: &ObjectKey, values: Three<Option<&Value>>) -> Option<Value> {
        let at = At { object: key, limit: None, below: "" };
        match values.map(|value| value.and_then(Value::as_object)).all() {
            Some(fields) => Some(self.fields(at, fields)),
            None => self.value(at, None, values),
        }
    }

    /// What is neither made of fields nor of limits.
    fn value(&mut self, at: At<'_>, name: Option<&str>, values: Three<Option<&Value>>) -> Option<Value> {
        let Three { before, after, now } = values.map(Option::<&Value>::cloned);
        if before == after || before == now {
            return now;
        }
        if after == now {
            return before;
        }
        let ObjectKey { kind, domain, id } = at.object.clone();
        let field = name.map(|name| format!("{}{name}", at.below));
        let at = FieldKey { kind, domain, id, limit: at.limit.map(str::to_owned), field };
        let take = self.choices.get(&at).copied();
        self.clashes.push(Clash { at, before: before.clone(), after, now: now.clone(), take });
        if take == Some(Take::Before) { before } else { now }
    }

    /// An object, or an override.
    fn fields(&mut self, at: At<'_>, of: Three<&Fields>) -> Value {
        let nothing = Fields::new();
        let mut made = Fields::new();
        for name in names(of) {
            let values = of.map(value_of(&name));
            let inner = values.map(|value| value.and_then(Value::as_object));
            let value = match (name.as_str(), inner.all()) {
                ("limits", _) => Some(self.limits(at, values)),
                ("defaults" | "where", _) => {
                    let inner = inner.map(|fields| fields.unwrap_or(&nothing));
                    Some(self.entries(At { below: &format!("{name}."), ..at }, inner))
                }
                ("override", Some(inner)) => Some(self.fields(At { below: "override.", ..at }, inner)),
                _ => self.value(at, Some(&name), values),
            };
            made.extend(value.map(|value| (name, value)));
        }
        Value::Object(made)
    }

    /// What has nothing but values: a limit, tiers by kind of identity, conditions.
    fn entries(&mut self, at: At<'_>, of: Three<&Fields>) -> Value {
        let value = |name: String| Some((name.clone(), self.value(at, Some(&name), of.map(value_of(&name)))?));
        Value::Object(names(of).into_iter().filter_map(value).collect())
    }

    /// Limits are the same by their id.
    fn limits(&mut self, at: At<'_>, lists: Three<Option<&Value>>) -> Value {
        let lists = lists.map(|list| list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice));
        let by_id = lists.map(|list| list.iter().map(|limit| (id(limit), limit.clone())).collect::<Fields>());
        let of = Three { before: &by_id.before, after: &by_id.after, now: &by_id.now };
        let mut made = Fields::new();
        for name in names(of) {
            let at = At { limit: Some(&name), below: "", ..at };
            let values = of.map(value_of(&name));
            let value = match values.map(|value| value.and_then(Value::as_object)).all() {
                Some(fields) => Some(self.entries(at, fields)),
                None => self.value(at, None, values),
            };
            made.extend(value.map(|value| (name, value)));
        }
        let order = self.order(at, &lists.map(|list| list.iter().map(id).collect()), &made);
        Value::Array(order.into_iter().filter_map(|id| made.remove(&id)).collect())
    }

    /// In which order these limits stand: as now, unless the version changed it. One that comes back stands behind the one
    /// that it stood behind.
    fn order(&mut self, at: At<'_>, ids: &Three<Vec<String>>, made: &Fields) -> Vec<String> {
        let Three { before, after, now } = ids;
        let stayed = |id: &&String| before.contains(id) && after.contains(id) && now.contains(id);
        let of = |ids: &[String]| Some(json!(ids.iter().filter(stayed).collect::<Vec<_>>()));
        let values = Three { before: of(before), after: of(after), now: of(now) };
        let Three { before: old, now: new, .. } = &values;
        let chosen = self.value(
            at,
            Some("order"),
            Three { before: old.as_ref(), after: values.after.as_ref(), now: new.as_ref() },
        );
        let (first, second) = if chosen == *new { (now, before) } else { (before, now) };
        let mut order: Vec<String> = first.iter().filter(|id| made.contains_key(*id)).cloned().collect();
        for (number, id) in second.iter().enumerate() {
            if !made.contains_key(id) || order.contains(id) {
                continue;
            }
            let behind = second[..number].iter().rev().find_map(|id| order.iter().position(|there| there == id));
            order.insert(behind.map_or(0, |place| place + 1), id.clone());
        }
        order
    }
}

fn id(limit: &Value) -> String {
    limit["id"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(id: &str, limit: u64) -> Value {
        json!({ "id": id, "algorithm": "token_bucket", "limit": limit, "period": "1m" })
    }

    fn with_burst(id: &str, limit: u64, burst: u64) -> Value {
        json!({ "id": id, "algorithm": "token_bucket", "limit": limit, "period": "1m", "burst": burst })
    }

    fn tier(limits: &[Value]) -> Value {
        json!({ "tiers": [{ "id": "free", "limits": limits }] })
    }

    fn rule(value: Value) -> Value {
        let mut rule = json!({ "id": "search", "endpoint": "/search", "per": "user", "limits": [limit("a", 1)] });
        if let (Value::Object(rule), Value::Object(value)) = (&mut rule, value) {
            rule.extend(value);
        }
        json!({ "rules": [rule] })
    }

    fn bob(exception: &Value) -> Value {
        json!({ "clients": [{ "kind": "user", "value": "bob", "override": exception }] })
    }

    fn policy(domain: &Value) -> Policy {
        serde_json::from_value(json!({ "domains": { "default": domain } })).expect("a policy")
    }

    fn undone(states: [&Value; 3], choices: &[Choice]) -> Undone {
        let [before, after, now] = states.map(policy);
        undo(&before, &after, &now, choices).expect("all have a place")
    }

    /// What a version changed is taken back; what later ones changed of other fields stays.
    #[test]
    fn other_fields_stay() {
        let (a, b, c) = (|it| limit("a", it), |it| limit("b", it), |it| limit("c", it));
        for (what, before, after, now, wanted) in [
            ("nothing since", tier(&[a(1)]), tier(&[a(2)]), tier(&[a(2)]), tier(&[a(1)])),
            ("undone since", tier(&[a(1)]), tier(&[a(2)]), tier(&[a(1)]), tier(&[a(1)])),
            (
                "another field of the limit",
                tier(&[a(1)]),
                tier(&[a(2)]),
                tier(&[with_burst("a", 2, 9)]),
                tier(&[with_burst("a", 1, 9)]),
            ),
            (
                "a field that came",
                tier(&[a(1)]),
                tier(&[with_burst("a", 1, 9)]),
                tier(&[with_burst("a", 5, 9)]),
                tier(&[a(5)]),
            ),
            ("another limit", tier(&[a(1), b(1)]), tier(&[a(2), b(1)]), tier(&[a(2), b(7)]), tier(&[a(1), b(7)])),
            ("a limit that came", tier(&[a(1)]), tier(&[a(1), b(1)]), tier(&[a(5), b(1), c(1)]), tier(&[a(5), c(1)])),
            (
                "a limit that went comes back where it stood",
                tier(&[a(1), b(1)]),
                tier(&[a(1)]),
                tier(&[c(1), a(5)]),
                tier(&[c(1), a(5), b(1)]),
            ),
            ("the first one too", tier(&[b(1), a(1)]), tier(&[a(1)]), tier(&[a(1), c(1)]), tier(&[b(1), a(1), c(1)])),
            (
                "the order, beside a number",
                tier(&[a(1), b(1)]),
                tier(&[b(1), a(1)]),
                tier(&[b(1), a(7), c(1)]),
                tier(&[a(7), c(1), b(1)]),
            ),
            (
                "a number, beside the order",
                tier(&[a(1), b(1)]),
                tier(&[a(2), b(1)]),
                tier(&[b(1), a(2)]),
                tier(&[b(1), a(1)]),
            ),
            (
                "conditions of a rule",
                rule(json!({})),
                rule(json!({ "where": { "ip": "10.*" }, "cost": 2 })),
                rule(json!({ "where": { "ip": "10.*", "user": "x*" }, "cost": 2, "method": "GET" })),
                rule(json!({ "where": { "user": "x*" }, "method": "GET" })),
            ),
            (
                "settings, defaults by kind",
                json!({ "defaults": { "user": "free" } }),
                json!({ "defaults": { "user": "pro" }, "tier_hint": true }),
                json!({ "defaults": { "user": "pro", "ip": "free" }, "tier_hint": true, "on_error": "closed" }),
                json!({ "defaults": { "user": "free", "ip": "free" }, "on_error": "closed" }),
            ),
            (
                "an override",
                bob(&json!({ "limits": [a(1)], "reason": "x" })),
                bob(&json!({ "limits": [a(9)], "reason": "x" })),
                bob(&json!({ "limits": [a(9), b(1)], "reason": "y" })),
                bob(&json!({ "limits": [a(1), b(1)], "reason": "y" })),
            ),
            (
                "an object that came goes, one that went comes back",
                json!({ "tiers": [{ "id": "old", "unlimited": true }] }),
                json!({ "tiers": [{ "id": "new", "unlimited": true }] }),
                json!({ "tiers": [{ "id": "new", "unlimited": true }, { "id": "later", "unlimited": true }] }),
                json!({ "tiers": [{ "id": "later", "unlimited": true }, { "id": "old", "unlimited": true }] }),
            ),
        ] {
            let made = undone([&before, &after, &now], &[]);
            assert_eq!(made, Undone { policy: policy(&wanted), clashes: Vec::new() }, "{what}");
        }
    }

    /// Where a field was changed again, it stays until somebody says otherwise; both answers are tried.
    #[test]
    fn a_field_that_was_changed_again_is_a_choice() {
        let (a, b, c) = (|it| limit("a", it), |it| limit("b", it), |it| limit("c", it));
        let free = |limit: Value, field: Value| json!({ "kind": "tier", "domain": "default", "id": "free", "limit": limit, "field": field });
        for (what, before, after, now, at, values, taken) in [
            (
                "a number; another one is undone",
                tier(&[a(1), b(1)]),
                tier(&[a(2), b(2)]),
                tier(&[a(3), b(2)]),
                free(json!("a"), json!("limit")),
                json!([1, 2, 3]),
                [tier(&[a(1), b(1)]), tier(&[a(3), b(1)])],
            ),
            (
                "a limit that went, and was to be other",
                tier(&[a(1), b(1)]),
                tier(&[a(2), b(1)]),
                tier(&[b(1)]),
                free(json!("a"), Value::Null),
                json!([a(1), a(2), null]),
                [tier(&[a(1), b(1)]), tier(&[b(1)])],
            ),
            (
                "the order",
                tier(&[a(1), b(1), c(1)]),
                tier(&[b(1), a(1), c(1)]),
                tier(&[c(1), b(1), a(1)]),
                free(Value::Null, json!("order")),
                json!([["a", "b", "c"], ["b", "a", "c"], ["c", "b", "a"]]),
                [tier(&[a(1), b(1), c(1)]), tier(&[c(1), b(1), a(1)])],
            ),
            (
                "an object that came and is other by now",
                json!({}),
                tier(&[a(1)]),
                tier(&[a(2)]),
                free(Value::Null, Value::Null),
                json!([null, { "id": "free", "limits": [a(1)] }, { "id": "free", "limits": [a(2)] }]),
                [json!({}), tier(&[a(2)])],
            ),
            (
                "an object that was changed and is gone",
                tier(&[a(1)]),
                tier(&[a(2)]),
                json!({}),
                free(Value::Null, Value::Null),
                json!([{ "id": "free", "limits": [a(1)] }, { "id": "free", "limits": [a(2)] }, null]),
                [tier(&[a(1)]), json!({})],
            ),
            (
                "a default",
                json!({ "defaults": { "user": "free" } }),
                json!({ "defaults": { "user": "pro" } }),
                json!({}),
                json!({ "kind": "domain", "domain": "default", "id": "default", "field": "defaults.user" }),
                json!(["free", "pro", null]),
                [json!({ "defaults": { "user": "free" } }), json!({})],
            ),
            (
                "the end of an override",
                bob(&json!({ "blocked": true, "reason": "x" })),
                bob(&json!({ "blocked": true, "reason": "y" })),
                bob(&json!({ "blocked": true, "reason": "z" })),
                json!({ "kind": "client", "domain": "default", "id": "user:bob", "field": "override.reason" }),
                json!(["x", "y", "z"]),
                [bob(&json!({ "blocked": true, "reason": "x" })), bob(&json!({ "blocked": true, "reason": "z" }))],
            ),
        ] {
            let at: FieldKey = serde_json::from_value(at).expect("a field");
            let value = |number: usize| Some(values[number].clone()).filter(|value| !value.is_null());
            for (take, wanted) in [(None, &taken[1]), (Some(Take::Before), &taken[0]), (Some(Take::Now), &taken[1])] {
                let choices: Vec<Choice> = take.map(|take| Choice { at: at.clone(), take }).into_iter().collect();
                let clash = Clash { at: at.clone(), before: value(0), after: value(1), now: value(2), take };
                let made = undone([&before, &after, &now], &choices);
                assert_eq!(made, Undone { policy: policy(wanted), clashes: vec![clash] }, "{what}, {take:?}");
            }
        }
    }

    #[test]
    fn domains_come_back_before_what_was_in_them_and_go_once_nothing_is() {
        let web = |web: Option<&Value>| -> Policy {
            let mut policy = policy(&tier(&[limit("a", 1)]));
            policy.domains.extend(web.map(|web| ("web".to_owned(), serde_json::from_value(web.clone()).expect("one"))));
            policy
        };
        let (none, empty) = (web(None), web(Some(&json!({}))));
        let full = web(Some(&bob(&json!({ "blocked": true }))));
        let other = web(Some(&bob(&json!({ "unlimited": true }))));
        let open = undo(&none, &full, &other, &[]).expect("there is something to choose first");
        assert!(open.clashes.len() == 1 && open.clashes[0].take.is_none(), "{open:?}");
        let choices = [Choice { at: open.clashes[0].at.clone(), take: Take::Before }];
        assert_eq!(undo(&none, &full, &other, &choices).map(|undone| undone.policy), Ok(none.clone()));
        let undo = |before, after, now| undo(before, after, now, &[]);
        let refused = |made: Result<Undone, Vec<ObjectKey>>| {
            made.expect_err("refused").iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(undo(&none, &full, &full).map(|undone| undone.policy), Ok(none.clone()));
        assert_eq!(undo(&full, &none, &none).map(|undone| undone.policy), Ok(full.clone()));
        assert_eq!(refused(undo(&full, &empty, &none)), ["web/client:user:bob"], "its domain is gone");
        assert_eq!(refused(undo(&none, &empty, &full)), ["domain:web"], "somebody uses it");
    }
}
