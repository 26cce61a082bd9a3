//! A Redis or Valkey cluster that a test starts, cuts and kills.

use std::{process::Command, thread, time::Duration};

use redis::cmd;

use crate::{
    PATIENCE,
    certificate::{Authority, CertificateFiles},
    port::ReservedPort,
    redis::{Redis, tls_settings},
    wait_for,
};

/// Returns the settings of a node of a cluster. Another node that is silent for `failed_after` counts as failed.
fn settings(failed_after: Duration) -> Vec<String> {
    let failed_after = failed_after.as_millis().to_string();
    [
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        &failed_after,
        // A replica may become master however long it heard nothing.
        "--cluster-replica-validity-factor",
        "0",
        // Replicas are served at once.
        "--repl-diskless-sync-delay",
        "0",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The masters of a cluster.
const MASTERS: usize = 3;

/// A cluster of three masters, each with one replica unless it speaks TLS.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
    tls: Option<TlsPorts>,
}

/// The ports on which the nodes listen with TLS.
#[derive(Debug)]
struct TlsPorts {
    files: CertificateFiles,
    ports: Vec<ReservedPort>,
}

impl Cluster {
    /// Starts a cluster whose nodes wait for each other for a minute: on a busy machine none counts as failed that is there.
    ///
    /// # Panics
    ///
    /// There are no such programs, or it does not come up.
    #[must_use]
    pub fn start() -> Self {
        Self::with(PATIENCE)
    }

    /// Starts a cluster in which a replica takes the place of a master that is silent for a second.
    ///
    /// # Panics
    ///
    /// There are no such programs, or it does not come up.
    #[must_use]
    pub fn that_fails_over() -> Self {
        Self::with(Duration::from_secs(1))
    }

    /// Starts a cluster of three masters without replicas, whose nodes speak TLS with each other and with clients, with a
    /// certificate of this authority.
    ///
    /// # Panics
    ///
    /// There are no such programs, or it does not come up.
    #[must_use]
    pub fn with_tls(authority: &Authority) -> Self {
        let (files, settings) = (CertificateFiles::of(authority), settings(PATIENCE));
        let ports: Vec<_> = (0..MASTERS).map(|_| ReservedPort::of_cluster_node()).collect();
        let start = |port: &ReservedPort| {
            let mut settings = [&settings[..], &tls_settings(&files, port.port())].concat();
            settings.extend(["--tls-cluster", "yes", "--tls-auth-clients", "no"].map(str::to_owned));
            Redis::try_start(ReservedPort::new, &settings)
        };
        let nodes = ports.iter().map(start).collect();
        Self::of(nodes, Some(TlsPorts { files, ports }))
    }

    fn with(failed_after: Duration) -> Self {
        let settings = settings(failed_after);
        let start = |_| Redis::try_start(ReservedPort::of_cluster_node, &settings);
        Self::of((0..2 * MASTERS).map(start).collect(), None)
    }

    /// Makes one cluster of nodes.
    fn of(nodes: Vec<Redis>, tls: Option<TlsPorts>) -> Self {
        let mut command = Command::new("redis-cli");
        if let Some(tls) = &tls {
            command.arg("--tls").arg("--cacert").arg(tls.files.authority());
        }
        let replicas = nodes.len() / MASTERS - 1;
        command.args(["--cluster-yes", "--cluster-replicas", &replicas.to_string(), "--cluster", "create"]);
        match &tls {
            Some(tls) => command.args(tls.ports.iter().map(|port| port.address().to_string())),
            None => command.args(nodes.iter().map(|node| node.address().to_string())),
        };
        let made = command.output().expect("the Debian package redis-tools is there");
        let cluster = Self { nodes, tls };
        // It may have looked before all nodes knew; whether they do is seen here.
        wait_for(&format!("a cluster: {made:?}"), || cluster.knows_itself().then_some(()));
        cluster.wait_for_replicas();
        cluster
    }

    /// Returns the addresses of all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        match &self.tls {
            Some(tls) => tls.ports.iter().map(|port| format!("rediss://{}", port.address())).collect(),
            None => self.nodes.iter().map(Redis::url).collect(),
        }
    }

    /// Returns all nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Returns the node that answers for this key, once there is one. After its master was killed or paused that is the replica
    /// that was promoted.
    #[must_use]
    pub fn master_of(&self, key: &str) -> &Redis {
        &self.nodes[self.place_of_master(key)]
    }

    /// Pauses the node of this index: see [`Redis::pause`].
    pub fn pause(&self, place: usize) {
        self.nodes[place].pause();
    }

    /// Moves the slot of a key to the next master, key by key, as `redis-cli --cluster reshard` does, with a pause before each step.
    ///
    /// # Panics
    ///
    /// A node does not answer, or refuses.
    pub fn move_slot_of(&self, key: &str, pause: Duration) {
        let moving = self.begin_to_move_slot_of(key, pause);
        while moving.move_key() {}
        moving.end();
    }

    /// Begins to move the slot of a key to the next master.
    ///
    /// # Panics
    ///
    /// A node does not answer, or refuses.
    #[must_use]
    pub fn begin_to_move_slot_of(&self, key: &str, pause: Duration) -> SlotMove<'_> {
        let slot: u16 = self.nodes[0].ask(cmd("CLUSTER").arg("KEYSLOT").arg(key)).expect("it answers");
        let from = self.place_of_master(key);
        let is_master = |node: &Redis| node.facts("replication").is_some_and(|facts| facts["role"] == "master");
        let masters: Vec<_> = (0..self.nodes.len()).filter(|&place| is_master(&self.nodes[place])).collect();
        let next = masters.iter().position(|&place| place == from).expect("it is a master") + 1;
        let (from, to) = (&self.nodes[from], &self.nodes[masters[next % masters.len()]]);
        let id = |node: &Redis| -> String { node.ask(cmd("CLUSTER").arg("MYID")).expect("it answers") };
        let moving = SlotMove { from, to, to_id: id(to), slot: slot.to_string(), pause };
        moving.set(to, &["IMPORTING", &id(from)]);
        moving.set(from, &["MIGRATING", &moving.to_id]);
        moving
    }

    /// Returns how often a node of the cluster has answered with this error, such as `MOVED`.
    ///
    /// # Panics
    ///
    /// A node does not answer.
    #[must_use]
    pub fn count_errors(&self, code: &str) -> u64 {
        let name = format!("errorstat_{code}");
        let of = |node: &Redis| {
            let facts = node.facts("errorstats").expect("it answers");
            let count = facts.get(&name).and_then(|value| value.strip_prefix("count=")).map_or("0", |count| count);
            count.parse::<u64>().expect("a number")
        };
        self.nodes.iter().map(of).sum()
    }

    /// Returns the index of the node that answers for this key. Others name it instead of answering.
    #[must_use]
    pub fn place_of_master(&self, key: &str) -> usize {
        let answers = |node: &Redis| node.ask::<u64>(cmd("EXISTS").arg(key)).is_ok();
        wait_for("a master", || self.nodes.iter().position(answers))
    }

    /// Returns the index of the master that has keys of limits.
    ///
    /// # Panics
    ///
    /// There are no such keys.
    #[must_use]
    pub fn place_of_keys(&self) -> usize {
        let has_keys = |node: &Redis| {
            let is_master = node.facts("replication").is_some_and(|facts| facts["role"] == "master");
            is_master && node.keys().is_ok_and(|keys| !keys.is_empty())
        };
        self.nodes.iter().position(has_keys).expect("a key")
    }

    /// Cuts the replica of the master that has keys off, for ever. Returns the index of that master.
    ///
    /// # Panics
    ///
    /// There are no keys.
    #[must_use]
    pub fn cut_off(&self) -> usize {
        let place = self.place_of_keys();
        let port = self.nodes[place].port().to_string();
        let is_its =
            |node: &&Redis| node.facts("replication").is_some_and(|facts| facts.get("master_port") == Some(&port));
        let replica = self.nodes.iter().find(is_its).expect("a replica");
        self.nodes[place].cut_off(replica);
        place
    }

    /// Ends the node of this index at once.
    pub fn kill(&mut self, place: usize) {
        self.nodes[place].kill();
    }

    /// Ends all nodes at once.
    pub fn kill_all(&mut self) {
        self.nodes.iter_mut().for_each(Redis::kill);
    }

    /// Starts all nodes empty, each at its port, and waits until they found each other; after [`kill_all`](Self::kill_all).
    pub fn start_again(&mut self) {
        self.nodes.iter_mut().for_each(Redis::start_again);
        wait_for("the cluster is back", || self.knows_itself().then_some(()));
    }

    /// Ends the node that answers for this key at once. What was written just before may be lost, unless
    /// [`wait_for_replicas`](Self::wait_for_replicas) was called.
    pub fn kill_master_of(&mut self, key: &str) {
        let place = self.place_of_master(key);
        self.nodes[place].kill();
    }

    /// Waits until replicas have all that was written before; while all nodes live.
    pub fn wait_for_replicas(&self) {
        for node in &self.nodes {
            wait_for("the replica has everything", || self.is_in_sync(node)?.then_some(()));
        }
    }

    /// Returns whether a node has all that its master has; a master has.
    fn is_in_sync(&self, node: &Redis) -> Option<bool> {
        let Some(port) = node.facts("replication")?.remove("master_port") else { return Some(true) };
        let master = self.nodes.iter().find(|node| node.port().to_string() == port)?;
        node.is_in_sync(master)
    }

    /// Returns whether each node knows all others, and which of them are replicas.
    fn knows_itself(&self) -> bool {
        let replicas = self.nodes.len() - MASTERS;
        self.nodes.iter().all(|node| {
            let is_ok =
                node.ask(cmd("CLUSTER").arg("INFO")).is_ok_and(|text: String| text.contains("cluster_state:ok"));
            let nodes: String = node.ask(cmd("CLUSTER").arg("NODES")).unwrap_or_default();
            is_ok && nodes.matches("master - ").count() == MASTERS && nodes.matches("slave ").count() == replicas
        })
    }
}

