//! What is known of a run's traffic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::simulate::recorder::Recorded;

/// What is known of a run's traffic beside.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AboutTraffic")]
pub(crate) struct About {
    /// Lines of the log that were left out, because they could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<u64>,
    /// Requests of the log that came too late for their place in time, and were asked at the newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) late: Option<u64>,
    /// Did made-up traffic end early, because more requests do not fit?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cut: Option<bool>,
    /// What the recorder had kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recorded: Option<Recorded>,
}
