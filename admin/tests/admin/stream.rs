//! The event stream: state first, then changes; what it says when it ends.

use std::{
    io::{BufRead, BufReader, Lines},
    time::Duration,
};

use serde_json::{Value, json};
use ureq::{Agent, BodyReader};

use crate::support::{Client, fresh};

pub(crate) struct Events {
    lines: Lines<BufReader<BodyReader<'static>>>,
}

impl Events {
    pub(crate) fn open(url: &str, client: &Client, topics: &str) -> Self {
        let agent: Agent = Agent::config_builder().timeout_global(Some(Duration::from_secs(30))).build().into();
        let stream = agent.get(format!("{url}/api/v1/stream?topics={topics}")).header("cookie", client.cookie());
        let stream = stream.call().expect("it opens");
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        assert!(stream.headers().get("content-encoding").is_none(), "compression holds events back");
        Self { lines: BufReader::new(stream.into_body().into_reader()).lines() }
    }

    /// The next event: its name and data. `None` at the end.
    pub(crate) fn next(&mut self) -> Option<(String, Value)> {
        let mut name = None;
        for line in self.lines.by_ref() {
            let line = line.expect("the stream goes on");
            if let Some(event) = line.strip_prefix("event: ") {
                name = Some(event.to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name.expect("a name before data"), serde_json::from_str(data).expect("JSON")));
            }
        }
        None
    }

    pub(crate) fn next_called(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.next().expect("an event before the end");
            if name == wanted {
                return data;
            }
        }
    }
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

    server.stop();
    assert_eq!(events.next_called("bye")["reason"], "shutting down");
    assert_eq!(events.next(), None);
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
