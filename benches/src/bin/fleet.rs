//! A fleet on one machine: how long a publish takes until every node decides by it, what checks on a node see of it, and
//! what a thousand followers cost the admin server.
//!
//! The admin server is a process of its own, the nodes are engines of this one, each with its follower. All of them have to
//! compile on the processors of this machine, which is what a fleet on machines of its own does not have to.
//!
//!     cargo build --release --no-default-features && cargo run --release -p tidegate-benches --bin fleet

#![expect(clippy::disallowed_methods, reason = "time is what is measured")]
#![expect(clippy::print_stdout, reason = "it prints its figures")]

use std::{
    error::Error,
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
use tidegate_benches::admin_session::AdminSession;
use tidegate_fleet::{Agent, AgentHandle, Token};
use tokio::runtime::{self, Runtime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// After this long a node will not follow any more.
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, Box<dyn Error>>;

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

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    // Four threads compile and write: a fresh one for each node would mostly have its memory zeroed.
    let runtime =
        runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(4).enable_all().build()?;
    for clients in [0, arguments.clients] {
        let admin = Admin::start(&arguments.binary, clients)?;
        let changes = [
            Change::Limit,
            Change::Zone,
            Change::Clients(100),
            Change::Clients(clients / 10),
            Change::Clients(clients),
        ];
        let changes = if clients > 0 { &changes[..] } else { &changes[..1] };
        for (change, nodes) in changes.iter().flat_map(|change| [1, arguments.nodes].map(|nodes| (change, nodes))) {
            publishes(&runtime, &admin, nodes, arguments.rounds, change)?;
        }
        if clients > 0 {
            checks(&runtime, &admin, arguments.rounds)?;
        }
    }
    followers(&runtime, &Admin::start(&arguments.binary, 0)?, arguments.followers)
}

/// What is published.
#[derive(Debug)]
enum Change {
    /// A tier's limit is another.
    Limit,
    /// So many clients, one in every few, have another tier. If more than a quarter of the policy differs then, every node is
    /// sent the whole.
    Clients(usize),
    /// The time zone is another.
    Zone,
}

/// From the request of a publish until each node decides by it.
fn publishes(runtime: &Runtime, admin: &Admin, nodes: usize, rounds: usize, change: &Change) -> Outcome<()> {
    let folder = TempDir::new()?;
    let nodes = (0..nodes).map(|node| Node::start(runtime, admin, &folder.path().join(node.to_string())));
    let nodes = nodes.collect::<Outcome<Vec<Node>>>()?;
    let (mut answered, mut swapped) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // What nodes write and acknowledge after a swap is not part of the next: let them come to rest.
        thread::sleep(Duration::from_millis(if nodes.len() > 1 { 2_000 } else { 500 }));
        let next = admin.version.load(Ordering::Relaxed) + 1;
        let (mut waiting, began) = (nodes.iter().collect::<Vec<_>>(), Instant::now());
        thread::scope(|scope| -> Outcome<()> {
            let publish = scope.spawn(|| admin.publish(change).map_err(|error| error.to_string()));
            while !(waiting.is_empty() || publish.is_finished() && began.elapsed() > PATIENCE) {
                thread::sleep(Duration::from_micros(200));
                waiting.retain(|node| node.engine.version() < next);
                swapped.resize((round + 1) * nodes.len() - waiting.len(), began.elapsed());
            }
            answered.push(publish.join().expect("no panic")?);
            if waiting.is_empty() { Ok(()) } else { Err(format!("{} nodes do not follow", waiting.len()).into()) }
        })?;
    }
    println!(
        "{} clients, {change:?}, {} nodes: swapped after {}, the publish answered after {}",
        admin.clients,
        nodes.len(),
        spread(&mut swapped),
        spread(&mut answered)
    );
    Ok(())
}

