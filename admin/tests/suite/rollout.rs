//! A version that goes to some nodes first, then to all, or back.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tidegate::policy::Policy;
use tidegate_admin::PolicyFile;
use tidegate_testkit::wait_until;

use crate::{
    nodes::{assign, document_of, hello, limit_of, minute, node_of, row},
    stream::Events,
    support::{Answer, Client, Server, data_of, fresh, tier_change},
    two_servers::{two, wait_for, wait_for_answers},
};

/// The newest version at this server.
fn newest(ana: &Client) -> u64 {
    ana.get("/api/v1/policy").json()["version"].as_u64().expect("a number")
}

/// Publishes the tier `free` with so many a minute to these nodes.
fn stage(ana: &Client, limit: u64, nodes: &Value) -> Answer {
    let (etag, _) = ana.tier("free");
    let mut list = tier_change(newest(ana), &etag, &json!({ "id": "free", "limits": [minute(limit)] }));
    list["nodes"] = nodes.clone();
    ana.post("/api/v1/policy/changes", &list)
}

fn go_on(ana: &Client, to: &Value) -> Answer {
    ana.post("/api/v1/rollout", &json!({ "to": to }))
}

/// A new node of this name, and the version and limit that it is sent first.
fn connect(url: &str, node: &Client, name: &str) -> (Events, (u64, u64)) {
    let mut events = Events::of_node(url, node, &hello(name, "a"));
    let first = sent(&mut events);
    (events, first)
}

fn sent(events: &mut Events) -> (u64, u64) {
    let (name, snapshot) = events.next().expect("an event");
    assert_eq!(name, "snapshot");
    (snapshot["version"].as_u64().expect("a number"), limit_of(&snapshot).as_u64().expect("a number"))
}

/// Of so many clients what differs is little.
#[test]
fn nobody_is_led_through_a_version_that_was_taken_back() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    assign(&ana, 0..3_000, "free");
    let deltas = |name: &str, had: &str| format!("{}&deltas=100{had}", hello(name, "a"));
    let mut events = ["n-1", "n-2"].map(|name| Events::of_node(&server.url, &node, &deltas(name, "")));
    let had = events.each_mut().map(|events| events.next_called("snapshot"));
    assert_eq!(stage(&ana, 500, &json!(["n-1"])).status, 201);
    let (name, staged) = events[0].next().expect("an event");
    assert_eq!((name.as_str(), &staged["version"]), ("delta", &json!(3)));
    assert_eq!(go_on(&ana, &json!("back")).status, 200);
    let [back, same] = events.each_mut().map(|events| events.next().expect("an event"));
    assert_eq!((back.0.as_str(), &back.1["version"]), ("delta", &json!(4)));
    assert_eq!((same.0.as_str(), &same.1["version"], &same.1["sha256"]), ("snapshot", &json!(4), &had[1]["sha256"]));
    let away = format!("&version=2&sha256={}", had[0]["sha256"].as_str().expect("text"));
    let mut away = Events::of_node(&server.url, &node, &deltas("n-3", &away));
    assert_eq!(away.next().expect("an event").0, "snapshot");

    // One that went to all has been everywhere.
    assert_eq!(stage(&ana, 700, &json!(["n-1"])).status, 201);
    assert_eq!(go_on(&ana, &json!("all")).status, 200);
    for (events, name) in events.iter_mut().zip(["n-1", "n-2"]) {
        let (event, sent) = events.next().expect("an event");
        assert_eq!((event.as_str(), &sent["version"]), ("delta", &json!(5)), "{name}");
    }
}

/// Nothing is sent to this one: what it is told next is what is asked of it now.
fn is_sent_nothing(ana: &Client, name: &str, events: &mut Events) {
    let asked = thread::scope(|scope| {
        let asked = scope.spawn(|| ana.post(&format!("/api/v1/nodes/{name}/resync"), &json!({})));
        assert_eq!(events.next().expect("an event").0, "command");
        asked.join().expect("no panic")
    });
    assert_eq!(asked.status, 200);
}

fn targets(ana: &Client, names: &[&str]) -> Vec<u64> {
    names.iter().map(|name| row(ana, name)["target_version"].as_u64().expect("a number")).collect()
}

/// Version and limit by which this server decides.
fn decides(server: &Server) -> (u64, Option<u64>) {
    let decision = server.check("ada");
    (decision.policy_version(), decision.limit())
}

