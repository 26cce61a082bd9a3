//! Rules of the policy document: the limits of an endpoint, and the conditions under which they apply.

use std::{collections::BTreeMap, slice};

#[cfg(feature = "schema")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::Limit;
#[cfg(feature = "serde")]
use super::fields;
#[cfg(feature = "schema")]
use crate::algorithm::NUMBER_MAX;

/// A rule: the limits of an endpoint.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Rule {
    /// `[a-z][a-z0-9_-]{0,63}`.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[a-z][a-z0-9_-]{0,63}$")))]
    pub id: String,
    /// A note for people.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub note: Option<String>,
    /// `/exact`, `/users/{id}`, `/api/*` or `*`.
    pub endpoint: String,
    /// The method of matching requests; any unless given.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[A-Za-z]+$")))]
    pub method: Option<String>,
    /// The kinds of identity whose values are counted separately.
    pub per: Per,
    /// The tiers of matching requests, which have an identity of one of them; any unless given.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub tiers: Option<Vec<String>>,
    /// The values that identities of these kinds have in matching requests; a `*` at the end matches any rest.
    #[cfg_attr(
        feature = "serde",
        serde(
            default,
            rename = "where",
            deserialize_with = "fields::each_key_once",
            skip_serializing_if = "BTreeMap::is_empty"
        )
    )]
    pub condition: BTreeMap<String, String>,
    /// A factor of the request's cost.
    #[cfg_attr(
        feature = "serde",
        serde(default = "fields::one", deserialize_with = "fields::whole", skip_serializing_if = "fields::is_one")
    )]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = NUMBER_MAX)))]
    pub cost: u64,
    /// The limits, checked in this order.
    pub limits: Vec<Limit>,
    /// Whether the rule applies at all.
    #[cfg_attr(feature = "serde", serde(default = "fields::yes", skip_serializing_if = "fields::is_true"))]
    pub enabled: bool,
}

impl Rule {
    /// Returns an enabled rule for requests of any method, tier and identity, at the cost of the request.
    #[must_use]
    pub fn new(id: impl Into<String>, endpoint: impl Into<String>, per: Per, limits: Vec<Limit>) -> Self {
        Self {
            id: id.into(),
            note: None,
            endpoint: endpoint.into(),
            method: None,
            per,
            tiers: None,
            condition: BTreeMap::new(),
            cost: 1,
            limits,
            enabled: true,
        }
    }
}

/// The value of `per` in a rule that counts all identities together.
pub(crate) const EVERYONE: &str = "everyone";

/// The kinds of identity whose values a rule counts separately.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(Serialize, Deserialize),
    serde(untagged, expecting = "expected a kind, a list of kinds, or \"everyone\"")
)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum Per {
    /// One kind, or `everyone`.
    One(String),
    /// Several kinds: each combination of their values is counted separately.
    Each(Vec<String>),
}

impl Per {
    /// Returns the kinds; none for `everyone`.
    pub(crate) fn kinds(&self) -> &[String] {
        match self {
            Self::One(everyone) if everyone == EVERYONE => &[],
            Self::One(kind) => slice::from_ref(kind),
            Self::Each(kinds) => kinds,
        }
    }
}
