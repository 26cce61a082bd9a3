//! Measures a fleet on one machine: the time from a publish until every node decides by it, the effect on checks of a node, and
//! the memory of a thousand connected nodes in the admin server.
//!
//! The admin server is a process of its own; the nodes are engines of this process, each with its agent. All of them compile
//! policies on the processors of this machine, unlike a fleet whose nodes have machines of their own.
//!
//!     cargo build --release --no-default-features && cargo run --release -p tidegate-benches --bin fleet

#![expect(clippy::disallowed_methods, reason = "time is what is measured")]
#![expect(clippy::print_stdout, reason = "the program prints its figures")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate::{Engine, Identity, Request};
use tidegate_benches::{BenchResult, admin_session::AdminSession};
use tidegate_fleet::{Agent, AgentHandle, NodeToken};
use tokio::runtime::{self, Runtime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The time after which a node that has not swapped the policy counts as failed.
const SWAP_TIMEOUT: Duration = Duration::from_secs(30);

/// Measures a fleet on this machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// The binary of the admin server.
    #[arg(long, default_value = "target/release/tidegate")]
    binary: PathBuf,
    /// Nodes that are published to.
    #[arg(long, default_value_t = 50)]
    nodes: usize,
    /// Clients of the large policy.
    #[arg(long, default_value_t = 100_000)]
    clients: usize,
    /// Publishes of each policy.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Followers whose memory is measured.
    #[arg(long, default_value_t = 1_000)]
    followers: usize,
}

fn main() -> BenchResult<()> {
    let arguments = Arguments::parse();
    // Four threads compile and write: with a new thread for each node, most of the time would go into zeroing its memory.
    let runtime =
        runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(4).enable_all().build()?;
    for clients in [0, arguments.clients] {
        let admin = AdminServer::start(&arguments.binary, clients)?;
        let changes = [
            Change::Limit,
            Change::Zone,
            Change::Clients(100),
            Change::Clients(clients / 10),
            Change::Clients(clients),
        ];
        let changes = if clients > 0 { &changes[..] } else { &changes[..1] };
        for (change, nodes) in changes.iter().flat_map(|change| [1, arguments.nodes].map(|nodes| (change, nodes))) {
            measure_publishes(&runtime, &admin, nodes, arguments.rounds, change)?;
        }
        if clients > 0 {
            measure_checks(&runtime, &admin, arguments.rounds)?;
        }
    }
    measure_idle_nodes(&runtime, &AdminServer::start(&arguments.binary, 0)?, arguments.followers)
}

/// A change of the policy that is published.
#[derive(Debug)]
enum Change {
    /// A new limit of a tier.
    Limit,
    /// A new tier for this number of clients, spread evenly over all. If more than a quarter of the policy differs, every node
    /// gets the whole policy.
    Clients(usize),
    /// A new time zone.
    Zone,
}

/// Measures the time from the request of a publish until each node decides by it.
fn measure_publishes(
    runtime: &Runtime,
    admin: &AdminServer,
    nodes: usize,
    rounds: usize,
    change: &Change,
) -> BenchResult<()> {
    let folder = TempDir::new()?;
    let nodes = (0..nodes).map(|node| Node::start(runtime, admin, &folder.path().join(node.to_string())));
    let nodes = nodes.collect::<BenchResult<Vec<Node>>>()?;
    let (mut answered, mut swapped) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Lets the nodes finish what they write and acknowledge after a swap, so that it does not burden the next one.
        thread::sleep(Duration::from_millis(if nodes.len() > 1 { 2_000 } else { 500 }));
        let next = admin.version.load(Ordering::Relaxed) + 1;
        let (mut waiting, began) = (nodes.iter().collect::<Vec<_>>(), Instant::now());
        thread::scope(|scope| -> BenchResult<()> {
            let publish = scope.spawn(|| admin.publish(change).map_err(|error| error.to_string()));
            while !(waiting.is_empty() || publish.is_finished() && began.elapsed() > SWAP_TIMEOUT) {
                thread::sleep(Duration::from_micros(200));
                waiting.retain(|node| node.engine.version() < next);
                swapped.resize((round + 1) * nodes.len() - waiting.len(), began.elapsed());
            }
            answered.push(publish.join().expect("no panic")?);
            if waiting.is_empty() {
                Ok(())
            } else {
                Err(format!("{} nodes have not swapped the policy", waiting.len()).into())
            }
        })?;
    }
    println!(
        "{} clients, {change:?}, {} nodes: swapped after {}, the publish answered after {}",
        admin.clients,
        nodes.len(),
        quantiles(&mut swapped),
        quantiles(&mut answered)
    );
    Ok(())
}

