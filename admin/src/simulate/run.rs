//! A run, as it is told and kept.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_replay::{Utc, compare::Summary};

use crate::{
    domain::privacy::Keys,
    simulate::{about_traffic::About, question::Ask, time::now},
};

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RunState")]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Queued,
    Running,
    Done,
    Stopped,
    Failed,
}

impl State {
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Stopped | Self::Failed)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// A run, as it is told.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Run {
    pub(crate) id: String,
    /// Who asked.
    pub(crate) author: String,
    /// The user, or who made the token, that asked. Of use until the run is over, so it is not kept.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) behind: String,
    pub(crate) state: State,
    /// How many runs come before it, while it waits.
    pub(crate) waits_for: Option<usize>,
    pub(crate) created_at: Utc,
    pub(crate) started_at: Option<Utc>,
    pub(crate) ended_at: Option<Utc>,
    /// The version that was in force when it was asked for: what `changes` and `draft` were put on.
    pub(crate) policy_version: u64,
    /// The question, to be asked again; none where it is too long to be kept.
    #[schemars(with = "Option<Ask>")]
    #[serde(with = "shared")]
    pub(crate) asked: Option<Arc<Value>>,
    /// How identities are shown in what was found of recorded requests. Where they are to be shown less clearly by now, the
    /// run is forgotten at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<Keys>,
    pub(crate) about: About,
    /// Requests so far.
    pub(crate) done: u64,
    /// About how many there are.
    pub(crate) of: u64,
    /// The time that it has come to on its own clock.
    pub(crate) at: Option<Utc>,
    /// Why it failed.
    pub(crate) error: Option<String>,
    /// What was found, in short.
    #[schemars(with = "Option<Summary>")]
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared")]
    pub(crate) summary: Option<Arc<Summary>>,
}

impl Run {
    pub(crate) fn end(&mut self, state: State, error: Option<String>) {
        (self.state, self.error, self.ended_at) = (state, error, Some(now()));
    }
}

/// What several may hold is written as what it is.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde asks so")]
    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<Arc<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_deref().serialize(serializer)
    }

    pub(super) fn deserialize<'d, T: Deserialize<'d>, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<Option<Arc<T>>, D::Error> {
        Ok(Option::<T>::deserialize(deserializer)?.map(Arc::new))
    }
}
