//! An authenticated caller: a user by their session, or a token.

use crate::{
    domain::{
        error::Problem,
        objects::Kind,
        roles::{May, Need, Role},
    },
    store::{audit::Audit, sessions::Session},
};

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    /// As the audit log has it: a user's name, or `token:NAME`.
    pub(crate) name: String,
    /// The user, or the user who made the token.
    pub(crate) behind: String,
    /// Of the connection.
    pub(crate) address: String,
    /// Of the request by which he was known.
    pub(crate) request_id: String,
    pub(crate) may: May,
    /// Of the objects that he may change; `None`: all that his role may.
    pub(crate) kinds: Option<Vec<Kind>>,
    pub(crate) by: Credential,
}

/// What somebody has shown.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    Session(Session),
    /// SHA-256 of a token.
    Token(String),
}

impl Who {
    /// `None`: a node's token.
    pub(crate) fn role(&self) -> Option<Role> {
        match self.may {
            May::Role(role) => Some(role),
            May::Node => None,
        }
    }

    /// A line of the audit log on what he did.
    pub(crate) fn did<'a>(&'a self, action: &'a str, object: &'a str, result: &'a str) -> Audit<'a> {
        let Self { name, address, request_id, .. } = self;
        Audit { actor: name, address, action, object, result, request_id }
    }

    /// Is it this user himself, or a token that he answers for?
    pub(crate) fn is_user(&self, name: &str) -> bool {
        self.behind == name
    }

    /// Refuses who may not end or remove what `author` made: he himself may, and an editor.
    pub(crate) fn check_own(&self, author: &str) -> Result<(), Problem> {
        if self.name == author || self.role().is_some_and(|role| role >= Role::Editor) {
            return Ok(());
        }
        let shows = self.shows();
        Err(Problem::Forbidden(format!(
            "This is of {author}; others need the role `editor`. What you show is {shows}."
        )))
    }

    /// SHA-256 of the token of the session that asks.
    pub(crate) fn token_of_session(&self) -> Option<&str> {
        match &self.by {
            Credential::Session(session) => Some(&session.token_sha256),
            Credential::Token(_) => None,
        }
    }

    /// Refuses who may not do what needs this.
    pub(crate) fn check(&self, need: Need) -> Result<(), Problem> {
        let may = match need {
            Need::Nothing | Need::Known => true,
            Need::Role(needed) => self.role().is_some_and(|role| role >= needed),
            Need::Person => matches!(self.by, Credential::Session(_)),
            Need::Node => self.may == May::Node,
        };
        if may {
            return Ok(());
        }
        Err(Problem::Forbidden(format!("{} What you show is {}.", need.says(), self.shows())))
    }

    fn shows(&self) -> String {
        match (&self.by, self.may) {
            (Credential::Session(_), may) => format!("a session of the role `{}`", may.name()),
            (Credential::Token(_), May::Role(role)) => format!("a token of the role `{}`", role.name()),
            (Credential::Token(_), May::Node) => "a token of the scope `node`".to_owned(),
        }
    }
}

/// Returns the sender that requests of a caller with this right, name and user count for.
pub(crate) fn sender_of<'a>(may: May, name: &'a str, user: &'a str) -> &'a str {
    match may {
        May::Role(_) => user,
        May::Node => name,
    }
}
