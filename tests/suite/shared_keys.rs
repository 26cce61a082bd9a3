//! Peeks and resets of keys whose limits nodes share, on two real nodes over a real Redis.

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_testkit::{redis::Redis, wait_for};

use crate::support::{
    server::Served,
    session::{Session, check},
    shared::{Fleet, publish},
};

fn limit(sharing: &str) -> Value {
    json!({ "id": "s", "algorithm": "fixed_window", "limit": 1_000, "period": "300d", "sharing": sharing })
}

impl Fleet {
    /// Returns the state of Ada's limit on each node.
    fn peek(&self) -> Vec<Value> {
        self.ask("/keys/peek").iter().map(|told| told["limits"][0].clone()).collect()
    }

    fn ask(&self, call: &str) -> Vec<Value> {
        self.outcome(call)["answers"].as_object().expect("answers").values().cloned().collect()
    }

    fn outcome(&self, call: &str) -> Value {
        let question = json!({ "request": { "identities": [{ "kind": "user", "value": "ada" }] } });
        let (status, outcome) = self.ana.send(&self.admin, "POST", call, &question);
        assert_eq!((status, &outcome["did_not_answer"]), (200, &json!([])), "{outcome}");
        outcome
    }

    fn audited(&self) -> String {
        let lines = self.ana.get(&self.admin, "/audit?action=keys.reset");
        lines["items"][0]["result"].as_str().expect("a line").to_owned()
    }
}

#[test]
fn a_shared_limit_is_read_and_reset_in_the_store() {
    for sharing in ["strict", "leased", "synced"] {
        let redis = Redis::start();
        let fleet = Fleet::start(&redis, &limit(sharing), (&["n-1", "n-2"], "2s"));
        for node in &fleet.nodes {
            for _ in 0..20 {
                assert_eq!(check(node, "ada").1["allowed"], true);
            }
        }
        // Every node tells what all have used; and what is on lease counts as used.
        let told = wait_for("what was used is in the store", || {
            let told = fleet.peek();
            let used = |limit: &Value| 1_000 - limit["remaining"].as_u64().expect("a number");
            let is_told =
                told.iter().all(|limit| if sharing == "leased" { used(limit) >= 40 } else { used(limit) == 40 });
            is_told.then_some(told)
        });
        assert_eq!(told[0]["remaining"], told[1]["remaining"], "{told:?}");
        for limit in &told {
            assert_eq!((&limit["is_stored"], &limit["sharing"]), (&json!(true), &json!(sharing)), "{limit}");
            assert!(limit["says"].as_str().expect("words").starts_with("Of all nodes"), "{limit}");
        }
        let told = fleet.outcome("/keys/reset");
        let store = &told["store"];
        assert_eq!((&store["what"], &store["keys"]), (&json!("clear"), &json!(1)), "{sharing}: {told}");
        assert_eq!(store["cleared"][0]["limit_id"], "default/tier:free/s");
        for node in ["n-1", "n-2"] {
            assert_eq!(told["answers"][node], json!({ "what": "reset", "keys": 0, "cleared": [] }), "{sharing}");
        }
        let line = fleet.audited();
        assert!(line.starts_with("done: default/tier:free/s had ") && line.ends_with(" of 1000 used"), "{line}");
        for limit in fleet.peek() {
            assert_eq!((limit["remaining"].as_u64(), &limit["is_stored"]), (Some(1_000), &json!(true)), "{sharing}");
        }
        // A test request is charged there too: one on each node, and what they lease for it.
        assert!(fleet.ask("/keys/charge").iter().all(|told| told["allowed"] == true));
        wait_for("both are charged", || {
            let left = fleet.peek()[0]["remaining"].as_u64().expect("a number");
            (left == 998 || sharing == "leased" && left < 998).then_some(())
        });
    }
}

#[test]
fn a_server_explains_the_use_of_all_nodes() {
    let redis = Redis::start();
    let folder = TempDir::new().expect("a folder");
    let url = redis.url();
    let served = Served::start_with(folder.path(), &["--redis", &url, "--redis-timeout", "2s"]);
    let ana = Session::of_first_administrator(&served);
    publish(&served, &ana, &limit("leased"));
    for _ in 0..20 {
        assert_eq!(check(&served, "ada").1["allowed"], true);
    }
    let explained = || {
        let question = json!({ "identities": [{ "kind": "user", "value": "ada" }] });
        ana.send(&served, "POST", "/explain", &question).1
    };
    let told = explained();
    let limit = &told["limits"][0];
    assert_eq!((&limit["sharing"], &limit["is_stored"]), (&json!("leased"), &json!(true)), "{told}");
    assert!(limit["used"].as_u64() >= Some(20) && told["decision"].get("degraded").is_none(), "{told}");
    assert!(limit["says"].as_str().expect("words").starts_with("Of all nodes, with what they have on lease: "));
    drop(redis);
    let told = explained();
    let limit = &told["limits"][0];
    assert_eq!((&limit["is_stored"], &told["decision"]["degraded"]), (&json!(false), &json!("store_failed")), "{told}");
    assert!(limit["says"].as_str().expect("words").starts_with("The store does not answer. "), "{told}");
}

#[test]
fn an_unavailable_store_is_reported_for_nodes_and_keys() {
    let mut redis = Redis::start();
    let fleet = Fleet::start(&redis, &limit("leased"), (&["n-1"], "2s"));
    let store = || {
        let nodes = fleet.ana.get(&fleet.admin, "/nodes");
        let nodes = nodes["items"].as_array().expect("nodes");
        nodes.iter().find(|node| node["node"] == "n-1").expect("it is there")["store"].clone()
    };
    assert_eq!(check(&fleet.nodes[0], "ada").1["allowed"], true);
    let told = wait_for("its store is told", || {
        let told = store();
        (told["leased_out"].as_u64() > Some(0)).then_some(told)
    });
    assert_eq!((&told["is_away"], &told["overshoot_max"]), (&json!(false), &json!(0)), "{told}");
    redis.kill();
    wait_for("it is told that the store is away", || {
        check(&fleet.nodes[0], "bob");
        (store()["is_away"] == true).then_some(())
    });
    let limit = &fleet.peek()[0];
    assert_eq!(limit["is_stored"], false, "{limit}");
    assert!(limit["says"].as_str().expect("words").starts_with("The store does not answer. On this node alone: "));
    let told = fleet.outcome("/keys/reset");
    assert_eq!((&told["store"]["what"], &told["answers"]["n-1"]["what"]), (&json!("failed"), &json!("reset")));
    assert!(told["store"]["why"].as_str().expect("words").starts_with("n-1: the store: "), "{told}");
    assert_eq!(fleet.audited(), "done on 1 of 1 nodes, not in the store");
    // And it is ready all the same.
    let get = |path| ureq::get(format!("{}{path}", fleet.nodes[0].checks)).call().expect("an answer");
    assert_eq!(get("/readyz").status(), 200);
    let health = get("/healthz").body_mut().read_to_string().expect("text");
    assert!(health.starts_with("degraded: the store does not answer"), "{health}");
}
