//! What a change loosens, and what it lets start to refuse, as they are sent.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use tidegate::{Finding, LooseningCode, NewlyEnforcedCode, policy::Policy};

use crate::domain::{objects::ObjectKey, overrides, published::Published};

/// What a change does to those who are limited.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Effects {
    /// Where it lets much more through: ten times as much, or without a limit that held.
    loosens: Vec<Loosened>,
    /// What was there and denied nothing, and would deny.
    starts_to_refuse: Vec<StartsToRefuse>,
}

/// Where a change lets much more through than before: whoever publishes it is to be asked whether that is meant.
#[derive(Debug, Serialize, JsonSchema)]
struct Loosened {
    code: &'static str,
    domain: String,
    kind: &'static str,
    id: String,
    limit: Option<String>,
    /// How many clients it is so for, of which `id` is the first; 1 for whatever is no client.
    objects: usize,
    message: String,
}

/// What denied nothing until now.
#[derive(Debug, Serialize, JsonSchema)]
struct StartsToRefuse {
    code: &'static str,
    domain: String,
    kind: &'static str,
    id: String,
    limit: Option<String>,
    /// How many clients it is so for, of which `id` is the first; 1 for whatever is no client.
    objects: usize,
    message: String,
    /// Of a tier or rule: since when it was so at least.
    since: Option<Since>,
}

/// The version in which an object changed last: it was as it is since then, and perhaps before.
#[derive(Debug, Serialize, JsonSchema)]
struct Since {
    version: u64,
    #[schemars(extend("format" = "date-time"))]
    at: String,
}

impl Effects {
    /// Overrides that have ended hold no longer, whether the document has them or not.
    pub(crate) fn between(present: &Published, after: &Policy) -> Self {
        let now = Timestamp::now();
        let [before, after] = [&present.policy, after].map(|policy| {
            let mut policy = policy.clone();
            overrides::end(&mut policy, now);
            policy
        });
        let loosened = |loosening: Finding<LooseningCode>| {
            let Finding { code, domain, kind, id, limit, objects, message, .. } = loosening;
            Loosened { code: code.name(), domain, kind, id, limit, objects, message }
        };
        Self {
            loosens: before.loosened_by(&after).into_iter().map(loosened).collect(),
            starts_to_refuse: before
                .newly_enforced_by(&after)
                .into_iter()
                .map(|one| StartsToRefuse::of(one, present, now))
                .collect(),
        }
    }
}

impl StartsToRefuse {
    fn of(refusing: Finding<NewlyEnforcedCode>, present: &Published, now: Timestamp) -> Self {
        let Finding { code, domain, kind, id, limit, objects, message, .. } = refusing;
        // What holds for a client, or for a default, may have changed with the tier.
        let known = matches!(kind, "tier" | "rule").then(|| kind.parse().ok()).flatten();
        let key = known.map(|kind| ObjectKey { kind, domain: domain.clone(), id: id.clone() });
        let revised = key.and_then(|key| present.revisions.get(&key));
        let since = revised.map(|revised| Since { version: revised.version, at: revised.at.clone() });
        let message = match &since {
            Some(since) => format!("{message}{}", since.in_words(now)),
            None => message,
        };
        Self { code: code.name(), domain, kind, id, limit, objects, message, since }
    }
}

impl Since {
    /// ` since v12 at least, for 6 days`.
    fn in_words(&self, now: Timestamp) -> String {
        let for_so_long = self.at.parse().ok().and_then(|at| in_words(now.duration_since(at)));
        let for_so_long = for_so_long.map(|words| format!(", for {words}")).unwrap_or_default();
        format!(" since v{} at least{for_so_long}", self.version)
    }
}

/// In its largest unit, cut off; `None`: less than a minute.
fn in_words(length: SignedDuration) -> Option<String> {
    let minutes = length.as_mins();
    let (count, unit) = match minutes {
        ..1 => return None,
        1..60 => (minutes, "minute"),
        60..1_440 => (minutes / 60, "hour"),
        _ => (minutes / 1_440, "day"),
    };
    Some(format!("{count} {unit}{}", if count == 1 { "" } else { "s" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_when_is_told_in_the_largest_unit() {
        let now: Timestamp = "2026-01-10T12:00:00Z".parse().expect("an instant");
        let cases = [
            ("2026-01-10T11:59:30Z", " since v3 at least"),
            ("2026-01-10T12:00:30Z", " since v3 at least"),
            ("2026-01-10T11:58:01Z", " since v3 at least, for 1 minute"),
            ("2026-01-10T11:01:00Z", " since v3 at least, for 59 minutes"),
            ("2026-01-10T11:00:00Z", " since v3 at least, for 1 hour"),
            ("2026-01-09T12:00:00Z", " since v3 at least, for 1 day"),
            ("2026-01-03T13:00:00Z", " since v3 at least, for 6 days"),
        ];
        for (at, expected) in cases {
            assert_eq!(Since { version: 3, at: at.to_owned() }.in_words(now), expected, "{at}");
        }
    }
}
