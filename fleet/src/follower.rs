//! An engine that follows an admin server: it connects, takes what is published, tells what it counted, answers what is
//! asked, and comes back when the connection breaks.

use std::{
    convert::Infallible,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::system::uname;
use serde_json::from_str;
use tidegate::{
    Engine, Publish,
    clock::Clock,
    policy::{Policy, SCHEMA},
};
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};

pub use crate::calls::Token;
use crate::{
    answers::Answers,
    calls::{CallError, Calls},
    last_good::{Found, LastGood},
    payload::{Damaged, hex, unpack},
    reports::Reporter,
    sse::{Event, EventReader},
    steps::{Happened, Step, Steps},
    wire::{self, Acknowledgement, Answer, Bye, Command, Current, Hello, Snapshot, Told},
};

/// The admin server says that it is alive every ten seconds; after this it is not.
const SILENCE: Duration = Duration::from_secs(25);
/// Between two reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// An acknowledgement that is lost is told by the next report too.
const ACKNOWLEDGE_TRIES: u32 = 3;
/// File of the name that a node gave itself.
const NAME_FILE: &str = "node";
/// Bytes of the machine's name in it.
const MACHINE_BYTES: usize = 48;

/// What an engine is to follow. [`start`](Self::start) begins.
#[derive(Clone, Debug)]
pub struct Follower {
    url: String,
    token: Token,
    name: Option<String>,
    folder: Option<PathBuf>,
    trusted: Option<Vec<u8>>,
}

/// An engine that follows. It goes on until this is dropped; the engine then keeps the policy that it has.
#[derive(Debug)]
pub struct Following {
    name: String,
    status: watch::Receiver<Status>,
    // Dropped, they end.
    _tasks: JoinSet<Infallible>,
}

/// How a follower is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// The stream of the admin server is open.
    pub is_connected: bool,
    /// Version of the policy in force; 0: none, so everything is allowed.
    pub version: u64,
    /// Where that policy comes from.
    pub source: Option<Source>,
    /// What is wrong, in words for people; `None` while all is well.
    pub trouble: Option<String>,
}

/// Where a policy comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// From the disk: the admin server was not heard since the start.
    LastGood,
    /// From the admin server.
    Admin,
}

/// Why a follower does not start. That the admin server is away is no reason.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The address is none.
    Url(String),
    /// The name is none.
    Name(String),
    /// The folder cannot be used.
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// No token can be read.
    Token(io::Error),
    /// TLS cannot be set up.
    Tls(String),
    /// The system has no random numbers.
    Random(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => {
                write!(f, "`{url}` is no address; write http:// or https:// and where the admin server is")
            }
            Self::Name(name) => write!(
                f,
                "`{name}` is no name of a node; write letters, digits, `.`, `_` and `-`, {} at most",
                wire::NAME_BYTES_MAX
            ),
            Self::Folder { path, why } => write!(f, "the folder {} cannot be used: {why}", path.display()),
            Self::Token(why) => write!(f, "the token cannot be read: {why}"),
            Self::Tls(why) => write!(f, "TLS cannot be set up: {why}"),
            Self::Random(why) => write!(f, "the system gives no random numbers: {why}"),
        }
    }
}

impl std::error::Error for StartError {}

impl Follower {
    /// Of the admin server at this address, such as `https://admin.example:8080`, by a token of the scope `node`.
    #[must_use]
    pub fn new(admin_url: &str, token: Token) -> Self {
        let url = admin_url.trim_end_matches('/').to_owned();
        Self { url, token, name: None, folder: None, trusted: None }
    }

