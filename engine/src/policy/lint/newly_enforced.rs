//! Newly enforced limits: what a change of the policy lets begin to deny, of limits that existed before and denied nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::loosening::{ClientChange, ClientId, Held, RulesAfter, clients_changed, is_enforced, tier_between, tier_of};
use crate::policy::document::{Domain, Limit, Policy};

/// Something starts to refuse that did not until now.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub struct Refusing {
    /// What it was until now.
    pub code: RefusingCode,
    /// The domain that it is in.
    pub domain: String,
    /// `tier`, `rule`, `client`, or `domain` for the default tier of a kind.
    pub kind: &'static str,
    /// Of the tier or rule, as it was; `KIND:VALUE` of a client; the name of a domain.
    pub id: String,
    /// Where it is about one limit.
    pub limit: Option<String>,
    /// How many clients it is so for, of which `id` is the first; 1 for whatever is no client.
    pub objects: usize,
    /// What is otherwise, in words.
    pub message: String,
}

/// What something was that denied nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum RefusingCode {
    /// The limit only counted.
    Shadow,
    /// The rule was off.
    Off,
    /// No limit held for it.
    Unlimited,
}

impl RefusingCode {
    /// As documents name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shadow => "shadow",
            Self::Off => "off",
            Self::Unlimited => "unlimited",
        }
    }
}

impl Policy {
    /// Looks for what denied nothing, and does in `after`: limits that only counted, rules that were off, tiers, defaults and
    /// clients that were unlimited. What is new is not told, nor who is blocked. Both policies are taken as valid.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    ///
    /// let with = |mode: &str| -> Policy {
    ///     serde_json::from_str(&format!(r#"{{"domains": {{"default": {{"tiers": [{{"id": "free", "limits": [
    ///         {{"id": "minute", "algorithm": "token_bucket", "limit": 60, "period": "1m", "mode": "{mode}"}}
    ///     ]}}]}}}}}}"#)).unwrap()
    /// };
    /// assert!(with("enforce").starts_to_refuse(&with("enforce")).is_empty());
    /// assert_eq!(with("shadow").starts_to_refuse(&with("enforce"))[0].message, "starts to refuse: was shadow");
    /// ```
    #[must_use]
    pub fn starts_to_refuse(&self, after: &Policy) -> Vec<Refusing> {
        let mut found = Vec::new();
        for (name, before) in &self.domains {
            if let Some(after) = after.domains.get(name) {
                Change { name, found: &mut found }.domain(before, after);
            }
        }
        found
    }
}

/// What starts, wherever it is: a limit by its id, or all there is.
type Start = (RefusingCode, Option<String>);

/// The limits that only counted, by their ids.
fn shadows<'p>(was: impl IntoIterator<Item = &'p Limit>, is: impl IntoIterator<Item = &'p Limit>) -> Vec<Start> {
    let counted: BTreeSet<&str> = was.into_iter().filter(|it| !is_enforced(it)).map(|it| it.id.as_str()).collect();
    let denying = is.into_iter().filter(|it| is_enforced(it) && counted.contains(it.id.as_str()));
    denying.map(|it| (RefusingCode::Shadow, Some(it.id.clone()))).collect()
}

fn starts(was: &Held<'_>, is: &Held<'_>) -> Vec<Start> {
    match (was, is) {
        (Held::Unlimited, Held::Limits(is)) if is.iter().any(|limit| is_enforced(limit)) => {
            vec![(RefusingCode::Unlimited, None)]
        }
        (Held::Limits(was), Held::Limits(is)) => shadows(was.iter().copied(), is.iter().copied()),
        _ => Vec::new(),
    }
}

/// The objects of one domain before and after.
struct Change<'p, 'f> {
    name: &'p str,
    found: &'f mut Vec<Refusing>,
}

impl Change<'_, '_> {
    fn tell(&mut self, kind: &'static str, id: &str, (code, limit): Start, objects: usize, of: &str) {
        let message = format!("{of}starts to refuse: was {}", code.name());
        let (domain, id) = (self.name.to_owned(), id.to_owned());
        self.found.push(Refusing { code, domain, kind, id, limit, objects, message });
    }

