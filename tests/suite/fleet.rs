//! Tests of a fleet of real processes: an admin server and the nodes that follow it, killed, disconnected and restored.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_testkit::{certificate::Authority, port::ReservedPort, postgres::Database, wait_until};

use crate::support::{
    command,
    fleet::write_token,
    server::Served,
    session::{Session, check},
};

/// Declares each of these tests twice: over `SQLite`, and over `PostgreSQL`.
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

mod faulty_proxy;
mod presence;
mod rollouts;
mod slow_readers;

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
    /// The port of the admin server, which it keeps when it is started again.
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

    /// Starts a node that reaches the admin server at this address.
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

    /// Returns a change list that sets the tier `free` to this limit, on top of this version; for one node first if it is named.
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

    /// Waits until the node has stored this version on its disk.
    fn is_kept(&self, name: &str, version: u64) {
        let file = self.data(name).join("last-good.json");
        let has = format!("{{\"version\":{version},");
        wait_until("it is kept", || fs::read_to_string(&file).is_ok_and(|text| text.contains(&has)));
    }

    fn row(&self, name: &str) -> Value {
        self.ana.get(&self.admin, &format!("/nodes/{name}"))
    }

    /// Waits until each of these nodes has sent two more reports. By then the messages of the admin server have arrived.
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

/// Creates a token of the scope `node`, and writes it into this file. Returns its id.
fn new_token(admin: &Served, ana: &Session, name: &str, file: &Path) -> String {
    let (status, made) = ana.send(admin, "POST", "/tokens", &json!({ "name": name, "scope": "node" }));
    assert_eq!(status, 201, "{made}");
    write_token(file, made["secret"].as_str().expect("a secret"));
    made["id"].as_str().expect("an id").to_owned()
}

/// Returns the version and the limit by which a node decides.
fn decides_by(node: &Served) -> (u64, Option<u64>) {
    let (_, decision) = check(node, "ada");
    (decision["policy_version"].as_u64().expect("a number"), decision["limit"].as_u64())
}

fn follows(node: &Served, version: u64, limit: u64) {
    wait_until(&format!("version {version} is in force"), || decides_by(node).0 == version);
    assert_eq!(decides_by(node), (version, Some(limit)));
}

fn a_publish_and_its_rollback_reach_every_node(home: Home) {
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
    // The admin server lists each node by its name, with its version and counts.
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

fn nodes_keep_deciding_without_the_admin_server_and_follow_it_again(home: Home) {
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
    // A damaged file is renamed, and the node has no policy.
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

/// A copy of the folder of the admin server replaces a newer one: the next version is counted from the copy.
#[test]
fn nodes_follow_an_admin_server_whose_database_was_restored() {
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
    // This version 2 differs from the one on the disk of the other node.
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
    // A node that starts without the admin server uses the restored policy.
    fleet.kill_admin();
    nodes[0].kill();
    nodes[0] = fleet.node("n-1");
    assert_eq!(decides_by(&nodes[0]), (2, Some(700)));
}

fn nodes_follow_over_tls_only_a_trusted_admin_server(home: Home) {
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
    assert_eq!(decides_by(&stranger).0, 0, "the node trusts no authority of the admin server");
}

#[test]
fn a_standalone_admin_server_counts_networks_as_its_nodes_do() {
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

fn a_node_whose_token_was_revoked_keeps_its_policy_until_it_gets_another(home: Home) {
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

fn a_policy_that_a_connected_node_cannot_read_is_rejected_with_the_node_named(home: Home) {
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
    a_publish_and_its_rollback_reach_every_node
    nodes_keep_deciding_without_the_admin_server_and_follow_it_again
    nodes_follow_over_tls_only_a_trusted_admin_server
    a_node_whose_token_was_revoked_keeps_its_policy_until_it_gets_another
    a_policy_that_a_connected_node_cannot_read_is_rejected_with_the_node_named
}
