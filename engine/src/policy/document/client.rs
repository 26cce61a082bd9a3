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

/// An identity that was given a tier or an override.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Client {
    /// Kind of the identity.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[a-z][a-z0-9_]{0,31}$")))]
    pub kind: String,
    /// Its value, a prefix with `*` at the end, or for `ip` a CIDR block. The longest wins.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = VALUE_BYTES_MAX)))]
    pub value: String,
    /// Its tier; the default of its kind unless given.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub tier: Option<String>,
    /// A name for people.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub label: Option<String>,
    /// By which people find it, in their order, none twice; they decide nothing.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = TAGS_MAX), inner(regex(pattern = "^[a-z][a-z0-9_-]{0,63}$")), extend("uniqueItems" = true))
    )]
    pub tags: Vec<String>,
    /// A note for people.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub note: Option<String>,
    /// What it gets for a while instead of what its tier says.
    #[cfg_attr(feature = "serde", serde(default, rename = "override", skip_serializing_if = "Option::is_none"))]
    pub exception: Option<Override>,
}

/// What a snapshot needs of a client.
#[derive(Clone, Copy)]
pub(crate) struct ClientRef<'p> {
    pub(crate) kind: &'p str,
    pub(crate) value: &'p str,
    pub(crate) tier: Option<&'p str>,
    pub(crate) exception: Option<&'p Override>,
    /// Looked at, and not kept.
    pub(crate) tags: &'p [String],
}

impl<'p> From<&'p Client> for ClientRef<'p> {
    fn from(client: &'p Client) -> Self {
        let Client { kind, value, tier, exception, tags, label: _, note: _ } = client;
        Self { kind, value, tier: tier.as_deref(), exception: exception.as_ref(), tags }
    }
}

/// What a client gets for a while: exactly one of `blocked`, `unlimited` and `limits`.
#[derive(Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields, default))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Override {
    /// Every request is denied.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "fields::is_false"))]
    pub blocked: bool,
    /// The tier's limits do not apply.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "fields::is_false"))]
    pub unlimited: bool,
    /// These replace the tier's limits of the same id, and the others are added.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub limits: Vec<Limit>,
    /// RFC 3339 instant at which it ends.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub until: Option<String>,
    /// Why, for people.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub reason: Option<String>,
}
