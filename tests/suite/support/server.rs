//! `Served`: a running server process on free ports.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use tempfile::NamedTempFile;
use tidegate_testkit::process;

use super::{SERVE, command};

/// A running `tidegate serve`. Killed when it is dropped.
pub(crate) struct Served {
    child: Child,
    /// The file with its standard error; `None` if the command redirects that.
    log: Option<NamedTempFile>,
    pub(crate) admin: String,
    pub(crate) checks: String,
    /// The address of the gRPC API, if there is one.
    pub(crate) grpc: Option<String>,
    /// The one-time link, while there is no administrator.
    pub(crate) sign_in: Option<String>,
}

impl Served {
    /// Starts a server on this data folder, and waits until it prints its addresses.
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    /// Starts a server on this data folder with more arguments.
    pub(crate) fn start_with(data: &Path, arguments: &[&str]) -> Self {
        Self::run(&SERVE, data, arguments)
    }

    /// Starts the command with these arguments on this data folder, and waits until it prints its addresses.
    pub(crate) fn run(serve: &[&str], data: &Path, arguments: &[&str]) -> Self {
        let mut command = command();
        let log = NamedTempFile::new().expect("a file");
        command.args(serve).arg("--data").arg(data).args(arguments).stderr(log.reopen().expect("it is there"));
        let mut served = Self::started(command);
        served.log = Some(log);
        served
    }

    /// Starts this command, and waits until it prints its addresses.
    pub(crate) fn started(mut command: Command) -> Self {
        command.stdout(Stdio::piped());
        let mut child = process::spawn(command);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
        let (mut admin, mut checks, mut grpc, mut sign_in) = (None, None, None, None);
        // This is the last line that it prints.
        for line in lines.by_ref().take_while(|line| line != "Ctrl+C stops.") {
            match line.split_once("  ").map(|(name, value)| (name, value.trim().to_owned())) {
                Some(("dashboard" | "follows", url)) => admin = Some(url),
                Some(("checks", url)) => checks = Some(url),
                Some(("grpc", url)) => grpc = Some(url),
                Some(("sign in", url)) => sign_in = Some(url),
                _ => {}
            }
        }
        // The server prints nothing more; a reader keeps it from blocking if it does.
        thread::spawn(move || lines.for_each(drop));
        let (admin, checks) = (admin.expect("it says where"), checks.expect("it says where"));
        Self { child, log: None, admin, checks, grpc, sign_in }
    }

    /// Returns whether its log has this text.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.count_logged(text) > 0
    }

    /// Returns how often its log has this text.
    pub(crate) fn count_logged(&self, text: &str) -> usize {
        let log = self.log.as_ref().expect("it is kept");
        fs::read_to_string(log).expect("text").matches(text).count()
    }

    /// Returns the code of the one-time link.
    pub(crate) fn code(&self) -> &str {
        let link = self.sign_in.as_deref().expect("no administrator yet");
        link.split_once("#code=").expect("a code").1
    }

    /// Kills the server at once, as the system does when memory runs out.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a server that got a signal has ended, and returns its exit status.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