#[test]
fn a_version_goes_to_some_nodes_then_to_more_then_to_all() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let (mut first, _) = connect(&server.url, &node, "n-1");
    let (mut second, _) = connect(&server.url, &node, "n-2");
    assert_eq!(ana.get("/api/v1/rollout").json()["code"], "not_found");
    let mut told = Events::open(&server.url, &ana, "");
    assert_eq!(told.next_called("hello")["rollout"], Value::Null);

    let staged = stage(&ana, 500, &json!(["n-1"]));
    assert_eq!((staged.status, &staged.json()["nodes"]), (201, &json!(["n-1"])), "{staged:?}");
    assert_eq!(sent(&mut first), (2, 500));
    is_sent_nothing(&ana, "n-2", &mut second);
    assert_eq!(decides(&server), (1, Some(100)), "it is not named");
    told.skip_to_published(2);
    let rollout = told.next_called("policy.rollout")["rollout"].clone();
    assert_eq!((&rollout["version"], &rollout["keeps"], &rollout["nodes"]), (&json!(2), &json!(1), &json!(["n-1"])));
    // It is the newest, and edits are made on it; what decides here is another.
    assert_eq!((newest(&ana), ana.tier("free").0.as_str()), (2, "\"tier:free:2\""));
    let asked = json!({ "identities": [{ "kind": "user", "value": "ada" }] });
    let explained = ana.post("/api/v1/explain", &asked).json();
    assert_eq!((&explained["policy_version"], &explained["limits"][0]["limit"]), (&json!(1), &json!(100)));
    let ready = server.stranger().get("/readyz");
    assert_eq!((ready.status, ready.text.as_str()), (200, "policy version 1\n"));
    assert!(server.stranger().get("/metrics").text.contains("policy_version 1\n"));
    // Whoever comes anew, and whoever comes again.
    let (mut third, sent_first) = connect(&server.url, &node, "n-3");
    assert_eq!(sent_first, (1, 100));
    assert_eq!(connect(&server.url, &node, "n-1").1, (2, 500));
    assert_eq!(targets(&ana, &["here", "n-1", "n-2", "n-3"]), [1, 2, 1, 1]);
    let (mut first, sent_first) = connect(&server.url, &node, "n-1");
    assert_eq!(sent_first, (2, 500));
    let shown = ana.get("/api/v1/rollout").json();
    assert_eq!((&shown["author"], &shown["version"], &shown["keeps"]), (&json!("ana"), &json!(2), &json!(1)));
    assert_eq!(shown["has"], json!([{ "node": "n-1", "policy_version": 0 }]), "it has not said so yet");
    let took = json!({ "name": "n-1", "instance": "a", "version": 2, "at_ms": 1, "took_ms": 7 });
    assert_eq!(node.post("/api/v1/nodes/acknowledgements", &took).status, 204);
    assert_eq!(ana.get("/api/v1/rollout").json()["has"], json!([{ "node": "n-1", "policy_version": 2 }]));

    let more = go_on(&ana, &json!(["n-2"]));
    assert_eq!((more.status, &more.json()["rollout"]["nodes"]), (200, &json!(["n-1", "n-2"])), "{more:?}");
    assert_eq!(sent(&mut second), (2, 500));
    is_sent_nothing(&ana, "n-3", &mut third);
    let all = go_on(&ana, &json!("all"));
    assert_eq!((all.status, all.json()), (200, json!({ "version": 2, "rollout": null })));
    assert_eq!(sent(&mut third), (2, 500));
    is_sent_nothing(&ana, "n-1", &mut first);
    assert_eq!(decides(&server), (2, Some(500)));
    assert_eq!(targets(&ana, &["here", "n-1", "n-2", "n-3"]), [2, 2, 2, 2]);
    assert_eq!(told.next_called("policy.applied")["version"], 2);
    for again in [json!("all"), json!("back"), json!(["n-1"])] {
        let refused = go_on(&ana, &again);
        assert_eq!((refused.status, &refused.json()["code"]), (404, &json!("not_found")), "{refused:?}");
    }
    assert_eq!(stage(&ana, 600, &Value::Null).status, 201, "the next one may go");
    let lines = ana.get("/api/v1/audit?limit=50").json();
    let lines = lines["items"].as_array().expect("a list").iter();
    let of_rollout = |line: &&Value| line["action"].as_str().is_some_and(|action| action.starts_with("rollout."));
    let text = |line: &Value| {
        ["actor", "action", "object", "result"].map(|it| line[it].as_str().expect("text").to_owned()).join(" ")
    };
    assert_eq!(
        lines.filter(of_rollout).map(text).collect::<Vec<_>>(),
        [
            "ana rollout.all version:2 done",
            "ana rollout.node node:n-2 version:2",
            "ana rollout.node node:n-1 version:2"
        ]
    );
}

#[test]
fn a_version_is_taken_back_by_another() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let (mut first, _) = connect(&server.url, &node, "n-1");
    let (mut second, _) = connect(&server.url, &node, "n-2");
    let before = ana.get("/api/v1/policy").json()["document"].clone();
    assert_eq!(stage(&ana, 500, &json!(["n-1", "here"])).status, 201);
    assert_eq!((sent(&mut first), decides(&server)), ((2, 500), (2, Some(500))), "this one is named too");
    let back = go_on(&ana, &json!("back"));
    assert_eq!((back.status, back.json()), (200, json!({ "version": 3, "rollout": null })), "{back:?}");
    assert_eq!((sent(&mut first), sent(&mut second)), ((3, 100), (3, 100)));
    assert_eq!(decides(&server), (3, Some(100)));
    assert_eq!(ana.get("/api/v1/policy").json()["document"], before);
    let versions = ana.get("/api/v1/policy/versions").json();
    assert_eq!(versions["items"][0]["message"], "back to version 1, instead of version 2");
    assert_eq!(ana.get("/api/v1/rollout").status, 404);
    assert_eq!(ana.get("/api/v1/audit?action=rollout.back").json()["items"][0]["object"], "version:3");
    // What was taken back can be published again.
    assert_eq!(stage(&ana, 500, &Value::Null).status, 201);
    assert_eq!((sent(&mut first), sent(&mut second)), ((4, 500), (4, 500)));
}

