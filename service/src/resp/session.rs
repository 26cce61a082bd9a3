//! Runs the commands of one connection.

use std::{fmt, net::SocketAddr, num::NonZeroU16, panic::AssertUnwindSafe, rc::Rc, str, sync::Arc};

use futures_util::{FutureExt, future::LocalBoxFuture};
use tidegate::{DEFAULT_DOMAIN, Decision, Identity, Request, Retry, clock::Clock, time::Nanos};
use tidegate_listener::ConnectionPermit;

use super::{
    command_table::{COMMANDS, Command, OTHER, Verb, find},
    connection::Door,
    error::Error,
    reply_writer::Replies,
    throttle::{Dialect, Throttle, seconds, whole},
};
use crate::shared::{
    caller_shares::Caller,
    decider::{Answer, Decider, caught},
    request_id_cache::RequestId,
    tokens::{Good, Right},
};

/// The check by the policy, as metrics know it.
const CHECK: &str = "tidegate.check";

/// One connection, and who is at its other end.
pub(super) struct Session<'d, C> {
    door: &'d Door<C>,
    peer: SocketAddr,
    connection_permit: Rc<ConnectionPermit>,
    id: i64,
    who: Who,
    /// The group of the caller, for limits that come with the command. It follows from `who`.
    group: NonZeroU16,
    /// Is what comes part of a transaction that was refused?
    is_discarding: bool,
}

/// By what somebody may ask.
enum Who {
    /// Nothing. Where no token is asked for, he may ask all the same.
    Stranger,
    /// A token of the file.
    Caller(Good),
    /// One that others said was an operator's, at this time; `is_good`: the last time that they were asked, too.
    Operator { token: String, since: Nanos, is_good: bool },
}

/// What a command came to.
#[derive(Debug)]
pub(super) struct Ran {
    /// As metrics know the command.
    pub(super) route: &'static str,
    pub(super) status: Status,
    pub(super) then: Then,
}

/// How a command was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Done = 200,
    Denied = 429,
    Refused = 400,
    Failed = 500,
}

/// What comes after a command.
#[derive(Debug)]
pub(super) enum Then {
    Next,
    /// The end of the connection.
    Close,
    /// Who this is must be asked elsewhere; the answer goes to [`Session::told`].
    Ask(Asked),
    /// It waits for the store; what it comes to is told by [`Session::waited`].
    Wait(Waiting),
}

/// A check that waits: its reply, and whether it is allowed.
pub(super) struct Waiting(LocalBoxFuture<'static, (Vec<u8>, Result<bool, Error>)>);

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

/// A token that is not known here.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) token: String,
    /// `HELLO` brought it, for version 3, or 2.
    hello: Option<bool>,
}

/// What came of a command that was not refused.
enum Done {
    Next,
    Denied,
    Close,
    Ask(Asked),
    Wait(Waiting),
}

impl Done {
    fn of(is_allowed: bool) -> Self {
        if is_allowed { Self::Next } else { Self::Denied }
    }
}

impl<'d, C: Clock> Session<'d, C> {
    pub(super) fn new(door: &'d Door<C>, peer: SocketAddr, connection_permit: Rc<ConnectionPermit>) -> Self {
        let group = door.shared.decider.key_of(&Caller::without_token(peer.ip().into())).group();
        Self { door, peer, connection_permit, id: door.next_id(), who: Who::Stranger, group, is_discarding: false }
    }

    /// Runs a command, and appends its reply.
    pub(super) fn run(&mut self, words: &[&[u8]], to: &mut Replies) -> Ran {
        let Some((name, arguments)) = words.split_first() else {
            return Ran { route: OTHER, status: Status::Done, then: Then::Next };
        };
        if let Some(ran) = self.transaction(name, to) {
            return ran;
        }
        let Some(command) = find(name) else {
            let ran = self.refuse(OTHER, &Error::Unknown(String::from_utf8_lossy(name).into_owned()), to);
            // Somebody makes a browser talk to us: what follows may be a body of his.
            let is_http = name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:");
            return if is_http { Ran { then: Then::Close, ..ran } } else { ran };
        };
        let before = to.bytes.len();
        let done = caught(|| self.dispatch(command, arguments, to)).unwrap_or_else(|| {
            to.bytes.truncate(before);
            Err(Error::Internal)
        });
        let (status, then) = match done {
            Ok(Done::Next) => (Status::Done, Then::Next),
            Ok(Done::Denied) => (Status::Denied, Then::Next),
            Ok(Done::Close) => (Status::Done, Then::Close),
            Ok(Done::Ask(asked)) => (Status::Done, Then::Ask(asked)),
            Ok(Done::Wait(waiting)) => (Status::Done, Then::Wait(waiting)),
            Err(error) => return self.refuse(command.name, &error, to),
        };
        Ran { route: command.name, status, then }
    }

