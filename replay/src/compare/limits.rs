//! Counts of each limit under both policies, and whether a sample is enough for them.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use serde::{Deserialize, Serialize};

use super::{
    SIDES,
    clients::ComparedClients,
    side::{LimitCounts, PolicySide},
};
use crate::{
    client_limit::{ClientLimitName, client_limit_name},
    report::is_zero,
};

/// Most limits of single clients that the summary lists.
pub const CLIENT_LIMITS_MAX: usize = 100;

/// Counts of one limit under both policies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LimitRow"))]
pub struct LimitComparison {
    /// Full name of the limit; in that of a client's override, the client is formatted for display.
    pub limit_id: String,
    /// Counts under A; `None` if A does not have the limit.
    pub a: Option<LimitResult>,
    /// Counts under B.
    pub b: Option<LimitResult>,
}

/// Counts of one limit under one policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LimitFigures"))]
pub struct LimitResult {
    /// Requests that it checked.
    pub checked: u64,
    /// Requests that it was the first to deny.
    pub denied: u64,
    /// Requests that it would have denied if it were not in shadow mode.
    pub shadow_denied: u64,
    /// Requests that are not counted here because the identities that the limit counts are not in the sample.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_sampled: u64,
    /// False if the traffic is a sample without data about this limit.
    pub sampled: bool,
    /// The reason, if `sampled` is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl LimitResult {
    fn new(seen: &LimitCounts, is_sample: bool) -> Self {
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

/// Returns the names of the limits of both policies for display. The client in the name of an override is taken from `keys`
/// if the traffic has it, or else formatted by `show`.
pub(super) fn names(
    sides: &[PolicySide; SIDES],
    clients: &ComparedClients,
    keys: &[String],
    show: impl Fn(&str, &str, usize) -> String,
) -> [Option<Vec<String>>; SIDES] {
    let mut absent: HashMap<&str, usize> = HashMap::new();
    sides.each_ref().map(|side| {
        side.is_some().then(|| {
            let shown = side.limits.iter().map(|limit| {
                let Some(ClientLimitName { domain, client, limit }) = client_limit_name(&limit.name) else {
                    return limit.name.clone();
                };
                let key = clients.find(client).and_then(|place| keys.get(place).cloned()).unwrap_or_else(|| {
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

/// Returns the limits of A, then those that only B has, then those of single clients that denied most; and how many of the
/// last ones are missing.
pub(super) fn rows(
    sides: &[PolicySide; SIDES],
    names: &[Option<Vec<String>>; SIDES],
    is_sample: bool,
) -> (Vec<LimitComparison>, u64) {
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
            let [a, b] = seen.map(|seen| seen.map(|seen| LimitResult::new(seen, is_sample)));
            let row = LimitComparison { limit_id: name.clone(), a, b };
            let sum = |count: fn(&LimitCounts) -> u64| seen.iter().flatten().map(|seen| count(seen)).sum::<u64>();
            if client_limit_name(&limit.name).is_none() {
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