#[test]
fn while_one_is_open_nothing_but_overrides_is_published() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    assert_eq!(ana.post("/api/v1/clients", &json!({ "kind": "user", "value": "eve", "tier": "free" })).status, 201);
    let tag = ana.get("/api/v1/clients/user:eve").header("etag").to_owned();
    let node = node_of(&ana);
    let _first = connect(&server.url, &node, "n-1");
    let list = tier_change(2, &ana.tier("free").0, &json!({ "id": "free", "limits": [minute(500)] }));
    let mut staged = list.clone();
    staged["nodes"] = json!(["n-1"]);
    let once = |list: &Value| {
        let headers = [("idempotency-key", "once")];
        ana.send("POST", "/api/v1/policy/changes", &headers, Some(list.to_string().into_bytes()))
    };
    let made = once(&staged);
    assert_eq!(made.status, 201, "{made:?}");
    // A repeat is no publish.
    let repeated = once(&staged);
    assert_eq!((repeated.status, repeated.text), (201, made.text));
    let blocked = json!({ "blocked": true, "reason": "abuse" }).to_string().into_bytes();
    let policy = ana.get("/api/v1/policy").header("etag").to_owned();
    let limit = json!({ "id": "free", "limits": [minute(700)] });
    let patch = json!({ "override": { "blocked": true, "reason": "abuse" }, "tier": "pro" }).to_string().into_bytes();
    for refused in [
        ana.post("/api/v1/policy/changes", &tier_change(3, &ana.tier("free").0, &limit)),
        stage(&ana, 700, &json!(["n-1"])),
        ana.send("POST", "/api/v1/policy/rollback", &[("if-match", &policy)], Some(b"{\"to\": 1}".to_vec())),
        ana.post("/api/v1/tiers", &json!({ "id": "huge", "unlimited": true })),
        ana.post("/api/v1/clients", &json!({ "kind": "user", "value": "max", "tier": "free" })),
        ana.send("PATCH", "/api/v1/clients/user:eve", &[("if-match", &tag)], Some(patch)),
    ] {
        assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("rollout_open")), "{refused:?}");
        let detail = refused.json()["detail"].as_str().expect("text").to_owned();
        for said in ["Version 3 of ana", "n-1", "keep version 2", "\"to\": \"all\"", "\"to\": \"back\"", "blocks too"] {
            assert!(detail.contains(said), "{said}: {detail}");
        }
    }
    assert_eq!(newest(&ana), 3);
    // A list can be tried meanwhile.
    let mut tried = list;
    tried["base_version"] = json!(3);
    tried["changes"][0]["value"]["limits"] = json!([minute(600)]);
    tried["if_match"] = json!({ "tier:free": ana.tier("free").0 });
    assert_eq!(ana.post("/api/v1/policy/validate", &tried).status, 200);
    let given = json!({ "override": { "blocked": true, "reason": "abuse" } });
    tried["changes"] = json!([{ "op": "patch", "kind": "client", "id": "user:eve", "value": given }]);
    tried["if_match"] = json!({ "client:user:eve": tag });
    let said = ana.post("/api/v1/policy/validate", &tried);
    assert_eq!((said.status, &said.json()["version"]), (200, &json!(5)), "{said:?}");
    // Whoever may change clients alone does not let a tier go on, nor back.
    let (script, _) = ana.script(&json!({ "role": "editor", "kinds": ["client"] }));
    for to in ["all", "back"] {
        assert_eq!(go_on(&script, &json!(to)).status, 403, "{to}");
    }
    // What is wrong with an override is told as ever, and a block is made.
    let put = |tag: &str, given: &[u8]| {
        ana.send("PUT", "/api/v1/clients/user:eve/override", &[("if-match", tag)], Some(given.to_vec()))
    };
    assert_eq!(put(&tag, b"{\"blocked\": true}").pointers(), ["/reason"]);
    assert_eq!(put("\"client:user:eve:1\"", &blocked).json()["code"], "conflict");
    assert_eq!(put(&tag, &blocked).status, 201);
    assert_eq!(go_on(&ana, &json!("all")).status, 200);
    let limit = json!({ "id": "free", "limits": [minute(800)] });
    assert_eq!(ana.publish_tier(newest(&ana), &ana.tier("free").0, &limit).status, 201);
}

const EVE: &str = "/api/v1/clients/user:eve";

fn block(client: &Client, path: &str, condition: (&str, &str)) -> Answer {
    let given = json!({ "blocked": true, "reason": "abuse" }).to_string().into_bytes();
    client.send("PUT", &format!("{path}/override"), &[condition], Some(given))
}

/// The next snapshot: its version, the limit of the tier `free`, and whether eve is blocked.
fn sent_of_eve(events: &mut Events) -> (u64, u64, bool) {
    let (name, snapshot) = events.next().expect("an event");
    assert_eq!(name, "snapshot");
    let clients = document_of(&snapshot)["domains"]["default"]["clients"].clone();
    let eve = clients.as_array().and_then(|clients| clients.iter().find(|client| client["value"] == "eve").cloned());
    let is_blocked = eve.is_some_and(|eve| eve["override"]["blocked"] == true);
    let number = |value: &Value| value.as_u64().expect("a number");
    (number(&snapshot["version"]), number(&limit_of(&snapshot)), is_blocked)
}

