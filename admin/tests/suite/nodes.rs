//! The fleet as the admin server has it: what nodes are sent, what is counted of what they tell, what they are asked.

use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
    io::{Read, Write},
    net::TcpStream,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tidegate_admin::Periods;
use tidegate_fleet::wire::payload::unpack;
use tidegate_testkit::{PATIENCE, wait_until};

use crate::{
    clients::import,
    figures::{checks, counted, points, range, wait_for},
    home::Folder,
    stream::Events,
    support::{Client, Server, Time, fresh, tier_change},
};

pub(crate) fn node_of(ana: &Client) -> Client {
    ana.script(&json!({ "scope": "node" })).0
}

pub(crate) fn hello(name: &str, instance: &str) -> String {
    format!("name={name}&instance={instance}&schema=2&build=1.0.0&says_goodbye=true")
}

/// Publishes the tier `free` with this limit on top of version `base`.
pub(crate) fn publish(ana: &Client, limit: &Value, force: bool) -> crate::support::Answer {
    let (etag, _) = ana.tier("free");
    let version = ana.get("/api/v1/policy").json()["version"].as_u64().expect("a number");
    let mut list = tier_change(version, &etag, &json!({ "id": "free", "limits": [limit] }));
    list["force"] = json!(force);
    ana.post("/api/v1/policy/changes", &list)
}

pub(crate) fn minute(limit: u64) -> Value {
    json!({ "id": "minute", "algorithm": "token_bucket", "limit": limit, "period": "1m" })
}

/// The document of a snapshot, whose digest is right.
pub(crate) fn document_of(snapshot: &Value) -> Value {
    let text = |field: &str| snapshot[field].as_str().expect("text").to_owned();
    let bytes = snapshot["bytes"].as_u64().expect("a number");
    let document = unpack(&text("document"), bytes, &text("sha256")).expect("whole");
    serde_json::from_str(&document).expect("JSON")
}

/// The limit of the tier `free` in a snapshot.
pub(crate) fn limit_of(snapshot: &Value) -> Value {
    document_of(snapshot)["domains"]["default"]["tiers"][0]["limits"][0]["limit"].clone()
}

pub(crate) fn row(ana: &Client, name: &str) -> Value {
    let answer = ana.get(&format!("/api/v1/nodes/{name}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn nodes_with_a_store_are_sent_the_same_secret_of_its_keys_first() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let first = |name: &str, store: &str| {
        let mut events = Events::of_node(&server.url, &node, &format!("{}{store}", hello(name, "a")));
        events.next().expect("an event")
    };
    let (name, sent) = first("n-1", "&store=7");
    assert_eq!(name, "store_keys");
    // 32 bytes, as base64url.
    assert_eq!(sent["secret"].as_str().expect("text").len(), 43);
    assert_eq!(first("n-2", "&store=8"), (name, sent.clone()));
    assert_eq!(first("n-3", "").0, "snapshot", "it has no store");
}

#[test]
fn a_node_is_sent_the_policy_then_every_new_one_and_goes_on_where_it_was() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut events = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    let (name, first) = events.next().expect("an event");
    assert_eq!((name.as_str(), &first["version"], limit_of(&first)), ("snapshot", &json!(1), json!(100)));
    assert_eq!(publish(&ana, &minute(500), false).status, 201);
    let second = events.next_called("snapshot");
    assert_eq!((&second["version"], limit_of(&second)), (&json!(2), json!(500)));
    let at = json!({
        "name": "n-1", "instance": "a", "version": 2, "at_ms": 1, "took_ms": 7, "refused": null, "not_kept": null,
    });
    assert_eq!(node.post("/api/v1/nodes/acknowledgements", &at).status, 204);
    let shown = row(&ana, "n-1");
    assert_eq!((&shown["presence"], &shown["policy_version"]), (&json!("connected"), &json!(2)), "{shown}");
    assert_eq!((&shown["target_version"], &shown["took_ms"]), (&json!(2), &json!(7)), "{shown}");
    drop(events);
    // Whoever has it is not sent it again; with another digest under the same number, it is.
    let had = |digest: &str| format!("{}&version=2&sha256={digest}", hello("n-1", "a"));
    let mut events = Events::of_node(&server.url, &node, &had(second["sha256"].as_str().expect("text")));
    assert_eq!(events.next(), Some(("current".to_owned(), json!({ "version": 2 }))));
    let mut events = Events::of_node(&server.url, &node, &had("00"));
    assert_eq!(limit_of(&events.next_called("snapshot")), json!(500));
    // What versions in between chose for used quota comes with the newest.
    for (limit, carry) in [(600, "reset"), (700, "keep")] {
        let (etag, _) = ana.tier("free");
        let version = ana.get("/api/v1/policy").json()["version"].as_u64().expect("a number");
        let mut list = tier_change(version, &etag, &json!({ "id": "free", "limits": [minute(limit)] }));
        list["carry"] = json!({ "default/tier:free/minute": carry });
        assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    }
    let before = format!("{}&version=2&sha256={}", hello("n-2", "a"), second["sha256"].as_str().expect("text"));
    let mut events = Events::of_node(&server.url, &node, &before);
    let newest = events.next_called("snapshot");
    assert_eq!((&newest["version"], limit_of(&newest)), (&json!(4), json!(700)));
    assert_eq!(newest["carry"], json!({ "default/tier:free/minute": "reset" }));
}

/// What an event says of the clients that differ, and of those that are other or gone.
fn differing(delta: &Value) -> (Value, Value) {
    let text = |field: &str| delta[field].as_str().expect("text").to_owned();
    let bytes = delta["bytes"].as_u64().expect("a number");
    let delta = unpack(&text("delta"), bytes, &text("delta_sha256")).expect("whole");
    let delta: Value = serde_json::from_str(&delta).expect("JSON");
    (delta["policy"]["domains"]["default"]["clients"].clone(), delta["gone"].clone())
}

/// Puts the clients of these numbers into a tier.
pub(crate) fn assign(ana: &Client, numbers: Range<usize>, tier: &str) {
    let lines = numbers.map(|n| format!("user,u-{n},{tier},,,"));
    let lines: Vec<String> = ["kind,value,tier,override,until,reason".to_owned()].into_iter().chain(lines).collect();
    let imported = import(ana, "message=clients", &lines.join("\n"));
    assert!(matches!(imported.status, 200 | 201), "{imported:?}");
}

