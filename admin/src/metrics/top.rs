//! Who is denied most and who comes most, as the sketches of the watcher know it, with how fast.

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate::LimitIndex;
use tidegate_fleet::{OwnerKind, SAMPLED_ONE_IN, owner_of};

use crate::{
    domain::metric_types::{LimitTotals, MINUTE},
    metrics::ring::Second,
};

/// Ticks between two looks.
const TICKS: u32 = 2;
/// A key was denied just now if it was so long ago at most.
const JUST_NOW_MS: i64 = 60_000;
/// Looks in a minute.
const LOOKS: usize = 60 / TICKS as usize;
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

/// A key that is heavy, on one node or on all together.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    /// Full name.
    pub(crate) limit: String,
    /// Kinds and values of those who are counted together.
    pub(crate) identities: Vec<(String, String)>,
    pub(crate) count: u64,
    pub(crate) error: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct HeavyKey {
    pub(crate) hit: Hit,
    /// By how much its count grew between the looks of the last minute, oldest first.
    grown: VecDeque<u64>,
    /// When it was seen last, Unix milliseconds.
    grew_at: i64,
}

/// How somebody is denied, estimated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Denied {
    /// Requests within the last minute.
    pub(crate) per_minute: u64,
    /// When it was seen last, Unix milliseconds; 0: not since he came up.
    pub(crate) last_at_ms: i64,
    /// Was that within the last minute?
    pub(crate) is_now: bool,
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
    /// Requests within the last minute: of a key estimated.
    pub(crate) per_minute: u64,
    /// Decisions that were looked at within the last minute, which `per_minute` is worked out from.
    pub(crate) per_minute_seen: u64,
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
    /// Is it time to look again?
    pub(super) fn is_due(&mut self) -> bool {
        self.ticks += 1;
        self.ticks.is_multiple_of(TICKS)
    }

    /// Looks again, at those of all nodes.
    pub(super) fn follow(&mut self, denied: Vec<Hit>, all: Vec<Hit>, t: i64) {
        self.looked_at = t;
        self.denied = follow(&self.denied, together(denied), t);
        self.all = follow(&self.all, together(all), t);
    }

    /// Keys that were denied within the last minute.
    pub(super) fn keys_limited(&self) -> usize {
        self.denied.iter().filter(|key| key.grew_at > self.looked_at - JUST_NOW_MS).count()
    }

    /// Of everybody in this domain who is among the keys that are denied most, how he is denied. Who is counted together with
    /// others is denied with them.
    pub(super) fn denied_in(&self, domain: &str) -> HashMap<(String, String), Denied> {
        let mut denied = HashMap::<_, Denied>::new();
        let is_in = |limit: &str| limit.split_once('/').is_some_and(|(name, _)| name == domain);
        for HeavyKey { hit, grown, grew_at } in self.denied.iter().filter(|key| is_in(&key.hit.limit)) {
            for who in &hit.identities {
                let of = denied.entry(who.clone()).or_default();
                of.per_minute += grown.iter().sum::<u64>();
                of.last_at_ms = of.last_at_ms.max(*grew_at);
                of.is_now = of.last_at_ms > self.looked_at - JUST_NOW_MS;
            }
        }
        denied
    }

    pub(super) fn event(&self, t: i64, show: impl Fn(&Hit) -> (String, Vec<Identity>)) -> TopEvent {
        TopEvent { t, items: self.heaviest(Of::Denied, SHOWN, show) }
    }

    /// At most so many keys, the heaviest first.
    pub(super) fn heaviest(
        &self,
        of: Of,
        count: usize,
        show: impl Fn(&Hit) -> (String, Vec<Identity>),
    ) -> Vec<Heaviest> {
        let keys = match of {
            Of::Denied => &self.denied,
            Of::All => &self.all,
        };
        // Each decision is in exactly one count.
        let all: u64 = keys.iter().map(|key| key.hit.count).sum();
        let heaviest = keys.iter().take(count).map(|HeavyKey { hit, grown, .. }| {
            let (id, identities) = show(hit);
            let per_minute = grown.iter().sum::<u64>();
            Heaviest {
                id,
                identities: Some(identities),
                count: hit.count,
                error: hit.error,
                share: hit.count as f64 / all as f64,
                per_minute,
                per_minute_seen: per_minute.div_ceil(SAMPLED_ONE_IN.get().into()),
            }
        });
        heaviest.collect()
    }
}

