//! What can be wrong with a database that was opened, where somebody can do something about it.

use std::fmt;

use sqlx::postgres::PgDatabaseError;

use crate::{domain::error::Problem, store::sqlite_code};

/// Why nothing can be written, or whether it was.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// No room on its disk.
    Full,
    /// Others have it for too long.
    Busy,
    /// The file was removed or replaced.
    Gone,
    ReadOnly,
    /// The server does not answer.
    Unreachable,
    /// The server did not say whether it kept a change.
    Unknown,
    /// A text that it cannot hold.
    Text,
}

/// What the drivers have no error for.
#[derive(Debug)]
pub(super) enum Broken {
    Gone,
    Busy,
    Unknown(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("those who came before took too long"),
            Self::Gone => f.write_str("the file was removed or replaced"),
            Self::Unknown(why) => write!(f, "whether the change was kept is unknown: {why}"),
        }
    }
}

impl std::error::Error for Broken {}

impl From<Broken> for sqlx::Error {
    fn from(broken: Broken) -> Self {
        Self::Configuration(Box::new(broken))
    }
}

pub(crate) fn trouble(error: &sqlx::Error) -> Option<Trouble> {
    match error {
        sqlx::Error::Configuration(error) => match error.downcast_ref()? {
            Broken::Gone => Some(Trouble::Gone),
            Broken::Busy => Some(Trouble::Busy),
            Broken::Unknown(_) => Some(Trouble::Unknown),
        },
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => {
            Some(Trouble::Unreachable)
        }
        sqlx::Error::Database(error) => {
            if let Some(error) = error.try_downcast_ref::<PgDatabaseError>() {
                return of_state(error.code());
            }
            match sqlite_code::result_code(&**error)? {
                sqlite_code::BUSY => Some(Trouble::Busy),
                sqlite_code::READONLY => Some(Trouble::ReadOnly),
                sqlite_code::FULL => Some(Trouble::Full),
                sqlite_code::IOERR | sqlite_code::CANTOPEN => Some(Trouble::Unreachable),
                _ => None,
            }
        }
        _ => None,
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

/// By SQLSTATE.
fn of_state(state: &str) -> Option<Trouble> {
    match state {
        "53100" => Some(Trouble::Full),
        // Its locks, or a statement, take too long; it has too many connections, or too little memory; two got into each other's way.
        "55P03" | "57014" | "25P03" | "53200" | "53300" | "40001" | "40P01" => Some(Trouble::Busy),
        // Broken off after it may have been done.
        "40003" => Some(Trouble::Unknown),
        "25006" => Some(Trouble::ReadOnly),
        // With a NUL.
        "22021" => Some(Trouble::Text),
        // Shutting down, not up yet; or it lets nobody in, or not with this password, or the database is gone.
        "55000" | "3D000" => Some(Trouble::Unreachable),
        _ if ["57P", "58", "08", "28"].iter().any(|class| state.starts_with(class)) => Some(Trouble::Unreachable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_somebody_can_do_something_about_is_known() {
        assert!(matches!(of_state("53100"), Some(Trouble::Full)));
        assert!(matches!(of_state("55P03"), Some(Trouble::Busy)));
        assert!(matches!(of_state("57P01"), Some(Trouble::Unreachable)));
        assert!(of_state("23505").is_none());
    }
}
