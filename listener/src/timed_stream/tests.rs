//! Tests of a timed stream, with a peer in memory.

use std::{
    cell::Cell,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use actix_http::{Payload, Request, h1};
use actix_web::http::header::{CONTENT_LENGTH, HeaderValue};
use futures_util::Stream;

use super::*;
use crate::connections::{ConnectionCaps, ConnectionLimiter};

/// The shortest request.
const REQUEST: &[u8] = b"G / HTTP/1.1\n\n";

/// A peer that sends the same bytes again and again, and reads only while `is_reading`.
struct Peer {
    sends: &'static [u8],
    is_reading: Rc<Cell<bool>>,
}

impl AsyncRead for Peer {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        buffer.put_slice(&self.sends.repeat(buffer.remaining() / self.sends.len()));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_reading.get() { Poll::Ready(Ok(bytes.len())) } else { Poll::Pending }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A waker that counts its calls.
#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct TestConnection {
    stream: TimedStream,
    is_reading: Rc<Cell<bool>>,
    woken: Arc<CountingWaker>,
}

impl TestConnection {
    fn new(sends: &'static [u8]) -> Self {
        let minute = Duration::from_mins(1);
        let periods =
            HttpPeriods { idle: minute, handshake: minute, request_head: minute, unread: minute, linger: minute };
        let permit = ConnectionLimiter::new("test", ConnectionCaps::default(), false).admit(Ipv4Addr::LOCALHOST.into());
        let is_reading = Rc::default();
        let peer = Box::new(Peer { sends, is_reading: Rc::clone(&is_reading) });
        let stream = TimedStream::new(peer, permit.expect("it is the first"), periods);
        Self { stream, is_reading, woken: Arc::default() }
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.woken))
    }

    /// Returns whether the task was woken since the last call.
    fn is_woken(&self) -> bool {
        self.woken.0.swap(0, Ordering::Relaxed) > 0
    }

    /// Reads until a read is pending. Returns the number of bytes, and whether the task was woken at once.
    fn read(&mut self) -> (usize, bool) {
        let waker = self.waker();
        let (mut bytes, mut room) = (0, vec![0; 64 << 10]);
        loop {
            let mut buffer = ReadBuf::new(&mut room);
            match Pin::new(&mut self.stream).poll_read(&mut Context::from_waker(&waker), &mut buffer) {
                Poll::Ready(read) => {
                    read.expect("the peer is there");
                    bytes += buffer.filled().len();
                }
                Poll::Pending => return (bytes, self.is_woken()),
            }
        }
    }

    fn is_written(&mut self) -> bool {
        let waker = self.waker();
        Pin::new(&mut self.stream).poll_write(&mut Context::from_waker(&waker), b"a").is_ready()
    }
}

#[tokio::test]
async fn one_request_is_handed_out_at_a_time_and_none_while_one_is_answered() {
    let mut connection = TestConnection::new(REQUEST);
    for _ in 0..3 {
        assert_eq!(connection.read(), (REQUEST.len(), true), "a head is waited for");
    }
    let request = connection.stream.requests.begin();
    assert_eq!(connection.read(), (0, false));
    drop(request);
    assert!(connection.is_woken());
    assert_eq!(connection.read(), (REQUEST.len(), true), "the next head is waited for");

    let mut other = TestConnection::new(REQUEST);
    let _request = other.stream.requests.begin();
    assert_eq!(other.read(), (0, false));
    assert_eq!(other.stream.ahead.len() / REQUEST.len(), READ_BYTES / REQUEST.len(), "one read is kept ahead");
}

#[tokio::test]
async fn a_body_is_handed_out_only_while_its_reader_waits() {
    const BODY: usize = 2_000 * REQUEST.len();
    let mut connection = TestConnection::new(REQUEST);
    let guard = connection.stream.requests.begin();
    let (mut sender, payload) = h1::Payload::create(false);
    let payload: Payload = Payload::H1 { payload };
    let mut request = Request::with_payload(payload);
    request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(BODY));
    guard.follow_body(&mut request);
    assert_eq!(connection.read(), (0, false), "its reader does not wait");
    // The beginning of the body arrived with the head.
    sender.feed_data(Bytes::from_static(REQUEST));
    let (mut body, waker) = (request.take_payload(), connection.waker());
    let mut poll = || Pin::new(&mut body).poll_next(&mut Context::from_waker(&waker));
    assert!(poll().is_ready() && poll().is_pending());
    assert!(connection.is_woken());
    let rest = BODY - REQUEST.len();
    assert_eq!(connection.read(), (rest, false), "the rest of it, and no request after it");
    sender.feed_data(Bytes::from(REQUEST.repeat(rest / REQUEST.len())));
    sender.feed_eof();
    assert!([poll(), poll()].iter().all(Poll::is_ready) && connection.is_woken(), "the body is complete");
    assert_eq!(connection.read(), (0, false), "it is answered");
    drop((body, guard));
    assert_eq!(connection.read(), (REQUEST.len(), true), "the next head is waited for");
}

