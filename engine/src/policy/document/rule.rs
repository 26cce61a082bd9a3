//! Rules of the policy document: limits of an endpoint, and the requests that they count.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::Limit;
#[cfg(feature = "serde")]
use super::fields;
#[cfg(feature = "schema")]
use crate::algorithm::NUMBER_MAX;

/// Limits of an endpoint.
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
    /// Only requests with this method.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[A-Za-z]+$")))]
    pub method: Option<String>,
    /// Whom it counts.
    pub per: Per,
    /// Only requests with an identity of one of these tiers.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub tiers: Option<Vec<String>>,
    /// Only requests whose identities of these kinds have these values; a `*` at the end matches the rest.
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
    /// Multiplies the request's cost.
    #[cfg_attr(
        feature = "serde",
        serde(default = "fields::one", deserialize_with = "fields::whole", skip_serializing_if = "fields::is_one")
    )]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = NUMBER_MAX)))]
    pub cost: u64,
    /// Its limits, checked in this order.
    pub limits: Vec<Limit>,
    /// Off when false.
    #[cfg_attr(feature = "serde", serde(default = "fields::yes", skip_serializing_if = "fields::is_true"))]
    pub enabled: bool,
}

/// A rule whose `per` says this counts all identities together.
pub(crate) const EVERYONE: &str = "everyone";

/// Whom a rule counts.
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
    /// Each combination of values of these kinds.
    Each(Vec<String>),
}
