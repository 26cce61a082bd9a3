//! The policy document: plain types, as people write it. `Snapshot::compile` says whether it is valid.
//!
//! With the feature `serde` the types can be read and written; `formats` reads them from TOML, YAML and JSON; `schema` says in
//! JSON Schema how they are written.

#[cfg(feature = "serde")]
pub mod borrowed;
mod client;
#[cfg(feature = "serde")]
mod fields;
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

/// The newest schema of documents that this build knows: 2 has calendar periods (`day`, `week`, `month`),
/// `timezone` and `sliding_window_log`; 3 has the `description` of tiers and the `note` of rules; 4 has the `tags` of clients;
/// 5 has the `max_debt` of limits; 6 has the `descriptors` of domains; 7 has their `descriptor_paths`.
pub const SCHEMA: u32 = 7;

/// The longest description of a tier, in characters.
pub const DESCRIPTION_CHARACTERS_MAX: usize = 200;

/// The most tags of a client.
pub const TAGS_MAX: usize = 16;

/// The whole document.
///
/// ```
/// use tidegate::policy::Policy;
///
/// let text = r#"{"domains": {"default": {"defaults": {"user": "free"}}}}"#;
/// let policy: Policy = serde_json::from_str(text).unwrap();
/// assert_eq!(policy.domains["default"].defaults["user"], "free");
/// ```
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Policy {
    /// Domains by name. Requests that name none are in `default`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "fields::each_key_once"))]
    pub domains: BTreeMap<String, Domain>,
}

impl Policy {
    /// The oldest schema that has all that this document says: who knows an older one cannot read it.
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

/// One domain: a name space of tiers, clients and rules.
#[derive(Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields, default))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Domain {
    /// Per kind of identity, the tier of those that nobody assigned.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "fields::each_key_once", skip_serializing_if = "BTreeMap::is_empty")
    )]
    pub defaults: BTreeMap<String, String>,
    /// May a request name its own tier?
    pub tier_hint: bool,
    /// Which limits a descriptor of Envoy meets.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "fields::is_default"))]
    pub descriptors: Descriptors,
    /// The part of a request that the path and the method in a descriptor of Envoy are.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "fields::is_default"))]
    pub descriptor_paths: DescriptorPaths,
    /// What a door answers when it cannot decide.
    pub on_error: OnError,
    /// The response headers of a door.
    pub headers: Headers,
    /// What `X-RateLimit-Reset` carries.
    pub reset: Reset,
    /// IANA name of the time zone of calendar periods, such as `Europe/Berlin`; UTC unless given.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub timezone: Option<String>,
    /// Tiers.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub tiers: Vec<Tier>,
    /// Clients that were given a tier or an override.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub clients: Vec<Client>,
    /// Rules.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub rules: Vec<Rule>,
}

impl Domain {
    /// Its settings, without its tiers, clients and rules.
    #[must_use]
    pub fn settings(&self) -> Self {
        let Self {
            defaults,
            tier_hint,
            descriptors,
            descriptor_paths,
            on_error,
            headers,
            reset,
            timezone,
            tiers: _,
            clients: _,
            rules: _,
        } = self;
        Self {
            defaults: defaults.clone(),
            tier_hint: *tier_hint,
            descriptors: *descriptors,
            descriptor_paths: *descriptor_paths,
            on_error: *on_error,
            headers: *headers,
            reset: *reset,
            timezone: timezone.clone(),
            ..Self::default()
        }
    }
}

/// Which limits a descriptor of Envoy meets. A request over another API always meets those of its identities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum Descriptors {
    /// The rules that name exactly its kinds in `per` and `where` together, and the tier of a single identity.
    #[default]
    Exact,
    /// Every rule that names some of its kinds or none, and the tiers of all of its identities.
    Subset,
}

/// The part of a request that the entries `path`, `endpoint` and `method` of a descriptor of Envoy are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum DescriptorPaths {
    /// The endpoint and the method, which rules name in `endpoint` and `method`.
    #[default]
    Endpoint,
    /// Identities as other entries are, so that a descriptor with a path is another than one without, and a path is the text
    /// that it is. Rules name them in `per` and `where`, and have no `endpoint` and no `method`.
    Identity,
}

/// The settings of a domain for descriptors of Envoy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DescriptorSettings {
    /// Which limits a descriptor meets.
    pub descriptors: Descriptors,
    /// The part of a request that its path and its method are.
    pub paths: DescriptorPaths,
}

/// What a domain asks of the doors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DoorSettings {
    /// What they answer when they cannot decide.
    pub on_error: OnError,
    /// Their response headers.
    pub headers: Headers,
    /// What `X-RateLimit-Reset` carries.
    pub reset: Reset,
}

/// What a door answers when it cannot decide.
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
pub enum Headers {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    #[default]
    XRatelimit,
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft.
    Ietf,
    /// No headers.
    None,
}

/// What `X-RateLimit-Reset` carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
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
    /// What it is for, for people: in one line or more, without other control characters than line feeds.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "schema", schemars(length(max = DESCRIPTION_CHARACTERS_MAX)))]
    pub description: Option<String>,
    /// Its limits, checked in this order.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub limits: Vec<Limit>,
    /// Instead of limits.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "fields::is_false"))]
    pub unlimited: bool,
}

/// The longest id of a domain, tier, rule or limit, in bytes.
pub(crate) const ID_BYTES_MAX: usize = 64;

/// Is this `[a-z][a-z0-9_-]{0,63}`?
pub(crate) fn is_id(id: &str) -> bool {
    let bytes = id.as_bytes();
    bytes.len() <= ID_BYTES_MAX
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'))
}