#[test]
fn whoever_takes_deltas_is_sent_what_differs_and_at_times_the_whole() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    assign(&ana, 0..3_000, "free");
    let (whole, deltas) = (hello("n-1", "a"), format!("{}&deltas=2", hello("n-2", "a")));
    let mut events = [whole, deltas].map(|hello| Events::of_node(&server.url, &node, &hello));
    let [first, same] = events.each_mut().map(|events| events.next_called("snapshot"));
    assert_eq!(first, same);
    let mut before = first;
    let mut second = Value::Null;
    for (n, name) in ["delta", "delta", "snapshot", "delta"].into_iter().enumerate() {
        assign(&ana, n..n + 1, "pro");
        let [snapshot, sent] = events.each_mut().map(|events| events.next().expect("an event"));
        assert_eq!((snapshot.0.as_str(), sent.0.as_str()), ("snapshot", name), "{n}");
        for field in ["version", "sha256", "published_at", "carry"] {
            assert_eq!(snapshot.1[field], sent.1[field]);
        }
        if name == "delta" {
            assert_eq!(sent.1["since_sha256"], before["sha256"]);
            let (clients, gone) = differing(&sent.1);
            assert_eq!(clients, json!([{ "kind": "user", "value": format!("u-{n}"), "tier": "pro" }]));
            assert_eq!(gone, json!({ "default": [["user", format!("u-{n}")]] }));
        }
        if n == 0 {
            second = snapshot.1.clone();
        }
        before = snapshot.1;
    }
    // Whoever was away is sent all that came between, if he takes so many; not if he has something else.
    let away = |name: &str, digest: &Value, deltas: u32| {
        let (version, digest) = (second["version"].as_u64().expect("a number"), digest.as_str().expect("text"));
        let hello = format!("{}&version={version}&sha256={digest}&deltas={deltas}", hello(name, "a"));
        Events::of_node(&server.url, &node, &hello).next().expect("an event")
    };
    assert_eq!(away("n-3", &second["sha256"], 3).0, "delta");
    assert_eq!(away("n-4", &second["sha256"], 2).0, "snapshot");
    assert_eq!(away("n-5", &json!("00"), 100).0, "snapshot");
    // Limits differ too; what is nearly the whole is sent whole.
    assert_eq!(publish(&ana, &minute(500), false).status, 201);
    assert_eq!(events[1].next().expect("an event").0, "delta");
    assign(&ana, 0..1_500, "internal");
    assert_eq!(events[1].next().expect("an event").0, "snapshot");
}

#[test]
fn a_name_is_one_process() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut first = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    let _ = first.next_called("snapshot");
    for (name, instance, status, code) in
        [("n-1", "b", 409, "duplicate_node"), ("here", "b", 409, "duplicate_node"), ("a%20b", "b", 422, "invalid")]
    {
        let answer = node.get(&format!("/api/v1/snapshots/stream?{}", hello(name, instance)));
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{answer:?}");
    }
    // The same process comes again before its old connection was seen to end.
    let mut second = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    let _ = second.next_called("snapshot");
    assert_eq!(first.next().expect("an event").0, "restart");
    assert_eq!(first.next(), None);
    assert_eq!(row(&ana, "n-1")["presence"], "connected");
    // While it is there it is not forgotten.
    let answer = ana.send("DELETE", "/api/v1/nodes/n-1", &[], None);
    assert_eq!((answer.status, &answer.json()["code"]), (409, &json!("still_here")));
    drop((first, second));
    wait_until("it is gone", || row(&ana, "n-1")["presence"] != "connected");
    assert_eq!(ana.send("DELETE", "/api/v1/nodes/n-1", &[], None).status, 204);
    assert_eq!(ana.get("/api/v1/nodes/n-1").status, 404);
    // Its name is free.
    let _ = Events::of_node(&server.url, &node, &hello("n-1", "b")).next_called("snapshot");
}

#[test]
fn what_a_connected_node_cannot_read_is_not_published_unless_forced() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut events = Events::of_node(&server.url, &node, "name=old-1&instance=a&schema=1");
    let _ = events.next_called("snapshot");
    assert_eq!(publish(&ana, &minute(500), false).status, 201, "it knows that");
    let day = json!({ "id": "minute", "algorithm": "fixed_window", "limit": 9, "period": "day" });
    let refused = publish(&ana, &day, false);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("node_cannot_read")));
    assert!(refused.json()["detail"].as_str().expect("text").contains("old-1"), "{refused:?}");
    assert_eq!(ana.get("/api/v1/policy").json()["version"], 2);
    assert_eq!(publish(&ana, &day, true).status, 201);
    drop(events);
    wait_until("it is gone", || row(&ana, "old-1")["presence"] != "connected");
    assert_eq!(
        publish(&ana, &json!({ "id": "minute", "algorithm": "fixed_window", "limit": 8, "period": "week" }), false)
            .status,
        201
    );
}

/// A report of what was decided under the tier `free`.
fn report(sequence: u64, allowed: u64, denied: u64) -> Value {
    let limit = "default/tier:free/minute";
    json!({
        "name": "n-1", "instance": "a", "sequence": sequence, "at_ms": 1_000 * sequence, "policy_version": 1,
        "counts": { "allowed": allowed, "denied": denied },
        "limits": [{ "id": limit, "allowed": allowed, "denied": denied, "shadow_denied": 0 }],
        "owners": [{ "id": "default/tier:free", "allowed": allowed, "denied": denied, "shadow_denied": 0 }],
        "latency": [[20, 3]], "fill": 0.25, "overflow_charges": 2,
        "denied": [{ "limit_id": limit, "identities": [{ "kind": "user", "value": "eve" }], "count": 1000, "error": 0 }],
    })
}

