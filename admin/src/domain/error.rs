//! What a request can be refused for, and the one table from it to a status, a stable code and words
//! (RFC 9457, problem details).

use std::{fmt, time::Duration};

use actix_web::{
    HttpResponse, ResponseError,
    http::{StatusCode, header},
};
use schemars::JsonSchema;
use serde::Serialize;
use tidegate_api::ProblemDetails;
pub(crate) use tidegate_api::{ErrorLocation, FieldError, PROBLEM_JSON};

use crate::{
    domain::objects::{Object, Usage},
    store::{
        error::{Trouble, trouble},
        rollouts::Rollout,
    },
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

/// The stable codes, one for each kind of refusal. Scripts may rely on them and on their statuses; titles and details are
/// for people and may change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Code {
    BadJson,
    SignInOver,
    Unauthorized,
    WrongCredentials,
    FactorNeeded,
    WrongFactor,
    Csrf,
    Forbidden,
    NotAdmitted,
    NotFound,
    MethodNotAllowed,
    TooSlow,
    InUse,
    LastOfItsKind,
    OwnAccount,
    ByProvider,
    AlreadyRunning,
    NoResult,
    NotEnded,
    Full,
    DuplicateNode,
    StillHere,
    Replaced,
    NodeCannotRead,
    RolloutOpen,
    Conflict,
    TooLarge,
    MediaType,
    Invalid,
    PreconditionRequired,
    TooMany,
    Internal,
    Provider,
    Storage,
    OutcomeUnknown,
    Busy,
    Overload,
}

/// What a code stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) title: &'static str,
    /// For the documentation: when it happens, and what to do then.
    pub(crate) meaning: &'static str,
}

impl Code {
    /// All of them, by status.
    pub(crate) const ALL: [Self; 37] = [
        Self::BadJson,
        Self::SignInOver,
        Self::Unauthorized,
        Self::WrongCredentials,
        Self::FactorNeeded,
        Self::WrongFactor,
        Self::Csrf,
        Self::Forbidden,
        Self::NotAdmitted,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::TooSlow,
        Self::InUse,
        Self::LastOfItsKind,
        Self::OwnAccount,
        Self::ByProvider,
        Self::AlreadyRunning,
        Self::NoResult,
        Self::NotEnded,
        Self::Full,
        Self::DuplicateNode,
        Self::StillHere,
        Self::Replaced,
        Self::NodeCannotRead,
        Self::RolloutOpen,
        Self::Conflict,
        Self::TooLarge,
        Self::MediaType,
        Self::Invalid,
        Self::PreconditionRequired,
        Self::TooMany,
        Self::Internal,
        Self::Provider,
        Self::Storage,
        Self::OutcomeUnknown,
        Self::Busy,
        Self::Overload,
    ];

