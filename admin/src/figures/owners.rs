//! Figures of tiers and rules, from those of their limits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate::LimitIndex;

use super::span::Part;

/// What has limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Owner {
    Tier,
    Rule,
}

impl Owner {
    /// Full name of the tier or rule that has this limit, if it is one.
    pub(crate) fn of(self, limit_id: &str) -> Option<&str> {
        let (owner, _) = limit_id.rsplit_once('/')?;
        let (_, id) = owner.split_once('/')?;
        let kind = match self {
            Self::Tier => "tier:",
            Self::Rule => "rule:",
        };
        id.starts_with(kind).then_some(owner)
    }

    /// Its limits' figures, put together.
    pub(crate) fn sum<'n>(self, limits: impl Iterator<Item = (&'n str, Part)>) -> BTreeMap<&'n str, Part> {
        let mut sums = BTreeMap::<_, Part>::new();
        for (name, part) in limits {
            if let Some(owner) = self.of(name) {
                join(sums.entry(owner).or_default(), part);
            }
        }
        sums
    }
}

/// A request that is allowed is counted by every limit of its tier or rule, as allowed or as what a shadow would have
/// refused: any of them tells how many there were. One that is denied is counted by the limit that refused it alone. Where
/// several shadows would have refused a request, each says so.
fn join(sum: &mut Part, limit: Part) {
    sum.allowed = sum.allowed.max(limit.allowed.saturating_add(limit.shadow_denied));
    sum.denied = sum.denied.saturating_add(limit.denied);
    sum.shadow_denied = sum.shadow_denied.saturating_add(limit.shadow_denied);
}

/// Figures that are taken for limits by their index.
pub(crate) fn named<'n>(
    parts: impl Iterator<Item = (LimitIndex, Part)>,
    name: impl Fn(LimitIndex) -> &'n str,
) -> impl Iterator<Item = (&'n str, Part)> {
    parts.map(move |(limit, part)| (name(limit), part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_the_requests_of_its_limits_once() {
        let part = |allowed, denied, shadow_denied| Part { allowed, denied, shadow_denied };
        let limits = [
            ("default/tier:free/minute", part(90, 10, 0)),
            ("default/tier:free/day", part(90, 3, 0)),
            ("default/tier:free/try", part(70, 0, 20)),
            ("default/rule:search/ip", part(5, 1, 0)),
            ("other/tier:free/minute", part(1, 0, 0)),
        ];
        let tiers = Owner::Tier.sum(limits.into_iter());
        assert_eq!(tiers["default/tier:free"], part(90, 13, 20));
        assert_eq!((tiers.len(), Owner::Rule.sum(limits.into_iter()).len()), (2, 1));
        assert_eq!(Owner::Tier.of("default/client:user:a/b/minute"), None);
        assert_eq!(Owner::Tier.of("minute"), None);
    }
}
