//! The event stream: state first, then changes; what it says when it ends.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Lines, Write},
    net::TcpStream,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidegate_testkit::wait_until;
use ureq::{Agent, BodyReader};

use crate::{
    home::Folder,
    support::{Client, Server, Time, fresh},
};

/// Is an event as it should be?
type Check = fn(&Value) -> bool;

/// The longest that a stream is read.
const STREAM_LIMIT: Duration = Duration::from_mins(2);

pub(crate) struct Events {
    lines: Lines<BufReader<BodyReader<'static>>>,
    /// Of the last event that was read.
    id: String,
}

impl Events {
    pub(crate) fn open(url: &str, client: &Client, topics: &str) -> Self {
        Self::open_after(url, client, topics, None)
    }

    /// Of somebody who was here before, and read the event with this id last.
    pub(crate) fn open_after(url: &str, client: &Client, topics: &str, last: Option<&str>) -> Self {
        let agent: Agent = Agent::config_builder().timeout_global(Some(STREAM_LIMIT)).build().into();
        let mut stream = agent.get(format!("{url}/api/v1/stream?topics={topics}"));
        stream = match &*client.bearer {
            "" => stream.header("cookie", client.cookie()),
            bearer => stream.header("authorization", format!("Bearer {bearer}")),
        };
        if let Some(last) = last {
            stream = stream.header("last-event-id", last);
        }
        let stream = stream.call().expect("it opens");
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        assert!(stream.headers().get("content-encoding").is_none(), "compression holds events back");
        Self { lines: BufReader::new(stream.into_body().into_reader()).lines(), id: String::new() }
    }

    /// Of a node, which says this of itself.
    pub(crate) fn of_node(url: &str, node: &Client, hello: &str) -> Self {
        let agent: Agent = Agent::config_builder().timeout_global(Some(STREAM_LIMIT)).build().into();
        let stream = agent.get(format!("{url}/api/v1/snapshots/stream?{hello}"));
        let stream = stream.header("authorization", format!("Bearer {}", node.bearer)).call().expect("it opens");
        Self { lines: BufReader::new(stream.into_body().into_reader()).lines(), id: String::new() }
    }

    /// The next event: its name and data. `None` at the end.
    pub(crate) fn next(&mut self) -> Option<(String, Value)> {
        let mut name = None;
        for line in self.lines.by_ref() {
            let line = line.expect("the stream goes on");
            if let Some(event) = line.strip_prefix("event: ") {
                name = Some(event.to_owned());
            } else if let Some(id) = line.strip_prefix("id: ") {
                id.clone_into(&mut self.id);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name.expect("a name before data"), serde_json::from_str(data).expect("JSON")));
            }
        }
        None
    }

    /// Reads on until each of these came as it should be, in whatever order.
    fn wait_for_all<const N: usize>(&mut self, awaited: [(&str, Check); N]) {
        let mut awaited = Vec::from(awaited);
        while !awaited.is_empty() {
            let (name, data) = self.next().expect("the stream goes on");
            awaited.retain(|(called, is_so)| *called != name || !is_so(&data));
        }
    }

    pub(crate) fn next_called(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.next().expect("an event before the end");
            if name == wanted {
                return data;
            }
        }
    }

    /// Waits until this version is told as published. A publish before the stream was opened may still be told on it.
    pub(crate) fn skip_to_published(&mut self, version: u64) {
        while self.next_called("policy.published")["version"] != version {}
    }
}

