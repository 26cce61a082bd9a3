//! A server process with an HTTP listener, and a client that can send requests that no library would.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::{Deref, DerefMut},
    time::Duration,
};

use serde_json::{Value, json};
use tidegate_middleware::{
    address::{AddressReader, parse_network},
    extract::{Extractor, Extractors},
};
use tidegate_service::{ListenerSettings, http::Authorize};
use tidegate_testkit::PATIENCE;

use crate::process::Process;
pub(crate) use crate::process::START;

/// Returns settings for proxies: these identities, from proxies at these addresses.
pub(crate) fn authorize(identities: &[&str], trusted: &[&str]) -> Authorize {
    let trusted = trusted.iter().map(|network| parse_network(network).expect("a network"));
    let identities = identities.iter().map(|identity| identity.parse::<Extractor>().expect("a kind and a source"));
    Authorize::new(Extractors::new(identities, AddressReader::default().trusting(trusted)).expect("each once"))
}

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Process,
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Server {
    /// Starts a server with this policy in TOML.
    pub(crate) fn with(policy: &str) -> Self {
        let server = Self::without_policy();
        server.publish(policy);
        server
    }

    /// Starts a server with this policy and these settings for proxies.
    pub(crate) fn asked_by_proxies(policy: &str, authorize: Authorize) -> Self {
        let server = Self::started(authorize, ListenerSettings::default());
        server.publish(policy);
        server
    }

    pub(crate) fn without_policy() -> Self {
        Self::listening(ListenerSettings::default())
    }

    /// Starts a server without a policy, with these settings.
    pub(crate) fn listening(settings: ListenerSettings) -> Self {
        Self::started(authorize(&["ip=address"], &["127.0.0.1"]), settings)
    }

    fn started(authorize: Authorize, settings: ListenerSettings) -> Self {
        let process = Process::start(settings, authorize, |doors, _| doors);
        Self { address: process.http, process }
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::to(self.address)
    }

    /// Returns what is left of the only limit of `user`, by a denied check that charges nothing.
    pub(crate) fn remaining(&self, user: &str) -> Value {
        let cost = (1_u64 << 53) - 1;
        let body = json!({"identities": [{"kind": "user", "value": user}], "cost": cost});
        self.check(&body.to_string()).json()["remaining"].clone()
    }

    /// Checks on a new connection.
    pub(crate) fn check(&self, body: &str) -> HttpReply {
        self.connect().post("/v1/check", body)
    }

    pub(crate) fn get(&self, path: &str) -> HttpReply {
        self.connect().send(format!("GET {path} HTTP/1.1\r\nHost: tidegate\r\n\r\n"))
    }

    /// Stops the server as the binary would, and returns its result.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.drain(Duration::ZERO);
        self.ended()
    }
}

/// A connection on which a test writes any bytes.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server listens"))
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(2 * PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(2 * PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Returns another end to write to.
    pub(crate) fn writer(&self) -> TcpStream {
        self.stream.get_ref().try_clone().expect("a socket")
    }

    pub(crate) fn send(&mut self, request: impl AsRef<[u8]>) -> HttpReply {
        self.write(request);
        self.answer()
    }

    /// Posts JSON.
    pub(crate) fn post(&mut self, path: &str, body: impl AsRef<[u8]>) -> HttpReply {
        self.send(request(path, "Content-Type: application/json\r\n", body))
    }

    /// Reads one response, and leaves the next in place.
    pub(crate) fn answer(&mut self) -> HttpReply {
        self.answer_or_end().expect("an answer, not a reset")
    }

    /// Sends a request. Returns an error where the connection has ended instead.
    pub(crate) fn send_or_end(&mut self, request: impl AsRef<[u8]>) -> io::Result<HttpReply> {
        self.stream.get_mut().write_all(request.as_ref())?;
        self.answer_or_end()
    }

    fn answer_or_end(&mut self) -> io::Result<HttpReply> {
        let mut answer = self.answer_head()?;
        let length = answer.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        answer.body.resize(length, 0);
        self.stream.read_exact(&mut answer.body)?;
        Ok(answer)
    }

    /// Sends a request whose response has no body.
    pub(crate) fn head(&mut self, request: &str) -> HttpReply {
        self.write(request);
        self.answer_head().expect("an answer, not a reset")
    }

    fn answer_head(&mut self) -> io::Result<HttpReply> {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::Error::other("the connection was closed"));
            }
            let line = line.trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            head.push(line);
        }
        let status = head[0].split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
        let headers = head[1..].iter().filter_map(|line| line.split_once(": "));
        let headers: Vec<_> = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        Ok(HttpReply { status, headers, body: Vec::new() })
    }

    /// Returns whether the server has closed the connection without further bytes.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0))
    }
}

/// Returns the text of a POST.
pub(crate) fn request(path: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("POST {path} HTTP/1.1\r\nHost: tidegate\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A response of the server.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpReply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}
