//! A Redis or Valkey server that a test starts, kills and pauses.

use std::{
    collections::HashMap,
    env,
    ffi::OsString,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use redis::{Client, Cmd, Connection, FromRedisValue, RedisResult, cmd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

use crate::{
    certificate::{Authority, CertificateFiles},
    port::ReservedPort,
    process, wait_for,
};

/// The limit for one answer of a server. One that is alive is asked again where that matters.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A server on loopback that keeps nothing on disk. It ends with the test, also with one that panics, and its port stays
/// reserved while it is down.
///
/// The environment variable `TIDEGATE_TESTED_STORE` names its program, such as a `valkey-server`; without it that is
/// `redis-server`.
#[derive(Debug)]
pub struct Redis {
    port: ReservedPort,
    settings: Vec<String>,
    folder: TempDir,
    run: ServerStarter,
    process: Child,
}

/// Starts a process that listens at a port, with its files in a folder, by its settings.
pub(crate) type ServerStarter = fn(&ReservedPort, &TempDir, &[String]) -> Child;

impl Redis {
    /// Starts a server, and waits until it answers.
    ///
    /// # Panics
    ///
    /// There is no such program, or it does not come up.
    #[must_use]
    pub fn start() -> Self {
        Self::try_start(ReservedPort::new, &[])
    }

    /// Starts a server with more arguments, and waits until it answers.
    ///
    /// # Panics
    ///
    /// There is no such program, or it does not come up.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        let settings: Vec<_> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Self::try_start(ReservedPort::new, &settings)
    }

    /// Starts a server with more arguments, at a port that `reserve` returns.
    pub(crate) fn try_start(reserve: impl Fn() -> ReservedPort, settings: &[String]) -> Self {
        Self::try_start_by(run, reserve, settings)
    }

    /// Starts a process that answers as a server does, such as a Sentinel.
    pub(crate) fn try_start_by(run: ServerStarter, reserve: impl Fn() -> ReservedPort, settings: &[String]) -> Self {
        let started = (0..20).find_map(|_| {
            let (port, folder) = (reserve(), TempDir::new().expect("a folder"));
            let process = run(&port, &folder, settings);
            let mut redis = Self { port, settings: settings.to_vec(), folder, run, process };
            redis.comes_up().then_some(redis)
        });
        started.expect("one of 20 servers that does not end as soon as it is started")
    }

    /// Waits until it answers. Returns false if it ended: another program took its port.
    fn comes_up(&mut self) -> bool {
        wait_for("the server answers", || {
            let process_id = self.process.id().to_string();
            let is_up = self.facts("server").is_some_and(|facts| facts["process_id"] == process_id);
            let has_ended = self.process.try_wait().expect("it is ours").is_some();
            (is_up || has_ended).then_some(is_up)
        })
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns where it listens, as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.port()
    }

    /// Opens a connection that waits for answers with a limit.
    ///
    /// # Errors
    ///
    /// It does not listen.
    pub fn connect(&self) -> RedisResult<Connection> {
        let connection = Client::open(self.url())?.get_connection_with_timeout(ANSWER_WITHIN)?;
        connection.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(connection)
    }

    /// Runs a command over a connection of its own.
    ///
    /// # Errors
    ///
    /// It does not answer, or not so.
    pub fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        command.query(&mut self.connect()?)
    }

    /// Returns a section of `INFO` by name; `None` if it does not answer.
    pub(crate) fn facts(&self, section: &str) -> Option<HashMap<String, String>> {
        let text: String = self.ask(cmd("INFO").arg(section)).ok()?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Some(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Returns all keys in their order but the epoch keys, which nodes write beside those of limits.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub fn keys(&self) -> RedisResult<Vec<String>> {
        let mut keys: Vec<String> = self.ask(cmd("KEYS").arg("*"))?;
        keys.retain(|key| !key.ends_with("}epoch"));
        keys.sort();
        Ok(keys)
    }

    /// Returns a field of a section of `INFO`.
    ///
    /// # Panics
    ///
    /// It does not answer, or has no such field.
    #[must_use]
    pub fn info(&self, section: &str, field: &str) -> String {
        self.facts(section).expect("it answers").remove(field).expect("such a field")
    }

    /// Returns how many connections were made since the start, with the one that asks.
    ///
    /// # Panics
    ///
    /// It does not answer.
    #[must_use]
    pub fn connections(&self) -> u64 {
        let facts = self.facts("stats").expect("it answers");
        facts["total_connections_received"].parse().expect("a number")
    }

    /// Returns how often each command was called since the start, by its name in small letters. What connections and this type
    /// call themselves (`client|setinfo`, `info`) is counted too.
    ///
    /// # Panics
    ///
    /// It does not answer.
    #[must_use]
    pub fn commands(&self) -> HashMap<String, u64> {
        let calls = |(name, value): (String, String)| {
            let name = name.strip_prefix("cmdstat_").expect("a command").to_owned();
            let calls = value.strip_prefix("calls=").and_then(|rest| rest.split(',').next()).expect("its calls");
            (name, calls.parse().expect("a number"))
        };
        self.facts("commandstats").expect("it answers").into_iter().map(calls).collect()
    }

    /// Returns how many scripts were run since the start.
    ///
    /// # Panics
    ///
    /// It does not answer.
    #[must_use]
    pub fn scripts(&self) -> u64 {
        let commands = self.commands();
        ["eval", "evalsha"].iter().filter_map(|name| commands.get(*name)).sum()
    }

    /// Makes this server a replica of `master`, and waits until it has all that the master has.
    ///
    /// # Panics
    ///
    /// One of both does not answer.
    pub fn replicate(&self, master: &Self) {
        self.replicate_port(master, master.port());
    }

    /// Makes this server a replica of `master` at a port of it.
    pub(crate) fn replicate_port(&self, master: &Self, port: u16) {
        // Replicas are served at once.
        let delay = "repl-diskless-sync-delay";
        master.ask::<()>(cmd("CONFIG").arg("SET").arg(delay).arg(0)).expect("it answers");
        self.ask::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(port)).expect("it answers");
        master.wait_for_replica(self);
    }

    /// Waits until `replica` has all that this server has.
    pub fn wait_for_replica(&self, replica: &Self) {
        wait_for("the replica has everything", || replica.is_in_sync(self)?.then_some(()));
    }

    /// Cuts `replica` off this master, for ever.
    pub(crate) fn cut_off(&self, replica: &Self) {
        // It cannot come back: the master knows no password.
        replica.ask::<()>(cmd("CONFIG").arg("SET").arg("masterauth").arg("wrong")).expect("it answers");
        self.ask::<()>(cmd("CLIENT").arg("KILL").arg("TYPE").arg("REPLICA")).expect("it answers");
        let is_cut =
            || replica.facts("replication")?.get("master_link_status").filter(|status| *status == "down").map(drop);
        wait_for("the replica is cut off", is_cut);
    }

    /// Makes this replica a master.
    ///
    /// # Panics
    ///
    /// It does not answer.
    pub fn promote(&self) {
        self.ask::<()>(cmd("REPLICAOF").arg("NO").arg("ONE")).expect("it answers");
    }

    /// Returns whether this replica has all that its master has; `None` if one of them does not answer.
    pub(crate) fn is_in_sync(&self, master: &Self) -> Option<bool> {
        let offset = |facts: &HashMap<_, String>| facts["master_repl_offset"].parse::<u64>().expect("a number");
        let written = offset(&master.facts("replication")?);
        let facts = self.facts("replication")?;
        Some(facts.get("master_link_status")? == "up" && offset(&facts) >= written)
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it on the same port, empty; after [`kill`](Self::kill).
    ///
    /// # Panics
    ///
    /// Another program took its port.
    pub fn start_again(&mut self) {
        self.process = (self.run)(&self.port, &self.folder, &self.settings);
        assert!(self.comes_up(), "its port is free");
    }

    /// Pauses it. When this returns, connections are still made, and nothing is answered.
    ///
    /// # Panics
    ///
    /// It does not run.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let stands = waitpid(Some(Pid::from_child(&self.process)), WaitOptions::UNTRACED).expect("it runs");
        assert!(stands.is_some_and(|(_, status)| status.stopped()), "{stands:?}");
    }

    /// Lets it go on: what was sent meanwhile is answered now.
    ///
    /// # Panics
    ///
    /// It does not run.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }
}

/// A server that listens with TLS, and at another port without it.
#[derive(Debug)]
pub struct TlsRedis {
    /// The server, as it listens without TLS.
    pub server: Redis,
    /// The certificate of the server, which serves as one of a client too.
    pub files: CertificateFiles,
    port: ReservedPort,
}

impl TlsRedis {
    /// Starts a server with a certificate of this authority.
    ///
    /// # Panics
    ///
    /// There is no such program, or it does not come up.
    #[must_use]
    pub fn start(authority: &Authority) -> Self {
        Self::with(authority, false)
    }

    /// Starts a server that asks its clients for a certificate of this authority too.
    ///
    /// # Panics
    ///
    /// There is no such program, or it does not come up.
    #[must_use]
    pub fn that_asks_for_certificates(authority: &Authority) -> Self {
        Self::with(authority, true)
    }

    fn with(authority: &Authority, asks: bool) -> Self {
        let (files, port) = (CertificateFiles::of(authority), ReservedPort::new());
        let mut settings = tls_settings(&files, port.port());
        settings.extend(["--tls-auth-clients", if asks { "yes" } else { "no" }].map(str::to_owned));
        Self { server: Redis::try_start(ReservedPort::new, &settings), files, port }
    }

    /// Returns where it listens with TLS, as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("rediss://{}", self.port.address())
    }
}

