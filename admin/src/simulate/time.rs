//! The time of runs.

use jiff::Timestamp;
use tidegate_replay::Utc;

/// Now, to the millisecond.
pub(crate) fn now() -> Utc {
    Utc(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default() * 1_000_000)
}
