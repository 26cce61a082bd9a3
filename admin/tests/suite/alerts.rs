//! What needs a look: told when it comes, and when it goes.

use serde_json::{Value, json};
use tidegate::{Identity, Request};

use crate::{
    figures::wait_for,
    home::Folder,
    nodes::{hello, minute, node_of, publish, row},
    stream::Events,
    support::{Server, Time},
};

const DAY: i64 = 24 * 3_600;

/// The alerts of this code: their objects.
fn of_code<'a>(alerts: &'a Value, code: &str) -> Vec<&'a Value> {
    alerts["items"].as_array().expect("a list").iter().filter(|alert| alert["code"] == code).collect()
}

#[test]
fn what_needs_a_look_comes_and_goes() {
    let folder = Folder::new();
    // Objects of the policy change at the time that is now.
    let now = jiff::Timestamp::now();
    let time = Time::at(&now.to_string());
    let server = Server::start_at(folder.home(), "a", &time);
    let ana = server.administrator();
    let alerts = || ana.get("/api/v1/alerts").json();
    let at_first = alerts();
    assert_eq!((&at_first["left_out"], &at_first["next"]), (&json!(0), &Value::Null));
    // The example has tiers that nobody is in.
    let unused = of_code(&at_first, "unused_tier");
    assert!(
        unused
            .iter()
            .any(|alert| alert["object"] == json!({ "kind": "tier", "domain": "default", "id": "pro", "limit": null }))
    );
    assert!(unused[0]["since"].as_str().expect("an instant") > "2020");
    let pro = unused.iter().find(|alert| alert["object"]["id"] == "pro").expect("it is there");
    assert_eq!(pro["message"], "Tier pro: no kind has it as its default, and no client is in it");
    let ends_at = (now + jiff::SignedDuration::from_hours(20 * 24)).to_string();
    assert_eq!(ana.post("/api/v1/tokens", &json!({ "name": "ci", "role": "viewer", "ends_at": ends_at })).status, 201);

    let mut events = Events::open(&server.url, &ana, "alerts");
    assert_eq!(events.next_called("alert")["state"], "opened", "those that are open come first");
    let until = (now + jiff::SignedDuration::from_hours(3 * 24)).to_string();
    let client = json!({ "kind": "user", "value": "eve", "tier": "pro", "override": { "blocked": true, "reason": "abuse", "until": until } });
    assert_eq!(ana.post("/api/v1/clients", &client).status, 201);
    let closed = loop {
        let alert = events.next_called("alert");
        if alert["state"] == "closed" {
            break alert;
        }
    };
    assert_eq!(
        (&closed["code"], &closed["object"]["id"]),
        (&json!("unused_tier"), &json!("pro")),
        "somebody is in it now"
    );
    assert!(of_code(&alerts(), "override_ends").is_empty());
    time.go_on(2 * DAY + 60);
    let ending = alerts();
    let ending = of_code(&ending, "override_ends");
    assert_eq!((ending.len(), &ending[0]["object"]["id"]), (1, &json!("user:eve")));
    let message = ending[0]["message"].as_str().expect("text");
    assert!(message.starts_with("Client user:eve: the override ends within a day, at "), "{message}");

    // A shadow of two weeks, and a rule that nothing meets for a month.
    let rule = |id: &str, mode: &str| {
        json!({
            "id": id, "endpoint": format!("/{id}"), "per": "user",
            "limits": [{ "id": "minute", "algorithm": "token_bucket", "limit": 5, "period": "1m", "mode": mode }],
        })
    };
    for (id, mode) in [("met", "enforce"), ("unmet", "enforce"), ("try", "shadow")] {
        assert_eq!(ana.post("/api/v1/rules", &rule(id, mode)).status, 201);
    }
    let ask = |path: &str, domain: &str| {
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid").endpoint(path).expect("short").domain(domain);
        let _ = server.engine.check(&request);
    };
    ask("/met", "nowhere");
    wait_for(&ana, "/api/v1/alerts", |alerts| !of_code(alerts, "unknown_domain").is_empty());
    time.go_on(11 * DAY);
    assert!(of_code(&alerts(), "long_shadow").is_empty() && of_code(&alerts(), "rule_unmatched").is_empty());
    assert!(of_code(&alerts(), "unknown_domain").is_empty(), "it was long ago");
    assert!(of_code(&alerts(), "token_ends").is_empty(), "it is not in the last quarter of its life");
    ask("/met", "default");
    wait_for(&ana, "/api/v1/metrics", |figures| figures["newest"]["totals"]["allowed"] == 2);
    time.go_on(120);
    let minutes = format!("/api/v1/metrics?step=1m&by=rule&from={}&to={}", time.now_ms() - 300_000, time.now_ms());
    wait_for(&ana, &minutes, |figures| figures["series"][0]["id"] == "default/rule:met");
    time.go_on(2 * DAY);
    let shadows = alerts();
    let shadows = of_code(&shadows, "long_shadow");
    assert_eq!(
        (shadows.len(), &shadows[0]["object"]["id"], &shadows[0]["object"]["limit"]),
        (1, &json!("try"), &json!("minute"))
    );
    let words = "Limit minute of rule try only counts, as a shadow, for 15 days: let it deny, or remove it";
    assert_eq!(shadows[0]["message"], words);
    let tokens = alerts();
    let tokens = of_code(&tokens, "token_ends");
    let words = "Token ci ends in 4 days: replace it, or what uses it is refused then";
    assert_eq!(
        (tokens.len(), &tokens[0]["token"], &tokens[0]["message"], &tokens[0]["object"]),
        (1, &json!("ci"), &json!(words), &Value::Null)
    );
    time.go_on(20 * DAY);
    assert!(of_code(&alerts(), "token_ends").is_empty(), "it has ended");
    // Figures are there once there is an hour of them.
    let unmatched = wait_for(&ana, "/api/v1/alerts", |alerts| !of_code(alerts, "rule_unmatched").is_empty());
    let ids: Vec<_> = of_code(&unmatched, "rule_unmatched").iter().map(|alert| alert["object"]["id"].clone()).collect();
    assert!(ids.contains(&json!("unmet")) && ids.contains(&json!("try")), "{ids:?}");
    assert!(!ids.contains(&json!("met")), "it was met three weeks ago");

    // Whoever comes now is told of all that are open.
    let open = alerts()["items"].as_array().expect("a list").len();
    let mut events = Events::open(&server.url, &ana, "alerts");
    let told: Vec<Value> = (0..open).map(|_| events.next_called("alert")).collect();
    assert!(told.iter().all(|alert| alert["state"] == "opened"), "{told:?}");
    assert!(told.iter().any(|alert| alert["code"] == "rule_unmatched"));
}

