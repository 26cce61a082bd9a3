//! What servers of one database know of each other's nodes: each writes its own down, and looks there for the others'.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    mem,
    time::Duration,
};

use sqlx::AnyConnection;
use tokio::time::{self, Instant, MissedTickBehavior, timeout};

use crate::{
    base::secrets::now,
    domain::{error::Problem, rollout::Targets},
    fleet::registry::{Connection, Fleet, LOOK_EVERY, Node, NodeRow, SINCE, Trouble, absent},
    store::{
        database::Store,
        nodes::{Elsewhere, Forgotten, KnownNode},
    },
};

/// Nodes that are written at once: the rest come with the next look.
const AT_ONCE: usize = 200;

/// How long is waited for the names of other servers' nodes.
const NAMES_IN: Duration = Duration::from_millis(200);

/// What is to be told of the nodes of this server.
struct Known {
    nodes: Vec<KnownNode>,
    /// One of them is connected and not heard.
    is_quiet: bool,
    /// Those whose names were claimed since the last look.
    claimed: HashSet<String>,
    /// How many connections there were so far.
    connections: u64,
}

impl Fleet {
    /// Takes the name of a node that has just connected, unless another process is connected under it to another server: the
    /// connection ends then.
    pub(super) async fn claim(&self, store: &Store, connection: &Connection) -> Result<(), Problem> {
        let (name, number) = (&connection.name, connection.number);
        let known = self.nodes().by_name.get(name).map(|node| KnownNode { is_connected: 1, ..node.known() });
        let Some(known) = known else { return Ok(()) };
        let elsewhere = store.claim_node(&self.server, &known, now()).await?;
        let mut nodes = self.nodes();
        let Some(node) = nodes.by_name.get_mut(name).filter(|node| node.has(number)) else { return Ok(()) };
        let Some(Elsewhere { server, since }) = elsewhere else {
            if let Some(sender) = &mut node.connection {
                sender.is_claimed = true;
            }
            nodes.claimed.insert(name.clone());
            return Ok(());
        };
        // It is that server's.
        nodes.by_name.remove(name);
        let since = jiff::Timestamp::from_second(since).unwrap_or_default();
        let who = format!("a process that is connected to the server `{}` since {since}", called(&server));
        Err(Problem::DuplicateNode { name: name.clone(), who })
    }

    /// Writes down which nodes are connected, for the other servers, for ever.
    pub(crate) async fn tell_others(&self, store: &Store) -> Infallible {
        let mut ticks = time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = HashMap::<String, KnownNode>::new();
        let mut said = Instant::now();
        loop {
            ticks.tick().await;
            let Known { nodes, is_quiet, claimed, connections } = self.known();
            let there: HashSet<&String> = nodes.iter().map(|node| &node.name).collect();
            // What a claim wrote down is not what was told.
            told.retain(|name, _| there.contains(name) && !claimed.contains(name));
            let is_new = |node: &KnownNode| told.get(&node.name) != Some(node);
            let new: Vec<KnownNode> = nodes.into_iter().filter(is_new).take(AT_ONCE).collect();
            let is_due = !told.is_empty() && said.elapsed() >= store.says_nodes_every();
            let outcome: sqlx::Result<()> = async {
                let mut is_to_look = is_quiet || is_due;
                if !new.is_empty() || is_due {
                    let connected = store.tell_nodes(&self.server, &new, now()).await?;
                    said = Instant::now();
                    told.extend(new.into_iter().map(|node| (node.name.clone(), node)));
                    if connected < told.values().map(|node| node.is_connected).sum() {
                        // Some were removed, or are another's: they are told anew, unless that is so.
                        told.retain(|_, node| node.is_connected == 0);
                        is_to_look = true;
                    }
                }
                if is_to_look {
                    self.give_up(&store.nodes_of_others(&self.server, now()).await?, connections);
                }
                Ok(())
            }
            .await;
            if let Err(error) = outcome {
                // It is tried again; that the database has trouble is said elsewhere.
                tracing::debug!(%error, "other servers are not told of the nodes of this one");
            }
        }
    }

    /// Tells the other servers that this one has ended.
    pub(crate) async fn leave(&self, store: &Store) {
        if let Err(error) = store.leave_nodes(&self.server, now()).await {
            tracing::debug!(%error, "other servers are not told that the nodes of this one are gone");
        }
    }

