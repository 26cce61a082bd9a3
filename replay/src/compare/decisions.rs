//! Log of single decisions: the first ones in which the policies differ, that both denied, and that both allowed.

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use tidegate::{ENDPOINT_BYTES_MAX as ENDPOINT_MAX, Identity, Request, RequestParts, Retry, time::Nanos};

use super::{NameIndex, SIDES, side::SideDecision};
use crate::Utc;

/// Most decisions in the log: in which the policies differ, that both denied, that both allowed.
pub const DECISIONS_MAX: [usize; 3] = [50_000, 25_000, 25_000];

/// Longest path in the log, in bytes; longer ones are truncated.
const ENDPOINT_BYTES_MAX: usize = 256;

/// Filter for decisions or clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Which"))]
#[serde(rename_all = "snake_case")]
pub enum DecisionFilter {
    /// All decisions.
    #[default]
    All,
    /// Denied by one of the policies, or by both.
    Denied,
    /// The policies differ.
    Changed,
    /// Denied by B, allowed by A.
    NewlyDenied,
    /// Denied by A, allowed by B.
    NewlyAllowed,
}

impl DecisionFilter {
    pub(crate) fn has(self, is_allowed: [bool; SIDES]) -> bool {
        match self {
            Self::All => true,
            Self::Denied => is_allowed != [true, true],
            Self::Changed => is_allowed[0] != is_allowed[1],
            Self::NewlyDenied => is_allowed == [true, false],
            Self::NewlyAllowed => is_allowed == [false, true],
        }
    }
}

/// The decisions of both policies about a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionRow {
    /// The request's number, from 1.
    pub number: u64,
    /// Time of the request.
    pub at: Utc,
    /// The identities, as `KIND:VALUE`.
    pub identities: Vec<String>,
    /// The method.
    pub method: Option<String>,
    /// The path.
    pub endpoint: Option<String>,
    /// The cost.
    pub cost: u64,
    /// Decision of A; `None` if there is no such policy.
    pub a: Option<DecisionDetails>,
    /// Decision of B.
    pub b: Option<DecisionDetails>,
}

/// Decision of a policy, with the fields of the reply to a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "DecidedBy"))]
pub struct DecisionDetails {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Full name of the limit that decided; `None` if no limit applied.
    pub limit_id: Option<String>,
    /// The most that the limit allows at once.
    pub limit: Option<u64>,
    /// Used quota before the request, if it was inspected.
    pub used_before: Option<u64>,
    /// Used quota after the request; the same as before if it was denied.
    pub used: Option<u64>,
    /// Remaining quota.
    pub remaining: Option<u64>,
    /// Time until a retry can succeed: 0 if allowed, `None` if never.
    pub retry_after_ms: Option<u64>,
    /// Time until the whole quota is available.
    pub reset_after_ms: Option<u64>,
    /// Time for which the request should be delayed.
    pub delay_ms: u64,
}

/// A stored decision, with names as indices.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StoredDecision {
    pub(crate) number: u64,
    pub(crate) at: Nanos,
    pub(crate) who: Box<[u32]>,
    pub(crate) method: Option<u32>,
    pub(crate) endpoint: Option<u32>,
    pub(crate) cost: u64,
    pub(crate) sides: [StoredVerdict; SIDES],
}

/// The part of a stored decision that each policy has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StoredVerdict {
    pub(crate) is_allowed: bool,
    /// Index among the limits of the policy.
    pub(crate) limit: Option<u32>,
    /// The most that the limit allows at once. Runs of earlier versions lack it and `used_before`.
    pub(crate) most: Option<u64>,
    pub(crate) used_before: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) retry_ms: Option<u64>,
    pub(crate) reset_ms: Option<u64>,
    pub(crate) delay_ms: u64,
}

impl From<SideDecision> for StoredVerdict {
    fn from(said: SideDecision) -> Self {
        Self {
            is_allowed: said.is_allowed,
            limit: said.limit,
            most: said.most,
            used_before: said.used_before,
            remaining: said.remaining,
            retry_ms: retry_ms(said.retry),
            reset_ms: said.reset_ns.map(ms),
            delay_ms: ms(said.delay_ns),
        }
    }
}

/// Returns the retry time as the reply to a check reports it: 0 for now, `None` for never.
pub(crate) fn retry_ms(retry: Retry) -> Option<u64> {
    match retry {
        Retry::Now => Some(0),
        Retry::After(wait) => Some(ms(wait.as_nanos() as u64)),
        Retry::Never => None,
    }
}