/// The codes of errors that nodes tell of are those of the listeners.
#[test]
fn a_caller_that_has_its_share_of_reservations_or_request_ids_is_told() {
    let folder = Folder::new();
    let time = Time::at(&jiff::Timestamp::now().to_string());
    let server = Server::start_at(folder.home(), "here", &time);
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut events = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    let _ = events.next_called("snapshot");
    let open = |code: &str| {
        let alerts = ana.get("/api/v1/alerts").json();
        of_code(&alerts, code).into_iter().cloned().collect::<Vec<_>>()
    };
    let (refused, forgotten) = (|| open("reservations_refused"), || open("request_ids_forgotten"));
    let report = |sequence: u64, count: u64| {
        let told = json!({
            "name": "n-1", "instance": "a", "sequence": sequence, "policy_version": 1,
            "errors": [
                { "kind": "bad_field", "count": 7 },
                { "kind": "too_many_reservations", "count": count },
                { "kind": "forgotten_request_id", "count": count / 2 },
            ],
        });
        assert_eq!(node.post("/api/v1/nodes/reports", &told).status, 204);
    };
    report(1, 5);
    assert_eq!((refused(), forgotten()), (Vec::new(), Vec::new()), "that was before it reported here");
    report(2, 8);
    for open in [refused(), forgotten()] {
        assert_eq!((open.len(), &open[0]["object"], &open[0]["node"]), (1, &Value::Null, &Value::Null));
        let message = open[0]["message"].as_str().expect("text");
        assert!(message.contains("caller_share"), "{message}");
    }
    time.go_on(601);
    assert_eq!((refused(), forgotten()), (Vec::new(), Vec::new()), "it was long ago");
}