#[test]
fn what_nodes_tell_is_counted_once_with_what_this_one_counts() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let unknown = node.post("/api/v1/nodes/reports", &report(1, 1, 1));
    assert_eq!(unknown.status, 404, "who is not connected is not counted");
    let mut events = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    let _ = events.next_called("snapshot");
    for _ in 0..5 {
        assert!(server.check("ada").is_allowed());
    }
    for report in [report(1, 30, 10), report(1, 30, 10), report(2, 40, 20), report(1, 30, 10)] {
        assert_eq!(node.post("/api/v1/nodes/reports", &report).status, 204);
    }
    let mut metrics = Events::open(&server.url, &ana, "metrics,node,top");
    let totals = loop {
        let sample = metrics.next_called("metrics");
        if sample["totals"]["allowed"].as_u64() >= Some(75) {
            break sample;
        }
    };
    assert_eq!((&totals["totals"]["allowed"], &totals["totals"]["denied"]), (&json!(75), &json!(30)), "{totals}");
    let free =
        totals["limits"].as_array().expect("a list").iter().find(|it| it["limit_id"] == "default/tier:free/minute");
    assert_eq!(free.map(|free| (&free["allowed"], &free["denied"])), Some((&json!(75), &json!(30))));
    let by_node = ana.get("/api/v1/metrics?by=node&step=1s").json();
    let sum = |name: &str| {
        let series = by_node["series"].as_array().expect("a list").iter().find(|series| series["id"] == name);
        let points = series.expect("a series")["points"].as_array().expect("a list").clone();
        points.iter().filter_map(|point| point["allowed"].as_u64()).sum::<u64>()
    };
    assert_eq!((sum("here"), sum("n-1")), (5, 70));
    let shown = row(&ana, "n-1");
    assert_eq!(
        (&shown["fill"], &shown["overflow_charges"], &shown["policy_version"]),
        (&json!(0.25), &json!(2), &json!(1))
    );
    assert!(shown["p99_us"].is_u64() && shown["denied_share"].as_f64() > Some(0.3), "{shown}");
    // The keys that nodes deny most are shown as the setting says.
    let top = loop {
        let top = metrics.next_called("top");
        if top["items"].as_array().is_some_and(|items| !items.is_empty()) {
            break top;
        }
    };
    assert_eq!(
        (&top["items"][0]["id"], &top["items"][0]["count"]),
        (&json!("default/tier:free/minute"), &json!(1000)),
        "{top}"
    );
}

/// A node of a later build says more than this server knows, in all that it tells.
#[test]
fn what_a_later_build_tells_beside_what_is_known_is_overlooked() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut events = Events::of_node(&server.url, &node, &format!("{}&later=1&zone=a%26b", hello("n-1", "a")));
    let _ = events.next_called("snapshot");
    let mut later = report(1, 30, 10);
    later["denied"].as_array_mut().expect("a list").push(json!({
        "limit_id": "default/tier:free/minute", "identities": [{ "kind": "user", "value": "bob" }], "count": 5, "error": 0,
    }));
    more(&mut later);
    assert_eq!(node.post("/api/v1/nodes/reports", &later).status, 204);
    counted(&ana, 30, 10);
    let mut took = json!({ "name": "n-1", "instance": "a", "version": 9, "at_ms": 1, "took_ms": 7 });
    more(&mut took);
    assert_eq!(node.post("/api/v1/nodes/acknowledgements", &took).status, 204);
    assert_eq!(row(&ana, "n-1")["policy_version"], 9);
    let seen = json!({
        "at_ms": 1, "allowed": true, "limit_id": null, "remaining": null, "endpoint": null,
        "identities": [{ "kind": "user", "value": "ada" }],
    });
    thread::scope(|scope| {
        let asked =
            scope.spawn(|| ana.post("/api/v1/keys/sample", &json!({ "count": 1, "for_ms": 9, "nodes": ["n-1"] })));
        let id = events.next_called("command")["id"].clone();
        let told = json!({ "what": "sample", "decisions": [seen], "seen": 1 });
        let mut answer = json!({ "name": "n-1", "instance": "a", "id": id, "told": told });
        more(&mut answer);
        assert_eq!(node.post("/api/v1/nodes/answers", &answer).status, 204);
        let outcome = asked.join().expect("no panic").json();
        assert_eq!(outcome["answers"]["n-1"]["decisions"][0]["at_ms"], 1, "{outcome}");
    });
    // What is missing or wrong is refused as ever, and so is what a person says too much.
    let answer = node.get("/api/v1/snapshots/stream?name=n-2&later=1");
    assert_eq!(
        (answer.status, answer.json()["errors"][0]["parameter"].clone()),
        (422, json!("instance")),
        "{answer:?}"
    );
    let who = json!({ "kind": "user", "value": "ada", "later": 1 });
    assert_eq!(ana.post("/api/v1/keys/watch", &json!({ "who": who, "for_ms": 9 })).status, 400);
}

/// Another field in every object of what is told.
fn more(told: &mut Value) {
    match told {
        Value::Object(fields) => {
            fields.values_mut().for_each(more);
            fields.insert("later".to_owned(), json!({ "x": [1] }));
        }
        Value::Array(items) => items.iter_mut().for_each(more),
        _ => {}
    }
}

