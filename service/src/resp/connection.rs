//! Serves a RESP connection: reads commands, runs them, and writes the replies to all that came together in one piece.

use std::{future::poll_fn, io, net::SocketAddr, pin::pin, rc::Rc, time::Duration};

use tidegate::{clock::Clock, time::Nanos};
use tidegate_listener::{ConnectionPermit, PeerTurns};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    task::{coop::unconstrained, yield_now},
    time::{Instant, timeout, timeout_at},
};

use super::{
    command_table::{OTHER, Status},
    error::Error,
    frame_reader::{Arguments, Frame, FrameReader},
    reply_writer::ReplyWriter,
    session::{CommandResult, NextStep, PendingAuthentication, PendingCheck, RespSession},
    worker::RespWorker,
};
use crate::shared::{
    body_budget::{BLOCK_BYTES, BodyPermit, ConnectionShare, PermitPhase},
    worker_threads::{ConnectionHandler, StopSignal},
};

/// A timer that is long enough for the runtime to ask the system about its sockets.
const SOCKET_POLL: Duration = Duration::from_millis(1);
/// Commands that are run in one turn of a connection. Without this bound a turn would run all commands in 64 KiB, which
/// is what a task may read in a turn: a thousand and more.
const TURN_COMMANDS: usize = 128;
/// The first size of the input buffer of a connection.
const INPUT_BYTES: usize = 4 << 10;
/// Bytes of replies that are written before more commands are run, so that a peer that does not read gets no further replies.
const REPLY_BYTES: usize = 16 << 10;

impl<C: Clock> ConnectionHandler for RespWorker<C> {
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
        self: Rc<Self>,
        mut stream: S,
        peer: SocketAddr,
        permit: Rc<ConnectionPermit>,
        _: Rc<PeerTurns>,
        stop: StopSignal,
    ) {
        let timeouts = self.shared.timeouts;
        let mut stop = Some(stop);
        let mut connection = Connection::new(&self, peer, permit);
        let ends_here = loop {
            let deadline = connection.deadline();
            let read = match connection.reserve_input() {
                Ok((input, permit)) => {
                    let read = async {
                        let read = read(&mut stream, input, &mut stop);
                        match deadline {
                            None => Ok(read.await),
                            Some(deadline) => timeout_at(deadline, read).await.map_err(|_| Error::TooSlow),
                        }
                    };
                    tokio::select! {
                        biased;
                        refusal = poll_fn(|context| permit.poll_revoked(context)) => Err(Error::from(refusal)),
                        read = read => read,
                    }
                }
                Err(error) => Err(error),
            };
            match read {
                Ok(Some(Ok(1..))) => match connection.answer_in_time(&mut stream).await {
                    Some(true) => {}
                    Some(false) => break true,
                    None => return,
                },
                Ok(None) => break true,
                Ok(Some(_)) => break false,
                Err(error) => {
                    connection.refuse(&error);
                    break true;
                }
            }
        };
        connection.release_input();
        // A peer that has gone gets no replies.
        if connection.write(&mut stream).await.is_ok() && stream.shutdown().await.is_ok() && ends_here {
            // The system would drop the last reply where input is left unread, so the input is read and dropped.
            let _ = timeout(timeouts.discard, async {
                while stream.read(&mut [0; 512]).await.is_ok_and(|bytes| bytes > 0) {}
            })
            .await;
        }
    }
}

/// Reads bytes. Returns `None` where the connection is to end and no more bytes have come.
///
/// A connection that is to end gives the runtime [`SOCKET_POLL`] to ask the system which bytes have come, since what
/// the runtime knows of a socket may be older.
async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    to: &mut Vec<u8>,
    stop: &mut Option<StopSignal>,
) -> Option<io::Result<usize>> {
    let mut read = pin!(stream.read_buf(to));
    if let Some(stop) = stop {
        tokio::select! {
            biased;
            _ = stop => {}
            read = &mut read => return Some(read),
        }
    }
    *stop = None;
    // Tokio's budget would make the read of a task that has done much pend.
    timeout(SOCKET_POLL, unconstrained(read)).await.ok()
}

