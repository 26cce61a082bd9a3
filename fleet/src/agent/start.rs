//! Starts the agent of an engine: its settings, its errors, and the handle of a running agent.

use std::{
    convert::Infallible,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use derive_more::{Display, Error};
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
        http_client::{AdminClient, NodeToken},
        last_good::{LastGood, replace},
        node::Node,
        process::ErrorCounts,
        query_handler::QueryHandler,
        status::AgentStatus,
    },
    counts::sampler::SAMPLED_ONE_IN,
    store::SharedEngine,
    wire::{self, Process},
};

/// The file of the name that a node chose for itself.
const NAME_FILE: &str = "node";

/// The most bytes of the machine's name in a chosen name.
const MACHINE_BYTES: usize = 48;

/// The settings of an agent, which keeps an engine on the policy of an admin server. [`start`](Self::start) starts it.
#[derive(Clone, Debug)]
pub struct Agent {
    url: String,
    token: NodeToken,
    name: Option<String>,
    folder: Option<PathBuf>,
    trusted: Option<Vec<u8>>,
    store: Option<Arc<SharedEngine<SystemClock>>>,
    process: Process,
    errors: ErrorCounts,
}

/// A running agent. It stops when this is dropped; the engine then keeps its policy. A process that stops on purpose
/// calls [`leave`](Self::leave): otherwise the admin server raises an alert for a dead node.
#[derive(Debug)]
pub struct AgentHandle {
    node: Arc<Node>,
    status: watch::Receiver<AgentStatus>,
    // Dropping the set aborts the tasks.
    tasks: JoinSet<Infallible>,
}