/// A node that does not have what it should have, one that refused it, and one that does not report.
#[test]
fn nodes_that_need_a_look_are_told_with_since_when() {
    let folder = Folder::new();
    let time = Time::at(&jiff::Timestamp::now().to_string());
    let server = Server::start_at(folder.home(), "here", &time);
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut events = ["n-1", "n-2", "n-3"].map(|name| Events::of_node(&server.url, &node, &hello(name, "a")));
    for events in &mut events {
        let _ = events.next_called("snapshot");
    }
    let mut sequence = 0;
    let mut report = |names: &[&str]| {
        sequence += 1;
        for name in names {
            let told = json!({ "name": name, "instance": "a", "sequence": sequence, "policy_version": 1 });
            assert_eq!(node.post("/api/v1/nodes/reports", &told).status, 204);
        }
    };
    let took = |name: &str, version: u64, at_ms: u64, refused: &Value| {
        let took = json!({
            "name": name, "instance": "a", "version": version, "at_ms": at_ms, "took_ms": 7, "refused": refused,
        });
        assert_eq!(node.post("/api/v1/nodes/acknowledgements", &took).status, 204);
    };
    let of_nodes = || {
        let alerts = ana.get("/api/v1/alerts").json();
        let alerts = alerts["items"].as_array().expect("a list").clone();
        alerts.into_iter().filter(|alert| !alert["node"].is_null()).collect::<Vec<_>>()
    };
    report(&["n-1", "n-2", "n-3"]);
    assert_eq!(of_nodes(), Vec::<Value>::new());
    assert_eq!(publish(&ana, &minute(500), false).status, 201);
    took("n-1", 2, 1, &Value::Null);
    took("n-2", 2, 1, &json!("this build cannot read it"));
    let told = of_nodes();
    assert_eq!(told.len(), 1, "who has not had ten seconds is not behind: {told:?}");
    assert_eq!((&told[0]["code"], &told[0]["node"]), (&json!("node_refused"), &json!("n-2")));
    let why = "Node n-2 did not take version 2: this build cannot read it";
    assert_eq!((&told[0]["message"], &told[0]["object"]), (&json!(why), &Value::Null));
    let since = |alert: &Value| alert["since"].as_str().expect("an instant").parse::<jiff::Timestamp>().expect("one");
    assert!((jiff::Timestamp::now() - since(&told[0])).get_seconds() < 60);
    let began = time.now_ms();
    time.go_on(15);
    report(&["n-2", "n-3"]);
    took("n-1", 2, 2, &Value::Null);
    let told = of_nodes();
    let named: Vec<_> = told.iter().map(|alert| (alert["code"].clone(), alert["node"].clone())).collect();
    assert_eq!(named, [(json!("node_behind"), json!("n-3")), (json!("node_refused"), json!("n-2"))]);
    assert_eq!(told[0]["message"], "Node n-3 decides by version 1 and should decide by version 2");
    let first_seen = since(&told[0]).as_millisecond();
    assert!((began - 5_000..=began + 1_000).contains(&first_seen), "{first_seen} {began}");
    // What was the matter is over, and is told to be.
    let mut alerts = Events::open(&server.url, &ana, "alerts");
    took("n-3", 2, 3, &Value::Null);
    took("n-2", 2, 3, &Value::Null);
    assert_eq!(of_nodes(), Vec::<Value>::new());
    let mut closed = Vec::new();
    while closed.len() < 2 {
        let alert = alerts.next_called("alert");
        if alert["state"] == "closed" {
            closed.push(alert["code"].clone());
        }
    }
    assert_eq!(closed, ["node_behind", "node_refused"]);
    // One that hangs, until it is heard again.
    let silent = wait_for(&ana, "/api/v1/alerts", |alerts| of_code(alerts, "node_silent").len() == 3);
    let silent = of_code(&silent, "node_silent");
    assert!((jiff::Timestamp::now() - since(silent[0])).get_seconds() >= 5);
    took("n-1", 2, 4, &Value::Null);
    assert_eq!(of_nodes().len(), 2);
    // One that stops and says so is not missed; who ends without a word is, until it is back or forgotten.
    let goodbye =
        |instance: &str| node.post("/api/v1/nodes/goodbyes", &json!({ "name": "n-1", "instance": instance })).status;
    assert_eq!((goodbye("b"), goodbye("a")), (404, 204));
    assert_eq!(row(&ana, "n-1")["presence"], "stopped");
    assert_eq!(
        (&row(&ana, "n-1")["events"][0]["code"], events[0].next_called("restart")),
        (&json!("stopped"), json!({}))
    );
    assert_eq!(events[0].next(), None);
    drop(events);
    let gone = wait_for(&ana, "/api/v1/alerts", |alerts| of_code(alerts, "node_gone").len() == 2);
    let gone = of_code(&gone, "node_gone");
    assert_eq!((&gone[0]["node"], &gone[1]["node"]), (&json!("n-2"), &json!("n-3")));
    assert!((jiff::Timestamp::now() - since(gone[0])).get_seconds() >= 10);
    let message = gone[0]["message"].as_str().expect("text");
    assert!(message.starts_with("Node n-2 is gone without a word, and was heard last at "), "{message}");
    assert_eq!(of_nodes().len(), 2, "{:?}", of_nodes());
    let mut back = Events::of_node(&server.url, &node, &hello("n-2", "b"));
    let _ = back.next_called("snapshot");
    assert_eq!(ana.send("DELETE", "/api/v1/nodes/n-3", &[], None).status, 204);
    assert!(of_nodes().iter().all(|alert| alert["code"] != "node_gone"), "{:?}", of_nodes());
}