/// The input, session and replies of a connection.
struct Connection<'w, C> {
    worker: &'w RespWorker<C>,
    session: RespSession<'w, C>,
    reader: FrameReader,
    input: Vec<u8>,
    permit: BodyPermit,
    replies: ReplyWriter,
    turn_commands: usize,
    /// The deadline of a command that has begun.
    deadline: Option<Instant>,
}

/// The step after commands have been run.
enum Next {
    /// Reads more input: all commands have been run.
    Read,
    /// Writes the replies before more commands are run.
    Write,
    /// Writes the replies, and gives other tasks of the thread a turn before more commands are run.
    Yield,
    Authenticate(PendingAuthentication),
    Wait(PendingCheck),
    Close,
}

impl<'w, C: Clock> Connection<'w, C> {
    fn new(worker: &'w RespWorker<C>, peer: SocketAddr, permit: Rc<ConnectionPermit>) -> Self {
        Self {
            worker,
            session: RespSession::new(worker, peer, permit),
            reader: FrameReader::default(),
            input: Vec::new(),
            permit: BodyPermit::new(&ConnectionShare::new(&worker.shared.body_budget, peer.ip())),
            replies: ReplyWriter::default(),
            turn_commands: 0,
            deadline: None,
        }
    }

    /// Returns the input with room for more bytes, and its permit. Returns an error where the body budget has no room
    /// for a command of this length.
    fn reserve_input(&mut self) -> Result<(&mut Vec<u8>, &BodyPermit), Error> {
        if self.input.len() <= BLOCK_BYTES && self.has_budget() {
            self.input.shrink_to(BLOCK_BYTES);
            self.permit.hold(BLOCK_BYTES)?;
        }
        if self.input.len() == self.input.capacity() {
            let more = self.input.capacity().max(INPUT_BYTES);
            if self.input.len() + more > BLOCK_BYTES && !self.session.is_authenticated() {
                return Err(Error::LongNoAuth);
            }
            self.permit.hold(self.input.len() + more)?;
            self.input.reserve_exact(more);
        }
        Ok((&mut self.input, &self.permit))
    }

    /// Returns whether the input holds part of the body budget.
    fn has_budget(&self) -> bool {
        self.input.capacity() > BLOCK_BYTES
    }

    /// Releases the input and its part of the body budget: nothing more is read.
    fn release_input(&mut self) {
        self.input = Vec::new();
        // An error: the permit was revoked, and holds nothing.
        let _ = self.permit.hold(0);
    }

    /// Returns the deadline of the command that has begun; `None` where none has.
    fn deadline(&mut self) -> Option<Instant> {
        if self.input.is_empty() && !self.reader.is_within_command() {
            self.deadline = None;
        } else if self.deadline.is_none() {
            self.permit.enter(PermitPhase::Body);
            self.deadline = Some(Instant::now() + self.worker.shared.timeouts.request);
        }
        self.deadline
    }

