//! The objects of a policy that people edit one by one: how they are named, found and marked.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use tidegate::{
    DEFAULT_DOMAIN,
    policy::{Domain, Policy, Rule, Tier},
};

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Tier,
    Rule,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tier => "tier",
            Self::Rule => "rule",
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Tier, Self::Rule].into_iter().find(|kind| kind.name() == name).ok_or(())
    }
}

/// Names an object of the policy. Written `tier:pro`, with `DOMAIN/` before it in a domain that is not `default`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct ObjectKey {
    pub(crate) kind: Kind,
    pub(crate) domain: String,
    pub(crate) id: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.domain != DEFAULT_DOMAIN {
            write!(f, "{}/", self.domain)?;
        }
        write!(f, "{}:{}", self.kind.name(), self.id)
    }
}

impl ObjectKey {
    /// Its entity tag in the version in which it changed last.
    pub(crate) fn etag(&self, revision: u64) -> String {
        format!("\"{self}:{revision}\"")
    }
}

/// An object, by value.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Object {
    Tier(Tier),
    Rule(Rule),
}

impl Object {
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Tier(tier) => &tier.id,
            Self::Rule(rule) => &rule.id,
        }
    }
}

/// An object's list in its domain, and its place there.
pub(crate) fn place(domain: &Domain, kind: Kind, id: &str) -> Option<usize> {
    match kind {
        Kind::Tier => domain.tiers.iter().position(|tier| tier.id == id),
        Kind::Rule => domain.rules.iter().position(|rule| rule.id == id),
    }
}

/// An object of a policy.
pub(crate) fn find(policy: &Policy, key: &ObjectKey) -> Option<Object> {
    let domain = policy.domains.get(&key.domain)?;
    let place = place(domain, key.kind, &key.id)?;
    Some(match key.kind {
        Kind::Tier => Object::Tier(domain.tiers[place].clone()),
        Kind::Rule => Object::Rule(domain.rules[place].clone()),
    })
}

/// Where the engine's compiler reports what is wrong with an object.
pub(crate) fn path(key: &ObjectKey, place: usize) -> String {
    format!("domains.{}.{}s[{place}]", key.domain, key.kind.name())
}

/// Puts `object` in its place, and answers what stood there.
pub(crate) fn replace(domain: &mut Domain, place: usize, object: Object) -> Object {
    match object {
        Object::Tier(tier) => Object::Tier(std::mem::replace(&mut domain.tiers[place], tier)),
        Object::Rule(rule) => Object::Rule(std::mem::replace(&mut domain.rules[place], rule)),
    }
}

/// Every object of a policy.
pub(crate) fn keys(policy: &Policy) -> impl Iterator<Item = ObjectKey> {
    policy.domains.iter().flat_map(|(name, domain)| {
        let key = move |kind, id: &String| ObjectKey { kind, domain: name.clone(), id: id.clone() };
        let tiers = domain.tiers.iter().map(move |tier| key(Kind::Tier, &tier.id));
        tiers.chain(domain.rules.iter().map(move |rule| key(Kind::Rule, &rule.id)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_tags_are_written_as_people_read_them() {
        let key = |domain: &str| ObjectKey { kind: Kind::Tier, domain: domain.to_owned(), id: "pro".to_owned() };
        assert_eq!(key("default").to_string(), "tier:pro");
        assert_eq!(key("web").etag(7), "\"web/tier:pro:7\"");
        assert_eq!("rule".parse(), Ok(Kind::Rule));
    }
}
