//! The errors of the RESP listener, and the table of each error's prefix in a reply and stable code in metrics. A
//! denial is not an error.

use derive_more::{Display, From};
use tidegate::{RequestError, algorithm::NUMBER_MAX};

use super::frame_reader::{ARGUMENTS_MAX, ProtocolError};
use crate::shared::{
    body_budget::BudgetRefusal,
    request_id_cache::{BadRequestId, Reused},
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

impl Dialect {
    /// Returns the message to a command with a wrong number of arguments.
    fn usage(self) -> &'static str {
        match self {
            Self::RedisCell => "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
            Self::Throttlecrab => "wrong number of arguments for 'throttle' command",
        }
    }
}

/// The error of a command. Nothing was charged. Its text is the reply: the prefix, what is wrong, and what to do.
#[derive(Debug, Display, From)]
#[display("{} {_variant}", self.kind().0)]
pub(super) enum Error {
    /// Bytes that are no command. The connection ends.
    #[from]
    Protocol(ProtocolError),
    /// A command that did not come whole in time. The connection ends.
    #[display("Protocol error: the command did not come to its end in time; send it at once")]
    TooSlow,
    /// The body budget has no room for the command. The connection ends.
    #[display("too many long commands are being read at once; send it again")]
    Overload,
    #[display(
        "unknown command '{}'; there are CL.THROTTLE, THROTTLE and TIDEGATE.CHECK, and COMMAND tells the others",
        quoted(_0)
    )]
    Unknown(String),
    #[display("unknown subcommand '{}' of '{command}'", quoted(given))]
    UnknownOf { command: &'static str, given: String },
    #[display("wrong number of arguments for '{_0}' command")]
    Count(&'static str),
    /// More arguments than any command takes.
    #[display("too many arguments; {ARGUMENTS_MAX} fit, with the name of the command")]
    TooMany,
    #[display("unbalanced quotes, or a backslash within them; send an array of bulk strings")]
    Quotes,
    /// A number of arguments that `CL.THROTTLE` or `THROTTLE` does not take.
    #[display("{}", _0.usage())]
    Usage(Dialect),
    #[display("Couldn't parse as integer: {}", quoted(_1))]
    NotWhole(Dialect, String),
    /// A number that cannot be used, with its name and the reason.
    #[display("{_1}")]
    Number(Dialect, String),
    #[display("{_0}: it is not UTF-8")]
    NotUtf8(&'static str),
    #[display("cost: `{}` is no whole number from 0 to {NUMBER_MAX}; 0 asks what is left", quoted(_0))]
    Cost(String),
    #[from]
    Request(RequestError),
    #[from]
    RequestId(BadRequestId),
    #[from]
    Reused(Reused),
    #[display("Authentication required.")]
    NoAuth,
    /// The connection has not authenticated, and the command is long. The connection ends.
    #[display("commands above 16 KiB take a token; send AUTH first")]
    LongNoAuth,
    /// The connection has not authenticated, and `HELLO` did not authenticate it.
    #[display(
        "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option \
         can be used to authenticate the client and select the RESP protocol version at the same time"
    )]
    HelloNoAuth,
    /// A token that is not known.
    #[display("invalid username-password pair or user is disabled.")]
    WrongToken,
    /// A token, where the server asks for none.
    #[display(
        "AUTH <password> called without any password configured for the default user. Are you sure your configuration is \
         correct? The server knows neither --check-tokens nor an admin server"
    )]
    NoTokens,
    /// The query for an operator's token failed, with the reason.
    #[display("the admin server cannot be asked for tokens now: {_0}; try again")]
    Away(String),
    /// Too many tokens in a second that the server's file does not have.
    #[display("too many tokens that are not known; try again in a second")]
    TooManyTries,
    #[from]
    Forbidden(Forbidden),
    #[display(
        "this command takes a token of role operator, which an administrator makes under Tokens, or one of --check-tokens with \
         the right `reset`; send it with AUTH"
    )]
    NotOperator,
    #[display(
        "this command takes a token of role operator, and this server has no admin server that knows those; or one of \
         --check-tokens with the right `reset`"
    )]
    NoOperators,
    /// A command in a transaction.
    #[display(
        "there are no transactions: send the commands as a plain pipeline (in redis-py: transaction=False); until EXEC or \
         DISCARD all is refused"
    )]
    Transaction,
    /// The end of a transaction.
    #[display("Transaction discarded because of previous errors.")]
    Discarded,
    #[display("unsupported protocol version; 2 and 3 are spoken")]
    Version,
    #[display("Syntax error in HELLO option '{}'", quoted(_0))]
    Hello(String),
    #[display("DB index is out of range; there is 0 alone")]
    Database,
    /// A panic.
    #[display("something went wrong in here; the log of this server says what")]
    Internal,
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
            Self::Reused(_) => ("ERR", "request_id_reused"),
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

/// Returns what a caller sent in a form that a message can quote: short, and without control characters.
fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_CHARACTERS_MAX).map(|one| if one.is_control() { ' ' } else { one }).collect()
}
