//! Queries from the admin server to a node, and the node's replies.
//!
//! `schemars(rename)` keeps the published names of the schemas, which clients of the REST API generate types from.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::policy::Sharing;

use crate::wire::report::SeenIdentity;

/// The most identities of a [`NodeQuery::Fullest`].
pub const FULLEST_MAX: usize = 100;
/// The most decisions of a reply.
pub const DECISIONS_MAX: usize = 100;
/// The longest time for which a node may watch decisions before it replies, milliseconds.
pub const WATCH_MS_MAX: u64 = 1_500;
/// The time within which a node must reply to a query, milliseconds from when the query was sent.
pub const DEADLINE_MS: u64 = 2_000;

/// The identity that a query is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Who"))]
#[serde(deny_unknown_fields)]
pub struct QueryIdentity {
    /// The kind, such as `user`.
    pub kind: String,
    /// The value, such as `ada`.
    pub value: String,
}

/// The message that carries a query from the admin server to a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueryMessage {
    /// Names the query; the reply carries the same ID.
    pub id: String,
    /// The time within which a reply counts, milliseconds.
    pub deadline_ms: u64,
    /// A [`NodeQuery`] as JSON: a newer admin server may send one that this build does not know.
    #[serde(rename = "ask")]
    pub query: Value,
}

/// A query to a node: what an administrator wants to know, or to have done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "lowercase", deny_unknown_fields)]
pub enum NodeQuery {
    /// Inspects every limit that a request would meet. Charges nothing.
    Peek {
        /// The request.
        request: QueryRequest,
    },
    /// Inspects, for each of several identities, the limit that is nearest to denying requests of that identity alone.
    /// Charges nothing.
    Fullest {
        /// `default` unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        domain: Option<String>,
        /// The identities, 100 at most.
        #[cfg_attr(feature = "schema", schemars(length(max = FULLEST_MAX)))]
        each: Vec<QueryIdentity>,
    },
    /// Resets the limits of a request on this node, those that everyone shares included: clears its own counts and the
    /// leases and views that it holds of shared limits. What the store has of shared limits is cleared by
    /// [`Clear`](Self::Clear), which must come first.
    Reset {
        /// The request.
        request: QueryRequest,
    },
    /// Clears the shared limits of a request in the store. One node of each store is asked to; it keeps the leases and
    /// views that it holds until [`Reset`](Self::Reset).
    Clear {
        /// The request.
        request: QueryRequest,
    },
    /// Decides a request, and charges it if it is allowed, as a check over a listener does.
    Charge {
        /// The request.
        request: QueryRequest,
    },
    /// Watches the decisions about one identity that are made from now on.
    Watch {
        /// The identity.
        who: QueryIdentity,
        /// The time for which to watch, milliseconds.
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = WATCH_MS_MAX)))]
        for_ms: u64,
        /// The position in a watch that continues over several queries, so that no decision between two of them is
        /// missed. The node replies as soon as there is a new decision.
        #[serde(rename = "goes_on", default, skip_serializing_if = "Option::is_none")]
        cursor: Option<WatchCursor>,
    },
    /// Watches the next decisions about any identity.
    Sample {
        /// The most decisions to return.
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = DECISIONS_MAX)))]
        count: usize,
        /// The time for which to watch, milliseconds.
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = WATCH_MS_MAX)))]
        for_ms: u64,
    },
    /// Makes the node connect again and take the policy anew.
    Resync {},
}

/// The position in a watch that continues over several queries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WatchCursor {
    /// Names the watch; the caller chooses a new name for each. The node keeps watching for ten seconds after each
    /// query of this name.
    pub watch: String,
    /// The `last` of the previous reply; 0 at first.
    pub after: u64,
}

/// The request that a query is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Question"))]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    /// `default` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// One to eight identities, each kind once.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = tidegate::IDENTITIES_MAX)))]
    pub identities: Vec<QueryIdentity>,
    /// The path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The method, such as `GET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The cost in tokens; 1 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
}

/// The message that carries a node's reply to the admin server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Answer"))]
pub struct ReplyMessage {
    /// The name of the node.
    pub name: String,
    /// The instance of the node: another one for each start of its process.
    pub instance: String,
    /// The ID of the query.
    pub id: String,
    /// The reply.
    #[serde(rename = "told")]
    pub reply: NodeReply,
}

