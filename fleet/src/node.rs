//! What a follower does: it connects, takes what is published, tells what it counted, answers what is asked, and comes back
//! when the connection breaks.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use serde_json::from_str;
use tidegate::{
    Engine, Publish,
    clock::Clock,
    policy::{SCHEMA, borrowed},
};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};

use crate::{
    answers::Answers,
    calls::{CallError, Calls},
    follower::{Source, Status},
    last_good::{Found, LastGood},
    payload::{Damaged, unpack},
    reports::Reporter,
    sse::{Event, EventReader},
    steps::{Ended, Steps},
    wire::{self, Acknowledgement, Answer, Bye, Command, Current, Hello, Snapshot, Told},
};

/// The admin server says that it is alive every ten seconds; after this it is not.
const SILENCE: Duration = Duration::from_secs(25);
/// Between two reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// An acknowledgement that is lost is told by the next report too.
const ACKNOWLEDGE_TRIES: u32 = 3;
/// What the tasks share.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) instance: String,
    pub(crate) calls: Calls,
    pub(crate) engine: Arc<Engine>,
    pub(crate) answers: Answers,
    pub(crate) last_good: Option<LastGood>,
    pub(crate) status: watch::Sender<Status>,
}

/// Where a follower is.
#[derive(Debug, Default)]
struct Position {
    steps: Steps,
    /// Digest of the policy in force; none: nothing is known of it here.
    sha256: Option<String>,
    /// It is to be sent its policy again.
    is_anew: bool,
    /// A snapshot of this connection is not in force, which the admin server takes for the version that it has here.
    is_behind: bool,
}

/// Why a snapshot is not in force.
#[derive(Debug)]
enum NotApplied {
    /// It is to be sent again.
    Damaged(Damaged),
    /// No repeat would change it.
    Refused(String),
}

impl fmt::Display for NotApplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(damaged) => damaged.fmt(f),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl Node {
    /// Starts with the last good policy; answers its digest.
    pub(crate) fn begin(&self) -> Option<String> {
        let last_good = self.last_good.as_ref()?;
        let found = match last_good.read() {
            Ok(Found::Whole(snapshot)) => match self.apply(&snapshot, None) {
                Ok(()) => {
                    tracing::info!(version = snapshot.version, "started with the last good policy");
                    self.is_in_force(snapshot.version, Source::LastGood);
                    return Some(snapshot.sha256);
                }
                Err(NotApplied::Damaged(why)) => last_good.set_aside(&why.to_string()),
                Err(NotApplied::Refused(why)) => Ok(Found::Refused(why)),
            },
            other => other,
        };
        match found {
            Ok(Found::Nothing | Found::Whole(_)) => {}
            Ok(Found::Damaged(why)) => self.has_trouble(why),
            Ok(Found::Refused(why)) => self.has_trouble(format!("the last good policy is not in force: {why}")),
            Err(error) => self.has_trouble(format!("the last good policy cannot be read: {error}")),
        }
        None
    }

    /// Follows for ever. `sha256`: digest of the policy in force. An engine may have one of which nothing is known here: of a
    /// follower before, say.
    pub(crate) async fn follow(self: Arc<Self>, sha256: Option<String>) -> Infallible {
        let mut position = Position { sha256, ..Position::default() };
        loop {
            let ended = self.connection(&mut position).await;
            self.status.send_if_modified(|status| std::mem::take(&mut status.is_connected));
            sleep(position.steps.pause(ended, random())).await;
        }
    }

