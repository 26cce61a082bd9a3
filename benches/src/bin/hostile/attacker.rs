//! The hostile caller: its attacks, and the threads that repeat them.

use std::{
    hint,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use prost::Message;
use serde_json::json;
use tidegate_benches::http2;
use tidegate_service::grpc::proto::tidegate::v1::BatchRateLimitRequest;
use tokio::{net::TcpSocket, runtime::Runtime};

use crate::{
    requests::{check_of, grpc_check, post},
    target::Target,
};

/// The address of the hostile caller.
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The number of threads of the hostile caller.
pub(crate) const ATTACKERS: usize = 8;
/// The number of connections of a thread whose attack uses many: together nearly all that one address may have.
const CONNECTIONS: usize = 150;
/// The time for which connections are held, and the timeout of a read or write.
const HELD: Duration = Duration::from_millis(500);

/// An action that each thread of the hostile caller repeats. It fails if the server closes a connection or does not answer.
pub(crate) type Attack = fn(&Attacker) -> io::Result<()>;

/// All attacks with their names, after the rows without an attack and with the control.
pub(crate) const SIDES: [(&str, Option<Attack>); 18] = [
    ("alone", None),
    ("busy loops", Some(compute)),
    ("bodies that do not end", Some(Attacker::begin_bodies)),
    ("connections that say nothing", Some(Attacker::hold_connections)),
    ("connections that end at once", Some(Attacker::open_and_close)),
    ("batches whose answers are not read", Some(Attacker::read_nothing)),
    ("new users without end", Some(Attacker::bring_users)),
    ("new keys of CL.THROTTLE without end", Some(Attacker::bring_keys)),
    ("scrapes of the metrics", Some(Attacker::scrape)),
    ("batches of 64 on 1,200 connections", Some(Attacker::flood_batches)),
    ("100 commands on 1,200 connections", Some(Attacker::flood_commands)),
    ("store: batches of 1,000 new users", Some(Attacker::bring_shared_users)),
    ("store: batches of 64 on 1,200 conn.", Some(Attacker::flood_shared_batches)),
    ("gRPC: batches that are not read", Some(Attacker::read_nothing_over_grpc)),
    ("gRPC: batches of 64 on 1,200 conn.", Some(Attacker::flood_calls)),
    ("admin: wrong passwords", Some(Attacker::guess_passwords)),
    ("admin: bodies that do not end", Some(Attacker::begin_sign_ins)),
    ("admin: a viewer's reads on 1,200 conn.", Some(Attacker::flood_reads)),
];

/// Computes and sends no request to the server: the control.
#[expect(clippy::unnecessary_wraps, reason = "the signature of an attack")]
fn compute(_: &Attacker) -> io::Result<()> {
    (0..1_000_000).for_each(|number| {
        hint::black_box(number);
    });
    Ok(())
}

/// A thread of the hostile caller.
pub(crate) struct Attacker {
    pub(crate) target: Arc<Target>,
    pub(crate) runtime: Runtime,
}

impl Attacker {
    /// Sends a tenth of a body of 1 MiB on many connections.
    fn begin_bodies(&self) -> io::Result<()> {
        let head = post("/v1/check", &" ".repeat(1 << 20));
        self.hold(self.target.http, 20, &head[..100 << 10])
    }

    fn hold_connections(&self) -> io::Result<()> {
        self.hold(self.target.resp, CONNECTIONS, b"")
    }

    fn open_and_close(&self) -> io::Result<()> {
        self.connect(self.target.http).map(drop)
    }

    fn read_nothing(&self) -> io::Result<()> {
        self.hold(self.target.http, 1, &post("/v1/check/batch", &self.batch(10_000)))
    }

    fn bring_users(&self) -> io::Result<()> {
        self.exchange(self.target.http, &post("/v1/check/batch", &self.batch(1_000)))
    }

    fn bring_shared_users(&self) -> io::Result<()> {
        self.exchange(self.target.http, &post("/v1/check/batch", &self.batch_of("member", 1_000)))
    }

    fn bring_keys(&self) -> io::Result<()> {
        let key = |number| format!("CL.THROTTLE key-{number} 0 1 31536000\r\n");
        self.exchange(self.target.resp, self.target.new_numbers(1_000).map(key).collect::<String>().as_bytes())
    }

    fn scrape(&self) -> io::Result<()> {
        self.exchange(self.target.http, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    }

    fn flood_batches(&self) -> io::Result<()> {
        let batch = post("/v1/check/batch", &self.batch(64));
        self.flood(self.target.http, |_| batch.clone())
    }

    fn flood_shared_batches(&self) -> io::Result<()> {
        let batch = post("/v1/check/batch", &self.batch_of("member", 64));
        self.flood(self.target.http, |_| batch.clone())
    }

    fn flood_reads(&self) -> io::Result<()> {
        self.flood(self.target.admin, |_| self.target.hostile_read.clone())
    }

    fn flood_commands(&self) -> io::Result<()> {
        let commands = "CL.THROTTLE hostile 99 1000000 1\r\n".repeat(100).into_bytes();
        self.flood(self.target.resp, |_| commands.clone())
    }

    /// Sends a batch of 1,000 users on each of three streams, with no window for the responses.
    fn read_nothing_over_grpc(&self) -> io::Result<()> {
        let mut bytes = http2::preface(0);
        for stream in [1, 3, 5] {
            http2::append_request(&mut bytes, stream, &self.grpc_batch(1_000));
        }
        self.hold(self.target.grpc, 20, &bytes)
    }

    fn flood_calls(&self) -> io::Result<()> {
        let batch = self.grpc_batch(64);
        self.flood(self.target.grpc, |time| {
            let mut bytes = if time == 0 { http2::preface(1 << 20) } else { Vec::new() };
            http2::append_request(&mut bytes, 2 * time + 1, &batch);
            bytes
        })
    }

    /// Signs in with another name on each connection. The server rejects most attempts, because the address has made too many.
    fn guess_passwords(&self) -> io::Result<()> {
        let name = self.target.new_numbers(1).start;
        let body = json!({ "name": format!("user-{name}"), "password": "correct horse" }).to_string();
        self.exchange(self.target.admin, &post("/api/v1/session", &body))
    }

    /// Sends all but the end of the longest body that the server accepts without a session.
    fn begin_sign_ins(&self) -> io::Result<()> {
        let sign_in = post("/api/v1/session", &" ".repeat(8 << 10));
        self.hold(self.target.admin, CONNECTIONS, &sign_in[..sign_in.len() - 1])
    }

    fn grpc_batch(&self, checks: u64) -> Vec<u8> {
        let requests = self.target.new_numbers(checks).map(|number| grpc_check(&format!("new-{number}"))).collect();
        let message = BatchRateLimitRequest { requests }.encode_to_vec();
        http2::request("/tidegate.v1.RateLimiter/CheckRateLimitBatch", &message)
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let stream = self.runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((HOSTILE, 0).into())?;
            socket.connect(to).await?.into_std()
        })?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(HELD))?;
        stream.set_write_timeout(Some(HELD))?;
        Ok(stream)
    }

    /// Opens connections, sends `bytes` on each, and holds them for a while. The server may close them earlier.
    fn hold(&self, to: SocketAddr, count: usize, bytes: &[u8]) -> io::Result<()> {
        let mut held = Vec::new();
        for _ in 0..count {
            let mut stream = self.connect(to)?;
            if stream.write_all(bytes).is_ok() {
                held.push(stream);
            }
        }
        thread::sleep(HELD);
        Ok(())
    }

    /// Sends `bytes(0)` to `bytes(19)` on many connections at once, and reads the answers that have arrived.
    fn flood(&self, to: SocketAddr, bytes: impl Fn(u32) -> Vec<u8>) -> io::Result<()> {
        let mut streams = (0..CONNECTIONS).map(|_| self.connect(to)).collect::<io::Result<Vec<_>>>()?;
        let mut buffer = vec![0; 64 << 10];
        for time in 0..20 {
            let bytes = bytes(time);
            for stream in &mut streams {
                stream.write_all(&bytes)?;
            }
            for stream in &mut streams {
                if stream.read(&mut buffer)? == 0 || self.target.is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Sends `bytes` ten times on one connection, and reads the first part of each answer.
    fn exchange(&self, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        let (mut stream, mut buffer) = (self.connect(to)?, vec![0; 1 << 20]);
        for _ in 0..10 {
            stream.write_all(bytes)?;
            if stream.read(&mut buffer)? == 0 || self.target.is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn batch(&self, checks: u64) -> String {
        self.batch_of("user", checks)
    }

    fn batch_of(&self, kind: &str, checks: u64) -> String {
        let check = |number| check_of(kind, &format!("new-{number}"));
        let checks: Vec<String> = self.target.new_numbers(checks).map(check).collect();
        format!(r#"{{"checks":[{}]}}"#, checks.join(","))
    }
}