/// Of a tier with two limits, on this server and on a node that tells of a policy that was published just now.
#[test]
fn tiers_of_all_nodes_have_each_request_once_in_seconds_and_minutes() {
    let folder = Folder::new();
    let time = Time::at("2026-03-01T10:58:30Z");
    let server = Server::start_at(folder.home(), "here", &time);
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut events = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    let _ = events.next_called("snapshot");
    let (etag, _) = ana.tier("free");
    let limit = |id: &str| json!({ "id": id, "algorithm": "token_bucket", "limit": 1_000, "period": "1d" });
    let change = tier_change(1, &etag, &json!({ "id": "free", "limits": [limit("a"), limit("b")] }));
    assert_eq!(ana.post("/api/v1/policy/changes", &change).status, 201);
    let part =
        |id: &str| json!({ "id": format!("default/tier:free{id}"), "allowed": 30, "denied": 0, "shadow_denied": 0 });
    let told = json!({
        "name": "n-1", "instance": "a", "sequence": 1, "at_ms": 1_000, "policy_version": 2,
        "counts": { "allowed": 30, "denied": 0 }, "limits": [part("/a"), part("/b"), part("/gone")], "owners": [part("")],
    });
    assert_eq!(node.post("/api/v1/nodes/reports", &told).status, 204);
    checks(&server, "ada", 5);
    let mut metrics = Events::open(&server.url, &ana, "metrics.tier");
    let free = loop {
        let tiers = metrics.next_called("metrics.tier");
        let free = tiers["items"].as_array().expect("a list").iter().find(|tier| tier["id"] == "default/tier:free");
        if let Some(free) = free.filter(|free| free["allowed"].as_u64() >= Some(35)) {
            break free.clone();
        }
    };
    assert_eq!(free["allowed"], 35, "{free}");
    counted(&ana, 35, 0);
    let sum = |figures: &Value, id: &str| points(figures, id, 0).iter().map(|point| point.1).sum::<u64>();
    let are_right = |figures: &Value| match figures["by"].as_str() {
        Some("total") => sum(figures, "total") == 35,
        Some("tier") => sum(figures, "default/tier:free") == 35,
        Some("limit") => ["a", "b"].iter().all(|id| sum(figures, &format!("default/tier:free/{id}")) == 35),
        _ => (sum(figures, "here"), sum(figures, "n-1")) == (5, 30),
    };
    for by in ["total", "tier", "limit", "node"] {
        let seconds = ana.get(&range(time.now_ms() + 1_000, 60, "1s", by)).json();
        assert!(are_right(&seconds), "{seconds}");
    }
    time.go_on(60);
    for by in ["total", "tier", "limit", "node"] {
        wait_for(&ana, &range(time.now_ms(), 7_200, "1m", by), are_right);
    }
    assert_eq!(ana.get("/api/v1/metrics/top?by=tier&of=all").json()["items"][0]["count"], 35);
    let rows = ana.get("/api/v1/nodes").json();
    let names = rows["items"].as_array().expect("a list").iter().map(|row| row["node"].as_str().expect("a name"));
    assert_eq!(names.collect::<Vec<_>>(), ["here", "n-1"]);
}

#[test]
fn a_test_request_is_charged_and_its_line_says_what_was_decided() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    // None of it comes back while the test runs.
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["period"] = json!("1d");
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
    let request = json!({ "identities": [{ "kind": "user", "value": "ada" }] });
    let charge = |request: &Value, reason: &str| {
        ana.post("/api/v1/keys/charge", &json!({ "request": request, "nodes": ["here"], "reason": reason }))
    };
    let charged = || ana.get("/api/v1/audit?action=keys.charge").json()["items"][0]["result"].clone();
    let told = charge(&request, "").json()["answers"]["here"].clone();
    assert_eq!((&told["what"], &told["allowed"], &told["retry_after_ms"]), (&json!("charge"), &json!(true), &json!(0)));
    assert_eq!(charged(), "done: allowed on 1 of 1 node");
    let of = |field: &str, value: Value| {
        let mut request = request.clone();
        request[field] = value;
        request
    };
    let nobody = json!([{ "kind": "planet", "value": "mars" }]);
    for (request, is_unknown, line) in [
        (of("domain", json!("nowhere")), true, "done: in an unknown domain on 1 of 1 node: a try"),
        (of("identities", nobody), false, "done: without a limit on 1 of 1 node: a try"),
    ] {
        let told = charge(&request, "a try").json()["answers"]["here"].clone();
        assert_eq!((&told["limit_id"], &told["unknown_domain"]), (&Value::Null, &json!(is_unknown)));
        assert_eq!(charged(), line);
    }
    // No quota can be emptied at once.
    for cost in [0, 2] {
        assert_eq!(charge(&of("cost", json!(cost)), "").pointers(), ["/request/cost"]);
    }
    assert!(charge(&of("cost", json!(2)), "").text.contains("cost of 1"));
    for _ in 0..99 {
        assert!(server.check("ada").is_allowed());
    }
    assert_eq!(charge(&of("cost", json!(1)), "").json()["answers"]["here"]["allowed"], false);
    assert_eq!(charged(), "done: denied on 1 of 1 node");
    // A reset says what was used.
    assert_eq!(ana.post("/api/v1/keys/reset", &json!({ "request": request })).status, 200);
    let reset = ana.get("/api/v1/audit?action=keys.reset").json()["items"][0]["result"].clone();
    assert_eq!(reset, "done: default/tier:free/minute had 100 of 100 used");
}

#[test]
fn nodes_are_asked_and_who_does_not_answer_is_named() {
    ask_nodes_of_which_one_is_silent(Duration::from_secs(20));
}

