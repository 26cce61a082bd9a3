//! A fleet of real processes: an admin server and nodes that are killed, cut off, rejected, and sent false answers.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_testkit::{PATIENCE, certificate::Authority, port::ReservedPort, postgres::Database, wait_until};

use crate::support::{
    command,
    fleet::write_token,
    server::Served,
    session::{Session, check},
};

/// Declares each of these tests twice: with `SQLite`'s file, and over `PostgreSQL`.
macro_rules! over_both_databases {
    ($($name:ident)*) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(super::Home::Sqlite); })*
        }

        mod postgres {
            $(#[test] #[ignore = "needs PostgreSQL"] fn $name() { super::$name(super::Home::Postgres); })*
        }
    };
    ($($reason:literal $name:ident)*) => {
        mod sqlite {
            $(#[test] #[ignore = $reason] fn $name() { super::$name(super::Home::Sqlite); })*
        }

        mod postgres {
            $(#[test] #[ignore = $reason] fn $name() { super::$name(super::Home::Postgres); })*
        }
    };
}

/// The database of an admin server.
#[derive(Clone, Copy, Debug)]
enum Home {
    Sqlite,
    Postgres,
}

/// An admin server with its administrator, and a token for nodes.
struct Fleet {
    folder: TempDir,
    admin: Served,
    ana: Session,
    token: PathBuf,
    token_id: String,
    /// The admin server's port, at which it is started again after it was killed.
    port: ReservedPort,
    database: Option<Database>,
}

impl Fleet {
    fn start(home: Home) -> Self {
        let database = match home {
            Home::Sqlite => None,
            Home::Postgres => Some(Database::migrated()),
        };
        let (folder, port) = (TempDir::new().expect("a folder"), ReservedPort::new());
        let address = port.address().to_string();
        let admin = Served::admin_alone(&address, &folder.path().join("admin"), &on(database.as_ref()));
        let ana = Session::of_first_administrator(&admin);
        let token = folder.path().join("token");
        let token_id = new_token(&admin, &ana, "fleet", &token);
        Self { folder, admin, ana, token, token_id, port, database }
    }

    fn node(&self, name: &str) -> Served {
        self.node_by(&self.admin.admin, name)
    }

    /// One that reaches the admin server at this address.
    fn node_by(&self, url: &str, name: &str) -> Served {
        Served::node(url, &self.token, name, &self.data(name))
    }

    fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Publishes the tier `free` with this limit, on top of this version.
    fn publish(&self, version: u64, limit: u64) {
        let etag = self.ana.get(&self.admin, "/tiers/free")["etag"].as_str().expect("a tag").to_owned();
        assert_eq!(self.ana.publish(&self.admin.admin, version, &etag, limit), Some(version + 1));
    }

    /// A change of the tier `free` to this limit, on top of this version, for a node first.
    fn list(&self, version: u64, limit: u64, node: Option<&str>) -> Value {
        let etag = self.ana.get(&self.admin, "/tiers/free")["etag"].clone();
        let limit = json!({ "id": "minute", "algorithm": "token_bucket", "limit": limit, "period": "1m" });
        json!({
            "base_version": version, "message": "staged", "if_match": { "tier:free": etag }, "nodes": node.map(|node| [node]),
            "changes": [{ "op": "put", "kind": "tier", "id": "free", "value": { "id": "free", "limits": [limit] } }],
        })
    }

    /// Publishes the tier `free` with this limit to this node.
    fn stage(&self, version: u64, limit: u64, node: &str) {
        let list = self.list(version, limit, Some(node));
        let (status, made) = self.ana.send(&self.admin, "POST", "/policy/changes", &list);
        assert_eq!((status, &made["version"]), (201, &json!(version + 1)), "{made}");
    }

    fn kill_admin(&mut self) {
        self.admin.kill();
    }

    /// Starts the admin server again at the same address.
    fn restart_admin(&mut self) {
        let address = self.port.address().to_string();
        self.admin = Served::admin_alone(&address, &self.data("admin"), &on(self.database.as_ref()));
    }

    /// Waits until the node has the version in force on its disk.
    fn is_kept(&self, name: &str, version: u64) {
        let file = self.data(name).join("last-good.json");
        let has = format!("{{\"version\":{version},");
        wait_until("it is kept", || fs::read_to_string(&file).is_ok_and(|text| text.contains(&has)));
    }

    fn row(&self, name: &str) -> Value {
        self.ana.get(&self.admin, &format!("/nodes/{name}"))
    }

    /// Waits until each of these nodes has reported in two more seconds: by then it has what it was to be sent.
    fn report_twice(&self, names: &[&str]) {
        let seconds = |name: &&str| {
            let history = self.ana.get(&self.admin, &format!("/nodes/{name}/history"));
            history["items"].as_array().expect("seconds").len()
        };
        let before: Vec<usize> = names.iter().map(seconds).collect();
        wait_until("they report twice", || {
            names.iter().map(seconds).zip(&before).all(|(now, before)| now >= before + 2)
        });
    }
}

/// Returns the arguments of an admin server on this database.
fn on(database: Option<&Database>) -> Vec<&str> {
    database.map_or_else(Vec::new, |database| vec!["--database", database.url()])
}

/// Makes a token of the scope `node`, and writes it into this file; its id.
fn new_token(admin: &Served, ana: &Session, name: &str, file: &Path) -> String {
    let (status, made) = ana.send(admin, "POST", "/tokens", &json!({ "name": name, "scope": "node" }));
    assert_eq!(status, 201, "{made}");
    write_token(file, made["secret"].as_str().expect("a secret"));
    made["id"].as_str().expect("an id").to_owned()
}

/// Version and limit that a node decides by.
fn decides_by(node: &Served) -> (u64, Option<u64>) {
    let (_, decision) = check(node, "ada");
    (decision["policy_version"].as_u64().expect("a number"), decision["limit"].as_u64())
}

fn follows(node: &Served, version: u64, limit: u64) {
    wait_until(&format!("version {version} is in force"), || decides_by(node).0 == version);
    assert_eq!(decides_by(node), (version, Some(limit)));
}

fn what_is_published_reaches_every_node_and_so_does_the_way_back(home: Home) {
    let fleet = Fleet::start(home);
    let nodes = ["n-1", "n-2", "n-3"].map(|name| fleet.node(name));
    for node in &nodes {
        follows(node, 1, 100);
    }
    fleet.publish(1, 500);
    for node in &nodes {
        follows(node, 2, 500);
    }
    let back = json!({ "to": 1, "message": "back" });
    let (status, answer) = fleet.ana.send_if(&fleet.admin, "POST", "/policy/rollback", &back, "\"policy:2\"");
    assert_eq!(status, 201, "{answer}");
    for node in &nodes {
        follows(node, 3, 100);
    }
    // Each is known by its name, with what it has and what it counted.
    for name in ["n-1", "n-2", "n-3"] {
        wait_until("it acknowledged", || fleet.row(name)["policy_version"] == 3);
        let row = fleet.row(name);
        assert_eq!((&row["presence"], &row["refused"]), (&json!("connected"), &Value::Null), "{row}");
    }
    let totals = || fleet.ana.get(&fleet.admin, "/metrics?by=node&step=1s");
    wait_until("what nodes decided is counted", || totals()["series"].as_array().is_some_and(|all| all.len() > 3));
    let reset = json!({ "request": { "identities": [{ "kind": "user", "value": "ada" }] } });
    let (status, outcome) = fleet.ana.send(&fleet.admin, "POST", "/keys/reset", &reset);
    assert_eq!((status, outcome["answers"].as_object().map(serde_json::Map::len)), (200, Some(3)), "{outcome}");
    let (_, decision) = check(&nodes[0], "ada");
    assert_eq!(decision["remaining"], 99);
}

fn a_version_goes_to_one_node_first_then_to_all_or_back_through_deaths_of_the_admin_server(home: Home) {
    let mut fleet = Fleet::start(home);
    let nodes = ["n-1", "n-2", "n-3"].map(|name| fleet.node(name));
    for node in &nodes {
        follows(node, 1, 100);
    }
    let others_keep = |fleet: &Fleet, version: u64, limit: u64| {
        fleet.report_twice(&["n-2", "n-3"]);
        for node in &nodes[1..] {
            assert_eq!(decides_by(node), (version, Some(limit)));
        }
    };
    fleet.stage(1, 500, "n-1");
    follows(&nodes[0], 2, 500);
    others_keep(&fleet, 1, 100);
    wait_until("it is told what it has", || {
        fleet.ana.get(&fleet.admin, "/rollout")["has"] == json!([{ "node": "n-1", "policy_version": 2 }])
    });
    fleet.kill_admin();
    fleet.restart_admin();
    wait_until("all are back", || ["n-1", "n-2", "n-3"].iter().all(|name| fleet.row(name)["presence"] == "connected"));
    others_keep(&fleet, 1, 100);
    assert_eq!(decides_by(&nodes[0]), (2, Some(500)));
    let go_on = |fleet: &Fleet, to: &str| fleet.ana.send(&fleet.admin, "POST", "/rollout", &json!({ "to": to }));
    assert_eq!(go_on(&fleet, "all"), (200, json!({ "version": 2, "rollout": null })));
    for node in &nodes {
        follows(node, 2, 500);
    }
    fleet.stage(2, 700, "n-1");
    follows(&nodes[0], 3, 700);
    others_keep(&fleet, 2, 500);
    assert_eq!(go_on(&fleet, "back"), (200, json!({ "version": 4, "rollout": null })));
    fleet.kill_admin();
    fleet.restart_admin();
    for node in &nodes {
        follows(node, 4, 500);
    }
}

fn a_block_reaches_the_nodes_of_both_versions_and_outlives_the_rollout(home: Home) {
    let mut fleet = Fleet::start(home);
    let nodes = ["n-1", "n-2"].map(|name| fleet.node(name));
    for node in &nodes {
        follows(node, 1, 100);
    }
    let are_by = |versions: [(u64, u64); 2], is_allowed: bool| {
        for (node, (version, limit)) in nodes.iter().zip(versions) {
            follows(node, version, limit);
            assert_eq!(check(node, "eve").1["allowed"], is_allowed);
        }
    };
    fleet.stage(1, 500, "n-1");
    are_by([(2, 500), (1, 100)], true);
    let client = json!({ "kind": "user", "value": "eve", "override": { "blocked": true, "reason": "abuse" } });
    let create = json!({ "op": "create", "kind": "client", "id": "user:eve", "value": client });
    let list = json!({ "base_version": 2, "message": "block eve", "changes": [create] });
    let (status, made) = fleet.ana.send(&fleet.admin, "POST", "/policy/changes", &list);
    assert_eq!((status, &made["version"], &made["others_version"]), (201, &json!(4), &json!(3)), "{made}");
    are_by([(4, 500), (3, 100)], false);
    fleet.kill_admin();
    fleet.restart_admin();
    wait_until("both are back", || ["n-1", "n-2"].iter().all(|name| fleet.row(name)["presence"] == "connected"));
    are_by([(4, 500), (3, 100)], false);
    let go_on = |fleet: &Fleet, to: &str| fleet.ana.send(&fleet.admin, "POST", "/rollout", &json!({ "to": to }));
    assert_eq!(go_on(&fleet, "back"), (200, json!({ "version": 5, "rollout": null })));
    are_by([(5, 100), (5, 100)], false);

    fleet.stage(5, 700, "n-1");
    are_by([(6, 700), (5, 100)], false);
    let etag = fleet.ana.get(&fleet.admin, "/clients/user:eve")["etag"].as_str().expect("a tag").to_owned();
    let (status, made) = fleet.ana.send_if(&fleet.admin, "DELETE", "/clients/user:eve/override", &json!({}), &etag);
    assert_eq!((status, &made["version"], &made["others_version"]), (201, &json!(8), &json!(7)), "{made}");
    are_by([(8, 700), (7, 100)], true);
    assert_eq!(go_on(&fleet, "all"), (200, json!({ "version": 8, "rollout": null })));
    are_by([(8, 700), (8, 700)], true);
}

/// Killed while it publishes, over and over: a version is there with its rollout, or neither is.
fn a_rollout_survives_the_death_of_the_admin_server_at_any_time(home: Home) {
    let mut fleet = Fleet::start(home);
    let node = fleet.node("n-1");
    let other = fleet.node("n-2");
    follows(&node, 1, 100);
    follows(&other, 1, 100);
    let mut version = 1;
    for turn in 0..4_u64 {
        // A name that no server has written down yet would be refused.
        wait_until("the node is there", || fleet.row("n-1")["presence"] == "connected");
        let (limit, address) = (200 + turn, fleet.admin.admin.clone());
        let list = fleet.list(version, limit, Some("n-1"));
        let answered = thread::scope(|scope| {
            let publish = scope.spawn(|| fleet.ana.try_post(&address, "/policy/changes", &list));
            // The last one is answered.
            wait_until("it was time", || publish.is_finished() || turn < 3);
            thread::sleep(Duration::from_millis(7 * turn));
            fleet.admin.kill();
            publish.join().expect("no panic")
        });
        fleet.restart_admin();
        let newest = fleet.ana.get(&fleet.admin, "/policy")["version"].as_u64().expect("a number");
        let open = fleet.ana.get(&fleet.admin, "/rollout");
        assert!(newest == version + 1 || answered != Some(201), "what was acknowledged is there");
        assert_eq!(open["version"].as_u64(), (newest > version).then_some(newest), "{open}");
        if newest > version {
            wait_until("it has it", || decides_by(&node) == (newest, Some(limit)));
            assert_eq!(decides_by(&other).0, version);
            let (status, told) = fleet.ana.send(&fleet.admin, "POST", "/rollout", &json!({ "to": "all" }));
            assert_eq!(status, 200, "{told}");
            follows(&other, newest, limit);
            version = newest;
        }
    }
    assert!(version > 1, "one was published");
}

fn nodes_decide_on_without_the_admin_server_and_follow_it_again(home: Home) {
    let mut fleet = Fleet::start(home);
    let mut nodes = ["n-1", "n-2", "n-3"].map(|name| fleet.node(name));
    fleet.publish(1, 500);
    for node in &nodes {
        follows(node, 2, 500);
    }
    for name in ["n-1", "n-2", "n-3"] {
        fleet.is_kept(name, 2);
    }
    fleet.kill_admin();
    for node in &nodes {
        assert_eq!(decides_by(node), (2, Some(500)));
    }
    // A node dies, and starts again without an admin server.
    nodes[0].kill();
    nodes[0] = fleet.node("n-1");
    assert_eq!(decides_by(&nodes[0]), (2, Some(500)), "the last good policy is in force when it says where it is");
    // A file that is damaged is said to be, and set aside; then there is no policy.
    nodes[1].kill();
    let file = fleet.data("n-2").join("last-good.json");
    let mut bytes = fs::read(&file).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).expect("written");
    nodes[1] = fleet.node("n-2");
    assert_eq!(decides_by(&nodes[1]).0, 0);
    assert!(!file.exists() && fleet.data("n-2").join("last-good.damaged").exists());
    fleet.restart_admin();
    follows(&nodes[1], 2, 500);
    fleet.publish(2, 700);
    for node in &nodes {
        follows(node, 3, 700);
    }
}

