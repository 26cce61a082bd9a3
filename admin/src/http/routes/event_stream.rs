//! The event stream: the state of each topic first, then what happens. A reader that is slow misses states, is told so, and
//! gets the newest; the server never waits for it. One that is slower still is cut off.

use std::{collections::VecDeque, convert::Infallible, future::pending, rc::Rc, str::FromStr, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{self, CacheControl, CacheDirective},
    },
    web::{Bytes, Data},
};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tidegate::RequestError;
use tidegate_fleet::wire::{QueryIdentity as Watched, QueryRequest};
use tokio::{
    sync::watch,
    time::{self, Instant, Interval},
};

use crate::{
    auth::principal::{Credential, Who},
    base::{
        event_log::{Told, Topic},
        secrets::instant,
    },
    domain::{
        error::Problem,
        roles::{Need, Role, Viewer},
    },
    fleet::{live_tail::Looking, snapshot_push::cut},
    http::{
        connections::Connection,
        extract::query::Query,
        guard::{self, By},
        openapi::{Api, LastEventId},
        state::State,
    },
    simulate::run,
};

/// The most runs that a stream tells of.
const RUNS_MAX: usize = 8;
/// Between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a browser waits before it connects again.
const RETRY_MS: u32 = 2_000;

const ABOUT: &str = "\
Server-sent events, until the session ends or the server stops: `hello`, then the state of each topic that is asked for, then \
what happens. `policy.published` (with the first 100 objects that changed, and the first 100 that are gone), \
`policy.applied` (with `took_ms`, or with `refused`, the reason) and `policy.rollout` (the `rollout` that is open, as `hello` \
has it, or `null`) come in any case; `bye` says why it ends. Topics:

| topic | events |
|---|---|
| `metrics` | `metrics`, once a second: the whole sample |
| `metrics.tier`, `metrics.rule` | an event of the same name, once a second: figures of each tier or rule |
| `top` | `top`, every two seconds: the most denied keys |
| `node` | `node`, once a second at most: the rows of the nodes that changed, as `GET /nodes` has them, and the names of those \
that were forgotten (`removed`); first the rows of all, with `whole` |
| `alerts` | `alert`, when one is opened or closed; first those that are open |
| `audit` | `audit`, a line; first the last ones |
| `sim:ID` | `sim.progress` and `sim.done` of a what-if run |

With `key`, which takes the role of an operator, also the decisions about that identity as nodes make them: `decision`, four times a second at most, the newest 50 since the last such event, numbered, and how many more there were (`missed`); first those that are known, where somebody watches already. `key` says since when, and of which nodes not all is seen: each has since when it is asked in `nodes`, and is among `silent` or `failed` where it does not answer.

A reader that is too slow for `metrics` and other states gets the newest, with `gap`; of `node` the rows of all. One that takes \
longer than a minute for what it is told is cut off. One that comes back with \
`Last-Event-ID`, as browsers do, or with `last_event_id` is told all that it missed if that is still known, else the state anew; `resumed` in `hello` \
says which.";

pub(super) fn calls(api: &mut Api) {
    api.about("Events", "What happens, as it happens.");
    api.get("/stream", open).says("The event stream", ABOUT).answers(
        StatusCode::OK,
        "text/event-stream",
        "Events, each with a JSON object.",
    );
}

#[derive(Deserialize, JsonSchema)]
struct Wanted {
    /// Separated by commas; of what-if runs eight at most.
    #[serde(default)]
    topics: String,
    /// An identity to watch, such as `user:ada`.
    key: Option<String>,
    /// As the header `Last-Event-ID`, for whoever cannot send that, such as a page that opens its stream anew; the topics are to be
    /// those of before.
    last_event_id: Option<String>,
}

async fn open(
    by: By<Viewer>,
    request: HttpRequest,
    state: Data<State>,
    query: Query<Wanted>,
    last: LastEventId,
) -> Result<HttpResponse, Problem> {
    let asked = query.topics.parse().map_err(|why| Problem::parameter("topics", format!("topics: {why}")))?;
    let watched = query.key.as_deref().map(|key| watched(&request, key)).transpose()?;
    let last = last.0.as_deref().or(query.last_event_id.as_deref()).and_then(|id| state.events.sequence(id));
    if let Some(connection) = request.conn_data::<Connection>() {
        connection.is_stream();
    }
    let reader = Reader::new(state, by.who(), asked, watched.as_ref(), last);
    let events = stream::unfold(reader, async |mut reader| {
        reader.next().await.map(|piece| (Ok::<_, Infallible>(piece), reader))
    });
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(CacheControl(vec![CacheDirective::NoStore]))
        // For proxies that hold back what comes in small pieces.
        .insert_header((header::HeaderName::from_static("x-accel-buffering"), "no"))
        .streaming(Box::pin(events)))
}

