//! Users of a database, for commands that have it at hand, whether or not a server runs on it.

use std::{fmt, path::Path};

use crate::{
    auth::{
        passwords,
        settings::Access,
        user_rules::{check, check_password_user, is_name},
    },
    base::{
        secrets::{SessionLife, now},
        startup_error::StartError,
    },
    domain::{
        error::Problem,
        roles::{Role, SERVER},
    },
    store::{
        address::DatabaseUrl,
        audit::Audit,
        database::Store,
        users::{Edit, Means, Outcome},
    },
};

/// Why nothing was done.
#[derive(Debug)]
#[non_exhaustive]
pub enum PeopleError {
    /// The database cannot be opened, or is not as this build knows it.
    Database(StartError),
    /// In words: what is wrong with the name or the password, or who is not there.
    Refused(String),
}

impl fmt::Display for PeopleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(error) => error.fmt(f),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for PeopleError {}

impl From<Problem> for PeopleError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem.to_string())
    }
}

impl From<sqlx::Error> for PeopleError {
    fn from(error: sqlx::Error) -> Self {
        Problem::from(error).into()
    }
}

/// The users of a database.
#[derive(Debug)]
pub struct People {
    store: Store,
    life: SessionLife,
}

impl People {
    /// Opens the database of the folder `data`, or the one at an address. It is neither made nor brought to this build's
    /// migrations: a server does that when it starts.
    ///
    /// # Errors
    ///
    /// Where there is none, or one that another build than this has written.
    pub async fn open(data: &Path, database: Option<&DatabaseUrl>) -> Result<Self, PeopleError> {
        let store = Store::attach(data, database).await.map_err(PeopleError::Database)?;
        Ok(Self { store, life: Access::default().session_life() })
    }

    /// Adds a user.
    pub async fn add(&self, name: &str, role: Role, password: String) -> Result<(), PeopleError> {
        check(name, &password)?;
        let hash = passwords::hash(password).await?;
        let (object, result) = (format!("user:{name}"), format!("done: {}", role.name()));
        if self.store.add_user((name, role, Means::Password(&hash)), now(), line("user.add", &object, &result)).await? {
            Ok(())
        } else {
            Err(PeopleError::Refused(format!("there is a user `{name}` already; `user reset` gives a new password")))
        }
    }

    /// Gives a user a new password and perhaps another role; his sessions end.
    pub async fn reset(&self, name: &str, role: Option<Role>, password: String) -> Result<(), PeopleError> {
        check(name, &password)?;
        let user = self.store.user(name, now(), self.life).await?;
        let user = user.ok_or_else(|| PeopleError::Refused(format!("there is no user `{name}`")))?;
        check_password_user(&user)?;
        let hash = passwords::hash(password).await?;
        let object = format!("user:{name}");
        let result = role.map(|role| format!("done: {} to {}", user.role.name(), role.name()));
        let mut lines = vec![line("user.password", &object, "done")];
        lines.extend(result.as_ref().map(|result| line("user.role", &object, result)));
        let edit = Edit { role, password_hash: Some(&hash), but_session: "" };
        match self.store.change_user((user.id, user.revision), edit, &lines).await? {
            Outcome::Done => Ok(()),
            Outcome::Changed => Err(PeopleError::Refused(format!("somebody changed `{name}` meanwhile; do it again"))),
            Outcome::LastAdministrator => {
                Err(PeopleError::Refused(format!("`{name}` is the last administrator; add another one first")))
            }
        }
    }

    /// Removes the second factor of a user, who signs in by the password alone then.
    pub async fn remove_second_factor(&self, name: &str) -> Result<(), PeopleError> {
        let absent = || PeopleError::Refused(format!("there is no user `{name}`"));
        // What cannot be a name a database may not even take as text.
        let user = if is_name(name) { self.store.user(name, now(), self.life).await? } else { None };
        let user = user.ok_or_else(absent)?;
        let object = format!("user:{name}");
        if self.store.remove_second_factor(user.id, line("user.second_factor", &object, "done: removed")).await? {
            Ok(())
        } else {
            Err(PeopleError::Refused(format!("`{name}` has no second factor")))
        }
    }

    /// Names and roles, by name.
    pub async fn list(&self) -> Result<Vec<(String, &'static str)>, PeopleError> {
        let users = self.store.users(now(), self.life).await?;
        Ok(users.into_iter().map(|user| (user.name, user.role.name())).collect())
    }

    /// Ends the connections.
    pub async fn close(self) {
        self.store.close().await;
    }
}

fn line<'a>(action: &'a str, object: &'a str, result: &'a str) -> Audit<'a> {
    Audit { actor: SERVER, address: "", action, object, result, request_id: "" }
}