#[test]
fn a_block_and_its_end_reach_every_node_while_a_rollout_is_open() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let oli = ana.add("operator", &server);
    assert_eq!(ana.post("/api/v1/clients", &json!({ "kind": "user", "value": "eve", "tier": "free" })).status, 201);
    let tag = oli.get(EVE).header("etag").to_owned();
    let node = node_of(&ana);
    let (mut first, _) = connect(&server.url, &node, "n-1");
    let (mut second, _) = connect(&server.url, &node, "n-2");
    assert_eq!(stage(&ana, 500, &json!(["n-1"])).status, 201);
    assert_eq!(sent_of_eve(&mut first), (3, 500, false));
    let mut told = Events::open(&server.url, &ana, "");
    assert_eq!(told.next_called("hello")["rollout"]["version"], 3);

    let made = block(&oli, EVE, ("if-match", &tag));
    let answer = made.json();
    assert_eq!((made.status, &answer["version"], &answer["others_version"]), (201, &json!(5), &json!(4)), "{made:?}");
    assert_eq!((&answer["nodes"], &answer["on_top_of"]), (&json!(["n-1"]), &Value::Null));
    assert_eq!(answer["changes"][0]["etag"], "\"client:user:eve:5\"");
    assert_eq!((sent_of_eve(&mut first), sent_of_eve(&mut second)), ((5, 500, true), (4, 100, true)));
    assert_eq!((decides(&server), server.check("eve").is_allowed()), ((4, Some(100)), false));
    told.skip_to_published(5);
    let rollout = told.next_called("policy.rollout")["rollout"].clone();
    assert_eq!((&rollout["version"], &rollout["keeps"], &rollout["nodes"]), (&json!(5), &json!(4), &json!(["n-1"])));
    assert_eq!((&rollout["author"], targets(&ana, &["here", "n-1", "n-2"])), (&json!("ana"), vec![4, 5, 4]));
    // A new node is sent it too.
    let (_third, first_sent) = connect(&server.url, &node, "n-3");
    assert_eq!(first_sent, (4, 100));

    // It is told as two versions that change the same client and nothing else.
    let versions = ana.get("/api/v1/policy/versions?object=client:user:eve").json();
    let of = |version: &Value| {
        let [number, follows, count] = [&version["version"], &version["follows"], &version["objects"]["count"]];
        (number.as_u64(), follows.as_u64(), count.as_u64(), version["author"].as_str().map(str::to_owned))
    };
    let of_operator = |number, follows| (Some(number), Some(follows), Some(1), Some("operator".to_owned()));
    let items = versions["items"].as_array().expect("a list");
    assert_eq!(items[..2].iter().map(of).collect::<Vec<_>>(), [of_operator(5, 3), of_operator(4, 2)]);
    for (version, follows) in [(4, 2), (5, 3)] {
        let diff = ana.get(&format!("/api/v1/policy/diff?to={version}")).json();
        let differences = diff["differences"].as_array().expect("a list");
        assert_eq!(diff["from"], follows);
        assert!(!differences.is_empty() && differences.iter().all(|one| one["id"] == "user:eve"), "{diff}");
    }
    let lines = ana.get("/api/v1/audit?actor=operator").json();
    let lines = lines["items"].as_array().expect("a list").iter();
    let text =
        |line: &Value| ["action", "object", "result"].map(|it| line[it].as_str().expect("text").to_owned()).join(" ");
    assert_eq!(
        lines.map(text).filter(|line| !line.starts_with("session.")).collect::<Vec<_>>(),
        [
            "object.change client:user:eve version:5",
            "policy.publish version:5 done",
            "object.change client:user:eve version:4",
            "policy.publish version:4 done",
        ]
    );

    // What was read before the block is not what is changed.
    let end = |tag: &str| oli.send("DELETE", &format!("{EVE}/override"), &[("if-match", tag)], None);
    let stale = end(&tag);
    assert_eq!((stale.status, &stale.json()["conflicts"][0]["changed_by"]), (412, &json!("operator")), "{stale:?}");
    let ended = end(oli.get(EVE).header("etag"));
    let answer = ended.json();
    assert_eq!((ended.status, &answer["version"], &answer["others_version"]), (201, &json!(7), &json!(6)), "{ended:?}");
    assert_eq!((sent_of_eve(&mut first), sent_of_eve(&mut second)), ((7, 500, false), (6, 100, false)));
    assert!(server.check("eve").is_allowed());
}