/// One user opens as many streams as an address has connections, but for twenty, and reads none of them.
#[test]
fn streams_that_are_not_read_hold_up_no_other_stream_and_no_check() {
    const HELD: usize = 1_230;
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let vic = ana.add("viewer", &server);
    let request =
        format!("GET /api/v1/stream?topics=metrics,top HTTP/1.1\r\nhost: x\r\ncookie: {}\r\n\r\n", vic.cookie());
    let address = server.url.trim_start_matches("http://");
    let held = (0..HELD).map(|_| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    });
    let held: Vec<TcpStream> = held.collect();
    let streams = || {
        let metrics = ana.get("/metrics").text;
        let line = metrics.lines().find_map(|line| line.strip_prefix("tidegate_admin_streams "));
        line.expect("it is counted").parse::<usize>().expect("a number")
    };
    wait_until("all are open", || streams() == HELD);
    let mut events = Events::open(&server.url, &ana, "metrics");
    for version in 2..5_u64 {
        server.gives_others_their_quota(&ana);
        events.skip_to_published(version);
    }
    assert_eq!(streams(), HELD + 1, "none of them was cut off");
    drop(held);
}

#[test]
fn state_comes_first_and_then_what_changes() {
    let (_folder, mut server) = fresh();
    let ana = server.administrator();
    let mut events = Events::open(&server.url, &ana, "metrics");
    let (name, hello) = events.next().expect("an event");
    assert_eq!((name.as_str(), &hello["policy_version"], &hello["role"]), ("hello", &json!(1), &json!("admin")));
    let (name, first) = events.next().expect("an event");
    assert_eq!((name.as_str(), &first["totals"]["allowed"]), ("metrics", &json!(0)));
    assert_eq!(first["limits"][0]["limit_id"], "default/tier:free/minute");

    // Figures move while traffic flows.
    for _ in 0..130 {
        let _ = server.check("ada");
    }
    let moved = loop {
        let moved = events.next_called("metrics");
        if moved["totals"]["allowed"] != 0 {
            break moved;
        }
    };
    let allowed = moved["totals"]["allowed"].as_u64().expect("a count");
    assert_eq!(moved["totals"]["denied"], 130 - allowed);
    assert_eq!(
        (&moved["limits"][0]["allowed"], &moved["limits"][0]["denied"]),
        (&json!(allowed), &json!(130 - allowed))
    );
    assert!(moved["limits"][0]["denied_rate"].as_f64().expect("a rate") > 0.0, "{moved}");
    let asked = ana.get("/api/v1/metrics").json();
    assert_eq!(asked["newest"]["totals"]["allowed"], allowed);
    assert!(!asked["history"].as_array().expect("a list").is_empty());

    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(200);
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
    let published = events.next_called("policy.published");
    assert_eq!((&published["version"], &published["author"]), (&json!(2), &json!("ana")));
    assert_eq!(published["touched"][0]["etag"], "\"tier:free:2\"");
    assert_eq!((&published["touched_count"], &published["removed"]), (&json!(1), &json!([])));
    let (etag, _) = ana.tier("internal");
    let removed = ana.send("DELETE", "/api/v1/tiers/internal", &[("if-match", &etag)], None);
    assert!(matches!(removed.status, 200 | 201 | 204), "{removed:?}");
    let published = events.next_called("policy.published");
    assert_eq!(published["removed"], json!([{ "kind": "tier", "domain": "default", "id": "internal" }]));
    assert_eq!((&published["touched_count"], &published["removed_count"]), (&json!(0), &json!(1)));

    server.stop();
    assert_eq!(events.next_called("bye")["reason"], "shutting down");
    assert_eq!(events.next(), None);
}

#[test]
fn a_stop_waits_for_no_stream_and_keeps_what_was_counted() {
    // One that waited for a stream would take the two minutes that a request has.
    stop_beside_streams(SignedDuration::from_mins(1));
}

