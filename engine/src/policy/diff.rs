//! Diffs for people: the differences of two policies by object, limit and field, as the API and the command line show them. For
//! the message that a node applies, see [`delta`](super::delta).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::policy::document::{Client, Policy};

/// One difference of two policies. Without `field`, the whole object or limit is new (`from` is absent) or removed (`to` is
/// absent).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Difference {
    /// The domain that the object is in.
    pub domain: String,
    /// `tier`, `rule`, `client`, or `domain` for the settings of one.
    pub kind: String,
    /// The id of the object; for a client `KIND:VALUE`, for a domain its name.
    pub id: String,
    /// The id of the limit that has the difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The field, with `override.` before fields of an override whose limits are compared; `order` where only the order of limits differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The former value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// The present value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

/// Returns the differences object by object: tiers, rules, clients, then the settings of domains, each in the order of names.
///
/// ```
/// use tidegate::{formats::Format, policy::{Policy, differences}};
///
/// let parse = |text| Policy::parse(text, Format::Toml).unwrap();
/// let (old, new) = (parse("[domains.default]"), parse("[domains.default]\ntier_hint = true"));
/// assert_eq!(differences(&old, &new)[0].field.as_deref(), Some("tier_hint"));
/// ```
#[must_use]
pub fn differences(from: &Policy, to: &Policy) -> Vec<Difference> {
    let mut found = Vec::new();
    let (from, to) = (objects_of(from), objects_of(to));
    let objects: BTreeSet<&ObjectKey<'_>> = from.keys().chain(to.keys()).collect();
    for object in objects {
        object.compare(from.get(object), to.get(object), &mut found);
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectKind {
    Tier,
    Rule,
    Client,
    Domain,
}

impl ObjectKind {
    fn name(self) -> &'static str {
        match self {
            Self::Tier => "tier",
            Self::Rule => "rule",
            Self::Client => "client",
            Self::Domain => "domain",
        }
    }
}

/// Identifies an object of a policy.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ObjectKey<'p> {
    kind: ObjectKind,
    domain: &'p str,
    id: String,
}

fn objects_of(policy: &Policy) -> BTreeMap<ObjectKey<'_>, Value> {
    let mut objects = BTreeMap::new();
    for (name, domain) in &policy.domains {
        let key = |kind, id| ObjectKey { kind, domain: name, id };
        objects.extend(domain.tiers.iter().map(|tier| (key(ObjectKind::Tier, tier.id.clone()), json!(tier))));
        objects.extend(domain.rules.iter().map(|rule| (key(ObjectKind::Rule, rule.id.clone()), json!(rule))));
        let id = |client: &Client| format!("{}:{}", client.kind, client.value);
        objects.extend(domain.clients.iter().map(|client| (key(ObjectKind::Client, id(client)), json!(client))));
        objects.insert(key(ObjectKind::Domain, name.clone()), json!(domain.settings()));
    }
    objects
}

impl ObjectKey<'_> {
    fn difference(
        &self,
        limit: Option<&str>,
        field: Option<&str>,
        from: Option<&Value>,
        to: Option<&Value>,
    ) -> Difference {
        Difference {
            domain: self.domain.to_owned(),
            kind: self.kind.name().to_owned(),
            id: self.id.clone(),
            limit: limit.map(str::to_owned),
            field: field.map(str::to_owned),
            from: from.cloned(),
            to: to.cloned(),
        }
    }

    fn compare(&self, from: Option<&Value>, to: Option<&Value>, found: &mut Vec<Difference>) {
        match (from, to) {
            (Some(Value::Object(from)), Some(Value::Object(to))) => self.compare_fields(None, from, to, found),
            _ => found.push(self.difference(None, None, from, to)),
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
                // The limits of an override are compared one by one, like those of a tier.
                (None, Some(Value::Object(from)), Some(Value::Object(to)))
                    if field == "override" && from.contains_key("limits") && to.contains_key("limits") =>
                {
                    let of_override = found.len();
                    self.compare_fields(None, from, to, found);
                    for difference in found[of_override..].iter_mut().filter(|difference| difference.limit.is_none()) {
                        difference.field = difference.field.take().map(|field| format!("override.{field}"));
                    }
                }
                _ => found.push(self.difference(limit, Some(field), from, to)),
            }
        }
    }

    /// Compares limits by their ids, in any order. If only the order differs, that is the difference.
    fn compare_limits(&self, from: &[Value], to: &[Value], found: &mut Vec<Difference>) {
        let id = |limit: &Value| limit["id"].as_str().unwrap_or_default().to_owned();
        let [olds, news] =
            [from, to].map(|limits| limits.iter().map(|limit| (id(limit), limit)).collect::<BTreeMap<_, _>>());
        let ids: BTreeSet<&String> = olds.keys().chain(news.keys()).collect();
        for id in ids {
            match (olds.get(id).copied(), news.get(id).copied()) {
                (Some(Value::Object(from)), Some(Value::Object(to))) => {
                    self.compare_fields(Some(id), from, to, found);
                }
                (from, to) => found.push(self.difference(Some(id), None, from, to)),
            }
        }
        let [from, to] = [from, to].map(|limits| limits.iter().map(id).collect::<Vec<_>>());
        if from != to && olds.keys().eq(news.keys()) {
            found.push(self.difference(None, Some("order"), Some(&json!(from)), Some(&json!(to))));
        }
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    fn policy(domain: &Value) -> Policy {
        serde_json::from_value(json!({ "domains": { "default": domain } })).expect("a policy")
    }

    fn limit(id: &str, limit: u64) -> Value {
        json!({ "id": id, "algorithm": "token_bucket", "limit": limit, "period": "1m" })
    }

    #[test]
    fn differences_name_object_limit_and_field() {
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
        let found = json!(differences(&from, &to));
        let of = |kind: &str, id: &str| json!({ "domain": "default", "kind": kind, "id": id });
        let with = |mut value: Value, more: Value| {
            let more = more.as_object().expect("an object").clone();
            value.as_object_mut().expect("an object").extend(more);
            value
        };
        let free = || of("tier", "free");
        assert_eq!(
            found,
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
    fn limits_of_an_override_are_compared_one_by_one() {
        let with = |minute: u64, day: u64, reason: &str| {
            let exception = json!({ "limits": [limit("minute", minute), limit("day", day)], "reason": reason });
            policy(&json!({ "clients": [{ "kind": "user", "value": "bob", "override": exception }] }))
        };
        let found = differences(&with(1, 10, "a"), &with(2, 10, "b"));
        let places: Vec<_> =
            found.iter().map(|it| (&*it.kind, &*it.id, it.limit.as_deref(), it.field.as_deref())).collect();
        let bob = ("client", "user:bob");
        assert_eq!(
            places,
            [(bob.0, bob.1, Some("minute"), Some("limit")), (bob.0, bob.1, None, Some("override.reason"))]
        );
        assert_eq!((&found[0].from, &found[0].to), (&Some(json!(1)), &Some(json!(2))));
    }
}
