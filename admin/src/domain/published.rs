//! The policy in force, as the control plane knows it: version, document, and when each object changed last.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::Serialize;
use sqlx::AnyConnection;
use tidegate::{Problems, Snapshot, formats::Format, policy::Policy};

use crate::{
    auth::user_rules::SERVER,
    base::startup_error::StartError,
    domain::{
        diff::{Changed, changed},
        error::{Conflicting, Present, Problem},
        objects::{self, ObjectKey},
        rollout::{Staged, Targets},
    },
    publish::policy_file::{self, PolicyFile, PolicyFileOutcome},
    store::{
        audit::Audit,
        database::{Change, Store},
        rollouts::Rollout,
        versions::{Carries, FromFile, NewVersion, Revision, Version, sha256},
    },
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

    /// Writes the policy of a file as the next version, if that is to be done. `self` is the newest one in `change`; while it
    /// is on its way, nothing is published.
    pub(crate) async fn follow(
        &self,
        store: &Store,
        mut change: Change,
        file: &PolicyFile,
        is_on_its_way: bool,
    ) -> sqlx::Result<PolicyFileOutcome> {
        let document = document(&file.policy).map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
        let last = FromFile::read(&mut change, &file.name).await?;
        let Version { version, sha256: live, .. } = &self.version;
        let outcome = policy_file::decide(file, &sha256(&document), last.as_ref(), *version, live);
        if outcome == PolicyFileOutcome::Published && is_on_its_way {
            return Ok(PolicyFileOutcome::Waits);
        }
        if outcome == PolicyFileOutcome::Published {
            let message = format!("From {}", file.name);
            write_whole(store, change, &self.policy, &file.policy, version + 1, &message, Some(&file.name)).await?;
        }
        Ok(outcome)
    }
}

/// The newest version as it is stored, and the one that most nodes keep while it went to some first.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Names the database in errors.
    database: String,
    newest: Option<(Version, String)>,
    revisions: Vec<Revision>,
    rollout: Option<(Rollout, Option<(Version, String)>)>,
}

impl Stored {
    /// Reads it over a connection that reads all at one instant.
    pub(crate) async fn read(connection: &mut AnyConnection, database: &str) -> sqlx::Result<Self> {
        let newest = Version::newest(connection).await?;
        let newest = Version::read(connection, newest).await?;
        let revisions = Revision::read_all(connection).await?;
        let rollout = match Rollout::read(connection).await? {
            Some(rollout) => {
                let kept = Version::read(connection, rollout.keeps).await?;
                Some((rollout, kept))
            }
            None => None,
        };
        Ok(Self { database: database.to_owned(), newest, revisions, rollout })
    }

    /// Is it what was published, and does this build take it? The snapshot is of the version that `node` should have.
    pub(crate) fn compile(self, node: Option<&str>) -> Result<(Targets, Snapshot), StartError> {
        let Self { database, newest, revisions, rollout } = self;
        let revisions = revisions.into_iter().filter_map(revised).collect();
        let (newest, snapshot) = compile(&database, newest, revisions)?;
        let newest = Arc::new(newest);
        let Some((rollout, kept)) = rollout else { return Ok((Targets { newest, staged: None }, snapshot)) };
        let (kept, of_kept) = compile(&database, kept, BTreeMap::new())?;
        let targets = Targets { newest, staged: Some(Staged { rollout, kept: Arc::new(kept) }) };
        let snapshot = if targets.keeps(node) { of_kept } else { snapshot };
        Ok((targets, snapshot))
    }
}

fn compile(
    database: &str,
    stored: Option<(Version, String)>,
    revisions: Revisions,
) -> Result<(Published, Snapshot), StartError> {
    let damaged = |why: String| StartError::Damaged { database: database.to_owned(), why };
    let Some((version, document)) = stored else { return Err(damaged("it has no policy".to_owned())) };
    if sha256(&document) != version.sha256 {
        return Err(damaged(format!("the document of policy version {} is not what was published", version.version)));
    }
    let refused = |problems| StartError::Policy { version: version.version, problems };
    let policy = parse(&document).map_err(refused)?;
    let snapshot = Snapshot::compile(&policy).map_err(refused)?;
    Ok((Published { version, document: document.into(), policy, revisions }, snapshot))
}

fn revised(row: Revision) -> Option<(Arc<ObjectKey>, Arc<Revised>)> {
    // A kind that this build does not know has no place here; its revision stays in the database.
    let kind = row.kind.parse().ok()?;
    let key = ObjectKey { kind, domain: row.domain, id: row.id };
    let revised = Revised { version: row.version, by: row.author, at: row.published_at };
    Some((key.into(), revised.into()))
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

/// The policy of a first start.
const EXAMPLE: &str = include_str!("../example.toml");

/// Writes the first version, the example, unless another server has just done so.
pub(crate) async fn write_first(store: &Store) -> sqlx::Result<()> {
    let mut change = store.change().await?;
    if Version::newest(&mut change).await? > 0 {
        return Ok(());
    }
    let example = Policy::parse(EXAMPLE, Format::Toml).map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
    let nothing = Policy { domains: BTreeMap::new() };
    write_whole(store, change, &nothing, &example, 1, "The example policy of a first start", None).await
}

async fn write_whole(
    store: &Store,
    change: Change,
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
        follows: version - 1,
    };
    let new = NewVersion {
        version: &version,
        document: &document,
        kept: None,
        touched: &columns(&touched),
        removed: &columns(&removed),
        objects: &names(touched.iter().chain(&removed)),
        answered: None,
        file,
        rollout: None,
        audit: &[Audit {
            actor: SERVER,
            address: "",
            action: "policy.publish",
            object: &format!("version:{}", version.version),
            result: "done",
            request_id: "",
        }],
    };
    store.add_version(change, new).await
}

/// What readers share.
pub(crate) type Shared = Arc<Published>;
