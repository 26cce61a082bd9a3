//! Starts the agent of an engine, and the handle of one that runs.

use std::{
    convert::Infallible,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::system::uname;
use tidegate::{
    Engine,
    clock::{Clock, SystemClock},
};
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
};

use crate::{
    agent::{
        http_client::{AdminClient, Token},
        last_good::{LastGood, replace},
        node::Node,
        process::ErrorCounts,
        queries::QueryHandler,
        status::Status,
    },
    counts::sampler::ONE_IN,
    store::Shared,
    wire::{self, Process, payload::hex},
};

/// File of the name that a node gave itself.
const NAME_FILE: &str = "node";

/// Bytes of the machine's name in it.
const MACHINE_BYTES: usize = 48;

/// The settings of an agent, which keeps an engine on an admin server's policy. [`start`](Self::start) starts it.
#[derive(Clone, Debug)]
pub struct Agent {
    url: String,
    token: Token,
    name: Option<String>,
    folder: Option<PathBuf>,
    trusted: Option<Vec<u8>>,
    store: Option<Arc<Shared<SystemClock>>>,
    process: Process,
    errors: ErrorCounts,
}

/// An agent that runs. It runs until this is dropped; the engine then keeps the policy that it has. A process that stops on purpose
/// calls [`leave`](Self::leave): otherwise the admin server takes the node for dead.
#[derive(Debug)]
pub struct AgentHandle {
    node: Arc<Node>,
    status: watch::Receiver<Status>,
    // The tasks end when this is dropped.
    tasks: JoinSet<Infallible>,
}

/// An error for which an agent does not start. An admin server that cannot be reached is none.
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

impl Agent {
    /// Follows the admin server at this address, such as `https://admin.example:8080`, by a token of the scope `node`.
    #[must_use]
    pub fn new(admin_url: &str, token: Token) -> Self {
        let url = admin_url.trim_end_matches('/').to_owned();
        let (process, errors) = (Process::default(), ErrorCounts::default());
        Self { url, token, name: None, folder: None, trusted: None, store: None, process, errors }
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

    /// Telling the admin server with what its process runs, and that errors are counted by `errors`. When it began, and how it
    /// is observed, is known here.
    #[must_use]
    pub fn running_as(self, process: Process, errors: ErrorCounts) -> Self {
        Self { process: process.bounded(), errors, ..self }
    }

    /// Sharing limits through this store, which is of the engine that it starts with.
    #[must_use]
    pub fn sharing_through(self, store: Option<Arc<Shared<SystemClock>>>) -> Self {
        Self { store, ..self }
    }

    /// Begins: puts the last good policy in force, if there is one, and connects in the background, on this runtime.
    ///
    /// # Errors
    ///
    /// Where something is wrong here. An admin server that is away, or refuses, is asked again and again; [`AgentHandle::status`]
    /// says so.
    pub async fn start(self, engine: Arc<Engine>) -> Result<AgentHandle, StartError> {
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
        let client = AdminClient::to(&self.url, self.token, self.trusted.as_deref()).map_err(StartError::Tls)?;
        let (status, seen) = watch::channel(Status::default());
        let node = Arc::new(Node {
            name,
            instance: random,
            client,
            answers: QueryHandler::of(Arc::clone(&engine), self.store.clone()),
            store: self.store,
            process: Process {
                started_at_ms: engine.clock().wall() / 1_000_000,
                observed_one_in: ONE_IN.get(),
                ..self.process
            },
            errors: self.errors,
            engine,
            last_good,
            status,
        });
        let has = {
            let node = Arc::clone(&node);
            spawn_blocking(move || node.begin()).await.unwrap_or_default()
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&node).report());
        tasks.spawn(Arc::clone(&node).follow_wall_time());
        tasks.spawn(Arc::clone(&node).follow(has));
        Ok(AgentHandle { node, status: seen, tasks })
    }
}

impl AgentHandle {
    /// Under which the admin server knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.node.name
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

    /// Ends, and says so to the admin server, which raises no alert then. Waits two seconds for that at the most.
    pub async fn leave(mut self) {
        // First, so that it does not connect again.
        self.tasks.shutdown().await;
        self.node.say_goodbye().await;
    }
}

/// The name that was kept in the folder, or a new one, which is kept there; also where what is kept is none.
fn kept_name(folder: &Path, suffix: &str) -> io::Result<String> {
    match fs::read_to_string(folder.join(NAME_FILE)) {
        Ok(name) if wire::is_name(name.trim()) => return Ok(name.trim().to_owned()),
        Err(error) if ![io::ErrorKind::NotFound, io::ErrorKind::InvalidData].contains(&error.kind()) => {
            return Err(error);
        }
        Ok(_) | Err(_) => {}
    }
    let name = new_name(suffix);
    replace(folder, NAME_FILE, format_args!("{name}\n"))?;
    Ok(name)
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_name_is_kept_and_what_is_none_makes_a_new_one() {
        let folder = TempDir::new().expect("a folder");
        let name = kept_name(folder.path(), "1").expect("it is made");
        assert!(wire::is_name(&name) && name.ends_with("-1"), "{name}");
        assert_eq!(kept_name(folder.path(), "2").expect("it is kept"), name);
        for none in [&b""[..], b"\n", b"a b", &[0xff]] {
            fs::write(folder.path().join(NAME_FILE), none).expect("written");
            let name = kept_name(folder.path(), "3").expect("it is made");
            assert!(name.ends_with("-3"), "{name}");
            assert_eq!(kept_name(folder.path(), "4").expect("it is kept"), name);
        }
    }
}
