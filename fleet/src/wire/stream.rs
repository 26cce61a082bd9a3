//! The stream of policies from the admin server to a node: its events, and how a node connects, acknowledges and leaves.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate::algorithm::Carry;

/// The stream of snapshots, below the admin server's address.
pub const STREAM: &str = "/api/v1/snapshots/stream";
/// Where a node acknowledges.
pub const ACKNOWLEDGEMENTS: &str = "/api/v1/nodes/acknowledgements";
/// Where a node tells what it counted.
pub const REPORTS: &str = "/api/v1/nodes/reports";
/// Where a node says that it stops.
pub const GOODBYES: &str = "/api/v1/nodes/goodbyes";
/// Where a node answers.
pub const ANSWERS: &str = "/api/v1/nodes/answers";

/// A [`Snapshot`].
pub const SNAPSHOT: &str = "snapshot";
/// A [`Delta`], to nodes that said that they take some.
pub const DELTA: &str = "delta";
/// The node has what it should have: [`Current`].
pub const CURRENT: &str = "current";
/// A [`Command`](super::Command).
pub const COMMAND: &str = "command";
/// The node reads too slowly, and is to connect again.
pub const RESTART: &str = "restart";
/// The secret of the keys in the store: [`StoreKeys`]. It comes first, and only to a node that has a store.
pub const STORE_KEYS: &str = "store_keys";
/// The stream ends, and [`Bye`] says why.
pub const BYE: &str = "bye";

/// Bytes of a node's name.
pub const NAME_BYTES_MAX: usize = 64;
/// What a node's name looks like.
pub const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]*$";
/// Deltas in a row, before the policy is sent whole again: what a node has to read at its start is not to grow for ever.
pub const DELTAS_MAX: u32 = 100;
/// Bytes of what a node posts: the admin server takes no more.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// Can this be a node's name?
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric();
    name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || b"._-".contains(&byte))
}

/// What a node says of itself when it connects: the query of the stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Hello {
    /// Its name.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = NAME_BYTES_MAX), regex(pattern = NAME_PATTERN)))]
    pub name: String,
    /// Another for each start of its process.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = NAME_BYTES_MAX), regex(pattern = NAME_PATTERN)))]
    pub instance: String,
    /// Version of its build.
    #[serde(default)]
    pub build: String,
    /// The newest schema of policies that it knows.
    pub schema: u32,
    /// Version of the policy that it has, if any.
    pub version: Option<u64>,
    /// SHA-256 of that policy's document, hex.
    pub sha256: Option<String>,
    /// How many deltas it takes before the policy is sent whole: a hundred at most, and a hundred once those are used up. One
    /// that is some hundredths of the whole counts as so many more. Every policy is sent whole unless given.
    pub deltas: Option<u32>,
    /// The store that it shares limits through: nodes that were given the same addresses and prefix say the same number, below 2^53. Nothing:
    /// it has none, or does not say.
    pub store: Option<u64>,
    /// Does it say so when it stops ([`Goodbye`])? One that does not is not missed when it is gone.
    #[serde(default)]
    pub says_goodbye: bool,
}

/// A node stops because it was told to: nobody has to look after it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Goodbye {
    /// Its name.
    pub name: String,
    /// Which start of it.
    pub instance: String,
}

/// A published policy, on its way to a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Under which it was published.
    pub version: u64,
    /// Of the document, hex.
    pub sha256: String,
    /// RFC 3339.
    pub published_at: String,
    /// What becomes of used quota, by full name of the limit; kept unless said.
    #[serde(default)]
    pub carry: BTreeMap<String, Carry>,
    /// Bytes of the document as JSON.
    pub bytes: u64,
    /// The document: JSON, deflated, in base64.
    pub document: String,
}

/// A published policy, on its way to a node that has the version that it was made on: what differs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Delta {
    /// Under which it was published.
    pub version: u64,
    /// Of its document, hex.
    pub sha256: String,
    /// RFC 3339.
    pub published_at: String,
    /// Of the document that it differs from, hex.
    pub since_sha256: String,
    /// What becomes of used quota, by full name of the limit; kept unless said.
    #[serde(default)]
    pub carry: BTreeMap<String, Carry>,
    /// Bytes of the delta as JSON.
    pub bytes: u64,
    /// Of the delta as JSON, hex.
    pub delta_sha256: String,
    /// [`tidegate::policy::Delta`]: JSON, deflated, in base64.
    pub delta: String,
}

/// The policy that a node has is the one that it should have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Current {
    /// Its version.
    pub version: u64,
}

/// The secret with which the nodes of a fleet derive the names of keys in their store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreKeys {
    /// 32 bytes, base64url without padding.
    pub secret: String,
}

/// The stream ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bye {
    /// Why, for people.
    pub reason: String,
}

/// What became of a snapshot on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Acknowledgement {
    /// Name of the node.
    pub name: String,
    /// Which start of it.
    pub instance: String,
    /// Of the policy.
    pub version: u64,
    /// When, by the node's clock, Unix milliseconds.
    pub at_ms: u64,
    /// From the last byte of the snapshot to the swap, milliseconds.
    pub took_ms: u64,
    /// Why it is not in force, if it is not.
    #[serde(default)]
    pub refused: Option<String>,
    /// Why it is in force, but not kept for the next start, if it should be.
    #[serde(default)]
    pub not_kept: Option<String>,
}
