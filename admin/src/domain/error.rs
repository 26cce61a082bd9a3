//! Why a request is refused, apart from how HTTP says it (`http/problem.rs`).

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
pub(crate) use tidegate_api::{ErrorLocation, FieldError};

use crate::domain::{
    objects::{Object, Usage},
    version::Rollout,
};

/// Why a request was refused.
#[derive(Clone, Debug)]
pub(crate) enum Problem {
    /// Nobody is signed in.
    Unauthorized,
    /// A token that does not exist, or that has ended.
    UnknownToken,
    /// The cookie of a session that does not exist, or that has ended.
    UnknownSession,
    /// A change without the header that only our own page can send.
    Csrf,
    /// Somebody is known who may not do this; the words say who may.
    Forbidden(String),
    WrongCredentials {
        /// So many more may be made at once, whether the name exists or not.
        tries_left: u64,
    },
    /// The password is right, and a code is needed besides.
    CodeNeeded,
    /// The password is right, and the code is not, or was used before.
    WrongCode {
        /// So many more codes may be tried at once.
        tries_left: u64,
    },
    /// A try to sign in by the provider that cannot go on.
    SignInOver,
    /// Who comes from the provider may not come in; the words say why.
    NotAdmitted(String),
    /// This user has his role from the provider, and no password.
    ByProvider(String),
    /// The provider cannot be used; the words are for the server's log.
    Provider(String),
    /// Too many tries.
    TooMany {
        /// When to come again.
        retry_after_s: u64,
    },
    /// What was not found.
    NotFound(String),
    /// An object that was there once.
    Removed {
        /// What was not found.
        what: String,
        removed_in: RemovedIn,
    },
    MethodNotAllowed {
        /// The methods that this path takes.
        allowed: String,
    },
    MediaType {
        /// What the body should be said to be.
        wanted: String,
    },
    /// The body did not come in time.
    TooSlow {
        /// When it should have been here.
        patience: Duration,
    },
    /// The body cannot be read.
    BadJson(FieldError),
    TooLarge {
        /// So many fit.
        bytes_max: usize,
    },
    /// Objects that changed meanwhile.
    Conflict(Vec<Conflicting>),
    /// A tier that is used.
    InUse { what: String, used_by: Usage },
    /// A domain has at least one of these.
    LastOfItsKind(String),
    /// Nobody does this to his own account; the words say who does.
    OwnAccount(&'static str),
    /// Somebody has a run that has not ended; its id.
    AlreadyRunning(String),
    /// There is no result yet, or there will be none; the run's state.
    NoResult(&'static str),
    /// A run has not ended; its state.
    NotEnded(&'static str),
    /// No room for another run.
    Busy(&'static str),
    /// The memory for bodies, or for answers, is taken; the words say whose share of it, and the way out.
    Overload(&'static str),
    /// So much is kept that something has to be removed first.
    Full(String),
    /// Another process has this name of a node.
    DuplicateNode {
        name: String,
        /// For people.
        who: String,
    },
    /// A node is not gone.
    StillHere(String),
    /// A token that another one was made in the place of; its id.
    Replaced(String),
    /// Nodes that are connected and know an older schema than the policy needs.
    NodeCannotRead { nodes: Vec<String>, schema: u32 },
    /// Another version is on its way.
    RolloutOpen(Box<Rollout>),
    /// Keys of objects that `if_match` does not name.
    PreconditionRequired(Vec<String>),
    /// Fields that are wrong.
    Invalid(Vec<FieldError>),
    /// The database cannot be written; the words are for people.
    Storage(String),
    /// The database did not say whether it kept a change.
    Unknown,
    /// The server's fault; the words are for its log.
    Internal(String),
}

/// The version without an object that was in the one before it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RemovedIn {
    pub(crate) version: u64,
    /// Author of the version.
    pub(crate) by: String,
    /// RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) at: String,
}

/// An object that is not as it was read.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Conflicting {
    /// `tier`, `rule`, `client`, `domain` or `user`; `policy` where the whole was to be replaced, `clients` where many were meant.
    pub(crate) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// As it is now; `null`: it is gone.
    pub(crate) present: Option<Present>,
    /// How many clients were meant to match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<u32>,
    /// How many do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) matching: Option<usize>,
    /// In which version it changed last, as far as that is known.
    pub(crate) version: Option<u64>,
    pub(crate) changed_by: Option<String>,
    /// RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) changed_at: Option<String>,
}

/// An object as it is now.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Present {
    pub(crate) etag: String,
    /// Left out where it is the whole policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<Object>,
}

/// Nodes that a refusal names.
const NODES_NAMED_MAX: usize = 10;

impl Problem {
    /// The same of a part of the body: fields are those of what stands at `pointer`.
    pub(crate) fn below(self, pointer: &str) -> Self {
        match self {
            Self::Invalid(fields) => Self::Invalid(fields.into_iter().map(|field| field.below(pointer)).collect()),
            other => other,
        }
    }

    /// The same where `/NAME` is no field of the body, but a parameter of the address.
    pub(crate) fn of_parameter(self, name: &str) -> Self {
        let Self::Invalid(mut fields) = self else { return self };
        for field in &mut fields {
            if field.at == ErrorLocation::Pointer(format!("/{name}")) {
                field.at = ErrorLocation::Parameter(name.to_owned());
            }
        }
        Self::Invalid(fields)
    }

    /// One field of the body is wrong.
    pub(crate) fn field(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError::invalid(pointer, message)])
    }

