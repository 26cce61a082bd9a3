//! Two admin servers on one `PostgreSQL` database, each with an engine: what is published through one reaches the other.

use std::{collections::BTreeSet, sync::Barrier, thread, time::Duration};

use serde_json::{Value, json};
use tidegate_testkit::wait_until;

use crate::{
    home::Folder,
    nodes::{hello, node_of, row},
    stream::Events,
    support::{Client, PASSWORD, Server, tier_change},
};

/// Two on one database, and the administrator at each.
pub(crate) fn two() -> (Folder, [Server; 2], [Client; 2]) {
    let (folder, a) = Folder::on_server();
    let b = Server::start(folder.home());
    let ana = a.administrator();
    let at_b = ana.at(&b);
    (folder, [a, b], [ana, at_b])
}

/// Waits until the server's engine decides by this version.
pub(crate) fn wait_for(server: &Server, version: u64) {
    wait_until(&format!("version {version}"), || server.engine.version() >= version);
    assert_eq!(server.engine.version(), version);
}

/// Waits until the client's server answers by this version, which is after its engine decides by it.
pub(crate) fn wait_for_answers(client: &Client, version: u64) {
    let etag = format!("\"policy:{version}\"");
    wait_until(&format!("answers by version {version}"), || client.get("/api/v1/policy").header("etag") == etag);
}

fn with_limit(mut tier: Value, limit: u64) -> Value {
    tier["limits"][0]["limit"] = json!(limit);
    tier
}

#[test]
#[ignore = "needs PostgreSQL"]
fn a_publish_through_one_reaches_the_nodes_of_the_other() {
    let (_folder, [a, b], [ana, at_b]) = two();
    // The session that began at one holds at the other.
    assert_eq!(at_b.get("/api/v1/session").json()["name"], "ana");
    let mut events = Events::open(&b.url, &at_b, "");
    events.next_called("hello");
    let (etag, free) = ana.tier("free");
    assert_eq!(ana.publish_tier(1, &etag, &with_limit(free.clone(), 7)).status, 201);
    let told = events.next_called("policy.published");
    assert_eq!((&told["version"], &told["author"]), (&json!(2), &json!("ana")));
    assert_eq!(told["touched"][0]["etag"], "\"tier:free:2\"");
    wait_for_answers(&at_b, 2);
    assert_eq!((b.check("ada").limit(), b.check("ada").policy_version()), (Some(7), 2));
    assert_eq!(at_b.get("/api/v1/policy").json(), ana.get("/api/v1/policy").json());
    // And back.
    let (etag, free) = at_b.tier("free");
    assert_eq!(at_b.publish_tier(2, &etag, &with_limit(free, 8)).status, 201);
    wait_for(&a, 3);
    assert_eq!(a.check("ada").limit(), Some(8));
}

/// Another process is refused at every server, until the first is gone; the same one goes over to another server at once.
#[test]
#[ignore = "needs PostgreSQL"]
fn a_name_is_one_process_at_all_servers() {
    let folder = Folder::unused_on_server();
    let called = |name: &str| {
        Server::start_with(folder.home(), |settings| {
            settings.node = name.to_owned();
            // Nothing reports here, and its names are not to be given away in the middle of the test.
            settings.periods.node_name_timeout = Duration::from_hours(1);
        })
    };
    let (a, mut b) = (called("here"), called("there"));
    let ana = a.administrator();
    let node = node_of(&ana);
    let refused = |server: &Server| {
        let at = Client { url: server.url.clone(), ..node.clone() };
        let answer = at.get(&format!("/api/v1/snapshots/stream?{}", hello("n-1", "b")));
        assert_eq!((answer.status, &answer.json()["code"]), (409, &json!("duplicate_node")), "{answer:?}");
        answer.json()["detail"].as_str().expect("text").to_owned()
    };
    let mut first = Events::of_node(&a.url, &node, &hello("n-1", "a"));
    let _ = first.next_called("snapshot");
    let why = refused(&b);
    assert!(why.contains("connected to the server `here` since 2"), "{why}");
    assert!(refused(&a).contains("connected to this server since 2"));
    assert_eq!(ana.at(&b).get("/api/v1/nodes/n-1").status, 404, "who was refused leaves nothing behind");
    // The process itself is let in at once, and the first server hears nothing of it any more.
    let mut second = Events::of_node(&b.url, &node, &hello("n-1", "a"));
    let _ = second.next_called("snapshot");
    // The first server may have heard of the second one by now.
    let why = refused(&a);
    assert!(["this server since", "the server `there` since 2"].iter().any(|told| why.contains(told)), "{why}");
    assert_eq!(first.next_called("restart"), json!({}));
    wait_until("it is the other's", || refused(&a).contains("the server `there` since 2"));
    // And back, where a report tells that it is there.
    let mut third = Events::of_node(&a.url, &node, &hello("n-1", "a"));
    let _ = third.next_called("snapshot");
    assert_eq!(second.next_called("restart"), json!({}));
    assert_eq!(row(&ana, "n-1")["presence"], "connected");
    // A server that stops takes no name with it.
    let mut fourth = Events::of_node(&b.url, &node, &hello("n-1", "a"));
    let _ = fourth.next_called("snapshot");
    assert_eq!(third.next_called("restart"), json!({}));
    b.stop();
    let _ = Events::of_node(&a.url, &node, &hello("n-1", "b")).next_called("snapshot");
}

