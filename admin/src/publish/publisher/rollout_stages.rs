//! A version that went to some nodes first goes on, to more or to all.

use std::sync::Arc;

use sqlx::AnyConnection;
use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    domain::{
        diff::{Changed, changed},
        error::Problem,
        published::Published,
        rollout::{Staged, Targets, none_open},
    },
    publish::publisher::{Author, PUBLISH_IN, Publisher, may_change, to_nodes},
    store::audit::Audit,
};

impl Publisher {
    /// Refuses a version that a connected node cannot read which should have it.
    pub(super) async fn check_readers(
        &self,
        connection: &mut AnyConnection,
        targets: &Targets,
        made: &Published,
    ) -> Result<(), Problem> {
        let schema = made.policy.schema();
        let mut nodes = self.fleet.cannot_read(connection, schema).await?;
        nodes.retain(|node| targets.of(Some(node)).version.version == made.version.version);
        if nodes.is_empty() { Ok(()) } else { Err(Problem::NodeCannotRead { nodes, schema }) }
    }

    /// Gives the newest version, which went to some nodes, to these too, or to all. To be run as [`publish`](Self::publish).
    pub(crate) async fn go_on(&self, nodes: Option<Vec<String>>, force: bool, author: Author) -> Result<(), Problem> {
        let _turn = self.turn_of(&author).await?;
        let went = timeout(PUBLISH_IN, self.go_on_in_turn(nodes, force, author));
        let went = went.await.unwrap_or(Err(Problem::Unknown));
        if let Err(Problem::Unknown) = &went {
            self.news.notify_one();
        }
        went
    }

    async fn go_on_in_turn(&self, nodes: Option<Vec<String>>, force: bool, author: Author) -> Result<(), Problem> {
        let mut change = self.store.change_in_turn().await?;
        self.take_over(&mut change).await?;
        let targets = self.targets();
        let Some(Staged { rollout, kept }) = &targets.staged else { return Err(none_open()) };
        if let Some(nodes) = &nodes {
            self.fleet.check_names(&mut change, nodes, "/to").await?;
        }
        if let Some(kinds) = author.kinds.clone() {
            let (before, after) = (Arc::clone(kept), Arc::clone(&targets.newest));
            let may = spawn_blocking(move || {
                let Changed { touched, removed } = changed(&before.policy, &after.policy);
                may_change(Some(&kinds), touched.iter().chain(&removed))
            });
            may.await.map_err(|error| Problem::Internal(error.to_string()))??;
        }
        let staged = nodes.map(|nodes| {
            let mut rollout = rollout.clone();
            rollout.nodes.extend(nodes);
            Staged { rollout, kept: Arc::clone(kept) }
        });
        let next = Targets { newest: Arc::clone(&targets.newest), staged };
        if !force {
            self.check_readers(&mut change, &next, &next.newest).await?;
        }
        let object = format!("version:{}", rollout.version);
        let line = |action, object, result| author.did(action, object, result);
        let to: Vec<String> = next.rollout().map(|next| to_nodes(&next.nodes - &rollout.nodes)).unwrap_or_default();
        let lines: Vec<Audit<'_>> = match next.rollout() {
            None => vec![line("rollout.all", &object, "done")],
            Some(_) => to.iter().map(|node| line("rollout.node", node, &object)).collect(),
        };
        self.store.go_on(change, next.rollout(), &lines).await?;
        tracing::info!(
            version = rollout.version,
            author = author.name,
            to_all = next.staged.is_none(),
            "rollout goes on"
        );
        // One way from the database into the engine. It is kept: where this fails, it is tried again.
        let taken = async { self.take_over(&mut *self.store.reading().await?).await }.await;
        taken.map_err(|problem| {
            tracing::warn!(%problem, version = rollout.version, "a rollout went on, and is not in force here yet");
            Problem::Unknown
        })
    }
}
