//! The objects of a policy that people edit one by one: how they are named, found and marked.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::{
    DEFAULT_DOMAIN,
    policy::{Client, Domain, Policy, Rule, Tier},
};

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Tier,
    Rule,
    /// Its id is `KIND:VALUE`.
    Client,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tier => "tier",
            Self::Rule => "rule",
            Self::Client => "client",
        }
    }

    /// What to say where an object has no name.
    pub(crate) fn id_hint(self) -> &'static str {
        match self {
            Self::Tier | Self::Rule => "give it an `id`",
            Self::Client => "give it a `kind` and a `value`",
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Tier, Self::Rule, Self::Client].into_iter().find(|kind| kind.name() == name).ok_or(())
    }
}

/// Names an object of the policy. Written `tier:pro` or `client:api_key:k1`, with `DOMAIN/` before it in a domain that is
/// not `default`.
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
    Client(Client),
}

impl Object {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Tier(_) => Kind::Tier,
            Self::Rule(_) => Kind::Rule,
            Self::Client(_) => Kind::Client,
        }
    }

    pub(crate) fn id(&self) -> Cow<'_, str> {
        match self {
            Self::Tier(tier) => tier.id.as_str().into(),
            Self::Rule(rule) => rule.id.as_str().into(),
            Self::Client(client) => client_id(client).into(),
        }
    }

    /// Where its id stands in it; a client's is made of two fields.
    pub(crate) fn id_pointer(&self) -> &'static str {
        match self {
            Self::Tier(_) | Self::Rule(_) => "/id",
            Self::Client(_) => "",
        }
    }
}

/// The id of an object that is still JSON.
pub(crate) fn id_of(kind: Kind, value: &Value) -> Option<String> {
    let text = |field: &str| value.get(field)?.as_str();
    match kind {
        Kind::Tier | Kind::Rule => text("id").map(str::to_owned),
        Kind::Client => Some(format!("{}:{}", text("kind")?, text("value")?)),
    }
}

pub(crate) fn client_id(client: &Client) -> String {
    format!("{}:{}", client.kind, client.value)
}

/// The client of this id.
pub(crate) fn client_place(domain: &Domain, id: &str) -> Option<usize> {
    let (kind, value) = id.split_once(':')?;
    domain.clients.iter().position(|client| client.kind == kind && client.value == value)
}

/// An object's list in its domain, and its place there.
pub(crate) fn place(domain: &Domain, kind: Kind, id: &str) -> Option<usize> {
    match kind {
        Kind::Tier => domain.tiers.iter().position(|tier| tier.id == id),
        Kind::Rule => domain.rules.iter().position(|rule| rule.id == id),
        Kind::Client => client_place(domain, id),
    }
}

/// An object of a policy.
pub(crate) fn find(policy: &Policy, key: &ObjectKey) -> Option<Object> {
    let domain = policy.domains.get(&key.domain)?;
    let place = place(domain, key.kind, &key.id)?;
    Some(match key.kind {
        Kind::Tier => Object::Tier(domain.tiers[place].clone()),
        Kind::Rule => Object::Rule(domain.rules[place].clone()),
        Kind::Client => Object::Client(domain.clients[place].clone()),
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
        Object::Client(client) => Object::Client(std::mem::replace(&mut domain.clients[place], client)),
    }
}

/// Adds `object` after the others of its kind.
pub(crate) fn add(domain: &mut Domain, object: Object) {
    match object {
        Object::Tier(tier) => domain.tiers.push(tier),
        Object::Rule(rule) => domain.rules.push(rule),
        Object::Client(client) => domain.clients.push(client),
    }
}

pub(crate) fn remove(domain: &mut Domain, kind: Kind, place: usize) {
    match kind {
        Kind::Tier => drop(domain.tiers.remove(place)),
        Kind::Rule => drop(domain.rules.remove(place)),
        Kind::Client => drop(domain.clients.remove(place)),
    }
}

/// Who uses a tier.
#[derive(Debug, Serialize)]
pub(crate) struct Usage {
    /// Kinds of identity whose default it is.
    pub(crate) default_of: Vec<String>,
    /// Rules that are only for some tiers, this one among them.
    pub(crate) rules: Vec<String>,
    /// How many configured clients have it.
    pub(crate) clients: usize,
}

impl Usage {
    pub(crate) fn of(domain: &Domain, tier: &str) -> Self {
        let names = |tiers: &Vec<String>| tiers.iter().any(|named| named == tier);
        let rules = domain.rules.iter().filter(|rule| rule.tiers.as_ref().is_some_and(names));
        Self {
            default_of: domain.defaults.iter().filter(|(_, id)| *id == tier).map(|(kind, _)| kind.clone()).collect(),
            rules: rules.map(|rule| rule.id.clone()).collect(),
            clients: domain.clients.iter().filter(|client| client.tier.as_deref() == Some(tier)).count(),
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.default_of.is_empty() && self.rules.is_empty() && self.clients == 0
    }
}

/// Every object of a policy, with its key.
pub(crate) fn all(policy: &Policy) -> impl Iterator<Item = (ObjectKey, Object)> {
    policy.domains.iter().flat_map(|(name, domain)| {
        let tiers = domain.tiers.iter().cloned().map(Object::Tier);
        let rules = domain.rules.iter().cloned().map(Object::Rule);
        let clients = domain.clients.iter().cloned().map(Object::Client);
        tiers.chain(rules).chain(clients).map(move |object| {
            let key = ObjectKey { kind: object.kind(), domain: name.clone(), id: object.id().into_owned() };
            (key, object)
        })
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
