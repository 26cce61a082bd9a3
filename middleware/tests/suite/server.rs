//! A Tidegate server in a process of its own, which can be stopped and paused, and a proxy that delays its answers.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tidegate_net::tls::{Tls, TlsFiles};
use tidegate_service::{
    Decider, ListenerSettings, Listeners,
    http::{Authorize, Http},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{self, TcpStream},
    time,
};

use crate::support::engine;

/// The text before the address in the line that the server prints.
const LISTENS: &str = "listens on ";

/// The server's process: this test, run by [`Server::start`]. It ends with its standard input.
#[test]
#[ignore = "a process of other tests"]
fn serves() {
    let mut line = String::new();
    if io::stdin().read_line(&mut line).expect("a line") == 0 {
        return;
    }
    let mut words = line.split_whitespace();
    let port: u16 = words.next().expect("a line").parse().expect("a port");
    let tls = words.next().map(|folder| Tls::open(files(Path::new(folder))).expect("they are good"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
    let address = listener.local_addr().expect("bound");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let decider = Arc::new(Decider::new(engine("")).expect("random numbers"));
        let settings = ListenerSettings { tls, ..ListenerSettings::default() };
        let http = Http { listener, authorize: Authorize::default() };
        let server = Listeners::new(decider, settings, http).serve().expect("it serves");
        let handle = server.handle();
        let running = tokio::spawn(server);
        writeln!(io::stdout(), "{LISTENS}{address}").expect("the test reads");
        let ended = tokio::task::spawn_blocking(|| io::stdin().read_line(&mut String::new()));
        ended.await.expect("no panic").expect("a line or the end");
        handle.drain(Duration::ZERO).await;
        running.await.expect("no panic").expect("it ends");
    });
}

/// Returns the files of a certificate in a folder, and of the authorities of the clients' certificates.
pub(crate) fn files(folder: &Path) -> TlsFiles {
    let [certificate, key, clients] = ["cert.pem", "key.pem", "clients.pem"].map(|name| folder.join(name));
    TlsFiles { certificate, key, clients: Some(clients) }
}

/// A server that ends with the test.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_at(0)
    }

    /// Starts a server at this port of loopback; 0 takes a free one.
    pub(crate) fn start_at(port: u16) -> Self {
        Self::with_arguments(&port.to_string())
    }

    /// Starts a server with TLS by the [`files`] of this folder.
    pub(crate) fn start_with_tls(folder: &Path) -> Self {
        Self::with_arguments(&format!("0 {}", folder.display()))
    }

    fn with_arguments(line: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "server::serves", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        writeln!(process.stdin.as_mut().expect("piped"), "{line}").expect("it reads");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
        let address = lines.find_map(|line| Some(line.split_once(LISTENS)?.1.parse().expect("an address")));
        Self { process, address: address.expect("it says where it listens") }
    }

    /// Pauses all threads of the server.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let stopped = waitpid(Some(Pid::from_child(&self.process)), WaitOptions::UNTRACED).expect("it runs");
        assert!(stopped.is_some_and(|(_, status)| status.stopped()), "{stopped:?}");
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }

    /// Kills the server, as a crash does.
    pub(crate) fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A proxy to a server that delays each answer.
pub(crate) struct DelayProxy {
    pub(crate) address: SocketAddr,
    delay_ms: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    answers: Arc<AtomicU64>,
}

impl DelayProxy {
    /// Starts a proxy that runs as long as the runtime of the test.
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let proxy = Self { address, delay_ms: Arc::default(), connections: Arc::default(), answers: Arc::default() };
        let (delay_ms, connections) = (Arc::clone(&proxy.delay_ms), Arc::clone(&proxy.connections));
        let answers = Arc::clone(&proxy.answers);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(carry(client, server, Arc::clone(&delay_ms), Arc::clone(&answers)));
            }
        });
        proxy
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns the number of connections through the proxy.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of answers that the proxy has carried.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }
}

async fn carry(
    client: TcpStream,
    server: SocketAddr,
    delay_ms: Arc<AtomicU64>,
    answered_count: Arc<AtomicU64>,
) -> io::Result<()> {
    let (mut requests, mut responses) = client.into_split();
    let (mut from_server, mut to_server) = TcpStream::connect(server).await?.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut requests, &mut to_server).await });
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let count = from_server.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        time::sleep(Duration::from_millis(delay_ms.load(Ordering::Relaxed))).await;
        responses.write_all(&bytes[..count]).await?;
        // The server writes each answer in one piece.
        answered_count.fetch_add(1, Ordering::Relaxed);
    }
}
