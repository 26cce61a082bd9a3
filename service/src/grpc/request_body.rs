//! Reads the bodies of gRPC requests, within bounds of size and time and of the body budget. A body has messages, each
//! behind a head of five bytes with its length.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use actix_web::web::{Bytes, BytesMut};
use http_body::Frame;
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::status::reject;
use crate::shared::{
    body_budget::{BODY_BYTES_MAX, BodyPermit},
    error::Error,
    service_state::ServiceState,
};

/// Bytes of the head of a message: whether the message is compressed, and its length.
pub(super) const HEAD_BYTES: usize = 5;

/// The body of a request while it is read.
pub(super) struct RequestBody<C> {
    shared: Arc<ServiceState<C>>,
    incoming: Incoming,
    framing: Framing,
    permit: BodyPermit,
    /// Bytes that the permit holds: of a single message all that came, of a stream those of the message that is waited for.
    held: usize,
    /// Further bytes that the permit holds: those that the reader of a stream keeps.
    kept: usize,
    /// Whether the body must have exactly one message, which must begin in time. A message of a stream may begin at any time.
    is_one: bool,
    /// The timeout of a message that has begun, which no further bytes prolong.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<C> RequestBody<C> {
    /// Creates the body of a stream of messages.
    pub(super) fn stream(
        incoming: Incoming,
        message_bytes_max: usize,
        shared: &Arc<ServiceState<C>>,
        permit: BodyPermit,
    ) -> Self {
        let (shared, framing) = (Arc::clone(shared), Framing::new(message_bytes_max));
        Self { shared, incoming, framing, permit, held: 0, kept: 0, is_one: false, deadline: None }
    }

    /// Reads a body with one message to its end. Returns it with its permit.
    pub(super) async fn read_message(
        incoming: Incoming,
        shared: &Arc<ServiceState<C>>,
        permit: BodyPermit,
    ) -> Result<(Bytes, BodyPermit), Error> {
        let mut body = Self { is_one: true, ..Self::stream(incoming, BODY_BYTES_MAX, shared, permit) };
        let Some(first) = body.chunk().await? else { return Err(Error::BrokenOff) };
        let Some(second) = body.chunk().await? else { return Ok((first, body.permit)) };
        let mut whole = BytesMut::from(&first[..]);
        whole.extend_from_slice(&second);
        while let Some(chunk) = body.chunk().await? {
            whole.extend_from_slice(&chunk);
        }
        Ok((whole.freeze(), body.permit))
    }

    /// Returns how many streams are open on the connection.
    pub(super) fn streams(&self) -> usize {
        self.permit.connection().streams()
    }

    /// Holds `bytes` that the reader keeps, beside those of the message that is waited for. Returns an error where
    /// there is no room for them, or the permit was revoked.
    pub(super) fn keep(&mut self, bytes: usize) -> Result<(), Error> {
        self.kept = bytes;
        self.permit.hold(self.held + self.kept).map_err(Error::from)
    }

    /// Gives back all that the permit holds. Nothing more may be read, and the part of a message that came is dropped.
    pub(super) fn close(&mut self) {
        (self.framing.came, self.held, self.kept) = (0, 0, 0);
        // An error: the permit was revoked, and holds nothing.
        let _ = self.permit.hold(0);
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        poll_fn(|context| self.poll_chunk(context)).await
    }

    /// Polls for the next chunk; `None` at the end of the body, behind a whole message.
    pub(super) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        loop {
            match http_body::Body::poll_frame(Pin::new(&mut self.incoming), context) {
                Poll::Ready(None) if self.framing.begun() > 0 || (self.is_one && self.framing.ended == 0) => {
                    return Poll::Ready(Err(Error::BrokenOff));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(Error::BrokenOff)),
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers of a request have no meaning.
                    let Ok(chunk) = frame.into_data() else { continue };
                    let before = self.framing.ended;
                    self.framing.take(&chunk)?;
                    if self.is_one {
                        self.framing.check_is_one()?;
                        self.held += chunk.len();
                    } else if self.framing.ended > before {
                        // The next message has its own timeout, and its own part of the budget.
                        (self.held, self.deadline) = (0, None);
                        // An error is reported when more bytes are to be held.
                        let _ = self.permit.hold(0);
                    }
                    return Poll::Ready(Ok(Some(chunk)));
                }
                Poll::Pending => {
                    self.held = self.held.max(self.framing.begun());
                    if let Poll::Ready(refusal) = self.permit.poll_wait(self.held + self.kept, context) {
                        return Poll::Ready(Err(refusal.into()));
                    }
                    // The next message of a stream may begin at any time.
                    if !self.is_one && self.framing.begun() == 0 {
                        return Poll::Pending;
                    }
                    let period = self.shared.timeouts.request;
                    let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(period)));
                    ready!(deadline.as_mut().poll(context));
                    return Poll::Ready(Err(Error::TooSlow));
                }
            }
        }
    }
}

