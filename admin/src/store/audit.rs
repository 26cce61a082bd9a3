//! The audit log: who did what, and who was refused.

use serde::Serialize;
use sqlx::{AnyConnection, query, query_as};

use super::Store;

/// One line of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Audit<'a> {
    /// Name of the user; what was given as a name when nobody is signed in; `tidegate` for the server itself.
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
#[derive(Clone, Debug, Serialize, sqlx::FromRow)]
pub(crate) struct AuditLine {
    pub(crate) id: i64,
    /// RFC 3339.
    at: String,
    actor: String,
    address: String,
    action: String,
    object: String,
    result: String,
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
}
