//! What each limit did under both policies, and what a sample says of it.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use serde::{Deserialize, Serialize};

use super::{
    SIDES,
    clients::People,
    side::{LimitSeen, Side},
};
use crate::client_limit::{OfClient, of_client};

/// Limits of single clients that the summary names.
pub const CLIENT_LIMITS_MAX: usize = 100;

/// What one limit did under both policies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitRow {
    /// Its full name; of a single client's own, with the client as it may be shown.
    pub limit_id: String,
    /// Under A; `None`: A does not have it.
    pub a: Option<LimitFigures>,
    /// Under B.
    pub b: Option<LimitFigures>,
}

/// What one limit did under one policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitFigures {
    /// Requests for which it was looked at.
    pub checked: u64,
    /// Requests that it was the first to refuse.
    pub denied: u64,
    /// Requests that it would have refused if it were not a shadow.
    pub shadow_denied: u64,
    /// Requests of a sample that are not counted here, because whom it counts is not in the sample.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_sampled: u64,
    /// False: the traffic is a sample that says nothing of this limit.
    pub sampled: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl LimitFigures {
    fn new(seen: &LimitSeen, is_sample: bool) -> Self {
        let is_judged = !is_sample || seen.checked > 0;
        let reason = (!is_judged).then(|| match seen.partial_kinds.as_deref() {
            None => "no request that was kept met it".to_owned(),
            Some("") => "it counts everyone together, and the traffic is a sample".to_owned(),
            Some(kinds) => format!("it counts {kinds}, and nobody whom it met is in the sample"),
        });
        Self {
            checked: seen.checked,
            denied: seen.denied,
            shadow_denied: seen.shadow_denied,
            not_sampled: seen.partial,
            sampled: is_judged,
            reason,
        }
    }
}

/// Names of the limits of both policies, as they may be shown: that of a client's own tells the client as `keys` do, who
/// are all that came, or else as `show` does.
pub(super) fn names(
    sides: &[Side; SIDES],
    people: &People,
    keys: &[String],
    show: impl Fn(&str, &str, usize) -> String,
) -> [Option<Vec<String>>; SIDES] {
    let mut absent: HashMap<&str, usize> = HashMap::new();
    sides.each_ref().map(|side| {
        side.is_some().then(|| {
            let shown = side.limits.iter().map(|limit| {
                let Some(OfClient { domain, client, limit }) = of_client(&limit.name) else {
                    return limit.name.clone();
                };
                let key = people.place(client).and_then(|place| keys.get(place).cloned()).unwrap_or_else(|| {
                    let next = keys.len() + absent.len();
                    let (kind, value) = client.split_once(':').unwrap_or(("", client));
                    show(kind, value, *absent.entry(client).or_insert(next))
                });
                format!("{domain}/client:{key}/{limit}")
            });
            shown.collect()
        })
    })
}

/// Limits of A, then those that only B has, then those of single clients that decided most; and how many of these are left
/// out.
pub(super) fn rows(
    sides: &[Side; SIDES],
    names: &[Option<Vec<String>>; SIDES],
    is_sample: bool,
) -> (Vec<LimitRow>, u64) {
    let by_name = sides.each_ref().map(|side| {
        let limits = side.limits.iter();
        limits.map(|limit| (limit.name.as_str(), limit)).collect::<HashMap<_, _>>()
    });
    let (mut rows, mut of_clients, mut told) = (Vec::new(), Vec::new(), HashSet::new());
    for (side, names) in sides.iter().zip(names) {
        for (limit, name) in side.limits.iter().zip(names.iter().flatten()) {
            if !told.insert(limit.name.as_str()) {
                continue;
            }
            let seen = by_name.each_ref().map(|limits| limits.get(limit.name.as_str()).copied());
            let [a, b] = seen.map(|seen| seen.map(|seen| LimitFigures::new(seen, is_sample)));
            let row = LimitRow { limit_id: name.clone(), a, b };
            let sum = |count: fn(&LimitSeen) -> u64| seen.iter().flatten().map(|seen| count(seen)).sum::<u64>();
            if of_client(&limit.name).is_none() {
                rows.push(row);
            } else if sum(|seen| seen.checked + seen.partial) > 0 {
                of_clients.push((Reverse((sum(|seen| seen.denied), sum(|seen| seen.checked))), row));
            }
        }
    }
    of_clients.sort_by_key(|(most, _)| *most);
    let left_out = of_clients.len().saturating_sub(CLIENT_LIMITS_MAX) as u64;
    rows.extend(of_clients.into_iter().take(CLIENT_LIMITS_MAX).map(|(_, row)| row));
    (rows, left_out)
}