    /// Appends the reply to what cannot be done.
    pub(super) fn refuse(&self, route: &'static str, error: &Error, to: &mut Replies) -> Ran {
        to.error(&error.to_string());
        self.door.refused(route, error);
        let status = if matches!(error, Error::Internal) { Status::Failed } else { Status::Refused };
        Ran { route, status, then: if error.is_last() { Then::Close } else { Then::Next } }
    }

    /// Whether a token is one of an operator.
    pub(super) fn told(&mut self, asked: &Asked, answer: Result<bool, String>, to: &mut Replies) -> Ran {
        let route = if asked.hello.is_some() { "hello" } else { "auth" };
        match answer {
            Ok(true) => {
                self.set_who(Who::Operator { token: asked.token.clone(), since: self.door.clock.now(), is_good: true });
                self.connection_permit.authenticate();
                self.welcome(asked.hello, to);
                Ran { route, status: Status::Done, then: Then::Next }
            }
            Ok(false) => self.refuse(route, &Error::WrongToken, to),
            Err(why) => self.refuse(route, &Error::Away(why), to),
        }
    }

    /// Waits for a check, and appends its reply.
    pub(super) async fn waited(&self, Waiting(waiting): Waiting, to: &mut Replies) -> Ran {
        // As in `run`.
        let waited = AssertUnwindSafe(waiting).catch_unwind().await;
        let (reply, decided) = waited.unwrap_or_else(|_| (Vec::new(), Err(Error::Internal)));
        to.bytes.extend_from_slice(&reply);
        match decided {
            Ok(is_allowed) => {
                let status = if is_allowed { Status::Done } else { Status::Denied };
                Ran { route: CHECK, status, then: Then::Next }
            }
            Err(error) => self.refuse(CHECK, &error, to),
        }
    }

    /// Has he said a token, where one is asked for?
    pub(super) fn is_known(&self) -> bool {
        self.door.shared.tokens.is_none() || !matches!(self.who, Who::Stranger)
    }

    /// Returns an error unless the token of the file that the caller brought, if any, has this right, and in the domain whose
    /// response settings these commands have.
    fn permit(&self, right: Right) -> Result<(), Error> {
        if let Who::Caller(Good { rights, .. }) = &self.who {
            rights.permit(right)?;
            rights.permit_domain(DEFAULT_DOMAIN)?;
        }
        Ok(())
    }

    /// Returns an error unless the caller may reset keys: by a token of an operator, or by one of the file that has the right.
    fn permit_reset(&self) -> Result<(), Error> {
        match &self.who {
            Who::Caller(Good { rights, .. }) if rights.permit(Right::Reset).is_ok() => self.permit(Right::Reset),
            who => self.door.may_reset(matches!(who, Who::Operator { is_good: true, .. })),
        }
    }

    /// Looks whether his token is good still. Some: others are to be asked about it; the answer goes to
    /// [`told_again`](Self::told_again).
    pub(super) fn look_again(&mut self) -> Option<String> {
        match &mut self.who {
            Who::Stranger => None,
            Who::Caller(good) => {
                if !self.door.shared.tokens.as_ref().is_some_and(|tokens| tokens.is_still(good)) {
                    self.set_who(Who::Stranger);
                }
                None
            }
            Who::Operator { token, since, .. } => {
                let trusted = self.door.shared.periods.operator_trust.as_nanos();
                let is_over = u128::from(self.door.clock.now().saturating_sub(*since)) >= trusted;
                is_over.then(|| token.clone())
            }
        }
    }

