//! The policy in force, as the control plane knows it: version, document, and when each object changed last.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::Serialize;
use tidegate::{Problems, formats::Format, policy::Policy};

use crate::domain::{
    error::{Conflicting, Present, Problem},
    objects::{self, ObjectKey},
    version::Version,
};

/// A published policy.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) version: Version,
    /// As it is stored and hashed.
    pub(crate) document: Arc<str>,
    /// Its clients are in order.
    pub(crate) policy: Policy,
    pub(crate) revisions: Revisions,
}

/// When each object changed last. Shared with the versions before: there may be a hundred thousand.
pub(crate) type Revisions = BTreeMap<Arc<ObjectKey>, Arc<Revised>>;

/// When an object changed last, and by whom.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Revised {
    #[serde(rename = "revision")]
    pub(crate) version: u64,
    #[serde(rename = "changed_by")]
    pub(crate) by: String,
    #[serde(rename = "changed_at")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) at: String,
}

impl Published {
    /// Entity tag of an object that the policy has.
    pub(crate) fn etag(&self, key: &ObjectKey) -> String {
        key.etag(self.revisions.get(key).map_or(0, |revised| revised.version))
    }

    /// Entity tag of the whole.
    pub(crate) fn policy_etag(&self) -> String {
        Self::etag_of(self.version.version)
    }

    /// The same of another version.
    pub(crate) fn etag_of(version: u64) -> String {
        format!("\"policy:{version}\"")
    }

    /// Refuses what was meant for another version.
    pub(crate) fn is_still(&self, if_match: Option<&str>) -> Result<(), Problem> {
        match if_match {
            Some(tag) if tag != self.policy_etag() => Err(Problem::Conflict(vec![self.as_conflict()])),
            _ => Ok(()),
        }
    }

    /// The whole as it is now, for whoever knows another.
    pub(crate) fn as_conflict(&self) -> Conflicting {
        Conflicting {
            kind: "policy",
            present: Some(Present { etag: self.policy_etag(), value: None }),
            version: Some(self.version.version),
            changed_by: Some(self.version.author.clone()),
            changed_at: Some(self.version.published_at.clone()),
            ..Conflicting::default()
        }
    }
}

/// A document that was stored.
pub(crate) fn parse(document: &str) -> Result<Policy, Problems> {
    let mut policy = Policy::parse(document, Format::Json)?;
    objects::sort_clients(&mut policy);
    Ok(policy)
}

/// The document as it is stored and hashed.
pub(crate) fn document(policy: &Policy) -> Result<String, serde_json::Error> {
    serde_json::to_string(policy)
}

/// The names in which an object's key is stored.
pub(crate) fn columns(keys: &[ObjectKey]) -> Vec<(&str, &str, &str)> {
    keys.iter().map(|key| (key.domain.as_str(), key.kind.name(), key.id.as_str())).collect()
}

/// Those under which versions name what they changed.
pub(crate) fn names<'k>(keys: impl Iterator<Item = &'k ObjectKey>) -> Vec<String> {
    keys.map(ToString::to_string).collect()
}

/// What readers share.
pub(crate) type Shared = Arc<Published>;
