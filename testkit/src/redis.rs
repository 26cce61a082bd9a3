//! Real Redis or Valkey servers, alone or as a cluster, that tests start, kill and pause; and a way to one that delays and drops.

use std::{
    collections::HashMap,
    env,
    io::{Read, Write},
    iter,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{self, Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redis::{Client, Cmd, Connection, FromRedisValue, RedisResult, cmd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

/// A server that lives answers within this time, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Each slot has a master, and each master a replica. A node that is silent for the timeout counts as failed.
const IN_CLUSTER: &[&str] = &[
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "1000",
    // A replica may become master however long it heard nothing.
    "--cluster-replica-validity-factor",
    "0",
    // Replicas are served at once.
    "--repl-diskless-sync-delay",
    "0",
];

/// Asks until there is an answer.
#[expect(clippy::disallowed_methods, reason = "it waits for something to be so, but not for ever")]
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(25), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A server on loopback that keeps nothing on disk. It ends with the test, also with one that panics.
pub(crate) struct Redis {
    port: u16,
    settings: &'static [&'static str],
    folder: TempDir,
    process: Child,
}

impl Redis {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(settings: &'static [&'static str]) -> Self {
        let tries = iter::repeat_with(|| {
            let (port, folder) = (next_port(), TempDir::new().expect("a folder"));
            let process = run(port, folder.path(), settings);
            Self { port, settings, folder, process }
        });
        tries.take(20).find_map(|mut redis| redis.comes_up().then_some(redis)).expect("a free port")
    }

    /// Waits until it answers; `false`: it ended, since somebody else has its port.
    fn comes_up(&mut self) -> bool {
        wait_for("the server answers", || {
            let process_id = self.process.id().to_string();
            let is_up = self.facts("server").is_some_and(|facts| facts["process_id"] == process_id);
            let has_ended = self.process.try_wait().expect("it is ours").is_some();
            (is_up || has_ended).then_some(is_up)
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// A connection that waits for answers, but not for ever.
    pub(crate) fn connect(&self) -> RedisResult<Connection> {
        let connection = Client::open(self.url())?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    /// Over a connection of its own.
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        command.query(&mut self.connect()?)
    }

    /// What `INFO` says in this section, by name; none: it does not answer.
    fn facts(&self, section: &str) -> Option<HashMap<String, String>> {
        let text: String = self.ask(cmd("INFO").arg(section)).ok()?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Some(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Connections that were made since the start, with that of the one who asks.
    pub(crate) fn connections(&self) -> u64 {
        let facts = self.facts("stats").expect("it answers");
        facts["total_connections_received"].parse().expect("a number")
    }

    /// How often each command was called since the start, by its name in small letters. What connections and this rig call
    /// themselves (`client|setinfo`, `info`) is counted too.
    pub(crate) fn commands(&self) -> HashMap<String, u64> {
        let calls = |(name, value): (String, String)| {
            let name = name.strip_prefix("cmdstat_").expect("a command").to_owned();
            let calls = value.strip_prefix("calls=").and_then(|rest| rest.split(',').next()).expect("its calls");
            (name, calls.parse().expect("a number"))
        };
        self.facts("commandstats").expect("it answers").into_iter().map(calls).collect()
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// On the same port, empty; after [`kill`](Self::kill).
    pub(crate) fn start_again(&mut self) {
        self.process = run(self.port, self.folder.path(), self.settings);
        assert!(self.comes_up(), "its port is free");
    }

    /// Returns when it stands: connections are still made, and nobody answers.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let stands = waitpid(Some(Pid::from_child(&self.process)), WaitOptions::UNTRACED).expect("it runs");
        assert!(stands.is_some_and(|(_, status)| status.stopped()), "{stands:?}");
    }

    /// What was sent meanwhile is answered now.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What `TIDEGATE_TESTED_STORE` names, such as a `valkey-server`; Debian's redis-server unless it does.
fn run(port: u16, folder: &Path, settings: &[&str]) -> Child {
    let server = env::var_os("TIDEGATE_TESTED_STORE").unwrap_or_else(|| "redis-server".into());
    Command::new(server)
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(folder)
        .args(settings)
        .stdout(Stdio::null())
        .spawn()
        .expect("the Debian package redis-server is there, or what is named")
}

/// Below those that systems give away by themselves, so that nobody takes it while its server is down; and so is the port
/// 10,000 above it, where nodes of a cluster speak with each other. Tests beside this one begin elsewhere.
fn next_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = process::id().wrapping_mul(64) + COUNT.fetch_add(1, Ordering::Relaxed);
    10_000 + (number % 10_000) as u16
}

/// Three masters, each with one replica.
pub(crate) struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let nodes: Vec<_> = iter::repeat_with(|| Redis::start_with(IN_CLUSTER)).take(6).collect();
        let made = Command::new("redis-cli")
            .args(["--cluster-yes", "--cluster-replicas", "1", "--cluster", "create"])
            .args(nodes.iter().map(|node| node.address().to_string()))
            .output()
            .expect("the Debian package redis-tools is there");
        let cluster = Self { nodes };
        // It may have looked before all nodes knew; whether they do is seen here.
        wait_for(&format!("a cluster: {made:?}"), || cluster.nodes.iter().all(knows_all).then_some(()));
        cluster.wait_for_replicas();
        cluster
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// The node that answers for this key; waits until there is one. After its master was killed or paused that is the
    /// replica that was promoted.
    pub(crate) fn master_of(&self, key: &str) -> &Redis {
        &self.nodes[self.place_of_master(key)]
    }

    /// Others name the one that does.
    fn place_of_master(&self, key: &str) -> usize {
        let answers = |node: &Redis| node.ask::<u64>(cmd("EXISTS").arg(key)).is_ok();
        wait_for("a master", || self.nodes.iter().position(answers))
    }

    /// Where the master is that has keys.
    pub(crate) fn place_of_keys(&self) -> usize {
        let has_keys = |node: &Redis| {
            let is_master = node.facts("replication").is_some_and(|facts| facts["role"] == "master");
            is_master && node.ask::<u64>(&cmd("DBSIZE")).is_ok_and(|keys| keys > 0)
        };
        self.nodes.iter().position(has_keys).expect("a key")
    }

    /// The master that has keys, of which its replica hears nothing any more; where it is.
    pub(crate) fn cut_off(&self) -> usize {
        let place = self.place_of_keys();
        let port = self.nodes[place].port.to_string();
        let is_its =
            |node: &&Redis| node.facts("replication").is_some_and(|facts| facts.get("master_port") == Some(&port));
        let replica = self.nodes.iter().find(is_its).expect("a replica");
        // It cannot come back: the master knows no password.
        replica.ask::<()>(cmd("CONFIG").arg("SET").arg("masterauth").arg("wrong")).expect("it answers");
        self.nodes[place].ask::<()>(cmd("CLIENT").arg("KILL").arg("TYPE").arg("REPLICA")).expect("it answers");
        let is_cut =
            || replica.facts("replication")?.get("master_link_status").filter(|status| *status == "down").map(drop);
        wait_for("the replica is cut off", is_cut);
        place
    }

    /// At once.
    pub(crate) fn kill(&mut self, place: usize) {
        self.nodes[place].kill();
    }

    /// All at once.
    pub(crate) fn kill_all(&mut self) {
        self.nodes.iter_mut().for_each(Redis::kill);
    }

    /// Empty, each where it was, and they find each other again; after [`kill_all`](Self::kill_all).
    pub(crate) fn start_again(&mut self) {
        self.nodes.iter_mut().for_each(Redis::start_again);
        wait_for("the cluster is back", || self.nodes.iter().all(knows_all).then_some(()));
    }

    /// At once: what was written just before may be lost, but for [`wait_for_replicas`](Self::wait_for_replicas).
    pub(crate) fn kill_master_of(&mut self, key: &str) {
        let place = self.place_of_master(key);
        self.nodes[place].kill();
    }

    /// Until they have all that was written before; while all nodes live.
    pub(crate) fn wait_for_replicas(&self) {
        for node in &self.nodes {
            wait_for("the replica has everything", || self.is_in_sync(node)?.then_some(()));
        }
    }

    /// Masters are.
    fn is_in_sync(&self, node: &Redis) -> Option<bool> {
        let Some(port) = node.facts("replication")?.remove("master_port") else { return Some(true) };
        let master = self.nodes.iter().find(|node| node.port.to_string() == port)?;
        let offset = |facts: &HashMap<_, String>| facts["master_repl_offset"].parse::<u64>().expect("a number");
        let written = offset(&master.facts("replication")?);
        let facts = node.facts("replication")?;
        Some(facts.get("master_link_status")? == "up" && offset(&facts) >= written)
    }
}

/// Whether this node of a cluster knows all others, and which of them are replicas.
fn knows_all(node: &Redis) -> bool {
    let is_ok = node.ask(cmd("CLUSTER").arg("INFO")).is_ok_and(|text: String| text.contains("cluster_state:ok"));
    let nodes: String = node.ask(cmd("CLUSTER").arg("NODES")).unwrap_or_default();
    is_ok && nodes.matches("master - ").count() == 3 && nodes.matches("slave ").count() == 3
}

/// What a [`Proxy`] is told, and has counted.
#[derive(Default)]
struct Orders {
    /// What requests have instead of something that is as long.
    writes: Option<(Vec<u8>, Vec<u8>)>,
    delay_ms: AtomicU64,
    drops_half: AtomicBool,
    /// Answers that came while half of them are dropped.
    answers: AtomicU64,
    is_over: AtomicBool,
}

impl Orders {
    fn rewrite(&self, bytes: &mut [u8]) {
        let Some((this, instead_of)) = &self.writes else { return };
        for place in 0..bytes.len().saturating_sub(this.len() - 1) {
            if bytes[place..].starts_with(instead_of) {
                bytes[place..place + this.len()].copy_from_slice(this);
            }
        }
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms.load(Ordering::Relaxed))
    }

    /// Whether the answer that came is dropped. Its number decides, mixed, so that no client's own rhythm falls in with it:
    /// one whose every second answer is that to its greeting.
    fn drop_answer(&self) -> bool {
        self.drops_half.load(Ordering::Relaxed)
            && self.answers.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15).count_ones() % 2 == 1
    }
}

/// Passes connections on, until it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    orders: Arc<Orders>,
}

impl Proxy {
    /// Before the server at this address.
    pub(crate) fn before(server: SocketAddr) -> Self {
        Self::with(server, Orders::default())
    }

    /// Requests have one thing instead of another that is as long.
    pub(crate) fn that_writes(server: SocketAddr, this: &[u8], instead_of: &[u8]) -> Self {
        assert_eq!(this.len(), instead_of.len());
        Self::with(server, Orders { writes: Some((this.to_vec(), instead_of.to_vec())), ..Orders::default() })
    }

    fn with(server: SocketAddr, orders: Orders) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let proxy = Self { address, orders: Arc::new(orders) };
        let orders = Arc::clone(&proxy.orders);
        thread::spawn(move || {
            let mut clients = Vec::new();
            for client in listener.incoming() {
                if orders.is_over.load(Ordering::Relaxed) {
                    break;
                }
                let client = client.expect("a connection");
                // Where no server listens, the client is told by the end of its connection.
                if let Ok(server) = TcpStream::connect(server) {
                    clients.push(client.try_clone().expect("an end"));
                    let orders = Arc::clone(&orders);
                    thread::spawn(move || carry(&client, &server, &orders));
                }
            }
            clients.iter().for_each(close);
        });
        proxy
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Answers take so much longer from now on, whole milliseconds; requests pass at once. Delays do not add up.
    pub(crate) fn delay(&self, delay: Duration) {
        self.orders.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Of the answers from now on, half are dropped, and their connections end: what was asked is done, and nobody is told.
    /// An answer is what comes in one piece. Which of them only depends on how many came before.
    pub(crate) fn drop_half(&self, drops: bool) {
        self.orders.drops_half.store(drops, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders.is_over.store(true, Ordering::Relaxed);
        // It wakes up by one more.
        drop(TcpStream::connect(self.address));
    }
}

/// Until one of them ends the connection.
#[expect(clippy::disallowed_methods, reason = "when an answer is due")]
fn carry(mut client: &TcpStream, mut server: &TcpStream, orders: &Orders) {
    for end in [client, server] {
        end.set_nodelay(true).expect("a socket");
    }
    let (answers, due) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            // It ends with the connection. A request comes in one piece: they are small.
            while let Ok(count @ 1..) = client.read(&mut buffer) {
                orders.rewrite(&mut buffer[..count]);
                if server.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            close(server);
        });
        scope.spawn(move || {
            for (at, bytes) in due {
                thread::sleep(at.saturating_duration_since(Instant::now()));
                if client.write_all(&bytes).is_err() {
                    break;
                }
            }
            close(client);
        });
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = server.read(&mut buffer)
            && !orders.drop_answer()
            && answers.send((Instant::now() + orders.delay(), buffer[..count].to_vec())).is_ok()
        {}
        drop(answers);
    });
}

fn close(end: &TcpStream) {
    // It may be closed already.
    let _ = end.shutdown(Shutdown::Both);
}
