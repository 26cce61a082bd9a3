//! Report of a replay. Its JSON has the fields in the order of declaration; the same input gives the same bytes.

use serde::Serialize;

use crate::timestamp::Utc;

/// Decisions that the policy would have made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ReplayReport {
    /// Lines that were not blank: `requests`, `unreadable` and `without_client` together.
    pub lines: u64,
    /// Lines that were decided.
    pub requests: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Lines without a client: no limit counts them, and their requests are allowed.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_client: u64,
    /// Requests without a path, to which no rule for an endpoint applies.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_path: u64,
    /// Requests that were later than the window, and were decided at the newest time.
    pub late: u64,
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Time of the first decision; `None` without requests.
    pub from: Option<Utc>,
    /// Time of the last decision.
    pub to: Option<Utc>,
    /// Every limit of a tier or rule, in the policy's order, and the limits of overrides that were checked.
    pub limits: Vec<LimitRow>,
    /// Identities, most denied first.
    pub clients: Vec<ClientRow>,
    /// Length of a row of `timeline`: the shortest of 1, 10, 60, 600, 3,600 and 86,400 that gives at most 1,000 rows.
    pub bucket_seconds: u64,
    /// Rows from the first request to the last, without gaps.
    pub timeline: Vec<TimelineRow>,
    /// Kinds of lines that could not be read, in order of first occurrence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable_kinds: Vec<UnreadableKind>,
    /// Errors of logs that could not be read, or not to their end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_logs: Vec<String>,
    /// Logs in the order in which they ended, with the formats of their lines.
    #[serde(skip)]
    pub logs: Vec<LogRow>,
    /// Number of charges for which the engine had no free counter: above 0, some requests may have been denied wrongly.
    #[serde(skip)]
    pub overflow_charges: u64,
}

/// Lines that cannot be read for the same reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UnreadableKind {
    /// The problem that they share.
    pub problem: String,
    /// Number of lines.
    pub lines: u64,
    /// The first line: its log, its number and its text.
    pub example: String,
}

/// A log that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRow {
    /// The name of the log.
    pub log: String,
    /// The formats of its lines, the most frequent first.
    pub forms: Vec<FormatRow>,
}

/// A format of lines, as it was detected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatRow {
    /// Description, such as `combined, vhost first`.
    pub form: String,
    /// Number of lines.
    pub lines: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Counts of one limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LimitRow {
    /// The ID of the limit, the last part of its full name.
    pub id: String,
    /// The full name of the limit.
    pub limit_id: String,
    /// Requests that it checked.
    pub checked: u64,
    /// Requests that it was the first to deny.
    pub denied: u64,
}

/// Counts of one client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ClientRow {
    /// The kind: `ip`, or `user`, or the kind of a [key](crate::LogKey).
    pub kind: String,
    /// The address or name.
    pub value: String,
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Time of its first denial.
    pub first_denied_at: Option<Utc>,
}

/// Counts of a bucket of time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TimelineRow {
    /// The start, a multiple of the bucket's length since the epoch.
    pub at: Utc,
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
}
