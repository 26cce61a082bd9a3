//! Decisions about one identity on the event stream: all of them, from every node, whoever looks.

use std::{ops::Range, thread, time::Duration};

use serde_json::{Value, json};
use tidegate::{Identity, Request};

use crate::{
    nodes::{hello, node_of},
    stream::Events,
    support::{Client, fresh},
};

/// Numbers of decisions with their nodes, and how many were missed, until there are so many.
fn decisions(events: &mut Events, count: usize) -> (Vec<(u64, String)>, u64) {
    let (mut seen, mut missed) = (Vec::new(), 0);
    while seen.len() + (missed as usize) < count {
        let told = events.next_called("decision");
        missed += told["missed"].as_u64().expect("a number");
        seen.extend(told["decisions"].as_array().expect("a list").iter().map(|row| {
            let node = row["node"].as_str().expect("a name").to_owned();
            (row["number"].as_u64().expect("a number"), node)
        }));
    }
    (seen, missed)
}

/// Until this is so of what is known of the nodes.
fn key(events: &mut Events, is_so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let told = events.next_called("key");
        if is_so(&told) {
            return told;
        }
    }
}

#[test]
fn every_decision_about_a_watched_identity_is_told_once() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let mut events = Events::open(&server.url, &ana, "&key=user:ada");
    let told = key(&mut events, |told| told["nodes"]["here"].is_i64());
    assert_eq!((&told["who"], &told["silent"]), (&json!({ "kind": "user", "value": "ada" }), &json!([])));
    // For longer than nodes are asked at once.
    for _ in 0..60 {
        let _ = (server.check("ada"), server.check("bob"));
        thread::sleep(Duration::from_millis(50));
    }
    let (seen, missed) = decisions(&mut events, 60);
    let numbers: Vec<u64> = seen.iter().map(|(number, _)| *number).collect();
    assert_eq!((numbers, missed), ((1..=60).collect(), 0));
    // Somebody else joins, or the same page opens its stream anew: what is known comes first.
    drop(events);
    let _ = server.check("ada");
    let mut again = Events::open(&server.url, &ana, "&key=user:ada");
    assert_eq!(again.next_called("key")["since_ms"], told["since_ms"], "it was not given up in between");
    let (seen, missed) = decisions(&mut again, 61);
    assert_eq!((seen.last().map(|(number, _)| *number), missed as usize + seen.len()), (Some(61), 61));
    // More than are told at once are counted.
    for _ in 0..500 {
        let _ = server.check("ada");
    }
    let (seen, missed) = decisions(&mut again, 500);
    assert_eq!((seen.len() as u64 + missed, seen.last().map(|(number, _)| *number)), (500, Some(561)));
}

#[test]
fn a_watched_address_is_shown_as_it_is_counted() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let mut events = Events::open(&server.url, &ana, "&key=ip:2001:DB8::66");
    let _ = key(&mut events, |told| told["nodes"]["here"].is_i64());
    let identities = [("ip", "2001:db8::"), ("user", "2001:db8::")];
    let identities = identities.map(|(kind, value)| Identity::new(kind, value).expect("valid"));
    let _ = server.engine.check(&Request::new(&identities).expect("valid"));
    let told = events.next_called("decision");
    let shown = json!([{ "kind": "ip", "value": "2001:db8::" }, { "kind": "user", "value": "2001:db8::/48" }]);
    assert_eq!(told["decisions"][0]["identities"], shown, "{told}");
}