    /// While others cannot be asked, an operator goes on as a caller.
    pub(super) fn told_again(&mut self, token: &str, answer: Result<bool, String>) {
        self.set_who(match answer {
            Ok(false) => Who::Stranger,
            answer => Who::Operator { token: token.to_owned(), since: self.door.clock.now(), is_good: answer.is_ok() },
        });
    }

    /// There are no transactions. What is sent as one is refused as a whole, so that nothing of it is charged; client libraries
    /// believe that only if `MULTI` itself is not refused.
    fn transaction(&mut self, name: &[u8], to: &mut Replies) -> Option<Ran> {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let is_discarding = self.is_discarding;
        if !is_discarding && is("multi") && self.is_known() || is_discarding && is("discard") {
            self.is_discarding = !is_discarding;
            to.simple("OK");
            return Some(Ran { route: OTHER, status: Status::Done, then: Then::Next });
        }
        if !is_discarding || is("quit") {
            return None;
        }
        self.is_discarding = !is("exec");
        let error = if self.is_discarding { Error::Transaction } else { Error::Discarded };
        Some(self.refuse(OTHER, &error, to))
    }

    fn dispatch(&mut self, command: &Command, arguments: &[&[u8]], to: &mut Replies) -> Result<Done, Error> {
        if !self.is_known() && !command.is_open() {
            return Err(Error::NoAuth);
        }
        if !command.takes(arguments.len() + 1) {
            return Err(Error::Count(command.name));
        }
        if matches!(command.verb, Verb::ClThrottle | Verb::Throttle | Verb::Check) {
            self.permit(Right::Check)?;
        }
        match command.verb {
            Verb::ClThrottle => return self.throttle(Dialect::RedisCell, arguments, to),
            Verb::Throttle => return self.throttle(Dialect::Throttlecrab, arguments, to),
            Verb::Check => return self.check(arguments, to),
            Verb::Ping => match arguments {
                [] => to.simple("PONG"),
                [message] => to.bulk(message),
                _ => return Err(Error::Count(command.name)),
            },
            Verb::Echo => to.bulk(arguments[0]),
            Verb::Hello => return self.hello(arguments, to),
            Verb::Auth => {
                let ([token] | [_, token]) = arguments else { return Err(Error::Count(command.name)) };
                return self.authenticate(token, None, to);
            }
            Verb::Command => commands(arguments, to)?,
            Verb::Info => to.bulk(self.door.info(arguments).as_bytes()),
            Verb::Del => {
                self.permit_reset()?;
                let count = arguments.iter().filter(|key| self.door.whole.throttle.reset(**key)).count();
                let (peer, keys) = (self.peer, arguments.len());
                tracing::info!(%peer, keys, forgotten = count, "keys were reset over the Redis protocol");
                to.integer(whole(count as u64));
            }
            Verb::Quit => {
                to.simple("OK");
                return Ok(Done::Close);
            }
            Verb::Client => match arguments[0] {
                of if of.eq_ignore_ascii_case(b"setinfo") || of.eq_ignore_ascii_case(b"setname") => to.simple("OK"),
                of if of.eq_ignore_ascii_case(b"id") => to.integer(self.id),
                of if of.eq_ignore_ascii_case(b"getname") => to.null(),
                of => return Err(unknown(command.name, of)),
            },
            Verb::Select => match arguments {
                [b"0"] => to.simple("OK"),
                _ => return Err(Error::Database),
            },
        }
        Ok(Done::Next)
    }

    fn throttle(&self, dialect: Dialect, arguments: &[&[u8]], to: &mut Replies) -> Result<Done, Error> {
        let throttle = Throttle::read(dialect, arguments)?;
        let (is_allowed, answer) =
            if let Some(outcome) = caught(|| throttle.charge(&self.door.whole.throttle, self.group)) {
                (outcome.is_allowed(), throttle.answer(&outcome))
            } else {
                let Answer { is_allowed, .. } = self.door.shared.decider.undecided(DEFAULT_DOMAIN);
                (is_allowed, throttle.undecided(is_allowed, Answer::CLOSED_WAIT))
            };
        to.array(answer.len());
        to.integers(answer);
        Ok(Done::of(is_allowed))
    }

