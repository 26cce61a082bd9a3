//! Newly enforced limits: finds what existed before a change of the policy and denied nothing, and begins to deny with it.

use std::collections::BTreeSet;

use super::{
    comparison::{DomainComparison, Effect, EffectiveLimits, RulesAfter, is_enforced},
    finding::{Finding, NewlyEnforcedCode},
};
use crate::policy::document::{Limit, Policy};

impl Policy {
    /// Finds what denied nothing before and does in `after`: limits in shadow mode, rules that were disabled, tiers, defaults and
    /// clients that were unlimited. Leaves out what is new, and clients that are blocked. Both policies must be valid.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    ///
    /// let with = |mode: &str| -> Policy {
    ///     serde_json::from_str(&format!(r#"{{"domains": {{"default": {{"tiers": [{{"id": "free", "limits": [
    ///         {{"id": "minute", "algorithm": "token_bucket", "limit": 60, "period": "1m", "mode": "{mode}"}}
    ///     ]}}]}}}}}}"#)).unwrap()
    /// };
    /// assert!(with("enforce").newly_enforced_by(&with("enforce")).is_empty());
    /// assert_eq!(with("shadow").newly_enforced_by(&with("enforce"))[0].message, "starts to refuse: was shadow");
    /// ```
    #[must_use]
    pub fn newly_enforced_by(&self, after: &Policy) -> Vec<Finding<NewlyEnforcedCode>> {
        let mut found = Vec::new();
        for (domain, before) in &self.domains {
            if let Some(after) = after.domains.get(domain) {
                compare(&mut DomainComparison { domain, before, after, found: &mut found, effects: effects_of_limits });
            }
        }
        found
    }
}

fn compare(comparison: &mut DomainComparison<'_, '_, NewlyEnforcedCode>) {
    let (before, after) = (comparison.before, comparison.after);
    comparison.compare_tiers();
    let rules = RulesAfter::new(before, after);
    for was in before.rules.iter().filter(|rule| !rule.enabled || !rule.limits.iter().all(is_enforced)) {
        let Some(is) = rules.successor(was) else { continue };
        let effects = if was.enabled {
            formerly_shadowed(was.limits.iter(), is.limits.iter())
        } else if is.limits.iter().any(is_enforced) {
            vec![effect(NewlyEnforcedCode::Off, None)]
        } else {
            Vec::new()
        };
        for effect in effects {
            comparison.add("rule", &was.id, effect, 1);
        }
    }
    comparison.compare_clients(false);
    comparison.compare_defaults();
}

fn effects_of_limits(before: &EffectiveLimits<'_>, after: &EffectiveLimits<'_>) -> Vec<Effect<NewlyEnforcedCode>> {
    use EffectiveLimits::{Limits, Unlimited};
    match (before, after) {
        (Unlimited, Limits(after)) if after.iter().any(|limit| is_enforced(limit)) => {
            vec![effect(NewlyEnforcedCode::Unlimited, None)]
        }
        (Limits(before), Limits(after)) => formerly_shadowed(before.iter().copied(), after.iter().copied()),
        _ => Vec::new(),
    }
}

/// Finds the limits that were in shadow mode before and are enforced after, by their ids.
fn formerly_shadowed<'p>(
    before: impl Iterator<Item = &'p Limit>,
    after: impl Iterator<Item = &'p Limit>,
) -> Vec<Effect<NewlyEnforcedCode>> {
    let shadowed: BTreeSet<&str> = before.filter(|it| !is_enforced(it)).map(|it| it.id.as_str()).collect();
    let enforced = after.filter(|it| is_enforced(it) && shadowed.contains(it.id.as_str()));
    enforced.map(|it| effect(NewlyEnforcedCode::ShadowMode, Some(it.id.clone()))).collect()
}

fn effect(code: NewlyEnforcedCode, limit: Option<String>) -> Effect<NewlyEnforcedCode> {
    Effect { limit, ..Effect::new(code, format!("starts to refuse: was {}", code.name())) }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limit(id: &str, mode: &str) -> Value {
        json!({ "id": id, "algorithm": "token_bucket", "limit": 60, "period": "1m", "mode": mode })
    }

    /// Returns `base` with the fields of `more`.
    fn with(base: &Value, more: &Value) -> Value {
        let mut made = base.clone();
        more.as_object().into_iter().flatten().for_each(|(name, value)| made[name] = value.clone());
        made
    }

    /// Returns the findings as `KIND:ID/LIMIT CODE`, with the number of clients if there are several.
    fn found(before: &Value, after: &Value) -> Vec<String> {
        let [before, after] = [before, after].map(|domain| -> Policy {
            serde_json::from_value(json!({ "domains": { "default": domain } })).expect("a policy")
        });
        let texts = before.newly_enforced_by(&after).into_iter().map(|one| {
            let Finding { code, kind, id, limit, objects, message, .. } = one;
            assert!(message.ends_with(&format!("starts to refuse: was {}", code.name())), "{message}");
            let limit = limit.map(|limit| format!("/{limit}")).unwrap_or_default();
            let objects = if objects == 1 { String::new() } else { format!(" {objects}") };
            format!("{kind}:{id}{limit} {}{objects}", code.name())
        });
        texts.collect()
    }

    #[test]
    fn a_tier_is_newly_enforced_after_shadow_mode_or_unlimited() {
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
    fn a_rule_is_newly_enforced_after_shadow_mode_or_disabled() {
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
    fn clients_and_defaults_are_newly_enforced_after_shadow_mode_or_unlimited() {
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
