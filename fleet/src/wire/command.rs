//! Queries from the admin server to a node, and the node's answers.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::policy::Sharing;

use crate::wire::report::SeenIdentity;

/// Identities of a question.
pub const FULLEST_MAX: usize = 100;
/// Decisions of an answer.
pub const DECISIONS_MAX: usize = 100;
/// How long a node may watch before it answers, milliseconds.
pub const WATCH_MS_MAX: u64 = 1_500;
/// Until when a command must be answered, milliseconds from when it was sent.
pub const DEADLINE_MS: u64 = 2_000;

/// An identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Who"))]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// Such as `user`.
    pub kind: String,
    /// Such as `ada`.
    pub value: String,
}

/// What is asked of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Command {
    /// By which the answer is known.
    pub id: String,
    /// Within so many milliseconds the answer counts.
    pub deadline_ms: u64,
    /// An [`Ask`]; one of a newer build may be none.
    pub ask: Value,
}

/// What can be asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "what", rename_all = "lowercase", deny_unknown_fields)]
pub enum Ask {
    /// How every limit stands that a request would meet. Charges nothing.
    Peek {
        /// The request.
        request: Question,
    },
    /// Of each of several identities, the limit that is nearest to denying its requests, of which nothing else is known. Charges
    /// nothing.
    Fullest {
        /// `default` unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        domain: Option<String>,
        /// A hundred at most.
        #[cfg_attr(feature = "schema", schemars(length(max = FULLEST_MAX)))]
        each: Vec<Who>,
    },
    /// Forget what was used here of the limits of a request, those of everyone too: what this node counted, and what it holds of
    /// limits that nodes share. What their store has of those is forgotten by [`Clear`](Self::Clear) before.
    Reset {
        /// The request.
        request: Question,
    },
    /// Have the store of limits that nodes share forget what was used of those of a request. One node is asked; what it holds
    /// itself it keeps until [`Reset`](Self::Reset).
    Clear {
        /// The request.
        request: Question,
    },
    /// Decide a request, and charge it when it is allowed: a check as the doors make it.
    Charge {
        /// The request.
        request: Question,
    },
    /// The decisions about one identity that are made from now on.
    Watch {
        /// Whom.
        who: Who,
        /// For how long, milliseconds.
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = WATCH_MS_MAX)))]
        for_ms: u64,
        /// Whoever asks again and again misses nothing in between. It is answered as soon as there is something to tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        goes_on: Option<GoesOn>,
    },
    /// The next decisions, whomever they are about.
    Sample {
        /// So many at most.
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = DECISIONS_MAX)))]
        count: usize,
        /// For how long, milliseconds.
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = WATCH_MS_MAX)))]
        for_ms: u64,
    },
    /// Connect again, and take the policy anew.
    Resync {},
}

/// Where a watch is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GoesOn {
    /// Whoever asks chooses it, another for each watch: under it the node goes on to watch for ten seconds after each question.
    pub watch: String,
    /// The `last` of its last answer; 0 at first.
    pub after: u64,
}

/// A request that is asked about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// `default` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// One to eight, each kind once.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = tidegate::IDENTITIES_MAX)))]
    pub identities: Vec<Who>,
    /// Path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Such as `GET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Tokens; 1 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
}

/// A node's answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Answer {
    /// Name of the node.
    pub name: String,
    /// Which start of it.
    pub instance: String,
    /// Of the command.
    pub id: String,
    /// What it has to say.
    pub told: Told,
}

/// What a node has to say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum Told {
    /// How limits stand.
    Peek {
        /// Version of the policy that decides.
        policy_version: u64,
        /// Would it be allowed?
        allowed: bool,
        /// The limit that would deny it.
        #[serde(default)]
        limit_id: Option<String>,
        /// When it would be allowed, milliseconds from now; `null`: never.
        #[serde(default)]
        retry_after_ms: Option<u64>,
        /// In the order in which they are checked.
        limits: Vec<PeekedLimit>,
    },
    /// The limit that is nearest to denying.
    Fullest {
        /// Of each identity, in the order in which they were asked about; `null`: no limit of its can deny it for what it used.
        each: Vec<Option<PeekedLimit>>,
    },
    /// What was used is forgotten.
    Reset {
        /// Keys of which there was something to forget.
        keys: u64,
        /// The limits of which something was used, as they stood before. Builds before these have none.
        #[serde(default)]
        cleared: Vec<PeekedLimit>,
    },
    /// The store has forgotten what was used.
    Clear {
        /// Keys of which there was something to forget.
        keys: u64,
        /// The limits of which something was used, as they stood before.
        cleared: Vec<PeekedLimit>,
    },
    /// What was decided, and charged if it was allowed.
    Charge {
        /// Version of the policy that decided.
        policy_version: u64,
        /// Was it allowed?
        allowed: bool,
        /// The limit that denied it, or the one with the least left; `null`: no limit applied, so nothing was charged.
        #[serde(default)]
        limit_id: Option<String>,
        /// The policy has no such domain, so no limit applied.
        #[serde(default)]
        unknown_domain: bool,
        /// When it would be allowed, milliseconds from now; `null`: never.
        #[serde(default)]
        retry_after_ms: Option<u64>,
    },
    /// Decisions about one identity.
    Watch(Decisions),
    /// Decisions.
    Sample(Decisions),
    /// It connects again.
    Resync {},
    /// It cannot.
    Failed {
        /// Why, for people.
        why: String,
    },
}

/// One limit of a request, as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PeekedLimit {
    /// Full name.
    pub limit_id: String,
    /// Of tokens.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// Until all is back, milliseconds.
    pub reset_after_ms: u64,
    /// When this limit would let the request pass, milliseconds from now; `null`: never.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    /// What would be left then.
    #[serde(default)]
    pub remaining_after: u64,
    /// It counts, and never denies.
    pub is_shadow: bool,
    /// How nodes share it. Builds before these do not say, and share none.
    #[serde(default)]
    pub sharing: Sharing,
    /// It is what all nodes together have in the store that they share it through.
    #[serde(default)]
    pub is_stored: bool,
    /// By which algorithm it counts, and how it stands, in words. Builds before these have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub says: String,
}

/// Decisions that were seen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Decisions {
    /// Oldest first, a hundred at most, and as many as fit.
    pub decisions: Vec<SeenDecision>,
    /// How many came, also those for which there was no room.
    pub seen: u64,
    /// Of a watch that goes on: the number of the last that was told or counted.
    #[serde(default)]
    pub last: u64,
    /// Since when is watched, by the node's clock, Unix milliseconds. Another than before: the watch that went on had ended, and this
    /// is a new one.
    #[serde(default)]
    pub since_ms: u64,
}

/// A decision that was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SeenDecision {
    /// By the node's clock, Unix milliseconds.
    pub at_ms: u64,
    /// Was it allowed?
    pub allowed: bool,
    /// The limit that decided; `null` where none applied.
    pub limit_id: Option<String>,
    /// What it left.
    pub remaining: Option<u64>,
    /// Whom the request was about.
    pub identities: Vec<SeenIdentity>,
    /// Its path, if it had one; its first 512 characters.
    pub endpoint: Option<String>,
    /// Its method, if it had one.
    #[serde(default)]
    pub method: Option<String>,
    /// Tokens; `null`: it was no request, or the node does not say.
    #[serde(default)]
    pub cost: Option<u64>,
}
