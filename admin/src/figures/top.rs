//! Who is denied most and who comes most, as the sketches of the watcher know it, with how fast.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate::{HeavyHitters, Hitter, LimitIndex};

use super::{
    owners::Owner,
    ring::{MINUTE, Ring},
    span::Part,
};

/// Ticks between two looks.
const TICKS: u32 = 2;
/// A key was denied just now if it was so long ago at most.
const JUST_NOW_MS: i64 = 60_000;
/// Rates follow what is seen in about so many looks.
const SMOOTHING: f64 = 15.0;
/// Keys in an event.
const SHOWN: usize = 20;

/// What the heaviest are the heaviest in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Of {
    /// Requests that were denied.
    #[default]
    Denied,
    /// Requests, allowed or denied.
    All,
}

/// What the heaviest are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum TopBy {
    #[default]
    Key,
    Limit,
    Tier,
    Rule,
}

/// The heaviest keys, as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Top {
    ticks: u32,
    looked_at: i64,
    denied: Vec<HeavyKey>,
    all: Vec<HeavyKey>,
}

#[derive(Clone, Debug)]
pub(crate) struct HeavyKey {
    pub(crate) hitter: Hitter,
    pub(crate) per_minute: f64,
    /// When it was seen last, Unix milliseconds.
    grew_at: i64,
}

/// One of the heaviest.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Heaviest {
    /// Full name of the limit, tier or rule.
    pub(crate) id: String,
    /// Of a key: who is counted together, shown as the server's setting `keys` says; nobody: everyone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identities: Option<Vec<Identity>>,
    /// Requests: of a key estimated, halved every ten minutes; else those of the last quarter of an hour.
    pub(crate) count: u64,
    /// By at most so many is the count too high.
    pub(crate) error: u64,
    /// Of all such requests.
    pub(crate) share: f64,
    /// Requests a minute just now.
    pub(crate) per_minute: f64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ShownIdentity")]
pub(crate) struct Identity {
    pub(crate) kind: String,
    pub(crate) value: String,
}

/// The most denied keys, every two seconds.
#[derive(Serialize)]
pub(super) struct TopEvent {
    t: i64,
    items: Vec<Heaviest>,
}

impl Top {
    /// Looks again, if it is time.
    pub(super) fn follow(&mut self, hitters: &HeavyHitters, t: i64) -> bool {
        self.ticks += 1;
        if !self.ticks.is_multiple_of(TICKS) {
            return false;
        }
        self.looked_at = t;
        self.denied = follow(&self.denied, hitters.denied(), t);
        self.all = follow(&self.all, hitters.hot(), t);
        true
    }

    /// Keys that were denied within the last minute.
    pub(super) fn keys_limited(&self) -> usize {
        self.denied.iter().filter(|key| key.grew_at > self.looked_at - JUST_NOW_MS).count()
    }

    pub(super) fn event(&self, t: i64, show: impl Fn(&Hitter) -> (String, Vec<Identity>)) -> TopEvent {
        TopEvent { t, items: self.heaviest(Of::Denied, SHOWN, show) }
    }

    /// At most so many keys, the heaviest first.
    pub(super) fn heaviest(
        &self,
        of: Of,
        count: usize,
        show: impl Fn(&Hitter) -> (String, Vec<Identity>),
    ) -> Vec<Heaviest> {
        let keys = match of {
            Of::Denied => &self.denied,
            Of::All => &self.all,
        };
        // Each decision is in exactly one count.
        let all: u64 = keys.iter().map(|key| key.hitter.count).sum();
        let heaviest = keys.iter().take(count).map(|HeavyKey { hitter, per_minute, .. }| {
            let (id, identities) = show(hitter);
            Heaviest {
                id,
                identities: Some(identities),
                count: hitter.count,
                error: hitter.error,
                share: hitter.count as f64 / all as f64,
                per_minute: *per_minute,
            }
        });
        heaviest.collect()
    }
}

/// The heaviest of the last quarter of an hour by exact counts, no more than so many.
pub(super) fn of_seconds<'n>(
    ring: &Ring,
    by: TopBy,
    of: Of,
    count: usize,
    name: impl Fn(LimitIndex) -> &'n str,
) -> Vec<Heaviest> {
    let newest = ring.within(0..i64::MAX).last().map_or(0, |second| second.at);
    // In the quarter of an hour, and in its last minute.
    let mut sums = HashMap::<LimitIndex, [Part; 2]>::new();
    for second in ring.within(0..i64::MAX) {
        for (limit, part) in second.parts() {
            let [all, last] = sums.entry(limit).or_default();
            all.add(part);
            if second.at > newest - MINUTE {
                last.add(part);
            }
        }
    }
    let grouped = |which: usize| -> BTreeMap<&str, Part> {
        let parts = sums.iter().map(|(&limit, parts)| (name(limit), parts[which]));
        match by {
            TopBy::Tier => Owner::Tier.sum(parts),
            TopBy::Rule => Owner::Rule.sum(parts),
            TopBy::Limit | TopBy::Key => parts.collect(),
        }
    };
    let requests = |part: Part| match of {
        Of::Denied => part.denied,
        Of::All => part.requests(),
    };
    let (all, last) = (grouped(0), grouped(1));
    let total: u64 = all.values().map(|&part| requests(part)).sum();
    let mut heaviest: Vec<_> = all.into_iter().map(|(name, part)| (requests(part), name)).collect();
    heaviest.retain(|(count, _)| *count > 0);
    heaviest.sort_by_key(|&(count, name)| (Reverse(count), name));
    let heaviest = heaviest.into_iter().take(count).map(|(count, id)| Heaviest {
        id: id.to_owned(),
        identities: None,
        count,
        error: 0,
        share: count as f64 / total as f64,
        per_minute: last.get(id).map_or(0, |&part| requests(part)) as f64,
    });
    heaviest.collect()
}

fn follow(before: &[HeavyKey], now: Vec<Hitter>, t: i64) -> Vec<HeavyKey> {
    type Key<'a> = (LimitIndex, &'a [(String, Vec<u8>)]);
    let before: HashMap<Key<'_>, &HeavyKey> =
        before.iter().map(|key| ((key.hitter.limit, key.hitter.identities.as_slice()), key)).collect();
    let followed = now.into_iter().map(|hitter| {
        let known = before.get(&(hitter.limit, hitter.identities.as_slice()));
        // A newcomer took over somebody else's count, which is its error. A count that was halved has not grown.
        let had = known.map_or(hitter.error, |known| known.hitter.count);
        let grown = hitter.count.saturating_sub(had);
        let was = known.map_or(0.0, |known| known.per_minute);
        let is_now = grown as f64 * 60.0 / f64::from(TICKS);
        HeavyKey {
            per_minute: was + (is_now - was) / SMOOTHING,
            grew_at: if grown > 0 { t } else { known.map_or(0, |known| known.grew_at) },
            hitter,
        }
    });
    followed.collect()
}
