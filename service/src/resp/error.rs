//! The errors of the RESP listener, and the table of each error's prefix in a reply and stable code in metrics. A
//! denial is not an error.

use std::fmt;

use tidegate::{RequestError, algorithm::NUMBER_MAX};

use super::frame_reader::{ARGUMENTS_MAX, ProtocolError};
use crate::shared::{
    body_budget::BudgetRefusal,
    request_id_cache::{BadRequestId, RequestId},
    tokens::Forbidden,
};

/// The longest quotation of what a caller sent, in characters.
const QUOTED_CHARACTERS_MAX: usize = 128;

/// The limiter whose arguments and replies a command has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    /// The dialect of redis-cell: a bucket holds one more than `max_burst`, and the reply begins with 0 when it is allowed.
    RedisCell,
    /// The dialect of throttlecrab: a bucket holds `max_burst`, and the reply begins with 1 when it is allowed and ends
    /// with the wait.
    Throttlecrab,
}

/// The error of a command. Nothing was charged.
#[derive(Debug)]
pub(super) enum Error {
    /// Bytes that are no command. The connection ends.
    Protocol(ProtocolError),
    /// A command that did not come whole in time. The connection ends.
    TooSlow,
    /// The body budget has no room for the command. The connection ends.
    Overload,
    /// A command that is not known.
    Unknown(String),
    /// A subcommand that is not known.
    UnknownOf { command: &'static str, given: String },
    /// A number of arguments that the command does not take.
    Count(&'static str),
    /// More arguments than any command takes.
    TooMany,
    /// Unbalanced quotes or an escape in a line.
    Quotes,
    /// A number of arguments that `CL.THROTTLE` or `THROTTLE` does not take.
    Usage(Dialect),
    /// An argument that is no whole number.
    NotWhole(Dialect, String),
    /// A number that cannot be used, with its name and the reason.
    Number(Dialect, String),
    /// An argument that must be UTF-8 and is not.
    NotUtf8(&'static str),
    /// A cost that is no whole number.
    Cost(String),
    /// The engine does not take the request.
    Request(RequestError),
    /// A request ID that is empty or too long.
    RequestId(BadRequestId),
    /// A request ID that came with another request before.
    Reused,
    /// The connection has not authenticated.
    NoAuth,
    /// The connection has not authenticated, and the command is long. The connection ends.
    LongNoAuth,
    /// The connection has not authenticated, and `HELLO` did not authenticate it.
    HelloNoAuth,
    /// A token that is not known.
    WrongToken,
    /// A token, where the server asks for none.
    NoTokens,
    /// The query for an operator's token failed, with the reason.
    Away(String),
    /// Too many tokens in a second that the server's file does not have.
    TooManyTries,
    /// A token of the file that lacks the right.
    Forbidden(Forbidden),
    /// The command requires an operator's token.
    NotOperator,
    /// The command requires an operator's token, and the server has no admin server that knows those.
    NoOperators,
    /// A command in a transaction.
    Transaction,
    /// The end of a transaction.
    Discarded,
    /// A version of the protocol that is not spoken.
    Version,
    /// A part of `HELLO` that is not known.
    Hello(String),
    /// A database other than 0.
    Database,
    /// A panic.
    Internal,
}

impl From<Forbidden> for Error {
    fn from(forbidden: Forbidden) -> Self {
        Self::Forbidden(forbidden)
    }
}

impl From<BudgetRefusal> for Error {
    fn from(refusal: BudgetRefusal) -> Self {
        if refusal == BudgetRefusal::Overdue { Self::TooSlow } else { Self::Overload }
    }
}

impl Error {
    /// Returns the prefix of the reply, by which clients tell errors apart, and the code.
    fn kind(&self) -> (&'static str, &'static str) {
        match self {
            Self::Protocol(_) => ("ERR", "bad_protocol"),
            Self::TooSlow => ("ERR", "too_slow"),
            Self::Overload => ("ERR", "overload"),
            Self::Unknown(_) | Self::UnknownOf { .. } => ("ERR", "unknown_command"),
            Self::Count(_) | Self::TooMany | Self::Usage(Dialect::Throttlecrab) => ("ERR", "bad_arguments"),
            Self::Usage(Dialect::RedisCell) => ("Cell error:", "bad_arguments"),
            Self::NotWhole(Dialect::RedisCell, _) | Self::Number(Dialect::RedisCell, _) => {
                ("Cell error:", "bad_number")
            }
            Self::NotWhole(..) | Self::Number(..) => ("ERR", "bad_number"),
            Self::Quotes => ("ERR", "bad_quotes"),
            Self::NotUtf8(_) | Self::Hello(_) | Self::Database => ("ERR", "bad_field"),
            Self::Cost(_) | Self::Request(RequestError::Cost(_)) => ("ERR", "bad_cost"),
            Self::Request(RequestError::Kind(_)) => ("ERR", "bad_kind"),
            Self::Request(RequestError::Value { .. } | RequestError::Address(_)) => ("ERR", "bad_value"),
            Self::Request(RequestError::Endpoint(_)) => ("ERR", "bad_endpoint"),
            Self::Request(RequestError::Identities(_) | RequestError::RepeatedKind(_)) => ("ERR", "bad_identities"),
            Self::RequestId(_) => ("ERR", "bad_request_id"),
            Self::Reused => ("ERR", "request_id_reused"),
            Self::NoAuth | Self::LongNoAuth | Self::HelloNoAuth => ("NOAUTH", "no_token"),
            Self::WrongToken => ("WRONGPASS", "wrong_token"),
            Self::NoTokens => ("ERR", "no_tokens"),
            Self::Away(_) => ("ERR", "away"),
            Self::TooManyTries => ("ERR", "too_many"),
            Self::Forbidden(_) | Self::NotOperator | Self::NoOperators => ("NOPERM", "forbidden"),
            Self::Transaction => ("ERR", "transaction"),
            Self::Discarded => ("EXECABORT", "transaction"),
            Self::Version => ("NOPROTO", "bad_version"),
            Self::Internal => ("ERR", "internal_error"),
        }
    }

    /// Returns the code in metrics.
    pub(super) fn code(&self) -> &'static str {
        self.kind().1
    }

    /// Returns whether the connection ends with the error.
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::Protocol(_) | Self::TooSlow | Self::Overload | Self::LongNoAuth)
    }
}

