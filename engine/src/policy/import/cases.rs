//! Test cases of an imported policy: descriptors with the decisions of the other limiter.

use serde::Serialize;

use crate::algorithm::NUMBER_MAX;

/// A request of one descriptor, with the decision that the other limiter makes. `tidegate policy test` reads a list of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Case {
    /// The name: the file, the line, and what the case tests.
    pub name: String,
    /// The domain of the policy.
    pub domain: String,
    /// The descriptor.
    pub descriptors: [CaseDescriptor; 1],
    /// The hits of the request.
    pub cost: u64,
    /// The verdict.
    pub expect: CaseVerdict,
    /// `none` where no limit applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<&'static str>,
}

/// The descriptor of a case.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct CaseDescriptor {
    /// The entries.
    pub entries: Vec<CaseEntry>,
}

/// An entry of a descriptor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct CaseEntry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
}

impl CaseEntry {
    pub(super) fn new(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: value.to_owned() }
    }
}

/// The verdict of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CaseVerdict {
    /// The request is allowed.
    Allowed,
    /// The request is over a limit.
    Denied,
}

/// Makes the cases of one descriptor.
pub(super) struct CaseMaker<'c> {
    /// The place in the file.
    pub(super) place: &'c str,
    pub(super) domain: &'c str,
    pub(super) entries: &'c [CaseEntry],
}

impl CaseMaker<'_> {
    /// Returns a case; `what` says what it tests.
    pub(super) fn case(&self, what: &str, cost: u64, expect: CaseVerdict) -> Case {
        Case {
            name: format!("{}: {what}", self.place),
            domain: self.domain.to_owned(),
            descriptors: [CaseDescriptor { entries: self.entries.to_vec() }],
            cost,
            expect,
            limit: None,
        }
    }

    /// Returns the cases of a limit that has `left` tokens: a request for all of them, and one hit more, which is denied unless
    /// `is_shadow`. For a limit above the highest cost, there is only a request of that cost.
    pub(super) fn of_limit(&self, left: u64, is_shadow: bool) -> impl Iterator<Item = Case> {
        let cost = left.min(NUMBER_MAX);
        let all = (cost > 0).then(|| self.case(&format!("{cost} at once"), cost, CaseVerdict::Allowed));
        let verdict = if is_shadow { CaseVerdict::Allowed } else { CaseVerdict::Denied };
        let more = (cost == left).then(|| self.case("one more", 1, verdict));
        all.into_iter().chain(more)
    }

    pub(super) fn without_limit(&self) -> Case {
        Case { limit: Some("none"), ..self.case("no limit", 1, CaseVerdict::Allowed) }
    }
}
