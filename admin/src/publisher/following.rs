//! From the database into the engine, while the server runs: what other servers published.

use std::{convert::Infallible, time::Duration};

use sqlx::AnyConnection;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

use super::{Publisher, TURN_IN};
use crate::{
    problem::Problem,
    published::Stored,
    store::{Rollout, Version},
};

/// How soon is looked again after one that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

impl Publisher {
    /// Follows what other servers publish into the same database, for as long as this one runs.
    pub(crate) async fn follow(&self) -> Infallible {
        let follow = async {
            let mut is_well = true;
            loop {
                self.news.notified().await;
                let followed = self.catch_up().await;
                if let Err(problem) = &followed
                    && is_well
                {
                    tracing::error!(%problem, "what other servers publish does not reach this one; trying again");
                }
                is_well = followed.is_ok();
                if !is_well {
                    sleep(AGAIN_AFTER).await;
                    self.news.notify_one();
                }
            }
        };
        tokio::select! {
            never = self.store.listen(|| self.news.notify_one()) => never,
            never = follow => never,
        }
    }

    /// Puts in force what another server has published by now. Whoever makes a change of what is in force, rather than of what
    /// the caller sent, begins with it: an entity tag of the other server is then not newer than what it is made of.
    pub(crate) async fn catch_up(&self) -> Result<(), Problem> {
        let _turn = self.turn(Instant::now() + TURN_IN).await?;
        let looked = timeout(self.fleet.periods.look_timeout, async {
            let mut reading = self.store.reading().await?;
            self.take_over(&mut reading).await
        });
        looked.await.unwrap_or_else(|_| Err(Problem::Storage("The database does not answer".to_owned())))
    }

    /// Puts in force what another server published since. Whoever calls it has the turn.
    pub(super) async fn take_over(&self, connection: &mut AnyConnection) -> Result<(), Problem> {
        let published = self.published();
        let present = published.version.version;
        let newest = Version::newest(connection).await?;
        // Numbers alone would not tell: a copy that is behind may have come to the same number by another publish.
        if newest < present || !published.version.is_stored(connection).await? {
            return Err(Problem::Storage(format!(
                "The database is at policy version {newest}, and this server at a version {present} that is not in it: an \
                 older copy took its place; restart the server"
            )));
        }
        if newest == present && Rollout::read(connection).await?.as_ref() == self.targets().rollout() {
            return Ok(());
        }
        let stored = Stored::read(connection, &self.store.name()).await?;
        let here = self.here.clone();
        let compiled = spawn_blocking(move || stored.compile(here.as_deref())).await;
        let compiled = compiled.map_err(|error| Problem::Internal(error.to_string()))?;
        let (targets, snapshot) = compiled.map_err(|error| {
            self.is_not_applied(newest, &error);
            Problem::Storage(format!(
                "Another server has published version {newest}, which this one cannot follow: {error}"
            ))
        })?;
        let (has, target) = (self.engine.version(), targets.of(self.here()).version.version);
        if has != target {
            let carry = Version::carries(connection, has, target).await?;
            self.enforce(snapshot, target, &carry)?;
        }
        if newest != present {
            let Version { author, message, .. } = &targets.newest.version;
            tracing::info!(version = newest, author, note = ?message, "policy published by another server");
        }
        self.aim(targets).await;
        Ok(())
    }
}
