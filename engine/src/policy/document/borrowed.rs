//! A policy document whose clients are borrowed from its text, for callers that compile it and drop it. There may be a hundred
//! thousand clients, and copying each would take as long as all the rest.

use std::{borrow::Cow, collections::BTreeMap, fmt, ops::Deref};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::{ClientRef, DescriptorPaths, Descriptors, Headers, OnError, Override, Reset, Rule, Tier, fields};

/// The borrowed form of [`policy::Policy`](super::Policy), for [`Snapshot::compile_borrowed`](crate::Snapshot::compile_borrowed).
///
/// ```
/// use tidegate::{Snapshot, policy::borrowed::Policy};
///
/// let text = r#"{"domains": {"default": {"clients": [{"kind": "user", "value": "ada", "override": {"unlimited": true}}]}}}"#;
/// let document: Policy<'_> = serde_json::from_str(text).unwrap();
/// assert!(Snapshot::compile_borrowed(&document).is_ok());
/// ```
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy<'t> {
    #[serde(borrow, deserialize_with = "fields::each_key_once")]
    pub(crate) domains: BTreeMap<String, BorrowedDomain<'t>>,
}

/// The borrowed form of [`policy::Delta`](crate::policy::Delta), for
/// [`Snapshot::compile_delta`](crate::Snapshot::compile_delta).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delta<'t> {
    #[serde(borrow)]
    pub(crate) policy: Policy<'t>,
    #[serde(borrow)]
    gone: BTreeMap<String, Vec<(Text<'t>, Text<'t>)>>,
}

impl Delta<'_> {
    /// Returns the kinds and values of the clients of a domain that changed or were removed.
    pub(crate) fn gone(&self, domain: &str) -> impl Iterator<Item = (&str, &str)> {
        self.gone.get(domain).into_iter().flatten().map(|(kind, value)| (&**kind, &**value))
    }
}

/// A domain with its borrowed clients.
#[derive(Debug)]
pub(crate) struct BorrowedDomain<'t> {
    /// The domain without its clients.
    pub(crate) domain: super::Domain,
    clients: Clients<'t>,
}

impl BorrowedDomain<'_> {
    pub(crate) fn clients(&self) -> impl Iterator<Item = ClientRef<'_>> + Clone {
        self.clients.0.iter().flatten().map(|client| {
            let Client { kind, value, tier, exception, tags, .. } = client;
            ClientRef { kind, value, tier: tier.as_deref(), exception: exception.as_deref(), tags }
        })
    }
}

/// The fields of [`policy::Domain`](super::Domain).
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Domain<'t> {
    #[serde(deserialize_with = "fields::each_key_once")]
    defaults: BTreeMap<String, String>,
    tier_hint: bool,
    descriptors: Descriptors,
    descriptor_paths: DescriptorPaths,
    on_error: OnError,
    headers: Headers,
    reset: Reset,
    timezone: Option<String>,
    tiers: Vec<Tier>,
    #[serde(borrow)]
    clients: Clients<'t>,
    rules: Vec<Rule>,
}

impl<'de: 't, 't> Deserialize<'de> for BorrowedDomain<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Domain::deserialize(deserializer)?;
        let domain = super::Domain {
            defaults: read.defaults,
            tier_hint: read.tier_hint,
            descriptors: read.descriptors,
            descriptor_paths: read.descriptor_paths,
            on_error: read.on_error,
            headers: read.headers,
            reset: read.reset,
            timezone: read.timezone,
            tiers: read.tiers,
            clients: Vec::new(),
            rules: read.rules,
        };
        Ok(Self { domain, clients: read.clients })
    }
}

/// The fields of [`policy::Client`](super::Client).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Client<'t> {
    #[serde(borrow)]
    kind: Text<'t>,
    #[serde(borrow)]
    value: Text<'t>,
    #[serde(borrow, default)]
    tier: Option<Text<'t>>,
    #[serde(default, rename = "label")]
    _label: Option<ForPeople>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default, rename = "note")]
    _note: Option<ForPeople>,
    #[serde(default, rename = "override")]
    exception: Option<Box<Override>>,
}

/// The clients in pieces: one growing list would be copied to new memory again and again.
#[derive(Debug, Default)]
struct Clients<'t>(Vec<Vec<Client<'t>>>);

const PIECE: usize = 1 << 10;

impl<'de: 't, 't> Deserialize<'de> for Clients<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ClientsVisitor;

        impl<'de> Visitor<'de> for ClientsVisitor {
            type Value = Clients<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut clients: A) -> Result<Clients<'de>, A::Error> {
                let mut pieces = vec![Vec::new()];
                while let Some(client) = clients.next_element()? {
                    match pieces.last_mut() {
                        Some(piece) if piece.len() < PIECE => piece.push(client),
                        _ => pieces.push(vec![client]),
                    }
                }
                Ok(Clients(pieces))
            }
        }

        deserializer.deserialize_seq(ClientsVisitor)
    }
}

/// A text for people, which is read and dropped.
#[derive(Debug)]
struct ForPeople;

impl<'de> Deserialize<'de> for ForPeople {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text::deserialize(deserializer).map(|_| Self)
    }
}

/// A text that is borrowed from the document, unless it is written with escapes there (`"a\u0062"`).
#[derive(Debug, Deserialize)]
struct Text<'t>(#[serde(borrow)] Cow<'t, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}
