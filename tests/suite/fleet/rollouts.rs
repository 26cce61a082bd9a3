//! Rollouts of a policy version to one node first, while the admin server is killed and started again.

use std::{thread, time::Duration};

use serde_json::json;
use tidegate_testkit::wait_until;

use super::{Fleet, Home, decides_by, follows};
use crate::support::session::check;

fn a_staged_version_goes_to_all_or_back_across_kills_of_the_admin_server(home: Home) {
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

fn a_block_reaches_the_nodes_of_both_versions_and_survives_the_rollout(home: Home) {
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

/// The admin server is killed repeatedly while it publishes: a version is stored with its rollout, or neither is.
fn a_rollout_survives_a_kill_of_the_admin_server_at_any_time(home: Home) {
    let mut fleet = Fleet::start(home);
    let node = fleet.node("n-1");
    let other = fleet.node("n-2");
    follows(&node, 1, 100);
    follows(&other, 1, 100);
    let mut version = 1;
    for turn in 0..4_u64 {
        // The admin server rejects the name of a node that it has not stored yet.
        wait_until("the node is there", || fleet.row("n-1")["presence"] == "connected");
        let (limit, address) = (200 + turn, fleet.admin.admin.clone());
        let list = fleet.list(version, limit, Some("n-1"));
        let answered = thread::scope(|scope| {
            let publish = scope.spawn(|| fleet.ana.try_post(&address, "/policy/changes", &list));
            // The last publish completes.
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

over_both_databases! {
    a_staged_version_goes_to_all_or_back_across_kills_of_the_admin_server
    a_block_reaches_the_nodes_of_both_versions_and_survives_the_rollout
    a_rollout_survives_a_kill_of_the_admin_server_at_any_time
}
