//! The bodies of requests: messages, each after a head of five bytes that says how long it is; within bounds of size and time,
//! and of the body budget.

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

use super::refuse;
use crate::{
    http::error::{BODY_BYTES_MAX, Error},
    listeners::Shared,
    shared::body_budget::BodyPermit,
};

/// Is it compressed, and its length.
pub(super) const HEAD_BYTES: usize = 5;

/// A body that is being read.
pub(super) struct Body<C> {
    shared: Arc<Shared<C>>,
    incoming: Incoming,
    framing: Framing,
    permit: BodyPermit,
    /// Bytes that the permit is to hold: of one message all that came, of a stream those of the message that is waited for.
    held: usize,
    /// Bytes that it is to hold besides: those that the reader of a stream keeps.
    kept: usize,
    /// One message is to come, now, and no more. Those of a stream may take their time to begin.
    is_one: bool,
    /// Runs from when a message begins until it is whole, however often something of it comes.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<C> Body<C> {
    /// Of a stream of messages, which come as they come.
    pub(super) fn of_stream(
        incoming: Incoming,
        message_bytes_max: usize,
        shared: &Arc<Shared<C>>,
        permit: BodyPermit,
    ) -> Self {
        let (shared, framing) = (Arc::clone(shared), Framing::of(message_bytes_max));
        Self { shared, incoming, framing, permit, held: 0, kept: 0, is_one: false, patience: None }
    }

    /// Reads the body of one message to its end. Returns it with its permit.
    pub(super) async fn whole(
        incoming: Incoming,
        shared: &Arc<Shared<C>>,
        permit: BodyPermit,
    ) -> Result<(Bytes, BodyPermit), Error> {
        let mut body = Self { is_one: true, ..Self::of_stream(incoming, BODY_BYTES_MAX, shared, permit) };
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

    /// Holds `bytes`, which the reader keeps, beside those of the message that is waited for. An error: there is no room for them,
    /// or the permit was revoked.
    pub(super) fn keep(&mut self, bytes: usize) -> Result<(), Error> {
        self.kept = bytes;
        self.permit.hold(self.held + self.kept).map_err(Error::from)
    }

    /// Gives back all that the permit holds: nothing more is read, and what came of a message is thrown away.
    pub(super) fn close(&mut self) {
        (self.framing.came, self.held, self.kept) = (0, 0, 0);
        // An error: it was revoked, and holds nothing.
        let _ = self.permit.hold(0);
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        poll_fn(|context| self.poll_chunk(context)).await
    }

    /// What comes next; `None`: all has come, and whole messages.
    pub(super) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        loop {
            match http_body::Body::poll_frame(Pin::new(&mut self.incoming), context) {
                Poll::Ready(None) if self.framing.begun() > 0 || (self.is_one && self.framing.ended == 0) => {
                    return Poll::Ready(Err(Error::BrokenOff));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(Error::BrokenOff)),
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers of a request say nothing.
                    let Ok(chunk) = frame.into_data() else { continue };
                    let before = self.framing.ended;
                    self.framing.take(&chunk)?;
                    if self.is_one {
                        self.framing.is_one()?;
                        self.held += chunk.len();
                    } else if self.framing.ended > before {
                        // The next message has its own time, and its own place in the budget.
                        (self.held, self.patience) = (0, None);
                        // An error shows when more is to be held.
                        let _ = self.permit.hold(0);
                    }
                    return Poll::Ready(Ok(Some(chunk)));
                }
                Poll::Pending => {
                    self.held = self.held.max(self.framing.begun());
                    if let Poll::Ready(refusal) = self.permit.poll_wait(self.held + self.kept, context) {
                        return Poll::Ready(Err(refusal.into()));
                    }
                    // The next message of a stream may take its time to begin.
                    if !self.is_one && self.framing.begun() == 0 {
                        return Poll::Pending;
                    }
                    let period = self.shared.periods.request;
                    let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(period)));
                    ready!(patience.as_mut().poll(context));
                    return Poll::Ready(Err(Error::TooSlow));
                }
            }
        }
    }
}

impl<C> http_body::Body for Body<C> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let chunk = ready!(self.poll_chunk(context));
        Poll::Ready(
            chunk.map_err(|error| refuse(&self.shared, &error, None)).transpose().map(|chunk| chunk.map(Frame::data)),
        )
    }
}

/// Where in a message the bytes are that came last.
#[derive(Debug, Default)]
struct Framing {
    head: [u8; HEAD_BYTES],
    /// Bytes of the head, and of the message, that have come.
    came: usize,
    /// Bytes of the message, once the head is there.
    length: usize,
    /// Messages that are whole.
    ended: u64,
    message_bytes_max: usize,
}

impl Framing {
    fn of(message_bytes_max: usize) -> Self {
        Self { message_bytes_max, ..Self::default() }
    }

    /// Bytes of a message that is not whole yet.
    fn begun(&self) -> usize {
        self.came
    }

    /// An error: more has come than one message.
    fn is_one(&self) -> Result<(), Error> {
        if self.ended > 1 || (self.ended == 1 && self.came > 0) {
            let problem = "more than one message, and this call takes one; send the others in calls of their own";
            return Err(Error::Field { field: String::new(), problem: problem.to_owned() });
        }
        Ok(())
    }

    /// Goes on. An error: a message is larger than fits, or compressed.
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

    /// A message of so many bytes.
    fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.resize(HEAD_BYTES + length as usize, 7);
        bytes
    }

    #[test]
    fn however_bytes_come_it_is_known_what_has_begun() {
        let lengths = [0, 1, 300, 0, 4, 5, 6];
        let bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
        let mut ends = vec![0];
        for length in lengths {
            ends.push(ends[ends.len() - 1] + HEAD_BYTES + length as usize);
        }
        for size in 1..bytes.len() {
            let (mut framing, mut came) = (Framing::of(300), 0);
            for chunk in bytes.chunks(size) {
                framing.take(chunk).expect("they fit");
                came += chunk.len();
                let end = ends.iter().rfind(|end| **end <= came).expect("0");
                assert_eq!(framing.begun(), came - end, "in chunks of {size}");
                assert_eq!(framing.is_one().is_ok(), came <= ends[1]);
            }
            assert_eq!(framing.begun(), 0);
        }
    }

    #[test]
    fn what_is_too_large_is_refused_by_its_head_alone() {
        let length =
            |bytes: usize| message(0)[..1].iter().copied().chain((bytes as u32).to_be_bytes()).collect::<Vec<_>>();
        assert!(Framing::of(BODY_BYTES_MAX).take(&length(BODY_BYTES_MAX)).is_ok());
        assert!(matches!(Framing::of(BODY_BYTES_MAX).take(&length(BODY_BYTES_MAX + 1)), Err(Error::TooLarge)));
        assert!(matches!(Framing::of(0).take(&[1, 0, 0, 0, 0]), Err(Error::Encoding(_))));
    }
}
