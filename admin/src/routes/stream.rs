//! The event stream: the present state first, then changes. A reader that is slow misses samples, is told so, and gets
//! the newest; the server never waits for it.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, CacheControl, CacheDirective},
    },
    web::{Bytes, Data},
};
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{self, Instant, Interval},
};

use crate::{
    access::SignedIn,
    api::Api,
    figures::Sample,
    published::{Published, Shared},
    query::Query,
    secrets::now,
    server::State,
    simulate as run,
};

/// The most runs that a stream tells of.
const RUNS_MAX: usize = 8;
/// Between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a browser waits before it connects again.
const RETRY_MS: u32 = 2_000;

pub(super) fn calls(api: &mut Api) {
    api.about("Events", "What happens, as it happens.");
    api.get("/stream", open)
        .says(
            "The event stream",
            "Server-sent events, until the session ends or the server stops: `hello` first, then `policy.published` and, if \
             asked for, `metrics` once a second, and of what-if runs `sim.progress` and `sim.done`; `bye` says why it ends.",
        )
        .answers(StatusCode::OK, "text/event-stream", "Events, each with a JSON object.");
}

#[derive(Deserialize, JsonSchema)]
struct Topics {
    /// Separated by commas: `metrics`, and `sim:ID` of what-if runs, eight at most.
    #[serde(default)]
    topics: String,
}

async fn open(state: Data<State>, signed_in: SignedIn, query: Query<Topics>) -> HttpResponse {
    let topics = || query.topics.split(',');
    let wants_figures = topics().any(|topic| topic == "metrics");
    let runs = topics().filter_map(|topic| topic.strip_prefix("sim:")).take(RUNS_MAX).map(str::to_owned).collect();
    let reader = Reader::new(state, signed_in, wants_figures, runs);
    let events = stream::unfold(reader, async |mut reader| {
        reader.next().await.map(|event| (Ok::<_, Infallible>(Bytes::from(event)), reader))
    });
    HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(CacheControl(vec![CacheDirective::NoStore]))
        // For proxies that hold back what comes in small pieces.
        .insert_header((header::HeaderName::from_static("x-accel-buffering"), "no"))
        .streaming(Box::pin(events))
}

struct Reader {
    state: Data<State>,
    signed_in: SignedIn,
    wants_figures: bool,
    figures: watch::Receiver<Arc<Sample>>,
    published: watch::Receiver<Shared>,
    /// Ids of the runs that it wants to be told of, and what it was told last; those that are over are not in it any more.
    runs: Vec<(String, Option<Told>)>,
    runs_changed: watch::Receiver<()>,
    session_ended: watch::Receiver<()>,
    stopping: watch::Receiver<bool>,
    heartbeat: Interval,
    /// The last version that it was told of.
    version: u64,
    /// Sequence of the last sample that was sent.
    sent: u64,
    waiting: VecDeque<String>,
    is_over: bool,
}

/// What a reader knows of a run.
type Told = (run::State, u64, Option<usize>);

enum Happened {
    Run,
    Stop,
    Publish,
    Sample,
    SessionEnd,
    Heartbeat,
}