/// The silent node delays the answer by two seconds, which is given within `at_most`.
#[expect(clippy::disallowed_methods, reason = "how long a question takes is what this is about")]
fn ask_nodes_of_which_one_is_silent(at_most: Duration) {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut answering = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    let mut silent = Events::of_node(&server.url, &node, &hello("n-2", "b"));
    let _ = (answering.next_called("snapshot"), silent.next_called("snapshot"));
    let request = json!({ "identities": [{ "kind": "user", "value": "ada" }] });
    assert!(server.check("ada").is_allowed());
    let answer_as = |client: &Client, id: &Value, told: &Value| {
        client.post("/api/v1/nodes/answers", &json!({ "name": "n-1", "instance": "a", "id": id, "told": told }))
    };
    let (outcome, took) = thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let began = Instant::now();
            (ana.post("/api/v1/keys/reset", &json!({ "request": request })), began.elapsed())
        });
        let command = answering.next_called("command");
        assert_eq!((&command["ask"]["what"], &command["ask"]["request"]), (&json!("reset"), &request));
        assert_eq!(command["deadline_ms"], 2_000);
        assert_eq!(answer_as(&node, &command["id"], &json!({ "what": "reset", "keys": 3 })).status, 204);
        let asked = asked.join().expect("no panic");
        // Nobody waits for it any more.
        assert_eq!(answer_as(&node, &command["id"], &json!({ "what": "reset", "keys": 3 })).status, 404);
        asked
    });
    assert_eq!(outcome.status, 200, "{outcome:?}");
    let outcome = outcome.json();
    // A build before has no more to say.
    assert_eq!(outcome["answers"]["n-1"], json!({ "what": "reset", "keys": 3, "cleared": [] }));
    let here = &outcome["answers"]["here"];
    assert_eq!((&here["what"], &here["keys"]), (&json!("reset"), &json!(1)), "this process answers too");
    assert_eq!((&here["cleared"][0]["limit"], &here["cleared"][0]["remaining"]), (&json!(100), &json!(99)));
    assert_eq!(outcome["did_not_answer"], json!(["n-2"]));
    assert!(took > Duration::from_millis(1_900) && took < at_most, "the silent node has two seconds: {took:?}");
    let audited = || ana.get("/api/v1/audit?action=keys.reset").json()["items"][0]["result"].clone();
    assert_eq!(audited(), "done on 2 of 3 nodes: default/tier:free/minute had 1 of 100 used");
    // A name that is none stops it before anybody is asked.
    assert_eq!(ana.post("/api/v1/keys/reset", &json!({ "request": request, "nodes": ["n-1", "n-9"] })).status, 404);
    // That it cannot is an answer too.
    thread::scope(|scope| {
        let asked = scope.spawn(|| ana.post("/api/v1/keys/reset", &json!({ "request": request, "nodes": ["n-1"] })));
        let command = answering.next_called("command");
        assert_eq!(answer_as(&node, &command["id"], &json!({ "what": "failed", "why": "so" })).status, 204);
        assert_eq!(asked.join().expect("no panic").json()["answers"]["n-1"]["what"], "failed");
    });
    assert_eq!(audited(), "done on 0 of 1 nodes");
    assert_eq!(ana.post("/api/v1/keys/reset", &json!({ "request": request, "nodes": ["here"] })).status, 200);
    assert_eq!(audited(), "done");
    let because = |reason: &str| {
        ana.post("/api/v1/keys/reset", &json!({ "request": request, "nodes": ["here"], "reason": reason }))
    };
    assert_eq!(because(" a loop is mended ").status, 200);
    assert_eq!(audited(), "done: a loop is mended");
    assert_eq!(because(" ").status, 200);
    assert_eq!(audited(), "done", "it may be left out");
    for wrong in ["two\nlines".to_owned(), "x".repeat(201)] {
        assert_eq!(because(&wrong).pointers(), ["/reason"]);
    }
    // A node that is not asked is not waited for.
    let peek = not_waiting(|| ana.post("/api/v1/keys/peek", &json!({ "request": request, "nodes": ["here"] })).json());
    assert_eq!(peek["answers"]["here"]["limits"][0]["remaining"], 100);
    assert_eq!(ana.post("/api/v1/keys/peek", &json!({ "request": request, "nodes": ["n-9"] })).status, 404);
    let wrong = json!({ "request": { "identities": [] } });
    assert_eq!(ana.post("/api/v1/keys/peek", &wrong).pointers(), ["/request"]);
    let resync = ana.post("/api/v1/nodes/n-2/resync", &json!({}));
    assert_eq!(resync.json()["did_not_answer"], json!(["n-2"]));
    assert_eq!(silent.next_called("command")["ask"], json!({ "what": "reset", "request": request }));
    assert_eq!(silent.next_called("command")["ask"], json!({ "what": "resync" }));
    let resynced = || ana.get("/api/v1/audit?action=node.resync").json()["items"][0].clone();
    assert_eq!((&resynced()["object"], &resynced()["result"]), (&json!("node:n-2"), &json!("did not answer")));
    for (told, result) in [("resync", "done"), ("failed", "failed")] {
        thread::scope(|scope| {
            let asked = scope.spawn(|| ana.post("/api/v1/nodes/n-1/resync", &json!({})));
            let command = answering.next_called("command");
            assert_eq!(command["ask"], json!({ "what": "resync" }));
            assert_eq!(answer_as(&node, &command["id"], &json!({ "what": told, "why": "so" })).status, 204);
            assert_eq!(asked.join().expect("no panic").json()["answers"]["n-1"]["what"], told);
        });
        assert_eq!((&resynced()["object"], &resynced()["result"]), (&json!("node:n-1"), &json!(result)));
    }
    let sampled = ana.post("/api/v1/keys/sample", &json!({ "count": 1, "for_ms": 100, "nodes": ["here"] })).json();
    let sampled = &sampled["answers"]["here"];
    assert_eq!((&sampled["what"], &sampled["decisions"], &sampled["seen"]), (&json!("sample"), &json!([]), &json!(0)));
    let watch = json!({ "who": { "kind": "user", "value": "ada" }, "for_ms": 9_000 });
    assert_eq!(ana.post("/api/v1/keys/watch", &watch).pointers(), ["/for_ms"]);
}

