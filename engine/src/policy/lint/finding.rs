//! The finding: one result of a lint or of a comparison of two policies, with its code and where it is.

use std::fmt;

/// One result of [`Policy::lint`](crate::policy::Policy::lint), [`Policy::loosened_by`](crate::policy::Policy::loosened_by) or
/// [`Policy::newly_enforced_by`](crate::policy::Policy::newly_enforced_by).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub struct Finding<Code> {
    /// The kind of finding.
    pub code: Code,
    /// The domain that it is in.
    pub domain: String,
    /// `tier`, `rule`, `client`, or `domain` for the settings of one and for the default tier of a kind.
    pub kind: &'static str,
    /// The id of the tier or rule, `KIND:VALUE` of a client, or the name of a domain.
    pub id: String,
    /// The id of the limit, if the finding is about one limit.
    pub limit: Option<String>,
    /// The number of clients that have the same finding, `id` being the first of them; 1 for anything but clients.
    pub objects: usize,
    /// An explanation for people.
    pub message: String,
}

impl<Code> fmt::Display for Finding<Code> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.domain, self.kind, self.id)?;
        if let Some(limit) = &self.limit {
            write!(f, "/{limit}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The code of a warning about one policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum WarningCode {
    /// No request can ever match the rule.
    NeverMatches,
    /// The limit never denies a request that another limit admits.
    NeverBinds,
    /// The rule takes requests away from a tighter rule, which no longer counts them.
    ShadowsRule,
    /// No identity can be in the tier.
    UnusedTier,
    /// The override has no end.
    NoEnd,
}

impl WarningCode {
    /// Returns the name of the code in the JSON of the HTTP API and of the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NeverMatches => "never_matches",
            Self::NeverBinds => "never_binds",
            Self::ShadowsRule => "shadows",
            Self::UnusedTier => "unused_tier",
            Self::NoEnd => "no_end",
        }
    }
}

/// The code of a loosening: the way in which a change admits more requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum LooseningCode {
    /// No limit applies any longer.
    Unlimited,
    /// The rule, or the domain, is disabled or removed.
    Off,
    /// The rule matches fewer requests, or counts them in more groups.
    Narrowed,
    /// The rule takes requests away from a tighter rule, which no longer counts them.
    ShadowsRule,
    /// The limit is removed, and no other limit replaces it.
    Removed,
    /// The limit is in shadow mode: it only counts.
    ShadowMode,
    /// The limit allows every request while the shared store cannot be reached.
    Open,
    /// Each node counts by itself.
    Alone,
    /// The limit has ten times its former rate, or more.
    Raised,
    /// The limit admits ten times its former burst, or more.
    Burst,
    /// The client is no longer blocked.
    Unblocked,
    /// Checks that cannot be decided are allowed.
    OnError,
    /// Requests may name their own tier.
    TierHint,
    /// Envoy's descriptors match fewer rules, or other rules.
    Descriptors,
}

impl LooseningCode {
    /// Returns the name of the code in the JSON of the HTTP API and of the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Off => "off",
            Self::Narrowed => "narrowed",
            Self::ShadowsRule => "shadows",
            Self::Removed => "removed",
            Self::ShadowMode => "shadow",
            Self::Open => "open",
            Self::Alone => "alone",
            Self::Raised => "raised",
            Self::Burst => "burst",
            Self::Unblocked => "unblocked",
            Self::OnError => "on_error",
            Self::TierHint => "tier_hint",
            Self::Descriptors => "descriptors",
        }
    }
}

/// The code of something newly enforced: the reason why it denied nothing before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum NewlyEnforcedCode {
    /// The limit was in shadow mode.
    ShadowMode,
    /// The rule was disabled.
    Off,
    /// No limit applied.
    Unlimited,
}

impl NewlyEnforcedCode {
    /// Returns the name of the code in the JSON of the HTTP API and of the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ShadowMode => "shadow",
            Self::Off => "off",
            Self::Unlimited => "unlimited",
        }
    }
}
