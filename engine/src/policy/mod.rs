//! Policies: the document that people write, its compilation to a snapshot, and the limit plan of a request.
//!
//! The public types are those of the policy document. `Snapshot::compile` validates it. With the feature `serde` they can be
//! serialized; `formats` reads them from TOML, YAML and JSON; `schema` describes them in JSON Schema; `tools` lints, explains and
//! imports policies.
//!
//! Its files, from the ground up:
//!
//! * `request`: requests, with identities, endpoint, method and cost
//! * `error`: problems of a policy, with their fields and lines
//! * `document`: the policy document
//! * `delta`: the message that turns one version of a policy into the next on a node
//! * `diff`: the differences of two policies for people, by object and field
//! * `descriptor`: the meaning of the entries of Envoy's descriptors
//! * `path`: normalization and truncation of request paths
//! * `pattern`: endpoint patterns, and the tree that finds the closest one for a path
//! * `matcher`: tests of a value against an exact text, an address block or a prefix
//! * `matcher_map`: a map by such matchers
//! * `client_map`: the clients of one kind of identity, shared by versions of a policy
//! * `rule_list`: the rules of one pattern, of which the closest applies
//! * `named_values`: the values of identities that policies name
//! * `specificity`: the order of rules that match a request, the closest first
//! * `explain`: explanations of decisions
//! * `compiled`: the snapshot, a policy compiled for the hot path
//! * `planner`: the limit plan of a request
//! * `timezone`: time zones and their calendars
//! * `lint`: warnings about a policy, and what a change loosens or newly enforces
//! * `limit_numbers`: conversion of a limit's numbers to its meter
//! * `compile`: compilation of a document to a snapshot
//! * `formats`: reading and writing of TOML, YAML and JSON
//! * `import`: import of the files of other limiters

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
    Algorithm, Client, DESCRIPTION_CHARACTERS_MAX, DescriptorPaths, DescriptorSettings, Descriptors, Domain, Headers,
    Limit, Mode, OnError, OnFailure, Override, Per, Policy, Reset, ResponseSettings, Rule, SCHEMA, Sharing, TAGS_MAX,
    Tier,
};
