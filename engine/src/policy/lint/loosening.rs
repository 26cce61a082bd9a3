//! Loosenings: finds where a change of the policy admits much more than before.

use std::collections::BTreeSet;

use super::{
    bounds::per_second,
    comparison::{DomainComparison, Effect, EffectiveLimits, RulesAfter, is_enforced},
    finding::{Finding, LooseningCode, WarningCode},
};
use crate::policy::{
    document::{Descriptors, Domain, Limit, OnError, OnFailure, Policy, Rule, Sharing},
    explain::kinds,
};

/// A change to this many times the former rate or burst, or more, is a loosening.
const MUCH_MORE: f64 = 10.0;

impl Policy {
    /// Finds what a change to `after` gives up: limits that are removed, that only count, or that admit ten times as much; rules
    /// that are disabled, match fewer requests, or stand beside a new rule that is closer and allows more; default tiers and
    /// overrides that allow ten times as much; clients that are no longer blocked or limited.
    ///
    /// Both policies must be valid. For clients only the document counts: where a client is removed that stood before a prefix or
    /// a block of addresses, the default tier of its kind is taken for what applies then.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    ///
    /// let with = |limit: u64| -> Policy {
    ///     serde_json::from_str(&format!(r#"{{"domains": {{"default": {{"tiers": [{{"id": "free", "limits": [
    ///         {{"id": "minute", "algorithm": "token_bucket", "limit": {limit}, "period": "1m"}}
    ///     ]}}]}}}}}}"#)).unwrap()
    /// };
    /// assert!(with(60).loosened_by(&with(120)).is_empty());
    /// assert_eq!(with(60).loosened_by(&with(600))[0].message, "lets 10 times as much through");
    /// ```
    #[must_use]
    pub fn loosened_by(&self, after: &Policy) -> Vec<Finding<LooseningCode>> {
        let mut found = Vec::new();
        for (domain, before) in &self.domains {
            let gone = Domain::default();
            let after = after.domains.get(domain);
            let mut comparison = DomainComparison {
                domain,
                before,
                after: after.unwrap_or(&gone),
                found: &mut found,
                effects: effects_of_limits,
            };
            if after.is_some() {
                compare(&mut comparison);
            } else if is_limiting(before) {
                comparison.add_of_domain(Effect::new(LooseningCode::Off, "is gone, with all of its limits"));
            }
        }
        let shadows =
            |policy: &Policy| policy.lint().into_iter().filter(|warning| warning.code == WarningCode::ShadowsRule);
        let known: BTreeSet<Finding<WarningCode>> = shadows(self).collect();
        found.extend(shadows(after).filter(|warning| !known.contains(warning)).map(|warning| {
            let Finding { code: _, domain, kind, id, limit, objects, message } = warning;
            Finding { code: LooseningCode::ShadowsRule, domain, kind, id, limit, objects, message }
        }));
        found
    }
}

fn is_limiting(domain: &Domain) -> bool {
    let limits = domain.tiers.iter().flat_map(|tier| &tier.limits);
    limits.chain(domain.rules.iter().flat_map(|rule| &rule.limits)).any(is_enforced)
}

fn compare(comparison: &mut DomainComparison<'_, '_, LooseningCode>) {
    let (before, after) = (comparison.before, comparison.after);
    comparison.compare_tiers();
    let rules = RulesAfter::new(before, after);
    for rule in before.rules.iter().filter(|rule| rule.enabled && rule.limits.iter().any(is_enforced)) {
        for effect in effects_of_rule(&rules, rule) {
            comparison.add("rule", &rule.id, effect, 1);
        }
    }
    comparison.compare_clients(true);
    comparison.compare_defaults();
    if before.on_error == OnError::Closed && after.on_error == OnError::Open {
        let message = "lets requests through when nothing can be decided";
        comparison.add_of_domain(Effect::new(LooseningCode::OnError, message));
    }
    if !before.tier_hint && after.tier_hint {
        let message = "lets requests name the tier that they are in";
        comparison.add_of_domain(Effect::new(LooseningCode::TierHint, message));
    }
    if before.descriptors == Descriptors::Subset && after.descriptors == Descriptors::Exact {
        let message = "lets descriptors of Envoy pass rules that name fewer kinds than they have";
        comparison.add_of_domain(Effect::new(LooseningCode::Descriptors, message));
    }
    if before.descriptor_paths != after.descriptor_paths {
        let message = "changes which rules descriptors of Envoy meet that have a path or a method";
        comparison.add_of_domain(Effect::new(LooseningCode::Descriptors, message));
    }
}