#[test]
fn a_block_is_still_there_when_a_rollout_has_gone_to_all() {
    let (folder, mut server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    for _ in 0..60 {
        assert!(server.check("ada").is_allowed());
    }
    let (first, _) = connect(&server.url, &node, "n-1");
    let mut list = tier_change(1, &ana.tier("free").0, &json!({ "id": "free", "limits": [minute(500)] }));
    list["nodes"] = json!(["n-1"]);
    list["carry"] = json!({ "default/tier:free/minute": "reset" });
    assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    // She is no client yet, in neither version.
    assert_eq!(block(&ana, EVE, ("if-none-match", "*")).status, 201);
    assert!(server.check("ada").remaining().expect("a limit") < 90, "what was used stays used for now");
    drop(first);
    server.stop();
    let server = Server::start(&data_of(&folder));
    let ana = server.sign_in();
    let node = Client { url: server.url.clone(), ..node };
    assert_eq!((decides(&server), server.check("eve").is_allowed()), ((3, Some(100)), false));
    let mut first = Events::of_node(&server.url, &node, &hello("n-1", "a"));
    assert_eq!(sent_of_eve(&mut first), (4, 500, true));
    let mut second = Events::of_node(&server.url, &node, &format!("{}&version=1&sha256=00", hello("n-2", "a")));
    let (_, snapshot) = second.next().expect("an event");
    assert_eq!((&snapshot["version"], limit_of(&snapshot)), (&json!(3), json!(100)));

    let all = go_on(&ana, &json!("all"));
    assert_eq!((all.status, all.json()), (200, json!({ "version": 4, "rollout": null })));
    let (_, snapshot) = second.next().expect("an event");
    let reset = json!({ "default/tier:free/minute": "reset" });
    assert_eq!((&snapshot["version"], limit_of(&snapshot), &snapshot["carry"]), (&json!(4), json!(500), &reset));
    is_sent_nothing(&ana, "n-1", &mut first);
    assert_eq!((decides(&server), server.check("eve").is_allowed()), ((4, Some(500)), false));
    // The versions' own changes are still theirs.
    let own = |version: u64| {
        let policy = ana.get("/api/v1/policy").header("etag").to_owned();
        let body = json!({ "to": version, "mode": "own" }).to_string().into_bytes();
        ana.send("POST", "/api/v1/policy/rollback", &[("if-match", &policy)], Some(body))
    };
    assert_eq!(own(4).status, 201);
    assert_eq!((decides(&server), server.check("eve").is_allowed()), ((5, Some(500)), true));
    assert_eq!(own(2).status, 201);
    assert_eq!(decides(&server), (6, Some(100)));
}

#[test]
fn a_block_is_still_there_when_a_rollout_was_taken_back() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let (mut first, _) = connect(&server.url, &node, "n-1");
    let (mut second, _) = connect(&server.url, &node, "n-2");
    // The version makes a client of her, which the other nodes do not have.
    let mut list = tier_change(1, &ana.tier("free").0, &json!({ "id": "free", "limits": [minute(500)] }));
    let client = json!({ "kind": "user", "value": "eve", "tier": "pro" });
    let create = json!({ "op": "create", "kind": "client", "id": "user:eve", "value": client });
    list["changes"].as_array_mut().expect("a list").push(create);
    list["nodes"] = json!(["n-1"]);
    assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    assert_eq!(sent_of_eve(&mut first), (2, 500, false));
    assert_eq!(block(&ana, EVE, ("if-match", ana.get(EVE).header("etag"))).status, 201);
    assert_eq!((sent_of_eve(&mut first), sent_of_eve(&mut second)), ((4, 500, true), (3, 100, true)));
    let back = go_on(&ana, &json!("back"));
    assert_eq!((back.status, back.json()), (200, json!({ "version": 5, "rollout": null })), "{back:?}");
    assert_eq!((sent_of_eve(&mut first), sent_of_eve(&mut second)), ((5, 100, true), (5, 100, true)));
    assert_eq!((decides(&server), server.check("eve").is_allowed()), ((5, Some(100)), false));
    assert_eq!(
        ana.get("/api/v1/policy/versions").json()["items"][0]["message"],
        "back to version 3, instead of version 4"
    );
    let eve = ana.get(EVE).json();
    assert_eq!((&eve["value"]["tier"], &eve["value"]["override"]["reason"]), (&Value::Null, &json!("abuse")));
    // Its end is the end of the client.
    let ended = ana.send("DELETE", &format!("{EVE}/override"), &[("if-match", ana.get(EVE).header("etag"))], None);
    assert_eq!((ended.status, ana.get(EVE).status), (201, 404), "{ended:?}");
    assert_eq!((sent_of_eve(&mut first), sent_of_eve(&mut second)), ((6, 100, false), (6, 100, false)));
}