/// Returns the settings of a server, or of a Sentinel, that listens with TLS at this port.
pub(crate) fn tls_settings(files: &CertificateFiles, port: u16) -> Vec<String> {
    let file = |path: PathBuf| path.into_os_string().into_string().expect("UTF-8");
    let settings = [
        ("--tls-port", port.to_string()),
        ("--tls-ca-cert-file", file(files.authority())),
        ("--tls-cert-file", file(files.certificate())),
        ("--tls-key-file", file(files.key())),
    ];
    settings.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the program of a server.
pub(crate) fn program() -> OsString {
    env::var_os("TIDEGATE_TESTED_STORE").unwrap_or_else(|| "redis-server".into())
}

fn run(port: &ReservedPort, folder: &TempDir, settings: &[String]) -> Child {
    let mut command = process::command(program());
    command
        .args(["--bind", "127.0.0.1", "--port", &port.port().to_string(), "--daemonize", "no"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(folder.path())
        .args(settings)
        .stdout(Stdio::null());
    process::spawn(command)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Only the parent that started it counts: it is not stopped by the end of the test's own thread.
    #[test]
    fn a_server_outlives_the_thread_that_started_it() {
        let redis = std::thread::spawn(Redis::start).join().expect("no panic");
        assert_eq!(redis.ask(&cmd("PING")), Ok("PONG".to_owned()));
        let status = fs::read_to_string(format!("/proc/{}/comm", redis.process.id())).expect("it runs");
        assert!(!status.contains("setpriv"), "it is the server itself: {status}");
    }
}