/// One that reads, one that has stopped reading long ago, and a connection that is idle. The stop takes at most so long.
fn stop_beside_streams(at_most: SignedDuration) {
    let folder = Folder::new();
    let time = Time::at("2026-03-01T10:58:30Z");
    let mut server = Server::start_with(folder.home(), |settings| {
        "a".clone_into(&mut settings.node);
        settings.figures_clock = time.clock();
        settings.periods.drain = Duration::from_mins(2);
    });
    let ana = server.administrator();
    let (_, mut free) = ana.tier("free");
    // Each second's figures are of hundreds of kilobytes, which fill the buffers between the server and who does not read.
    free["limits"][0]["limit"] = json!(1_000);
    let tiers: Vec<Value> = (0..1_000)
        .map(|number| {
            let mut tier = free.clone();
            tier["id"] = json!(format!("{}{number}", "x".repeat(50)));
            json!({ "op": "create", "kind": "tier", "id": tier["id"], "value": tier })
        })
        .collect();
    let list = json!({ "base_version": 1, "message": "many", "changes": tiers, "if_match": {} });
    assert_eq!(ana.post("/api/v1/policy/changes", &list).status, 201);
    let topics = "metrics,metrics.tier,metrics.rule";
    let mut events = Events::open(&server.url, &ana, topics);
    let mut stalled = TcpStream::connect(server.url.trim_start_matches("http://")).expect("it connects");
    let request = format!("GET /api/v1/stream?topics={topics} HTTP/1.1\r\nhost: a\r\ncookie: {}\r\n\r\n", ana.cookie());
    stalled.write_all(request.as_bytes()).expect("it is asked");
    for _ in 0..10 {
        let _ = events.next_called("metrics");
    }
    for _ in 0..10 {
        let _ = server.check("ada");
    }
    let began = Timestamp::now();
    server.stop();
    let took = Timestamp::now().duration_since(began);
    assert_eq!(events.next_called("bye")["reason"], "shutting down");
    assert_eq!(events.next(), None);
    assert!(took < at_most, "the stop took {took:?}");

    let mut server = Server::start_at(folder.home(), "a", &time);
    time.go_on(120);
    let ana = server.sign_in();
    let minutes = format!("/api/v1/metrics?step=1m&from={}&to={}", time.now_ms() - 300_000, time.now_ms());
    let figures = ana.get(&minutes).json();
    assert_eq!(figures["series"][0]["points"][0]["allowed"], 10, "{figures}");
    server.stop();
}

#[test]
fn signing_out_ends_the_streams_of_that_session_at_once() {
    let (_folder, server) = fresh();
    let (ana, other) = (server.administrator(), server.sign_in());
    let mut events = Events::open(&server.url, &ana, "");
    let mut others = Events::open(&server.url, &other, "metrics");
    assert_eq!(ana.send("DELETE", "/api/v1/session", &[], None).status, 204);
    assert_eq!(events.next_called("bye")["reason"], "session ended");
    assert_eq!(events.next(), None);
    // The other session's goes on.
    let _ = (others.next_called("metrics"), others.next_called("metrics"));
}

#[test]
fn a_stream_without_topics_has_no_figures() {
    let (_folder, mut server) = fresh();
    let ana = server.administrator();
    let mut events = Events::open(&server.url, &ana, "");
    server.stop();
    assert_eq!(events.next().expect("an event").0, "hello");
    assert_eq!(events.next().expect("an event").0, "bye");
}