/// A server that was not heard for long has lost the names that others took meanwhile.
#[test]
#[ignore = "needs PostgreSQL"]
fn a_node_that_is_anothers_by_now_is_given_up() {
    let (folder, a) = Folder::on_server();
    let ana = a.administrator();
    let node = node_of(&ana);
    let mut events = Events::of_node(&a.url, &node, &hello("n-1", "a"));
    let _ = events.next_called("snapshot");
    let took = |version: u64| {
        let took = json!({ "name": "n-1", "instance": "a", "version": version, "at_ms": version, "took_ms": 7 });
        assert_eq!(node.post("/api/v1/nodes/acknowledgements", &took).status, 204);
    };
    took(1);
    let has = |version: u64| {
        let is_told = format!(
            "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM nodes WHERE name = 'n-1' AND version = {version}) THEN
             RAISE 'not yet'; END IF; END $$"
        );
        folder.home().is_done(&is_told)
    };
    wait_until("it is told", || has(1));
    // A row of the future expires a minute from now: a busy machine has that long for what follows.
    folder.home().execute(
        "UPDATE nodes SET server = 'there since 1', instance = 'b', at = extract(epoch FROM now())::bigint + 50
         WHERE name = 'n-1'",
    );
    took(2);
    assert_eq!(events.next_called("restart"), json!({}));
    assert!(has(1), "the other's row stays as it is");
}

/// What is removed at one server is not taken from the other, which has it.
#[test]
#[ignore = "needs PostgreSQL"]
fn a_node_is_not_removed_under_the_server_that_it_is_connected_to() {
    let (folder, [a, b], [ana, at_b]) = two();
    let node = node_of(&ana);
    let remove = |client: &Client| {
        let answer = client.send("DELETE", "/api/v1/nodes/n-1", &[], None);
        (answer.status, if answer.status == 204 { Value::Null } else { answer.json()["code"].clone() })
    };
    assert_eq!(remove(&ana), (404, json!("not_found")));
    let first = Events::of_node(&a.url, &node, &hello("n-1", "a"));
    drop(first);
    wait_until("it is gone", || row(&ana, "n-1")["presence"] == "gone");
    let mut second = Events::of_node(&b.url, &node, &hello("n-1", "a"));
    let _ = second.next_called("snapshot");
    assert_eq!(remove(&ana), (409, json!("still_here")), "gone from here, connected there");
    assert_eq!(remove(&at_b), (409, json!("still_here")));
    // What was lost all the same is written down again.
    folder.home().execute("DELETE FROM nodes WHERE name = 'n-1'");
    let is_written = "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM nodes WHERE name = 'n-1' AND is_connected = 1) THEN RAISE 'no'; END IF; END $$";
    let took = json!({ "name": "n-1", "instance": "a", "version": 9, "at_ms": 1, "took_ms": 7 });
    let at_its_server = Client { url: b.url.clone(), ..node.clone() };
    assert_eq!(at_its_server.post("/api/v1/nodes/acknowledgements", &took).status, 204);
    wait_until("it is written down again", || folder.home().is_done(is_written));
    drop(second);
    wait_until("it is gone there too", || row(&at_b, "n-1")["presence"] == "gone");
    let is_removed =
        "DO $$ BEGIN IF EXISTS (SELECT 1 FROM nodes WHERE name = 'n-1') THEN RAISE 'it is there'; END IF; END $$";
    // What the other server was about to write may bring it back once.
    wait_until("the other server knows that", || {
        matches!(remove(&ana).0, 204 | 404) && folder.home().is_done(is_removed)
    });
}

