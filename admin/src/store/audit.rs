//! The audit log: who did what, and who was refused. Lines are added, and never changed: the database refuses that itself.

use schemars::JsonSchema;
use serde::Serialize;
use sqlx::{Any, AnyConnection, any::AnyArguments, query, query::QueryAs, query_as, query_scalar};

use super::{Store, plain};

/// One line of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Audit<'a> {
    /// Name of the user, or `token:NAME`; `tidegate` for the server itself and for commands on its machine; empty where nobody
    /// has shown who he is.
    pub(crate) actor: &'a str,
    /// Address of the connection.
    pub(crate) address: &'a str,
    /// Such as `policy.publish`.
    pub(crate) action: &'a str,
    pub(crate) object: &'a str,
    /// `done`, or why it was refused.
    pub(crate) result: &'a str,
}

/// A line that was written.
#[derive(Clone, Debug, Serialize, JsonSchema, sqlx::FromRow)]
pub(crate) struct AuditLine {
    pub(crate) id: i64,
    /// RFC 3339.
    pub(crate) at: String,
    /// A user's name, or `token:NAME`; `tidegate`: the server itself, or a command on its machine; empty: nobody has shown who
    /// he is.
    pub(crate) actor: String,
    /// Of the connection; empty: there was none.
    pub(crate) address: String,
    /// Such as `policy.publish`.
    pub(crate) action: String,
    pub(crate) object: String,
    /// `done`, or why it was refused.
    pub(crate) result: String,
}

/// Which lines are looked for; what is empty does not count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sought {
    pub(crate) actor: String,
    /// Whole, or what stands before the first dot.
    pub(crate) action: String,
    pub(crate) object: String,
    /// Anywhere in the line, in letters of either case.
    pub(crate) text: String,
    /// RFC 3339 in UTC without what is below the second, nor `Z`: lines of this second and later.
    pub(crate) from: String,
    /// The same: lines of before this second.
    pub(crate) to: String,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, at, actor, address, action, object, result FROM audit
             WHERE ($1 = '' OR actor = $1) AND ($2 = '' OR action = $2 OR action LIKE $3 ESCAPE '~')
             AND ($4 = '' OR object = $4)
             AND ($5 = '' OR lower(actor || ' ' || address || ' ' || action || ' ' || object || ' ' || result)
                             LIKE $5 ESCAPE '~')
             AND at >= $6 AND ($7 = '' OR at < $7) ",
            $rest
        )
    };
}

impl Audit<'_> {
    /// Writes the line with the change that it is about: both, or none.
    pub(super) async fn write(&self, connection: &mut AnyConnection) -> sqlx::Result<()> {
        query("INSERT INTO audit (at, actor, address, action, object, result) VALUES ($1, $2, $3, $4, $5, $6)")
            .bind(jiff::Timestamp::now().to_string())
            .bind(self.actor)
            .bind(self.address)
            .bind(self.action)
            .bind(self.object)
            .bind(self.result)
            .execute(connection)
            .await
            .map(drop)
    }
}

impl Store {
    /// Writes a line about what changed nothing. In its turn, as all lines: then they are there in the order of their ids.
    pub(crate) async fn audit(&self, line: Audit<'_>) -> sqlx::Result<()> {
        let mut change = self.change().await?;
        line.write(&mut change).await?;
        self.keep(change).await
    }

    /// The newest lines, at most so many, oldest first.
    pub(crate) async fn last_audit_lines(&self, count: usize) -> sqlx::Result<Vec<AuditLine>> {
        let mut lines: Vec<AuditLine> =
            query_as("SELECT id, at, actor, address, action, object, result FROM audit ORDER BY id DESC LIMIT $1")
                .bind(i64::try_from(count).unwrap_or(i64::MAX))
                .fetch_all(&self.pool)
                .await?;
        lines.reverse();
        Ok(lines)
    }

    /// The next lines after line `id`, at most so many, oldest first.
    pub(crate) async fn audit_lines_after(&self, id: i64, count: usize) -> sqlx::Result<Vec<AuditLine>> {
        query_as("SELECT id, at, actor, address, action, object, result FROM audit WHERE id > $1 ORDER BY id LIMIT $2")
            .bind(id)
            .bind(i64::try_from(count).unwrap_or(i64::MAX))
            .fetch_all(&self.pool)
            .await
    }

    /// Number of the newest line; 0 where there is none.
    pub(crate) async fn newest_audit(&self) -> sqlx::Result<i64> {
        query_scalar("SELECT coalesce(max(id), 0) FROM audit").fetch_one(&self.pool).await
    }

    /// Lines before line `before`, newest first, at most so many.
    pub(crate) async fn audit_before(&self, sought: &Sought, before: i64, count: u32) -> sqlx::Result<Vec<AuditLine>> {
        let sql = select!("AND id < $8 ORDER BY id DESC LIMIT $9");
        sought.bind(query_as(sql)).bind(before).bind(i64::from(count)).fetch_all(&self.pool).await
    }

    /// Lines after line `after` up to line `last`, oldest first, at most so many.
    pub(crate) async fn audit_between(
        &self,
        sought: &Sought,
        (after, last): (i64, i64),
        count: i64,
    ) -> sqlx::Result<Vec<AuditLine>> {
        let sql = select!("AND id > $8 AND id <= $9 ORDER BY id LIMIT $10");
        sought.bind(query_as(sql)).bind(after).bind(last).bind(count).fetch_all(&self.pool).await
    }
}

type Lines<'q> = QueryAs<'q, Any, AuditLine, AnyArguments>;

impl Sought {
    fn bind<'q>(&self, query: Lines<'q>) -> Lines<'q> {
        let text = if self.text.is_empty() { String::new() } else { format!("%{}%", plain(&self.text.to_lowercase())) };
        query
            .bind(self.actor.clone())
            .bind(self.action.clone())
            .bind(format!("{}.%", plain(&self.action)))
            .bind(self.object.clone())
            .bind(text)
            .bind(self.from.clone())
            .bind(self.to.clone())
    }
}
