//! Limits of the policy document: their algorithm, numbers, mode and sharing.

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
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Tokens per period; 0 denies everything.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "fields::whole"))]
    #[cfg_attr(feature = "schema", schemars(range(max = NUMBER_MAX)))]
    pub limit: u64,
    /// `250ms`, `1s`, `15m`, `1h`, `1d`; for fixed windows also `day`, `week` (begins on Monday) and `month`, by the calendar
    /// in the domain's time zone.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^([0-9]+(ms|s|m|h|d)|day|week|month)$")))]
    pub period: String,
    /// The most tokens at once, for the bucket algorithms; the limit unless given.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "fields::some_whole", skip_serializing_if = "Option::is_none")
    )]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = NUMBER_MAX)))]
    pub burst: Option<u64>,
    /// The most tokens that settlements may charge above the burst, for the bucket algorithms; what one period repays unless given.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "fields::some_whole", skip_serializing_if = "Option::is_none")
    )]
    #[cfg_attr(feature = "schema", schemars(range(max = NUMBER_MAX)))]
    pub max_debt: Option<u64>,
    /// Whether the limit denies, or only counts what it would deny.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "fields::is_default"))]
    pub mode: Mode,
    /// The way in which nodes share the limit.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "fields::is_default"))]
    pub sharing: Sharing,
    /// The behaviour when sharing fails.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub on_failure: Option<OnFailure>,
}

impl Limit {
    /// Returns an enforced limit that each node counts alone (`sharing = "local"`), with the defaults of all other fields. A
    /// program that builds limits from it compiles with later versions of this crate too, which may have more fields.
    ///
    /// ```
    /// use tidegate::policy::{Algorithm, Limit};
    ///
    /// let plain = Limit::new("minute", Algorithm::TokenBucket, 60, "1m");
    /// let bursty = Limit { burst: Some(100), ..plain.clone() };
    /// # assert_eq!(plain.burst, None);
    /// ```
    #[must_use]
    pub fn new(id: impl Into<String>, algorithm: Algorithm, limit: u64, period: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            algorithm,
            limit,
            period: period.into(),
            burst: None,
            max_debt: None,
            mode: Mode::default(),
            sharing: Sharing::default(),
            on_failure: None,
        }
    }

    /// Returns whether its period is one of the calendar of the domain's time zone.
    pub(crate) fn is_of_calendar(&self) -> bool {
        ["day", "week", "month"].contains(&self.period.as_str())
    }
}

/// The algorithm of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket that refills at a constant rate.
    TokenBucket,
    /// A queue that drains at a constant rate.
    LeakyBucket,
    /// A count per window; the windows of all keys end together.
    FixedWindow,
    /// Counts of two windows, weighted.
    SlidingWindowCounter,
    /// A log of every admission.
    SlidingWindowLog,
}

/// The mode of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub enum Mode {
    /// The limit denies.
    #[default]
    Enforce,
    /// The limit only counts what it would have denied.
    Shadow,
}

/// The way in which nodes share a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub enum Sharing {
    /// Each node counts alone.
    #[default]
    Local,
    /// Every check updates the state in the store.
    Strict,
    /// A node takes tokens from the store ahead of the checks.
    Leased,
    /// Nodes exchange their counts.
    Synced,
}

/// The behaviour of a shared limit while the store is unavailable.
#[derive(Clone, Copy, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub enum OnFailure {
    /// Allow.
    Open,
    /// Deny.
    Closed,
    /// Count on each node alone, with this fraction of the limit.
    Local(f64),
}
