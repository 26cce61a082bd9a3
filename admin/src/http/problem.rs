//! How HTTP answers what a request is refused for: one table from a [`Problem`] to a status, a stable code and words
//! (RFC 9457, problem details).

use actix_web::{
    HttpResponse, ResponseError,
    http::{StatusCode, header},
};
use schemars::JsonSchema;
use serde::Serialize;
pub(crate) use tidegate_api::PROBLEM_JSON;
use tidegate_api::ProblemDetails;

use crate::domain::{
    error::{Conflicting, Problem, RemovedIn},
    objects::Usage,
};

/// When to come again to a busy server.
const BUSY_RETRY_S: u64 = 10;

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

impl Problem {
    /// Returns the stable code of this refusal.
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