/// Of each store one node is asked, one that reaches it, before any node forgets what it holds.
#[test]
fn a_reset_is_made_once_in_each_store_and_then_on_every_node() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let request = json!({ "identities": [{ "kind": "user", "value": "ada" }] });
    let names = ["n-1", "n-2", "n-3"];
    let stores = [7, 7, 8];
    let mut events = [0, 1, 2].map(|place| {
        Events::of_node(&server.url, &node, &format!("{}&store={}", hello(names[place], "a"), stores[place]))
    });
    for (place, is_away) in [true, false, false].into_iter().enumerate() {
        let _ = events[place].next_called("snapshot");
        let store = json!({
            "is_away": is_away, "failed": 0, "latency_us": null, "leased_out": 0, "overshoot_max": 0,
            "untold_max": 0, "sync_lag_ms": 0,
        });
        let report =
            json!({ "name": names[place], "instance": "a", "sequence": 1, "policy_version": 1, "store": store });
        assert_eq!(node.post("/api/v1/nodes/reports", &report).status, 204);
    }
    let answer = |place: usize, command: &Value, told: &Value| {
        let answer = json!({ "name": names[place], "instance": "a", "id": command["id"], "told": told });
        assert_eq!(node.post("/api/v1/nodes/answers", &answer).status, 204);
    };
    let left = |remaining: u64| json!([{ "limit_id": "default/tier:free/s", "limit": 100, "remaining": remaining, "reset_after_ms": 1, "is_shadow": false }]);
    let forgotten = json!({ "what": "reset", "keys": 1, "cleared": [] });
    let reset = |nodes: Option<[&str; 1]>| {
        let mut body = json!({ "request": request });
        if let Some(nodes) = nodes {
            body["nodes"] = json!(nodes);
        }
        ana.post("/api/v1/keys/reset", &body).json()
    };
    let audited = || ana.get("/api/v1/audit?action=keys.reset").json()["items"][0]["result"].clone();
    let forget = |events: &mut [Events; 3]| {
        for (place, events) in events.iter_mut().enumerate() {
            let command = events.next_called("command");
            assert_eq!(command["ask"], json!({ "what": "reset", "request": request }), "{}", names[place]);
            answer(place, &command, &forgotten);
        }
    };
    // Of the first store, the one whom it answers; and of the other its only one.
    let outcome = thread::scope(|scope| {
        let asked = scope.spawn(|| reset(None));
        for place in [1, 2] {
            let command = events[place].next_called("command");
            assert_eq!(command["ask"], json!({ "what": "clear", "request": request }));
            assert!((1..=1_000).contains(&command["deadline_ms"].as_u64().expect("a number")));
            answer(place, &command, &json!({ "what": "clear", "keys": 1, "cleared": left(40 - place as u64) }));
        }
        forget(&mut events);
        asked.join().expect("no panic")
    });
    let store = &outcome["store"];
    assert_eq!((&store["what"], &store["keys"]), (&json!("clear"), &json!(2)), "{outcome}");
    assert_eq!(outcome["answers"].as_object().map(serde_json::Map::len), Some(4), "{outcome}");
    assert_eq!(audited(), "done: default/tier:free/s had 62 of 100 used");
    // One that does not reach it is followed by the next; if nobody does, that is said.
    let outcome = thread::scope(|scope| {
        let asked = scope.spawn(|| reset(None));
        let command = events[2].next_called("command");
        answer(2, &command, &json!({ "what": "clear", "keys": 0, "cleared": [] }));
        for (place, why) in [(1, "the cable"), (0, "so")] {
            let command = events[place].next_called("command");
            assert_eq!(command["ask"]["what"], "clear");
            answer(place, &command, &json!({ "what": "failed", "why": why }));
        }
        forget(&mut events);
        asked.join().expect("no panic")
    });
    assert_eq!(outcome["store"], json!({ "what": "failed", "why": "n-1: so" }));
    assert_eq!(audited(), "done on 4 of 4 nodes, not in the store");
    // What is named is about these nodes alone.
    let outcome = thread::scope(|scope| {
        let asked = scope.spawn(|| reset(Some(["n-2"])));
        let command = events[1].next_called("command");
        assert_eq!(command["ask"]["what"], "reset");
        answer(1, &command, &forgotten);
        asked.join().expect("no panic")
    });
    assert_eq!(outcome, json!({ "answers": { "n-2": forgotten }, "did_not_answer": [] }));
    assert_eq!(audited(), "done");
}

/// Returns the answer of a call that waits for no silent node. Every call that waits takes the two seconds that a node has; one
/// that does not may take as long on a busy machine, but not always.
#[expect(clippy::disallowed_methods, reason = "a call that waits is known by its time")]
fn not_waiting<T>(call: impl Fn() -> T) -> T {
    let mut quick = (0..20).filter_map(|_| {
        let began = Instant::now();
        let answer = call();
        (began.elapsed() < Duration::from_secs(2)).then_some(answer)
    });
    quick.next().expect("an answer before the time of a silent node is over")
}

#[test]
fn a_revoked_token_ends_the_stream() {
    let folder = Folder::new();
    // A sign of life looks at the token too.
    let server =
        Server::start_with(folder.home(), |settings| settings.periods.node_heartbeat = Duration::from_hours(1));
    let ana = server.administrator();
    let (node, id) = ana.script(&json!({ "scope": "node" }));
    let mut events = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    let _ = events.next_called("snapshot");
    assert_eq!(ana.send("DELETE", &format!("/api/v1/tokens/{id}"), &[], None).status, 204);
    assert!(events.next_called("bye")["reason"].is_string());
    assert_eq!(events.next(), None);
    assert_eq!(node.get(&format!("/api/v1/snapshots/stream?{}", hello("n-1", "a"))).status, 401);
    // A node that is gone is not waited for.
    wait_until("it is gone", || row(&ana, "n-1")["presence"] == "gone");
    let request = json!({ "identities": [{ "kind": "user", "value": "ada" }] });
    let outcome =
        not_waiting(|| ana.post("/api/v1/keys/peek", &json!({ "request": request, "nodes": ["n-1"] })).json());
    assert_eq!(outcome, json!({ "answers": {}, "did_not_answer": ["n-1"] }));
}

/// More than the sockets hold is on its way to each of them.
#[test]
fn readers_that_do_not_read_cost_no_memory_and_are_told_to_start_again() {
    const READERS: usize = 40;
    const CLIENTS: u64 = 12_000;
    const READ_TIMEOUT: Duration = Duration::from_millis(500);
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.periods.node_read_timeout = READ_TIMEOUT);
    let ana = server.administrator();
    let node = node_of(&ana);
    // Values that cannot be packed.
    let client = |number: u64| {
        let part = |part: u64| format!("{:016x}", RandomState::new().hash_one((number, part)));
        let value = (0..60).map(part).collect::<Vec<_>>().concat();
        json!({ "kind": "user", "value": value, "tier": "free" })
    };
    let mut document = ana.get("/api/v1/policy").json()["document"].clone();
    document["domains"]["default"]["clients"] = (0..CLIENTS).map(client).collect();
    let files = json!({ "files": [{ "name": "a.json", "text": document.to_string() }] });
    let if_match = [("if-match", "\"policy:1\"")];
    let imported = ana.send("POST", "/api/v1/policy/import", &if_match, Some(files.to_string().into_bytes()));
    assert_eq!(imported.status, 201, "{imported:?}");
    // It has the policy already, so that it is not slow itself.
    let versions = ana.get("/api/v1/policy/versions").json();
    let digest = versions["items"][0]["sha256"].as_str().expect("text");
    let follow = || Events::of_node(&server.url, &node, &format!("{}&version=2&sha256={digest}", hello("n-1", "a")));
    let mut other = follow();
    assert_eq!(other.next(), Some(("current".to_owned(), json!({ "version": 2 }))));
    let before = memory();
    let mut readers: Vec<TcpStream> = (0..READERS)
        .map(|number| {
            let mut reader = TcpStream::connect(server.url.trim_start_matches("http://")).expect("it listens");
            let hello = hello(&format!("slow-{number}"), "a");
            let head = format!(
                "GET /api/v1/snapshots/stream?{hello} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
                node.bearer
            );
            reader.write_all(head.as_bytes()).expect("it reads");
            reader
        })
        .collect();
    // The beginning of an answer shows that it is being sent.
    for reader in &mut readers {
        reader.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        reader.read_exact(&mut [0; 512]).expect("it begins");
    }
    thread::sleep(2 * READ_TIMEOUT);
    // What each of them has still to read is several times as much. Without cargo-nextest other tests take memory in this process
    // too.
    if env::var_os("NEXTEST").is_some() {
        wait_until("the readers cost less than 64 MiB", || memory().saturating_sub(before) < 64);
    }
    // The other one is not held up. On a busy machine it may be told to restart too, and comes again as nodes do.
    assert_eq!(publish(&ana, &minute(500), false).status, 201);
    let version = loop {
        match other.next() {
            Some((name, data)) if ["delta", "snapshot"].contains(&&*name) => break data["version"].clone(),
            _ => other = follow(),
        }
    };
    assert_eq!(version, 3);
    let mut told = Vec::new();
    let mut piece = vec![0; 1 << 16];
    // Until it ends.
    while !told.ends_with(b"0\r\n\r\n") {
        let count = readers[0].read(&mut piece).expect("it goes on");
        assert!(count > 0, "the answer is whole");
        told.extend_from_slice(&piece[..count]);
    }
    assert!(told.len() > 4 << 20, "it is more than the sockets hold: {}", told.len());
    let end = String::from_utf8_lossy(&told[told.len() - 200..]);
    assert!(end.contains("event: restart"), "{end}");
}