/// The reason why an agent cannot start. An admin server that cannot be reached is no such reason.
#[derive(Debug, Display, Error)]
#[non_exhaustive]
pub enum AgentStartError {
    /// The URL of the admin server is invalid.
    #[display("`{_0}` is no address; write http:// or https:// and where the admin server is")]
    Url(#[error(not(source))] String),
    /// The name is invalid.
    #[display(
        "`{_0}` is no name of a node; write letters, digits, `.`, `_` and `-`, {max} at most",
        max = wire::NAME_BYTES_MAX
    )]
    Name(#[error(not(source))] String),
    /// The folder cannot be used.
    #[display("the folder {} cannot be used: {why}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[error(source)]
        why: io::Error,
    },
    /// The token cannot be read.
    #[display("the token cannot be read: {_0}")]
    Token(io::Error),
    /// TLS cannot be set up.
    #[display("TLS cannot be set up: {_0}")]
    Tls(#[error(not(source))] String),
    /// The system has no random numbers.
    #[display("the system gives no random numbers: {_0}")]
    Random(#[error(not(source))] String),
}

impl Agent {
    /// Makes the settings of an agent for the admin server at this URL, such as `https://admin.example:8080`. The token
    /// needs the scope `node`.
    #[must_use]
    pub fn new(admin_url: &str, token: NodeToken) -> Self {
        let url = admin_url.trim_end_matches('/').to_owned();
        let (process, errors) = (Process::default(), ErrorCounts::default());
        Self { url, token, name: None, folder: None, trusted: None, store: None, process, errors }
    }

    /// Sets the name of the node, which no other node may have. Unless set, the node chooses the machine's name with a
    /// random end, and keeps it in the folder.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Sets the folder of the last good policy, with which the node starts when it cannot reach the admin server. The
    /// folder is created if it is absent.
    #[must_use]
    pub fn keeping_in(self, folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), ..self }
    }

    /// Adds authorities to trust besides those of the system, PEM.
    #[must_use]
    pub fn trusting(self, certificates: impl Into<Vec<u8>>) -> Self {
        Self { trusted: Some(certificates.into()), ..self }
    }

    /// Sets the description of the process that reports carry, and the source of its error counts. The agent adds the
    /// start time and the sampling rate itself.
    #[must_use]
    pub fn running_as(self, process: Process, errors: ErrorCounts) -> Self {
        Self { process: process.bounded(), errors, ..self }
    }

    /// Sets the store through which the engine shares limits.
    #[must_use]
    pub fn sharing_through(self, store: Option<Arc<SharedEngine<SystemClock>>>) -> Self {
        Self { store, ..self }
    }

    /// Starts the agent: puts the last good policy in force, if there is one, and connects in the background, on this
    /// runtime.
    ///
    /// # Errors
    ///
    /// A setting is wrong, or the folder, the token or TLS cannot be used. An admin server that cannot be reached, or
    /// refuses, is no error: the agent keeps trying, and [`AgentHandle::status`] says so.
    pub async fn start(self, engine: Arc<Engine>) -> Result<AgentHandle, AgentStartError> {
        if !["http://", "https://"].iter().any(|scheme| self.url.len() > scheme.len() && self.url.starts_with(scheme)) {
            return Err(AgentStartError::Url(self.url));
        }
        self.token.read().map_err(AgentStartError::Token)?;
        let random = getrandom::u64().map_err(|error| AgentStartError::Random(error.to_string()))?;
        let instance = format!("{random:016x}");
        let suffix = &instance[..4];
        let folder_error = |why| AgentStartError::Folder { path: self.folder.clone().unwrap_or_default(), why };
        let last_good = self.folder.as_deref().map(LastGood::in_folder).transpose().map_err(folder_error)?;
        let name = match (self.name, &self.folder) {
            (Some(name), _) => name,
            (None, Some(folder)) => stored_name(folder, suffix).map_err(folder_error)?,
            (None, None) => new_name(suffix),
        };
        if !wire::is_name(&name) {
            return Err(AgentStartError::Name(name));
        }
        let client = AdminClient::to(&self.url, self.token, self.trusted.as_deref()).map_err(AgentStartError::Tls)?;
        let (status, status_receiver) = watch::channel(AgentStatus::default());
        let node = Arc::new(Node {
            name,
            instance,
            client,
            queries: QueryHandler::of(Arc::clone(&engine), self.store.clone()),
            store: self.store,
            process: Process {
                started_at_ms: engine.clock().wall().as_nanos() / 1_000_000,
                observed_one_in: SAMPLED_ONE_IN.get(),
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
        Ok(AgentHandle { node, status: status_receiver, tasks })
    }
}

impl AgentHandle {
    /// Returns the name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Returns the status of the agent.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.status.borrow().clone()
    }

    /// Waits until a policy is in force.
    pub async fn has_policy(&self) {
        // The sender lives as long as the tasks, which live as long as this handle.
        let _ = self.status.clone().wait_for(|status| status.version > 0).await;
    }

    /// Returns a receiver of the status as it changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<AgentStatus> {
        self.status.clone()
    }

    /// Stops the agent, and tells the admin server, which then raises no alert. Takes at most two seconds.
    pub async fn leave(mut self) {
        // The tasks end first, so that the agent does not connect again.
        self.tasks.shutdown().await;
        self.node.say_goodbye().await;
    }
}

/// Returns the name that is kept in the folder. If there is none, or an invalid one, chooses a new name and keeps it.
fn stored_name(folder: &Path, suffix: &str) -> io::Result<String> {
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

/// Chooses a name: the machine's name, with `-` for what a node's name cannot have, and a random end.
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_name_is_kept_and_an_invalid_one_is_replaced() {
        let folder = TempDir::new().expect("a folder");
        let name = stored_name(folder.path(), "1").expect("it is made");
        assert!(wire::is_name(&name) && name.ends_with("-1"), "{name}");
        assert_eq!(stored_name(folder.path(), "2").expect("it is kept"), name);
        for none in [&b""[..], b"\n", b"a b", &[0xff]] {
            fs::write(folder.path().join(NAME_FILE), none).expect("written");
            let name = stored_name(folder.path(), "3").expect("it is made");
            assert!(name.ends_with("-3"), "{name}");
            assert_eq!(stored_name(folder.path(), "4").expect("it is kept"), name);
        }
    }
}