/// Blocks through one server while a rollout ends through the other: in each order both are done, and a rollout ends although
/// blocks keep coming.
fn blocks_meet_the_end_of_a_rollout([a, b]: [&Server; 2], [ana, at_b]: [&Client; 2]) {
    let node = node_of(ana);
    for (turn, to) in ["all", "back", "all", "back"].into_iter().enumerate() {
        let _first = connect(&a.url, &node, "n-1");
        let before = decides(a).1;
        let limit = 200 + turn as u64;
        assert_eq!(stage(ana, limit, &json!(["n-1"])).status, 201);
        let path = |number: usize| format!("/api/v1/clients/user:u-{turn}-{number}");
        let (begin, has_ended) = (Barrier::new(2), AtomicBool::new(false));
        let (ended, blocked) = thread::scope(|scope| {
            let blocks = scope.spawn(|| {
                begin.wait();
                let mut made = 0;
                while made < 6 || made < 500 && !has_ended.load(Ordering::Relaxed) {
                    let answer = block(at_b, &path(made), ("if-none-match", "*"));
                    assert_eq!(answer.status, 201, "{answer:?}");
                    made += 1;
                }
                made
            });
            begin.wait();
            let ended = go_on(ana, &json!(to));
            has_ended.store(true, Ordering::Relaxed);
            (ended, blocks.join().expect("no panic"))
        });
        assert_eq!((ended.status, &ended.json()["rollout"]), (200, &Value::Null), "{ended:?}");
        assert!(blocked < 500, "it waited until there were no more blocks");
        let newest = newest(ana).max(newest(at_b));
        let expected = if to == "all" { Some(limit) } else { before };
        for (server, client) in [(a, ana), (b, at_b)] {
            wait_for_answers(client, newest);
            assert_eq!(decides(server), (newest, expected), "{to}");
            for number in 0..blocked {
                assert_eq!(client.get(&path(number)).json()["value"]["override"]["blocked"], true, "{to} {number}");
                assert!(!server.check(&format!("u-{turn}-{number}")).is_allowed(), "{to} {number}");
            }
            for name in ["n-1", "n-2"] {
                let sent = connect(&server.url, &node, name).1;
                assert_eq!(Some(sent), expected.map(|limit| (newest, limit)), "{to} {name}");
            }
        }
    }
}

#[test]
fn blocks_and_the_end_of_a_rollout_do_not_lose_each_other() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    blocks_meet_the_end_of_a_rollout([&server, &server], [&ana, &ana]);
}

#[test]
#[ignore = "needs PostgreSQL"]
fn blocks_through_one_server_and_the_end_of_a_rollout_through_another_do_not_lose_each_other() {
    let (_folder, [a, b], [ana, at_b]) = two();
    blocks_meet_the_end_of_a_rollout([&a, &b], [&ana, &at_b]);
}

/// An operator's reach is the same: what an editor gave for longer stays, also where the newest version took it away.
#[test]
fn who_may_give_no_long_override_replaces_none_on_the_other_nodes() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let oli = ana.add("operator", &server);
    let node = node_of(&ana);
    let _first = connect(&server.url, &node, "n-1");
    let long = json!({ "unlimited": true, "reason": "partner", "until": null });
    let eve = json!({ "kind": "user", "value": "eve", "tier": "free", "override": long });
    assert_eq!(ana.post("/api/v1/clients", &eve).status, 201);
    let patch = json!({ "op": "patch", "kind": "client", "id": "user:eve", "value": { "override": null } });
    let staged = json!({
        "base_version": 2, "message": "no longer", "nodes": ["n-1"], "changes": [patch],
        "if_match": { "client:user:eve": ana.get(EVE).header("etag") },
    });
    assert_eq!(ana.post("/api/v1/policy/changes", &staged).status, 201);
    let tag = ana.get(EVE).header("etag").to_owned();
    let refused = block(&oli, EVE, ("if-match", &tag));
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")), "{refused:?}");
    let (script, _) = ana.script(&json!({ "role": "editor", "kinds": ["tier"] }));
    assert_eq!(block(&script, EVE, ("if-match", &tag)).status, 403);
    assert_eq!(newest(&ana), 3, "nothing was published");
    assert_eq!(block(&ana, EVE, ("if-match", &tag)).status, 201);
    assert_eq!((decides(&server).0, server.check("eve").is_allowed()), (4, false));
}

/// Of so many clients what differs is little, for the nodes on either side of a rollout.
#[test]
fn what_differs_by_a_block_is_sent_to_both_sides_of_a_rollout() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    assign(&ana, 0..3_000, "free");
    let hello_of = |name: &str| format!("{}&deltas=100", hello(name, "a"));
    let mut events = ["n-1", "n-2"].map(|name| Events::of_node(&server.url, &node, &hello_of(name)));
    let [_, kept] = events.each_mut().map(|events| events.next_called("snapshot"));
    assert_eq!(stage(&ana, 500, &json!(["n-1"])).status, 201);
    let staged = events[0].next_called("delta");
    let path = "/api/v1/clients/user:u-1";
    assert_eq!(block(&ana, path, ("if-match", ana.get(path).header("etag"))).json()["version"], 5);
    let both = |events: &mut [Events; 2]| events.each_mut().map(|events| events.next().expect("an event"));
    let [of_newest, of_kept] = both(&mut events);
    for (sent, version, since) in [(&of_newest, 5, &staged), (&of_kept, 4, &kept)] {
        assert_eq!(
            (&*sent.0, &sent.1["version"], &sent.1["since_sha256"]),
            ("delta", &json!(version), &since["sha256"])
        );
    }
    // A node that was away meanwhile is led there the same way.
    let away = format!("{}&version=2&sha256={}", hello_of("n-3"), kept["sha256"].as_str().expect("text"));
    let mut away = Events::of_node(&server.url, &node, &away);
    assert_eq!(away.next(), Some(of_kept.clone()));

    assert_eq!(go_on(&ana, &json!("back")).status, 200);
    let [back, same] = both(&mut events);
    assert_eq!((&*back.0, &back.1["since_sha256"]), ("delta", &of_newest.1["sha256"]));
    assert_eq!((&*same.0, &same.1["version"], &same.1["sha256"]), ("snapshot", &json!(6), &of_kept.1["sha256"]));
}