/// Whom the decisions are to be about.
fn watched(request: &HttpRequest, key: &str) -> Result<Watched, Problem> {
    guard::check(request, Need::Role(Role::Operator))?;
    let (kind, value) = key.split_once(':').unwrap_or((key, ""));
    let who = Watched { kind: kind.to_owned(), value: value.to_owned() };
    let wrong = |error: RequestError| Problem::parameter("key", format!("key: {error}"));
    QueryRequest::of_one(who.clone()).check().map_err(wrong)?;
    Ok(who)
}

/// What a stream is to be about.
struct Asked {
    topics: Vec<Topic>,
    /// Ids of what-if runs.
    runs: Vec<String>,
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(names: &str) -> Result<Self, String> {
        let mut asked = Self { topics: vec![Topic::Policy], runs: Vec::new() };
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if let Some(id) = name.strip_prefix("sim:") {
                asked.runs.push(id.to_owned());
            } else {
                let topic = name.parse()?;
                if !asked.topics.contains(&topic) {
                    asked.topics.push(topic);
                }
            }
        }
        if asked.runs.len() > RUNS_MAX {
            return Err(format!("{RUNS_MAX} runs at most"));
        }
        Ok(asked)
    }
}

struct Reader {
    state: Data<State>,
    who: Rc<Who>,
    topics: Vec<Topic>,
    news: watch::Receiver<u64>,
    /// Ids of the runs that it wants to be told of, and what it was told last; those that are over are not in it any more.
    runs: Vec<(String, Option<RunTold>)>,
    runs_changed: watch::Receiver<()>,
    /// Whose decisions it looks at.
    looking: Option<Looking>,
    session_ended: watch::Receiver<()>,
    stopping: watch::Receiver<bool>,
    heartbeat: Interval,
    /// Number up to which it was told everything.
    seen: u64,
    /// Events that are to be sent, each in its parts.
    waiting: VecDeque<Vec<Bytes>>,
    /// What is left to send of the event that has begun.
    pieces: VecDeque<Bytes>,
    /// Since when there is something to send.
    since: Instant,
    is_over: bool,
}

/// What a reader knows of a run.
type RunTold = (run::State, u64, Option<usize>);

enum Happened {
    Run,
    Decisions,
    Stop,
    News,
    SessionEnd,
    Heartbeat,
}

/// Waits for what is to be told of a key; for ever where there is none.
async fn has_news(looking: &mut Option<Looking>) {
    match looking {
        Some(looking) => looking.has_news().await,
        None => pending().await,
    }
}

