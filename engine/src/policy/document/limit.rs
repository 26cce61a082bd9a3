//! Limits of the policy document: algorithm, numbers, mode, and how nodes share them.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

#[cfg(feature = "serde")]
use super::fields;
#[cfg(feature = "schema")]
use crate::algorithm::NUMBER_MAX;

/// A limit.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Limit {
    /// Unique within the tier, rule or client.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[a-z][a-z0-9_-]{0,63}$")))]
    pub id: String,
    /// How it counts.
    pub algorithm: Algorithm,
    /// Tokens per period; 0 denies everything.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "fields::whole"))]
    #[cfg_attr(feature = "schema", schemars(range(max = NUMBER_MAX)))]
    pub limit: u64,
    /// `250ms`, `1s`, `15m`, `1h`, `1d`; for fixed windows also `day`, `week` (begins on Monday) and `month`, by the calendar
    /// in the domain's time zone.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^([0-9]+(ms|s|m|h|d)|day|week|month)$")))]
    pub period: String,
    /// Most tokens at once, for the buckets; the limit unless given.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "fields::some_whole", skip_serializing_if = "Option::is_none")
    )]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = NUMBER_MAX)))]
    pub burst: Option<u64>,
    /// Most tokens that settlements may charge above the burst, for the buckets; what one period repays unless given.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "fields::some_whole", skip_serializing_if = "Option::is_none")
    )]
    #[cfg_attr(feature = "schema", schemars(range(max = NUMBER_MAX)))]
    pub max_debt: Option<u64>,
    /// Does it deny, or only count what it would deny?
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "fields::is_default"))]
    pub mode: Mode,
    /// How nodes share it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "fields::is_default"))]
    pub sharing: Sharing,
    /// What happens when sharing fails.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub on_failure: Option<OnFailure>,
}

impl Limit {
    /// Is its period one of the calendar, which is that of the domain's time zone?
    pub(crate) fn is_of_calendar(&self) -> bool {
        ["day", "week", "month"].contains(&self.period.as_str())
    }
}

/// How a limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum Algorithm {
    /// A bucket that refills at a constant rate.
    TokenBucket,
    /// A queue that drains at a constant rate.
    LeakyBucket,
    /// A count per window; windows end together for everyone.
    FixedWindow,
    /// Two windows, weighted.
    SlidingWindowCounter,
    /// Every admission remembered.
    SlidingWindowLog,
}

/// Does a limit deny?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum Mode {
    /// Yes.
    #[default]
    Enforce,
    /// No: it only counts what it would have denied.
    Shadow,
}

/// How nodes share a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum Sharing {
    /// Each node counts alone.
    #[default]
    Local,
    /// Every check swaps the state in the store.
    Strict,
    /// A node takes tokens ahead.
    Leased,
    /// Nodes exchange what they counted.
    Synced,
}

/// What happens to a shared limit when the store is gone.
#[derive(Clone, Copy, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum OnFailure {
    /// Allow.
    Open,
    /// Deny.
    Closed,
    /// Count alone, with this fraction of the limit.
    Local(f64),
}
