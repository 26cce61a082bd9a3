//! The policy document: plain types that mirror what people write. `Snapshot::compile` validates it.

#[cfg(feature = "serde")]
pub mod borrowed;
mod client;
#[cfg(feature = "serde")]
pub(super) mod fields;
mod limit;
mod rule;

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

pub(crate) use self::{client::ClientRef, rule::EVERYONE};
pub use self::{
    client::{Client, Override},
    limit::{Algorithm, Limit, Mode, OnFailure, Sharing},
    rule::{Per, Rule},
};

/// The newest schema version of documents that this build reads: 2 has calendar periods (`day`, `week`, `month`),
/// `timezone` and `sliding_window_log`; 3 has the `description` of tiers and the `note` of rules; 4 has the `tags` of clients;
/// 5 has the `max_debt` of limits; 6 has the `descriptors` of domains; 7 has their `descriptor_paths`.
pub const SCHEMA: u32 = 7;

/// The longest description of a tier, in characters.
pub const DESCRIPTION_CHARACTERS_MAX: usize = 200;

/// The most tags of a client.
pub const TAGS_MAX: usize = 16;

/// A policy document.
///
/// ```
/// use tidegate::policy::Policy;
///
/// let text = r#"{"domains": {"default": {"defaults": {"user": "free"}}}}"#;
/// let policy: Policy = serde_json::from_str(text).unwrap();
/// assert_eq!(policy.domains["default"].defaults["user"], "free");
/// ```
///
/// A program can also build one. Structs have constructors or a `Default` for the fields that may be left out:
///
/// ```
/// use tidegate::{Snapshot, policy::{Algorithm, Domain, Limit, Policy, Tier}};
///
/// let tier = Tier::new("free", vec![Limit::new("minute", Algorithm::TokenBucket, 60, "1m")]);
/// let defaults = [("user".to_owned(), "free".to_owned())].into();
/// let domain = Domain { defaults, tiers: vec![tier], ..Domain::default() };
/// let policy = Policy { domains: [("default".to_owned(), domain)].into() };
/// Snapshot::compile(&policy)?;
/// # Ok::<(), tidegate::Problems>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(description = "A policy document."))]
pub struct Policy {
    /// Domains by name. Requests that name none are in `default`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "fields::each_key_once"))]
    pub domains: BTreeMap<String, Domain>,
}

impl Policy {
    /// Returns the oldest schema version that has all fields of this document: a reader of an older version cannot read it.
    #[must_use]
    pub fn schema(&self) -> u32 {
        let of_domain = |domain: &Domain| {
            if domain.descriptor_paths != DescriptorPaths::default() {
                return 7;
            }
            if domain.descriptors != Descriptors::default() {
                return 6;
            }
            let tiers = domain.tiers.iter().map(|tier| &tier.limits);
            let rules = domain.rules.iter().map(|rule| &rule.limits);
            let own = domain.clients.iter().filter_map(|client| client.exception.as_ref());
            let mut limits = tiers.chain(rules).chain(own.map(|exception| &exception.limits)).flatten();
            let is_of_second = |limit: &Limit| limit.algorithm == Algorithm::SlidingWindowLog || limit.is_of_calendar();
            if limits.clone().any(|limit| limit.max_debt.is_some()) {
                return 5;
            }
            if domain.clients.iter().any(|client| !client.tags.is_empty()) {
                return 4;
            }
            if domain.tiers.iter().any(|tier| tier.description.is_some())
                || domain.rules.iter().any(|rule| rule.note.is_some())
            {
                return 3;
            }
            if domain.timezone.is_some() || limits.any(is_of_second) { 2 } else { 1 }
        };
        self.domains.values().map(of_domain).max().unwrap_or(1)
    }
}

