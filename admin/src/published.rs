//! The policy in force, as the control plane knows it: version, document, and when each object changed last.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use schemars::JsonSchema;
use serde::Serialize;
use tidegate::{Problems, Snapshot, formats::Format, policy::Policy};

use crate::{
    differences::{Changed, changed},
    objects::{self, ObjectKey},
    policy_file::{self, PolicyFile, PolicyFileOutcome},
    problem::{Conflicting, Present},
    start::StartError,
    store::{Audit, Carries, NewVersion, Revision, Store, Version, sha256},
};

/// A published policy.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) version: Version,
    /// Its clients are in order.
    pub(crate) policy: Policy,
    pub(crate) revisions: BTreeMap<ObjectKey, Revised>,
}

/// When an object changed last, and by whom.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Revised {
    #[serde(rename = "revision")]
    pub(crate) version: u64,
    #[serde(rename = "changed_by")]
    pub(crate) by: String,
    #[serde(rename = "changed_at")]
    pub(crate) at: String,
}

impl Published {
    /// Entity tag of an object that the policy has.
    pub(crate) fn etag(&self, key: &ObjectKey) -> String {
        key.etag(self.revisions.get(key).map_or(0, |revised| revised.version))
    }

    /// Entity tag of the whole.
    pub(crate) fn policy_etag(&self) -> String {
        format!("\"policy:{}\"", self.version.version)
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

    /// Writes the policy of a file as the next version, if that is to be done.
    pub(crate) async fn follow(&self, store: &Store, file: &PolicyFile) -> sqlx::Result<PolicyFileOutcome> {
        let document = document(&file.policy).map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
        let last = store.last_from_file(&file.name).await?;
        let Version { version, sha256: live, .. } = &self.version;
        let outcome = policy_file::decide(file, &sha256(&document), last.as_ref(), *version, live);
        if outcome == PolicyFileOutcome::Published {
            write_file(store, self, file).await?;
        }
        Ok(outcome)
    }

    /// The newest version of the database, compiled.
    pub(crate) async fn load(store: &Store, database: &Path) -> Result<(Self, Snapshot), StartError> {
        let damaged = |why: String| StartError::Damaged { path: database.to_owned(), why };
        let failed = |error: sqlx::Error| StartError::Database { path: database.to_owned(), why: error.to_string() };
        let newest = store.newest_version().await.map_err(failed)?;
        let (version, document) = newest.ok_or_else(|| damaged("it has no policy".to_owned()))?;
        if sha256(&document) != version.sha256 {
            return Err(damaged(format!(
                "the document of policy version {} is not what was published",
                version.version
            )));
        }
        let refused = |problems| StartError::Policy { version: version.version, problems };
        let policy = parse(&document).map_err(refused)?;
        let snapshot = Snapshot::compile(&policy).map_err(refused)?;
        let revisions = store.revisions().await.map_err(failed)?.into_iter().filter_map(revised).collect();
        Ok((Self { version, policy, revisions }, snapshot))
    }
}

fn revised(row: Revision) -> Option<(ObjectKey, Revised)> {
    // A kind that this build does not know has no place here; its revision stays in the database.
    let kind = row.kind.parse().ok()?;
    let key = ObjectKey { kind, domain: row.domain, id: row.id };
    Some((key, Revised { version: row.version, by: row.author, at: row.published_at }))
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

/// The policy of a first start.
const EXAMPLE: &str = include_str!("example.toml");

/// Who publishes at a start.
const SERVER: &str = "tidegate";

/// Writes the first version: the example.
pub(crate) async fn write_first(store: &Store) -> sqlx::Result<()> {
    let example = Policy::parse(EXAMPLE, Format::Toml).map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
    let nothing = Policy { domains: BTreeMap::new() };
    write_whole(store, &nothing, &example, 1, "The example policy of a first start", None).await
}

/// Writes the policy of a file as the version after `live`.
async fn write_file(store: &Store, live: &Published, file: &PolicyFile) -> sqlx::Result<()> {
    let message = format!("From {}", file.name);
    write_whole(store, &live.policy, &file.policy, live.version.version + 1, &message, Some(&file.name)).await
}

async fn write_whole(
    store: &Store,
    before: &Policy,
    policy: &Policy,
    version: u64,
    message: &str,
    file: Option<&str>,
) -> sqlx::Result<()> {
    let Changed { touched, removed } = changed(before, policy);
    let document = document(policy).map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
    let version = Version {
        version,
        sha256: sha256(&document),
        author: SERVER.to_owned(),
        message: message.to_owned(),
        published_at: jiff::Timestamp::now().to_string(),
        carry: Carries::default(),
    };
    store
        .add_version(NewVersion {
            version: &version,
            document: &document,
            touched: &columns(&touched),
            removed: &columns(&removed),
            answered: None,
            file,
            audit: Audit {
                actor: SERVER,
                address: "",
                action: "policy.publish",
                object: &format!("version:{}", version.version),
                result: "done",
            },
        })
        .await
}

/// What readers share.
pub(crate) type Shared = Arc<Published>;
