//! What a lane of the door does with a connection: reads commands, runs them, and writes the replies to all that came together
//! in one piece.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tidegate::{
    KeyedLimiter, Limiter, RatedLimiter,
    clock::{Clock, SystemClock},
    time::Nanos,
};
use tidegate_listener::{ConnectionPermit, PeerNetwork, PeerTurns};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    task::{coop::unconstrained, yield_now},
    time::{Instant, timeout, timeout_at},
};

use super::{
    KIND, Operators,
    command_table::OTHER,
    error::Error,
    frame_reader::{Arguments, Decoded, Decoder},
    reply_writer::Replies,
    session::{Asked, Ran, Session, Status, Then, Waiting},
};
use crate::{
    listeners::Shared,
    shared::{
        body_budget::{BLOCK_BYTES, BodyPermit, ConnectionShare, PermitPhase},
        latency::Latencies,
        worker_threads::{self, Leave},
    },
};

/// A timer of this length is long enough for the runtime to ask the system about its sockets.
const TURN: Duration = Duration::from_millis(1);
/// Commands that are run in one turn of a connection. Without that bound it would be as many as are in 64 KiB, which is what a
/// task may read in a turn: a thousand and more.
const TURN_COMMANDS: usize = 128;
/// What a connection reads into at first.
const INPUT_BYTES: usize = 4 << 10;
/// So many bytes of replies are written before more commands are run: a peer that does not read is not answered on.
const REPLY_BYTES: usize = 16 << 10;
/// The longest token that somebody else is asked about, and how all of them begin.
const TOKEN_BYTES_MAX: usize = 1_024;
const TOKEN_BEGIN: &str = "tg_";

/// One lane's part of the door.
pub(super) struct Door<C> {
    pub(super) shared: Arc<Shared<C>>,
    pub(super) whole: Arc<Whole<C>>,
    pub(super) latencies: Arc<Latencies>,
    pub(super) clock: SystemClock,
}

/// What all lanes share.
pub(super) struct Whole<C> {
    pub(super) throttle: Arc<RatedLimiter<C>>,
    pub(super) operators: Option<Arc<dyn Operators>>,
    /// How often others may be asked about tokens, for one address and in all.
    pub(super) tries_of_one: KeyedLimiter,
    pub(super) tries: Limiter,
    pub(super) connections: AtomicI64,
    pub(super) started: Nanos,
}

impl<C: Clock> worker_threads::Door for Door<C> {
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
        self: Rc<Self>,
        mut stream: S,
        peer: SocketAddr,
        permit: Rc<ConnectionPermit>,
        _: Rc<PeerTurns>,
        leave: Leave,
    ) {
        let periods = self.shared.periods;
        let mut leave = Some(leave);
        let mut conversation = Conversation::new(&self, peer, permit);
        let is_ended_here = loop {
            let deadline = conversation.deadline();
            let read = match conversation.make_room() {
                Ok((room, permit)) => {
                    let read = async {
                        let read = read(&mut stream, room, &mut leave);
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
                Ok(Some(Ok(1..))) => match conversation.answer_in_time(&mut stream).await {
                    Some(true) => {}
                    Some(false) => break true,
                    None => return,
                },
                Ok(None) => break true,
                Ok(Some(_)) => break false,
                Err(error) => {
                    conversation.refuse(&error);
                    break true;
                }
            }
        };
        conversation.give_back();
        // Whoever has gone is not told.
        if conversation.write(&mut stream).await.is_ok() && stream.shutdown().await.is_ok() && is_ended_here {
            // What he sends besides is thrown away: left unread, it would have the system throw away the last reply.
            let _ = timeout(periods.discard, async {
                while stream.read(&mut [0; 512]).await.is_ok_and(|bytes| bytes > 0) {}
            })
            .await;
        }
    }
}

/// Reads what comes. `None`: the connection is to end, and nothing more has come.
///
/// When it is to end, the runtime is given [`TURN`] to ask the system what has come: what it knows of a socket may be older.
async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    to: &mut Vec<u8>,
    leave: &mut Option<Leave>,
) -> Option<io::Result<usize>> {
    let mut read = pin!(stream.read_buf(to));
    if let Some(leave) = leave {
        tokio::select! {
            biased;
            _ = leave => {}
            read = &mut read => return Some(read),
        }
    }
    *leave = None;
    // Else a task that has done much may be told that there is nothing.
    timeout(TURN, unconstrained(read)).await.ok()
}

/// What is under way on a connection.
struct Conversation<'d, C> {
    door: &'d Door<C>,
    session: Session<'d, C>,
    decoder: Decoder,
    input: Vec<u8>,
    /// The permit for the input.
    permit: BodyPermit,
    replies: Replies,
    /// Commands that were run in this turn.
    turn_commands: usize,
    /// When a command has to be whole that has begun.
    due: Option<Instant>,
}

/// What is to be done when commands have been run.
enum Next {
    /// All have.
    Read,
    /// There are more; first the replies are to be written.
    Write,
    /// There are more; first the replies are to be written, and other tasks of the thread have a turn.
    Yield,
    Ask(Asked),
    Wait(Waiting),
    Close,
}

