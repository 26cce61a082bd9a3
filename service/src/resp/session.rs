//! The session of one RESP connection: authenticates its caller and runs its commands.

use std::{net::SocketAddr, num::NonZeroU16, panic::AssertUnwindSafe, rc::Rc, sync::Arc};

use futures_util::{FutureExt, future::LocalBoxFuture};
use tidegate::{DEFAULT_DOMAIN, clock::Clock, time::Timestamp};
use tidegate_listener::ConnectionPermit;

use super::{
    check_command::{CHECK, check},
    command_table::{CommandSpec, OTHER, Status, Verb, describe_commands, find, unknown_subcommand},
    error::{Dialect, Error},
    reply_writer::ReplyWriter,
    throttle::{Throttle, to_integer},
    worker::RespWorker,
};
use crate::shared::{
    caller_shares::Caller,
    decider::{CheckResult, catch_panic},
    tokens::{Right, ValidToken},
};

pub(super) struct RespSession<'w, C> {
    worker: &'w RespWorker<C>,
    peer: SocketAddr,
    connection_permit: Rc<ConnectionPermit>,
    id: i64,
    authentication: Authentication,
    /// The group of the caller, for limits that come with the command. It follows from the authentication.
    group: NonZeroU16,
    /// Whether the commands belong to a transaction that was refused.
    is_discarding: bool,
}

enum Authentication {
    /// No token. Where the server asks for none, the connection may check all the same.
    None,
    /// A token of the server's file.
    Token(ValidToken),
    /// An operator's token, which was verified at this time. `is_verified` is false where the last query for it failed.
    Operator { token: String, since: Timestamp, is_verified: bool },
}

pub(super) struct CommandResult {
    /// The route of the command in metrics.
    pub(super) route: &'static str,
    pub(super) status: Status,
    pub(super) next: NextStep,
}

pub(super) enum NextStep {
    Continue,
    Close,
    /// A query whether a token is an operator's; its answer goes to [`RespSession::finish_authentication`].
    Authenticate(PendingAuthentication),
    /// A wait for the store; [`RespSession::finish_check`] ends it.
    Wait(PendingCheck),
}

