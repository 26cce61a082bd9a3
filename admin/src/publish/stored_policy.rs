//! The newest policy in the database: read at the start, and written where there is none yet.

use std::{collections::BTreeMap, sync::Arc};

use sqlx::AnyConnection;
use tidegate::{Snapshot, formats::Format, policy::Policy};

use crate::{
    base::{sha256::sha256, startup_error::StartError},
    domain::{
        diff::{Changed, changed},
        objects::ObjectKey,
        published::{Published, Revised, Revisions, columns, document, names, parse},
        roles::SERVER,
        rollout::{Staged, Targets},
        version::{Carries, Rollout, Version},
    },
    store::{
        audit::Audit,
        database::{Change, Store},
        versions::{NewVersion, Revision},
    },
};

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

/// Publishes a whole policy as the next version.
pub(crate) async fn write_whole(
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