    /// Forgets a node that is gone, wherever it was connected.
    pub(crate) async fn remove(&self, store: &Store, name: &str) -> Result<(), Problem> {
        if self.nodes().by_name.get(name).is_some_and(Node::is_there) {
            return Err(Problem::StillHere(name.to_owned()));
        }
        let forgotten = store.forget_node(&self.server, name, now()).await?;
        if forgotten == Forgotten::IsElsewhere {
            return Err(Problem::StillHere(name.to_owned()));
        }
        let mut nodes = self.nodes();
        match nodes.by_name.get(name) {
            // It has just come back.
            Some(node) if node.is_there() => Err(Problem::StillHere(name.to_owned())),
            None if forgotten == Forgotten::WasNone => Err(absent(name)),
            _ => {
                nodes.by_name.remove(name);
                Ok(())
            }
        }
    }

    /// Names of those that can be asked, this process among them if it decides, and of those that are connected to other servers.
    /// Who has stopped is neither, unless another server has it by now.
    pub(crate) async fn names(&self, store: &Store) -> (Vec<String>, Vec<String>) {
        let here = self.here.as_ref().map(|_| self.figures.node().to_owned());
        let followers: Vec<String> = {
            let nodes = self.nodes();
            let going = nodes.by_name.iter().filter(|(_, node)| !node.is_stopped());
            going.map(|(name, _)| name.clone()).collect()
        };
        let own: Vec<String> = here.into_iter().chain(followers).collect();
        let connected = match timeout(NAMES_IN, store.connected_nodes(now())).await {
            Ok(Ok(names)) => names,
            Ok(Err(error)) => {
                tracing::debug!(%error, "nodes of other servers are not named");
                Vec::new()
            }
            // Whoever watches a key sees on.
            Err(_) => Vec::new(),
        };
        let elsewhere = {
            let own: HashSet<&String> = own.iter().collect();
            connected.into_iter().filter(|name| !own.contains(name)).collect()
        };
        (own, elsewhere)
    }

    /// What is the matter with nodes. That one is gone tells the server that it was connected to last, until it is forgotten.
    pub(crate) async fn troubles(&self, store: &Store, targets: &Targets) -> sqlx::Result<Vec<Trouble>> {
        let mut troubles: Vec<Trouble> = self.rows(targets).iter().flat_map(NodeRow::troubles).collect();
        let gone: Vec<Trouble> = self.nodes().by_name.values().filter_map(Node::is_gone).collect();
        if !gone.is_empty() {
            let own = store.nodes_of(&self.server).await?;
            let is_own = |trouble: &Trouble| own.as_ref().is_none_or(|own| own.contains(&trouble.node));
            troubles.extend(gone.into_iter().filter(is_own));
        }
        Ok(troubles)
    }

    /// Those whose names are this server's or were.
    fn known(&self) -> Known {
        let mut nodes = self.nodes();
        let is_quiet = nodes.by_name.values().any(|node| node.connection.is_some() && !node.is_there());
        let is_claimed = |node: &&Node| node.connection.as_ref().is_none_or(|sender| sender.is_claimed);
        Known {
            claimed: mem::take(&mut nodes.claimed),
            connections: nodes.connections,
            is_quiet,
            nodes: nodes.by_name.values().filter(is_claimed).map(Node::known).collect(),
        }
    }

    /// Ends the streams of nodes that other servers have by now, but for those that came after so many `connections`.
    fn give_up(&self, taken: &[String], connections: u64) {
        let mut nodes = self.nodes();
        for name in taken {
            if let Some(node) = nodes.by_name.get_mut(name)
                && node.connection.as_ref().is_some_and(|sender| sender.is_claimed && sender.number <= connections)
            {
                node.connection = None;
            }
        }
    }

    /// Those that are connected, to whichever server, and cannot read documents of this schema.
    pub(crate) async fn cannot_read(&self, connection: &mut AnyConnection, schema: u32) -> sqlx::Result<Vec<String>> {
        let mut cannot = KnownNode::cannot_read(connection, &self.server, schema, now()).await?;
        let nodes = self.nodes();
        let is_here = |name: &String| nodes.by_name.get(name).is_some_and(Node::is_there);
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

impl Node {
    fn known(&self) -> KnownNode {
        KnownNode {
            name: self.hello.name.clone(),
            schema: self.hello.schema.into(),
            version: self.figures.policy_version,
            is_connected: self.is_there().into(),
            instance: self.hello.instance.clone(),
            since: self.connection.as_ref().map_or(0, |sender| sender.since.as_second()),
        }
    }
}

/// The name of a server, of what tells it from the process before.
fn called(server: &str) -> &str {
    server.split_once(SINCE).map_or(server, |(name, _)| name)
}
