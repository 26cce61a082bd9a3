//! What a replay found. As JSON its fields stand in the order in which they stand here; the same input gives the same
//! bytes.

use serde::Serialize;

use crate::timestamp::Utc;

/// What the policy would have done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// Lines that were not blank: `requests`, `unreadable` and `without_client` together.
    pub lines: u64,
    /// Lines that were decided.
    pub requests: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Lines that name no client: nothing is counted for them, and every request of them is let through.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_client: u64,
    /// Requests without a path, which no rule for an endpoint is met by.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_path: u64,
    /// Requests that came too late for their place in time, and were decided at the newest time.
    pub late: u64,
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Time of the first decision; none without requests.
    pub from: Option<Utc>,
    /// Time of the last decision.
    pub to: Option<Utc>,
    /// Every limit of a tier or rule, in the policy's order, and of clients' own those that were looked at.
    pub limits: Vec<LimitRow>,
    /// Identities, most denied first.
    pub clients: Vec<ClientRow>,
    /// Length of a row of `timeline`: the shortest of 1, 10, 60, 600, 3,600 and 86,400 that gives at most 1,000 rows.
    pub bucket_seconds: u64,
    /// From the first request to the last, without gaps.
    pub timeline: Vec<TimelineRow>,
    /// Kinds of lines that could not be read, in the order in which they came first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable_kinds: Vec<UnreadableKind>,
    /// What is wrong with logs that could not be read, or not to their end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_logs: Vec<String>,
    /// Logs in the order in which they ended, and the forms that they were read by.
    #[serde(skip)]
    pub logs: Vec<LogRow>,
    /// How often the engine had no room for a counter: above 0, some clients may have been denied that should not.
    #[serde(skip)]
    pub overflow_charges: u64,
}

/// Lines that cannot be read for the same reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UnreadableKind {
    /// What is wrong with them.
    pub problem: String,
    /// How many there are.
    pub lines: u64,
    /// The first of them: its log, its number and what stands there.
    pub example: String,
}

/// A log that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRow {
    /// Its name.
    pub log: String,
    /// The forms of its lines, the most frequent first.
    pub forms: Vec<FormRow>,
}

/// A form of lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormRow {
    /// Such as `combined, vhost first`.
    pub form: String,
    /// Lines that were read by it.
    pub lines: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How one limit did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LimitRow {
    /// Its own id, the last part of its full name.
    pub id: String,
    /// Its full name.
    pub limit_id: String,
    /// Requests that it was looked at for.
    pub checked: u64,
    /// Requests that it was the first to refuse.
    pub denied: u64,
}

/// How one client fared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ClientRow {
    /// `ip`, and `user` or what a [key](crate::LogKey) says.
    pub kind: String,
    /// Its address or name.
    pub value: String,
    /// Its requests that were allowed.
    pub allowed: u64,
    /// Its requests that were denied.
    pub denied: u64,
    /// When it was denied first.
    pub first_denied_at: Option<Utc>,
}

/// What happened in a stretch of time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TimelineRow {
    /// Its beginning, a multiple of its length since the epoch.
    pub at: Utc,
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
}