/// Streams at both are told the same of a publish, and of one that a server does not understand that it is not in force.
#[test]
#[ignore = "needs PostgreSQL"]
fn streams_at_both_are_told_of_a_publish() {
    let (folder, [a, b], [ana, at_b]) = two();
    let mut events = [(&a, &ana), (&b, &at_b)].map(|(server, client)| Events::open(&server.url, client, ""));
    for events in &mut events {
        events.next_called("hello");
    }
    let mut told = || events.each_mut().map(|events| events.next_called("policy.published"));
    let (etag, free) = ana.tier("free");
    assert_eq!(ana.publish_tier(1, &etag, &with_limit(free, 7)).status, 201);
    let [here, there] = told();
    assert_eq!((&here, &here["touched"][0]["id"]), (&there, &json!("free")));
    let (etag, _) = ana.tier("internal");
    let removed = ana.send("DELETE", "/api/v1/tiers/internal", &[("if-match", &etag)], None);
    assert!(matches!(removed.status, 200 | 201 | 204), "{removed:?}");
    let [here, there] = told();
    assert_eq!((&here, &here["removed"][0]["id"], &here["touched"]), (&there, &json!("internal"), &json!([])));

    let document = r#"{"domains":{"default":{"from":"the future"}}}"#;
    folder.home().execute(&format!(
        "INSERT INTO policy_versions (version, document, sha256, author, message, published_at, carry)
         VALUES (4, '{document}', encode(sha256('{document}'::bytea), 'hex'), 'eve', 'm', '2026-01-01T00:00:00Z', '{{}}')"
    ));
    for events in &mut events {
        let applied = loop {
            let applied = events.next_called("policy.applied");
            if applied["version"] == 4 {
                break applied;
            }
        };
        assert!(applied["refused"].as_str().expect("a reason").contains("from"), "{applied}");
        assert_eq!(applied["took_ms"], Value::Null);
    }
}

/// Of two administrators each takes the other's role, through another server.
#[test]
#[ignore = "needs PostgreSQL"]
fn two_who_demote_each_other_leave_an_administrator() {
    let (_folder, [a, b], [ana, _]) = two();
    let ben = json!({ "name": "ben", "role": "admin", "password": PASSWORD });
    assert_eq!(ana.post("/api/v1/users", &ben).status, 201);
    let change = |client: &Client, name: &str, tag: &str, role: &str| {
        let (path, body) = (format!("/api/v1/users/{name}"), json!({ "role": role }).to_string());
        client.send("PATCH", &path, &[("if-match", tag)], Some(body.into_bytes())).status
    };
    let tag = |client: &Client, name: &str| client.get(&format!("/api/v1/users/{name}")).header("etag").to_owned();
    let mut met = 0;
    for turn in 0..20 {
        let (ana, ben) = (a.sign_in(), b.sign_in_as("ben", PASSWORD));
        let (of_ana, of_ben) = (tag(&ben, "ana"), tag(&ana, "ben"));
        let (demoted_ben, demoted_ana) = thread::scope(|scope| {
            let other = scope.spawn(|| change(&ben, "ana", &of_ana, "viewer"));
            (change(&ana, "ben", &of_ben, "viewer"), other.join().expect("it ends well"))
        });
        let (left, other) = match (demoted_ben, demoted_ana) {
            // The other's session ended before he was asked who he is, or he came to be the last one.
            (200, 401 | 409) => (&ana, "ben"),
            (401 | 409, 200) => (&ben, "ana"),
            both => panic!("{turn}: {both:?}"),
        };
        met += u32::from(demoted_ben == 409 || demoted_ana == 409);
        assert_eq!(change(left, other, &tag(left, other), "admin"), 200);
        if met > 0 && turn > 4 {
            break;
        }
    }
    assert!(met > 0, "both were at it at once");
}

