//! The stream on which the admin server sends policies and queries to a node: its events, and how a node connects,
//! acknowledges and leaves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate::algorithm::Carry;

/// The path of the stream, below the admin server's address.
pub const STREAM: &str = "/api/v1/snapshots/stream";
/// The path to which a node posts an [`Acknowledgement`].
pub const ACKNOWLEDGEMENTS: &str = "/api/v1/nodes/acknowledgements";
/// The path to which a node posts its reports.
pub const REPORTS: &str = "/api/v1/nodes/reports";
/// The path to which a node posts a [`Goodbye`].
pub const GOODBYES: &str = "/api/v1/nodes/goodbyes";
/// The path to which a node posts its replies to queries.
pub const ANSWERS: &str = "/api/v1/nodes/answers";

/// The name of an event with a [`SnapshotMessage`].
pub const SNAPSHOT: &str = "snapshot";
/// The name of an event with a [`DeltaMessage`], which is sent to nodes that accept deltas.
pub const DELTA: &str = "delta";
/// The name of an event with [`CurrentVersion`]: the node already has the version that it should have.
pub const CURRENT: &str = "current";
/// The name of an event with a [`QueryMessage`](super::QueryMessage).
pub const COMMAND: &str = "command";
/// The name of an event without content: the node reads too slowly, and must connect again.
pub const RESTART: &str = "restart";
/// The name of an event with [`StoreKeys`]. It is the first event, and is sent only to a node that has a store.
pub const STORE_KEYS: &str = "store_keys";
/// The name of the last event, which has a [`StreamEnd`].
pub const BYE: &str = "bye";

/// The most bytes of a node's name.
pub const NAME_BYTES_MAX: usize = 64;
/// The pattern of a node's name.
pub const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]*$";
/// The most deltas in a row before the policy is sent whole again. It bounds what a node reads when it starts.
pub const DELTAS_MAX: u32 = 100;
/// The most bytes of a request body from a node that the admin server accepts.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// Returns whether this can be a node's name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric();
    name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || b"._-".contains(&byte))
}

/// The query parameters with which a node opens the stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hello {
    /// The name of the node.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = NAME_BYTES_MAX), regex(pattern = NAME_PATTERN)))]
    pub name: String,
    /// The instance: another one for each start of its process.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = NAME_BYTES_MAX), regex(pattern = NAME_PATTERN)))]
    pub instance: String,
    /// The version of its build.
    #[serde(default)]
    pub build: String,
    /// The newest schema of policies that it knows.
    pub schema: u32,
    /// The version of the policy that it has, if any.
    pub version: Option<u64>,
    /// The SHA-256 of that policy's document, hex.
    pub sha256: Option<String>,
    /// The number of deltas that it accepts before the policy must be sent whole, 100 at most; after a whole policy it is
    /// 100. A delta that is some hundredths of the whole counts as so many. Unless given, every policy is sent whole.
    pub deltas: Option<u32>,
    /// A number below 2^53 that identifies the store: nodes with the same store addresses and prefix send the same one.
    /// Absent: it has no store, or does not send it.
    pub store: Option<u64>,
    /// Whether it sends a [`Goodbye`] when it stops. The absence of a node that does not raises no alert.
    #[serde(default)]
    pub says_goodbye: bool,
}

/// The message of a node that stops on purpose, so its absence raises no alert.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Goodbye {
    /// The name of the node.
    pub name: String,
    /// The instance of the node.
    pub instance: String,
}

/// A published policy, whole.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SnapshotMessage {
    /// The version under which it was published.
    pub version: u64,
    /// The SHA-256 of the document, hex.
    pub sha256: String,
    /// The time of publication, RFC 3339.
    pub published_at: String,
    /// The treatment of used quota, by full name of the limit; it is kept where nothing is stated.
    #[serde(default)]
    pub carry: BTreeMap<String, Carry>,
    /// The length of the document as JSON, bytes.
    pub bytes: u64,
    /// The document: JSON, deflated, in base64.
    pub document: String,
}

/// A published policy as the difference from the version before it, for a node that has that one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeltaMessage {
    /// The version under which it was published.
    pub version: u64,
    /// The SHA-256 of the whole document, hex.
    pub sha256: String,
    /// The time of publication, RFC 3339.
    pub published_at: String,
    /// The SHA-256 of the document that it differs from, hex.
    pub since_sha256: String,
    /// The treatment of used quota, by full name of the limit; it is kept where nothing is stated.
    #[serde(default)]
    pub carry: BTreeMap<String, Carry>,
    /// The length of the delta as JSON, bytes.
    pub bytes: u64,
    /// The SHA-256 of the delta as JSON, hex.
    pub delta_sha256: String,
    /// The [`tidegate::policy::Delta`]: JSON, deflated, in base64.
    pub delta: String,
}

/// The message that a node already has the policy that it should have. During a rollout that need not be the newest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CurrentVersion {
    /// The version of that policy.
    pub version: u64,
}

/// The secret from which the nodes of a fleet derive the names of keys in their store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreKeys {
    /// The secret: 32 bytes, base64url without padding.
    pub secret: String,
}

/// The message that ends the stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamEnd {
    /// The reason, for people.
    pub reason: String,
}

/// A node's acknowledgement of a snapshot or a delta.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Acknowledgement {
    /// The name of the node.
    pub name: String,
    /// The instance of the node.
    pub instance: String,
    /// The version of the policy.
    pub version: u64,
    /// The time of the acknowledgement by the node's clock, Unix milliseconds.
    pub at_ms: u64,
    /// The time from the last byte of the policy to the swap, milliseconds.
    pub took_ms: u64,
    /// The reason why the policy is not in force, if it is not.
    #[serde(default)]
    pub refused: Option<String>,
    /// The reason why the policy is in force, but was not saved for the next start.
    #[serde(default)]
    pub not_kept: Option<String>,
}