    /// Under this name, which no other node has; else that of the machine with a random end, which is kept in the folder.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// With a folder, made when it is absent, for the last good policy: a start without the admin server begins with it.
    #[must_use]
    pub fn keeping_in(self, folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), ..self }
    }

    /// Trusting these authorities too, PEM, beside those of the system.
    #[must_use]
    pub fn trusting(self, certificates: impl Into<Vec<u8>>) -> Self {
        Self { trusted: Some(certificates.into()), ..self }
    }

    /// Begins: puts the last good policy in force, if there is one, and connects in the background, on this runtime.
    ///
    /// # Errors
    ///
    /// Where something is wrong here. An admin server that is away, or refuses, is asked again and again; [`Following::status`]
    /// says so.
    pub async fn start(self, engine: Arc<Engine>) -> Result<Following, StartError> {
        if !["http://", "https://"].iter().any(|scheme| self.url.len() > scheme.len() && self.url.starts_with(scheme)) {
            return Err(StartError::Url(self.url));
        }
        self.token.read().map_err(StartError::Token)?;
        let random = random_text(8)?;
        let suffix = &random[..4];
        let of_folder = |why| StartError::Folder { path: self.folder.clone().unwrap_or_default(), why };
        let last_good = self.folder.as_deref().map(LastGood::in_folder).transpose().map_err(of_folder)?;
        let name = match (self.name, &self.folder) {
            (Some(name), _) => name,
            (None, Some(folder)) => kept_name(folder, suffix).map_err(of_folder)?,
            (None, None) => new_name(suffix),
        };
        if !wire::is_name(&name) {
            return Err(StartError::Name(name));
        }
        let calls = Calls::to(&self.url, self.token, self.trusted.as_deref()).map_err(StartError::Tls)?;
        let (status, seen) = watch::channel(Status::default());
        let node = Arc::new(Node {
            name: name.clone(),
            instance: random,
            calls,
            answers: Answers::of(Arc::clone(&engine)),
            engine,
            last_good,
            status,
        });
        let sha256 = {
            let node = Arc::clone(&node);
            spawn_blocking(move || node.begin()).await.unwrap_or_default()
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&node).report());
        tasks.spawn(node.follow(sha256));
        Ok(Following { name, status: seen, _tasks: tasks })
    }
}

impl Following {
    /// Under which the admin server knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Waits until there is a policy in force.
    pub async fn has_policy(&self) {
        // The sender lives as long as the tasks, which live as long as this.
        let _ = self.status.clone().wait_for(|status| status.version > 0).await;
    }

    /// Its status from now on, as it changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }
}

/// What the tasks share.
#[derive(Debug)]
struct Node {
    name: String,
    instance: String,
    calls: Calls,
    engine: Arc<Engine>,
    answers: Answers,
    last_good: Option<LastGood>,
    status: watch::Sender<Status>,
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
    fn begin(&self) -> Option<String> {
        let last_good = self.last_good.as_ref()?;
        let found = match last_good.read() {
            Ok(Found::Whole(snapshot)) => match self.apply(&snapshot) {
                Ok(()) => {
                    tracing::info!(version = snapshot.version, "started with the last good policy");
                    self.is_in_force(snapshot.version, Source::LastGood);
                    return Some(snapshot.sha256);
                }
                Err(why) => last_good.set_aside(&why.to_string()),
            },
            other => other,
        };
        match found {
            Ok(Found::Nothing | Found::Whole(_)) => {}
            Ok(Found::Damaged(why)) => self.has_trouble(why),
            Err(error) => self.has_trouble(format!("the last good policy cannot be read: {error}")),
        }
        None
    }

    /// Follows for ever. `sha256`: digest of the policy in force.
    async fn follow(self: Arc<Self>, mut sha256: Option<String>) -> Infallible {
        let mut steps = Steps::with(self.engine.version());
        loop {
            let happened = self.connection(&mut steps, &mut sha256).await;
            self.status.send_if_modified(|status| std::mem::take(&mut status.is_connected));
            if let Step::Wait(pause) = steps.next(happened, random()) {
                sleep(pause).await;
            }
        }
    }