#[test]
#[ignore = "needs PostgreSQL"]
fn a_block_through_the_other_server_reaches_the_nodes_of_both() {
    let (_folder, [a, b], [ana, at_b]) = two();
    let node = node_of(&ana);
    let (mut at_a, _) = connect(&a.url, &node, "n-a");
    let (mut first, _) = connect(&b.url, &node, "n-b");
    wait_until("n-b is known", || stage(&ana, 500, &json!(["n-b"])).status == 201);
    assert_eq!(sent_of_eve(&mut first), (2, 500, false));
    // Where the rollout was not begun, and may not be known yet.
    let made = block(&at_b, EVE, ("if-none-match", "*"));
    assert_eq!((made.status, &made.json()["others_version"]), (201, &json!(3)), "{made:?}");
    assert_eq!((sent_of_eve(&mut first), sent_of_eve(&mut at_a)), ((4, 500, true), (3, 100, true)));
    for server in [&a, &b] {
        wait_for(server, 3);
        assert!(!server.check("eve").is_allowed());
    }
    // The other one takes it back, from the version that has the block.
    assert_eq!(go_on(&ana, &json!("back")).json(), json!({ "version": 5, "rollout": null }));
    assert_eq!((sent_of_eve(&mut first), sent_of_eve(&mut at_a)), ((5, 100, true), (5, 100, true)));
    for server in [&a, &b] {
        wait_for(server, 5);
        assert!(!server.check("eve").is_allowed());
    }
}

#[test]
fn nodes_that_nobody_knows_are_refused_by_name() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let (first, _) = connect(&server.url, &node, "n-1");
    let says = |answer: &Answer, name: &str| answer.json()["detail"].as_str().expect("text").contains(name);
    for (nodes, words) in [(json!(["n-1", "n-7"]), "`n-7`"), (json!([]), "at least one"), (json!([""]), "``")] {
        let refused = stage(&ana, 500, &nodes);
        assert_eq!((refused.status, refused.pointers()), (422, vec!["/nodes".to_owned()]), "{refused:?}");
        assert!(says(&refused, words), "{refused:?}");
        let mut list = tier_change(1, &ana.tier("free").0, &json!({ "id": "free", "limits": [minute(500)] }));
        list["nodes"] = nodes;
        assert_eq!(ana.post("/api/v1/policy/validate", &list).pointers(), ["/nodes"]);
    }
    let mut document = ana.get("/api/v1/policy").json()["document"].clone();
    document["domains"]["default"]["tiers"][0]["limits"][0]["limit"] = json!(300);
    let files = json!({ "files": [{ "name": "a.json", "text": document.to_string() }] }).to_string().into_bytes();
    let import = |nodes: &str| {
        let path = format!("/api/v1/policy/import?nodes={nodes}");
        ana.send("POST", &path, &[("if-match", "\"policy:1\"")], Some(files.clone()))
    };
    assert_eq!(import("n-1,n-7").wrong("parameter"), ["nodes"]);
    assert_eq!(newest(&ana), 1, "nothing was published");
    // One that is gone is known for a day: it has the version when it comes back. So do a file and a rollback.
    drop(first);
    wait_until("it is gone", || row(&ana, "n-1")["presence"] == "gone");
    let imported = import("n-1");
    assert_eq!((imported.status, decides(&server)), (201, (1, Some(100))), "{imported:?}");
    assert_eq!(go_on(&ana, &json!(["n-7"])).pointers(), ["/to"]);
    assert_eq!(go_on(&ana, &json!("some")).pointers(), ["/to"]);
    let (mut first, sent_first) = connect(&server.url, &node, "n-1");
    assert_eq!(sent_first, (2, 300));
    assert_eq!(go_on(&ana, &json!("all")).status, 200);
    let back = json!({ "to": 1, "nodes": ["n-1"] }).to_string().into_bytes();
    let back = ana.send("POST", "/api/v1/policy/rollback", &[("if-match", "\"policy:2\"")], Some(back));
    assert_eq!((back.status, sent(&mut first), decides(&server)), (201, (3, 100), (2, Some(300))), "{back:?}");
}

/// What nodes can read is asked of those that it goes to.
#[test]
fn only_nodes_that_it_goes_to_have_to_read_it() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let _old = Events::of_node(&server.url, &node, "name=old-1&instance=a&schema=1");
    let _new = connect(&server.url, &node, "n-1");
    let day = json!({ "id": "minute", "algorithm": "fixed_window", "limit": 9, "period": "day" });
    let to = |nodes: &Value| {
        let mut list = tier_change(1, &ana.tier("free").0, &json!({ "id": "free", "limits": [day] }));
        list["nodes"] = nodes.clone();
        ana.post("/api/v1/policy/changes", &list)
    };
    assert_eq!(to(&json!(["n-1", "old-1"])).json()["code"], "node_cannot_read");
    assert_eq!(to(&json!(["n-1"])).status, 201);
    for to in [json!("all"), json!(["old-1"])] {
        let refused = go_on(&ana, &to);
        assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("node_cannot_read")), "{refused:?}");
    }
    assert_eq!(decides(&server).0, 1);
    assert_eq!(ana.post("/api/v1/rollout", &json!({ "to": "all", "force": true })).status, 200);
    assert_eq!(decides(&server), (2, Some(9)));
}