    /// One connection, to its end.
    async fn connection(self: &Arc<Self>, position: &mut Position) -> Ended {
        let sha256 = position.sha256.clone().filter(|_| !std::mem::take(&mut position.is_anew));
        position.is_behind = false;
        let hello = Hello {
            name: self.name.clone(),
            instance: self.instance.clone(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA,
            version: sha256.as_ref().map(|_| self.engine.version()),
            sha256,
        };
        let mut stream = match self.calls.open(&hello).await {
            Ok(stream) => stream,
            Err(error) => {
                self.has_trouble(error.to_string());
                return match error {
                    CallError::Unreachable(_) => Ended::Broken,
                    CallError::Refused { .. } => Ended::Refused,
                };
            }
        };
        self.status.send_modify(|status| {
            status.is_connected = true;
            status.trouble = None;
        });
        let mut reader = EventReader::default();
        loop {
            let mut events = Vec::new();
            let trouble = match timeout(SILENCE, stream.chunk()).await {
                Ok(Ok(Some(piece))) => match reader.read(&piece, |event| events.push(event)) {
                    Ok(()) => None,
                    Err(error) => Some(error.to_string()),
                },
                Ok(Ok(None)) => Some("the admin server ended the stream".to_owned()),
                Ok(Err(error)) => Some(format!("the stream broke: {error}")),
                Err(_) => Some("the admin server was not heard for too long".to_owned()),
            };
            for event in events {
                if let Some(end) = self.hear(event, position).await {
                    return end;
                }
            }
            if let Some(trouble) = trouble {
                self.has_trouble(trouble);
                return Ended::Broken;
            }
        }
    }

    /// Does what an event says; answers how the connection is to end, if it is.
    async fn hear(self: &Arc<Self>, event: Event, position: &mut Position) -> Option<Ended> {
        match event.name.as_str() {
            wire::SNAPSHOT => return self.take(&event.data, position).await,
            wire::CURRENT => {
                let Current { .. } = from_str(&event.data).ok()?;
                position.steps.is_well();
                self.is_in_force(self.engine.version(), Source::Admin);
            }
            wire::COMMAND => {
                let command: Command = from_str(&event.data).ok()?;
                if command.ask.get("what").is_some_and(|what| what == "resync") {
                    self.answer(command.id, Told::Resync {}).await;
                    position.is_anew = true;
                    return Some(Ended::Restart);
                }
                let node = Arc::clone(self);
                tokio::spawn(async move { node.obey(command).await });
            }
            wire::RESTART => return Some(Ended::Restart),
            wire::BYE => {
                let why = from_str(&event.data).map_or_else(|_| String::new(), |bye: Bye| bye.reason);
                self.has_trouble(format!("the admin server ended the stream: {why}"));
                return Some(Ended::Restart);
            }
            _ => {}
        }
        None
    }

    /// Takes a snapshot in.
    async fn take(self: &Arc<Self>, data: &str, position: &mut Position) -> Option<Ended> {
        if position.is_behind {
            // This one lacks what those before it chose for used quota; it comes with that to whoever says what it has.
            return Some(Ended::Restart);
        }
        let began = Instant::now();
        let snapshot: Snapshot = match from_str(data) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.has_trouble(format!("the snapshot was damaged on its way: {error}"));
                return Some(Ended::Broken);
            }
        };
        let (version, digest) = (snapshot.version, snapshot.sha256.clone());
        let (node, has) = (Arc::clone(self), position.sha256.clone());
        // Beside the threads that answer: with a hundred thousand clients it takes a while.
        let done = spawn_blocking(move || {
            let applied = node.apply(&snapshot, has.as_ref());
            let took = began.elapsed();
            let kept = applied.is_ok().then(|| node.last_good.as_ref().map(|last_good| last_good.write(&snapshot)));
            (applied, took, kept.flatten())
        });
        let (applied, took, kept) = done.await.unwrap_or_else(|error| {
            (Err(NotApplied::Refused(format!("it could not be taken in: {error}"))), began.elapsed(), None)
        });
        let refused = applied.as_ref().err().map(ToString::to_string);
        let not_kept = kept.and_then(Result::err).map(|error| error.to_string());
        self.acknowledge(Acknowledgement {
            name: self.name.clone(),
            instance: self.instance.clone(),
            version,
            at_ms: self.engine.clock().now() / 1_000_000,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            refused: refused.clone(),
            not_kept: not_kept.clone(),
        });
        match applied {
            Ok(()) => {
                tracing::info!(version, took_ms = took.as_millis() as u64, "policy in force");
                position.steps.is_well();
                position.sha256 = Some(digest);
                self.is_in_force(version, Source::Admin);
                if let Some(why) = not_kept {
                    self.has_trouble(format!("the policy is in force, but not kept for the next start: {why}"));
                }
                None
            }
            Err(not_applied) => {
                position.is_behind = true;
                self.has_trouble(format!("version {version} is not in force: {not_applied}"));
                matches!(not_applied, NotApplied::Damaged(_)).then_some(Ended::Broken)
            }
        }
    }

    /// Checks, compiles and swaps. `has`: digest of the policy in force. What the admin server says is so, also if its version is
    /// lower than that of the policy in force: its database may have been put back from a backup.
    fn apply(&self, snapshot: &Snapshot, has: Option<&String>) -> Result<(), NotApplied> {
        let document = unpack(&snapshot.document, snapshot.bytes, &snapshot.sha256).map_err(NotApplied::Damaged)?;
        if snapshot.version == self.engine.version() && has == Some(&snapshot.sha256) {
            // Asked for again: it is whole.
            return Ok(());
        }
        let refused = |why: String| NotApplied::Refused(why);
        let policy: borrowed::Policy<'_> =
            from_str(&document).map_err(|error| refused(format!("this build cannot read it: {error}")))?;
        let compiled =
            tidegate::Snapshot::compile_borrowed(&policy).map_err(|problems| refused(problems.to_string()))?;
        let publish = Publish::of(compiled).under_version(snapshot.version).counted_anew();
        let publish =
            snapshot.carry.iter().fold(publish, |publish, (limit, carry)| publish.carrying_limit(limit, *carry));
        self.engine.publish(publish).map(drop).map_err(|error| refused(error.to_string()))
    }

    fn acknowledge(self: &Arc<Self>, acknowledgement: Acknowledgement) {
        let node = Arc::clone(self);
        tokio::spawn(async move {
            for _ in 0..ACKNOWLEDGE_TRIES {
                match node.calls.post(wire::ACKNOWLEDGEMENTS, &acknowledgement).await {
                    Ok(()) | Err(CallError::Refused { .. }) => return,
                    Err(CallError::Unreachable(_)) => sleep(REPORT_EVERY).await,
                }
            }
        });
    }

    async fn obey(&self, Command { id, deadline_ms, ask }: Command) {
        let told = match serde_json::from_value(ask) {
            Ok(ask) => match timeout(Duration::from_millis(deadline_ms), self.answers.answer(ask)).await {
                Ok(told) => told,
                // Nobody waits for it any more.
                Err(_) => return,
            },
            Err(error) => Told::Failed { why: format!("this build does not know the question: {error}") },
        };
        self.answer(id, told).await;
    }

    async fn answer(&self, id: String, told: Told) {
        let answer = Answer { name: self.name.clone(), instance: self.instance.clone(), id, told };
        if let Err(error) = self.calls.post(wire::ANSWERS, &answer).await {
            tracing::warn!(%error, "an answer did not arrive");
        }
    }

    /// Tells what is counted, for ever, while there is somebody to tell.
    pub(crate) async fn report(self: Arc<Self>) -> Infallible {
        let mut reporter = Reporter::of(Arc::clone(&self.engine));
        // Nodes that started together do not report together.
        let first = Instant::now() + REPORT_EVERY.mul_f64(random() as f64 / u64::MAX as f64);
        let mut ticks = interval_at(first, REPORT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pending = None;
        loop {
            ticks.tick().await;
            let status = self.status.borrow().clone();
            if !status.is_connected {
                continue;
            }
            let report = pending.take().unwrap_or_else(|| {
                let mut report = reporter.next();
                report.name.clone_from(&self.name);
                report.instance.clone_from(&self.instance);
                report.from_last_good = status.source == Some(Source::LastGood);
                report
            });
            match self.calls.post(wire::REPORTS, &report).await {
                Ok(()) => {}
                // No repeat would change it.
                Err(CallError::Refused { status: 400 | 413 | 422, code, why }) => {
                    tracing::warn!(code, why, "a report was refused");
                }
                Err(error) => {
                    tracing::debug!(%error, "a report did not arrive");
                    pending = Some(report);
                }
            }
        }
    }

    fn is_in_force(&self, version: u64, source: Source) {
        self.status.send_modify(|status| {
            status.version = version;
            status.source = Some(source);
            status.trouble = None;
        });
    }

    fn has_trouble(&self, trouble: String) {
        self.status.send_if_modified(|status| {
            if status.trouble.as_ref() == Some(&trouble) {
                return false;
            }
            tracing::warn!(version = status.version, "{trouble}");
            status.trouble = Some(trouble);
            true
        });
    }
}