impl<'d, C: Clock> Conversation<'d, C> {
    fn new(door: &'d Door<C>, peer: SocketAddr, permit: Rc<ConnectionPermit>) -> Self {
        Self {
            door,
            session: Session::new(door, peer, permit),
            decoder: Decoder::default(),
            input: Vec::new(),
            permit: BodyPermit::new(&ConnectionShare::new(&door.shared.body_budget, peer.ip())),
            replies: Replies::default(),
            turn_commands: 0,
            due: None,
        }
    }

    /// Returns what to read into, and the permit for it. An error: the body budget has no room for a command of this length.
    fn make_room(&mut self) -> Result<(&mut Vec<u8>, &BodyPermit), Error> {
        if self.input.len() <= BLOCK_BYTES && self.has_part() {
            self.input.shrink_to(BLOCK_BYTES);
            self.permit.hold(BLOCK_BYTES)?;
        }
        if self.input.len() == self.input.capacity() {
            let more = self.input.capacity().max(INPUT_BYTES);
            if self.input.len() + more > BLOCK_BYTES && !self.session.is_known() {
                return Err(Error::LongNoAuth);
            }
            self.permit.hold(self.input.len() + more)?;
            self.input.reserve_exact(more);
        }
        Ok((&mut self.input, &self.permit))
    }

    /// Returns whether the input has part of the body budget.
    fn has_part(&self) -> bool {
        self.input.capacity() > BLOCK_BYTES
    }

    /// Reads no more.
    fn give_back(&mut self) {
        self.input = Vec::new();
        // An error: it was revoked, and holds nothing.
        let _ = self.permit.hold(0);
    }

    /// Until when what comes next is waited for; `None`: as long as the connection lives.
    fn deadline(&mut self) -> Option<Instant> {
        if self.input.is_empty() && !self.decoder.is_within() {
            self.due = None;
        } else if self.due.is_none() {
            self.permit.enter(PermitPhase::Body);
            self.due = Some(Instant::now() + self.door.shared.periods.request);
        }
        self.due
    }