/// An override leaves the client as it is otherwise: as it is in the database, not as this server knew it.
#[test]
#[ignore = "needs PostgreSQL"]
fn an_override_through_one_keeps_what_the_other_has_just_published() {
    let (_folder, [_a, _b], [ana, at_b]) = two();
    let client = json!({ "kind": "user", "value": "bob", "tier": "free" });
    assert_eq!(ana.post("/api/v1/clients", &client).status, 201);
    let bob = "/api/v1/clients/user:bob";
    let body = |json: &Value| Some(json.to_string().into_bytes());
    let mut etag = ana.get(bob).header("etag").to_owned();
    for turn in 0..10 {
        let tier = ["pro", "free"][turn % 2];
        let changed = ana.send("PATCH", bob, &[("if-match", &etag)], body(&json!({ "tier": tier })));
        assert_eq!(changed.status, 201, "{changed:?}");
        etag = ana.get(bob).header("etag").to_owned();
        let override_of = json!({ "blocked": true, "reason": format!("turn {turn}") });
        let made = at_b.send("PUT", &format!("{bob}/override"), &[("if-match", &etag)], body(&override_of));
        assert_eq!(made.status, 201, "{made:?}");
        let found = at_b.get(bob);
        assert_eq!(found.json()["value"]["tier"], tier, "turn {turn}: {found:?}");
        etag = found.header("etag").to_owned();
    }
}

#[test]
#[ignore = "needs PostgreSQL"]
fn the_other_does_with_used_quota_what_was_chosen() {
    let (_folder, [_a, b], [ana, _]) = two();
    for _ in 0..100 {
        assert!(b.check("ada").is_allowed());
    }
    let limit_id = b.check("ada").limit_id().expect("a limit").to_owned();
    let (etag, free) = ana.tier("free");
    let mut list = tier_change(1, &etag, &with_limit(free, 2_000));
    list["carry"] = json!({ (limit_id.as_str()): "reset" });
    assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    wait_for(&b, 2);
    assert_eq!(b.check("ada").remaining(), Some(1_999));
}

/// What one has just published is known to the other at its next change, whether or not it was told.
#[test]
#[ignore = "needs PostgreSQL"]
fn conflicts_are_those_of_the_newest_version_wherever_it_was_published() {
    let (_folder, [_a, _b], [ana, at_b]) = two();
    let ((free_tag, free), (pro_tag, pro)) = (ana.tier("free"), ana.tier("pro"));
    assert_eq!(ana.publish_tier(1, &free_tag, &with_limit(free.clone(), 200)).status, 201);
    let refused = at_b.publish_tier(1, &free_tag, &with_limit(free.clone(), 300));
    assert_eq!((refused.status, &refused.json()["code"]), (412, &json!("conflict")), "{refused:?}");
    let conflict = &refused.json()["conflicts"][0];
    assert_eq!(conflict["present"], json!({ "etag": "\"tier:free:2\"", "value": with_limit(free.clone(), 200) }));
    // Another object is changed on top.
    assert_eq!(ana.publish_tier(2, "\"tier:free:2\"", &with_limit(free.clone(), 201)).status, 201);
    let on_top = at_b.publish_tier(1, &pro_tag, &with_limit(pro, 20_000));
    assert_eq!((on_top.status, &on_top.json()["on_top_of"]), (201, &json!(3)), "{on_top:?}");
    // So is the same one, for who knows what is there.
    assert_eq!(ana.publish_tier(4, "\"tier:free:3\"", &with_limit(free.clone(), 202)).status, 201);
    assert_eq!(at_b.publish_tier(5, "\"tier:free:5\"", &with_limit(free, 203)).status, 201);
}

/// A file of another limiter leaves what it does not have: as it is by then, wherever that was published.
#[test]
#[ignore = "needs PostgreSQL"]
fn an_import_is_beside_what_the_other_has_just_published() {
    let (_folder, [_a, _b], [ana, at_b]) = two();
    let import = |client: &Client, version: u64, requests: u64| {
        let text = format!(
            "domain: shop\ndescriptors:\n- key: k\n  rate_limit: {{ unit: day, requests_per_unit: {requests} }}\n"
        );
        let body = json!({ "files": [{ "name": "shop.yaml", "text": text }] }).to_string().into_bytes();
        let etag = format!("\"policy:{version}\"");
        client.send("POST", "/api/v1/policy/import?from=envoy", &[("if-match", &etag)], Some(body))
    };
    let (mut etag, free) = ana.tier("free");
    // Often, as the other hears of it soon.
    for round in 0..20 {
        let answer = ana.publish_tier(1, &etag, &with_limit(free.clone(), 200 + round));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["changes"][0]["etag"].as_str().expect("a tag").clone_into(&mut etag);
        let version = 2 + 2 * round;
        let imported = import(&at_b, version, 1 + round);
        assert_eq!((imported.status, &imported.json()["version"]), (201, &json!(version + 1)), "{imported:?}");
        assert_eq!(at_b.tier("free").1["limits"][0]["limit"], 200 + round, "it stays as it was published");
    }
}