/// For pauses: where there are no random numbers, some middle one.
fn random() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        sync::mpsc,
        thread,
    };

    use serde_json::json;
    use tempfile::TempDir;
    use tokio::runtime;

    use super::*;
    use crate::{
        follower::{Follower, Token},
        payload::{pack, sha256},
    };

    const GOOD: &str = r#"{"domains":{"default":{}}}"#;
    const REFUSED: &str = r#"{"domains":{"default":{"from":"the future"}}}"#;

    fn snapshot(version: u64, document: &str) -> Snapshot {
        Snapshot {
            version,
            sha256: sha256(document),
            published_at: String::new(),
            carry: BTreeMap::new(),
            bytes: document.len() as u64,
            document: pack(document),
        }
    }

    fn event(version: u64, document: &str) -> String {
        format!("event: {}\ndata: {}\n\n", wire::SNAPSHOT, json!(snapshot(version, document)))
    }

    fn run<T>(what: impl Future<Output = T>) -> T {
        runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(what)
    }

    #[test]
    fn after_a_refused_snapshot_the_next_one_comes_to_whoever_says_what_it_has() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (asked, asks) = mpsc::channel();
        // Says this to one connection and the next, and does not hear what is posted.
        thread::spawn(move || {
            let mut said = [event(1, GOOD) + &event(2, REFUSED) + &event(3, GOOD), event(3, GOOD)].into_iter();
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("it connects");
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).expect("it asks");
                if !line.starts_with("GET ") {
                    continue;
                }
                let Some(events) = said.next() else { break };
                asked.send(line).expect("it is waited for");
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{events}").expect("it reads");
                open.push(stream);
            }
        });
        run(async {
            let follower = Follower::new(&url, Token::text("token")).named("n-1");
            let following = follower.start(Arc::new(Engine::with_max_keys(100))).await.expect("it starts");
            let mut status = following.watch();
            let newest = timeout(SILENCE, status.wait_for(|status| status.version == 3)).await;
            assert!(newest.is_ok_and(|newest| newest.is_ok()), "{:?}", following.status());
        });
        let asks: Vec<String> = asks.try_iter().collect();
        assert!(asks.len() == 2 && !asks[0].contains("&version=") && asks[1].contains("&version=1&"), "{asks:?}");
    }

    #[test]
    fn a_last_good_policy_that_is_refused_stays() {
        let folder = TempDir::new().expect("a folder");
        let last_good = LastGood::in_folder(folder.path()).expect("it is there");
        last_good.write(&snapshot(2, REFUSED)).expect("written");
        let follower = Follower::new("http://127.0.0.1:1", Token::text("token")).named("n-1").keeping_in(folder.path());
        let following = run(follower.start(Arc::new(Engine::with_max_keys(100)))).expect("it starts");
        assert_eq!(following.status().version, 0);
        assert!(matches!(last_good.read(), Ok(Found::Whole(_))));
    }
}
