//! Types of a comparison's summary, which are also types of the REST API.

use serde::{Deserialize, Serialize};

use super::limits::LimitComparison;
use crate::Utc;

/// Summary of a comparison of two policies over the same traffic. A missing policy allows everything, and its part is `null`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Requests that both decided.
    pub requests: u64,
    /// Time of the first request.
    pub from: Option<Utc>,
    /// Time of the last request.
    pub to: Option<Utc>,
    /// Summary of A.
    pub a: Option<SideSummary>,
    /// Summary of B.
    pub b: Option<SideSummary>,
    /// Requests that B denies and A allows; listed clients with denials by B and none by A.
    pub newly_denied: ChangeCounts,
    /// Requests that A denies and B allows; listed clients with denials by A and none by B.
    pub newly_allowed: ChangeCounts,
    /// Clients with more or fewer denials by B than by A; `null` in runs of earlier versions.
    #[serde(default)]
    pub clients: Option<ClientChangeCounts>,
    /// Limits of A, then those that only B has, then those of client overrides that denied most, if they checked a request.
    pub limits: Vec<LimitComparison>,
    /// Limits of client overrides that checked a request and are not listed.
    pub limits_left_out: u64,
    /// Clients with the most changed decisions.
    pub top: Vec<ClientComparison>,
    /// Length of a bucket of `timeline`.
    pub bucket_ms: u64,
    /// All requests over time, without empty buckets.
    pub timeline: Vec<TimelineBucket>,
    /// Numbers of clients and decisions that are stored for display.
    pub kept: KeptCounts,
    /// Charges for which the engines had no free counter; above 0, some requests may have been denied wrongly.
    pub charges_without_room: u64,
}

/// Summary of one policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SideSummary {
    /// Requests that it allowed.
    pub allowed: u64,
    /// Requests that it denied.
    pub denied: u64,
    /// Listed clients with a denial.
    pub clients_denied: u64,
    /// The first request that it denied.
    pub first_denial: Option<FirstDenial>,
    /// The longest time for which it denied every request of a listed client.
    pub longest_run: Option<LongestRun>,
}

/// First denial of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FirstDenial {
    /// Time of the denial.
    pub at: Utc,
    /// The client, as `KIND:VALUE`; `None` if there was no room to list it.
    pub key: Option<String>,
}

/// A run of consecutive denials of one client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LongestRun {
    /// The client, as `KIND:VALUE`.
    pub key: String,
    /// Time of the first denial.
    pub from: Utc,
    /// Time from the first to the last denial.
    pub length_ms: u64,
    /// Number of denials.
    pub denials: u64,
}

/// Numbers of changed requests and clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Changed"))]
pub struct ChangeCounts {
    /// Requests.
    pub requests: u64,
    /// Clients.
    pub clients: u64,
}

/// Numbers of listed clients with more or fewer denials. A client with as many, though other, denials counts as neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ClientsChanged"))]
pub struct ClientChangeCounts {
    /// Clients of which B denies fewer requests than A.
    pub gaining: u64,
    /// Clients of which B denies more requests than A.
    pub losing: u64,
}

/// Counts of one client under both policies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ClientRow"))]
pub struct ClientComparison {
    /// The client as `KIND:VALUE`, formatted for display.
    pub key: String,
    /// Requests of the client.
    pub requests: u64,
    /// Requests that A denied.
    pub denied_a: u64,
    /// Requests that B denied.
    pub denied_b: u64,
    /// Requests that B denied and A allowed.
    pub newly_denied: u64,
    /// Requests that A denied and B allowed.
    pub newly_allowed: u64,
    /// Time of the first denial by A.
    pub first_denied_a: Option<Utc>,
    /// Time of the first denial by B.
    pub first_denied_b: Option<Utc>,
    /// Time of the first request that B denied and A allowed.
    pub first_newly_denied: Option<Utc>,
}

/// Counts of a bucket of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Bucket"))]
pub struct TimelineBucket {
    /// Start of the bucket.
    pub at: Utc,
    /// Requests.
    pub requests: u64,
    /// Requests that A denied.
    pub denied_a: u64,
    /// Requests that B denied.
    pub denied_b: u64,
}

/// Numbers of clients and decisions that are stored for display, and that are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Kept"))]
pub struct KeptCounts {
    /// Clients that are listed.
    pub clients: u64,
    /// Requests of clients that are not listed because there was no room.
    pub clients_left_out: u64,
    /// The shortest bucket of a client's timeline.
    pub bucket_ms: u64,
    /// Decisions in which the policies differ.
    pub changed: DecisionsKept,
    /// Decisions that both denied.
    pub denied: DecisionsKept,
    /// Decisions that both allowed.
    pub allowed: DecisionsKept,
}

/// Number of stored decisions, which are the first ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionsKept {
    /// Stored decisions.
    pub kept: u64,
    /// All decisions.
    pub of: u64,
}

/// A client over time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "TimelineRow"))]
pub struct ClientTimeline {
    /// The client with its counts.
    #[serde(flatten)]
    pub client: ClientComparison,
    /// Requests over time, without empty buckets.
    pub buckets: Vec<TimelineBucket>,
}

/// Sort order of clients; equal ones are sorted by key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientOrder {
    /// Requests in which the policies differ.
    #[default]
    Changed,
    /// Requests that A denied.
    DeniedA,
    /// Requests that B denied.
    DeniedB,
    /// Requests.
    Requests,
    /// The key.
    Key,
}
