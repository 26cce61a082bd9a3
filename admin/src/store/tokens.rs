//! Tokens of scripts and nodes. Their secrets are stored as hashes only.

use sqlx::{query, query_as, query_scalar};

use crate::{
    domain::{objects::Kind, roles::May},
    store::{
        audit::{Audit, USED_FIRST},
        database::Store,
        database_metrics::Asking,
    },
};

/// A token, without its secret.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) may: May,
    /// Of the objects that it may change; `None`: all that its role may.
    pub(crate) kinds: Option<Vec<Kind>>,
    /// Who made it.
    pub(crate) made_by: String,
    /// Unix seconds; so are the others. 0 stands for never.
    pub(crate) made_at: i64,
    pub(crate) ends_at: i64,
    pub(crate) last_used_at: i64,
    pub(crate) last_used_address: String,
    /// By another of the same name.
    pub(crate) replaced_at: i64,
}

type Columns = (String, String, String, String, String, i64, i64, i64, String, i64);

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, name, role, kinds, made_by, made_at, ends_at, last_used_at, last_used_address, replaced_at FROM tokens ",
            $rest
        )
    };
}

impl Token {
    /// Returns its name as the audit log has it.
    pub(crate) fn full_name(&self) -> String {
        format!("token:{}", self.name)
    }
}

impl TryFrom<Columns> for Token {
    type Error = sqlx::Error;

    fn try_from(columns: Columns) -> sqlx::Result<Self> {
        let (id, name, may, kinds, made_by, made_at, ends_at, last_used_at, last_used_address, replaced_at) = columns;
        let may = may.parse().map_err(|error: crate::domain::roles::UnknownRole| sqlx::Error::Decode(error.into()))?;
        let unknown = |()| sqlx::Error::Decode(format!("kinds `{kinds}`").into());
        let names = kinds.split(',').filter(|name| !name.is_empty());
        let read = names.map(str::parse).collect::<Result<Vec<Kind>, ()>>().map_err(unknown)?;
        let kinds = (!kinds.is_empty()).then_some(read);
        Ok(Self { id, name, may, kinds, made_by, made_at, ends_at, last_used_at, last_used_address, replaced_at })
    }
}

impl Store {
    /// The token with this SHA-256, unless it has ended.
    pub(crate) async fn token_of(&self, sha256: &str, now: i64) -> sqlx::Result<Option<Token>> {
        self.measure(Asking::Session, async {
            let found: Option<Columns> = query_as(select!("WHERE sha256 = $1 AND (ends_at = 0 OR ends_at > $2)"))
                .bind(sha256)
                .bind(now)
                .fetch_optional(&self.pool)
                .await?;
            found.map(Token::try_from).transpose()
        })
        .await
    }

    /// All of them that have not ended, the newest first.
    pub(crate) async fn tokens(&self, now: i64) -> sqlx::Result<Vec<Token>> {
        let found: Vec<Columns> = query_as(select!("WHERE ends_at = 0 OR ends_at > $1 ORDER BY made_at DESC, id"))
            .bind(now)
            .fetch_all(&self.pool)
            .await?;
        found.into_iter().map(Token::try_from).collect()
    }

    /// A token that has not ended.
    pub(crate) async fn token(&self, id: &str, now: i64) -> sqlx::Result<Option<Token>> {
        let found: Option<Columns> = query_as(select!("WHERE id = $1 AND (ends_at = 0 OR ends_at > $2)"))
            .bind(id)
            .bind(now)
            .fetch_optional(&self.pool)
            .await?;
        found.map(Token::try_from).transpose()
    }

