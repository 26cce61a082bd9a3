//! The objects of a policy that people edit one by one: how they are named, found and marked.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::{
    DEFAULT_DOMAIN,
    policy::{Client, Domain, Policy, Rule, Tier},
};

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Tier,
    Rule,
    /// Its id is `KIND:VALUE`.
    Client,
    /// The settings of a domain, without what is in it. Its id is the domain's name.
    Domain,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tier => "tier",
            Self::Rule => "rule",
            Self::Client => "client",
            Self::Domain => "domain",
        }
    }

    /// What to say where an object has no name.
    pub(crate) fn id_hint(self) -> &'static str {
        match self {
            Self::Tier | Self::Rule => "give it an `id`",
            Self::Client => "give it a `kind` and a `value`",
            Self::Domain => "name it in the path",
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Tier, Self::Rule, Self::Client, Self::Domain].into_iter().find(|kind| kind.name() == name).ok_or(())
    }
}

/// Names an object of the policy. Written `tier:pro` or `client:api_key:k1`, with `DOMAIN/` before it in a domain that is
/// not `default`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
pub(crate) struct ObjectKey {
    pub(crate) kind: Kind,
    pub(crate) domain: String,
    pub(crate) id: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.domain != DEFAULT_DOMAIN && self.kind != Kind::Domain {
            write!(f, "{}/", self.domain)?;
        }
        write!(f, "{}:{}", self.kind.name(), self.id)
    }
}

/// As it is written; `DOMAIN/` may stand before it in `default` too.
impl FromStr for ObjectKey {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let (kind, id) = name.split_once(':').ok_or(())?;
        let (domain, kind) = kind.split_once('/').unwrap_or((DEFAULT_DOMAIN, kind));
        let kind = kind.parse()?;
        // A domain is in none but itself.
        let domain = if kind == Kind::Domain { id } else { domain };
        Ok(Self { kind, domain: domain.to_owned(), id: id.to_owned() })
    }
}

impl ObjectKey {
    /// Its entity tag in the version in which it changed last.
    pub(crate) fn etag(&self, revision: u64) -> String {
        format!("\"{}:{revision}\"", self.in_ascii())
    }

    /// A client's value may be any text: here what is not visible ASCII, and `"` and `%`, is percent-encoded.
    pub(crate) fn in_ascii(&self) -> String {
        let encoded = self.to_string().into_bytes().into_iter().map(|byte| match byte {
            b'"' | b'%' => format!("%{byte:02X}"),
            _ if byte.is_ascii_graphic() => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        });
        encoded.collect()
    }
}

/// An object, by value.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Object {
    Tier(Tier),
    Rule(Rule),
    Client(Client),
    /// Without its tiers, rules and clients.
    Domain(Box<Domain>),
}

impl Object {
    /// From JSON as it is written.
    pub(crate) fn read(kind: Kind, value: Value) -> serde_json::Result<Self> {
        Ok(match kind {
            Kind::Tier => Self::Tier(serde_json::from_value(value)?),
            Kind::Rule => Self::Rule(serde_json::from_value(value)?),
            Kind::Client => Self::Client(serde_json::from_value(value)?),
            Kind::Domain => Self::Domain(serde_json::from_value(value)?),
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Tier(_) => Kind::Tier,
            Self::Rule(_) => Kind::Rule,
            Self::Client(_) => Kind::Client,
            Self::Domain(_) => Kind::Domain,
        }
    }

    /// `None`: its id does not stand in it.
    pub(crate) fn id(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Tier(tier) => Some(tier.id.as_str().into()),
            Self::Rule(rule) => Some(rule.id.as_str().into()),
            Self::Client(client) => Some(client_id(client).into()),
            Self::Domain(_) => None,
        }
    }

    /// The same tier or rule by another name.
    pub(crate) fn named(mut self, id: &str) -> Self {
        match &mut self {
            Self::Tier(tier) => id.clone_into(&mut tier.id),
            Self::Rule(rule) => id.clone_into(&mut rule.id),
            Self::Client(_) | Self::Domain(_) => {}
        }
        self
    }

    /// Where its id stands in it; a client's is made of two fields.
    pub(crate) fn id_pointer(&self) -> &'static str {
        match self {
            Self::Tier(_) | Self::Rule(_) => "/id",
            Self::Client(_) | Self::Domain(_) => "",
        }
    }
}

/// The id of an object that is still JSON.
pub(crate) fn id_of(kind: Kind, value: &Value) -> Option<String> {
    let text = |field: &str| value.get(field)?.as_str();
    match kind {
        Kind::Tier | Kind::Rule => text("id").map(str::to_owned),
        Kind::Client => Some(format!("{}:{}", text("kind")?, text("value")?)),
        Kind::Domain => None,
    }
}

pub(crate) fn client_id(client: &Client) -> String {
    format!("{}:{}", client.kind, client.value)
}

/// By what clients are in order.
pub(crate) fn client_order(client: &Client) -> (&str, &str) {
    (&client.kind, &client.value)
}

