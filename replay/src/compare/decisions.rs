//! Single decisions, to be looked at: the first of those in which the policies differ, of those that both denied, and of
//! those that both allowed.

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use tidegate::{ENDPOINT_BYTES_MAX as ENDPOINT_MAX, Identity, Request, RequestParts, Retry, time::Nanos};

use super::{Names, SIDES, side::Said};
use crate::Utc;

/// The most decisions that are kept: in which the policies differ, that both denied, that both allowed.
pub const DECISIONS_MAX: [usize; 3] = [50_000, 25_000, 25_000];

/// The longest path that is kept whole, in bytes.
const ENDPOINT_BYTES_MAX: usize = 256;

/// Which decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// All.
    #[default]
    All,
    /// Denied by one of the policies, or by both.
    Denied,
    /// In which the policies differ.
    Changed,
    /// Denied by B, allowed by A.
    NewlyDenied,
    /// Denied by A, allowed by B.
    NewlyAllowed,
}

impl Which {
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

/// One decision of both policies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionRow {
    /// The request's number, from 1.
    pub number: u64,
    /// When it came.
    pub at: Utc,
    /// Who came, as `KIND:VALUE`.
    pub identities: Vec<String>,
    /// The method.
    pub method: Option<String>,
    /// The path.
    pub endpoint: Option<String>,
    /// The cost.
    pub cost: u64,
    /// What A said; `None`: there is no such policy.
    pub a: Option<DecidedBy>,
    /// What B said.
    pub b: Option<DecidedBy>,
}

/// What a policy said, in the words of the check's answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecidedBy {
    /// May it go on?
    pub allowed: bool,
    /// Full name of the limit that decided; `None`: no limit applied.
    pub limit_id: Option<String>,
    /// The most that the limit admits at once.
    pub limit: Option<u64>,
    /// What of that was used before, as a look at it tells.
    pub used_before: Option<u64>,
    /// What of that is used now: as before, if it was denied.
    pub used: Option<u64>,
    /// What is left.
    pub remaining: Option<u64>,
    /// When it may come again: 0 when allowed, `None`: never.
    pub retry_after_ms: Option<u64>,
    /// Until all of the quota is back.
    pub reset_after_ms: Option<u64>,
    /// How long it should wait before it goes on.
    pub delay_ms: u64,
}

/// A decision as it is kept: names by their places.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct KeptDecision {
    pub(crate) number: u64,
    pub(crate) at: Nanos,
    pub(crate) who: Box<[u32]>,
    pub(crate) method: Option<u32>,
    pub(crate) endpoint: Option<u32>,
    pub(crate) cost: u64,
    pub(crate) sides: [Verdict; SIDES],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) is_allowed: bool,
    /// Place among the limits of its policy.
    pub(crate) limit: Option<u32>,
    /// Absent from runs of earlier versions, as what was used before.
    pub(crate) most: Option<u64>,
    pub(crate) used_before: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) retry_ms: Option<u64>,
    pub(crate) reset_ms: Option<u64>,
    pub(crate) delay_ms: u64,
}

impl From<Said> for Verdict {
    fn from(said: Said) -> Self {
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

/// As the answer to a check says it: 0 now, `None` never.
pub(crate) fn retry_ms(retry: Retry) -> Option<u64> {
    match retry {
        Retry::Now => Some(0),
        Retry::After(wait) => Some(ms(wait.as_nanos() as u64)),
        Retry::Never => None,
    }
}

/// Rounded up: who comes back after it is not too early.
pub(crate) fn ms(ns: u64) -> u64 {
    ns.div_ceil(1_000_000)
}

#[derive(Debug, Default)]
pub(crate) struct Decisions {
    /// Changed, both denied, both allowed.
    kept: [Vec<KeptDecision>; 3],
    pub(crate) counts: [u64; 3],
    methods: Names,
    endpoints: Names,
}

/// Decisions in order of time, and their names.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct KeptDecisions {
    pub(crate) all: Vec<KeptDecision>,
    pub(crate) methods: Vec<Box<str>>,
    pub(crate) endpoints: Vec<Box<str>>,
}

impl Decisions {
    pub(crate) fn keep(
        &mut self,
        number: u64,
        at: Nanos,
        parts: &RequestParts<'_>,
        who: Vec<u32>,
        said: [Said; SIDES],
    ) {
        let sort = match said.map(|said| said.is_allowed) {
            [true, true] => 2,
            [false, false] => 1,
            _ => 0,
        };
        self.counts[sort] += 1;
        if self.kept[sort].len() < DECISIONS_MAX[sort] {
            self.kept[sort].push(KeptDecision {
                number,
                at,
                who: who.into(),
                method: parts.method.map(|method| self.methods.place(cut(method))),
                endpoint: parts.endpoint.map(|endpoint| {
                    let path = endpoint.split(['?', '#']).next().unwrap_or_default();
                    self.endpoints.place(cut(path))
                }),
                cost: parts.cost,
                sides: said.map(Verdict::from),
            });
        }
    }

    /// Is there room for one that a policy allows?
    pub(crate) fn has_room(&self) -> bool {
        [0, 2].iter().any(|sort| self.kept[*sort].len() < DECISIONS_MAX[*sort])
    }

    /// How many are kept of each sort.
    pub(crate) fn kept(&self) -> [u64; 3] {
        self.kept.each_ref().map(|kept| kept.len() as u64)
    }

    pub(crate) fn into_kept(self) -> KeptDecisions {
        let mut all = self.kept.concat();
        all.sort_by_key(|kept| kept.number);
        KeptDecisions { all, methods: self.methods.into_names(), endpoints: self.endpoints.into_names() }
    }
}

/// Not longer than is kept.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(ENDPOINT_BYTES_MAX)]
}

/// The path of a request without its query and without whom it names.
pub(crate) fn without_whom(request: &Request<'_>, endpoint: &str) -> String {
    let path = endpoint.split(['?', '#']).next().unwrap_or_default();
    let mut hidden = without(request.parts().identities, path);
    hidden.truncate(hidden.floor_char_boundary(ENDPOINT_MAX));
    hidden
}

/// A path with `{KIND}` instead of whom it names, as `/users/{user}`: a whole part of it, or in a part if the name is not so
/// short that anything may hold it.
fn without(identities: &[Identity<'_>], path: &str) -> String {
    const SHORT: usize = 4;
    let mut hidden = path.to_owned();
    for identity in identities.iter().filter(|identity| identity.value().len() >= SHORT) {
        // It may have slashes itself.
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
    fn paths_are_kept_without_whom_they_name() {
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