#[tokio::test]
async fn a_flush_wakes_the_reader_of_a_body_unless_the_body_arrived_with_its_head() {
    let connection = &mut TestConnection::new(REQUEST);
    let guard = connection.stream.requests.begin();
    for comes_with_head in [true, false] {
        let (mut sender, payload) = h1::Payload::create(false);
        let payload: Payload = Payload::H1 { payload };
        let mut request = Request::with_payload(payload);
        guard.follow_body(&mut request);
        let (mut body, waker) = (request.take_payload(), connection.waker());
        let context = &mut Context::from_waker(&waker);
        assert!(Pin::new(&mut body).poll_next(context).is_pending(), "it is not parsed");
        if comes_with_head {
            sender.feed_data(Bytes::from_static(REQUEST));
            sender.feed_eof();
            assert!(Pin::new(&mut body).poll_next(context).is_ready());
        }
        assert!(!connection.is_woken());
        assert!(Pin::new(&mut connection.stream).poll_flush(context).is_ready());
        assert_eq!(connection.is_woken(), !comes_with_head);
        assert_eq!(Pin::new(&mut body).poll_next(context).is_ready(), comes_with_head);
        sender.feed_data(Bytes::from_static(REQUEST));
        assert_eq!(connection.is_woken(), !comes_with_head, "its reader waits for more");
    }
}

#[tokio::test]
async fn a_waiting_reader_is_woken_by_a_pending_write_and_by_the_end_of_the_stream() {
    for is_dropped in [false, true] {
        let mut connection = TestConnection::new(REQUEST);
        let guard = connection.stream.requests.begin();
        let (_sender, payload) = h1::Payload::create(false);
        let payload: Payload = Payload::H1 { payload };
        let mut request = Request::with_payload(payload);
        guard.follow_body(&mut request);
        let (mut body, reader) = (request.take_payload(), Arc::new(CountingWaker::default()));
        let waker = Waker::from(Arc::clone(&reader));
        assert!(Pin::new(&mut body).poll_next(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(reader.0.load(Ordering::Relaxed), 0);
        if is_dropped {
            drop(connection.stream);
        } else {
            assert!(!connection.is_written());
        }
        assert_eq!(reader.0.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_is_handed_out_up_to_each_blank_line() {
    let mut connection = TestConnection::new(REQUEST);
    let guard = connection.stream.requests.begin();
    let (_sender, payload) = h1::Payload::create(false);
    let payload: Payload = Payload::H1 { payload };
    let mut request = Request::with_payload(payload);
    guard.follow_body(&mut request);
    let (mut body, waker) = (request.take_payload(), connection.waker());
    assert!(Pin::new(&mut body).poll_next(&mut Context::from_waker(&waker)).is_pending());
    for _ in 0..2 {
        assert_eq!(connection.read(), (REQUEST.len(), true));
    }
    drop(body);
    assert_eq!(connection.read(), (0, false), "its reader is dropped");
}

#[tokio::test]
async fn nothing_is_handed_out_while_the_peer_reads_nothing() {
    let mut connection = TestConnection::new(REQUEST);
    assert!(!connection.is_written());
    assert_eq!(connection.read(), (0, false));
    connection.is_reading.set(true);
    assert!(connection.is_written() && connection.is_woken());
    assert_eq!(connection.read(), (REQUEST.len(), true));
}

#[tokio::test]
async fn a_long_head_is_read_without_delay() {
    let mut connection = TestConnection::new(b"a");
    for _ in 0..3 {
        assert_eq!(connection.read(), (READ_BYTES, true));
    }
}

#[tokio::test]
async fn a_name_at_which_actix_http_panics_is_not_handed_out() {
    let mut connection = TestConnection::new(b"a");
    let parts: Vec<_> = (0..6).map(|_| connection.read()).collect();
    assert_eq!(parts, [[(READ_BYTES, true); 3], [(0, true); 3]].concat(), "the following bytes are discarded");
    let mut stream = TestConnection::new(b"a").stream;
    let name = vec![b'a'; NAME_BYTES_MAX];
    assert!(!stream.is_name_too_long(&name) && !stream.is_name_too_long(b": b\r\n"));
    assert!(!stream.is_name_too_long(&name) && stream.is_name_too_long(b"a: b\r\n"), "a part that ends otherwise");
}

#[test]
fn at_most_one_head_ends_in_a_part() {
    let head = &b"POST /v1/check HTTP/1.1\r\ncontent-length: 9\r\n\r\n"[..];
    let check = [head, b"{\n\"a\":1}"].concat();
    for (bytes, end) in [
        (&b""[..], 0),
        (&head[..20], 20),
        (&check, check.len()),
        (&[&check, &head[..head.len() - 2]].concat(), check.len() + head.len() - 2),
        (&check.repeat(2), head.len()),
        (&[b"\r\n", head].concat(), 2),
        (&REQUEST.repeat(3), REQUEST.len()),
        (&[&REQUEST[REQUEST.len() - 1..], REQUEST].concat(), 1),
        (&[b"\n".repeat(3), REQUEST.repeat(2)].concat(), 3),
        (&[REQUEST, b"\r\n\n", REQUEST].concat(), REQUEST.len() + 3),
        // actix-http parses blank lines again from the first byte with each part.
        (&b"\n".repeat(READ_BYTES), READ_BYTES),
        // The end of a chunked body, and the next head.
        (&[b"1\r\na\r\n0\r\n\r\n", head].concat(), 11),
    ] {
        assert_eq!(request_end(bytes), end, "{}", bytes.escape_ascii());
    }
}