/// Brings clients into order. Theirs in a document means nothing; in the policies that this crate keeps it is by kind and
/// value, so that one is found, and a page is read, without looking at a hundred thousand.
pub(crate) fn sort_clients(policy: &mut Policy) {
    for domain in policy.domains.values_mut() {
        domain.clients.sort_by(|one, other| client_order(one).cmp(&client_order(other)));
    }
}

/// The client of this id, of clients that are in order.
pub(crate) fn client_place(clients: &[Client], id: &str) -> Option<usize> {
    let id = id.split_once(':')?;
    clients.binary_search_by(|client| client_order(client).cmp(&id)).ok()
}

/// An object of a policy, with its place in the list of its domain.
pub(crate) fn find(policy: &Policy, key: &ObjectKey) -> Option<(usize, Object)> {
    let domain = policy.domains.get(&key.domain)?;
    let place = match key.kind {
        Kind::Tier => domain.tiers.iter().position(|tier| tier.id == key.id),
        Kind::Rule => domain.rules.iter().position(|rule| rule.id == key.id),
        Kind::Client => client_place(&domain.clients, &key.id),
        Kind::Domain => Some(0),
    }?;
    let object = match key.kind {
        Kind::Tier => Object::Tier(domain.tiers[place].clone()),
        Kind::Rule => Object::Rule(domain.rules[place].clone()),
        Kind::Client => Object::Client(domain.clients[place].clone()),
        Kind::Domain => Object::Domain(Box::new(domain.settings())),
    };
    Some((place, object))
}

/// Where the engine's compiler reports what is wrong with an object.
pub(crate) fn path(key: &ObjectKey, place: usize) -> String {
    match key.kind {
        Kind::Domain => format!("domains.{}", key.domain),
        kind => format!("domains.{}.{}s[{place}]", key.domain, kind.name()),
    }
}

/// Who uses a tier.
#[derive(Clone, Debug, Serialize, JsonSchema)]
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

/// Gives whatever names the tier `old` its new name, and answers what that is. A rule is named by nothing.
pub(crate) fn rename_tier(policy: &mut Policy, old: &ObjectKey, new: &str) -> Vec<ObjectKey> {
    let Some(domain) = policy.domains.get_mut(&old.domain).filter(|_| old.kind == Kind::Tier) else {
        return Vec::new();
    };
    let mut moved = Vec::new();
    let mut is_moved = |tier: &mut String| {
        let is_it = *tier == old.id;
        if is_it {
            new.clone_into(tier);
        }
        is_it
    };
    let key = |kind: Kind, id: String| ObjectKey { kind, domain: old.domain.clone(), id };
    let mut is_default = false;
    for tier in domain.defaults.values_mut() {
        is_default |= is_moved(tier);
    }
    if is_default {
        moved.push(key(Kind::Domain, old.domain.clone()));
    }
    for rule in &mut domain.rules {
        let mut is_named = false;
        for tier in rule.tiers.iter_mut().flatten() {
            is_named |= is_moved(tier);
        }
        if is_named {
            moved.push(key(Kind::Rule, rule.id.clone()));
        }
    }
    for client in &mut domain.clients {
        if client.tier.as_mut().is_some_and(&mut is_moved) {
            moved.push(key(Kind::Client, client_id(client)));
        }
    }
    moved
}

/// Every object of a policy, with its key.
pub(crate) fn all(policy: &Policy) -> impl Iterator<Item = (ObjectKey, Object)> {
    policy.domains.iter().flat_map(|(name, domain)| all_of(name, domain))
}

/// A domain's settings, and every object in it.
pub(crate) fn all_of(name: &str, domain: &Domain) -> impl Iterator<Item = (ObjectKey, Object)> {
    let of = [Object::Domain(Box::new(domain.settings()))];
    let tiers = domain.tiers.iter().cloned().map(Object::Tier);
    let rules = domain.rules.iter().cloned().map(Object::Rule);
    let clients = domain.clients.iter().cloned().map(Object::Client);
    of.into_iter().chain(tiers).chain(rules).chain(clients).map(move |object| {
        let id = object.id().map_or_else(|| name.to_owned(), Cow::into_owned);
        (ObjectKey { kind: object.kind(), domain: name.to_owned(), id }, object)
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
        for (written, read) in
            [("tier:pro", key("default")), ("default/tier:pro", key("default")), ("web/tier:pro", key("web"))]
        {
            assert_eq!(written.parse(), Ok(read), "{written}");
        }
        let block = ObjectKey { kind: Kind::Client, domain: "web".to_owned(), id: "ip:2001:db8::/32".to_owned() };
        assert_eq!(block.to_string().parse(), Ok(block));
        let domain = ObjectKey { kind: Kind::Domain, domain: "web".to_owned(), id: "web".to_owned() };
        assert_eq!(domain.to_string().parse(), Ok(domain));
        for wrong in ["pro", "user:ben", "/tiers:pro", ""] {
            assert_eq!(wrong.parse::<ObjectKey>(), Err(()), "{wrong}");
        }
        let client =
            ObjectKey { kind: Kind::Client, domain: "default".to_owned(), id: "user:j\u{fc} \"%\n".to_owned() };
        assert_eq!(client.etag(2), "\"client:user:j%C3%BC%20%22%25%0A:2\"");
    }
}
