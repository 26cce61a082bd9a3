//! Sessions: who is signed in, from where, since when.

use sqlx::{query, query_as};

use crate::{
    base::secrets::SessionLife,
    domain::roles::Role,
    store::{
        audit::Audit,
        database::{Change, Store},
        database_metrics::Asking,
        users::read_role,
    },
};

/// The most sessions of a user.
pub(super) const OF_USER_MAX: i64 = 100;

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
    /// Unix seconds: when it ends however much it is used.
    pub(crate) expires_at: i64,
    /// Unix seconds.
    pub(crate) last_seen_at: i64,
}

/// A session that begins.
pub(crate) struct NewSession<'a> {
    /// Of the cookie's token.
    pub(crate) token_sha256: &'a str,
    /// Id of the user, and his revision when his right to it was seen: he may have another password or role by now, or be gone.
    pub(crate) user: (i64, i64),
    pub(crate) csrf: &'a str,
    pub(crate) proof: Proof<'a>,
    /// Unix seconds.
    pub(crate) begins_at: i64,
    pub(crate) life: SessionLife,
    pub(crate) address: &'a str,
    /// As it calls itself.
    pub(crate) browser: &'a str,
}

/// Proof of who the user is. All but a password begin one session only.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proof<'a> {
    Password,
    /// The password, and the code of this step of an authenticator app.
    Code(i64),
    /// The password, and the recovery code with this SHA-256.
    RecoveryCode(&'a str),
    Provider(UsedSignIn<'a>),
}

/// A sign-in by the provider that came to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsedSignIn<'a> {
    pub(crate) state_sha256: &'a str,
    /// When it would be over in any case, in Unix seconds.
    pub(crate) ends_at: i64,
}

/// A session in a list.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct SessionRow {
    pub(crate) token_sha256: String,
    /// Unix seconds; so are the others.
    pub(crate) created_at: i64,
    pub(crate) expires_at: i64,
    pub(crate) last_seen_at: i64,
    pub(crate) address: String,
    pub(crate) browser: String,
}