#[test]
fn a_server_that_starts_again_keeps_what_it_kept() {
    let (folder, mut server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let (first, _) = connect(&server.url, &node, "n-1");
    assert_eq!(stage(&ana, 500, &json!(["n-1"])).status, 201);
    drop(first);
    server.stop();
    // A file that changed waits too.
    let policy: Policy = serde_json::from_value(ana_document()).expect("a policy");
    let mut server = Server::start_with(&data_of(&folder), |settings| {
        settings.policy = Some(PolicyFile { name: "a".to_owned(), policy, force: true });
    });
    let ana = server.sign_in();
    let node = Client { url: server.url.clone(), ..node };
    assert_eq!((newest(&ana), decides(&server)), (2, (1, Some(100))));
    assert_eq!(connect(&server.url, &node, "n-2").1, (1, 100));
    let (first, sent_first) = connect(&server.url, &node, "n-1");
    assert_eq!(sent_first, (2, 500));
    // With this one among them.
    assert_eq!(go_on(&ana, &json!(["here"])).status, 200);
    assert_eq!(decides(&server), (2, Some(500)));
    drop(first);
    server.stop();
    let server = Server::start(&data_of(&folder));
    let ana = server.sign_in();
    assert_eq!(decides(&server), (2, Some(500)));
    let (mut second, sent_first) = connect(&server.url, &node, "n-2");
    assert_eq!(sent_first, (1, 100));
    assert_eq!(go_on(&ana, &json!("all")).status, 200);
    assert_eq!(sent(&mut second), (2, 500));
}

/// A policy of one tier.
fn ana_document() -> Value {
    json!({ "domains": { "default": {
        "defaults": { "user": "free" }, "tiers": [{ "id": "free", "limits": [minute(7)] }],
    } } })
}

#[test]
#[ignore = "needs PostgreSQL"]
fn two_servers_stage_as_one() {
    let (folder, [a, b], [ana, at_b]) = two();
    let node = node_of(&ana);
    let (mut at_a, _) = connect(&a.url, &node, "n-a");
    let (mut first, _) = connect(&b.url, &node, "n-b");
    // A node of the other server can be named as soon as that has told of it.
    wait_until("n-b is known", || stage(&ana, 500, &json!(["n-b"])).status == 201);
    assert_eq!(sent(&mut first), (2, 500));
    wait_until("both know", || at_b.get("/api/v1/rollout").status == 200);
    is_sent_nothing(&ana, "n-a", &mut at_a);
    assert_eq!((decides(&a).0, decides(&b).0), (1, 1), "both are called `here`, which is not named");
    let took = json!({ "name": "n-b", "instance": "a", "version": 2, "at_ms": 1, "took_ms": 7 });
    let node_at_b = Client { url: b.url.clone(), ..node.clone() };
    assert_eq!(node_at_b.post("/api/v1/nodes/acknowledgements", &took).status, 204);
    wait_until("what it has is known", || {
        ana.get("/api/v1/rollout").json()["has"] == json!([{ "node": "n-b", "policy_version": 2 }])
    });
    // It comes to the other server.
    drop(first);
    let (mut first, sent_first) = connect(&a.url, &node, "n-b");
    assert_eq!(sent_first, (2, 500));
    for client in [&ana, &at_b] {
        let free = json!({ "id": "free", "limits": [minute(700)] });
        assert_eq!(client.publish_tier(2, &client.tier("free").0, &free).json()["code"], "rollout_open");
    }
    // A third one that starts meanwhile.
    let c = Server::start_with(&data_of(&folder), |settings| settings.node = "n-b".to_owned());
    assert_eq!(decides(&c), (2, Some(500)), "by its name it is one of them");
    assert_eq!(go_on(&at_b, &json!("all")).status, 200);
    assert_eq!(sent(&mut at_a), (2, 500));
    for server in [&a, &b] {
        wait_for(server, 2);
    }
    // And another one, which goes back through the server that did not publish it.
    assert_eq!(stage(&ana, 600, &json!(["n-a"])).status, 201);
    assert_eq!(sent(&mut at_a), (3, 600));
    assert_eq!(go_on(&at_b, &json!("back")).json(), json!({ "version": 4, "rollout": null }));
    assert_eq!((sent(&mut at_a), sent(&mut first)), ((4, 500), (4, 500)));
    for server in [&a, &b, &c] {
        wait_for(server, 4);
    }
    drop(folder);
}

#[test]
#[ignore = "needs PostgreSQL"]
fn nodes_of_the_other_server_are_asked_whether_they_can_read_it() {
    let (_folder, [_a, b], [ana, _]) = two();
    let node = node_of(&ana);
    let old = Events::of_node(&b.url, &node, "name=old-1&instance=a&schema=1");
    let mut limit = 10;
    let mut day = || {
        limit += 1;
        let limit = json!({ "id": "minute", "algorithm": "fixed_window", "limit": limit, "period": "day" });
        crate::nodes::publish(&ana, &limit, false)
    };
    wait_until("its schema is known", || {
        thread::sleep(Duration::from_millis(300));
        day().json()["code"] == "node_cannot_read"
    });
    assert!(day().json()["detail"].as_str().expect("text").contains("old-1"));
    drop(old);
    wait_until("it is gone", || day().status == 201);
}