/// A check that waits for the store: its reply, and whether it is allowed.
pub(super) struct PendingCheck(LocalBoxFuture<'static, (Vec<u8>, Result<bool, Error>)>);

/// An authentication by a token that the server's file does not have.
pub(super) struct PendingAuthentication {
    pub(super) token: String,
    /// Whether `HELLO` asked for version 3 of the protocol; `None` where the command was `AUTH`.
    hello: Option<bool>,
}

/// The status and next step of a command that was not refused.
type Done = (Status, NextStep);

const DONE: Done = (Status::Done, NextStep::Continue);

/// Returns the status and next step of a decision.
fn decided(is_allowed: bool) -> Done {
    (if is_allowed { Status::Done } else { Status::Denied }, NextStep::Continue)
}

impl<'w, C: Clock> RespSession<'w, C> {
    pub(super) fn new(worker: &'w RespWorker<C>, peer: SocketAddr, connection_permit: Rc<ConnectionPermit>) -> Self {
        let group = worker.shared.decider.key_of(&Caller::without_token(peer.ip().into())).group();
        let id = worker.next_connection_id();
        Self { worker, peer, connection_permit, id, authentication: Authentication::None, group, is_discarding: false }
    }

    /// Runs a command, and appends its reply.
    pub(super) fn run(&mut self, words: &[&[u8]], to: &mut ReplyWriter) -> CommandResult {
        let Some((name, arguments)) = words.split_first() else {
            return CommandResult { route: OTHER, status: Status::Done, next: NextStep::Continue };
        };
        if let Some(result) = self.refuse_transaction(name, to) {
            return result;
        }
        let Some(command) = find(name) else {
            let result = self.refuse(OTHER, &Error::Unknown(String::from_utf8_lossy(name).into_owned()), to);
            // A page in a browser sends this, and the following bytes may be a body that the page chose.
            let is_http = name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:");
            return if is_http { CommandResult { next: NextStep::Close, ..result } } else { result };
        };
        let before = to.bytes.len();
        let done = catch_panic(|| self.dispatch(command, arguments, to)).unwrap_or_else(|| {
            to.bytes.truncate(before);
            Err(Error::Internal)
        });
        match done {
            Ok((status, next)) => CommandResult { route: command.name, status, next },
            Err(error) => self.refuse(command.name, &error, to),
        }
    }

    /// Appends the reply of an error, and counts it.
    pub(super) fn refuse(&self, route: &'static str, error: &Error, to: &mut ReplyWriter) -> CommandResult {
        to.error(&error.to_string());
        self.worker.count_rejection(route, error);
        let status = if matches!(error, Error::Internal) { Status::Failed } else { Status::Refused };
        CommandResult { route, status, next: if error.is_last() { NextStep::Close } else { NextStep::Continue } }
    }

    /// Finishes an authentication by the answer whether the token is an operator's, and appends the reply.
    pub(super) fn finish_authentication(
        &mut self,
        pending: PendingAuthentication,
        answer: Result<bool, String>,
        to: &mut ReplyWriter,
    ) -> CommandResult {
        let PendingAuthentication { token, hello } = pending;
        let route = if hello.is_some() { "hello" } else { "auth" };
        match answer {
            Ok(true) => {
                let since = self.worker.clock.now();
                self.set_authentication(Authentication::Operator { token, since, is_verified: true });
                self.connection_permit.authenticate();
                self.append_welcome(hello, to);
                CommandResult { route, status: Status::Done, next: NextStep::Continue }
            }
            Ok(false) => self.refuse(route, &Error::WrongToken, to),
            Err(why) => self.refuse(route, &Error::Away(why), to),
        }
    }

    /// Waits for a check, and appends its reply.
    pub(super) async fn finish_check(
        &self,
        PendingCheck(pending): PendingCheck,
        to: &mut ReplyWriter,
    ) -> CommandResult {
        // A panic is an internal error, as in `run`.
        let finished = AssertUnwindSafe(pending).catch_unwind().await;
        let (reply, checked) = finished.unwrap_or_else(|_| (Vec::new(), Err(Error::Internal)));
        to.bytes.extend_from_slice(&reply);
        match checked {
            Ok(is_allowed) => {
                let (status, next) = decided(is_allowed);
                CommandResult { route: CHECK, status, next }
            }
            Err(error) => self.refuse(CHECK, &error, to),
        }
    }

    /// Returns whether the connection has authenticated, where the server asks for a token.
    pub(super) fn is_authenticated(&self) -> bool {
        self.worker.shared.tokens.is_none() || !matches!(self.authentication, Authentication::None)
    }

    /// Returns an error unless the caller's token of the file, if it sent one, has this right, and has it in the domain
    /// whose response settings these commands have.
    fn permit(&self, right: Right) -> Result<(), Error> {
        if let Authentication::Token(ValidToken { rights, .. }) = &self.authentication {
            rights.permit(right)?;
            rights.permit_domain(DEFAULT_DOMAIN)?;
        }
        Ok(())
    }

    /// Returns an error unless the caller may reset keys, by an operator's token or by a token of the file with the right.
    fn permit_reset(&self) -> Result<(), Error> {
        match &self.authentication {
            Authentication::Token(ValidToken { rights, .. }) if rights.permit(Right::Reset).is_ok() => {
                self.permit(Right::Reset)
            }
            Authentication::Operator { is_verified: true, .. } => Ok(()),
            _ if self.worker.resp.operators.is_some() => Err(Error::NotOperator),
            _ => Err(Error::NoOperators),
        }
    }

    /// Checks whether the token is still valid. Returns an operator's token that must be verified again; the answer goes to
    /// [`finish_reverification`](Self::finish_reverification).
    pub(super) fn token_to_reverify(&mut self) -> Option<String> {
        match &mut self.authentication {
            Authentication::None => None,
            Authentication::Token(token) => {
                if !self.worker.shared.tokens.as_ref().is_some_and(|tokens| tokens.refresh(token)) {
                    self.set_authentication(Authentication::None);
                }
                None
            }
            Authentication::Operator { token, since, .. } => {
                let trusted = self.worker.shared.timeouts.operator_trust;
                let is_expired = self.worker.clock.now().duration_since(*since) >= trusted;
                is_expired.then(|| token.clone())
            }
        }
    }

    /// Finishes a verification of an operator's token. Where the query failed, the operator goes on with the rights of a caller.
    pub(super) fn finish_reverification(&mut self, token: String, answer: Result<bool, String>) {
        let since = self.worker.clock.now();
        self.set_authentication(match answer {
            Ok(false) => Authentication::None,
            answer => Authentication::Operator { token, since, is_verified: answer.is_ok() },
        });
    }

    /// Refuses transactions, of which there are none, as a whole, so that no command of one is charged. `MULTI` itself
    /// is not refused, since client libraries would take the commands for run.
    fn refuse_transaction(&mut self, name: &[u8], to: &mut ReplyWriter) -> Option<CommandResult> {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let is_discarding = self.is_discarding;
        if !is_discarding && is("multi") && self.is_authenticated() || is_discarding && is("discard") {
            self.is_discarding = !is_discarding;
            to.simple("OK");
            return Some(CommandResult { route: OTHER, status: Status::Done, next: NextStep::Continue });
        }
        if !is_discarding || is("quit") {
            return None;
        }
        self.is_discarding = !is("exec");
        let error = if self.is_discarding { Error::Transaction } else { Error::Discarded };
        Some(self.refuse(OTHER, &error, to))
    }

    /// Runs a command, and appends its reply unless it returns an error.
    fn dispatch(&mut self, command: &CommandSpec, arguments: &[&[u8]], to: &mut ReplyWriter) -> Result<Done, Error> {
        if !self.is_authenticated() && !command.is_open() {
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
            Verb::Command => describe_commands(arguments, to)?,
            Verb::Info => to.bulk(self.worker.info(arguments).as_bytes()),
            Verb::Del => {
                self.permit_reset()?;
                let count = arguments.iter().filter(|key| self.worker.resp.throttle.reset(**key)).count();
                let (peer, keys) = (self.peer, arguments.len());
                tracing::info!(%peer, keys, forgotten = count, "keys were reset over the Redis protocol");
                to.integer(to_integer(count as u64));
            }
            Verb::Quit => {
                to.simple("OK");
                return Ok((Status::Done, NextStep::Close));
            }
            Verb::Client => match arguments[0] {
                name if name.eq_ignore_ascii_case(b"setinfo") || name.eq_ignore_ascii_case(b"setname") => {
                    to.simple("OK");
                }
                name if name.eq_ignore_ascii_case(b"id") => to.integer(self.id),
                name if name.eq_ignore_ascii_case(b"getname") => to.null(),
                name => return Err(unknown_subcommand(command.name, name)),
            },
            Verb::Select => match arguments {
                [b"0"] => to.simple("OK"),
                _ => return Err(Error::Database),
            },
        }
        Ok(DONE)
    }

    /// Runs `CL.THROTTLE` or `THROTTLE`.
    fn throttle(&self, dialect: Dialect, arguments: &[&[u8]], to: &mut ReplyWriter) -> Result<Done, Error> {
        let throttle = Throttle::read(dialect, arguments)?;
        let (is_allowed, numbers) =
            if let Some(outcome) = catch_panic(|| throttle.charge(&self.worker.resp.throttle, self.group)) {
                (outcome.is_allowed(), throttle.reply(&outcome))
            } else {
                let CheckResult { is_allowed, .. } = self.worker.shared.decider.undecided(DEFAULT_DOMAIN);
                (is_allowed, throttle.undecided_reply(is_allowed, CheckResult::CLOSED_WAIT))
            };
        to.array(numbers.len());
        to.integers(numbers);
        Ok(decided(is_allowed))
    }

    /// Runs `TIDEGATE.CHECK`, or begins to where it must wait for the store.
    fn check(&self, arguments: &[&[u8]], to: &mut ReplyWriter) -> Result<Done, Error> {
        let (shared, caller) = (&self.worker.shared, self.caller());
        if !shared.decider.can_wait() {
            let checked = check(&shared.decider, &caller, arguments, to).now_or_never();
            return checked.unwrap_or(Err(Error::Internal)).map(decided);
        }
        let (shared, is_version_3) = (Arc::clone(shared), to.is_version_3);
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_vec()).collect();
        let pending = async move {
            let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
            let mut to = ReplyWriter { bytes: Vec::new(), is_version_3 };
            let checked = check(&shared.decider, &caller, &arguments, &mut to).await;
            (to.bytes, checked)
        };
        let mut pending = pending.boxed_local();
        let Some((reply, checked)) = (&mut pending).now_or_never() else {
            return Ok((Status::Done, NextStep::Wait(PendingCheck(pending))));
        };
        to.bytes.extend_from_slice(&reply);
        checked.map(decided)
    }

    fn set_authentication(&mut self, authentication: Authentication) {
        self.authentication = authentication;
        self.group = self.worker.shared.decider.key_of(&self.caller()).group();
    }

    fn caller(&self) -> Caller {
        let peer = self.peer.ip().into();
        match &self.authentication {
            Authentication::Token(token) => Caller::with_token(peer, token),
            _ => Caller::without_token(peer),
        }
    }

    fn hello(&mut self, arguments: &[&[u8]], to: &mut ReplyWriter) -> Result<Done, Error> {
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
        if token.is_none() && !self.is_authenticated() {
            return Err(Error::HelloNoAuth);
        }
        if let Some(token) = token {
            return self.authenticate(token, Some(is_version_3), to);
        }
        self.append_welcome(Some(is_version_3), to);
        Ok(DONE)
    }

    /// Authenticates by a token of the file, or begins to by a token of an operator.
    fn authenticate(&mut self, token: &[u8], hello: Option<bool>, to: &mut ReplyWriter) -> Result<Done, Error> {
        if let Some(valid) = self.worker.shared.tokens.as_ref().and_then(|tokens| tokens.find(token)) {
            self.set_authentication(Authentication::Token(valid));
            self.connection_permit.authenticate();
            self.append_welcome(hello, to);
            return Ok(DONE);
        }
        let token = self.worker.operator_token(token, self.peer)?;
        Ok((Status::Done, NextStep::Authenticate(PendingAuthentication { token, hello })))
    }

    /// Appends the reply to an authentication. Replies to `HELLO` and those after it have the version that it asked for.
    fn append_welcome(&self, hello: Option<bool>, to: &mut ReplyWriter) {
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