/// Converts to milliseconds, rounded up so that a retry is not too early.
pub(crate) fn ms(ns: u64) -> u64 {
    ns.div_ceil(1_000_000)
}

/// Log of decisions in bounded memory.
#[derive(Debug, Default)]
pub(crate) struct DecisionLog {
    /// Decisions by sort: changed, both denied, both allowed.
    kept: [Vec<StoredDecision>; 3],
    pub(crate) counts: [u64; 3],
    methods: NameIndex,
    endpoints: NameIndex,
}

/// Stored decisions in order of time, and their names.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoredDecisions {
    pub(crate) all: Vec<StoredDecision>,
    pub(crate) methods: Vec<Box<str>>,
    pub(crate) endpoints: Vec<Box<str>>,
}

impl DecisionLog {
    pub(crate) fn keep(
        &mut self,
        number: u64,
        at: Nanos,
        parts: &RequestParts<'_>,
        who: Vec<u32>,
        said: [SideDecision; SIDES],
    ) {
        let sort = match said.map(|said| said.is_allowed) {
            [true, true] => 2,
            [false, false] => 1,
            _ => 0,
        };
        self.counts[sort] += 1;
        if self.kept[sort].len() < DECISIONS_MAX[sort] {
            self.kept[sort].push(StoredDecision {
                number,
                at,
                who: who.into(),
                method: parts.method.map(|method| self.methods.place(cut(method))),
                endpoint: parts.endpoint.map(|endpoint| {
                    let path = endpoint.split(['?', '#']).next().unwrap_or_default();
                    self.endpoints.place(cut(path))
                }),
                cost: parts.cost,
                sides: said.map(StoredVerdict::from),
            });
        }
    }

    /// Returns whether there is room for a decision that a policy allows.
    pub(crate) fn has_room(&self) -> bool {
        [0, 2].iter().any(|sort| self.kept[*sort].len() < DECISIONS_MAX[*sort])
    }

    /// Returns the number of stored decisions of each sort.
    pub(crate) fn kept(&self) -> [u64; 3] {
        self.kept.each_ref().map(|kept| kept.len() as u64)
    }

    pub(crate) fn into_kept(self) -> StoredDecisions {
        let mut all = self.kept.concat();
        all.sort_by_key(|kept| kept.number);
        StoredDecisions { all, methods: self.methods.names, endpoints: self.endpoints.names }
    }
}

/// Truncates a text to the longest length in the log.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(ENDPOINT_BYTES_MAX)]
}

/// Returns the path of a request without its query and its identities.
pub(crate) fn anonymized(request: &Request<'_>, endpoint: &str) -> String {
    let path = endpoint.split(['?', '#']).next().unwrap_or_default();
    let mut hidden = without(request.parts().identities, path);
    hidden.truncate(hidden.floor_char_boundary(ENDPOINT_MAX));
    hidden
}

/// Replaces identities in a path by `{KIND}`, as in `/users/{user}`: in whole segments, and within a segment if the value is
/// long enough to be no coincidence.
fn without(identities: &[Identity<'_>], path: &str) -> String {
    const SHORT: usize = 4;
    let mut hidden = path.to_owned();
    for identity in identities.iter().filter(|identity| identity.value().len() >= SHORT) {
        // The value may have slashes.
        hidden = hidden.replace(identity.value(), &format!("{{{}}}", identity.kind()));
    }
    let part = |part: &str| {
        let plain = percent_decode_str(part).decode_utf8_lossy();
        let is_named =
            |it: &&Identity<'_>| *plain == *it.value() || it.value().len() >= SHORT && plain.contains(it.value());
        identities.iter().find(is_named).map_or_else(|| part.to_owned(), |it| format!("{{{}}}", it.kind()))
    };
    hidden.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_kept_without_identities() {
        let who = [("user", "ada@example.com"), ("org", "a/b/c"), ("id", "7"), ("key", "sk_1")];
        let who = who.map(|(kind, value)| Identity::new(kind, value).expect("valid"));
        for (path, hidden) in [
            ("/users/ada@example.com/x", "/users/{user}/x"),
            ("/users/ada%40example.com", "/users/{user}"),
            ("/of/a/b/c", "/of/{org}"),
            ("/of/a%2Fb%2Fc.json", "/of/{org}"),
            ("/7/v7/17", "/{id}/v7/17"),
            ("/login;key=sk_1", "/login;key={key}"),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(without(&who, path), hidden);
        }
    }
}
