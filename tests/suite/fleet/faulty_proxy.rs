//! Nodes that reach their admin server through a proxy that damages policies, or answers in its place.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::{Value, json};
use tidegate_testkit::wait_until;

use super::{Fleet, Home, decides_by, follows};
use crate::support::{server::Served, session::check};

/// A proxy between a node and its admin server, which can change a letter of each policy.
struct FaultyProxy {
    url: String,
    /// Whether policies are changed.
    is_damaging: Arc<AtomicBool>,
    /// The number of changed policies.
    damaged: Arc<AtomicUsize>,
}

impl FaultyProxy {
    fn before(admin: &Served) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let to = admin.admin.strip_prefix("http://").expect("an address").to_owned();
        let (is_damaging, damaged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let proxy = Self { url, is_damaging: Arc::clone(&is_damaging), damaged: Arc::clone(&damaged) };
        thread::spawn(move || {
            for inside in listener.incoming() {
                let (Ok(inside), Ok(outside)) = (inside, TcpStream::connect(&to)) else { continue };
                let (from, into) = (inside.try_clone().expect("a copy"), outside.try_clone().expect("a copy"));
                thread::spawn(move || pass(from, into, |_| ()));
                let (is_damaging, damaged) = (Arc::clone(&is_damaging), Arc::clone(&damaged));
                thread::spawn(move || {
                    pass(outside, inside, |bytes| {
                        let begins = |before: &[u8]| {
                            let place = bytes.windows(before.len()).position(|window| window == before);
                            place.map(|place| place + before.len())
                        };
                        let place = begins(b"\"document\":\"").or_else(|| begins(b"\"delta\":\""));
                        if let Some(place) = place.filter(|_| is_damaging.load(Ordering::SeqCst)) {
                            let letter = &mut bytes[place + 20];
                            *letter = if *letter == b'A' { b'B' } else { b'A' };
                            damaged.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                });
            }
        });
        proxy
    }
}

/// Forwards bytes after `change`, until either side closes the connection.
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

/// A proxy answers the first request with an error whose body never ends, and forwards all later ones.
fn a_response_that_does_not_end_blocks_no_node(home: Home) {
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

fn a_damaged_snapshot_changes_nothing_and_is_requested_again(home: Home) {
    let fleet = Fleet::start(home);
    let proxy = FaultyProxy::before(&fleet.admin);
    let node = fleet.node_by(&proxy.url, "n-1");
    follows(&node, 1, 100);
    proxy.is_damaging.store(true, Ordering::SeqCst);
    fleet.publish(1, 500);
    wait_until("the node reports why", || {
        fleet.row("n-1")["refused"]["why"].as_str().is_some_and(|why| why.contains("damaged"))
    });
    wait_until("it asks again", || proxy.damaged.load(Ordering::SeqCst) > 2);
    assert_eq!(decides_by(&node), (1, Some(100)));
    proxy.is_damaging.store(false, Ordering::SeqCst);
    follows(&node, 2, 500);
    wait_until("it acknowledged", || fleet.row("n-1")["refused"].is_null());
}

/// Publishes clients in tiers, on top of this version. With entity tags it changes clients, otherwise it creates them.
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

fn a_change_among_many_clients_is_sent_stored_and_checked_as_a_delta(home: Home) {
    let mut fleet = Fleet::start(home);
    let proxy = FaultyProxy::before(&fleet.admin);
    assign(&fleet, 1, (0..300).map(|n| (n, "free")), &json!({}));
    let mut nodes = [fleet.node("n-1"), fleet.node_by(&proxy.url, "n-2")];
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

    // A damaged delta is not applied, and neither is the damaged snapshot that follows it.
    proxy.is_damaging.store(true, Ordering::SeqCst);
    change(&fleet, 3, 9);
    wait_until("the other node has it", || limit_of(&nodes[0], "u-8").0 == Some(4));
    wait_until("the node reports why", || {
        fleet.row("n-2")["refused"]["why"].as_str().is_some_and(|why| why.contains("damaged"))
    });
    assert_eq!(limit_of(&nodes[1], "u-9"), (Some(3), free));
    proxy.is_damaging.store(false, Ordering::SeqCst);
    wait_until("it is in force", || limit_of(&nodes[1], "u-8").0 == Some(4));
    assert_ne!(limit_of(&nodes[1], "u-9").1, free);

    // A killed node starts with the whole policy, with or without an admin server.
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

over_both_databases! {
    a_response_that_does_not_end_blocks_no_node
    a_damaged_snapshot_changes_nothing_and_is_requested_again
    a_change_among_many_clients_is_sent_stored_and_checked_as_a_delta
}