impl Reader {
    fn new(state: Data<State>, signed_in: SignedIn, wants_figures: bool, runs: Vec<String>) -> Self {
        let mut reader = Self {
            figures: state.figures.subscribe(),
            published: state.publisher.subscribe(),
            runs: runs.into_iter().map(|id| (id, None)).collect(),
            runs_changed: state.runs.subscribe(),
            session_ended: state.session_ended.subscribe(),
            stopping: state.stopping.subscribe(),
            heartbeat: time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT),
            state,
            signed_in,
            wants_figures,
            version: 0,
            sent: 0,
            waiting: VecDeque::new(),
            is_over: false,
        };
        let version = reader.published.borrow_and_update().version.version;
        reader.version = version;
        reader.waiting.push_back(format!("retry: {RETRY_MS}\n\n"));
        reader.waiting.push_back(reader.hello(version));
        if wants_figures {
            let newest = reader.figures.borrow_and_update().clone();
            reader.push_sample(&newest);
        }
        reader.push_runs();
        reader
    }

    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            // The senders live as long as the state, which this reader holds.
            let happened = tokio::select! {
                _ = self.stopping.wait_for(|stopping| *stopping) => Happened::Stop,
                _ = self.published.changed() => Happened::Publish,
                _ = self.figures.changed(), if self.wants_figures => Happened::Sample,
                _ = self.runs_changed.changed(), if !self.runs.is_empty() => Happened::Run,
                _ = self.session_ended.changed() => Happened::SessionEnd,
                _ = self.heartbeat.tick() => Happened::Heartbeat,
            };
            match happened {
                Happened::Stop => self.end("shutting down"),
                Happened::Publish => {
                    let published = self.published.borrow_and_update().clone();
                    self.waiting.push_back(publication(&published, self.version));
                    self.version = published.version.version;
                }
                Happened::Sample => {
                    let newest = self.figures.borrow_and_update().clone();
                    self.push_sample(&newest);
                }
                Happened::Run => {
                    self.runs_changed.borrow_and_update();
                    self.push_runs();
                }
                // Somebody's session, this one perhaps; or its time is up.
                Happened::SessionEnd | Happened::Heartbeat if !self.is_signed_in().await => self.end("session ended"),
                Happened::SessionEnd => {}
                Happened::Heartbeat => self.waiting.push_back(": alive\n\n".to_owned()),
            }
        }
    }

    fn hello(&self, policy_version: u64) -> String {
        let session = &self.signed_in.session;
        let data = json!({
            "server_time_ms": jiff::Timestamp::now().as_millisecond(),
            "build": self.state.build,
            "policy_version": policy_version,
            "role": session.role,
            "session_end": jiff::Timestamp::from_second(session.expires_at).map(|at| at.to_string()).ok(),
        });
        event("hello", None, &data)
    }

    fn push_sample(&mut self, sample: &Sample) {
        /// What every reader gets, and whether this one missed something.
        #[derive(Serialize)]
        struct Sent<'a> {
            #[serde(flatten)]
            sample: &'a Sample,
            #[serde(skip_serializing_if = "Option::is_none")]
            gap: Option<bool>,
        }

        let is_gap = self.sent != 0 && sample.sequence > self.sent + 1;
        self.sent = sample.sequence;
        let data = Sent { sample, gap: is_gap.then_some(true) };
        self.waiting.push_back(event("metrics", Some(sample.sequence), &data));
    }

    /// Tells of runs that are not as they were told. A reader that is slow is told of the newest state alone.
    fn push_runs(&mut self) {
        let mut runs = std::mem::take(&mut self.runs);
        runs.retain_mut(|(id, told)| {
            // One that is forgotten has ended.
            let Some(run) = self.state.runs.run(id) else { return false };
            let now = (run.state, run.done, run.waits_for);
            if told.replace(now) == Some(now) {
                return true;
            }
            let data = json!({
                "id": id, "state": run.state, "waits_for": run.waits_for, "done": run.done, "of": run.of, "at": run.at,
                "error": run.error,
            });
            let name = if run.state.is_over() { "sim.done" } else { "sim.progress" };
            self.waiting.push_back(event(name, None, &data));
            !run.state.is_over()
        });
        self.runs = runs;
    }

    async fn is_signed_in(&self) -> bool {
        match self.state.store.session(&self.signed_in.token_sha256, now()).await {
            Ok(session) => session.is_some(),
            // The database has trouble, not the reader.
            Err(_) => true,
        }
    }

    fn end(&mut self, reason: &str) {
        self.waiting.push_back(event("bye", None, &json!({ "reason": reason })));
        self.is_over = true;
    }
}

/// What was published since version `told`: a reader that is slow is told of several versions at once.
fn publication(published: &Published, told: u64) -> String {
    let touched: Vec<Value> = published
        .revisions
        .iter()
        .filter(|(_, revised)| revised.version > told)
        .map(|(key, _)| json!({ "kind": key.kind, "domain": key.domain, "id": key.id, "etag": published.etag(key) }))
        .collect();
    let version = &published.version;
    let data = json!({
        "version": version.version, "author": version.author, "message": version.message,
        "published_at": version.published_at, "touched": touched,
    });
    event("policy.published", None, &data)
}

fn event(name: &str, id: Option<u64>, data: &impl Serialize) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    // Plain data with text keys: it is always JSON, on one line.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate::policy::Policy;

    use super::*;
    use crate::{
        objects::{Kind, ObjectKey},
        published::Revised,
        store::{Carries, Version},
    };

    #[test]
    fn who_missed_versions_is_told_of_every_object_that_they_changed() {
        let key = |id: &str| ObjectKey { kind: Kind::Tier, domain: "default".to_owned(), id: id.to_owned() };
        let revised = |version| Revised { version, by: "ana".to_owned(), at: String::new() };
        let published = Published {
            version: Version {
                version: 5,
                sha256: String::new(),
                author: "ana".to_owned(),
                message: "m".to_owned(),
                published_at: String::new(),
                carry: Carries::default(),
            },
            policy: Policy { domains: BTreeMap::new() },
            revisions: [("a", 2), ("b", 3), ("c", 5)].map(|(id, version)| (key(id), revised(version))).into(),
        };
        let told = |told| {
            let event = publication(&published, told);
            let data = event.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
            let data: Value = serde_json::from_str(data).expect("JSON");
            let ids = data["touched"].as_array().expect("a list").iter().map(|touched| touched["etag"].to_string());
            ids.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told(4), r#""\"tier:c:5\"""#);
        assert_eq!(told(2), r#""\"tier:b:3\"" "\"tier:c:5\"""#);
    }
}
