//! The commands that there are: their names, and what `COMMAND` tells of them.

use super::reply_writer::Replies;

/// What a command does.
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

/// A command, as `COMMAND` tells it.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) verb: Verb,
    /// How many words it has, with its name; below 0: at least so many.
    arity: i8,
    flags: &'static [&'static str],
    /// The words that are keys: first, last (below 0: from the end), and steps between them; all 0: none.
    keys: [i64; 3],
    /// Its arguments, and what it is for.
    summary: &'static str,
}

/// What is asked most comes first.
pub(super) static COMMANDS: [Command; 13] = [
    Command {
        name: "cl.throttle",
        verb: Verb::ClThrottle,
        arity: -1,
        flags: &["write", "fast"],
        keys: [1, 1, 1],
        summary: "key max_burst count period [quantity]: count in period seconds, and max_burst beyond one at once",
    },
    Command {
        name: "tidegate.check",
        verb: Verb::Check,
        arity: -4,
        flags: &["write", "fast"],
        keys: [0; 3],
        summary: "kind value endpoint [cost] [request_id]: by the policy; an endpoint of * is none, a cost of 0 asks what is left",
    },
    Command {
        name: "throttle",
        verb: Verb::Throttle,
        arity: -1,
        flags: &["write", "fast"],
        keys: [1, 1, 1],
        summary: "key max_burst count period [quantity]: the same in the words of throttlecrab, max_burst at once",
    },
    Command {
        name: "ping",
        verb: Verb::Ping,
        arity: -1,
        flags: &["fast"],
        keys: [0; 3],
        summary: "[message]: PONG, or the message",
    },
    Command {
        name: "echo",
        verb: Verb::Echo,
        arity: 2,
        flags: &["fast"],
        keys: [0; 3],
        summary: "message: the message",
    },
    Command {
        name: "hello",
        verb: Verb::Hello,
        arity: -1,
        flags: &["fast", "no_auth"],
        keys: [0; 3],
        summary: "[2 | 3 [AUTH user token] [SETNAME name]]: which version of the protocol is spoken",
    },
    Command {
        name: "auth",
        verb: Verb::Auth,
        arity: -2,
        flags: &["fast", "no_auth"],
        keys: [0; 3],
        summary: "[user] token: one of --check-tokens, or one of role operator; whatever the user",
    },
    Command {
        name: "command",
        verb: Verb::Command,
        arity: -1,
        flags: &["fast"],
        keys: [0; 3],
        summary: "[COUNT | LIST | INFO [name ...] | DOCS [name ...]]: the commands",
    },
    Command {
        name: "info",
        verb: Verb::Info,
        arity: -1,
        flags: &["fast"],
        keys: [0; 3],
        summary: "[section ...]: about this server",
    },
    Command {
        name: "del",
        verb: Verb::Del,
        arity: -2,
        flags: &["write", "fast"],
        keys: [1, -1, 1],
        summary: "key ...: forgets what keys of CL.THROTTLE and THROTTLE have used; takes a token of role operator, or one of \
                  --check-tokens with the right reset",
    },
    Command {
        name: "quit",
        verb: Verb::Quit,
        arity: -1,
        flags: &["fast", "no_auth"],
        keys: [0; 3],
        summary: "ends the connection",
    },
    Command {
        name: "client",
        verb: Verb::Client,
        arity: -2,
        flags: &["fast"],
        keys: [0; 3],
        summary: "ID | GETNAME | SETNAME name | SETINFO attribute value: for clients that say who they are, which nobody keeps",
    },
    Command {
        name: "select",
        verb: Verb::Select,
        arity: 2,
        flags: &["fast"],
        keys: [0; 3],
        summary: "0: there is one database",
    },
];

/// As metrics know the commands.
pub(super) const ROUTES: [&str; COMMANDS.len() + 1] = {
    let mut routes = [OTHER; COMMANDS.len() + 1];
    let mut place = 0;
    while place < COMMANDS.len() {
        routes[place] = COMMANDS[place].name;
        place += 1;
    }
    routes
};
/// What is no command of these.
pub(super) const OTHER: &str = "other";
/// Those of one decision, whose answers tell how well the server is.
pub(super) const DECIDING: [&str; 3] = ["cl.throttle", "throttle", "tidegate.check"];

/// Those of one decision that no policy has.
pub(super) const THROTTLING: [&str; 2] = ["cl.throttle", "throttle"];

/// Finds a command, however it is written.
pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Command {
    /// May it have so many words, with its name?
    pub(super) fn takes(&self, words: usize) -> bool {
        let words = i64::try_from(words).unwrap_or(i64::MAX);
        let arity = i64::from(self.arity);
        if arity < 0 { words >= -arity } else { words == arity }
    }

    /// May somebody ask it who has not said who he is?
    pub(super) fn is_open(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    /// As `COMMAND INFO` has it.
    pub(super) fn info(&self, to: &mut Replies) {
        to.array(10);
        to.bulk(self.name.as_bytes());
        to.integer(self.arity.into());
        to.array(self.flags.len());
        for flag in self.flags {
            to.simple(flag);
        }
        to.integers(self.keys);
        // Categories, tips, specifications of keys, subcommands.
        for _ in 0..4 {
            to.array(0);
        }
    }

    /// As `COMMAND DOCS` has it, after its name.
    pub(super) fn docs(&self, to: &mut Replies) {
        to.bulk(self.name.as_bytes());
        to.map(3);
        for (field, text) in [("summary", self.summary), ("since", "0.1.0"), ("group", "generic")] {
            to.bulk(field.as_bytes());
            to.bulk(text.as_bytes());
        }
    }
}
