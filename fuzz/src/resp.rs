//! Sends any bytes to the listener of the Redis protocol, whole and in two pieces: the replies follow the grammar of the protocol,
//! each command has one reply, no code panics, and the charge of a key stays.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, LazyLock},
    thread,
    time::Duration,
};

use tidegate::{Engine, RatedLimiter, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};
use tidegate_service::{
    Decider, ListenerSettings, Listeners,
    http::{Authorize, Http},
    resp::{OperatorQuery, Operators, Resp},
};

const POLICY: &str = r#"
    [domains.default]
    defaults = { user = "free", ip = "none" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "second", algorithm = "token_bucket", limit = 1000000, period = "1s" }]
    [[domains.default.tiers]]
    id = "none"
    limits = [{ id = "none", algorithm = "sliding_window_log", limit = 0, period = "1s" }]
"#;

/// The address of the server of this process, which runs on a thread of its own.
static ADDRESS: LazyLock<SocketAddr> = LazyLock::new(|| {
    let clock = ManualClock::at(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let engine = Arc::new(Engine::for_simulation(10_000, clock.clone(), 7));
    engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a right policy")).expect("room for its limits");
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let listener = listen();
    let address = listener.local_addr().expect("bound");
    let http = Http { listener: listen(), authorize: Authorize::default() };
    let decider = Arc::new(Decider::new(engine).expect("random numbers"));
    let throttle = Arc::new(RatedLimiter::with_groups(10_000, clock));
    let resp = Resp { listener, throttle, operators: Some(Arc::new(NoOperators)) };
    let listeners =
        Listeners::new(decider, ListenerSettings { workers: 1, ..ListenerSettings::default() }, http).resp(resp);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { listeners.serve().expect("it listens").await.expect("it goes on") });
    });
    assert_eq!(
        exchange(address, &[b"CL.THROTTLE kept 0 1 31622400\r\n"]),
        b"*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:31622400\r\n"
    );
    address
});

/// A list of operators that is empty.
#[derive(Debug)]
struct NoOperators;

impl Operators for NoOperators {
    fn has<'a>(&'a self, _: &'a str) -> OperatorQuery<'a> {
        Box::pin(async { Ok(false) })
    }
}

/// Sends `data` at once, and in two pieces: the first byte is the position of the cut.
///
/// # Panics
///
/// If a property does not hold.
pub fn resp(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let (first, second) = data.split_at(usize::from(*cut).min(data.len()));
    let (whole, parts) = (exchange(*ADDRESS, &[data]), exchange(*ADDRESS, &[first, second]));
    let count = count_replies(&whole);
    assert_eq!(count, count_replies(&parts), "{}\n{}", whole.escape_ascii(), parts.escape_ascii());
    if let Some(commands) = commands(data) {
        assert_eq!(count, commands, "{}", whole.escape_ascii());
    }
    let kept = exchange(*ADDRESS, &[b"CL.THROTTLE kept 0 1 31622400\r\n"]);
    assert!(kept.starts_with(b"*5\r\n:1\r\n:1\r\n:0\r\n"), "{}", kept.escape_ascii());
}

/// Returns the number of commands that get a reply, or `None` if `data` is not a sequence of commands: arrays of 1 to 64 bulk
/// strings, the last of which may end the connection.
fn commands(mut data: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !data.is_empty() {
        let mut name = None;
        for _ in 0..length(&mut data, b'*').filter(|words| (1..=64).contains(words))? {
            let bytes = length(&mut data, b'$')?;
            let word = data.get(..bytes)?;
            data = data[bytes..].strip_prefix(b"\r\n")?;
            name.get_or_insert(word);
        }
        count += 1;
        let name = name?.to_ascii_lowercase();
        if matches!(&name[..], b"post" | b"host:" | b"quit") {
            // `QUIT` may be rejected for its arguments, which another test covers.
            return data.is_empty().then_some(count);
        }
    }
    Some(count)
}

/// Parses a short number between the byte `kind` and the end of the line.
fn length(data: &mut &[u8], kind: u8) -> Option<usize> {
    let rest = data.strip_prefix(&[kind])?;
    let end = rest.iter().take(5).position(|byte| *byte == b'\r')?;
    let digits = &rest[..end];
    *data = rest[end..].strip_prefix(b"\r\n")?;
    // Rejects a sign, which the standard library would accept.
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Sends the pieces and returns all replies.
fn exchange(address: SocketAddr, pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a socket");
    for piece in pieces {
        // An earlier piece may have ended the connection.
        let _ = stream.write_all(piece);
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).expect("all replies, and an end");
    replies
}

/// Counts replies, and fails on a malformed or internal one.
fn count_replies(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let before = bytes;
        bytes = skip_reply(bytes).expect("whole replies");
        let is_internal = before[..before.len() - bytes.len()].starts_with(b"-ERR something went wrong");
        assert!(!is_internal, "{}", before.escape_ascii());
        count += 1;
    }
    count
}

/// Returns the bytes after a reply, or `None` if the reply is malformed.
fn skip_reply(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (kind, text) = bytes[..end].split_first()?;
    let rest = &bytes[end + 2..];
    let number = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    let several = |count: i64| (0..count).try_fold(rest, |rest, _| skip_reply(rest));
    match kind {
        b'+' | b'-' => text.iter().all(|byte| !byte.is_ascii_control()).then_some(rest),
        b':' => number().map(|_| rest),
        b'_' => text.is_empty().then_some(rest),
        b'$' if text == b"-1" => Some(rest),
        b'$' => {
            let length = usize::try_from(number()?).ok()?;
            rest.get(length..)?.strip_prefix(b"\r\n")
        }
        b'*' => several(number()?),
        b'%' => several(2 * number()?),
        _ => None,
    }
}
