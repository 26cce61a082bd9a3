//! The table of commands of the RESP listener, the replies to `COMMAND`, and the listener's description in metrics.

use super::{error::Error, reply_writer::ReplyWriter, throttle::to_integer};
use crate::shared::latency::ListenerKind;

/// The status of a command, with its number in metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Done = 200,
    Denied = 429,
    Refused = 400,
    Failed = 500,
}

pub(crate) static KIND: ListenerKind = ListenerKind {
    name: "resp",
    routes: &ROUTES,
    deciding: &["cl.throttle", "throttle", "tidegate.check"],
    statuses: &[
        (Status::Done as u16, "ok"),
        (Status::Denied as u16, "denied"),
        (Status::Refused as u16, "error"),
        (Status::Failed as u16, "internal_error"),
    ],
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    ClThrottle,
    Throttle,
    Check,
    Ping,
    Echo,
    Hello,
    Auth,
    Command,
    Info,
    Del,
    Quit,
    Client,
    Select,
}

/// A command, as `COMMAND` describes it.
#[derive(Debug)]
pub(super) struct CommandSpec {
    pub(super) name: &'static str,
    pub(super) verb: Verb,
    /// The number of words, with the name. A negative number means at least so many.
    arity: i8,
    flags: &'static [&'static str],
    /// The words that are keys: the first, the last (negative from the end), and the step between them. All are 0 where
    /// there are none.
    keys: [i64; 3],
    /// The arguments and the purpose.
    summary: &'static str,
}

/// Returns a command of any number of words, without keys, that is fast.
const fn command(name: &'static str, verb: Verb, summary: &'static str) -> CommandSpec {
    CommandSpec { name, verb, arity: -1, flags: &["fast"], keys: [0; 3], summary }
}

/// All commands, the most frequent first, since they are searched in this order.
pub(super) static COMMANDS: [CommandSpec; 13] = [
    CommandSpec {
        flags: &["write", "fast"],
        keys: [1, 1, 1],
        ..command(
            "cl.throttle",
            Verb::ClThrottle,
            "key max_burst count period [quantity]: count in period seconds, and max_burst beyond one at once",
        )
    },
    CommandSpec {
        arity: -4,
        flags: &["write", "fast"],
        ..command(
            "tidegate.check",
            Verb::Check,
            "kind value endpoint [cost] [request_id]: by the policy; an endpoint of * is none, a cost of 0 asks what is left",
        )
    },
    CommandSpec {
        flags: &["write", "fast"],
        keys: [1, 1, 1],
        ..command(
            "throttle",
            Verb::Throttle,
            "key max_burst count period [quantity]: the same in the words of throttlecrab, max_burst at once",
        )
    },
    command("ping", Verb::Ping, "[message]: PONG, or the message"),
    CommandSpec { arity: 2, ..command("echo", Verb::Echo, "message: the message") },
    CommandSpec {
        flags: &["fast", "no_auth"],
        ..command(
            "hello",
            Verb::Hello,
            "[2 | 3 [AUTH user token] [SETNAME name]]: which version of the protocol is spoken",
        )
    },
    CommandSpec {
        arity: -2,
        flags: &["fast", "no_auth"],
        ..command("auth", Verb::Auth, "[user] token: one of --check-tokens, or one of role operator; whatever the user")
    },
    command("command", Verb::Command, "[COUNT | LIST | INFO [name ...] | DOCS [name ...]]: the commands"),
    command("info", Verb::Info, "[section ...]: about this server"),
    CommandSpec {
        name: "del",
        verb: Verb::Del,
        arity: -2,
        flags: &["write", "fast"],
        keys: [1, -1, 1],
        summary: "key ...: forgets what keys of CL.THROTTLE and THROTTLE have used; takes a token of role operator, or one of \
                  --check-tokens with the right reset",
    },
    CommandSpec { flags: &["fast", "no_auth"], ..command("quit", Verb::Quit, "ends the connection") },
    CommandSpec {
        arity: -2,
        ..command(
            "client",
            Verb::Client,
            "ID | GETNAME | SETNAME name | SETINFO attribute value: for clients that say who they are, which nobody keeps",
        )
    },
    CommandSpec { arity: 2, ..command("select", Verb::Select, "0: there is one database") },
];