    /// Adds a token, unless there are `count_max` already; forgets those that have ended. With `replaces`, the id of another
    /// and Unix seconds, that one ends then at the latest; nothing is added where it is gone or was replaced. Otherwise no token
    /// may ever have had the name, since what it did is under it.
    pub(crate) async fn add_token(
        &self,
        token: &Token,
        sha256: &str,
        replaces: Option<(&str, i64)>,
        count_max: i64,
        audit: Audit<'_>,
    ) -> sqlx::Result<Added> {
        let mut change = self.change().await?;
        query("DELETE FROM tokens WHERE ends_at <> 0 AND ends_at <= $1")
            .bind(token.made_at)
            .execute(&mut *change)
            .await?;
        if let Some((id, end)) = replaces {
            let replaced_at: Option<i64> = query_scalar("SELECT replaced_at FROM tokens WHERE id = $1")
                .bind(id)
                .fetch_optional(&mut *change)
                .await?;
            match replaced_at {
                None => return Ok(Added::Absent),
                Some(0) => {}
                Some(_) => return Ok(Added::Replaced),
            }
            query(
                "UPDATE tokens SET replaced_at = $1,
                        ends_at = CASE WHEN ends_at <> 0 AND ends_at < $2 THEN ends_at ELSE $2 END WHERE id = $3",
            )
            .bind(token.made_at)
            .bind(end)
            .bind(id)
            .execute(&mut *change)
            .await?;
        } else {
            let named = query("INSERT INTO token_names (name) VALUES ($1) ON CONFLICT (name) DO NOTHING")
                .bind(&token.name)
                .execute(&mut *change)
                .await?;
            if named.rows_affected() == 0 {
                return Ok(Added::NameTaken);
            }
        }
        let count: i64 = query_scalar("SELECT count(*) FROM tokens").fetch_one(&mut *change).await?;
        if count >= count_max {
            return Ok(Added::Full);
        }
        let kinds: Vec<&str> = token.kinds.iter().flatten().map(|kind| kind.name()).collect();
        query(
            "INSERT INTO tokens (id, name, sha256, role, kinds, made_by, made_at, ends_at, last_used_at, last_used_address)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, '')",
        )
        .bind(&token.id)
        .bind(&token.name)
        .bind(sha256)
        .bind(token.may.name())
        .bind(kinds.join(","))
        .bind(&token.made_by)
        .bind(token.made_at)
        .bind(token.ends_at)
        .execute(&mut *change)
        .await?;
        audit.write(&mut change).await?;
        self.keep(change).await?;
        Ok(Added::Done)
    }

    /// False where there is none.
    pub(crate) async fn remove_token(&self, id: &str, audit: Audit<'_>) -> sqlx::Result<bool> {
        let mut change = self.change().await?;
        let removed = query("DELETE FROM tokens WHERE id = $1").bind(id).execute(&mut *change).await?;
        if removed.rows_affected() == 0 {
            return Ok(false);
        }
        audit.write(&mut change).await?;
        self.keep(change).await?;
        Ok(true)
    }

    /// Notes that a token was used, from which address and in which request; its first use of a day (UTC) is in the audit log.
    pub(crate) async fn saw_token(
        &self,
        id: &str,
        name: &str,
        (address, request_id): (&str, &str),
        at: i64,
    ) -> sqlx::Result<()> {
        const DAY_S: i64 = 24 * 60 * 60;
        let mut change = self.change().await?;
        let before: Option<i64> =
            query_scalar("SELECT last_used_at FROM tokens WHERE id = $1").bind(id).fetch_optional(&mut *change).await?;
        query("UPDATE tokens SET last_used_at = $1, last_used_address = $2 WHERE id = $3")
            .bind(at)
            .bind(address)
            .bind(id)
            .execute(&mut *change)
            .await?;
        if before.is_some_and(|before| before / DAY_S != at / DAY_S) {
            let object = format!("token:{id}");
            let (action, object, result) = ("token.use", &object, USED_FIRST);
            let line = Audit { actor: name, address, action, object, result, request_id };
            line.write(&mut change).await?;
        }
        self.keep(change).await
    }
}

/// What became of a token that was to be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    Done,
    /// There are too many.
    Full,
    /// The one that it was to replace is gone.
    Absent,
    /// That one was replaced already.
    Replaced,
    /// Another one has its name, or had it.
    NameTaken,
}