    /// Runs [`answer`](Self::answer). Returns `None` where its part of the body budget was revoked.
    async fn answer_in_time(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> Option<bool> {
        if !self.has_budget() {
            return Some(self.answer(stream).await);
        }
        self.permit.enter(PermitPhase::Response);
        let revocation = self.permit.revocation();
        tokio::select! {
            biased;
            answered = self.answer(stream) => Some(answered),
            _ = poll_fn(|context| revocation.poll_unseen(context)) => None,
        }
    }

    /// Runs the commands that have come, and writes the replies. Returns false where the connection is to end.
    async fn answer(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> bool {
        if let Some(token) = self.session.token_to_reverify() {
            let answer = self.worker.is_operator(&token).await;
            self.session.finish_reverification(token, answer);
        }
        loop {
            let next = self.run();
            // The connection may be dropped while it waits for its next turn, so all replies are written before that.
            if matches!(next, Next::Close) || self.write(stream).await.is_err() {
                return false;
            }
            match next {
                Next::Read | Next::Close => return true,
                Next::Write => {}
                Next::Yield => {
                    self.turn_commands = 0;
                    yield_now().await;
                }
                Next::Authenticate(pending) => {
                    let mut counter = CommandCounter::new(self.worker);
                    let answer = self.worker.is_operator(&pending.token).await;
                    counter.add(&self.session.finish_authentication(pending, answer, &mut self.replies));
                    counter.flush();
                }
                Next::Wait(pending) => {
                    let mut counter = CommandCounter::new(self.worker);
                    counter.add(&self.session.finish_check(pending, &mut self.replies).await);
                    counter.flush();
                }
            }
        }
    }

    async fn write(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if !self.replies.bytes.is_empty() {
            stream.write_all(&self.replies.bytes).await?;
            stream.flush().await?;
            self.replies.bytes.clear();
            self.replies.bytes.shrink_to(REPLY_BYTES);
        }
        Ok(())
    }

    /// Runs commands until there are no more, or one must wait.
    fn run(&mut self) -> Next {
        let mut counter = CommandCounter::new(self.worker);
        let mut words = Arguments::new();
        let (mut used, mut has_run) = (0, false);
        let next = loop {
            let refused = match self.reader.next(&self.input[used..], &mut words) {
                Ok((bytes, frame)) => {
                    used += bytes;
                    match frame {
                        Frame::Incomplete => break Next::Read,
                        Frame::Command => None,
                        Frame::TooMany => Some(Error::TooMany),
                        Frame::Quotes => Some(Error::Quotes),
                    }
                }
                Err(error) => Some(error.into()),
            };
            let result = match refused {
                None => self.session.run(&words, &mut self.replies),
                Some(error) => self.session.refuse(OTHER, &error, &mut self.replies),
            };
            has_run = true;
            self.turn_commands += 1;
            // Commands that must wait are counted when they are finished.
            if !matches!(result.next, NextStep::Authenticate(_) | NextStep::Wait(_)) {
                counter.add(&result);
            }
            match result.next {
                NextStep::Continue if self.replies.bytes.len() >= REPLY_BYTES => break Next::Write,
                NextStep::Continue if self.turn_commands >= TURN_COMMANDS => break Next::Yield,
                NextStep::Continue => {}
                NextStep::Authenticate(pending) => break Next::Authenticate(pending),
                NextStep::Wait(pending) => break Next::Wait(pending),
                NextStep::Close => break Next::Close,
            }
        };
        drop(words);
        counter.flush();
        if has_run {
            // The next command has its own deadline.
            self.deadline = None;
        }
        self.input.drain(..used);
        next
    }

    /// Appends the reply of an error that ends the connection.
    fn refuse(&mut self, error: &Error) {
        let mut counter = CommandCounter::new(self.worker);
        counter.add(&self.session.refuse(OTHER, error, &mut self.replies));
        counter.flush();
    }
}

/// Counts the commands that came together, a run of equal ones at once. The latency of each is the time that all of them took.
struct CommandCounter<'w, C> {
    worker: &'w RespWorker<C>,
    began_at: Nanos,
    same: Option<((&'static str, Status), u64)>,
}

impl<'w, C> CommandCounter<'w, C> {
    fn new(worker: &'w RespWorker<C>) -> Self {
        Self { worker, began_at: worker.clock.now().as_nanos(), same: None }
    }

    fn add(&mut self, result: &CommandResult) {
        let kind = (result.route, result.status);
        match &mut self.same {
            Some((same, count)) if *same == kind => *count += 1,
            _ => {
                self.flush();
                self.same = Some((kind, 1));
            }
        }
    }

    /// Counts the commands that were added and not counted.
    fn flush(&self) {
        if let Some(((route, status), count)) = self.same {
            let took = self.worker.clock.now().as_nanos().saturating_sub(self.began_at);
            self.worker.latencies.count_many(route, status as u16, took, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
    };

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn bytes_that_came_before_a_stop_are_read_although_the_runtime_does_not_know_of_them() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (socket, _) = listener.accept().expect("a connection");
        socket.set_nonblocking(true).expect("a socket");
        let mut stream = tokio::net::TcpStream::from_std(socket).expect("a runtime");
        let mut input = Vec::new();
        assert!(timeout(SOCKET_POLL, stream.read_buf(&mut input)).await.is_err(), "nothing has come");
        let (stop_sender, stop) = oneshot::channel();
        peer.write_all(b"PING").expect("room");
        drop(stop_sender);
        let mut stop = Some(stop);
        assert!(matches!(read(&mut stream, &mut input, &mut stop).await, Some(Ok(4))));
        assert!(read(&mut stream, &mut input, &mut stop).await.is_none());
        assert_eq!(input, b"PING");
    }
}
