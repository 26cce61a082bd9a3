//! Users: who may sign in, and with which role.

use sqlx::{query, query_as, query_scalar};

use crate::{
    base::secrets::SessionLife,
    domain::roles::{Role, UnknownRole},
    store::{
        audit::Audit,
        database::{Change, Store},
        second_factors::read_app_secret,
    },
};

/// Who may sign in.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct Login {
    pub(crate) id: i64,
    pub(crate) revision: i64,
    /// argon2id, PHC string.
    pub(crate) password_hash: String,
    /// How often the user was signed out everywhere.
    pub(crate) sign_outs: i64,
    /// Secret of the authenticator app whose codes are asked for, base64url; empty: none is.
    pub(crate) app_secret: String,
    /// Step of the code that was taken last.
    pub(crate) last_step: i64,
}

impl Login {
    /// Returns whether a sign-in takes a code.
    pub(crate) fn has_second_factor(&self) -> bool {
        !self.app_secret.is_empty()
    }

    /// The secret of the app.
    pub(crate) fn app_secret(&self) -> sqlx::Result<Vec<u8>> {
        read_app_secret(&self.app_secret)
    }
}

/// How a user signs in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Means<'a> {
    /// argon2id, PHC string.
    Password(&'a str),
    /// Who he is to a provider.
    Provider { issuer: &'a str, subject: &'a str },
}

/// A user, without what is secret.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Of the provider by which he signs in; empty: he does by a password.
    pub(crate) issuer: String,
    /// Grows with each change of the row; no row that comes later under the same id begins with one that was there.
    pub(crate) revision: i64,
    /// Unix seconds.
    pub(crate) made_at: i64,
    /// Unix seconds; 0: never.
    pub(crate) last_seen_at: i64,
    /// How many have not ended.
    pub(crate) sessions: i64,
    pub(crate) has_second_factor: bool,
}

type Columns = (i64, String, String, String, i64, i64, i64, i64, i64);

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, name, role, issuer, revision, created_at, last_seen_at,
                    (SELECT count(*) FROM sessions
                     WHERE user_id = users.id AND expires_at > $1 AND sessions.last_seen_at > $2),
                    (SELECT count(*) FROM second_factors WHERE user_id = users.id AND secret <> '')
             FROM users ",
            $rest
        )
    };
}

impl TryFrom<Columns> for User {
    type Error = sqlx::Error;

    fn try_from(columns: Columns) -> sqlx::Result<Self> {
        let (id, name, role, issuer, revision, made_at, last_seen_at, sessions, second_factors) = columns;
        let (role, has_second_factor) = (read_role(&role)?, second_factors > 0);
        Ok(Self { id, name, role, issuer, revision, made_at, last_seen_at, sessions, has_second_factor })
    }
}

/// What a change of a user came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    /// The row is not as it was read, or is gone.
    Changed,
    /// There would be no administrator left.
    LastAdministrator,
}

/// What becomes of a user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Edit<'a> {
    pub(crate) role: Option<Role>,
    /// argon2id, PHC string.
    pub(crate) password_hash: Option<&'a str>,
    /// SHA-256 of the token of a session that goes on.
    pub(crate) but_session: &'a str,
}

impl Store {
    pub(crate) async fn has_administrator(&self) -> sqlx::Result<bool> {
        let found = query("SELECT 1 FROM users WHERE role = 'admin' LIMIT 1").fetch_optional(&self.pool).await?;
        Ok(found.is_some())
    }