/// Measures checks of a node without publishes and during publishes.
fn measure_checks(runtime: &Runtime, admin: &AdminServer, rounds: usize) -> BenchResult<()> {
    let folder = TempDir::new()?;
    let node = Node::start(runtime, admin, folder.path())?;
    for is_published in [false, true] {
        let stop = AtomicBool::new(false);
        let mut took = thread::scope(|scope| -> BenchResult<Vec<Duration>> {
            let checking = scope.spawn(|| {
                let who = [Identity::new("user", "u7").expect("valid")];
                let request = Request::new(&who).expect("valid");
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let _ = node.engine.check(&request);
                    took.push(began.elapsed());
                    thread::sleep(Duration::from_micros(100));
                }
                took
            });
            for _ in 0..rounds {
                if is_published {
                    admin.publish(&Change::Limit)?;
                }
                thread::sleep(Duration::from_millis(300));
            }
            stop.store(true, Ordering::Relaxed);
            Ok(checking.join().expect("no panic"))
        })?;
        println!(
            "checks on a node {} publishes: {}",
            if is_published { "during" } else { "without" },
            quantiles(&mut took)
        );
    }
    Ok(())
}

/// Measures the memory of idle nodes in the admin server.
fn measure_idle_nodes(runtime: &Runtime, admin: &AdminServer, followers: usize) -> BenchResult<()> {
    let before = admin.resident_kb()?;
    let started = (0..followers).map(|node| {
        let agent = Agent::new(&admin.session.url, NodeToken::file(&admin.token)).named(format!("idle-{node}"));
        runtime.block_on(agent.start(Arc::new(Engine::with_max_keys(1))))
    });
    let started = started.collect::<Result<Vec<AgentHandle>, _>>()?;
    for agent in &started {
        runtime.block_on(agent.has_policy());
    }
    thread::sleep(Duration::from_secs(15));
    let connected = started.iter().filter(|agent| agent.status().is_connected).count();
    let after = admin.resident_kb()?;
    println!(
        "{connected} of {followers} idle followers connected: the admin server has {} MB more than the {} MB before",
        (after - before) / 1_024,
        before / 1_024
    );
    Ok(())
}

/// A node of this process, which follows an admin server.
struct Node {
    engine: Arc<Engine>,
    _agent: AgentHandle,
}

impl Node {
    /// Starts a node, and waits until it has a policy.
    fn start(runtime: &Runtime, admin: &AdminServer, folder: &Path) -> BenchResult<Self> {
        let engine = Arc::new(Engine::with_max_keys(10_000));
        let name = format!("node-{}", folder.display()).replace('/', "-");
        let agent =
            Agent::new(&admin.session.url, NodeToken::file(&admin.token)).named(&name[name.len().saturating_sub(60)..]);
        let agent = runtime.block_on(agent.keeping_in(folder).start(Arc::clone(&engine)))?;
        runtime.block_on(agent.has_policy());
        Ok(Self { engine, _agent: agent })
    }
}

/// An admin server with the session of its administrator.
struct AdminServer {
    child: Child,
    session: AdminSession,
    token: PathBuf,
    /// The number of clients in the policy.
    clients: usize,
    /// The version of the policy in force.
    version: AtomicU64,
    _folder: TempDir,
}