/// Memory of this process that is really there, in MiB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") >> 10
}

#[test]
fn the_control_plane_alone_is_no_node() {
    let (folder, mut server) = fresh();
    let ana = server.administrator();
    assert_eq!(ana.get("/api/v1/nodes").json()["items"][0]["presence"], "here");
    server.stop();
    let server = Server::start_with(&crate::support::data_of(&folder), |settings| settings.is_node = false);
    let ana = server.sign_in();
    assert_eq!(ana.get("/api/v1/nodes").json()["items"], json!([]));
    let request = json!({ "identities": [{ "kind": "user", "value": "ada" }] });
    let asked = || ana.post("/api/v1/keys/peek", &json!({ "request": request })).json();
    assert_eq!(asked(), json!({ "answers": {}, "did_not_answer": [] }));
    // What another server says of its nodes: one is there, one is gone, and of one the server is not heard any more.
    for (name, is_connected, at) in [("n-1", 1, 4_000_000_000_i64), ("n-2", 0, 4_000_000_000), ("n-3", 1, 1)] {
        folder.home().execute(&format!(
            "INSERT INTO nodes (name, server, \"schema\", version, is_connected, at)
             VALUES ('{name}', 'another', 2, 1, {is_connected}, {at})"
        ));
    }
    assert_eq!(asked(), json!({ "answers": {}, "did_not_answer": ["n-1"] }));
}

/// What process a node is, its errors and events; one of an older build says less.
#[test]
fn a_node_is_shown_with_its_process_its_errors_and_what_happened() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut events = ["n-1", "n-2"].map(|name| Events::of_node(&server.url, &node, &hello(name, "a")));
    for events in &mut events {
        let _ = events.next_called("snapshot");
    }
    let door = json!({ "protocol": "http", "address": "http://10.0.0.11:9080" });
    let mut told = report(1, 30, 10);
    told["keys"] = json!(81_204);
    told["memory_bytes"] = json!((64 << 20) + 5);
    told["errors"] = json!([{ "kind": "overload", "count": 3 }]);
    told["process"] =
        json!({ "started_at_ms": 1_700_000_000_000u64, "commit": "abc", "doors": [door], "max_keys": 100_000 });
    assert_eq!(node.post("/api/v1/nodes/reports", &told).status, 204);
    let mut older = report(1, 3, 0);
    older["name"] = json!("n-2");
    assert_eq!(node.post("/api/v1/nodes/reports", &older).status, 204);
    // What process it is comes in one report of ten, and stays known.
    assert_eq!(node.post("/api/v1/nodes/reports", &report(2, 30, 10)).status, 204);

    let shown = row(&ana, "n-1");
    assert_eq!((&shown["keys"], &shown["errors"]), (&Value::Null, &json!([])), "what is told last");
    assert_eq!(
        (&shown["process"]["commit"], &shown["process"]["doors"], &shown["process"]["max_keys"]),
        (&json!("abc"), &json!([door]), &json!(100_000))
    );
    told["sequence"] = json!(3);
    assert_eq!(node.post("/api/v1/nodes/reports", &told).status, 204);
    let list = ana.get("/api/v1/nodes").json();
    let of = |name: &str| list["items"].as_array().expect("a list").iter().find(|row| row["node"] == name).expect("it");
    assert_eq!((&of("n-1")["keys"], &of("n-1")["memory_bytes"]), (&json!(81_204), &json!(64 << 20)));
    assert_eq!((&of("n-2")["keys"], &of("n-2")["memory_bytes"]), (&Value::Null, &Value::Null));
    assert_eq!(of("n-1")["process"], Value::Null, "of one alone");
    assert_eq!(row(&ana, "n-1")["errors"], json!([{ "kind": "overload", "count": 3 }]));
    assert_eq!((&row(&ana, "n-2")["process"], &row(&ana, "n-2")["errors"]), (&Value::Null, &json!([])));
    let here = row(&ana, "here");
    assert_eq!(
        (&here["process"]["max_keys"], &here["errors"], &here["events"][0]["code"]),
        (&json!(10_000), &json!([{ "kind": "bad_request", "count": 2 }]), &json!("applied"))
    );
    assert!(here["keys"].is_u64() && here["process"]["started_at_ms"].as_u64() > Some(1_700_000_000_000), "{here}");

    // Every second it is there is kept.
    let history = || ana.get("/api/v1/nodes/n-1/history").json()["items"].as_array().expect("a list").clone();
    wait_until("its seconds are kept", || history().len() >= 2);
    let newest = history().pop().expect("a second");
    assert!(newest["allowed"].as_f64() > Some(0.0) && newest["p99_us"].is_u64() && newest["lag_s"] == 0, "{newest}");
    assert_eq!(ana.get("/api/v1/nodes/nobody/history").status, 404);

    // What became of versions, and of its connection.
    for (version, refused) in [(2, Value::Null), (3, json!("this build cannot read it"))] {
        let took = json!({
            "name": "n-1", "instance": "a", "version": version, "at_ms": version, "took_ms": 7, "refused": refused,
        });
        assert_eq!(node.post("/api/v1/nodes/acknowledgements", &took).status, 204);
    }
    drop(events);
    wait_until("it is gone", || row(&ana, "n-1")["presence"] == "gone");
    let mut back = Events::of_node(&server.url, &node, &hello("n-1", "b"));
    let _ = back.next_called("snapshot");
    let shown = row(&ana, "n-1");
    // Where the machine is slow it may have fallen silent, as it reports no more.
    let events = shown["events"].as_array().expect("a list").iter();
    let events = events.filter(|event| !["silent", "heard"].contains(&event["code"].as_str().expect("text")));
    let messages: Vec<_> = events.map(|event| &event["message"]).collect();
    assert_eq!(
        messages,
        [
            "It connected, another process than before",
            "Its connection ended",
            "Version 3 was not taken: this build cannot read it",
            "Version 2 was in force after 7 ms",
            "It connected",
        ]
    );
    assert_eq!(shown["process"], Value::Null, "another process has not said what it is");
}

