//! From the database into the engine, while the server runs: what other servers published.

use std::{convert::Infallible, sync::Arc, time::Duration};

use sqlx::AnyConnection;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

use crate::{
    domain::{
        error::Problem,
        version::{Rollout, Version},
    },
    publish::{
        publisher::{Publisher, TURN_IN},
        stored_policy::Stored,
    },
};

/// How soon is looked again after one that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

impl Publisher {
    /// Follows what other servers publish into the same database, for as long as this one runs.
    pub(crate) async fn follow(self: &Arc<Self>) -> Infallible {
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
    /// the caller sent, begins with it: an entity tag of the other server is then not newer than what it is made of. All callers
    /// that wait have one place among publishes.
    pub(crate) async fn catch_up(self: &Arc<Self>) -> Result<(), Problem> {
        let end = Instant::now() + TURN_IN;
        let (waiting, publisher) = (Arc::clone(self), Arc::clone(self));
        let turn = async move { waiting.turn(end).await };
        let look = async move {
            let looked = timeout(publisher.fleet.periods.look_timeout, async {
                let mut reading = publisher.store.reading().await?;
                publisher.take_over(&mut reading).await
            });
            looked.await.unwrap_or_else(|_| Err(Problem::Storage("The database does not answer".to_owned())))
        };
        self.look.share((), turn, look).await
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tidegate::Engine;
    use tokio::time::timeout;

    use super::*;
    use crate::{
        Access, Admin, ConnectionCaps, ErrorCounts, FiguresClock, Keys, Process, Settings, base::periods::Periods,
    };

    /// Viewers and nodes begin with a look; a publish is not to stand behind each of them.
    #[tokio::test]
    async fn a_publish_waits_for_one_look_of_all_callers() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            data: folder.path().join("data"),
            database: None,
            keeps_files: false,
            listener: TcpListener::bind("127.0.0.1:0").expect("a free port"),
            store: None,
            engine: Arc::new(Engine::with_max_keys(1_000)),
            environment: None,
            production: false,
            is_node: false,
            node: "here".to_owned(),
            figures_clock: FiguresClock::default(),
            url: None,
            policy: None,
            keys: Keys::default(),
            record: None,
            check_url: None,
            process: Process::default(),
            errors: ErrorCounts::of(|| [].into()),
            access: Access::default(),
            connections: ConnectionCaps::default(),
            periods: Periods::default(),
        };
        let admin = Admin::open(settings).await.expect("it starts");
        let publisher = Arc::clone(&admin.state().publisher);
        let end = Instant::now() + TURN_IN;
        let present = publisher.turn(end).await.expect("it is free");
        let mut looks: Vec<_> = (0..100)
            .map(|_| {
                let publisher = Arc::clone(&publisher);
                Box::pin(async move { publisher.catch_up().await })
            })
            .collect();
        for look in &mut looks {
            assert!(timeout(Duration::ZERO, look).await.is_err(), "it waits");
        }
        // The task of the first has its place.
        tokio::task::yield_now().await;
        let mut publish = Box::pin(publisher.turn(end));
        assert!(timeout(Duration::ZERO, &mut publish).await.is_err(), "it waits");
        drop(present);
        drop(publish.await.expect("its turn"));
        assert_eq!(publisher.look.count(), 1, "before it");
        for look in looks {
            look.await.expect("it is done");
        }
        assert_eq!(publisher.look.count(), 1, "all share it");
    }
}
