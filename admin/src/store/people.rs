//! Users and their sessions.

use sqlx::{query, query_as};

use super::{Audit, Store};
use crate::{roles::Role, telemetry::Asking};

/// Who may sign in.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) id: i64,
    /// argon2id, PHC string.
    pub(crate) password_hash: String,
}

/// Who is signed in.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Of the cookie's token.
    pub(crate) token_sha256: String,
    /// Id of the user.
    pub(crate) user: i64,
    pub(crate) name: String,
    pub(crate) role: Role,
    /// What a change must bring along in a header.
    pub(crate) csrf: String,
    /// Unix seconds.
    pub(crate) expires_at: i64,
    /// Unix seconds.
    pub(crate) last_seen_at: i64,
}

/// A session that begins.
pub(crate) struct NewSession<'a> {
    /// Of the cookie's token.
    pub(crate) token_sha256: &'a str,
    /// Id of the user.
    pub(crate) user: i64,
    pub(crate) csrf: &'a str,
    /// Unix seconds.
    pub(crate) begins_at: i64,
    /// Unix seconds.
    pub(crate) expires_at: i64,
    pub(crate) address: &'a str,
    /// As it calls itself.
    pub(crate) browser: &'a str,
}

impl Store {
    pub(crate) async fn has_administrator(&self) -> sqlx::Result<bool> {
        let found = query("SELECT 1 FROM users WHERE role = 'admin' LIMIT 1").fetch_optional(&self.pool).await?;
        Ok(found.is_some())
    }

    /// Adds the first administrator; `None` when there is one already.
    pub(crate) async fn add_first_administrator(
        &self,
        name: &str,
        password_hash: &str,
        at: i64,
        audit: Audit<'_>,
    ) -> sqlx::Result<Option<i64>> {
        let mut change = self.change().await?;
        let added: Option<(i64,)> = query_as(
            "INSERT INTO users (name, role, password_hash, created_at)
             SELECT $1, 'admin', $2, $3 WHERE NOT EXISTS (SELECT 1 FROM users WHERE role = 'admin') RETURNING id",
        )
        .bind(name)
        .bind(password_hash)
        .bind(at)
        .fetch_optional(&mut *change)
        .await?;
        if added.is_some() {
            audit.write(&mut change).await?;
        }
        self.keep(change).await?;
        Ok(added.map(|(id,)| id))
    }

    pub(crate) async fn user(&self, name: &str) -> sqlx::Result<Option<User>> {
        let found: Option<(i64, String)> = query_as("SELECT id, password_hash FROM users WHERE name = $1")
            .bind(name)
            .fetch_optional(&self.pool)
            .await?;
        Ok(found.map(|(id, password_hash)| User { id, password_hash }))
    }

    /// Begins a session, and forgets those that ended.
    pub(crate) async fn begin_session(&self, new: NewSession<'_>, audit: Audit<'_>) -> sqlx::Result<()> {
        let mut change = self.change().await?;
        query("DELETE FROM sessions WHERE expires_at <= $1").bind(new.begins_at).execute(&mut *change).await?;
        query(
            "INSERT INTO sessions (token_sha256, user_id, csrf, created_at, expires_at, last_seen_at, address, browser)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(new.token_sha256)
        .bind(new.user)
        .bind(new.csrf)
        .bind(new.begins_at)
        .bind(new.expires_at)
        .bind(new.begins_at)
        .bind(new.address)
        .bind(new.browser)
        .execute(&mut *change)
        .await?;
        audit.write(&mut change).await?;
        self.keep(change).await
    }

    /// Notes that somebody was here.
    pub(crate) async fn saw_session(&self, token_sha256: &str, user: i64, address: &str, at: i64) -> sqlx::Result<()> {
        let mut change = self.change().await?;
        query("UPDATE sessions SET last_seen_at = $1, address = $2 WHERE token_sha256 = $3")
            .bind(at)
            .bind(address)
            .bind(token_sha256)
            .execute(&mut *change)
            .await?;
        query("UPDATE users SET last_seen_at = $1 WHERE id = $2").bind(at).bind(user).execute(&mut *change).await?;
        self.keep(change).await
    }

    /// Sessions that have not ended.
    pub(crate) async fn count_sessions(&self, now: i64) -> sqlx::Result<i64> {
        let (count,): (i64,) =
            query_as("SELECT count(*) FROM sessions WHERE expires_at > $1").bind(now).fetch_one(&self.pool).await?;
        Ok(count)
    }

    pub(crate) async fn session(&self, token_sha256: &str, now: i64) -> sqlx::Result<Option<Session>> {
        self.measure(Asking::Session, self.read_session(token_sha256, now)).await
    }

    async fn read_session(&self, token_sha256: &str, now: i64) -> sqlx::Result<Option<Session>> {
        let found: Option<(i64, String, String, String, i64, i64)> = query_as(
            "SELECT users.id, name, role, csrf, expires_at, sessions.last_seen_at FROM sessions
             JOIN users ON users.id = user_id WHERE token_sha256 = $1 AND expires_at > $2",
        )
        .bind(token_sha256)
        .bind(now)
        .fetch_optional(&self.pool)
        .await?;
        let Some((user, name, role, csrf, expires_at, last_seen_at)) = found else { return Ok(None) };
        let (token_sha256, role) = (token_sha256.to_owned(), read_role(&role)?);
        Ok(Some(Session { token_sha256, user, name, role, csrf, expires_at, last_seen_at }))
    }

    /// The role that a user has now; `None`: he is gone.
    pub(crate) async fn role_of(&self, user: i64) -> sqlx::Result<Option<Role>> {
        let found: Option<(String,)> =
            query_as("SELECT role FROM users WHERE id = $1").bind(user).fetch_optional(&self.pool).await?;
        found.map(|(role,)| read_role(&role)).transpose()
    }

    pub(crate) async fn end_session(&self, token_sha256: &str, audit: Audit<'_>) -> sqlx::Result<()> {
        let mut change = self.change().await?;
        query("DELETE FROM sessions WHERE token_sha256 = $1").bind(token_sha256).execute(&mut *change).await?;
        audit.write(&mut change).await?;
        self.keep(change).await
    }
}

fn read_role(name: &str) -> sqlx::Result<Role> {
    name.parse::<Role>().map_err(|error| sqlx::Error::Decode(error.into()))
}
