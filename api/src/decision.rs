//! The body of a decision, which answers a check or a reservation, and of many decisions, which answer a batch.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ProblemDetails;

/// Returns the whole milliseconds of a duration, as the bodies have them: rounded up, so that a retry is not too early.
#[must_use]
pub fn ms_rounded_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The body of a decision. A reader ignores fields that it does not know: a newer server may write more.
///
/// The numbers are those of the limit that decided; they and `limit_id` are `null` where no limit applied.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DecisionBody {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The most that the limit admits at once.
    pub limit: Option<u64>,
    /// The largest cost that the limit would admit now.
    pub remaining: Option<u64>,
    /// Milliseconds until the limit has its whole quota again.
    pub reset_after_ms: Option<u64>,
    /// Milliseconds until the same request would be allowed: 0 if it was, `null` if it never will be.
    pub retry_after_ms: Option<u64>,
    /// Milliseconds that an allowed request should wait, so that requests leave a leaky bucket at its rate.
    pub delay_ms: Option<u64>,
    /// Full name of the limit.
    pub limit_id: Option<String>,
    /// Version of the policy that decided; 0 if none did.
    pub policy_version: u64,
    /// Reason why the store or the server that should have decided did not; left out if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// Full names of the shadow limits that would have denied the request; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadow_denied: Vec<String>,
    /// ID of the reservation that was opened; left out of the answer to a check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
}

/// The body that answers a batch of checks, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BatchBody {
    /// The answer to each check.
    pub decisions: Vec<BatchItem>,
}

/// The answer to one check of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BatchItem {
    /// The check was decided.
    Decision(DecisionBody),
    /// The check is wrong, and was not charged.
    Problem(ProblemDetails),
}
