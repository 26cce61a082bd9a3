//! Policies: requests and documents, how they are compiled for the hot path, and which limits a request meets.
//!
//! The types here are the policy document, as people write it. `Snapshot::compile` says whether it is right. With the feature
//! `serde` they can be read and written; `formats` reads them from TOML, YAML and JSON; `schema` says in JSON Schema how they are
//! written.
//!
//! Its files, from the ground up:
//!
//! * `request`: who asks for what, at what cost
//! * `error`: what is wrong with a policy, and where
//! * `document`: the policy document, as people write it
//! * `delta`: what a document changes of the one before it
//! * `diff`: the differences of two documents, by field
//! * `descriptor`: what the entries of Envoy's descriptors mean
//! * `path`: paths of requests, normalized and truncated
//! * `pattern`: patterns of endpoints, and the closest one for a path
//! * `matcher`: tests of a value against an exact text, an address block or a prefix
//! * `matcher_map`: a map by such matchers
//! * `client_map`: the clients of one kind of identity, shared by versions of a policy
//! * `rule_list`: the rules of one pattern
//! * `named_values`: the values that policies name
//! * `specificity`: which of several rules is the closest to a request
//! * `explain`: why a policy decides as it does
//! * `compiled`: a policy compiled for the hot path
//! * `planner`: the limits that a request meets
//! * `timezone`: calendars of time zones
//! * `lint`: what is allowed in a policy and hardly meant, and what a change loosens
//! * `limit_numbers`: from the numbers of a written limit to its meter
//! * `compile`: from a document to a compiled policy
//! * `formats`: documents from and to TOML, YAML and JSON
//! * `import`: policies from the files of other limiters

mod client_map;
pub(crate) mod compile;
pub(crate) mod compiled;
#[cfg(feature = "serde")]
pub(crate) mod delta;
pub(crate) mod descriptor;
#[cfg(feature = "formats")]
pub(crate) mod diff;
pub(crate) mod document;
pub(crate) mod error;
#[cfg(feature = "tools")]
pub(crate) mod explain;
#[cfg(feature = "formats")]
pub(crate) mod formats;
#[cfg(feature = "tools")]
pub(crate) mod import;
mod limit_numbers;
#[cfg(feature = "tools")]
pub(crate) mod lint;
pub(crate) mod matcher;
mod matcher_map;
pub(crate) mod named_values;
pub(crate) mod path;
pub(crate) mod pattern;
pub(crate) mod planner;
pub(crate) mod request;
mod rule_list;
mod specificity;
pub(crate) mod timezone;

#[cfg(feature = "serde")]
pub use delta::Delta;
#[cfg(feature = "formats")]
pub use diff::{Difference, differences};
#[cfg(feature = "serde")]
pub use document::borrowed;
pub use document::{
    Algorithm, Client, DESCRIPTION_CHARACTERS_MAX, DescriptorPaths, DescriptorSettings, Descriptors, Domain,
    DoorSettings, Headers, Limit, Mode, OnError, OnFailure, Override, Per, Policy, Reset, Rule, SCHEMA, Sharing,
    TAGS_MAX, Tier,
};
