//! Published versions of the policy, and the rollout of one, as they are stored and sent.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate::algorithm::Carry;

/// A published version.
#[derive(Clone, Debug, Serialize, JsonSchema, sqlx::FromRow)]
#[expect(clippy::struct_field_names, reason = "its number is called so in the database and in every answer")]
pub(crate) struct Version {
    #[sqlx(try_from = "i64")]
    pub(crate) version: u64,
    pub(crate) sha256: String,
    pub(crate) author: String,
    pub(crate) message: String,
    /// RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) published_at: String,
    #[sqlx(try_from = "String")]
    pub(crate) carry: Carries,
    /// The version that it was made on: the one before it, unless a rollout was open; 0: there was none.
    #[sqlx(try_from = "i64")]
    pub(crate) follows: u64,
}

/// What becomes of used quota where a version changes a limit's numbers, by full name of the limit; kept unless said.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Carries(pub(crate) BTreeMap<String, Carry>);

impl TryFrom<String> for Carries {
    type Error = serde_json::Error;

    fn try_from(column: String) -> Result<Self, Self::Error> {
        serde_json::from_str(&column)
    }
}

/// A version that some nodes have, and all others wait for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Rollout {
    /// The newest version.
    pub(crate) version: u64,
    /// The version that all others keep.
    pub(crate) keeps: u64,
    /// Those that it went to.
    pub(crate) nodes: BTreeSet<String>,
    /// Who began it.
    pub(crate) author: String,
    /// When it began, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) since: String,
}