/// Which sessions of a user end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending<'a> {
    All,
    /// By the beginning of its SHA-256.
    One(&'a str),
    /// But the one with this SHA-256.
    Others(&'a str),
}

impl Store {
    /// Begins a session, and forgets those that ended. Of a user who has [`OF_USER_MAX`], the one that was not used for the longest
    /// time ends. Returns false if the user is not as they were seen, or what they showed is no proof, or was used before.
    pub(crate) async fn begin_session(&self, new: NewSession<'_>, audit: Audit<'_>) -> sqlx::Result<bool> {
        let mut change = self.change().await?;
        query("DELETE FROM sessions WHERE expires_at <= $1 OR last_seen_at <= $2")
            .bind(new.begins_at)
            .bind(new.begins_at - new.life.idle_s)
            .execute(&mut *change)
            .await?;
        let begun = query(
            "INSERT INTO sessions (token_sha256, user_id, csrf, created_at, expires_at, last_seen_at, address, browser)
             SELECT $1, id, $3, $4, $5, $6, $7, $8 FROM users WHERE id = $2 AND revision = $9",
        )
        .bind(new.token_sha256)
        .bind(new.user.0)
        .bind(new.csrf)
        .bind(new.begins_at)
        .bind(new.begins_at + new.life.whole_s)
        .bind(new.begins_at)
        .bind(new.address)
        .bind(new.browser)
        .bind(new.user.1)
        .execute(&mut *change)
        .await?;
        if begun.rows_affected() == 0 || !use_up(&mut change, &new).await? {
            return Ok(false);
        }
        query(
            "DELETE FROM sessions WHERE user_id = $1 AND token_sha256 <> $2 AND token_sha256 NOT IN (
                 SELECT token_sha256 FROM sessions WHERE user_id = $1 AND token_sha256 <> $2
                 ORDER BY last_seen_at DESC, token_sha256 LIMIT $3
             )",
        )
        .bind(new.user.0)
        .bind(new.token_sha256)
        .bind(OF_USER_MAX - 1)
        .execute(&mut *change)
        .await?;
        query("UPDATE users SET last_seen_at = $1 WHERE id = $2")
            .bind(new.begins_at)
            .bind(new.user.0)
            .execute(&mut *change)
            .await?;
        audit.write(&mut change).await?;
        self.keep(change).await?;
        Ok(true)
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
    pub(crate) async fn count_sessions(&self, now: i64, life: SessionLife) -> sqlx::Result<i64> {
        let (count,): (i64,) = query_as("SELECT count(*) FROM sessions WHERE expires_at > $1 AND last_seen_at > $2")
            .bind(now)
            .bind(now - life.idle_s)
            .fetch_one(&self.pool)
            .await?;
        Ok(count)
    }

    /// The session of this token, unless it has ended.
    pub(crate) async fn session(
        &self,
        token_sha256: &str,
        now: i64,
        life: SessionLife,
    ) -> sqlx::Result<Option<Session>> {
        self.measure(Asking::Session, self.read_session(token_sha256, now, life)).await
    }

    async fn read_session(&self, token_sha256: &str, now: i64, life: SessionLife) -> sqlx::Result<Option<Session>> {
        let found: Option<(i64, String, String, String, i64, i64)> = query_as(
            "SELECT users.id, name, role, csrf, expires_at, sessions.last_seen_at FROM sessions
             JOIN users ON users.id = user_id
             WHERE token_sha256 = $1 AND expires_at > $2 AND sessions.last_seen_at > $3",
        )
        .bind(token_sha256)
        .bind(now)
        .bind(now - life.idle_s)
        .fetch_optional(&self.pool)
        .await?;
        let Some((user, name, role, csrf, expires_at, last_seen_at)) = found else { return Ok(None) };
        let (token_sha256, role) = (token_sha256.to_owned(), read_role(&role)?);
        Ok(Some(Session { token_sha256, user, name, role, csrf, expires_at, last_seen_at }))
    }

    /// Those of a user that have not ended, the one that was used last first.
    pub(crate) async fn sessions_of(&self, user: i64, now: i64, life: SessionLife) -> sqlx::Result<Vec<SessionRow>> {
        query_as(
            "SELECT token_sha256, created_at, expires_at, last_seen_at, address, browser FROM sessions
             WHERE user_id = $1 AND expires_at > $2 AND last_seen_at > $3 ORDER BY last_seen_at DESC, token_sha256",
        )
        .bind(user)
        .bind(now)
        .bind(now - life.idle_s)
        .fetch_all(&self.pool)
        .await
    }

    /// Ends sessions of a user, and answers how many. With all, or all others, the browsers that are known end too. Where one
    /// is named that is not there, nothing is written.
    pub(crate) async fn end_sessions(&self, user: i64, which: Ending<'_>, audit: Audit<'_>) -> sqlx::Result<u64> {
        let mut change = self.change().await?;
        let ended = match which {
            Ending::All => query("DELETE FROM sessions WHERE user_id = $1").bind(user),
            Ending::One(id) => query("DELETE FROM sessions WHERE user_id = $1 AND substr(token_sha256, 1, 16) = $2")
                .bind(user)
                .bind(id),
            Ending::Others(token_sha256) => {
                query("DELETE FROM sessions WHERE user_id = $1 AND token_sha256 <> $2").bind(user).bind(token_sha256)
            }
        };
        let ended = ended.execute(&mut *change).await?.rows_affected();
        match which {
            Ending::One(_) if ended == 0 => return Ok(0),
            Ending::One(_) => {}
            Ending::All | Ending::Others(_) => {
                let count = "UPDATE users SET sign_outs = sign_outs + 1 WHERE id = $1";
                query(count).bind(user).execute(&mut *change).await?;
            }
        }
        audit.write(&mut change).await?;
        self.keep(change).await?;
        Ok(ended)
    }
}

/// How long a sign-in that is over is known as used.
const USED_FOR_S: i64 = 600;

/// Uses up what the user has shown. Of sign-ins by the provider few are kept: only who has shown who they are comes to that.
/// False: it is no proof, or was used before.
async fn use_up(change: &mut Change, new: &NewSession<'_>) -> sqlx::Result<bool> {
    let user = new.user.0;
    let taken = match new.proof {
        Proof::Password => return Ok(true),
        Proof::Code(step) => query("UPDATE second_factors SET last_step = $1 WHERE user_id = $2 AND last_step < $1")
            .bind(step)
            .bind(user),
        Proof::RecoveryCode(sha256) => {
            query("DELETE FROM recovery_codes WHERE code_sha256 = $1 AND user_id = $2").bind(sha256).bind(user)
        }
        Proof::Provider(UsedSignIn { state_sha256, ends_at }) => {
            // One that was in time when it came may wait for its turn, and clocks of servers differ.
            let over = new.begins_at - USED_FOR_S;
            query("DELETE FROM used_sign_ins WHERE ends_at <= $1").bind(over).execute(&mut **change).await?;
            query("INSERT INTO used_sign_ins (state_sha256, ends_at) VALUES ($1, $2) ON CONFLICT DO NOTHING")
                .bind(state_sha256)
                .bind(ends_at)
        }
    };
    Ok(taken.execute(&mut **change).await?.rows_affected() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        publish::stored_policy::write_first,
        store::{
            data_directory::DataFolder,
            users::{Edit, Means, Outcome},
        },
    };

    const LIFE: SessionLife = SessionLife { idle_s: 60, whole_s: 60 };
    const LINE: Audit<'_> =
        Audit { actor: "ana", address: "", action: "test", object: "", result: "done", request_id: "" };

    async fn begin(store: &Store, user: (i64, i64)) -> bool {
        let token_sha256 = &format!("{user:?}");
        let new = NewSession {
            token_sha256,
            user,
            csrf: "c",
            proof: Proof::Password,
            begins_at: 1,
            life: LIFE,
            address: "",
            browser: "",
        };
        let begun = store.begin_session(new, LINE).await.expect("an answer");
        assert_eq!(store.session(token_sha256, 1, LIFE).await.expect("an answer").is_some(), begun);
        begun
    }

    /// While a password is hashed, or the provider asked, an administrator may change the user.
    #[tokio::test]
    async fn no_session_begins_of_a_user_who_was_changed_meanwhile() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = DataFolder::take(folder.path()).expect("it is free");
        let store = Store::create(&mut data, write_first).await.expect("it is made");
        let ana = store.add_first_administrator("ana", "hash", 1, LINE).await.expect("it is added").expect("the first");
        assert!(begin(&store, ana).await);
        let edit = Edit { password_hash: Some("another"), ..Edit::default() };
        assert_eq!(store.change_user(ana, edit, &[LINE]).await.expect("an answer"), Outcome::Done);
        assert!(!begin(&store, ana).await, "another password");
        // The same of who signs in by the provider, who has none.
        let add = async |subject| {
            let means = Means::Provider { issuer: "https://id.example", subject };
            assert!(store.add_user((subject, Role::Editor, means), 1, LINE).await.expect("an answer"));
            let who = ("https://id.example", subject);
            store.user_of_provider(who, 1, LIFE).await.expect("an answer").expect("he is there")
        };
        let ed = add("ed").await;
        let seen = (ed.id, ed.revision);
        let edit = Edit { role: Some(Role::Viewer), ..Edit::default() };
        assert_eq!(store.change_user(seen, edit, &[LINE]).await.expect("an answer"), Outcome::Done);
        assert!(!begin(&store, seen).await, "another role");
        let seen = (ed.id, ed.revision + 1);
        assert_eq!(store.remove_user(seen, LINE).await.expect("an answer"), Outcome::Done);
        assert!(!begin(&store, seen).await, "gone");
        // Whoever comes next has his id.
        let ben = add("ben").await;
        assert_eq!(ben.id, ed.id);
        assert!(!begin(&store, seen).await, "somebody else");
        assert!(begin(&store, (ben.id, ben.revision)).await);
        assert!(store.shut_out(ben.id, "ben", LINE).await.expect("an answer"));
        assert!(!begin(&store, (ben.id, ben.revision)).await, "shut out");
    }

    /// Two callbacks may come at once.
    #[tokio::test]
    async fn a_sign_in_begins_one_session() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = DataFolder::take(folder.path()).expect("it is free");
        let store = Store::create(&mut data, write_first).await.expect("it is made");
        let user =
            store.add_first_administrator("ana", "hash", 1, LINE).await.expect("it is added").expect("the first");
        let begin = async |token_sha256, state_sha256, begins_at| {
            let proof = Proof::Provider(UsedSignIn { state_sha256, ends_at: begins_at + 10 });
            let new =
                NewSession { token_sha256, user, csrf: "c", proof, begins_at, life: LIFE, address: "", browser: "" };
            store.begin_session(new, LINE).await.expect("an answer")
        };
        assert!(begin("a", "state", 1).await && begin("b", "another", 1).await);
        assert!(!begin("c", "state", 1).await && !begin("c", "state", 10).await);
        assert!(!begin("c", "state", 10 + USED_FOR_S).await, "it waited for its turn");
        // What is kept of it is forgotten when its cookie would be too old.
        assert!(begin("c", "third", 11 + USED_FOR_S).await);
        let kept: i64 =
            sqlx::query_scalar("SELECT count(*) FROM used_sign_ins").fetch_one(&store.pool).await.expect("a count");
        assert_eq!(kept, 1);
    }
}