#[test]
fn each_topic_is_told_as_it_is_and_then_as_it_changes() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let topics = "metrics,metrics.tier,metrics.rule,top,node,alerts,audit";
    let mut events = Events::open(&server.url, &ana, topics);
    assert_eq!(events.next().expect("an event").0, "hello");
    // Figures are of a second: just after one has ended, all checks are of the next.
    events.next_called("metrics");
    for _ in 0..1_000 {
        let _ = server.check("mallory");
    }
    events.wait_for_all([
        ("metrics", |sample| sample["keys_limited"] == 1),
        ("metrics.tier", |tiers| {
            let free = &tiers["items"][0];
            (&free["id"], &free["allowed"], &free["denied"]) == (&json!("default/tier:free"), &json!(100), &json!(900))
        }),
        ("metrics.rule", |rules| rules["items"][0]["id"] == "default/rule:sign-in"),
        ("top", |top| {
            let first = &top["items"][0];
            first["id"] == "default/tier:free/minute"
                && first["identities"] == json!([{ "kind": "user", "value": "mal…" }])
        }),
        ("node", |nodes| {
            let node = &nodes["items"][0];
            node["decisions_per_second"] != 0.0 && node["denied_share"] != 0.0
        }),
    ]);

    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(200);
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
    // A line of the log, and what the node made of it, in any order.
    events.wait_for_all([
        ("policy.applied", |applied| {
            applied["version"] == 2 && applied["node"] == "here" && applied["took_ms"].is_u64()
        }),
        ("node", |nodes| nodes["items"][0]["policy_version"] == 2),
        ("audit", |line| {
            line["action"] == "policy.publish"
                && line["object"] == "version:2"
                && line["actor"] == "ana"
                && line["result"] == "done"
        }),
    ]);

    // Whoever comes now is told the state of all of them, and the last lines.
    let mut events = Events::open(&server.url, &ana, topics);
    let mut state = BTreeMap::new();
    assert_eq!(events.next_called("hello")["policy_version"], 2);
    while !state.contains_key("audit") {
        state.extend([events.next().expect("an event")]);
    }
    let names: Vec<&str> = state.keys().map(String::as_str).collect();
    assert_eq!(names, ["alert", "audit", "metrics", "metrics.rule", "metrics.tier", "node", "top"]);
    let node = &state["node"]["items"][0];
    assert_eq!((&node["node"], &node["policy_version"]), (&json!("here"), &json!(2)));
}

#[test]
fn a_topic_that_does_not_exist_is_refused_by_name() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let answer = ana.get("/api/v1/stream?topics=metrics,weather");
    assert_eq!((answer.status, answer.wrong("parameter")), (422, vec!["topics".to_owned()]));
    assert!(answer.text.contains("`weather`") && answer.text.contains("metrics.tier"), "{}", answer.text);
    // Each run costs a look at it whenever one changes.
    let answer = ana.get("/api/v1/stream?topics=sim:1,sim:2,sim:3,sim:4,sim:5,sim:6,sim:7,sim:8,sim:9");
    assert_eq!((answer.status, answer.wrong("parameter")), (422, vec!["topics".to_owned()]));
}

#[test]
fn who_comes_back_goes_on_where_it_was() {
    let (folder, mut server) = fresh();
    let ana = server.administrator();
    let mut events = Events::open(&server.url, &ana, "metrics");
    assert_eq!(events.next().expect("an event").0, "hello");
    let first = events.id.clone();
    // With `hello` alone nothing is known yet.
    let mut anew = Events::open_after(&server.url, &ana, "metrics", Some(&first));
    assert_eq!(
        (anew.next().expect("an event").0, anew.next().expect("an event").0),
        ("hello".into(), "metrics".into())
    );

    let seen = events.next_called("metrics")["t"].clone();
    let id = events.id.clone();
    let missed: Vec<Value> = (0..3).map(|_| events.next_called("metrics")["t"].clone()).collect();
    drop(events);
    let (etag, mut free) = ana.tier("free");
    free["limits"][0]["limit"] = json!(200);
    assert_eq!(ana.publish_tier(1, &etag, &free).status, 201);
    let mut back = Events::open(&server.url, &ana, &format!("metrics&last_event_id={id}"));
    assert_eq!(back.next().expect("an event").0, "hello");
    assert_eq!(back.id, id);
    for t in &missed {
        let (name, sample) = back.next().expect("an event");
        assert_eq!((name.as_str(), &sample["t"], &sample["gap"]), ("metrics", t, &Value::Null));
    }
    assert_ne!(seen, missed[0]);
    assert_eq!(back.next_called("policy.published")["version"], 2);

    // Another process begins anew.
    server.stop();
    let server = Server::start(folder.home());
    let ana = server.sign_in();
    let mut back = Events::open_after(&server.url, &ana, "metrics", Some(&id));
    assert_eq!(back.next().expect("an event").0, "hello");
    assert_eq!(back.next().expect("an event").1["totals"]["allowed"], 0);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: three seconds are enough on an idle machine"]
    fn a_stop_beside_streams_takes_three_seconds_at_most() {
        stop_beside_streams(SignedDuration::from_secs(3));
    }
}