    fn check(&self, arguments: &[&[u8]], to: &mut Replies) -> Result<Done, Error> {
        let (shared, caller) = (&self.door.shared, self.caller());
        if !shared.decider.waits() {
            let decided = check(&shared.decider, &caller, arguments, to).now_or_never();
            return decided.unwrap_or(Err(Error::Internal)).map(Done::of);
        }
        let (shared, is_version_3) = (Arc::clone(shared), to.is_version_3);
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_vec()).collect();
        let waiting = async move {
            let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
            let mut to = Replies { bytes: Vec::new(), is_version_3 };
            let decided = check(&shared.decider, &caller, &arguments, &mut to).await;
            (to.bytes, decided)
        };
        let mut waiting = waiting.boxed_local();
        let Some((reply, decided)) = (&mut waiting).now_or_never() else { return Ok(Done::Wait(Waiting(waiting))) };
        to.bytes.extend_from_slice(&reply);
        decided.map(Done::of)
    }

    fn set_who(&mut self, who: Who) {
        self.who = who;
        self.group = self.door.shared.decider.key_of(&self.caller()).group();
    }

    fn caller(&self) -> Caller {
        let peer = self.peer.ip().into();
        if let Who::Caller(good) = &self.who { Caller::with_token(peer, good) } else { Caller::without_token(peer) }
    }

    fn hello(&mut self, arguments: &[&[u8]], to: &mut Replies) -> Result<Done, Error> {
        let mut options = arguments.iter().skip(1);
        let is_version_3 = match arguments.first().copied() {
            None => to.is_version_3,
            Some(b"2") => false,
            Some(b"3") => true,
            Some(_) => return Err(Error::Version),
        };
        let mut token = None;
        while let Some(option) = options.next() {
            if option.eq_ignore_ascii_case(b"auth")
                && let (Some(_), Some(given)) = (options.next(), options.next())
            {
                token = Some(given);
            } else if !(option.eq_ignore_ascii_case(b"setname") && options.next().is_some()) {
                return Err(Error::Hello(String::from_utf8_lossy(option).into_owned()));
            }
        }
        if token.is_none() && !self.is_known() {
            return Err(Error::HelloNoAuth);
        }
        if let Some(token) = token {
            return self.authenticate(token, Some(is_version_3), to);
        }
        self.welcome(Some(is_version_3), to);
        Ok(Done::Next)
    }

    fn authenticate(&mut self, token: &[u8], hello: Option<bool>, to: &mut Replies) -> Result<Done, Error> {
        if let Some(good) = self.door.shared.tokens.as_ref().and_then(|tokens| tokens.find(token)) {
            self.set_who(Who::Caller(good));
            self.connection_permit.authenticate();
            self.welcome(hello, to);
            return Ok(Done::Next);
        }
        let token = self.door.to_ask(token, self.peer)?;
        Ok(Done::Ask(Asked { token, hello }))
    }

    /// The reply to whoever may ask; by `HELLO`, from now on in its version.
    fn welcome(&self, hello: Option<bool>, to: &mut Replies) {
        let Some(is_version_3) = hello else { return to.simple("OK") };
        to.is_version_3 = is_version_3;
        to.map(7);
        for (field, text) in [("server", "tidegate"), ("version", env!("CARGO_PKG_VERSION"))] {
            to.bulk(field.as_bytes());
            to.bulk(text.as_bytes());
        }
        to.bulk(b"proto");
        to.integer(if to.is_version_3 { 3 } else { 2 });
        to.bulk(b"id");
        to.integer(self.id);
        for (field, text) in [("mode", "standalone"), ("role", "master")] {
            to.bulk(field.as_bytes());
            to.bulk(text.as_bytes());
        }
        to.bulk(b"modules");
        to.array(0);
    }
}

