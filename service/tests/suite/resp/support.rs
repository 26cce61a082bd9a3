//! A server process with a RESP listener, and a client that can send input that no library would and parses replies by itself.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use tidegate::RatedLimiter;
use tidegate_service::{
    ListenerSettings,
    http::Authorize,
    resp::{Operators, Resp},
};
use tidegate_testkit::PATIENCE;

/// The number of keys that the tables of the policy and of commands have room for.
pub(crate) use crate::process::KEYS_MAX;
use crate::process::{Process, listen};

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
        Self::listening(policy, ListenerSettings::default(), None)
    }

    /// Starts a server with these settings and this verifier of operators.
    pub(crate) fn listening(policy: &str, settings: ListenerSettings, operators: Option<Arc<dyn Operators>>) -> Self {
        let (listener, address) = listen();
        let process = Process::start(settings, Authorize::default(), |doors, clock| {
            let throttle = Arc::new(RatedLimiter::with_groups(KEYS_MAX, clock));
            doors.resp(Resp { listener, throttle, operators })
        });
        process.publish(policy);
        Self { address, process }
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::to(self.address)
    }

    /// Stops the server as the binary would, and returns its result.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.drain(Duration::ZERO);
        self.ended()
    }
}

/// A reply.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(String),
    Null,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

/// A connection on which a test writes any bytes.
pub(crate) struct Connection<S = TcpStream> {
    stream: BufReader<S>,
}

impl Connection {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(2 * PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self::over(stream)
    }

    /// Returns the bytes of one read of the socket.
    pub(crate) fn read_once(&mut self) -> String {
        let bytes = self.stream.fill_buf().expect("an answer").to_vec();
        self.stream.consume(bytes.len());
        String::from_utf8(bytes).expect("UTF-8")
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

impl<S: Read + Write> Connection<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream: BufReader::with_capacity(64 << 10, stream) }
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Sends a command, whose words have single blanks between them, and returns the reply.
    pub(crate) fn ask(&mut self, command: &str) -> Reply {
        self.write(array(&command.split(' ').collect::<Vec<_>>()));
        self.reply()
    }

    /// Sends a `PING`, and returns whether the connection has answered instead of ending.
    pub(crate) fn is_alive(&mut self) -> bool {
        let mut reply = [0; 7];
        self.stream.get_mut().write_all(b"PING\r\n").is_ok()
            && self.stream.read_exact(&mut reply).is_ok_and(|()| &reply == b"+PONG\r\n")
    }

    /// Sends a command, and returns the numbers of its reply.
    pub(crate) fn numbers(&mut self, command: &str) -> Vec<i64> {
        let Reply::Array(replies) = self.ask(command) else { return Vec::new() };
        replies
            .into_iter()
            .filter_map(|reply| if let Reply::Integer(number) = reply { Some(number) } else { None })
            .collect()
    }

    /// Sends a command, and returns the error of its reply.
    pub(crate) fn refused(&mut self, command: &str) -> String {
        match self.ask(command) {
            Reply::Error(error) => error,
            other => format!("no error: {other:?}"),
        }
    }

    pub(crate) fn reply(&mut self) -> Reply {
        let mut line = String::new();
        assert_ne!(self.stream.read_line(&mut line).expect("an answer, not a reset"), 0, "the connection was closed");
        let text = line.strip_suffix("\r\n").expect("a line");
        let (kind, text) = text.split_at(1);
        let number = || text.parse::<i64>().expect("a number");
        match kind {
            "+" => Reply::Simple(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Integer(number()),
            "_" => Reply::Null,
            "$" if text == "-1" => Reply::Null,
            "$" => {
                let mut bytes = vec![0; usize::try_from(number()).expect("a length") + 2];
                self.stream.read_exact(&mut bytes).expect("as long as it says");
                assert!(bytes.ends_with(b"\r\n"));
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(String::from_utf8(bytes).expect("UTF-8"))
            }
            "*" => Reply::Array((0..number()).map(|_| self.reply()).collect()),
            "%" => Reply::Map((0..number()).map(|_| (self.reply(), self.reply())).collect()),
            _ => unreachable!("{line}"),
        }
    }

    /// Returns whether the server has closed the connection without further bytes.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0))
    }
}

/// Returns a command in the form in which clients send it.
pub(crate) fn array(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

pub(crate) fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.to_owned())
}

pub(crate) fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}