/// A node's reply to a query.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Told"))]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum NodeReply {
    /// The state of each limit that the request would meet.
    Peek {
        /// The version of the policy that decides.
        policy_version: u64,
        /// Whether the request would be allowed.
        allowed: bool,
        /// The limit that would deny it.
        #[serde(default)]
        limit_id: Option<String>,
        /// The time after which it would be allowed, milliseconds from now; `null`: never.
        #[serde(default)]
        retry_after_ms: Option<u64>,
        /// The limits, in the order in which they are checked.
        limits: Vec<PeekedLimit>,
    },
    /// The limit of each identity that is nearest to denying.
    Fullest {
        /// One entry for each identity of the query, in the same order; `null`: no limit of this identity can deny it.
        each: Vec<Option<PeekedLimit>>,
    },
    /// The node cleared what was used.
    Reset {
        /// The number of keys that had something to clear.
        keys: u64,
        /// The limits that had been used, with their state before the reset. Older builds send none.
        #[serde(default)]
        cleared: Vec<PeekedLimit>,
    },
    /// The store cleared what was used.
    Clear {
        /// The number of keys that had something to clear.
        keys: u64,
        /// The limits that had been used, with their state before they were cleared.
        cleared: Vec<PeekedLimit>,
    },
    /// The decision; the request was charged if it was allowed.
    Charge {
        /// The version of the policy that decided.
        policy_version: u64,
        /// Whether the request was allowed.
        allowed: bool,
        /// The limit that denied it, or the one with the least left; `null`: no limit applied, so nothing was charged.
        #[serde(default)]
        limit_id: Option<String>,
        /// Whether the policy lacks the domain, so that no limit applied.
        #[serde(default)]
        unknown_domain: bool,
        /// The time after which it would be allowed, milliseconds from now; `null`: never.
        #[serde(default)]
        retry_after_ms: Option<u64>,
    },
    /// Decisions about the watched identity.
    Watch(Decisions),
    /// Decisions about any identity.
    Sample(Decisions),
    /// The node connects again.
    Resync {},
    /// The node cannot answer the query.
    Failed {
        /// The reason, for people.
        why: String,
    },
}

/// The state of one limit of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeekedLimit {
    /// The full name of the limit.
    pub limit_id: String,
    /// The tokens that the limit has in all.
    pub limit: u64,
    /// The tokens that are left.
    pub remaining: u64,
    /// The time until all tokens are back, milliseconds.
    pub reset_after_ms: u64,
    /// The time after which this limit would let the request pass, milliseconds from now; `null`: never.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    /// The tokens that would be left after the request.
    #[serde(default)]
    pub remaining_after: u64,
    /// Whether the limit is in shadow mode: it counts and never denies.
    pub is_shadow: bool,
    /// The sharing mode of the limit. Older builds do not send it, and share none.
    #[serde(default)]
    pub sharing: Sharing,
    /// Whether this is the state in the store, of all nodes together.
    #[serde(default)]
    pub is_stored: bool,
    /// The algorithm and the state of the limit, in plain words. Older builds send none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub says: String,
}

/// The decisions that a watch saw.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decisions {
    /// The decisions, oldest first: 100 at most, and as many as fit into one message.
    pub decisions: Vec<SeenDecision>,
    /// The number of decisions that were made, those without room included.
    pub seen: u64,
    /// The number of the last decision that this reply has or counts, for a watch that continues.
    #[serde(default)]
    pub last: u64,
    /// The time since which the node watches, by its clock, Unix milliseconds. A value other than in the previous reply
    /// means that the watch had ended and a new one began.
    #[serde(default)]
    pub since_ms: u64,
}

/// A decision that a watch saw.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeenDecision {
    /// The time of the decision by the node's clock, Unix milliseconds.
    pub at_ms: u64,
    /// Whether the request was allowed.
    pub allowed: bool,
    /// The limit that decided; `null`: none applied.
    pub limit_id: Option<String>,
    /// The tokens that were left.
    pub remaining: Option<u64>,
    /// The identities of the request.
    pub identities: Vec<SeenIdentity>,
    /// The path of the request, if it had one, cut to 512 characters.
    pub endpoint: Option<String>,
    /// The method of the request, if it had one.
    #[serde(default)]
    pub method: Option<String>,
    /// The cost in tokens; `null`: it was no request, or the node does not send it.
    #[serde(default)]
    pub cost: Option<u64>,
}