    /// The table.
    #[expect(clippy::too_many_lines, reason = "it is a table")]
    pub(crate) fn row(self) -> Row {
        let (status, code, title, meaning) = match self {
            Self::BadJson => {
                (400, "bad_json", "The body cannot be read", "The body cannot be read. `errors[0].pointer` says where.")
            }
            Self::SignInOver => (
                400,
                "sign_in_over",
                "This sign-in is over",
                "It was used, is older than 10 minutes, or began in another browser. Begin again.",
            ),
            Self::Unauthorized => (
                401,
                "unauthorized",
                "Sign in first",
                "There is no session or token, or it has ended. Sign in, then ask again.",
            ),
            Self::WrongCredentials => (
                401,
                "wrong_credentials",
                "Wrong name or password",
                "The name or the password is wrong; it is not said which. `tries_left` says how many more tries there are before a wait.",
            ),
            Self::FactorNeeded => (
                401,
                "code_needed",
                "A code is needed",
                "The password is right, and the user has a second factor. Send the same again with `code`: what the app shows now, \
                 or a recovery code.",
            ),
            Self::WrongFactor => (
                401,
                "wrong_code",
                "Wrong code",
                "The password is right, and the code is not, or it was used before. `tries_left` says how many more codes may be \
                 tried before a wait.",
            ),
            Self::Csrf => (
                403,
                "csrf",
                "This request did not come from the dashboard",
                "The header `X-CSRF-Token` is missing or not the session's. `GET /session` gives the right one.",
            ),
            Self::Forbidden => (
                403,
                "forbidden",
                "You may not do this",
                "The role of the session or token does not allow it; the detail says what it takes.",
            ),
            Self::NotAdmitted => (
                403,
                "not_admitted",
                "The provider knows you, this server does not admit you",
                "Who comes from the provider has no group with a role here, or a name that another user has; the detail says which.",
            ),
            Self::NotFound => (
                404,
                "not_found",
                "Not found",
                "What the address names is not there, or the domain that it is in. Of a tier, a rule or a client that was there once, \
                 `removed_in` says which version took it out, whose it is, and when.",
            ),
            Self::MethodNotAllowed => (
                405,
                "method_not_allowed",
                "This cannot be done here",
                "The header `Allow` has the methods that the path takes.",
            ),
            Self::TooSlow => (408, "too_slow", "The body did not come in time", "Send the body in one go."),
            Self::InUse => (
                409,
                "in_use",
                "Others need this",
                "A tier that others use would go; `used_by` says who: kinds whose default it is, rules, how many clients. A \
                 change list may move them and delete the tier.",
            ),
            Self::LastOfItsKind => {
                let meaning = "A domain keeps one tier, a policy one domain, the server one administrator.";
                (409, "last_of_its_kind", "One must stay", meaning)
            }
            Self::OwnAccount => (
                409,
                "own_account",
                "This is your own account",
                "Nobody changes his own role or removes himself; another administrator does.",
            ),
            Self::ByProvider => (
                409,
                "by_provider",
                "This user signs in by the provider",
                "His role follows his groups there, and he has no password here: neither is given to him.",
            ),
            Self::AlreadyRunning => (
                409,
                "already_running",
                "A run has not ended",
                "A user or a token has one what-if run at a time, a user with all tokens that they made two. Wait for the one that has not \
                 ended, or stop it.",
            ),
            Self::NotEnded => (
                409,
                "not_ended",
                "The run has not ended",
                "A run is forgotten when it is over. Stop it first, or wait for it.",
            ),
            Self::NoResult => (
                409,
                "no_result",
                "There is no result",
                "The run waits, runs, was stopped or failed; the detail says which.",
            ),
            Self::Full => (
                409,
                "full",
                "There is no room for another",
                "As many drafts or logs are kept as fit. Remove some first.",
            ),
            Self::DuplicateNode => (
                409,
                "duplicate_node",
                "Another process has this name",
                "A node is connected under the same name. Each has a name of its own.",
            ),
            Self::StillHere => {
                (409, "still_here", "The node is not gone", "A node is forgotten when it is gone. Stop it first.")
            }
            Self::Replaced => (
                409,
                "replaced",
                "The token was replaced",
                "Another token was made in its place, which is the one to replace now.",
            ),
            Self::NodeCannotRead => (
                409,
                "node_cannot_read",
                "A node cannot read this policy",
                "A node that is connected knows an older schema than the policy needs; the detail names it. Update it, or \
                 publish with `force`.",
            ),
            Self::RolloutOpen => (
                409,
                "rollout_open",
                "Another version is on its way",
                "The newest version went to some nodes only; the detail says which. `POST /rollout` gives it to all, or takes it \
                 back; then publish again. A publish that changes only overrides of clients, blocks too, is not refused, and \
                 reaches all nodes.",
            ),
            Self::Conflict => (
                412,
                "conflict",
                "Somebody changed this meanwhile",
                "An object is not as it was read, or is there already. `conflicts` has each as it is now, with who changed it \
                 and when.",
            ),
            Self::TooLarge => (
                413,
                "too_large",
                "The body is too large",
                "The body has more bytes than fit; the detail says how many do.",
            ),
            Self::MediaType => (
                415,
                "unsupported_media_type",
                "The body is of another type",
                "The header `Content-Type` is not what the call takes; the detail says what it takes.",
            ),
            Self::Invalid => (
                422,
                "invalid",
                "Something is wrong with the request",
                "`errors` has each part that is wrong: a `pointer` into the body, a `parameter` of the address or a `header`. \
                 Policies are judged by the engine's own compiler.",
            ),
            Self::PreconditionRequired => (
                428,
                "precondition_required",
                "Say which state you change",
                "The entity tag of what is replaced or removed is missing: `If-Match`, or `if_match` of a change list.",
            ),
            Self::TooMany => {
                (429, "too_many", "Too many tries", "The header `Retry-After` says in how many seconds to come again.")
            }
            Self::Internal => (
                500,
                "internal",
                "The server failed",
                "The server's fault. Its log says more, under the answer's `X-Request-Id`.",
            ),
            Self::Provider => (
                502,
                "provider",
                "The provider cannot be used",
                "The provider of the sign-in does not answer, or not as it should. The log says more, under the answer's \
                 `X-Request-Id`. Who has a password signs in by it.",
            ),
            Self::Storage => (
                503,
                "storage",
                "The database cannot be written",
                "The disk is full, or the database is gone, too busy or cannot be reached. Nothing was changed.",
            ),
            Self::OutcomeUnknown => (
                503,
                "outcome_unknown",
                "The database went away meanwhile",
                "The database, or the connection to it, broke before it said whether it kept the change. Look whether it is there, or \
                 send the same request again with the same `Idempotency-Key`.",
            ),
            Self::Busy => (
                503,
                "busy",
                "The server is busy",
                "There is no room for another run, or as much is worked on, or taken in, as may be at a time. The header `Retry-After` says \
                 in how many seconds to come again.",
            ),
            Self::Overload => (
                503,
                "overload",
                "There is no memory for it",
                "Bodies that are being sent from this address or from all, or long answers to this user or to all that are not read, \
                 take as much memory as they may. Send fewer at a time, and read the answers. The header `Retry-After` says in how many \
                 seconds to come again.",
            ),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Row { status, code, title, meaning }
    }
}

/// Problem details (RFC 9457), with the extension members that some codes have.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename = "Problem")]
pub(crate) struct ProblemBody {
    #[serde(flatten)]
    details: ProblemDetails,
    /// Each object that is not as it was read, as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    conflicts: Option<Vec<Conflicting>>,
    /// Who uses the tier that would go.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_by: Option<Usage>,
    /// Tries to sign in, or codes, that there are before a wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    tries_left: Option<u64>,
    /// The version that took the object out, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_in: Option<RemovedIn>,
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
/// When to come again to a busy server.
const BUSY_RETRY_S: u64 = 10;

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

    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Unauthorized | Self::UnknownToken | Self::UnknownSession => Code::Unauthorized,
            Self::Forbidden(_) => Code::Forbidden,
            Self::Csrf => Code::Csrf,
            Self::WrongCredentials { .. } => Code::WrongCredentials,
            Self::CodeNeeded => Code::FactorNeeded,
            Self::WrongCode { .. } => Code::WrongFactor,
            Self::SignInOver => Code::SignInOver,
            Self::NotAdmitted(_) => Code::NotAdmitted,
            Self::ByProvider(_) => Code::ByProvider,
            Self::Provider(_) => Code::Provider,
            Self::TooMany { .. } => Code::TooMany,
            Self::NotFound(_) | Self::Removed { .. } => Code::NotFound,
            Self::MethodNotAllowed { .. } => Code::MethodNotAllowed,
            Self::MediaType { .. } => Code::MediaType,
            Self::TooSlow { .. } => Code::TooSlow,
            Self::BadJson(_) => Code::BadJson,
            Self::TooLarge { .. } => Code::TooLarge,
            Self::Conflict(_) => Code::Conflict,
            Self::InUse { .. } => Code::InUse,
            Self::LastOfItsKind(_) => Code::LastOfItsKind,
            Self::OwnAccount(_) => Code::OwnAccount,
            Self::AlreadyRunning(_) => Code::AlreadyRunning,
            Self::NoResult(_) => Code::NoResult,
            Self::NotEnded(_) => Code::NotEnded,
            Self::Busy(_) => Code::Busy,
            Self::Overload(_) => Code::Overload,
            Self::Full(_) => Code::Full,
            Self::DuplicateNode { .. } => Code::DuplicateNode,
            Self::StillHere(_) => Code::StillHere,
            Self::Replaced(_) => Code::Replaced,
            Self::NodeCannotRead { .. } => Code::NodeCannotRead,
            Self::RolloutOpen(_) => Code::RolloutOpen,
            Self::PreconditionRequired(_) => Code::PreconditionRequired,
            Self::Invalid(_) => Code::Invalid,
            Self::Storage(_) => Code::Storage,
            Self::Unknown => Code::OutcomeUnknown,
            Self::Internal(_) => Code::Internal,
        }
    }

    fn detail(&self) -> String {
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

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.code().row().status
    }

    fn error_response(&self) -> HttpResponse {
        let Row { status, code, title, .. } = self.code().row();
        let mut body = ProblemBody {
            details: ProblemDetails::new(status.as_u16(), code, title, self.detail()),
            conflicts: None,
            used_by: None,
            tries_left: None,
            removed_in: None,
        };
        match self {
            Self::BadJson(field) => body.details.errors = vec![field.clone()],
            Self::Invalid(fields) => body.details.errors.clone_from(fields),
            Self::Conflict(objects) => body.conflicts = Some(objects.clone()),
            Self::InUse { used_by, .. } => body.used_by = Some(used_by.clone()),
            Self::WrongCredentials { tries_left } | Self::WrongCode { tries_left } => {
                body.tries_left = Some(*tries_left);
            }
            Self::Removed { removed_in, .. } => body.removed_in = Some(removed_in.clone()),
            _ => {}
        }
        let mut response = HttpResponse::build(status);
        match self {
            Self::TooMany { retry_after_s } => drop(response.insert_header((header::RETRY_AFTER, *retry_after_s))),
            Self::Unauthorized | Self::UnknownToken | Self::UnknownSession => {
                response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
            }
            Self::Busy(_) => drop(response.insert_header((header::RETRY_AFTER, BUSY_RETRY_S))),
            Self::MethodNotAllowed { allowed } => drop(response.insert_header((header::ALLOW, allowed.as_str()))),
            // What is left of the body would be taken for the next request.
            Self::Overload(_) => drop(response.insert_header((header::RETRY_AFTER, BUSY_RETRY_S)).force_close()),
            Self::TooSlow { .. } | Self::TooLarge { .. } => drop(response.force_close()),
            _ => {}
        }
        // It is plain data, which serde can always write.
        response.content_type(PROBLEM_JSON).body(serde_json::to_string(&body).unwrap_or_default())
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        let storage = |why: &str| {
            tracing::warn!(%error, "{why}");
            Self::Storage(why.to_owned())
        };
        match trouble(&error) {
            Some(Trouble::Full) => storage("The disk of the database is full"),
            Some(Trouble::Busy) => storage("The database is too busy; try again"),
            Some(Trouble::Gone) => storage("The database was removed or replaced; restart the server"),
            Some(Trouble::ReadOnly) => storage("The database takes no changes"),
            Some(Trouble::Unreachable) => storage("The database cannot be reached"),
            Some(Trouble::Unknown) => {
                tracing::warn!(%error, "the database broke off before it said whether it kept a change");
                Self::Unknown
            }
            Some(Trouble::Text) => Self::field("", "a text has a NUL character, which the database cannot hold"),
            None => Self::Internal(format!("database: {error}")),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Scripts rely on them: one that is changed or taken away here is missed there.
    #[test]
    fn the_documented_codes_are_those_of_the_table() {
        let documented = include_str!("../../../docs/changing-the-policy.md").lines().filter_map(|line| {
            let (status, rest) = line.strip_prefix("| ")?.split_once(" `")?;
            Some((status.parse::<u16>().ok()?, rest.split('`').next()?))
        });
        let documented: Vec<(u16, &str)> = documented.collect();
        let table = Code::ALL.map(|code| (code.row().status.as_u16(), code.row().code));
        assert_eq!(documented, table);
        assert_eq!(table.iter().map(|(_, code)| code).collect::<BTreeSet<_>>().len(), table.len(), "each is one kind");
    }
}