impl Reader {
    /// `last`: number of the event up to which it was told everything, if it was here before.
    fn new(state: Data<State>, who: Rc<Who>, asked: Asked, watched: Option<&Watched>, last: Option<u64>) -> Self {
        let (looking, refused) = match watched.cloned().map(|watched| state.watches.look(&who.behind, watched)) {
            Some(Ok(looking)) => (Some(looking), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let mut reader = Self {
            // First, so that nothing falls between it and the state.
            news: state.events.subscribe(),
            runs: asked.runs.into_iter().map(|id| (id, None)).collect(),
            runs_changed: state.runs.subscribe(),
            looking,
            session_ended: state.session_ended.subscribe(),
            stopping: state.stopping.subscribe(),
            heartbeat: time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT),
            state,
            who,
            topics: asked.topics,
            seen: 0,
            waiting: VecDeque::new(),
            pieces: VecDeque::new(),
            since: Instant::now(),
            is_over: false,
        };
        reader.news.borrow_and_update();
        reader.waiting.push_back(vec![format!("retry: {RETRY_MS}\n\n").into()]);
        let missed = last.and_then(|seen| Some((seen, reader.state.events.missed(seen, &reader.topics)?)));
        if let Some((seen, (told, newest))) = missed {
            reader.seen = seen;
            reader.greet(true);
            reader.tell(told, newest);
        } else {
            // Before the version is told: what is published in between is told as news.
            let (events, newest) = reader.state.events.state(&reader.topics);
            reader.greet(false);
            // Whoever loses the stream before the last of them has not seen the state.
            let ids = (1..=events.len()).map(|place| if place == events.len() { newest } else { 0 });
            for (event, id) in events.iter().zip(ids) {
                reader.waiting.push_back(event.parts(&reader.state.events.id(id), false).into());
            }
            reader.seen = newest;
        }
        reader.tell_of_runs();
        if let Some(why) = refused {
            reader.say("key", &json!({ "who": watched, "refused": why }));
        }
        reader.tell_of_key();
        reader
    }

    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // In the middle of an event nothing else can be said.
            if let Some(piece) = self.pieces.pop_front() {
                let is_slow = self.since.elapsed() > self.state.fleet.periods.unread_answers;
                return (!is_slow).then_some(piece);
            }
            if *self.stopping.borrow() && !self.is_over {
                // Whoever comes back finds another process, which tells the state anew.
                self.waiting.clear();
                self.end("shutting down");
            }
            if let Some(event) = self.waiting.pop_front() {
                self.pieces = event.iter().flat_map(cut).collect();
                continue;
            }
            if self.is_over {
                return None;
            }
            // The senders live as long as the state, which this reader holds.
            let happened = tokio::select! {
                _ = self.stopping.changed() => Happened::Stop,
                _ = self.news.changed() => Happened::News,
                _ = self.runs_changed.changed(), if !self.runs.is_empty() => Happened::Run,
                () = has_news(&mut self.looking) => Happened::Decisions,
                _ = self.session_ended.changed() => Happened::SessionEnd,
                _ = self.heartbeat.tick() => Happened::Heartbeat,
            };
            // The reader is given time from when there is something to read.
            self.since = Instant::now();
            match happened {
                Happened::News => {
                    let (told, newest) = self.state.events.since(self.seen, &self.topics);
                    self.tell(told, newest);
                }
                Happened::Run => {
                    self.runs_changed.borrow_and_update();
                    self.tell_of_runs();
                }
                Happened::Decisions => self.tell_of_key(),
                // Somebody's session, this one perhaps; or its time is up.
                Happened::SessionEnd | Happened::Heartbeat => match guard::still(&self.state, &self.who).await {
                    Ok(Some(reason)) => self.end(reason),
                    // Or the database has trouble, not the reader.
                    Ok(None) | Err(_) => self.waiting.push_back(vec![Bytes::from_static(b": alive\n\n")]),
                },
                Happened::Stop => {}
            }
        }
    }

    /// Tells of events, up to a number.
    fn tell(&mut self, told: Vec<Told>, newest: u64) {
        for Told { event, is_gap } in told {
            self.waiting.push_back(event.parts(&self.state.events.id(event.sequence), is_gap).into());
        }
        self.seen = newest;
    }

    /// `is_back`: it goes on where it was, else it is told the state.
    fn greet(&mut self, is_back: bool) {
        let session = match &self.who.by {
            Credential::Session(session) => Some(session),
            Credential::Token(_) => None,
        };
        let targets = self.state.publisher.targets();
        let hello = json!({
            "server_time_ms": jiff::Timestamp::now().as_millisecond(),
            "build": self.state.build,
            "policy_version": targets.newest.version.version,
            "rollout": targets.rollout(),
            "role": self.who.may.name(),
            "session_end": session.map(|session| instant(session.expires_at)),
            "resumed": is_back,
        });
        self.say("hello", &hello);
    }

    /// What this reader alone is told.
    fn say(&mut self, name: &str, data: &serde_json::Value) {
        let id = self.state.events.id(self.seen);
        self.waiting.push_back(vec![format!("event: {name}\nid: {id}\ndata: {data}\n\n").into()]);
    }

    /// Tells of decisions about the key that it looks at.
    fn tell_of_key(&mut self) {
        for (name, data) in self.looking.as_mut().map(Looking::news).unwrap_or_default() {
            self.say(name, &data);
        }
    }

    /// Tells of runs that are not as they were told. A reader that is slow is told of the newest state alone.
    fn tell_of_runs(&mut self) {
        let mut runs = std::mem::take(&mut self.runs);
        runs.retain_mut(|(id, told)| {
            let Some(run) = self.state.runs.run(id) else {
                // It was forgotten, or never was there: whoever waits for its end need not wait.
                self.say("sim.done", &json!({ "id": id, "state": "absent" }));
                return false;
            };
            let now = (run.state, run.done, run.waits_for);
            if told.replace(now) == Some(now) {
                return true;
            }
            let data = json!({
                "id": id, "state": run.state, "waits_for": run.waits_for, "done": run.done, "of": run.of, "at": run.at,
                "error": run.error,
            });
            let name = if run.state.is_over() { "sim.done" } else { "sim.progress" };
            self.say(name, &data);
            !run.state.is_over()
        });
        self.runs = runs;
    }

    fn end(&mut self, reason: &str) {
        self.say("bye", &json!({ "reason": reason }));
        self.is_over = true;
    }
}
