//! Clients of the policy document, and the overrides that replace their tiers' limits for a while.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::Limit;
#[cfg(feature = "serde")]
use super::fields;
#[cfg(feature = "schema")]
use crate::policy::{document::TAGS_MAX, request::VALUE_BYTES_MAX};

/// A client: the identities of one value, prefix or address block, with a tier or an override of their own.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Client {
    /// The kind of identity.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[a-z][a-z0-9_]{0,31}$")))]
    pub kind: String,
    /// The value of the identity, a prefix with `*` at the end, or for `ip` a CIDR block. The longest wins.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = VALUE_BYTES_MAX)))]
    pub value: String,
    /// The tier; the default of the kind unless given.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub tier: Option<String>,
    /// A name for people.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub label: Option<String>,
    /// Labels to search by, in any order, each once. They do not affect decisions.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = TAGS_MAX), inner(regex(pattern = "^[a-z][a-z0-9_-]{0,63}$")), extend("uniqueItems" = true))
    )]
    pub tags: Vec<String>,
    /// A note for people.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub note: Option<String>,
    /// The override of the tier's limits.
    #[cfg_attr(feature = "serde", serde(default, rename = "override", skip_serializing_if = "Option::is_none"))]
    pub exception: Option<Override>,
}

impl Client {
    /// Returns a client with neither a tier nor an override. Set one of them: a policy with such a client does not compile.
    ///
    /// ```
    /// use tidegate::policy::Client;
    ///
    /// let ada = Client { tier: Some("pro".to_owned()), ..Client::new("user", "ada") };
    /// # assert_eq!(ada.label, None);
    /// ```
    #[must_use]
    pub fn new(kind: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            value: value.into(),
            tier: None,
            label: None,
            tags: Vec::new(),
            note: None,
            exception: None,
        }
    }
}

/// The fields of a client that a snapshot needs.
#[derive(Clone, Copy)]
pub(crate) struct ClientRef<'p> {
    pub(crate) kind: &'p str,
    pub(crate) value: &'p str,
    pub(crate) tier: Option<&'p str>,
    pub(crate) exception: Option<&'p Override>,
    /// The tags, which are checked but not kept.
    pub(crate) tags: &'p [String],
}

impl<'p> From<&'p Client> for ClientRef<'p> {
    fn from(client: &'p Client) -> Self {
        let Client { kind, value, tier, exception, tags, label: _, note: _ } = client;
        Self { kind, value, tier: tier.as_deref(), exception: exception.as_ref(), tags }
    }
}

/// An override of a tier's limits for one client: exactly one of `blocked`, `unlimited` and `limits`.
#[derive(Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields, default))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Override {
    /// Whether every request is denied.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "fields::is_default"))]
    pub blocked: bool,
    /// Whether the tier's limits do not apply.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "fields::is_default"))]
    pub unlimited: bool,
    /// Limits that replace the tier's limits of the same id, or are added to them.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub limits: Vec<Limit>,
    /// The RFC 3339 instant at which the override ends.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub until: Option<String>,
    /// The reason, for people.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub reason: Option<String>,
}