/// What checks on a node take while it is published to, and while it is not.
fn checks(runtime: &Runtime, admin: &Admin, rounds: usize) -> Outcome<()> {
    let folder = TempDir::new()?;
    let node = Node::start(runtime, admin, folder.path())?;
    for is_published in [false, true] {
        let stop = AtomicBool::new(false);
        let mut took = thread::scope(|scope| -> Outcome<Vec<Duration>> {
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
            spread(&mut took)
        );
    }
    Ok(())
}

/// What idle followers cost the admin server.
fn followers(runtime: &Runtime, admin: &Admin, followers: usize) -> Outcome<()> {
    let before = admin.resident_kb()?;
    let started = (0..followers).map(|node| {
        let follower = Agent::new(&admin.session.url, Token::file(&admin.token)).named(format!("idle-{node}"));
        runtime.block_on(follower.start(Arc::new(Engine::with_max_keys(1))))
    });
    let started = started.collect::<Result<Vec<AgentHandle>, _>>()?;
    for following in &started {
        runtime.block_on(following.has_policy());
    }
    thread::sleep(Duration::from_secs(15));
    let connected = started.iter().filter(|following| following.status().is_connected).count();
    let after = admin.resident_kb()?;
    println!(
        "{connected} of {followers} idle followers connected: the admin server has {} MB more than the {} MB before",
        (after - before) / 1_024,
        before / 1_024
    );
    Ok(())
}

/// A node of this process.
struct Node {
    engine: Arc<Engine>,
    _following: AgentHandle,
}

impl Node {
    /// Waits until it decides by a policy.
    fn start(runtime: &Runtime, admin: &Admin, folder: &Path) -> Outcome<Self> {
        let engine = Arc::new(Engine::with_max_keys(10_000));
        let name = format!("node-{}", folder.display()).replace('/', "-");
        let follower =
            Agent::new(&admin.session.url, Token::file(&admin.token)).named(&name[name.len().saturating_sub(60)..]);
        let following = runtime.block_on(follower.keeping_in(folder).start(Arc::clone(&engine)))?;
        runtime.block_on(following.has_policy());
        Ok(Self { engine, _following: following })
    }
}

/// An admin server, signed in to.
struct Admin {
    child: Child,
    session: AdminSession,
    token: PathBuf,
    /// Of its policy.
    clients: usize,
    /// Of the policy in force.
    version: AtomicU64,
    _folder: TempDir,
}

impl Admin {
    /// With so many clients in its policy.
    fn start(binary: &Path, clients: usize) -> Outcome<Self> {
        let folder = TempDir::new()?;
        let file = folder.path().join("policy.json");
        fs::write(&file, policy(clients).to_string())?;
        let mut child = Command::new(binary)
            .args(["admin", "--admin", "127.0.0.1:0", "--log", "error"])
            // All followers come from one address.
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

    /// Publishes a change; how long that took.
    fn publish(&self, change: &Change) -> Outcome<Duration> {
        let base = self.version.load(Ordering::Relaxed);
        match change {
            Change::Limit => {
                let etag = self.session.get("/tiers/free")?["etag"].clone();
                let change = json!({ "op": "put", "kind": "tier", "id": "free", "value": tier("free", 1_000 + base) });
                self.publish_one(&json!({ "tier:free": etag }), &change)
            }
            Change::Clients(changed) => {
                let tier = if base.is_multiple_of(2) { "free" } else { "pro" };
                let numbers = (0..self.clients).step_by((self.clients / changed.max(&1)).max(1));
                let lines = numbers.map(|number| format!("user,{},{tier}", value(number)));
                let lines = ["kind,value,tier".to_owned()].into_iter().chain(lines).collect::<Vec<String>>().join("\n");
                let began = Instant::now();
                let published = self.session.send("/clients/import?message=bench", "text/csv", &lines)?;
                self.is_published(began, &published)
            }
            Change::Zone => {
                let etag = self.session.get("/domains/default")?["etag"].clone();
                let zone = if base.is_multiple_of(2) { "Asia/Tokyo" } else { "Europe/Berlin" };
                let change = json!({ "op": "patch", "kind": "domain", "id": "default", "value": { "timezone": zone } });
                self.publish_one(&json!({ "domain:default": etag }), &change)
            }
        }
    }

    fn publish_one(&self, if_match: &Value, change: &Value) -> Outcome<Duration> {
        let base = self.version.load(Ordering::Relaxed);
        let list = json!({ "base_version": base, "message": "bench", "if_match": if_match, "changes": [change] });
        let began = Instant::now();
        let published = self.session.post("/policy/changes", &list)?;
        self.is_published(began, &published)
    }

    fn is_published(&self, began: Instant, published: &Value) -> Outcome<Duration> {
        let took = began.elapsed();
        self.version.store(published["version"].as_u64().ok_or("no version")?, Ordering::Relaxed);
        Ok(took)
    }

    /// Memory that it has from the machine.
    fn resident_kb(&self) -> Outcome<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no such line")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Two tiers, and so many clients of the second.
fn policy(clients: usize) -> Value {
    let client = |number: usize| json!({ "kind": "user", "value": value(number), "tier": "pro" });
    let clients: Vec<Value> = (0..clients).map(client).collect();
    let tiers = [tier("free", 100), tier("pro", 10_000)];
    json!({ "domains": { "default": { "defaults": { "user": "free" }, "tiers": tiers, "clients": clients } } })
}

fn tier(id: &str, limit: u64) -> Value {
    let limits = json!([{ "id": "minute", "algorithm": "token_bucket", "limit": limit, "period": "1m" }]);
    json!({ "id": id, "limits": limits })
}

/// Of a client.
fn value(number: usize) -> String {
    if number.is_multiple_of(2) { format!("u{number}") } else { format!("team{}-u{number}", number % 100) }
}

/// Median, 99th percentile and maximum.
fn spread(took: &mut [Duration]) -> String {
    took.sort_unstable();
    let at = |per_mille: usize| took[(took.len() * per_mille).div_ceil(1_000).clamp(1, took.len()) - 1];
    format!("{:.1?} (median), {:.1?} (p99), {:.1?} (most), of {}", at(500), at(990), at(1_000), took.len())
}