pub(super) const ROUTES: [&str; COMMANDS.len() + 1] = {
    let mut routes = [OTHER; COMMANDS.len() + 1];
    let mut place = 0;
    while place < COMMANDS.len() {
        routes[place] = COMMANDS[place].name;
        place += 1;
    }
    routes
};
/// The route of every other command, in metrics.
pub(super) const OTHER: &str = "other";
/// The commands whose limit comes with the command.
pub(super) const THROTTLING: [&str; 2] = ["cl.throttle", "throttle"];

/// Finds a command by its name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
}

impl CommandSpec {
    /// Returns whether the command may have this many words, with its name.
    pub(super) fn takes(&self, words: usize) -> bool {
        let words = i64::try_from(words).unwrap_or(i64::MAX);
        let arity = i64::from(self.arity);
        if arity < 0 { words >= -arity } else { words == arity }
    }

    /// Returns whether the command needs no authentication.
    pub(super) fn is_open(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    /// Appends the reply of `COMMAND INFO`.
    fn info(&self, to: &mut ReplyWriter) {
        to.array(10);
        to.bulk(self.name.as_bytes());
        to.integer(self.arity.into());
        to.array(self.flags.len());
        for flag in self.flags {
            to.simple(flag);
        }
        to.integers(self.keys);
        // The categories, tips, key specifications and subcommands are empty.
        for _ in 0..4 {
            to.array(0);
        }
    }

    /// Appends the name and the reply of `COMMAND DOCS`.
    fn docs(&self, to: &mut ReplyWriter) {
        to.bulk(self.name.as_bytes());
        to.map(3);
        for (field, text) in [("summary", self.summary), ("since", "0.1.0"), ("group", "generic")] {
            to.bulk(field.as_bytes());
            to.bulk(text.as_bytes());
        }
    }
}

/// Appends the reply to `COMMAND` and its subcommands.
pub(super) fn describe_commands(arguments: &[&[u8]], to: &mut ReplyWriter) -> Result<(), Error> {
    let all = |to: &mut ReplyWriter| {
        to.array(COMMANDS.len());
        for command in &COMMANDS {
            command.info(to);
        }
    };
    let Some((subcommand, names)) = arguments.split_first() else {
        all(to);
        return Ok(());
    };
    if subcommand.eq_ignore_ascii_case(b"count") {
        to.integer(to_integer(COMMANDS.len() as u64));
    } else if subcommand.eq_ignore_ascii_case(b"list") {
        to.array(COMMANDS.len());
        for command in &COMMANDS {
            to.bulk(command.name.as_bytes());
        }
    } else if subcommand.eq_ignore_ascii_case(b"info") && names.is_empty() {
        all(to);
    } else if subcommand.eq_ignore_ascii_case(b"info") {
        to.array(names.len());
        for name in names {
            match find(name) {
                Some(command) => command.info(to),
                None => to.null(),
            }
        }
    } else if subcommand.eq_ignore_ascii_case(b"docs") {
        let is_named = |command: &&CommandSpec| {
            names.is_empty() || names.iter().any(|name| command.name.as_bytes().eq_ignore_ascii_case(name))
        };
        to.map(COMMANDS.iter().filter(is_named).count());
        for command in COMMANDS.iter().filter(is_named) {
            command.docs(to);
        }
    } else {
        return Err(unknown_subcommand("command", subcommand));
    }
    Ok(())
}

pub(super) fn unknown_subcommand(command: &'static str, given: &[u8]) -> Error {
    Error::UnknownOf { command, given: String::from_utf8_lossy(given).into_owned() }
}