    /// The same as [`answer`](Self::answer). `None`: what it has of the body budget was revoked.
    async fn answer_in_time(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> Option<bool> {
        if !self.has_part() {
            return Some(self.answer(stream).await);
        }
        self.permit.enter(PermitPhase::Answer);
        let revocation = self.permit.revocation();
        tokio::select! {
            biased;
            answered = self.answer(stream) => Some(answered),
            _ = poll_fn(|context| revocation.poll_unseen(context)) => None,
        }
    }

    /// Runs the commands that have come, and writes the replies. False: it was the end.
    async fn answer(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> bool {
        if let Some(token) = self.session.look_again() {
            let answer = self.door.ask(&token).await;
            self.session.told_again(&token, answer);
        }
        loop {
            let next = self.run();
            // While it waits for its next turn it may be dropped, so no reply is left to be written then.
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
                Next::Ask(asked) => {
                    let mut tally = Tally::new(self.door);
                    let answer = self.door.ask(&asked.token).await;
                    tally.add(&self.session.told(&asked, answer, &mut self.replies));
                    tally.count();
                }
                Next::Wait(waiting) => {
                    let mut tally = Tally::new(self.door);
                    tally.add(&self.session.waited(waiting, &mut self.replies).await);
                    tally.count();
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

    /// Runs commands, until there are no more, or what comes is not to be done at once.
    fn run(&mut self) -> Next {
        let mut tally = Tally::new(self.door);
        let mut words = Arguments::new();
        let (mut done, mut has_run) = (0, false);
        let next = loop {
            let refused = match self.decoder.next(&self.input[done..], &mut words) {
                Ok((bytes, decoded)) => {
                    done += bytes;
                    match decoded {
                        Decoded::Part => break Next::Read,
                        Decoded::Command => None,
                        Decoded::TooMany => Some(Error::TooMany),
                        Decoded::Quotes => Some(Error::Quotes),
                    }
                }
                Err(error) => Some(Error::Protocol(error)),
            };
            let ran = match refused {
                None => self.session.run(&words, &mut self.replies),
                Some(error) => self.session.refuse(OTHER, &error, &mut self.replies),
            };
            has_run = true;
            self.turn_commands += 1;
            // What is asked elsewhere is counted when it is told.
            if !matches!(ran.then, Then::Ask(_) | Then::Wait(_)) {
                tally.add(&ran);
            }
            match ran.then {
                Then::Next if self.replies.bytes.len() >= REPLY_BYTES => break Next::Write,
                Then::Next if self.turn_commands >= TURN_COMMANDS => break Next::Yield,
                Then::Next => {}
                Then::Ask(asked) => break Next::Ask(asked),
                Then::Wait(waiting) => break Next::Wait(waiting),
                Then::Close => break Next::Close,
            }
        };
        drop(words);
        tally.count();
        if has_run {
            // The next command has its own time.
            self.due = None;
        }
        self.input.drain(..done);
        next
    }

    fn refuse(&mut self, error: &Error) {
        let mut tally = Tally::new(self.door);
        tally.add(&self.session.refuse(OTHER, error, &mut self.replies));
        tally.count();
    }
}

/// Counts the commands that came together, those after one another that are alike at once: each took as long as all of them.
struct Tally<'d, C> {
    door: &'d Door<C>,
    began: Nanos,
    same: Option<((&'static str, Status), u64)>,
}

impl<'d, C> Tally<'d, C> {
    fn new(door: &'d Door<C>) -> Self {
        Self { door, began: door.clock.now(), same: None }
    }

    fn add(&mut self, ran: &Ran) {
        let of = (ran.route, ran.status);
        match &mut self.same {
            Some((same, count)) if *same == of => *count += 1,
            _ => {
                self.count();
                self.same = Some((of, 1));
            }
        }
    }

    fn count(&self) {
        if let Some(((route, status), count)) = self.same {
            let took = self.door.clock.now().saturating_sub(self.began);
            self.door.latencies.answered_alike(route, status as u16, took, count);
        }
    }
}

impl<C: Clock> Door<C> {
    /// A number for a connection.
    pub(super) fn next_id(&self) -> i64 {
        self.whole.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What was refused.
    pub(super) fn refused(&self, route: &'static str, error: &Error) {
        tracing::debug!(route, code = error.code(), "refused");
        self.shared.metrics.refused(KIND.name, error.code());
        if matches!(error, Error::Internal) {
            self.shared.watch.failed();
        }
    }

    /// May this be asked by somebody who has a token of an operator, or none?
    pub(super) fn may_reset(&self, is_operator: bool) -> Result<(), Error> {
        match &self.whole.operators {
            _ if is_operator => Ok(()),
            Some(_) => Err(Error::NotOperator),
            None => Err(Error::NoOperators),
        }
    }

    /// The text of a token that is not known here, if somebody else may know it.
    pub(super) fn to_ask(&self, token: &[u8], peer: SocketAddr) -> Result<String, Error> {
        let Whole { operators, tries_of_one, tries, .. } = &*self.whole;
        if operators.is_none() {
            return Err(if self.shared.tokens.is_some() { Error::WrongToken } else { Error::NoTokens });
        }
        let token = str::from_utf8(token).ok();
        let token = token.filter(|token| token.len() <= TOKEN_BYTES_MAX && token.starts_with(TOKEN_BEGIN));
        let token = token.ok_or(Error::WrongToken)?;
        if tries_of_one.check(PeerNetwork::from(peer.ip()).address()).is_allowed() && tries.check().is_allowed() {
            Ok(token.to_owned())
        } else {
            Err(Error::TooManyTries)
        }
    }

    /// Asks whether a token is one of an operator.
    async fn ask(&self, token: &str) -> Result<bool, String> {
        let Some(operators) = &self.whole.operators else { return Ok(false) };
        let asked = timeout(self.shared.periods.operator_answer, operators.has(token)).await;
        asked.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
    }

    /// As `INFO` has it: the sections that are asked for, or all.
    pub(super) fn info(&self, sections: &[&[u8]]) -> String {
        let engine = self.shared.decider.engine();
        let totals = engine.totals();
        let version = env!("CARGO_PKG_VERSION");
        let uptime_s = self.clock.now().saturating_sub(self.whole.started) / tidegate::time::SECOND_NS;
        let server = format!(
            "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\ntidegate_version:{version}\r\n\
             process_id:{}\r\nuptime_in_seconds:{uptime_s}\r\n",
            std::process::id()
        );
        let stats = format!(
            "# Stats\r\ntotal_connections_received:{}\r\npolicy_version:{}\r\ndecisions_allowed:{}\r\n\
             decisions_denied:{}\r\nthrottle_overflow_charges:{}\r\n",
            self.whole.connections.load(Ordering::Relaxed),
            engine.version(),
            totals.allowed,
            totals.denied,
            self.whole.throttle.overflow_charges(),
        );
        let is_asked = |section: &str| {
            let names = [section, "default", "all", "everything"];
            sections.is_empty()
                || sections.iter().any(|asked| names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(asked)))
        };
        let parts = [("server", server), ("stats", stats)].into_iter().filter(|(name, _)| is_asked(name));
        parts.map(|(_, text)| text).collect::<Vec<_>>().join("\r\n")
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
    async fn what_came_before_the_end_is_read_also_if_the_runtime_does_not_know_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (socket, _) = listener.accept().expect("a connection");
        socket.set_nonblocking(true).expect("a socket");
        let mut stream = tokio::net::TcpStream::from_std(socket).expect("a runtime");
        let mut input = Vec::new();
        assert!(timeout(TURN, stream.read_buf(&mut input)).await.is_err(), "nothing has come");
        let (tell, leave) = oneshot::channel();
        peer.write_all(b"PING").expect("room");
        drop(tell);
        let mut leave = Some(leave);
        assert!(matches!(read(&mut stream, &mut input, &mut leave).await, Some(Ok(4))));
        assert!(read(&mut stream, &mut input, &mut leave).await.is_none());
        assert_eq!(input, b"PING");
    }
}