    /// Adds the first administrator, and answers his id and revision; `None` when there is one already.
    pub(crate) async fn add_first_administrator(
        &self,
        name: &str,
        password_hash: &str,
        at: i64,
        audit: Audit<'_>,
    ) -> sqlx::Result<Option<(i64, i64)>> {
        let mut change = self.change().await?;
        let added = query_as(
            "INSERT INTO users (name, role, password_hash, created_at, revision)
             SELECT $1, 'admin', $2, $3, (SELECT coalesce(max(id), 0) FROM audit) WHERE NOT EXISTS (SELECT 1 FROM users WHERE role = 'admin')
             ON CONFLICT (name) DO NOTHING RETURNING id, revision",
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
        Ok(added)
    }

    /// What signing in by a password takes; `None` too for who signs in otherwise.
    pub(crate) async fn login(&self, name: &str) -> sqlx::Result<Option<Login>> {
        query_as(
            "SELECT id, revision, password_hash, sign_outs, coalesce(secret, '') AS app_secret, coalesce(last_step, 0) AS last_step
             FROM users LEFT JOIN second_factors ON user_id = id WHERE name = $1 AND password_hash <> ''",
        )
        .bind(name)
        .fetch_optional(&self.pool)
        .await
    }

    /// All users, by name.
    pub(crate) async fn users(&self, now: i64, life: SessionLife) -> sqlx::Result<Vec<User>> {
        let found: Vec<Columns> =
            query_as(select!("ORDER BY name")).bind(now).bind(now - life.idle_s).fetch_all(&self.pool).await?;
        found.into_iter().map(User::try_from).collect()
    }

    pub(crate) async fn user(&self, name: &str, now: i64, life: SessionLife) -> sqlx::Result<Option<User>> {
        let found: Option<Columns> = query_as(select!("WHERE name = $3"))
            .bind(now)
            .bind(now - life.idle_s)
            .bind(name)
            .fetch_optional(&self.pool)
            .await?;
        found.map(User::try_from).transpose()
    }

    /// Who is this to a provider.
    pub(crate) async fn user_of_provider(
        &self,
        (issuer, subject): (&str, &str),
        now: i64,
        life: SessionLife,
    ) -> sqlx::Result<Option<User>> {
        let found: Option<Columns> = query_as(select!("WHERE issuer = $3 AND subject = $4"))
            .bind(now)
            .bind(now - life.idle_s)
            .bind(issuer)
            .bind(subject)
            .fetch_optional(&self.pool)
            .await?;
        found.map(User::try_from).transpose()
    }

    /// Adds a user; false where somebody has the name, or is this to the provider. Each change of a row has a line of the audit
    /// log, so the number of the last one is above all revisions that there were.
    pub(crate) async fn add_user(
        &self,
        (name, role, by): (&str, Role, Means<'_>),
        at: i64,
        audit: Audit<'_>,
    ) -> sqlx::Result<bool> {
        let (password_hash, issuer, subject) = match by {
            Means::Password(hash) => (hash, "", ""),
            Means::Provider { issuer, subject } => ("", issuer, subject),
        };
        let mut change = self.change().await?;
        let added = query(
            "INSERT INTO users (name, role, password_hash, issuer, subject, created_at, revision)
             VALUES ($1, $2, $3, $4, $5, $6, (SELECT coalesce(max(id), 0) FROM audit))
             ON CONFLICT DO NOTHING",
        )
        .bind(name)
        .bind(role.name())
        .bind(password_hash)
        .bind(issuer)
        .bind(subject)
        .bind(at)
        .execute(&mut *change)
        .await?;
        if added.rows_affected() == 0 {
            return Ok(false);
        }
        audit.write(&mut change).await?;
        self.keep(change).await?;
        Ok(true)
    }

    /// Changes a user who is still as he was read; `audit` says what. His sessions end, and so do tokens
    /// that he made: where his role goes down, those for more than that, where others gave him a password, all but those of
    /// nodes.
    pub(crate) async fn change_user(
        &self,
        (id, revision): (i64, i64),
        edit: Edit<'_>,
        audit: &[Audit<'_>],
    ) -> sqlx::Result<Outcome> {
        let mut change = self.change().await?;
        let Some((name, role, hash)) = present(&mut change, id, revision).await? else { return Ok(Outcome::Changed) };
        let new = edit.role.unwrap_or(role);
        if role == Role::Admin && new != Role::Admin && is_last(&mut change, id).await? {
            return Ok(Outcome::LastAdministrator);
        }
        query("UPDATE users SET role = $1, password_hash = $2, revision = revision + 1 WHERE id = $3")
            .bind(new.name())
            .bind(edit.password_hash.unwrap_or(&hash))
            .bind(id)
            .execute(&mut *change)
            .await?;
        query("DELETE FROM sessions WHERE user_id = $1 AND token_sha256 <> $2")
            .bind(id)
            .bind(edit.but_session)
            .execute(&mut *change)
            .await?;
        // Who is given a new password by somebody else may have lost more than that.
        let is_reset = edit.password_hash.is_some() && edit.but_session.is_empty();
        revoke_above(&mut change, &name, Some(new).filter(|_| !is_reset)).await?;
        for line in audit {
            line.write(&mut change).await?;
        }
        self.keep(change).await?;
        Ok(Outcome::Done)
    }

    /// Removes a user who is still as he was read, with his sessions, and the tokens that he made but those of nodes.
    pub(crate) async fn remove_user(&self, (id, revision): (i64, i64), audit: Audit<'_>) -> sqlx::Result<Outcome> {
        let mut change = self.change().await?;
        let Some((name, role, _)) = present(&mut change, id, revision).await? else { return Ok(Outcome::Changed) };
        if role == Role::Admin && is_last(&mut change, id).await? {
            return Ok(Outcome::LastAdministrator);
        }
        for sql in ["DELETE FROM sessions WHERE user_id = $1", "DELETE FROM users WHERE id = $1"] {
            query(sql).bind(id).execute(&mut *change).await?;
        }
        revoke_above(&mut change, &name, None).await?;
        audit.write(&mut change).await?;
        self.keep(change).await?;
        Ok(Outcome::Done)
    }

    /// Ends a user's sessions, and takes his role away, and the tokens that he made but those of nodes. He stays, as a viewer who
    /// does not come in. False: there was nothing to end.
    pub(crate) async fn shut_out(&self, id: i64, name: &str, audit: Audit<'_>) -> sqlx::Result<bool> {
        let mut change = self.change().await?;
        let sessions = query("DELETE FROM sessions WHERE user_id = $1").bind(id).execute(&mut *change).await?;
        let demote = "UPDATE users SET role = 'viewer' WHERE id = $1 AND role <> 'viewer'";
        let roles = query(demote).bind(id).execute(&mut *change).await?;
        // Of whoever is on his way in, too.
        query("UPDATE users SET revision = revision + 1 WHERE id = $1").bind(id).execute(&mut *change).await?;
        let tokens = revoke_above(&mut change, name, None).await?;
        let is_something = sessions.rows_affected() + roles.rows_affected() + tokens > 0;
        if is_something {
            audit.write(&mut change).await?;
        }
        self.keep(change).await?;
        Ok(is_something)
    }

    /// The role that a user has now; `None`: he is gone.
    pub(crate) async fn role_of(&self, user: i64) -> sqlx::Result<Option<Role>> {
        let found: Option<(String,)> =
            query_as("SELECT role FROM users WHERE id = $1").bind(user).fetch_optional(&self.pool).await?;
        found.map(|(role,)| read_role(&role)).transpose()
    }
}

/// Name, role and hash of a user who is still as he was read.
async fn present(change: &mut Change, id: i64, revision: i64) -> sqlx::Result<Option<(String, Role, String)>> {
    let found: Option<(String, String, String)> =
        query_as("SELECT name, role, password_hash FROM users WHERE id = $1 AND revision = $2")
            .bind(id)
            .bind(revision)
            .fetch_optional(&mut **change)
            .await?;
    found.map(|(name, role, hash)| Ok((name, read_role(&role)?, hash))).transpose()
}

/// Is there no other administrator?
async fn is_last(change: &mut Change, id: i64) -> sqlx::Result<bool> {
    let others: i64 = query_scalar("SELECT count(*) FROM users WHERE role = 'admin' AND id <> $1")
        .bind(id)
        .fetch_one(&mut **change)
        .await?;
    Ok(others == 0)
}

/// Takes the tokens away that somebody made for more than this role; for `None`, for any. How many those were.
async fn revoke_above(change: &mut Change, name: &str, role: Option<Role>) -> sqlx::Result<u64> {
    let mut revoked = 0;
    for above in Role::ALL.into_iter().filter(|above| Some(*above) > role) {
        revoked += query("DELETE FROM tokens WHERE made_by = $1 AND role = $2")
            .bind(name)
            .bind(above.name())
            .execute(&mut **change)
            .await?
            .rows_affected();
    }
    Ok(revoked)
}

pub(super) fn read_role(name: &str) -> sqlx::Result<Role> {
    name.parse().map_err(|error: UnknownRole| sqlx::Error::Decode(error.into()))
}