    /// One connection, to its end.
    async fn connection(self: &Arc<Self>, steps: &mut Steps, sha256: &mut Option<String>) -> Happened {
        let hello = Hello {
            name: self.name.clone(),
            instance: self.instance.clone(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA,
            version: sha256.as_ref().map(|_| self.engine.version()),
            sha256: sha256.clone(),
        };
        let mut stream = match self.calls.open(&hello).await {
            Ok(stream) => stream,
            Err(error) => {
                self.has_trouble(error.to_string());
                return match error {
                    CallError::Unreachable(_) => Happened::Broken,
                    CallError::Refused { .. } => Happened::Refused,
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
                if let Some(end) = self.hear(event, steps, sha256).await {
                    return end;
                }
            }
            if let Some(trouble) = trouble {
                self.has_trouble(trouble);
                return Happened::Broken;
            }
        }
    }

    /// Does what an event says; answers how the connection is to end, if it is.
    async fn hear(self: &Arc<Self>, event: Event, steps: &mut Steps, sha256: &mut Option<String>) -> Option<Happened> {
        match event.name.as_str() {
            wire::SNAPSHOT => return self.take(&event.data, steps, sha256).await,
            wire::CURRENT => {
                let current: Current = from_str(&event.data).ok()?;
                let _ = steps.next(Happened::Told(current.version), random());
                self.is_in_force(self.engine.version(), Source::Admin);
            }
            wire::COMMAND => {
                let command: Command = from_str(&event.data).ok()?;
                if command.ask.get("what").is_some_and(|what| what == "resync") {
                    self.answer(command.id, Told::Resync {}).await;
                    *sha256 = None;
                    *steps = Steps::default();
                    return Some(Happened::Restart);
                }
                let node = Arc::clone(self);
                tokio::spawn(async move { node.obey(command).await });
            }
            wire::RESTART => return Some(Happened::Restart),
            wire::BYE => {
                let why = from_str(&event.data).map_or_else(|_| String::new(), |bye: Bye| bye.reason);
                self.has_trouble(format!("the admin server ended the stream: {why}"));
                return Some(Happened::Restart);
            }
            _ => {}
        }
        None
    }

    /// Takes a snapshot in.
    async fn take(self: &Arc<Self>, data: &str, steps: &mut Steps, sha256: &mut Option<String>) -> Option<Happened> {
        let began = Instant::now();
        let snapshot: Snapshot = match from_str(data) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.has_trouble(format!("the snapshot was damaged on its way: {error}"));
                return Some(Happened::Broken);
            }
        };
        if steps.next(Happened::Told(snapshot.version), random()) != Step::Apply {
            return None;
        }
        let (version, digest) = (snapshot.version, snapshot.sha256.clone());
        let node = Arc::clone(self);
        // Beside the threads that answer: with a hundred thousand clients it takes a while.
        let done = spawn_blocking(move || {
            let applied = node.apply(&snapshot);
            let took = began.elapsed();
            let kept = applied.is_ok().then(|| node.last_good.as_ref().map(|last_good| last_good.write(&snapshot)));
            (applied, took, kept.flatten())
        });
        let (applied, took, kept) = done.await.ok()?;
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
                let _ = steps.next(Happened::InForce(version), random());
                *sha256 = Some(digest);
                self.is_in_force(version, Source::Admin);
                if let Some(why) = not_kept {
                    self.has_trouble(format!("the policy is in force, but not kept for the next start: {why}"));
                }
                None
            }
            Err(not_applied) => {
                self.has_trouble(format!("version {version} is not in force: {not_applied}"));
                matches!(not_applied, NotApplied::Damaged(_)).then_some(Happened::Broken)
            }
        }
    }

    /// Checks, compiles and swaps.
    fn apply(&self, snapshot: &Snapshot) -> Result<(), NotApplied> {
        let document = unpack(&snapshot.document, snapshot.bytes, &snapshot.sha256).map_err(NotApplied::Damaged)?;
        if snapshot.version == self.engine.version() {
            // Asked for again: it is whole.
            return Ok(());
        }
        let refused = |why: String| NotApplied::Refused(why);
        let policy: Policy =
            from_str(&document).map_err(|error| refused(format!("this build cannot read it: {error}")))?;
        let compiled = tidegate::Snapshot::compile(&policy).map_err(|problems| refused(problems.to_string()))?;
        let publish = Publish::of(compiled).under_version(snapshot.version);
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
    async fn report(self: Arc<Self>) -> Infallible {
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

/// The name that was kept in the folder, or a new one, which is kept there.
fn kept_name(folder: &Path, suffix: &str) -> io::Result<String> {
    let path = folder.join(NAME_FILE);
    match fs::read_to_string(&path) {
        Ok(name) => Ok(name.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = new_name(suffix);
            fs::write(&path, format!("{name}\n"))?;
            Ok(name)
        }
        Err(error) => Err(error),
    }
}

/// The machine's name, as far as it can be a node's, and a random end.
fn new_name(suffix: &str) -> String {
    let machine = uname();
    let machine = machine.nodename().to_string_lossy();
    let mut name: String = machine
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || ".-_".contains(letter) { letter } else { '-' })
        .take(MACHINE_BYTES)
        .collect();
    if !wire::is_name(&name) {
        "node".clone_into(&mut name);
    }
    format!("{name}-{suffix}")
}

/// So many random bytes, hex.
fn random_text(bytes: usize) -> Result<String, StartError> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|error| StartError::Random(error.to_string()))?;
    Ok(hex(&random))
}

/// For pauses: where there are no random numbers, some middle one.
fn random() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX / 2)
}