/// A domain: a name space of tiers, clients and rules.
#[derive(Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields, default))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Domain {
    /// The default tier of each kind of identity, for identities without a tier of their own.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "fields::each_key_once", skip_serializing_if = "BTreeMap::is_empty")
    )]
    pub defaults: BTreeMap<String, String>,
    /// Whether a request may name its own tier.
    pub tier_hint: bool,
    /// The limits that apply to a descriptor of Envoy.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "fields::is_default"))]
    pub descriptors: Descriptors,
    /// The part of a request that the path and the method in a descriptor of Envoy give.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "fields::is_default"))]
    pub descriptor_paths: DescriptorPaths,
    /// The answer of the server when it cannot decide.
    pub on_error: OnError,
    /// The family of response headers.
    pub headers: Headers,
    /// The content of `X-RateLimit-Reset`.
    pub reset: Reset,
    /// The IANA name of the time zone of calendar periods, such as `Europe/Berlin`; UTC unless given.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub timezone: Option<String>,
    /// Tiers.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub tiers: Vec<Tier>,
    /// Clients with a tier or an override of their own.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub clients: Vec<Client>,
    /// Rules.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub rules: Vec<Rule>,
}

impl Domain {
    /// Returns the settings of the domain, without its tiers, clients and rules.
    #[must_use]
    pub fn settings(&self) -> Self {
        Self {
            defaults: self.defaults.clone(),
            timezone: self.timezone.clone(),
            tiers: Vec::new(),
            clients: Vec::new(),
            rules: Vec::new(),
            ..*self
        }
    }
}

/// The limits that apply to a descriptor of Envoy. To a request over another API, those of all its identities apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum Descriptors {
    /// The rules whose `per` and `where` together name exactly its kinds, and the tier of a single identity.
    #[default]
    Exact,
    /// Every rule that names some of its kinds or none, and the tiers of all its identities.
    Subset,
}

/// The part of a request that the entries `path`, `endpoint` and `method` of a descriptor of Envoy give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum DescriptorPaths {
    /// The endpoint and the method, which rules name in `endpoint` and `method`.
    #[default]
    Endpoint,
    /// Identities like those of other entries. A descriptor with a path then differs from one without, and a path is a plain text.
    /// Rules name them in `per` and `where`, and have no `endpoint` and no `method`.
    Identity,
}

/// The settings of a domain for descriptors of Envoy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DescriptorSettings {
    /// The limits that apply to a descriptor.
    pub descriptors: Descriptors,
    /// The part of a request that its path and its method give.
    pub paths: DescriptorPaths,
}

/// The response settings of a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ResponseSettings {
    /// The answer of the server when it cannot decide.
    pub on_error: OnError,
    /// The family of response headers.
    pub headers: Headers,
    /// The content of `X-RateLimit-Reset`.
    pub reset: Reset,
}

/// The answer of the server when it cannot decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum OnError {
    /// Allow.
    #[default]
    Open,
    /// Deny.
    Closed,
}

/// A family of response headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub enum Headers {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    #[default]
    XRatelimit,
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft.
    Ietf,
    /// No headers.
    None,
}

/// The content of `X-RateLimit-Reset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub enum Reset {
    /// Unix seconds.
    #[default]
    Epoch,
    /// Seconds from now.
    Delta,
}

/// A named list of limits that a class of clients gets.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Tier {
    /// `[a-z][a-z0-9_-]{0,63}`.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[a-z][a-z0-9_-]{0,63}$")))]
    pub id: String,
    /// A description for people, in one line or more, without control characters other than line feeds.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "schema", schemars(length(max = DESCRIPTION_CHARACTERS_MAX)))]
    pub description: Option<String>,
    /// The limits, checked in this order.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub limits: Vec<Limit>,
    /// Whether the tier has no limits.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "fields::is_default"))]
    pub unlimited: bool,
}

impl Tier {
    /// Returns a tier with these limits.
    #[must_use]
    pub fn new(id: impl Into<String>, limits: Vec<Limit>) -> Self {
        Self { id: id.into(), description: None, limits, unlimited: false }
    }
}

/// The most bytes of the id of a domain, tier, rule or limit.
pub(crate) const ID_BYTES_MAX: usize = 64;

/// Returns whether a text is an id: `[a-z][a-z0-9_-]{0,63}`.
pub(crate) fn is_id(id: &str) -> bool {
    let bytes = id.as_bytes();
    bytes.len() <= ID_BYTES_MAX
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'))
}
