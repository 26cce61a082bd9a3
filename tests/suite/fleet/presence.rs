//! The presence of nodes: nodes that hang, are killed, stop, or take the name of another.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;
use tidegate_testkit::wait_until;

use super::{Fleet, Home, decides_by, follows};
use crate::support::{command, server::Served};

fn signal(served: &Served, signal: &str) {
    let sent = Command::new("kill").args([signal, &served.id().to_string()]).status().expect("kill is there");
    assert!(sent.success());
}

/// Stops a node by SIGSTOP until the admin server shows it as silent, and resumes it. Returns how long that took.
#[expect(clippy::disallowed_methods, reason = "the time until the node is silent is measured")]
fn stop_and_resume_a_node(home: Home) -> Duration {
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

fn a_hung_node_becomes_silent(home: Home) {
    stop_and_resume_a_node(home);
}

fn a_killed_node_raises_an_alert_until_it_is_back_or_removed_and_a_stopped_one_none(home: Home) {
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

fn a_second_node_of_a_name_is_rejected_and_logs_it(home: Home) {
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
    // A startup error ends the process at once.
    let none = fleet.folder.path().join("none");
    let mut run = command();
    run.args(["node", "--admin", &fleet.admin.admin, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--token-file"]);
    let ended = run.arg(&none).arg("--data").arg(&other).output().expect("it ends");
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("none"), "{ended:?}");
}

over_both_databases! {
    a_hung_node_becomes_silent
    a_killed_node_raises_an_alert_until_it_is_back_or_removed_and_a_stopped_one_none
    a_second_node_of_a_name_is_rejected_and_logs_it
}

mod long {
    use super::*;

    fn a_hung_node_becomes_silent_within_eight_seconds(home: Home) {
        let took = stop_and_resume_a_node(home);
        assert!(took < Duration::from_secs(8), "{took:?}");
    }

    over_both_databases! {
        "long: bounds the time until a node is missed, which a busy machine does not keep"
        a_hung_node_becomes_silent_within_eight_seconds
    }
}