/// A slot that is being moved from one master to another.
#[derive(Debug)]
pub struct SlotMove<'c> {
    from: &'c Redis,
    to: &'c Redis,
    to_id: String,
    slot: String,
    pause: Duration,
}

impl SlotMove<'_> {
    /// Moves one key. Returns false if there is none any more.
    ///
    /// # Panics
    ///
    /// A node does not answer, or refuses.
    #[must_use]
    pub fn move_key(&self) -> bool {
        let keys = cmd("CLUSTER").arg("GETKEYSINSLOT").arg(&self.slot).arg(1).to_owned();
        let keys: Vec<String> = self.from.ask(&keys).expect("it answers");
        let Some(key) = keys.first() else { return false };
        thread::sleep(self.pause);
        let address = self.to.address();
        let mut migrate = cmd("MIGRATE");
        migrate.arg(address.ip().to_string()).arg(address.port()).arg(key).arg(0).arg(10_000);
        self.from.ask::<redis::Value>(&migrate).expect("it is moved");
        true
    }

    /// Ends the move: the slot belongs to the other master.
    ///
    /// # Panics
    ///
    /// A node does not answer, or refuses.
    pub fn end(self) {
        for node in [self.to, self.from] {
            self.set(node, &["NODE", &self.to_id]);
        }
    }

    fn set(&self, node: &Redis, words: &[&str]) {
        thread::sleep(self.pause);
        node.ask::<()>(cmd("CLUSTER").arg("SETSLOT").arg(&self.slot).arg(words)).expect("it is done");
    }
}