fn effects_of_rule(rules: &RulesAfter<'_>, was: &Rule) -> Vec<Effect<LooseningCode>> {
    let Some(is) = rules.successor(was) else {
        return vec![Effect::new(LooseningCode::Off, "no longer limits anything")];
    };
    let [before, after] = [was, is].map(|rule| rule.limits.iter().collect::<Vec<_>>());
    let mut found = limits_loosened(&before, &after, was.cost as f64 / is.cost as f64);
    if !rules.takes_all(is, was) {
        found.push(Effect::new(LooseningCode::Narrowed, "is no longer for all requests that it was for"));
    } else if !kinds(is).iter().all(|kind| kinds(was).contains(kind)) {
        found.push(Effect::new(LooseningCode::Narrowed, "counts apart what it counted together"));
    }
    found
}

fn effects_of_limits(before: &EffectiveLimits<'_>, after: &EffectiveLimits<'_>) -> Vec<Effect<LooseningCode>> {
    use EffectiveLimits::{Blocked, Limits, Unlimited};
    match (before, after) {
        (Unlimited, _) | (_, Blocked) => Vec::new(),
        (Blocked, _) => vec![Effect::new(LooseningCode::Unblocked, "is no longer blocked")],
        (Limits(before), Unlimited) if before.iter().any(|limit| is_enforced(limit)) => {
            vec![Effect::new(LooseningCode::Unlimited, "is no longer limited")]
        }
        (Limits(_), Unlimited) => Vec::new(),
        (Limits(before), Limits(after)) => limits_loosened(before, after, 1.0),
    }
}

/// Finds the limits that admit much more than before, if the same tokens pay for `cheaper` times as many requests.
fn limits_loosened(before: &[&Limit], after: &[&Limit], cheaper: f64) -> Vec<Effect<LooseningCode>> {
    let enforced = before.iter().filter(|limit| is_enforced(limit));
    enforced
        .flat_map(|was| match after.iter().find(|limit| limit.id == was.id) {
            Some(is) => limit_loosened(was, is, cheaper),
            None if after.iter().any(|limit| is_enforced(limit) && more(was, limit, cheaper).is_none()) => Vec::new(),
            None => vec![Effect::of_limit(was, LooseningCode::Removed, "no longer has this limit")],
        })
        .collect()
}

fn limit_loosened(was: &Limit, is: &Limit, cheaper: f64) -> Vec<Effect<LooseningCode>> {
    if !is_enforced(is) {
        return vec![Effect::of_limit(is, LooseningCode::ShadowMode, "no longer denies, it only counts")];
    }
    let mut found = Vec::new();
    if is.on_failure == Some(OnFailure::Open) && was.on_failure != is.on_failure && is.sharing != Sharing::Local {
        let message = "lets everything through when what nodes share cannot be reached";
        found.push(Effect::of_limit(is, LooseningCode::Open, message));
    }
    if was.sharing != Sharing::Local && is.sharing == Sharing::Local {
        found.push(Effect::of_limit(
            is,
            LooseningCode::Alone,
            "holds for each node alone, no longer for all of them together",
        ));
    }
    found.extend(more(was, is, cheaper).map(|(code, message)| Effect::of_limit(is, code, message)));
    found
}

