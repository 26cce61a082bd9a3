//! What servers of one database know of each other's nodes: each writes its own down, and looks there for the others'.

use std::{collections::HashMap, convert::Infallible, time::Duration};

use sqlx::AnyConnection;
use tokio::time::{self, Instant, MissedTickBehavior};

use super::{Fleet, LOOK_EVERY};
use crate::{
    problem::Problem,
    secrets::now,
    store::{KnownNode, Store},
};

/// How often a server says that it still has its nodes.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// Nodes that are written at once: the rest come with the next look.
const AT_ONCE: usize = 200;

impl Fleet {
    /// Writes down which nodes are connected, for the other servers, for ever.
    pub(crate) async fn tell_others(&self, store: &Store) -> Infallible {
        let mut ticks = time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = HashMap::<String, KnownNode>::new();
        let mut said = Instant::now();
        loop {
            ticks.tick().await;
            let nodes = self.known();
            told.retain(|name, _| nodes.iter().any(|node| node.name == *name));
            let is_new = |node: &KnownNode| told.get(&node.name) != Some(node);
            let new: Vec<KnownNode> = nodes.into_iter().filter(is_new).take(AT_ONCE).collect();
            if new.is_empty() && (told.is_empty() || said.elapsed() < SAY_EVERY) {
                continue;
            }
            match store.tell_nodes(&self.server, &new, now()).await {
                Ok(()) => {
                    said = Instant::now();
                    told.extend(new.into_iter().map(|node| (node.name.clone(), node)));
                }
                // It is tried again; that the database has trouble is said elsewhere.
                Err(error) => tracing::debug!(%error, "other servers are not told of the nodes of this one"),
            }
        }
    }

    fn known(&self) -> Vec<KnownNode> {
        let nodes = self.nodes();
        let known = nodes.by_name.values().map(|node| KnownNode {
            name: node.hello.name.clone(),
            schema: node.hello.schema.into(),
            version: node.figures.policy_version,
            is_connected: node.is_there().into(),
        });
        known.collect()
    }

    /// Those that are connected, to whichever server, and cannot read documents of this schema.
    pub(crate) async fn cannot_read(&self, connection: &mut AnyConnection, schema: u32) -> sqlx::Result<Vec<String>> {
        let mut cannot = KnownNode::cannot_read(connection, &self.server, schema, now()).await?;
        let nodes = self.nodes();
        let is_here = |name: &String| nodes.by_name.get(name).is_some_and(super::Node::is_there);
        cannot.retain(|name| !is_here(name));
        let own = nodes.by_name.values().filter(|node| node.is_there() && node.hello.schema < schema);
        cannot.extend(own.map(|node| node.hello.name.clone()));
        cannot.sort();
        Ok(cannot)
    }

    /// Refuses names that no node has which is or was there within a day, this process among them if it decides.
    pub(crate) async fn check_names(
        &self,
        connection: &mut AnyConnection,
        names: &[String],
        pointer: &str,
    ) -> Result<(), Problem> {
        if names.is_empty() {
            return Err(Problem::field(pointer, "name at least one node"));
        }
        for name in names {
            if !self.is_known_here(name) && KnownNode::read(connection, name).await?.is_none() {
                return Err(Problem::field(pointer, format!("no node is called `{name}`; GET /api/v1/nodes has them")));
            }
        }
        Ok(())
    }

    fn is_known_here(&self, name: &str) -> bool {
        (self.here.is_some() && name == self.figures.node()) || self.nodes().by_name.contains_key(name)
    }

    /// Version of the policy in force at a node, wherever it is connected, as far as that is known.
    pub(crate) async fn version_of(&self, connection: &mut AnyConnection, name: &str) -> sqlx::Result<Option<u64>> {
        if self.here.is_some() && name == self.figures.node() {
            return Ok(Some(self.figures.engine().version()));
        }
        let own = self.nodes().by_name.get(name).filter(|node| node.is_there()).map(|node| node.figures.policy_version);
        match own {
            Some(version) => Ok(Some(version)),
            None => Ok(KnownNode::read(connection, name).await?.map(|node| node.version)),
        }
    }
}