    /// A parameter of the address is wrong.
    pub(crate) fn parameter(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError::new(ErrorLocation::Parameter(name.into()), message)])
    }

    /// A header is wrong.
    pub(crate) fn header(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError::new(ErrorLocation::Header(name.into()), message)])
    }

    /// Describes what was wrong with this request, for people.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::Unauthorized => "There is no session; sign in, or show a token.".to_owned(),
            Self::UnknownSession => "There is no such session, or it has ended.".to_owned(),
            Self::UnknownToken => "There is no such token, or it has ended.".to_owned(),
            Self::Csrf => "Send the header X-CSRF-Token with the value that GET /api/v1/session gives.".to_owned(),
            Self::WrongCredentials { .. } => "Wrong name or password.".to_owned(),
            Self::CodeNeeded => "Send a code of your authenticator app, or a recovery code, as `code`.".to_owned(),
            Self::WrongCode { .. } => "This is no code of now, or it was used before.".to_owned(),
            Self::SignInOver => "It was used, is older than 10 minutes, or began in another browser.".to_owned(),
            Self::ByProvider(name) => {
                format!(
                    "`{name}` signs in by the provider: his role follows his groups there, and he has no password here."
                )
            }
            Self::Provider(_) => "It does not answer, or not as it should. The server's log says more.".to_owned(),
            Self::NotFound(what)
            | Self::Removed { what, .. }
            | Self::Full(what)
            | Self::Forbidden(what)
            | Self::NotAdmitted(what) => what.clone(),
            Self::DuplicateNode { name, who } => {
                format!("`{name}` is {who}; give one of them another name, or stop the other.")
            }
            Self::StillHere(name) => format!("`{name}` is connected; stop it first."),
            Self::Replaced(id) => format!("`{id}` was replaced; replace the one that was made then, or make another."),
            Self::NodeCannotRead { nodes, schema } => format!(
                "{} cannot read policies of schema {schema}, which this one needs. Update the nodes, or publish with `force`: \
                 they keep the policy that they have.",
                nodes.join(", ")
            ),
            Self::RolloutOpen(rollout) => {
                let Rollout { version, keeps, nodes, author, since } = &**rollout;
                let named = nodes.iter().take(NODES_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
                let more = if nodes.len() > NODES_NAMED_MAX { " and others" } else { "" };
                format!(
                    "Version {version} of {author} is on {named}{more} alone since {since}; all other nodes keep version {keeps}. \
                     Give it to all (POST /api/v1/rollout with {{\"to\": \"all\"}}) or take it back ({{\"to\": \"back\"}}), then \
                     publish again. Until then only overrides of clients can be changed, blocks too, and these reach all nodes."
                )
            }
            Self::TooMany { retry_after_s } => format!("Try again in {retry_after_s} s."),
            Self::MethodNotAllowed { allowed } => format!("This path takes {allowed}."),
            Self::MediaType { wanted } => format!("Send it with the header content-type: {wanted}."),
            Self::TooSlow { patience } => format!("A body must be here within {} s.", patience.as_secs()),
            Self::BadJson(field) => field.message.clone(),
            Self::TooLarge { bytes_max } => format!("At most {bytes_max} bytes fit."),
            Self::Conflict(objects) => match objects.len() {
                1 => "One object was changed since you read it. Nothing was done.".to_owned(),
                count => format!("{count} objects were changed since you read them. Nothing was done."),
            },
            Self::InUse { what, .. } => {
                format!("{what} is in use; move its users to another tier first, or in the same list.")
            }
            Self::LastOfItsKind(what) => format!("{what} is the last one; make another one first."),
            Self::AlreadyRunning(id) => {
                format!("The run `{id}`, yours or of a token of yours, has not ended; wait for it, or stop it.")
            }
            Self::NotEnded(state) => format!("The run is {state}; stop it first, or wait for it."),
            Self::NoResult(state) => format!("The run is {state}; a run that is done has a result."),
            Self::Busy(what) | Self::Overload(what) | Self::OwnAccount(what) => (*what).to_owned(),
            Self::PreconditionRequired(keys) => format!("if_match must name the ETag of {}.", keys.join(", ")),
            Self::Invalid(fields) => fields.iter().map(|field| field.message.as_str()).collect::<Vec<_>>().join("; "),
            Self::Storage(why) => format!("{why}. Nothing was changed."),
            Self::Unknown => {
                "The database did not say whether it kept the change. Look whether it is there, or send the same \
                              request again with the same Idempotency-Key."
                    .to_owned()
            }
            Self::Internal(_) => "It is written in the server's log, under the request's id.".to_owned(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internal(why) => f.write_str(why),
            Self::Provider(why) => write!(f, "the provider of the sign-in: {why}"),
            other => f.write_str(&other.detail()),
        }
    }
}

/// The most characters of a text that a message quotes.
const QUOTED_CHARACTERS_MAX: usize = 60;

/// Says what stands in a place, and what would be right there.
pub(crate) fn stands_here(found: &str, wanted: &str) -> String {
    match found.char_indices().nth(QUOTED_CHARACTERS_MAX) {
        _ if found.is_empty() => format!("nothing stands here; write {wanted}"),
        Some((end, _)) => format!("`{}…` stands here; write {wanted}", &found[..end]),
        None => format!("`{found}` stands here; write {wanted}"),
    }
}