#[test]
fn a_node_is_behind_since_the_first_version_that_it_lacked_until_it_has_the_newest() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut events = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    let _ = events.next_called("snapshot");
    let has = |version: u64| {
        let took = json!({ "name": "n-1", "instance": "a", "version": version, "at_ms": version, "took_ms": 7 });
        assert_eq!(node.post("/api/v1/nodes/acknowledgements", &took).status, 204);
    };
    let behind_since = || row(&ana, "n-1")["behind_since"].clone();
    let published_at = || ana.get("/api/v1/policy/versions?limit=1").json()["items"][0]["published_at"].clone();
    assert!(behind_since().is_string(), "it has no policy yet");
    has(1);
    assert_eq!(behind_since(), Value::Null);
    assert_eq!(publish(&ana, &minute(500), false).status, 201);
    let since = behind_since();
    let instant = |text: &Value| text.as_str().expect("text").parse::<jiff::Timestamp>().expect("an instant");
    assert_eq!(instant(&since), instant(&published_at()));
    // Looked at once a second.
    let lags = |at_least: u64| {
        wait_until("it lags", || {
            let seconds = ana.get("/api/v1/nodes/n-1/history").json();
            seconds["items"].as_array().and_then(|all| all.last()?["lag_s"].as_u64()) >= Some(at_least)
        });
    };
    lags(1);
    // With every publish one more is lacking, also where those before come to be in force.
    assert_eq!(publish(&ana, &minute(600), false).status, 201);
    assert_eq!(behind_since(), since);
    has(2);
    assert_eq!(behind_since(), since);
    lags(2);
    has(3);
    assert_eq!(behind_since(), Value::Null);
    assert_eq!(publish(&ana, &minute(700), false).status, 201);
    assert_eq!(instant(&behind_since()), instant(&published_at()));
}

#[test]
fn streams_are_told_the_rows_that_changed_and_who_was_forgotten() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut events: Vec<Events> =
        ["n-1", "n-2", "n-3"].map(|name| Events::of_node(&server.url, &node, &hello(name, "a"))).into();
    for events in &mut events {
        let _ = events.next_called("snapshot");
    }
    let has = |event: &Value, name: &str| -> Option<Value> {
        event["items"].as_array().expect("a list").iter().find(|row| row["node"] == name).cloned()
    };
    wait_until("all are known", || ana.get("/api/v1/nodes").json()["items"].as_array().map(Vec::len) == Some(4));
    // Until a newcomer is told of all of them.
    let mut stream = loop {
        let mut stream = Events::open(&server.url, &ana, "node");
        let first = stream.next_called("node");
        assert_eq!(first["whole"], true, "{first}");
        if first["items"].as_array().map(Vec::len) == Some(4) {
            break stream;
        }
    };
    let mut busy = report(1, 30, 10);
    busy["name"] = json!("n-2");
    assert_eq!(node.post("/api/v1/nodes/reports", &busy).status, 204);
    let mut next_with = |is_it: &dyn Fn(&Value) -> bool| loop {
        let event = stream.next_called("node");
        assert_eq!(event["whole"], Value::Null, "{event}");
        if is_it(&event) {
            return event;
        }
    };
    let told = next_with(&|event| has(event, "n-2").is_some_and(|row| row["decisions"] == 40));
    assert!(has(&told, "n-1").is_none_or(|row| row["presence"] == "silent"), "{told}");
    drop(events.pop());
    let _ = next_with(&|event| has(event, "n-3").is_some_and(|row| row["presence"] == "gone"));
    assert_eq!(ana.send("DELETE", "/api/v1/nodes/n-3", &[], None).status, 204);
    let told = next_with(&|event| !event["removed"].as_array().expect("a list").is_empty());
    assert_eq!((&told["removed"], has(&told, "n-3")), (&json!(["n-3"]), None));
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: four seconds are enough on an idle machine"]
    fn who_does_not_answer_delays_the_answer_by_two_seconds() {
        ask_nodes_of_which_one_is_silent(Duration::from_secs(4));
    }

    /// The connection of a lost node breaks at the second sign of life after the loss, at the latest: 20 seconds.
    #[test]
    #[ignore = "long: up to 20 seconds"]
    #[expect(clippy::disallowed_methods, reason = "the real period is the subject")]
    fn a_lost_node_is_gone_after_two_signs_of_life() {
        let folder = Folder::new();
        let server = Server::start_with(folder.home(), |settings| settings.periods = Periods::default());
        let ana = server.administrator();
        let mut events = Events::of_node(&server.url, &node_of(&ana), &hello("n-1", "a"));
        let _ = events.next_called("snapshot");
        assert_ne!(row(&ana, "n-1")["presence"], "gone");
        drop(events);
        let lost = Instant::now();
        wait_until("it is gone", || row(&ana, "n-1")["presence"] == "gone");
        assert!(lost.elapsed() < Duration::from_secs(25), "{:?}", lost.elapsed());
    }
}