/// Between a node and its admin server; changes a letter of each policy while it is told to.
struct Liar {
    url: String,
    lies: Arc<AtomicBool>,
    told: Arc<AtomicUsize>,
}

impl Liar {
    fn before(admin: &Served) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let to = admin.admin.strip_prefix("http://").expect("an address").to_owned();
        let (lies, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let liar = Self { url, lies: Arc::clone(&lies), told: Arc::clone(&told) };
        thread::spawn(move || {
            for inside in listener.incoming() {
                let (Ok(inside), Ok(outside)) = (inside, TcpStream::connect(&to)) else { continue };
                let (from, into) = (inside.try_clone().expect("a copy"), outside.try_clone().expect("a copy"));
                thread::spawn(move || pass(from, into, |_| ()));
                let (lies, told) = (Arc::clone(&lies), Arc::clone(&told));
                thread::spawn(move || {
                    pass(outside, inside, |bytes| {
                        let begins = |before: &[u8]| {
                            let place = bytes.windows(before.len()).position(|window| window == before);
                            place.map(|place| place + before.len())
                        };
                        let place = begins(b"\"document\":\"").or_else(|| begins(b"\"delta\":\""));
                        if let Some(place) = place.filter(|_| lies.load(Ordering::SeqCst)) {
                            let letter = &mut bytes[place + 20];
                            *letter = if *letter == b'A' { b'B' } else { b'A' };
                            told.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                });
            }
        });
        liar
    }
}

/// Passes on what comes, changed, until either side ends.
fn pass(mut from: TcpStream, mut into: TcpStream, change: impl Fn(&mut [u8])) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = from.read(&mut buffer) {
        change(&mut buffer[..count]);
        if count == 0 || into.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), into.shutdown(Shutdown::Both));
}

/// A proxy rejects requests in place of the admin server with an answer that never ends, and forwards only after that.
fn an_answer_that_does_not_end_holds_no_node(home: Home) {
    let fleet = Fleet::start(home);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let to = fleet.admin.admin.strip_prefix("http://").expect("an address").to_owned();
    thread::spawn(move || {
        let (mut first, _) = listener.accept().expect("the node");
        first.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 10\r\n\r\n{").expect("it reads");
        for inside in listener.incoming() {
            let (Ok(inside), Ok(outside)) = (inside, TcpStream::connect(&to)) else { continue };
            let (from, into) = (inside.try_clone().expect("a copy"), outside.try_clone().expect("a copy"));
            thread::spawn(move || pass(from, into, |_| ()));
            thread::spawn(move || pass(outside, inside, |_| ()));
        }
        drop(first);
    });
    follows(&fleet.node_by(&url, "n-1"), 1, 100);
}

fn a_snapshot_that_is_damaged_on_its_way_changes_nothing_and_is_asked_for_again(home: Home) {
    let fleet = Fleet::start(home);
    let liar = Liar::before(&fleet.admin);
    let node = fleet.node_by(&liar.url, "n-1");
    follows(&node, 1, 100);
    liar.lies.store(true, Ordering::SeqCst);
    fleet.publish(1, 500);
    wait_until("it is told why", || {
        fleet.row("n-1")["refused"]["why"].as_str().is_some_and(|why| why.contains("damaged"))
    });
    wait_until("it asks again", || liar.told.load(Ordering::SeqCst) > 2);
    assert_eq!(decides_by(&node), (1, Some(100)));
    liar.lies.store(false, Ordering::SeqCst);
    follows(&node, 2, 500);
    wait_until("it acknowledged", || fleet.row("n-1")["refused"].is_null());
}

/// Puts clients into tiers, on top of this version; without tags, new ones.
fn assign(fleet: &Fleet, version: u64, clients: impl Iterator<Item = (usize, &'static str)>, if_match: &Value) {
    let put = |(n, tier): (usize, &str)| {
        let value = json!({ "kind": "user", "value": format!("u-{n}"), "tier": tier });
        let op = if *if_match == json!({}) { "create" } else { "put" };
        json!({ "op": op, "kind": "client", "id": format!("user:u-{n}"), "value": value })
    };
    let changes: Vec<Value> = clients.map(put).collect();
    let list = json!({ "base_version": version, "message": "tiers", "if_match": if_match, "changes": changes });
    let (status, made) = fleet.ana.send(&fleet.admin, "POST", "/policy/changes", &list);
    assert_eq!((status, &made["version"]), (201, &json!(version + 1)), "{made}");
}

fn of_many_clients_what_differs_is_sent_kept_and_checked(home: Home) {
    let mut fleet = Fleet::start(home);
    let liar = Liar::before(&fleet.admin);
    assign(&fleet, 1, (0..300).map(|n| (n, "free")), &json!({}));
    let mut nodes = [fleet.node("n-1"), fleet.node_by(&liar.url, "n-2")];
    let limit_of = |node: &Served, who: &str| {
        let (_, decision) = check(node, who);
        (decision["policy_version"].as_u64(), decision["limit"].as_u64())
    };
    let free = Some(100);
    for node in &nodes {
        wait_until("it is in force", || limit_of(node, "u-8") == (Some(2), free));
    }
    let change = |fleet: &Fleet, version: u64, client: usize| {
        let etag = fleet.ana.get(&fleet.admin, &format!("/clients/user:u-{client}"))["etag"].clone();
        let if_match = json!({ format!("client:user:u-{client}"): etag });
        assign(fleet, version, [(client, "pro")].into_iter(), &if_match);
    };
    change(&fleet, 2, 7);
    for node in &nodes {
        wait_until("the change of one client is in force", || limit_of(node, "u-8") == (Some(3), free));
        assert_ne!(limit_of(node, "u-7").1, free);
    }
    let differs = |name: &str| {
        let files = fs::read_dir(fleet.data(name)).expect("a folder").map(|file| file.expect("a file").path());
        let log = files.into_iter().find(|file| file.extension().is_some_and(|ext| ext == "deltas"));
        log.and_then(|log| fs::read_to_string(log).ok()).map_or(0, |text| text.lines().count())
    };
    wait_until("it is kept", || differs("n-1") == 1 && differs("n-2") == 1);
    fleet.is_kept("n-1", 2);

    // What was damaged on its way is not taken in, nor is the whole policy in its place.
    liar.lies.store(true, Ordering::SeqCst);
    change(&fleet, 3, 9);
    wait_until("the other node has it", || limit_of(&nodes[0], "u-8").0 == Some(4));
    wait_until("it is told why", || {
        fleet.row("n-2")["refused"]["why"].as_str().is_some_and(|why| why.contains("damaged"))
    });
    assert_eq!(limit_of(&nodes[1], "u-9"), (Some(3), free));
    liar.lies.store(false, Ordering::SeqCst);
    wait_until("it is in force", || limit_of(&nodes[1], "u-8").0 == Some(4));
    assert_ne!(limit_of(&nodes[1], "u-9").1, free);

    // A node that dies starts with the whole policy, with or without an admin server.
    wait_until("it is kept", || differs("n-1") == 2);
    fleet.admin.kill();
    nodes[0].kill();
    nodes[0] = fleet.node("n-1");
    assert_eq!(limit_of(&nodes[0], "u-8"), (Some(4), free));
    assert!([7, 9].iter().all(|n| limit_of(&nodes[0], &format!("u-{n}")).1 != free));
    fleet.restart_admin();
    change(&fleet, 4, 11);
    for node in &nodes {
        wait_until("it is in force", || limit_of(node, "u-8").0 == Some(5));
        assert_ne!(limit_of(node, "u-11").1, free);
    }
}

fn signal(served: &Served, signal: &str) {
    let sent = Command::new("kill").args([signal, &served.id().to_string()]).status().expect("kill is there");
    assert!(sent.success());
}

/// Returns how long it took until a node that hangs was seen.
#[expect(clippy::disallowed_methods, reason = "how soon it is seen is measured")]
fn hang_a_node(home: Home) -> Duration {
    let fleet = Fleet::start(home);
    let node = fleet.node("n-1");
    follows(&node, 1, 100);
    wait_until("it is there", || fleet.row("n-1")["presence"] == "connected");
    signal(&node, "-STOP");
    let began = Instant::now();
    wait_until("it is seen", || fleet.row("n-1")["presence"] == "silent");
    let took = began.elapsed();
    fleet.publish(1, 500);
    signal(&node, "-CONT");
    follows(&node, 2, 500);
    wait_until("it is there again", || fleet.row("n-1")["presence"] == "connected");
    took
}

fn a_node_that_hangs_is_seen_within_seconds(home: Home) {
    hang_a_node(home);
}

fn a_node_that_dies_is_missed_until_it_is_back_or_removed_and_one_that_stops_is_not(home: Home) {
    let fleet = Fleet::start(home);
    let (mut dies, mut goes, stops) = (fleet.node("dies"), fleet.node("goes"), fleet.node("stops"));
    let is = |name: &str, presence: &str| wait_until(presence, || fleet.row(name)["presence"] == presence);
    for name in ["dies", "goes", "stops"] {
        is(name, "connected");
    }
    let missed = || {
        let alerts = fleet.ana.get(&fleet.admin, "/alerts");
        let gone = alerts["items"].as_array().expect("a list").iter().filter(|alert| alert["code"] == "node_gone");
        gone.map(|alert| alert["node"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    signal(&stops, "-TERM");
    assert_eq!(stops.wait(), Some(0));
    assert_eq!(fleet.row("stops")["presence"], "stopped", "it said so before it ended");
    dies.kill();
    goes.kill();
    for name in ["dies", "goes"] {
        is(name, "gone");
    }
    wait_until("they are missed", || missed() == ["dies", "goes"]);
    let dies = fleet.node("dies");
    follows(&dies, 1, 100);
    wait_until("it is back", || missed() == ["goes"]);
    assert_eq!(fleet.ana.send(&fleet.admin, "DELETE", "/nodes/goes", &json!({})).0, 204);
    assert_eq!(missed(), Vec::<String>::new());
    assert_eq!(fleet.row("stops")["presence"], "stopped");
}

/// Memory of a process that is really there, in MiB.
fn memory(served: &Served) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", served.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") >> 10
}

/// A fleet of one node, and readers of the same stream that do not read: the policy is more than the sockets hold.
struct Readers {
    fleet: Fleet,
    node: Served,
    /// Memory of the admin server before they came, in MiB.
    before: u64,
    streams: Vec<TcpStream>,
}

impl Readers {
    const COUNT: usize = 60;

    fn start(home: Home) -> Self {
        const CLIENTS: u64 = 8_000;
        let fleet = Fleet::start(home);
        // Values that cannot be packed: more than the sockets hold.
        let client = |number: u64| {
            let part = |part: u64| format!("{:016x}", RandomState::new().hash_one((number, part)));
            let value = (0..60).map(part).collect::<Vec<_>>().concat();
            json!({ "kind": "user", "value": value, "tier": "free" })
        };
        let mut document = fleet.ana.get(&fleet.admin, "/policy")["document"].clone();
        document["domains"]["default"]["clients"] = (0..CLIENTS).map(client).collect();
        let files = json!({ "files": [{ "name": "a.json", "text": document.to_string() }] });
        let (status, made) = fleet.ana.send_if(&fleet.admin, "POST", "/policy/import", &files, "\"policy:1\"");
        assert_eq!(status, 201, "{made}");
        let node = fleet.node("n-1");
        follows(&node, 2, 100);
        let secret = fs::read_to_string(&fleet.token).expect("it is there");
        let before = memory(&fleet.admin);
        let streams = (0..Self::COUNT)
            .map(|number| {
                let to = fleet.admin.admin.strip_prefix("http://").expect("an address");
                let mut reader = TcpStream::connect(to).expect("it listens");
                let path = format!("/api/v1/snapshots/stream?name=slow-{number}&instance=a&schema=2");
                let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", secret.trim());
                reader.write_all(head.as_bytes()).expect("it reads");
                reader
            })
            .collect();
        Self { fleet, node, before, streams }
    }

    /// Returns by how many MiB the memory of the admin server has grown since they came.
    fn grown(&self) -> u64 {
        memory(&self.fleet.admin).saturating_sub(self.before)
    }

    /// Publishes, and waits until the node has it: it does not wait for the readers.
    fn assert_that_they_hold_no_node(&self) {
        self.fleet.publish(2, 500);
        follows(&self.node, 3, 500);
    }
}

fn readers_that_do_not_read_cost_no_memory_and_hold_no_node(home: Home) {
    let readers = Readers::start(home);
    for stream in &readers.streams {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        assert_eq!(stream.peek(&mut [0]).expect("it is answered"), 1);
    }
    // The memory of the first pieces is freed. One copy of the policy for each reader would take 480 MiB until the server closes
    // their streams.
    let is_little = || {
        let grown = readers.grown();
        assert!(grown < 200, "{} readers took {grown} MiB", Readers::COUNT);
        grown < 64
    };
    wait_until("the readers cost less than 64 MiB", is_little);
    readers.assert_that_they_hold_no_node();
    wait_until("the readers cost less than 64 MiB", is_little);
}

mod long {
    use super::*;

    /// The admin server takes the longest of all to give them up: 20 seconds.
    fn readers_that_do_not_read_cost_no_memory_and_are_told_to_begin_anew(home: Home) {
        let mut readers = Readers::start(home);
        thread::sleep(Duration::from_secs(22));
        let grown = readers.grown();
        assert!(grown < 64, "{} readers took {grown} MiB", Readers::COUNT);
        readers.assert_that_they_hold_no_node();
        let reader = &mut readers.streams[0];
        reader.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let mut told = Vec::new();
        let mut piece = vec![0; 1 << 16];
        // Until it ends, or says nothing but that it is alive.
        while let Ok(count @ 1..) = reader.read(&mut piece) {
            told.extend_from_slice(&piece[..count]);
            if told.ends_with(b"0\r\n\r\n") || piece[..count].windows(7).any(|bytes| bytes == b": alive") {
                break;
            }
        }
        assert!(told.len() > 4 << 20, "it is more than the sockets hold: {}", told.len());
        let end = String::from_utf8_lossy(&told[told.len() - 200..]);
        assert!(end.contains("event: restart"), "{end}");
    }

    fn a_node_that_hangs_is_seen_within_eight_seconds(home: Home) {
        let took = hang_a_node(home);
        assert!(took < Duration::from_secs(8), "{took:?}");
    }

    over_both_databases! {
        "long: the 20 seconds after which slow readers are given up"
        readers_that_do_not_read_cost_no_memory_and_are_told_to_begin_anew
        "long: bounds the time until a node is missed, which a busy machine does not keep"
        a_node_that_hangs_is_seen_within_eight_seconds
    }
}

/// A copy of the admin server's folder takes the place of a newer one: versions are counted anew from there.
#[test]
fn nodes_follow_an_admin_server_whose_database_was_put_back() {
    let mut fleet = Fleet::start(Home::Sqlite);
    let mut nodes = ["n-1", "n-2"].map(|name| fleet.node(name));
    fleet.kill_admin();
    let (data, copy) = (fleet.data("admin"), fleet.data("copy"));
    let copied = Command::new("cp").arg("-r").args([&data, &copy]).status().expect("cp is there");
    assert!(copied.success());
    fleet.restart_admin();
    fleet.publish(1, 500);
    for node in &nodes {
        follows(node, 2, 500);
    }
    fleet.is_kept("n-2", 2);
    nodes[1].kill();
    fleet.publish(2, 600);
    follows(&nodes[0], 3, 600);
    fleet.kill_admin();
    fs::remove_dir_all(&data).expect("it is there");
    fs::rename(&copy, &data).expect("it is there");
    fleet.restart_admin();
    follows(&nodes[0], 1, 100);
    // Another version 2 than the one that the other node has on its disk.
    fleet.publish(1, 700);
    follows(&nodes[0], 2, 700);
    nodes[1] = fleet.node("n-2");
    wait_until("it has the other version 2", || decides_by(&nodes[1]) == (2, Some(700)));
    for name in ["n-1", "n-2"] {
        wait_until("it acknowledged", || {
            fleet.row(name)["policy_version"] == 2 && fleet.row(name)["refused"].is_null()
        });
    }
    fleet.is_kept("n-1", 2);
    // A start without the admin server begins with what was put back.
    fleet.kill_admin();
    nodes[0].kill();
    nodes[0] = fleet.node("n-1");
    assert_eq!(decides_by(&nodes[0]), (2, Some(700)));
}

fn nodes_follow_over_tls_whom_they_know(home: Home) {
    let mut fleet = Fleet::start(home);
    let (status, script) = fleet.ana.send(&fleet.admin, "POST", "/tokens", &json!({ "name": "ci", "role": "editor" }));
    assert_eq!(status, 201, "{script}");
    let policy = fleet.data("policy.json");
    let mut document = fleet.ana.get(&fleet.admin, "/policy")["document"].clone();
    document["domains"]["default"]["tiers"][0]["limits"][0]["limit"] = json!(500);
    fs::write(&policy, document.to_string()).expect("written");
    fleet.kill_admin();
    let authority = Authority::new();
    let path = |name: &str| fleet.data(name).to_str().expect("UTF-8").to_owned();
    let [certificate, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(path);
    authority.write(certificate.as_ref(), key.as_ref());
    fs::write(&ca, &authority.pem).expect("written");
    let mut arguments = on(fleet.database.as_ref());
    arguments.extend(["--admin-tls-cert", &certificate, "--admin-tls-key", &key]);
    let admin = Served::admin_alone("127.0.0.1:0", &fleet.data("admin"), &arguments);
    assert!(admin.admin.starts_with("https://"));
    let node = Served::node_with(&admin.admin, &fleet.token, "n-1", &fleet.data("n-1"), &["--ca", &ca]);
    let stranger = Served::node(&admin.admin, &fleet.token, "n-2", &fleet.data("n-2"));
    follows(&node, 1, 100);
    let mut publish = command();
    publish.args(["policy", "publish", "--message", "over TLS", "--ca", &ca, "--admin", &admin.admin]).arg(&policy);
    let published = publish.env("TIDEGATE_TOKEN", script["secret"].as_str().expect("text")).output().expect("it runs");
    assert!(published.status.success(), "{published:?}");
    follows(&node, 2, 500);
    assert_eq!(decides_by(&stranger).0, 0, "it knows nobody who vouches for the admin server");
}

#[test]
fn an_admin_server_alone_counts_networks_as_its_nodes_do() {
    let folder = TempDir::new().expect("a folder");
    let admin = Served::admin_alone("127.0.0.1:0", &folder.path().join("admin"), &["--ipv6-prefix", "48"]);
    let ana = Session::of_first_administrator(&admin);
    let asked = json!({ "identities": [{ "kind": "ip", "value": "2001:DB8:1:2::7" }] });
    let (status, explained) = ana.send(&admin, "POST", "/explain", &asked);
    assert_eq!((status, &explained["identities"][0]["value"]), (200, &json!("2001:db8:1::")), "{explained}");
    let output = command().args(["admin", "--ipv6-prefix", "129"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("write a number of bits from 1 to 128"), "{said}");
}

fn a_node_whose_token_was_revoked_keeps_its_policy_until_it_has_another(home: Home) {
    let fleet = Fleet::start(home);
    let node = fleet.node("n-1");
    follows(&node, 1, 100);
    let (status, _) = fleet.ana.send(&fleet.admin, "DELETE", &format!("/tokens/{}", fleet.token_id), &json!({}));
    assert_eq!(status, 204);
    wait_until("its stream ends", || fleet.row("n-1")["presence"] != "connected");
    fleet.publish(1, 500);
    let refused = || fleet.ana.get(&fleet.admin, "/audit?action=refused")["items"].as_array().expect("lines").len();
    let before = refused();
    wait_until("it comes again and is refused", || refused() > before);
    assert_eq!(decides_by(&node), (1, Some(100)), "it is told nothing any more");
    new_token(&fleet.admin, &fleet.ana, "fleet-again", &fleet.token);
    follows(&node, 2, 500);
}

fn a_second_process_of_a_name_is_refused_and_says_so(home: Home) {
    let fleet = Fleet::start(home);
    let first = fleet.node("n-1");
    follows(&first, 1, 100);
    let other = fleet.folder.path().join("other");
    let second = Served::node(&fleet.admin.admin, &fleet.token, "n-1", &other);
    wait_until("it is refused", || second.has_logged("give one of them another name"));
    assert_eq!(decides_by(&second).0, 0, "it has no policy");
    assert_eq!(decides_by(&first).0, 1);
    drop(first);
    follows(&second, 1, 100);
    // What keeps a node from starting is said at once.
    let none = fleet.folder.path().join("none");
    let mut run = command();
    run.args(["node", "--admin", &fleet.admin.admin, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--token-file"]);
    let ended = run.arg(&none).arg("--data").arg(&other).output().expect("it ends");
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("none"), "{ended:?}");
}

fn a_policy_that_a_connected_node_cannot_read_is_refused_with_its_name(home: Home) {
    let fleet = Fleet::start(home);
    let node = fleet.node("n-1");
    follows(&node, 1, 100);
    let secret = fs::read_to_string(&fleet.token).expect("it is there");
    let url = format!("{}/api/v1/snapshots/stream?name=old-1&instance=a&schema=1", fleet.admin.admin);
    let old = ureq::get(url).header("authorization", format!("Bearer {}", secret.trim())).call().expect("it opens");
    let etag = fleet.ana.get(&fleet.admin, "/tiers/free")["etag"].as_str().expect("a tag").to_owned();
    let limit = json!({ "id": "day", "algorithm": "fixed_window", "limit": 9, "period": "day" });
    let mut list = json!({
        "base_version": 1, "message": "a day", "if_match": { "tier:free": etag },
        "changes": [{ "op": "put", "kind": "tier", "id": "free", "value": { "id": "free", "limits": [limit] } }],
    });
    let (status, refused) = fleet.ana.send(&fleet.admin, "POST", "/policy/changes", &list);
    assert_eq!((status, &refused["code"]), (409, &json!("node_cannot_read")));
    assert!(refused["detail"].as_str().expect("text").contains("old-1"), "{refused}");
    list["force"] = json!(true);
    assert_eq!(fleet.ana.send(&fleet.admin, "POST", "/policy/changes", &list).0, 201);
    follows(&node, 2, 9);
    drop(old);
}

over_both_databases! {
    what_is_published_reaches_every_node_and_so_does_the_way_back
    a_version_goes_to_one_node_first_then_to_all_or_back_through_deaths_of_the_admin_server
    a_block_reaches_the_nodes_of_both_versions_and_outlives_the_rollout
    a_rollout_survives_the_death_of_the_admin_server_at_any_time
    nodes_decide_on_without_the_admin_server_and_follow_it_again
    an_answer_that_does_not_end_holds_no_node
    a_snapshot_that_is_damaged_on_its_way_changes_nothing_and_is_asked_for_again
    of_many_clients_what_differs_is_sent_kept_and_checked
    a_node_that_hangs_is_seen_within_seconds
    a_node_that_dies_is_missed_until_it_is_back_or_removed_and_one_that_stops_is_not
    readers_that_do_not_read_cost_no_memory_and_hold_no_node
    nodes_follow_over_tls_whom_they_know
    a_node_whose_token_was_revoked_keeps_its_policy_until_it_has_another
    a_second_process_of_a_name_is_refused_and_says_so
    a_policy_that_a_connected_node_cannot_read_is_refused_with_its_name
}