/// Appends the decision. Is it allowed?
async fn check<C: Clock>(
    decider: &Decider<C>,
    caller: &Caller,
    arguments: &[&[u8]],
    to: &mut Replies,
) -> Result<bool, Error> {
    let text = |place: usize, field| match arguments.get(place) {
        Some(argument) => str::from_utf8(argument).map(Some).map_err(|_| Error::NotUtf8(field)),
        None => Ok(None),
    };
    let (kind, value) = (text(0, "kind")?.unwrap_or_default(), text(1, "value")?.unwrap_or_default());
    let identity = Identity::new(kind, value).map_err(Error::Request)?;
    let counted = decider.engine().counted(DEFAULT_DOMAIN, identity).map_err(Error::Request)?;
    let identity = [counted.identity()];
    let mut request = Request::new(&identity).map_err(Error::Request)?;
    if let Some(endpoint) = text(2, "endpoint")?.filter(|endpoint| !matches!(*endpoint, "" | "*")) {
        request = request.endpoint(endpoint).map_err(Error::Request)?;
    }
    let cost = text(3, "cost")?;
    let cost = cost.map_or(Ok(1), |cost| cost.parse().map_err(|_| Error::Cost(cost.to_owned())))?;
    request = if cost == 0 { request.without_cost() } else { request.cost(cost).map_err(Error::Request)? };
    let id = text(4, "request_id")?.map(RequestId::new).transpose().map_err(Error::RequestId)?;
    if arguments.len() > 5 {
        return Err(Error::Count(CHECK));
    }
    let answer = if cost == 0 {
        decider.peek(&request, caller).await
    } else {
        decider.check(&request, id, caller).await.map_err(|_| Error::Reused)?
    };
    decision(&answer, to);
    Ok(answer.is_allowed)
}

/// The five numbers of redis-cell, and the name of the limit that decided. Where there is none: -1 for its numbers.
fn decision(answer: &Answer<'_>, to: &mut Replies) {
    let decision = answer.decision.as_ref().filter(|decision| decision.limit_id().is_some());
    let wait = match decision.map(Decision::retry) {
        Some(Retry::After(wait)) => seconds(wait),
        None if !answer.is_allowed => seconds(Answer::CLOSED_WAIT),
        _ => -1,
    };
    let numbers = [
        i64::from(!answer.is_allowed),
        decision.and_then(Decision::limit).map_or(-1, whole),
        decision.and_then(Decision::remaining).map_or(-1, whole),
        wait,
        decision.and_then(Decision::reset_after).map_or(0, seconds),
    ];
    to.array(numbers.len() + 1);
    to.integers(numbers);
    match decision.and_then(Decision::limit_id) {
        Some(limit) => to.bulk(limit.as_bytes()),
        None => to.null(),
    }
}

/// `COMMAND`, and its subcommands.
fn commands(arguments: &[&[u8]], to: &mut Replies) -> Result<(), Error> {
    let all = |to: &mut Replies| {
        to.array(COMMANDS.len());
        for command in &COMMANDS {
            command.info(to);
        }
    };
    let Some((of, names)) = arguments.split_first() else {
        all(to);
        return Ok(());
    };
    if of.eq_ignore_ascii_case(b"count") {
        to.integer(whole(COMMANDS.len() as u64));
    } else if of.eq_ignore_ascii_case(b"list") {
        to.array(COMMANDS.len());
        for command in &COMMANDS {
            to.bulk(command.name.as_bytes());
        }
    } else if of.eq_ignore_ascii_case(b"info") && names.is_empty() {
        all(to);
    } else if of.eq_ignore_ascii_case(b"info") {
        to.array(names.len());
        for name in names {
            match find(name) {
                Some(command) => command.info(to),
                None => to.null(),
            }
        }
    } else if of.eq_ignore_ascii_case(b"docs") {
        let is_asked = |command: &&Command| {
            names.is_empty() || names.iter().any(|name| command.name.as_bytes().eq_ignore_ascii_case(name))
        };
        to.map(COMMANDS.iter().filter(is_asked).count());
        for command in COMMANDS.iter().filter(is_asked) {
            command.docs(to);
        }
    } else {
        return Err(unknown("command", of));
    }
    Ok(())
}

fn unknown(command: &'static str, given: &[u8]) -> Error {
    Error::UnknownOf { command, given: String::from_utf8_lossy(given).into_owned() }
}
