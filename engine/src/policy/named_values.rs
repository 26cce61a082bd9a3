//! Named values: the values of identities that policies name in clients and in the conditions of rules.

use std::collections::BTreeMap;

use crate::policy::{
    client_map::ClientMap,
    document::Policy,
    error::{Problem, Problems},
    matcher::Matcher,
};

/// The most fields that [`NamedValues::check`] reports.
const REPORTED_MAX: usize = 20;

/// The values by which policies distinguish identities of the same kind: those of clients, and of `where` in rules. `*`, which
/// matches every identity, is not among them.
///
/// ```
/// use tidegate::{NamedValues, policy::Policy};
///
/// let policy: Policy = serde_json::from_str(r#"{"domains": {"default": {"clients": [
///     {"kind": "user", "value": "team-*", "tier": "free"}
/// ]}}}"#).unwrap();
/// let named = NamedValues::of([&policy]);
/// assert!(named.has("user", "team-ada") && !named.has("user", "ada"));
/// ```
#[derive(Debug, Default)]
pub struct NamedValues {
    kinds: BTreeMap<String, ClientMap<()>>,
}

impl NamedValues {
    /// Collects the named values of all domains of these policies. Values that are invalid for their kind are left out.
    #[must_use]
    pub fn of<'p>(policies: impl IntoIterator<Item = &'p Policy>) -> Self {
        let mut named = Self::default();
        for policy in policies {
            for_each_value(policy, |kind, value, _| {
                if let Some(matcher) = parse_named(kind, value) {
                    named.kinds.entry(kind.to_owned()).or_default().insert(matcher, ());
                }
            });
        }
        named
    }

    /// Returns whether a policy names this identity.
    #[must_use]
    pub fn has(&self, kind: &str, value: &str) -> bool {
        self.kinds.get(kind).is_some_and(|named| named.find(value).is_some())
    }

    /// Checks that a policy names no other values than these. The notation does not matter: `10.1.*` is `10.1.0.0/16`.
    ///
    /// # Errors
    ///
    /// Reports `message` for the first twenty fields with another value.
    pub fn check(&self, policy: &Policy, message: &str) -> Result<(), Problems> {
        let mut found = Vec::new();
        for_each_value(policy, |kind, value, path| {
            let is_known =
                |matcher: &Matcher<&str>| self.kinds.get(kind).is_some_and(|named| named.get(matcher).is_some());
            if found.len() < REPORTED_MAX && parse_named(kind, value).is_some_and(|matcher| !is_known(&matcher)) {
                found.push(Problem { path: path(), line: None, message: message.to_owned() });
            }
        });
        if found.is_empty() { Ok(()) } else { Err(Problems(found)) }
    }
}

/// Calls `see` with the kind, the value and the path of every value of a policy.
fn for_each_value<'p>(policy: &'p Policy, mut see: impl FnMut(&'p str, &'p str, &dyn Fn() -> String)) {
    for (domain, settings) in &policy.domains {
        for (number, client) in settings.clients.iter().enumerate() {
            see(&client.kind, &client.value, &|| format!("domains.{domain}.clients[{number}].value"));
        }
        for (number, rule) in settings.rules.iter().enumerate() {
            for (kind, value) in &rule.condition {
                see(kind, value, &|| format!("domains.{domain}.rules[{number}].where.{kind}"));
            }
        }
    }
}

/// Parses a value that distinguishes some identities of the kind from others.
fn parse_named<'v>(kind: &str, value: &'v str) -> Option<Matcher<&'v str>> {
    Matcher::parse(kind, value).ok().filter(|matcher| *matcher != Matcher::Prefix(""))
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    fn policy(values: &[(&str, &str)], conditions: &[(&str, &str)]) -> Policy {
        let clients: Vec<_> = values
            .iter()
            .map(|(kind, value)| serde_json::json!({ "kind": kind, "value": value, "tier": "free" }))
            .collect();
        let condition: BTreeMap<_, _> = conditions.iter().copied().collect();
        let rule =
            serde_json::json!({ "id": "r", "endpoint": "*", "per": "everyone", "where": condition, "limits": [] });
        let document = serde_json::json!({ "domains": { "web": { "clients": clients, "rules": [rule] } } });
        serde_json::from_value(document).expect("a document")
    }

    #[test]
    fn a_value_is_named_in_any_notation_but_not_if_it_is_wider_or_narrower() {
        let published = policy(&[("ip", "10.1.*"), ("user", "ada"), ("user", "*")], &[("api_key", "sk_live_*")]);
        let named = NamedValues::of([&published]);
        let same = policy(&[("ip", "10.1.0.0/16"), ("api_key", "sk_live_*"), ("api_key", "*")], &[("user", "ada")]);
        assert_eq!(named.check(&same, "new"), Ok(()));
        for (clients, conditions, path) in [
            (&[("user", "ada"), ("user", "eve")][..], &[][..], "domains.web.clients[1].value"),
            (&[("user", "ad*")], &[], "domains.web.clients[0].value"),
            (&[("ip", "10.1.0.0/17")], &[], "domains.web.clients[0].value"),
            (&[("tenant", "ada")], &[], "domains.web.clients[0].value"),
            (&[], &[("api_key", "sk_live_5*")], "domains.web.rules[0].where.api_key"),
            (&[], &[("api_key", "sk_*")], "domains.web.rules[0].where.api_key"),
        ] {
            let refused = named.check(&policy(clients, conditions), "new").expect_err("it is new");
            let paths: Vec<&str> = refused.iter().map(|problem| problem.path.as_str()).collect();
            assert_eq!(paths, [path]);
        }
        for (kind, value, is_named) in [
            ("ip", "10.1.2.3", true),
            ("ip", "10.2.0.1", false),
            ("user", "ada", true),
            ("user", "eve", false),
            ("api_key", "sk_live_1", true),
            ("api_key", "ada", false),
        ] {
            assert_eq!(named.has(kind, value), is_named, "{kind}:{value}");
        }
    }
}
