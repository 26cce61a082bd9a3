//! A master, its replica, and three Sentinels that promote the replica when the master is gone.

use std::{
    fs,
    process::{Child, Stdio},
};

use redis::cmd;
use tempfile::TempDir;

use crate::{
    certificate::{Authority, CertificateFiles},
    port::ReservedPort,
    process,
    redis::{Redis, program, tls_settings},
    wait_for,
};

/// The name of the master.
const MASTER: &str = "limits";

/// The ports with TLS, if there are any: those of the servers, and those of the Sentinels.
#[derive(Debug)]
struct TlsPorts {
    files: CertificateFiles,
    servers: Vec<ReservedPort>,
    sentinels: Vec<ReservedPort>,
}

/// A master with one replica, and the Sentinels that look after them.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Redis>,
    watchers: Vec<Redis>,
    tls: Option<TlsPorts>,
}

impl Sentinels {
    /// Starts servers and Sentinels that take a master for gone that is silent for two seconds.
    ///
    /// # Panics
    ///
    /// There is no such program, or they do not come up.
    #[must_use]
    pub fn start() -> Self {
        Self::with(None)
    }

    /// Starts servers and Sentinels that speak TLS with each other and with clients, with certificates of this authority. The
    /// user `node` of the servers has the password `of-servers`, and the user `asker` of the Sentinels `of-sentinels`.
    ///
    /// # Panics
    ///
    /// There is no such program, or they do not come up.
    #[must_use]
    pub fn with_tls(authority: &Authority) -> Self {
        let ports = |count| (0..count).map(|_| ReservedPort::new()).collect();
        Self::with(Some(TlsPorts { files: CertificateFiles::of(authority), servers: ports(2), sentinels: ports(3) }))
    }

    fn with(tls: Option<TlsPorts>) -> Self {
        let start = |place: usize| {
            let mut settings = Vec::new();
            if let Some(tls) = &tls {
                settings.extend(tls_settings(&tls.files, tls.servers[place].port()));
                settings.extend(["--tls-replication", "yes", "--tls-auth-clients", "no"].map(str::to_owned));
                settings.extend(["--user", "node", "on", ">of-servers", "~*", "+@all"].map(str::to_owned));
            }
            Redis::try_start(ReservedPort::new, &settings)
        };
        let servers: Vec<_> = (0..2).map(start).collect();
        let port = |place: usize| tls.as_ref().map_or(servers[place].port(), |tls| tls.servers[place].port());
        servers[1].replicate_port(&servers[0], port(0));
        let monitor = [
            format!("sentinel monitor {MASTER} 127.0.0.1 {} 2", port(0)),
            format!("sentinel down-after-milliseconds {MASTER} 2000"),
            format!("sentinel failover-timeout {MASTER} 3000"),
        ];
        let start = |place: usize| {
            let mut lines = monitor.to_vec();
            if let Some(tls) = &tls {
                let settings = tls_settings(&tls.files, tls.sentinels[place].port());
                let pairs = settings.chunks(2).map(|pair| format!("{} {}", pair[0].trim_start_matches('-'), pair[1]));
                lines.splice(0..0, pairs);
                lines.extend(["tls-replication yes", "tls-auth-clients no"].map(str::to_owned));
                lines.push("user asker on >of-sentinels ~* +@all".to_owned());
            }
            Redis::try_start_by(run, ReservedPort::new, &lines)
        };
        let watchers = (0..3).map(start).collect();
        let started = Self { servers, watchers, tls };
        wait_for("each Sentinel knows the replica and the others", || started.know_all());
        started
    }

    /// Returns whether each Sentinel knows the replica and the two others; `None`: not yet.
    fn know_all(&self) -> Option<()> {
        let know = |sentinel: &Redis| {
            let facts = sentinel.facts("sentinel")?;
            let line = facts.get("master0")?;
            (line.contains("status=ok") && line.contains("slaves=1,sentinels=3")).then_some(())
        };
        self.watchers.iter().all(|sentinel| know(sentinel).is_some()).then_some(())
    }

    /// Returns the addresses of the Sentinels, with the master's name.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        let Some(tls) = &self.tls else {
            let url = |sentinel: &Redis| format!("redis-sentinel://{}/{MASTER}", sentinel.address());
            return self.watchers.iter().map(url).collect();
        };
        let of = "sentinel_user=asker&sentinel_password=of-sentinels";
        let url = |port: &ReservedPort| format!("rediss-sentinel://node:of-servers@{}/{MASTER}/2?{of}", port.address());
        tls.sentinels.iter().map(url).collect()
    }

    /// Returns the server of this index.
    #[must_use]
    pub fn server(&self, place: usize) -> &Redis {
        &self.servers[place]
    }

    /// Returns the index of the server that all Sentinels name as master, once it says so itself.
    #[must_use]
    pub fn master(&self) -> usize {
        wait_for("all Sentinels name a master that is one", || {
            let named = self.watchers.iter().map(|sentinel| self.named_by(sentinel));
            let named = named.collect::<Option<Vec<_>>>()?;
            let role = self.servers[named[0]].facts("replication")?.remove("role");
            (role.as_deref() == Some("master") && named.iter().all(|place| *place == named[0])).then_some(named[0])
        })
    }

    fn named_by(&self, sentinel: &Redis) -> Option<usize> {
        let question = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(MASTER).to_owned();
        let (_, port): (String, u16) = sentinel.ask(&question).ok()?;
        let is_named = |place: &usize| match &self.tls {
            Some(tls) => tls.servers[*place].port() == port,
            None => self.servers[*place].port() == port,
        };
        (0..self.servers.len()).find(is_named)
    }

    /// Has the Sentinels promote the replica while the master lives.
    ///
    /// # Panics
    ///
    /// The Sentinel does not answer, or sees no replica to promote.
    pub fn fail_over(&self) {
        self.watchers[0].ask::<()>(cmd("SENTINEL").arg("FAILOVER").arg(MASTER)).expect("a replica");
    }

    /// Has the Sentinels look after the master by a second name.
    ///
    /// # Panics
    ///
    /// A Sentinel does not answer.
    pub fn name_master(&self, name: &str) {
        let port = self.servers[self.master()].port();
        for sentinel in &self.watchers {
            let monitor = cmd("SENTINEL").arg("MONITOR").arg(name).arg("127.0.0.1").arg(port).arg(2).to_owned();
            sentinel.ask::<()>(&monitor).expect("it answers");
        }
    }

    /// Waits until the replica has all that was written before; while both live.
    pub fn wait_for_replicas(&self) {
        let master = self.master();
        self.servers[master].wait_for_replica(&self.servers[1 - master]);
    }

    /// Cuts the replica off its master, for ever. Returns the index of the master.
    #[must_use]
    pub fn cut_off(&self) -> usize {
        let master = self.master();
        self.servers[master].cut_off(&self.servers[1 - master]);
        master
    }

    /// Ends the server of this index at once.
    pub fn kill(&mut self, place: usize) {
        self.servers[place].kill();
    }
}

/// Runs a Sentinel. It keeps what it learns in its file.
fn run(port: &ReservedPort, folder: &TempDir, lines: &[String]) -> Child {
    let file = folder.path().join("sentinel.conf");
    let head = format!("port {}\nbind 127.0.0.1\ndaemonize no\ndir {}\n", port.port(), folder.path().display());
    fs::write(&file, head + &lines.join("\n") + "\n").expect("room for a file");
    let mut command = process::command(program());
    command.arg(file).arg("--sentinel").stdout(Stdio::null());
    process::spawn(command)
}