impl<C> http_body::Body for RequestBody<C> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let chunk = ready!(self.poll_chunk(context));
        Poll::Ready(
            chunk.map_err(|error| reject(&self.shared, &error, None)).transpose().map(|chunk| chunk.map(Frame::data)),
        )
    }
}

/// The position within the messages of a body: how much of a message has come.
#[derive(Debug, Default)]
struct Framing {
    head: [u8; HEAD_BYTES],
    /// Bytes of the present message that have come, with its head.
    came: usize,
    /// The length of the present message, once its head has come.
    length: usize,
    /// The number of messages that have come whole.
    ended: u64,
    message_bytes_max: usize,
}

impl Framing {
    fn new(message_bytes_max: usize) -> Self {
        Self { message_bytes_max, ..Self::default() }
    }

    /// Returns how many bytes of a message have come that is not whole yet.
    fn begun(&self) -> usize {
        self.came
    }

    /// Returns an error where more than one message has come.
    fn check_is_one(&self) -> Result<(), Error> {
        if self.ended > 1 || (self.ended == 1 && self.came > 0) {
            let problem = "more than one message, and this call takes one; send the others in calls of their own";
            return Err(Error::Field { field: String::new(), problem: problem.to_owned() });
        }
        Ok(())
    }

    /// Takes in the next bytes. Returns an error where a message is too large, or compressed.
    fn take(&mut self, mut chunk: &[u8]) -> Result<(), Error> {
        while !chunk.is_empty() {
            let is_head = self.came < HEAD_BYTES;
            let wanted = if is_head { HEAD_BYTES } else { HEAD_BYTES + self.length } - self.came;
            let (taken, rest) = chunk.split_at(wanted.min(chunk.len()));
            if is_head {
                self.head[self.came..self.came + taken.len()].copy_from_slice(taken);
            }
            self.came += taken.len();
            if is_head && self.came == HEAD_BYTES {
                let [is_compressed, length @ ..] = self.head;
                if is_compressed != 0 {
                    return Err(Error::Encoding("compressed message".to_owned()));
                }
                self.length = u32::from_be_bytes(length) as usize;
                if self.length > self.message_bytes_max {
                    return Err(Error::TooLarge);
                }
            }
            if self.came == HEAD_BYTES + self.length && self.came >= HEAD_BYTES {
                (self.came, self.length) = (0, 0);
                self.ended += 1;
            }
            chunk = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a message of this length, with its head.
    fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.resize(HEAD_BYTES + length as usize, 7);
        bytes
    }

    #[test]
    fn the_begun_bytes_are_known_however_messages_are_split_into_chunks() {
        let lengths = [0, 1, 300, 0, 4, 5, 6];
        let bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
        let mut ends = vec![0];
        for length in lengths {
            ends.push(ends[ends.len() - 1] + HEAD_BYTES + length as usize);
        }
        for size in 1..bytes.len() {
            let (mut framing, mut came) = (Framing::new(300), 0);
            for chunk in bytes.chunks(size) {
                framing.take(chunk).expect("they fit");
                came += chunk.len();
                let end = ends.iter().rfind(|end| **end <= came).expect("0");
                assert_eq!(framing.begun(), came - end, "in chunks of {size}");
                assert_eq!(framing.check_is_one().is_ok(), came <= ends[1]);
            }
            assert_eq!(framing.begun(), 0);
        }
    }

    #[test]
    fn a_message_that_is_too_large_is_refused_by_its_head() {
        let length =
            |bytes: usize| message(0)[..1].iter().copied().chain((bytes as u32).to_be_bytes()).collect::<Vec<_>>();
        assert!(Framing::new(BODY_BYTES_MAX).take(&length(BODY_BYTES_MAX)).is_ok());
        assert!(matches!(Framing::new(BODY_BYTES_MAX).take(&length(BODY_BYTES_MAX + 1)), Err(Error::TooLarge)));
        assert!(matches!(Framing::new(0).take(&[1, 0, 0, 0, 0]), Err(Error::Encoding(_))));
    }
}
