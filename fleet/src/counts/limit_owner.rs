//! The owner of a limit: the tier or the rule that has it. Decisions are counted for owners as well as for limits.

use serde::{Deserialize, Serialize};

/// The kind of a limit's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Owner"))]
#[serde(rename_all = "lowercase")]
pub enum OwnerKind {
    /// A tier.
    Tier,
    /// A rule.
    Rule,
}

impl OwnerKind {
    /// Returns whether this is the full name of an owner of this kind.
    #[must_use]
    pub fn is(self, full_name: &str) -> bool {
        let kind = match self {
            Self::Tier => "tier:",
            Self::Rule => "rule:",
        };
        full_name.split_once('/').is_some_and(|(_, id)| id.starts_with(kind))
    }
}

/// Returns the full name of the tier or rule that has this limit; `None` for the limit of a client.
#[must_use]
pub fn owner_of(limit_id: &str) -> Option<&str> {
    let (owner, _) = limit_id.rsplit_once('/')?;
    (OwnerKind::Tier.is(owner) || OwnerKind::Rule.is(owner)).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_tiers_and_rules_have_owners() {
        assert_eq!(owner_of("default/tier:free/minute"), Some("default/tier:free"));
        assert_eq!(owner_of("default/rule:search/ip"), Some("default/rule:search"));
        for nobodys in ["default/client:user:a/b/minute", "default/client:user:tier:a/minute", "minute", ""] {
            assert_eq!(owner_of(nobodys), None, "{nobodys}");
        }
        assert!(OwnerKind::Tier.is("default/tier:free") && !OwnerKind::Rule.is("default/tier:free"));
    }
}