/// Which is told once enough reports came, and has been so for a while.
#[test]
fn a_node_whose_clock_is_apart_is_told() {
    let folder = Folder::new();
    let time = Time::at(&jiff::Timestamp::now().to_string());
    let server = Server::start_at(folder.home(), "here", &time);
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut events = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    let _ = events.next_called("snapshot");
    let report = |sequence: u64| {
        let at_ms = jiff::Timestamp::now().as_millisecond() + 60_000;
        let told = json!({ "name": "n-1", "instance": "a", "sequence": sequence, "at_ms": at_ms, "policy_version": 1 });
        assert_eq!(node.post("/api/v1/nodes/reports", &told).status, 204);
    };
    let apart =
        || of_code(&ana.get("/api/v1/alerts").json(), "node_clock_apart").into_iter().cloned().collect::<Vec<_>>();
    (1..10).for_each(report);
    assert_eq!(apart(), Vec::<Value>::new());
    report(10);
    let row = ana.get("/api/v1/nodes/n-1").json();
    let ahead = row["clock_ahead_ms"].as_i64().expect("known");
    assert!(row["is_clock_apart"] == true && (50_000..=60_000).contains(&ahead), "{row}");
    assert_eq!(apart(), Vec::<Value>::new(), "not for ten seconds yet");
    time.go_on(11);
    report(11);
    let told = apart();
    assert_eq!((told.len(), &told[0]["node"]), (1, &json!("n-1")));
    let message = told[0]["message"].as_str().expect("text");
    assert!(
        message.starts_with("The clock of node n-1 is ") && message.ends_with(" ms ahead of this server's"),
        "{message}"
    );
}

/// Whether its store answers, and how far nodes that share it were wrong.
#[test]
fn a_node_whose_store_does_not_answer_is_told_and_its_overshoot_stands_beside_the_bound_of_all() {
    let folder = Folder::new();
    let time = Time::at(&jiff::Timestamp::now().to_string());
    let server = Server::start_at(folder.home(), "here", &time);
    let ana = server.administrator();
    let node = node_of(&ana);
    let _events = [("n-1", "&store=7"), ("n-2", "&store=7"), ("n-3", "&store=8"), ("n-4", "")].map(|(name, store)| {
        let mut events = Events::of_node(&server.url, &node, &format!("{}{store}", hello(name, "a")));
        let _ = events.next_called("snapshot");
        events
    });
    let report = |name: &str, sequence: u64, is_away: bool, (over, untold): (u64, u64)| {
        let store = json!({
            "is_away": is_away, "failed": 5, "latency_us": null, "leased_out": 0, "overshoot_max": over,
            "untold_max": untold, "sync_lag_ms": 0,
        });
        let told = json!({ "name": name, "instance": "a", "sequence": sequence, "policy_version": 1, "store": store });
        assert_eq!(node.post("/api/v1/nodes/reports", &told).status, 204);
    };
    let away =
        || of_code(&ana.get("/api/v1/alerts").json(), "node_store_away").into_iter().cloned().collect::<Vec<_>>();
    report("n-1", 1, true, (12, 40));
    report("n-2", 1, false, (9, 30));
    report("n-3", 1, false, (99, 500));
    assert_eq!(away(), Vec::<Value>::new(), "not for ten seconds yet");
    time.go_on(11);
    report("n-1", 2, true, (12, 40));
    let told = away();
    assert_eq!((told.len(), &told[0]["node"]), (1, &json!("n-1")));
    assert_eq!(told[0]["message"], "The store that node n-1 shares limits through does not answer it");
    let overshoot = |name: &str| ana.get(&format!("/api/v1/nodes/{name}")).json()["overshoot"].clone();
    for name in ["n-1", "n-2"] {
        assert_eq!(overshoot(name), json!({ "measured": 12, "bound": 70, "nodes": 2 }), "of this store alone");
    }
    assert_eq!(overshoot("n-3"), json!({ "measured": 99, "bound": 500, "nodes": 1 }));
    for name in ["n-4", "here"] {
        assert_eq!(overshoot(name), Value::Null, "{name} has none");
    }
    report("n-1", 3, false, (12, 40));
    assert_eq!(away(), Vec::<Value>::new(), "it answers");
}