/// The heaviest of the last quarter of an hour by exact counts, no more than so many.
pub(super) fn of_seconds<'n>(
    seconds: &[Arc<Second>],
    by: TopBy,
    of: Of,
    count: usize,
    name: impl Fn(LimitIndex) -> &'n str,
) -> Vec<Heaviest> {
    let owner = match by {
        TopBy::Tier => Some(OwnerKind::Tier),
        TopBy::Rule => Some(OwnerKind::Rule),
        TopBy::Limit | TopBy::Key => None,
    };
    let requests = |part: LimitTotals| match (of, owner) {
        (Of::Denied, _) => part.denied,
        (Of::All, None) => part.requests(),
        (Of::All, Some(_)) => part.allowed.saturating_add(part.denied),
    };
    let newest = seconds.iter().map(|second| second.at).max().unwrap_or(0);
    // In the quarter of an hour, and in its last minute.
    let mut sums = HashMap::<LimitIndex, [u64; 2]>::new();
    for second in seconds {
        let busy = if owner.is_some() { &second.owners } else { &second.limits };
        for (limit, part) in busy.parts() {
            let [all, last] = sums.entry(limit).or_default();
            *all += requests(part);
            if second.at > newest - MINUTE {
                *last += requests(part);
            }
        }
    }
    let mut heaviest: Vec<_> = sums
        .into_iter()
        .filter_map(|(limit, sums)| {
            let name = match owner {
                None => name(limit),
                Some(owner) => owner_of(name(limit)).filter(|name| owner.is(name))?,
            };
            Some((name, sums)).filter(|(_, [all, _])| *all > 0)
        })
        .collect();
    let total: u64 = heaviest.iter().map(|(_, [all, _])| all).sum();
    heaviest.sort_by_key(|&(name, [all, _])| (Reverse(all), name));
    let heaviest = heaviest.into_iter().take(count).map(|(id, [all, last])| Heaviest {
        id: id.to_owned(),
        identities: None,
        count: all,
        error: 0,
        share: all as f64 / total as f64,
        per_minute: last,
        per_minute_seen: last,
    });
    heaviest.collect()
}

type Key<'h> = (&'h str, &'h [(String, String)]);

impl Hit {
    fn key(&self) -> Key<'_> {
        (&self.limit, &self.identities)
    }
}

/// Adds up what several nodes have of one key; the heaviest first.
fn together(hits: Vec<Hit>) -> Vec<Hit> {
    let mut sums = HashMap::<(String, Vec<(String, String)>), (u64, u64)>::new();
    for Hit { limit, identities, count, error } in hits {
        let sum = sums.entry((limit, identities)).or_default();
        *sum = (sum.0.saturating_add(count), sum.1.saturating_add(error));
    }
    let hit = |((limit, identities), (count, error))| Hit { limit, identities, count, error };
    let mut hits: Vec<Hit> = sums.into_iter().map(hit).collect();
    hits.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.key().cmp(&other.key())));
    hits
}

fn follow(before: &[HeavyKey], now: Vec<Hit>, t: i64) -> Vec<HeavyKey> {
    let before: HashMap<Key<'_>, &HeavyKey> = before.iter().map(|key| (key.hit.key(), key)).collect();
    let followed = now.into_iter().map(|hit| {
        let known = before.get(&hit.key());
        // A newcomer took over somebody else's count, which is its error. A count that was halved has not grown.
        let had = known.map_or(hit.error, |known| known.hit.count);
        let grown = hit.count.saturating_sub(had);
        let mut looks = known.map_or_else(VecDeque::new, |known| known.grown.clone());
        if looks.len() == LOOKS {
            looks.pop_front();
        }
        looks.push_back(grown);
        HeavyKey { grown: looks, grew_at: if grown > 0 { t } else { known.map_or(0, |known| known.grew_at) }, hit }
    });
    followed.collect()
}
