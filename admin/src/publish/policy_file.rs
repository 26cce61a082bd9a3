//! A policy that is kept in a file, in git perhaps: a start publishes what changed there, unless somebody edited the live
//! policy since.

use std::{fs, path::Path};

use schemars::JsonSchema;
use serde::Serialize;
use tidegate::{Snapshot, formats::Format, policy::Policy};

use crate::{
    base::{sha256::sha256, startup_error::StartError},
    domain::{
        diff::changed,
        objects::sort_clients,
        published::{Published, document},
        version::Version,
    },
    publish::stored_policy::{Stored, write_whole},
    store::{
        database::{Change, Store},
        versions::FromFile,
    },
};

/// A policy from a file.
#[derive(Debug)]
pub struct PolicyFile {
    /// Names the file from one start to the next: its absolute path.
    pub name: String,
    /// What it holds.
    pub policy: Policy,
    /// Publish it even where the live policy was edited since.
    pub force: bool,
}

/// What a start did with the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PolicyFileOutcome {
    /// It was published.
    Published,
    /// It holds what was published from it last. Where that was edited since, the edits stay.
    Unchanged,
    /// The live policy was edited since, and stays in force.
    Kept,
    /// It is to be published, and the newest version went to some nodes only: a start after that goes on publishes it.
    Waits,
}

impl PolicyFile {
    /// Publishes it, if that is to be done.
    pub(crate) async fn follow(mut self, store: &Store) -> Result<PolicyFileOutcome, StartError> {
        sort_clients(&mut self.policy);
        let wrong = |problems| StartError::PolicyFile { name: self.name.clone(), problems };
        Snapshot::compile(&self.policy).map_err(wrong)?;
        let database = store.name();
        let failed = |error: sqlx::Error| StartError::Database { database: database.clone(), why: error.to_string() };
        let mut change = store.change().await.map_err(failed)?;
        let (targets, _) = Stored::read(&mut change, &database).await.map_err(failed)?.compile(None)?;
        self.write(&targets.newest, store, change, targets.staged.is_some()).await.map_err(failed)
    }

    /// Writes the policy of the file as the next version, if that is to be done. `newest` is the newest one in `change`; while it
    /// is on its way, nothing is published.
    async fn write(
        &self,
        newest: &Published,
        store: &Store,
        mut change: Change,
        is_on_its_way: bool,
    ) -> sqlx::Result<PolicyFileOutcome> {
        let document = document(&self.policy).map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
        let last = FromFile::read(&mut change, &self.name).await?;
        let Version { version, sha256: live, .. } = &newest.version;
        let outcome = decide(self, &sha256(&document), last.as_ref(), *version, live);
        if outcome == PolicyFileOutcome::Published && is_on_its_way {
            return Ok(PolicyFileOutcome::Waits);
        }
        if outcome == PolicyFileOutcome::Published {
            let message = format!("From {}", self.name);
            write_whole(store, change, &newest.policy, &self.policy, version + 1, &message, Some(&self.name)).await?;
        }
        Ok(outcome)
    }
}

/// How the file of this server compares with the newest version.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PolicyFile")]
pub(crate) struct Compared {
    /// On the machine of the server.
    path: String,
    /// Does it hold another policy? `null`: it cannot be read.
    differs: Option<bool>,
    /// Why it cannot be read.
    problem: Option<String>,
}

impl Compared {
    /// Reads the file as it is now.
    pub(crate) fn of(path: &str, live: &Policy) -> Self {
        let (differs, problem) = match read(path) {
            Ok(policy) => (Some(!changed(live, &policy).is_none()), None),
            Err(why) => (None, Some(why)),
        };
        Self { path: path.to_owned(), differs, problem }
    }
}

fn read(path: &str) -> Result<Policy, String> {
    let format = Format::of(Path::new(path)).ok_or("its name does not end in .toml, .yaml, .yml or .json")?;
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    Policy::parse(&text, format).map_err(|problems| problems.to_string())
}

/// What to do with a file whose document has this digest, given what was published from it last and the live version.
pub(crate) fn decide(
    file: &PolicyFile,
    sha256: &str,
    last: Option<&FromFile>,
    live_version: u64,
    live_sha256: &str,
) -> PolicyFileOutcome {
    if live_sha256 == sha256 || last.is_some_and(|last| last.sha256 == sha256 && !file.force) {
        return PolicyFileOutcome::Unchanged;
    }
    // Nobody edited the example of a first start yet.
    let published = last.map_or(1, |last| last.version);
    if live_version > published && !file.force { PolicyFileOutcome::Kept } else { PolicyFileOutcome::Published }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_file_is_published_when_it_changed_and_nobody_edited_since() {
        use PolicyFileOutcome::{Kept, Published, Unchanged};
        let last = |sha256: &str, version| Some(FromFile { sha256: sha256.to_owned(), version });
        for (what, last, live, live_sha256, without, with_force) in [
            ("never published, the example is live", None, 1, "example", Published, Published),
            ("never published, edited", None, 2, "edited", Kept, Published),
            ("unchanged", last("file", 2), 2, "file", Unchanged, Unchanged),
            ("unchanged, edited since", last("file", 2), 3, "edited", Unchanged, Published),
            ("changed", last("old", 2), 2, "old", Published, Published),
            ("changed, edited since", last("old", 2), 3, "edited", Kept, Published),
            ("changed to what somebody published", last("old", 2), 3, "file", Unchanged, Unchanged),
        ] {
            for (force, expected) in [(false, without), (true, with_force)] {
                let file = PolicyFile {
                    name: "/etc/policy.toml".to_owned(),
                    policy: Policy { domains: BTreeMap::new() },
                    force,
                };
                let outcome = decide(&file, "file", last.as_ref(), live, live_sha256);
                assert_eq!(outcome, expected, "{what}, force {force}");
            }
        }
    }
}