#[test]
#[ignore = "needs PostgreSQL"]
fn a_repeat_is_known_to_the_other() {
    let (_folder, [_a, _b], [ana, at_b]) = two();
    let (etag, free) = ana.tier("free");
    let body = tier_change(1, &etag, &with_limit(free, 7)).to_string().into_bytes();
    let send = |client: &Client| {
        client.send("POST", "/api/v1/policy/changes", &[("idempotency-key", "k")], Some(body.clone()))
    };
    // At once, which makes one of them wait for the other.
    let answers = thread::scope(|scope| {
        let threads = [&ana, &at_b].map(|client| scope.spawn(|| send(client)));
        threads.map(|thread| thread.join().expect("no panic"))
    });
    let [first, second] = answers;
    assert_eq!((first.status, second.status), (201, 201), "{first:?} {second:?}");
    assert_eq!(first.text, second.text);
    assert_eq!(ana.get("/api/v1/policy/versions").json()["items"].as_array().expect("a list").len(), 2);
}

/// Both publish at once, again and again: each version is one publish, and none is lost.
#[test]
#[ignore = "needs PostgreSQL"]
fn of_both_at_once_each_success_is_a_version() {
    const EACH: u64 = 50;
    let (_folder, _servers, clients) = two();
    let (tiers, first) = (["free", "pro"], Barrier::new(2));
    let versions: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .zip(tiers)
            .map(|(client, tier)| {
                let first = &first;
                scope.spawn(move || {
                    let (mut etag, value) = client.tier(tier);
                    let mut versions = Vec::new();
                    for number in 1..=EACH {
                        let answer = client.publish_tier(1, &etag, &with_limit(value.clone(), 20_000 + number));
                        assert_eq!(answer.status, 201, "{answer:?}");
                        answer.json()["changes"][0]["etag"].as_str().expect("a tag").clone_into(&mut etag);
                        versions.push(answer.json()["version"].as_u64().expect("a version"));
                        if number == 1 {
                            // Neither has all of its publishes before the other.
                            first.wait();
                        }
                    }
                    versions
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    // They did meet: neither had all of its publishes before the other.
    assert!(versions[0] < versions[versions.len() - 1] && versions[EACH as usize] < versions[EACH as usize - 1]);
    let distinct: BTreeSet<u64> = versions.iter().copied().collect();
    assert_eq!(distinct, (2..=1 + 2 * EACH).collect(), "every number once");
    for client in &clients {
        wait_for_answers(client, 1 + 2 * EACH);
        for tier in tiers {
            let (_, value) = client.tier(tier);
            assert_eq!(value["limits"][0]["limit"], 20_000 + EACH, "{tier}");
        }
    }
}

/// The same tier, at once: one of both succeeds, and the other is told of it.
#[test]
#[ignore = "needs PostgreSQL"]
fn of_both_at_once_on_one_tier_one_succeeds() {
    let (_folder, [_a, _b], [ana, at_b]) = two();
    for round in 1..=50 {
        wait_for_answers(&ana, round);
        wait_for_answers(&at_b, round);
        let (etag, free) = ana.tier("free");
        let publish =
            &|client: &Client, limit| client.publish_tier(round, &etag, &with_limit(free.clone(), limit)).status;
        let mut statuses = thread::scope(|scope| {
            let threads = [(&ana, 1_000), (&at_b, 2_000)]
                .map(|(client, limit)| scope.spawn(move || publish(client, limit + round)));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 412], "round {round}");
    }
}

#[test]
#[ignore = "needs PostgreSQL"]
fn of_two_first_starts_at_once_one_makes_the_database() {
    let folder = Folder::untouched_on_server();
    let servers: Vec<Server> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| Server::start(folder.home()))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it starts")).collect()
    });
    assert!(servers.iter().all(|server| server.engine.version() == 1 && server.setup_path.is_some()));
    // The administrator that one makes is everybody's.
    let ana = servers[0].administrator();
    for other in &servers[1..] {
        assert_eq!(other.stranger().get("/api/v1/setup").status, 404);
        let body = json!({ "code": other.code(), "name": "eve", "password": "correct horse battery" });
        assert_eq!(other.stranger().post("/api/v1/setup", &body).status, 404);
        assert_eq!(ana.at(other).get("/api/v1/session").status, 200);
    }
    assert_eq!(ana.get("/api/v1/policy/versions").json()["items"].as_array().expect("a list").len(), 1);
}