#[test]
fn nodes_are_asked_where_they_were_and_those_that_cannot_are_named() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let node = node_of(&ana);
    let mut asks = ["n-1", "n-2"].map(|name| Events::of_node(&server.url, &node, &hello(name, "a")));
    for asks in &mut asks {
        let _ = asks.next_called("snapshot");
    }
    let mut events = Events::open(&server.url, &ana, "&key=user:ada");
    let answer = |name: &str, command: &Value, told: &Value| {
        let answer = json!({ "name": name, "instance": "a", "id": command["id"], "told": told });
        assert_eq!(node.post("/api/v1/nodes/answers", &answer).status, 204);
    };
    let seen = |remaining: u64| {
        json!({
            "at_ms": 1, "allowed": true, "limit_id": "default/tier:free/minute", "remaining": remaining, "cost": 2,
            "method": "POST", "endpoint": "/a", "identities": [{ "kind": "user", "value": "ada" }],
        })
    };
    let first = asks[0].next_called("command");
    let (ask, watch) = (&first["ask"], &first["ask"]["goes_on"]);
    assert_eq!((&ask["what"], &ask["who"]["value"], &watch["after"]), (&json!("watch"), &json!("ada"), &json!(0)));
    answer("n-1", &first, &json!({ "what": "watch", "decisions": [seen(3)], "seen": 4, "last": 4, "since_ms": 9 }));
    let unknown = json!({ "what": "failed", "why": "this build does not know the question" });
    let old = asks[1].next_called("command");
    answer("n-2", &old, &unknown);
    let told = events.next_called("decision");
    assert_eq!((&told["missed"], &told["decisions"][0]["number"]), (&json!(3), &json!(4)));
    let row = &told["decisions"][0];
    assert_eq!((&row["node"], &row["method"], &row["cost"]), (&json!("n-1"), &json!("POST"), &json!(2)), "{row}");
    let second = asks[0].next_called("command");
    assert_eq!(second["ask"]["goes_on"], json!({ "watch": watch["watch"], "after": 4 }));
    // It does not answer; then it is asked the same again.
    let told = key(&mut events, |told| told["silent"] == json!(["n-1"]));
    assert_eq!(told["failed"], json!({ "n-2": unknown["why"] }));
    let third = asks[0].next_called("command");
    assert_eq!(third["ask"], second["ask"]);
    answer("n-1", &third, &json!({ "what": "watch", "decisions": [seen(2)], "seen": 1, "last": 5, "since_ms": 9 }));
    assert_eq!(decisions(&mut events, 1), (vec![(5, "n-1".to_owned())], 0));
}

#[test]
fn an_operator_watches_and_so_many_keys_at_once() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (viewer, _) = ana.script(&json!({ "role": "viewer" }));
    assert_eq!(viewer.get("/api/v1/stream?key=user:ada").status, 403);
    for none in ["ada", "user:", "No:x", &format!("user:{}", "x".repeat(2_000))] {
        let answer = ana.get(&format!("/api/v1/stream?key={none}"));
        assert_eq!((answer.status, &answer.json()["errors"][0]["parameter"]), (422, &json!("key")), "{none}");
    }
    let [ben, eva] = ["operator", "editor"].map(|role| ana.add(role, &server));
    let (script, _) = ana.script(&json!({ "role": "operator" }));
    let watch = |client: &Client, number: u32| {
        let mut events = Events::open(&server.url, client, &format!("&key=user:u-{number}"));
        let refused = events.next_called("key")["refused"].clone();
        (events, refused)
    };
    let open = |client: &Client, numbers: Range<u32>| {
        let each = numbers.map(|number| {
            let (events, refused) = watch(client, number);
            assert_eq!(refused, Value::Null, "{number}");
            events
        });
        each.collect::<Vec<_>>()
    };
    // One user has half of them, from whatever connection or token; another one has the rest.
    let mut watched = open(&ana, 0..4);
    for client in [&ana, &script] {
        assert_eq!(watch(client, 4).1, "you and your tokens watch 4 identities already: stop watching one");
    }
    watched.extend(open(&ana, 3..4));
    watched.extend(open(&ben, 4..8));
    assert_eq!(watch(&eva, 8).1, "too many are watched at once");
    server.gives_others_their_quota(&eva);
    // An identity that others watch already takes no place, but counts for this user as well.
    let shared = open(&eva, 7..8);
    assert_eq!(watch(&ana, 7).1, "you and your tokens watch 4 identities already: stop watching one");
    drop((watched, shared));
}