    fn domain(&mut self, before: &Domain, after: &Domain) {
        for was in &before.tiers {
            let Some(is) = tier_of(after, &was.id) else { continue };
            for start in starts(&Held::by_tier(Some(was)), &Held::by_tier(Some(is))) {
                self.tell("tier", &was.id, start, 1, "");
            }
        }
        let rules = RulesAfter::new(before, after);
        for was in before.rules.iter().filter(|rule| !rule.enabled || !rule.limits.iter().all(is_enforced)) {
            let Some(is) = rules.now(was) else { continue };
            if was.enabled {
                for start in shadows(&was.limits, &is.limits) {
                    self.tell("rule", &was.id, start, 1, "");
                }
            } else if is.limits.iter().any(is_enforced) {
                self.tell("rule", &was.id, (RefusingCode::Off, None), 1, "");
            }
        }
        self.clients(before, after);
        for (kind, is) in &after.defaults {
            let was = before.defaults.get(kind);
            if was == Some(is) {
                continue;
            }
            let [was, is] = [was, Some(is)].map(|tier| Held::by_tier(tier_between(before, after, tier)));
            for start in starts(&was, &is) {
                self.tell("domain", self.name, start, 1, &format!("for each {kind} without a tier of its own: "));
            }
        }
    }

    /// Those who were there, and whose tier or override is otherwise. What a tier denies is what it is given for; told is who
    /// was not limited at all, and what an override lets begin. What changed of a tier is told once, of the tier.
    fn clients(&mut self, before: &Domain, after: &Domain) {
        let mut alike: BTreeMap<Start, (ClientId<'_>, usize)> = BTreeMap::new();
        for ClientChange { id, was, is, held, holds } in clients_changed(before, after) {
            let Some(was) = was else { continue };
            // Where its tier is gone, the one that it is in now may be that one by another name.
            let tier_is_gone = was.tier.as_ref().is_some_and(|id| tier_of(after, id).is_none());
            let is_told = tier_is_gone || is.is_some_and(|client| client.exception.is_some());
            for start in starts(&held, &holds).into_iter().filter(|(_, limit)| is_told || limit.is_none()) {
                alike.entry(start).or_insert((id, 0)).1 += 1;
            }
        }
        for (start, ((kind, value), objects)) in alike {
            self.tell("client", &format!("{kind}:{value}"), start, objects, "");
        }
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limit(id: &str, mode: &str) -> Value {
        json!({ "id": id, "algorithm": "token_bucket", "limit": 60, "period": "1m", "mode": mode })
    }

    /// Fields of `more` in the place of those of `base`.
    fn with(base: &Value, more: &Value) -> Value {
        let mut made = base.clone();
        more.as_object().into_iter().flatten().for_each(|(name, value)| made[name] = value.clone());
        made
    }

    /// As `KIND:ID/LIMIT CODE`, with how many there are of more than one.
    fn found(before: &Value, after: &Value) -> Vec<String> {
        let [before, after] = [before, after].map(|domain| -> Policy {
            serde_json::from_value(json!({ "domains": { "default": domain } })).expect("a policy")
        });
        let told = before.starts_to_refuse(&after).into_iter().map(|one| {
            let Refusing { code, kind, id, limit, objects, message, .. } = one;
            assert!(message.ends_with(&format!("starts to refuse: was {}", code.name())), "{message}");
            let limit = limit.map(|limit| format!("/{limit}")).unwrap_or_default();
            let objects = if objects == 1 { String::new() } else { format!(" {objects}") };
            format!("{kind}:{id}{limit} {}{objects}", code.name())
        });
        told.collect()
    }

    #[test]
    fn of_tiers() {
        let tier = |more: Value| json!({ "tiers": [with(&json!({ "id": "free" }), &more)] });
        let limits = |minute: &str, day: &str| tier(json!({ "limits": [limit("minute", minute), limit("day", day)] }));
        let (none, all) = (tier(json!({ "limits": [] })), tier(json!({ "unlimited": true })));
        let cases: [(&Value, Value, &[&str]); 9] = [
            (&limits("shadow", "enforce"), limits("enforce", "enforce"), &["tier:free/minute shadow"]),
            (
                &limits("shadow", "shadow"),
                limits("enforce", "enforce"),
                &["tier:free/minute shadow", "tier:free/day shadow"],
            ),
            (&limits("shadow", "enforce"), limits("shadow", "enforce"), &[]),
            (&limits("enforce", "enforce"), limits("shadow", "enforce"), &[]),
            (&limits("shadow", "enforce"), none.clone(), &[]),
            (&none, limits("enforce", "enforce"), &[]),
            (&all, limits("enforce", "shadow"), &["tier:free unlimited"]),
            (&all, limits("shadow", "shadow"), &[]),
            (&limits("shadow", "shadow"), all.clone(), &[]),
        ];
        for (before, after, expected) in cases {
            assert_eq!(found(before, &after), expected, "{before} {after}");
        }
        assert_eq!(found(&json!({}), &limits("enforce", "enforce")), [""; 0], "it is new");
    }

    #[test]
    fn of_rules() {
        let rule = |more: Value| {
            let base = json!({ "id": "r", "endpoint": "/a/*", "per": "user", "limits": [limit("m", "enforce")] });
            json!({ "rules": [with(&base, &more)] })
        };
        let (shadow, off) = (json!([limit("m", "shadow")]), json!({ "enabled": false }));
        let cases: [(Value, Value, &[&str]); 8] = [
            (json!({ "limits": shadow }), json!({}), &["rule:r/m shadow"]),
            (json!({ "limits": shadow }), off.clone(), &[]),
            (json!({ "limits": shadow }), json!({ "id": "renamed" }), &["rule:r/m shadow"]),
            (json!({ "limits": shadow }), json!({ "id": "other", "endpoint": "/b" }), &[]),
            (off.clone(), json!({}), &["rule:r off"]),
            (json!({ "enabled": false, "limits": shadow }), json!({}), &["rule:r off"]),
            (off.clone(), json!({ "limits": shadow }), &[]),
            (json!({}), json!({ "limits": [limit("m", "enforce"), limit("n", "enforce")] }), &[]),
        ];
        for (before, after, expected) in cases {
            assert_eq!(found(&rule(before.clone()), &rule(after.clone())), expected, "{before} {after}");
        }
    }

    #[test]
    fn of_clients_and_defaults() {
        let tiers = json!([
            { "id": "watched", "limits": [limit("m", "shadow")] },
            { "id": "held", "limits": [limit("m", "enforce")] },
            { "id": "all", "unlimited": true },
        ]);
        let domain = |defaults: Value, client: Value| {
            let both = ["ada", "bob"].map(|value| with(&json!({ "kind": "user", "value": value }), &client));
            json!({ "defaults": defaults, "tiers": tiers, "clients": both })
        };
        let of = |client: Value| domain(json!({}), client);
        let own = |mode: &str| json!({ "tier": "watched", "override": { "limits": [limit("m", mode)] } });
        let cases: [(Value, Value, &[&str]); 8] = [
            (json!({ "tier": "all" }), json!({ "tier": "held" }), &["client:user:ada unlimited 2"]),
            (json!({ "tier": "all" }), json!({ "tier": "watched" }), &[]),
            (json!({ "tier": "watched" }), json!({ "tier": "held" }), &[]),
            (json!({ "tier": "watched" }), own("enforce"), &["client:user:ada/m shadow 2"]),
            (own("shadow"), own("enforce"), &["client:user:ada/m shadow 2"]),
            (own("shadow"), json!({ "override": { "blocked": true } }), &[]),
            (
                json!({ "tier": "held", "override": { "unlimited": true } }),
                json!({ "tier": "held" }),
                &["client:user:ada unlimited 2"],
            ),
            (json!({ "tier": "held" }), json!({ "tier": "held", "label": "somebody" }), &[]),
        ];
        for (before, after, expected) in cases {
            assert_eq!(found(&of(before.clone()), &of(after.clone())), expected, "{before} {after}");
        }
        assert_eq!(found(&json!({ "tiers": tiers }), &of(json!({ "tier": "held" }))), [""; 0], "they are new");
        let renamed = |id: &str, mode: &str| {
            let client = json!({ "kind": "user", "value": "ada", "tier": id });
            json!({ "tiers": [{ "id": id, "limits": [limit("m", mode)] }], "clients": [client] })
        };
        assert_eq!(found(&renamed("old", "shadow"), &renamed("new", "enforce")), ["client:user:ada/m shadow"]);
        assert_eq!(found(&renamed("old", "shadow"), &renamed("new", "shadow")), [""; 0]);
        let default = |tier: &str| json!({ "defaults": { "user": tier }, "tiers": tiers });
        let none = json!({ "tiers": tiers });
        assert_eq!(found(&none, &default("held")), ["domain:default unlimited"]);
        assert_eq!(found(&default("watched"), &default("held")), ["domain:default/m shadow"]);
        assert_eq!(found(&default("held"), &none), [""; 0]);
    }
}