/// Returns the code and message for a limit that admits much more than before.
fn more(was: &Limit, is: &Limit, cheaper: f64) -> Option<(LooseningCode, String)> {
    let at_once = |limit: &Limit| limit.burst.unwrap_or(limit.limit) as f64;
    let times = |was: f64, is: f64| if was == 0.0 && is == 0.0 { 1.0 } else { is * cheaper / was };
    let (rate, burst) = (times(per_second(was)?, per_second(is)?), times(at_once(was), at_once(is)));
    if rate.is_infinite() {
        Some((LooseningCode::Raised, "lets through what it denied altogether".to_owned()))
    } else if rate >= MUCH_MORE {
        Some((LooseningCode::Raised, format!("lets {rate:.0} times as much through")))
    } else if burst >= MUCH_MORE {
        Some((LooseningCode::Burst, format!("lets {burst:.0} times as much through at once")))
    } else {
        None
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(domain: &Value) -> Policy {
        serde_json::from_value(json!({ "domains": { "default": domain } })).expect("a policy")
    }

    fn limit(limit: u64, more: &Value) -> Value {
        let mut made = json!({ "id": "m", "algorithm": "token_bucket", "limit": limit, "period": "1m" });
        let fields = more.as_object().into_iter().flatten();
        fields.for_each(|(name, value)| made[name] = value.clone());
        made
    }

    fn tier(limits: &Value) -> Value {
        json!({ "tiers": [{ "id": "free", "limits": limits }] })
    }

    fn rule(more: &Value) -> Value {
        let mut made = json!({ "id": "r", "endpoint": "/a/*", "per": "user", "limits": [limit(60, &json!({}))] });
        let fields = more.as_object().into_iter().flatten();
        fields.for_each(|(name, value)| made[name] = value.clone());
        json!({ "rules": [made], "tiers": [{ "id": "free", "limits": [] }, { "id": "pro", "limits": [] }] })
    }

    /// Returns the findings as `KIND:ID/LIMIT CODE`, with the number of clients if there are several.
    fn found(before: &Value, after: &Value) -> Vec<String> {
        let found = policy(before).loosened_by(&policy(after));
        let texts = found.into_iter().map(|Finding { code, kind, id, limit, objects, .. }| {
            let limit = limit.map(|limit| format!("/{limit}")).unwrap_or_default();
            let objects = if objects == 1 { String::new() } else { format!(" {objects}") };
            format!("{kind}:{id}{limit} {}{objects}", code.name())
        });
        texts.collect()
    }

    #[test]
    fn a_limit_is_loosened_by_rate_burst_mode_or_removal() {
        let with = |number: u64, more: Value| tier(&json!([limit(number, &more)]));
        let now = with(60, json!({}));
        let cases = [
            (with(599, json!({})), ""),
            (with(600, json!({})), "raised"),
            (with(60, json!({ "period": "6s" })), "raised"),
            (with(600, json!({ "period": "10m" })), "burst"),
            (with(60, json!({ "burst": 600 })), "burst"),
            (with(60, json!({ "algorithm": "fixed_window", "period": "day" })), ""),
            (with(864_000, json!({ "algorithm": "fixed_window", "period": "day" })), "raised"),
            (with(60, json!({ "mode": "shadow" })), "shadow"),
            (with(60, json!({ "id": "other" })), ""),
            (with(600, json!({ "id": "other" })), "removed"),
            (with(60, json!({ "id": "other", "mode": "shadow" })), "removed"),
            (tier(&json!([])), "removed"),
            (json!({ "tiers": [{ "id": "free", "unlimited": true }] }), "unlimited"),
        ];
        for (after, expected) in cases {
            let of = if expected == "unlimited" { "tier:free" } else { "tier:free/m" };
            let expected: Vec<String> = expected.split_whitespace().map(|code| format!("{of} {code}")).collect();
            assert_eq!(found(&now, &after), expected, "{after}");
            assert_eq!(found(&after, &after), [""; 0], "nothing changed");
        }
        assert_eq!(found(&with(0, json!({})), &with(1, json!({}))), ["tier:free/m raised"]);
        assert_eq!(found(&with(60, json!({ "mode": "shadow" })), &with(6_000, json!({}))), [""; 0], "it never denied");
        let shared = |more: &Value| {
            let mut made = with(60, json!({ "sharing": "strict" }));
            let fields = more.as_object().into_iter().flatten();
            fields.for_each(|(name, value)| made["tiers"][0]["limits"][0][name] = value.clone());
            made
        };
        assert_eq!(found(&shared(&json!({})), &shared(&json!({ "on_failure": "open" }))), ["tier:free/m open"]);
        assert_eq!(found(&shared(&json!({})), &with(60, json!({}))), ["tier:free/m alone"]);
    }

    #[test]
    fn a_rule_is_loosened_by_cost_scope_or_removal() {
        let now = rule(&json!({ "cost": 20 }));
        let cases = [
            (json!({}), "r/m raised"),
            (json!({ "cost": 3 }), ""),
            (json!({ "cost": 20, "enabled": false }), "r off"),
            (json!({ "cost": 20, "id": "s" }), ""),
            (json!({ "cost": 20, "id": "s", "endpoint": "/a" }), "r off"),
            (json!({ "cost": 20, "endpoint": "*" }), ""),
            (json!({ "cost": 20, "endpoint": "/a/b" }), "r narrowed"),
            (json!({ "cost": 20, "method": "GET" }), "r narrowed"),
            (json!({ "cost": 20, "where": { "ip": "10.*" } }), "r narrowed"),
            (json!({ "cost": 20, "per": "everyone" }), ""),
            (json!({ "cost": 20, "per": ["user", "ip"] }), "r narrowed"),
            (json!({ "cost": 20, "tiers": ["free"] }), "r narrowed"),
        ];
        for (more, expected) in cases {
            let expected: Vec<String> =
                (!expected.is_empty()).then(|| format!("rule:{expected}")).into_iter().collect();
            assert_eq!(found(&now, &rule(&more)), expected, "{more}");
        }
        let mut beside = now.clone();
        let closer = rule(&json!({ "id": "closer", "endpoint": "/a/b", "limits": [limit(6_000, &json!({}))] }));
        beside["rules"].as_array_mut().expect("a list").push(closer["rules"][0].clone());
        assert_eq!(found(&now, &beside), ["rule:closer shadows"]);
        assert_eq!(found(&beside, &beside), [""; 0]);
        let mut gone = rule(&json!({}));
        gone["rules"] = json!([]);
        assert_eq!(found(&now, &gone), ["rule:r off"]);
        assert_eq!(found(&rule(&json!({ "enabled": false })), &gone), [""; 0]);
        // A renamed tier replaces the former one.
        let mut renamed = rule(&json!({ "tiers": ["best"] }));
        renamed["tiers"][1]["id"] = json!("best");
        assert_eq!(found(&rule(&json!({ "tiers": ["pro"] })), &renamed), [""; 0]);
    }

    #[test]
    fn clients_and_defaults_are_loosened_by_their_tiers_and_overrides() {
        let domain = |defaults: Value, clients: Value| {
            let tier = |id: &str, number: u64| json!({ "id": id, "limits": [limit(number, &json!({}))] });
            json!({ "defaults": defaults, "clients": clients, "tiers": [tier("free", 60), tier("pro", 6_000), { "id": "all", "unlimited": true }] })
        };
        let client = |value: &str, more: &Value| {
            let mut made = json!({ "kind": "user", "value": value });
            let fields = more.as_object().into_iter().flatten();
            fields.for_each(|(name, value)| made[name] = value.clone());
            made
        };
        let free = json!({ "user": "free" });
        let of = |more: Value| {
            domain(
                free.clone(),
                json!([client("ada", &more), client("bob", &more), client("cy", &json!({ "tier": "pro" }))]),
            )
        };
        let now = of(json!({ "tier": "free" }));
        let cases = [
            (of(json!({ "tier": "pro" })), vec![]),
            (of(json!({ "tier": "all" })), vec!["client:user:ada unlimited 2"]),
            (of(json!({ "label": "somebody" })), vec![]),
            (of(json!({ "override": { "unlimited": true } })), vec!["client:user:ada unlimited 2"]),
            (of(json!({ "override": { "limits": [limit(600, &json!({}))] } })), vec!["client:user:ada/m raised 2"]),
            (domain(free.clone(), json!([])), vec![]),
            (domain(json!({}), of(json!({ "tier": "free" }))["clients"].clone()), vec!["domain:default unlimited"]),
            (
                domain(json!({ "user": "pro" }), of(json!({ "tier": "free" }))["clients"].clone()),
                vec!["domain:default/m raised"],
            ),
        ];
        for (after, expected) in cases {
            assert_eq!(found(&now, &after), expected, "{after}");
        }
        let blocked = of(json!({ "override": { "blocked": true } }));
        assert_eq!(found(&blocked, &now), ["client:user:ada unblocked 2"]);
        assert_eq!(found(&blocked, &domain(free.clone(), json!([]))), ["client:user:ada unblocked 2"]);
        // A change of the tier is one finding about the tier, not about its clients.
        let mut wider = now.clone();
        wider["tiers"][0]["limits"][0]["limit"] = json!(600);
        assert_eq!(found(&now, &wider), ["tier:free/m raised"]);
        // A tier may also be loosened under another name.
        let mut renamed = domain(json!({ "user": "big" }), json!([client("cy", &json!({ "tier": "huge" }))]));
        renamed["tiers"] = json!([
            { "id": "big", "limits": [limit(60, &json!({}))] }, { "id": "huge", "limits": [limit(60_000, &json!({}))] },
        ]);
        let one = domain(free.clone(), json!([client("cy", &json!({ "tier": "pro" }))]));
        assert_eq!(found(&one, &renamed), ["client:user:cy/m raised"]);
    }

    #[test]
    fn a_domain_is_loosened_by_its_settings_or_removal() {
        let now = tier(&json!([limit(60, &json!({}))]));
        let with = |name: &str, value: &Value| {
            let mut made = now.clone();
            made[name] = value.clone();
            made
        };
        assert_eq!(found(&with("on_error", &json!("closed")), &now), ["domain:default on_error"]);
        let subset = with("descriptors", &json!("subset"));
        assert_eq!(found(&subset, &now), ["domain:default descriptors"]);
        assert_eq!(found(&now, &subset), [""; 0]);
        let identity = with("descriptor_paths", &json!("identity"));
        assert_eq!([found(&identity, &now), found(&now, &identity)], [["domain:default descriptors"]; 2]);
        assert_eq!(found(&now, &with("tier_hint", &json!(true))), ["domain:default tier_hint"]);
        let none: Policy = serde_json::from_value(json!({ "domains": {} })).expect("a policy");
        assert_eq!(policy(&now).loosened_by(&none)[0].code, LooseningCode::Off);
    }
}