/// Writes the reply: the prefix, what is wrong, and what to do.
impl fmt::Display for Error {
    // Long, since it has one arm for each error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind().0)?;
        match self {
            Self::Protocol(error) => error.fmt(f),
            Self::TooSlow => f.write_str("Protocol error: the command did not come to its end in time; send it at once"),
            Self::Overload => f.write_str("too many long commands are being read at once; send it again"),
            Self::Unknown(name) => write!(
                f,
                "unknown command '{}'; there are CL.THROTTLE, THROTTLE and TIDEGATE.CHECK, and COMMAND tells the others",
                quoted(name)
            ),
            Self::UnknownOf { command, given } => write!(f, "unknown subcommand '{}' of '{command}'", quoted(given)),
            Self::Count(command) => write!(f, "wrong number of arguments for '{command}' command"),
            Self::TooMany => write!(f, "too many arguments; {ARGUMENTS_MAX} fit, with the name of the command"),
            Self::Quotes => f.write_str("unbalanced quotes, or a backslash within them; send an array of bulk strings"),
            Self::Usage(Dialect::RedisCell) => {
                f.write_str("Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")
            }
            Self::Usage(Dialect::Throttlecrab) => f.write_str("wrong number of arguments for 'throttle' command"),
            Self::NotWhole(_, given) => write!(f, "Couldn't parse as integer: {}", quoted(given)),
            Self::Number(_, why) => f.write_str(why),
            Self::NotUtf8(field) => write!(f, "{field}: it is not UTF-8"),
            Self::Cost(given) => {
                write!(f, "cost: `{}` is no whole number from 0 to {NUMBER_MAX}; 0 asks what is left", quoted(given))
            }
            Self::Request(error) => error.fmt(f),
            Self::RequestId(BadRequestId { bytes }) => {
                write!(f, "request_id: {bytes} bytes; from 1 to {} fit", RequestId::BYTES_MAX)
            }
            Self::Reused => f.write_str(
                "request_id: came with another request in the last 60 s; give each request an id of its own, and a repeat what \
                 the first one had",
            ),
            Self::NoAuth => f.write_str("Authentication required."),
            Self::LongNoAuth => f.write_str("commands above 16 KiB take a token; send AUTH first"),
            Self::HelloNoAuth => f.write_str(
                "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
                 option can be used to authenticate the client and select the RESP protocol version at the same time",
            ),
            Self::WrongToken => f.write_str("invalid username-password pair or user is disabled."),
            Self::NoTokens => f.write_str(
                "AUTH <password> called without any password configured for the default user. Are you sure your configuration \
                 is correct? The server knows neither --check-tokens nor an admin server",
            ),
            Self::Away(why) => write!(f, "the admin server cannot be asked for tokens now: {why}; try again"),
            Self::TooManyTries => f.write_str("too many tokens that are not known; try again in a second"),
            Self::Forbidden(forbidden) => forbidden.fmt(f),
            Self::NotOperator => f.write_str(
                "this command takes a token of role operator, which an administrator makes under Tokens, or one of \
                 --check-tokens with the right `reset`; send it with AUTH",
            ),
            Self::NoOperators => f.write_str(
                "this command takes a token of role operator, and this server has no admin server that knows those; or one of \
                 --check-tokens with the right `reset`",
            ),
            Self::Transaction => f.write_str(
                "there are no transactions: send the commands as a plain pipeline (in redis-py: transaction=False); until EXEC \
                 or DISCARD all is refused",
            ),
            Self::Discarded => f.write_str("Transaction discarded because of previous errors."),
            Self::Version => f.write_str("unsupported protocol version; 2 and 3 are spoken"),
            Self::Hello(given) => write!(f, "Syntax error in HELLO option '{}'", quoted(given)),
            Self::Database => f.write_str("DB index is out of range; there is 0 alone"),
            Self::Internal => f.write_str("something went wrong in here; the log of this server says what"),
        }
    }
}

/// Returns what a caller sent in a form that a message can quote: short, and without control characters.
fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_CHARACTERS_MAX).map(|one| if one.is_control() { ' ' } else { one }).collect()
}