impl AdminServer {
    /// Starts a server with this number of clients in its policy.
    fn start(binary: &Path, clients: usize) -> BenchResult<Self> {
        let folder = TempDir::new()?;
        let file = folder.path().join("policy.json");
        fs::write(&file, policy(clients).to_string())?;
        let mut child = Command::new(binary)
            .args(["admin", "--admin", "127.0.0.1:0", "--log", "error"])
            // All nodes connect from one address.
            .args(["--admin-connections-per-peer", "5120", "--data"])
            .arg(folder.path().join("data"))
            .arg("--policy")
            .arg(&file)
            .stdout(Stdio::piped())
            .spawn()?;
        let session = AdminSession::set_up(child.stdout.take().ok_or("no output")?)?;
        let token = folder.path().join("token");
        let version = AtomicU64::new(0);
        let admin = Self { child, session, token, clients, version, _folder: folder };
        let made = admin.session.post("/tokens", &json!({ "name": "bench", "scope": "node" }))?;
        fs::write(&admin.token, made["secret"].as_str().ok_or("no secret")?)?;
        admin.version.store(
            admin.session.get("/policy/versions?limit=1")?["items"][0]["version"].as_u64().ok_or("no version")?,
            Ordering::Relaxed,
        );
        Ok(admin)
    }

    /// Publishes a change, and returns how long the request took.
    fn publish(&self, change: &Change) -> BenchResult<Duration> {
        let base = self.version.load(Ordering::Relaxed);
        match change {
            Change::Limit => {
                let etag = self.session.get("/tiers/free")?["etag"].clone();
                let change = json!({ "op": "put", "kind": "tier", "id": "free", "value": tier("free", 1_000 + base) });
                self.publish_change(&json!({ "tier:free": etag }), &change)
            }
            Change::Clients(changed) => {
                let tier = if base.is_multiple_of(2) { "free" } else { "pro" };
                let numbers = (0..self.clients).step_by((self.clients / changed.max(&1)).max(1));
                let lines = numbers.map(|number| format!("user,{},{tier}", client_name(number)));
                let lines = ["kind,value,tier".to_owned()].into_iter().chain(lines).collect::<Vec<String>>().join("\n");
                let began = Instant::now();
                let published = self.session.send("/clients/import?message=bench", "text/csv", &lines)?;
                self.note_version(began, &published)
            }
            Change::Zone => {
                let etag = self.session.get("/domains/default")?["etag"].clone();
                let zone = if base.is_multiple_of(2) { "Asia/Tokyo" } else { "Europe/Berlin" };
                let change = json!({ "op": "patch", "kind": "domain", "id": "default", "value": { "timezone": zone } });
                self.publish_change(&json!({ "domain:default": etag }), &change)
            }
        }
    }

    fn publish_change(&self, if_match: &Value, change: &Value) -> BenchResult<Duration> {
        let base = self.version.load(Ordering::Relaxed);
        let list = json!({ "base_version": base, "message": "bench", "if_match": if_match, "changes": [change] });
        let began = Instant::now();
        let published = self.session.post("/policy/changes", &list)?;
        self.note_version(began, &published)
    }

    /// Notes the version that a request began at `began` has published, and returns how long the request took.
    fn note_version(&self, began: Instant, published: &Value) -> BenchResult<Duration> {
        let took = began.elapsed();
        self.version.store(published["version"].as_u64().ok_or("no version")?, Ordering::Relaxed);
        Ok(took)
    }

    /// Returns the resident memory of the server in kB.
    fn resident_kb(&self) -> BenchResult<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no such line")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Returns a policy with two tiers, and with this number of clients of the second tier.
fn policy(clients: usize) -> Value {
    let client = |number: usize| json!({ "kind": "user", "value": client_name(number), "tier": "pro" });
    let clients: Vec<Value> = (0..clients).map(client).collect();
    let tiers = [tier("free", 100), tier("pro", 10_000)];
    json!({ "domains": { "default": { "defaults": { "user": "free" }, "tiers": tiers, "clients": clients } } })
}

fn tier(id: &str, limit: u64) -> Value {
    let limits = json!([{ "id": "minute", "algorithm": "token_bucket", "limit": limit, "period": "1m" }]);
    json!({ "id": id, "limits": limits })
}

fn client_name(number: usize) -> String {
    if number.is_multiple_of(2) { format!("u{number}") } else { format!("team{}-u{number}", number % 100) }
}

/// Formats median, 99th percentile and maximum.
fn quantiles(took: &mut [Duration]) -> String {
    took.sort_unstable();
    let at = |per_mille: usize| took[(took.len() * per_mille).div_ceil(1_000).clamp(1, took.len()) - 1];
    format!("{:.1?} (median), {:.1?} (p99), {:.1?} (most), of {}", at(500), at(990), at(1_000), took.len())
}
