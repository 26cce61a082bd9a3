//! Readers of the stream of policies that do not read: they cost the admin server little memory, and delay no node.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use serde_json::json;
use tidegate_testkit::{PATIENCE, wait_until};

use super::{Fleet, Home, follows};
use crate::support::server::Served;

/// Returns the resident memory of a process, in MiB.
fn memory(served: &Served) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", served.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") >> 10
}

/// A fleet of one node, and connections to the same stream that are not read. The policy is larger than the buffers of the sockets.
struct Readers {
    fleet: Fleet,
    node: Served,
    /// The memory of the admin server before the connections were opened, in MiB.
    before: u64,
    streams: Vec<TcpStream>,
}

impl Readers {
    const COUNT: usize = 60;

    fn start(home: Home) -> Self {
        const CLIENTS: u64 = 8_000;
        let fleet = Fleet::start(home);
        // The values cannot be compressed, so the policy is larger than the buffers of the sockets.
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

    /// Returns by how many MiB the memory of the admin server has grown since the connections were opened.
    fn grown(&self) -> u64 {
        memory(&self.fleet.admin).saturating_sub(self.before)
    }

    /// Publishes, and waits until the node has the version, which must not wait for the readers.
    fn assert_that_readers_block_no_node(&self) {
        self.fleet.publish(2, 500);
        follows(&self.node, 3, 500);
    }
}

fn readers_that_do_not_read_cost_little_memory_and_block_no_node(home: Home) {
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
    readers.assert_that_readers_block_no_node();
    wait_until("the readers cost less than 64 MiB", is_little);
}

over_both_databases! {
    readers_that_do_not_read_cost_little_memory_and_block_no_node
}

mod long {
    use super::*;

    /// The admin server closes such a stream after 20 seconds.
    fn readers_that_do_not_read_cost_little_memory_and_get_a_restart_event(home: Home) {
        let mut readers = Readers::start(home);
        thread::sleep(Duration::from_secs(22));
        let grown = readers.grown();
        assert!(grown < 64, "{} readers took {grown} MiB", Readers::COUNT);
        readers.assert_that_readers_block_no_node();
        let reader = &mut readers.streams[0];
        reader.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let mut told = Vec::new();
        let mut piece = vec![0; 1 << 16];
        // Read until the end of the stream, or its first keep-alive message.
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

    over_both_databases! {
        "long: the 20 seconds after which slow readers are given up"
        readers_that_do_not_read_cost_little_memory_and_get_a_restart_event
    }
}
