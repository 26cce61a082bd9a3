//! The audit log: who did what, and who was refused. Lines are added, and never changed: the database refuses that itself.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlx::{Any, AnyConnection, AssertSqlSafe, any::AnyArguments, query, query::QueryAs, query_as, query_scalar};

use crate::store::database::{Store, pattern};

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
    /// Of the request, as its answer said; empty: there was none.
    pub(crate) request_id: &'a str,
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
    /// `X-Request-Id` of the answer to the request that it is about; empty: there was none, or the line is older than these ids.
    pub(crate) request_id: String,
}

/// How what a line is about came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Came {
    Done,
    Refused,
}

/// Of a token: it was not used before on this day.
pub(super) const USED_FIRST: &str = "first of the day";

/// The columns of a line.
const COLUMNS: &str = "id, at, actor, address, action, object, result, request_id";

/// Which lines are looked for; what is empty does not count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sought {
    pub(crate) actor: String,
    /// Whole, or what stands before the first dot.
    pub(crate) action: String,
    pub(crate) object: String,
    pub(crate) result: Option<Came>,
    pub(crate) request_id: String,
    /// Anywhere in the line; A to Z and a to z are the same. All lines are read for it.
    pub(crate) text: String,
    /// RFC 3339 in UTC without what is below the second, nor `Z`: lines of this second and later.
    pub(crate) from: String,
    /// The same: lines of before this second.
    pub(crate) to: String,
}

impl Audit<'_> {
    /// Writes the line with the change that it is about: both, or none.
    pub(super) async fn write(&self, connection: &mut AnyConnection) -> sqlx::Result<()> {
        query("INSERT INTO audit (at, actor, address, action, object, result, request_id) VALUES ($1, $2, $3, $4, $5, $6, $7)")
            .bind(jiff::Timestamp::now().to_string())
            .bind(self.actor)
            .bind(self.address)
            .bind(self.action)
            .bind(self.object)
            .bind(self.result)
            .bind(self.request_id)
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
            query_as(AssertSqlSafe(format!("SELECT {COLUMNS} FROM audit ORDER BY id DESC LIMIT $1")))
                .bind(i64::try_from(count).unwrap_or(i64::MAX))
                .fetch_all(&self.pool)
                .await?;
        lines.reverse();
        Ok(lines)
    }

    /// The next lines after line `id`, at most so many, oldest first.
    pub(crate) async fn audit_lines_after(&self, id: i64, count: usize) -> sqlx::Result<Vec<AuditLine>> {
        query_as(AssertSqlSafe(format!("SELECT {COLUMNS} FROM audit WHERE id > $1 ORDER BY id LIMIT $2")))
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
        let mut lines = Vec::new();
        for action in self.actions(&sought.action).await? {
            let (sql, texts) = sought.sql(action, |n| format!("id < ${n} ORDER BY id DESC LIMIT ${}", n + 1));
            lines.extend(bound(sql, texts).bind(before).bind(i64::from(count)).fetch_all(&self.pool).await?);
        }
        lines.sort_unstable_by_key(|line| Reverse(line.id));
        lines.truncate(count as usize);
        Ok(lines)
    }

    /// Lines after line `after` up to line `last`, oldest first, at most so many.
    pub(crate) async fn audit_between(
        &self,
        sought: &Sought,
        (after, last): (i64, i64),
        count: u32,
    ) -> sqlx::Result<Vec<AuditLine>> {
        let mut lines = Vec::new();
        for action in self.actions(&sought.action).await? {
            let rest = |n| format!("id > ${n} AND id <= ${} ORDER BY id LIMIT ${}", n + 1, n + 2);
            let (sql, texts) = sought.sql(action, rest);
            lines.extend(bound(sql, texts).bind(after).bind(last).bind(i64::from(count)).fetch_all(&self.pool).await?);
        }
        lines.sort_unstable_by_key(|line| line.id);
        lines.truncate(count as usize);
        Ok(lines)
    }

    /// The actions that a name stands for: itself, and without a dot all that begin with it and one. Each is looked for by
    /// itself, because an index has the lines of one action in their order. `None`: any.
    async fn actions(&self, name: &str) -> sqlx::Result<Vec<Option<String>>> {
        if name.is_empty() {
            return Ok(vec![None]);
        }
        let mut actions = vec![Some(name.to_owned())];
        if !name.contains('.') {
            // From each to the next, of which there are a handful, rather than through all lines.
            let begun: Vec<Option<String>> = query_scalar(
                "WITH RECURSIVE begun (action) AS (
                     SELECT min(action) FROM audit WHERE action >= $1 AND action < $2
                     UNION ALL
                     SELECT (SELECT min(audit.action) FROM audit WHERE audit.action > begun.action AND audit.action < $2)
                     FROM begun WHERE begun.action IS NOT NULL)
                 SELECT action FROM begun WHERE action IS NOT NULL",
            )
            .bind(format!("{name}."))
            // What comes after the dot.
            .bind(format!("{name}/"))
            .fetch_all(&self.pool)
            .await?;
            actions.extend(begun);
        }
        Ok(actions)
    }
}

fn bound(sql: String, texts: Vec<String>) -> QueryAs<'static, Any, AuditLine, AnyArguments> {
    // It is put together from what stands in this file.
    texts.into_iter().fold(query_as(AssertSqlSafe(sql)), QueryAs::bind)
}

impl Sought {
    /// Are many more lines read for it than it finds? Of two filters, an index serves one; a request has a few lines.
    pub(crate) fn is_heavy(&self) -> bool {
        let filters = [&self.actor, &self.action, &self.object].into_iter().filter(|filter| !filter.is_empty()).count();
        (filters > 1 && self.request_id.is_empty())
            || self.result.is_some()
            || !self.text.is_empty()
            || !self.from.is_empty()
            || !self.to.is_empty()
    }

    /// A query of these lines, of one action or any, and what its first placeholders stand for; `rest` is given the number of the next one. Only what
    /// is looked for stands in it, so that an index serves.
    fn sql(&self, action: Option<String>, rest: impl FnOnce(usize) -> String) -> (String, Vec<String>) {
        let (mut conditions, mut texts) = (Vec::new(), Vec::new());
        // The number of the placeholder for a text.
        let mut place = |text: String| {
            texts.push(text);
            texts.len()
        };
        if !self.actor.is_empty() {
            conditions.push(format!("actor = ${}", place(self.actor.clone())));
        }
        if let Some(action) = action {
            conditions.push(format!("action = ${}", place(action)));
        }
        if !self.object.is_empty() {
            conditions.push(format!("object = ${}", place(self.object.clone())));
        }
        if !self.request_id.is_empty() {
            // The index has no lines without one.
            conditions.push(format!("request_id = ${} AND request_id <> ''", place(self.request_id.clone())));
        }
        if let Some(came) = self.result {
            // What was done says so, or what came of it: the version, or that a token was used.
            let is_done = format!("(result LIKE 'done%' OR result LIKE 'version:%' OR result = '{USED_FIRST}')");
            conditions.push(match came {
                Came::Done => is_done,
                Came::Refused => format!("NOT {is_done}"),
            });
        }
        if !self.text.is_empty() {
            let text = place(pattern(&self.text));
            conditions.push(format!(
                "lower(actor || ' ' || address || ' ' || action || ' ' || object || ' ' || result || ' ' || request_id)
                 LIKE ${text} ESCAPE '~'"
            ));
        }
        let mut times = Vec::new();
        if !self.from.is_empty() {
            times.push(format!("at >= ${}", place(self.from.clone())));
        }
        if !self.to.is_empty() {
            times.push(format!("at < ${}", place(self.to.clone())));
        }
        if !times.is_empty() {
            // Lines are read in the order of their numbers, which is nearly that of time: between the least and the greatest
            // of that time. The sign keeps both databases from looking for those along the numbers.
            let times = times.join(" AND ");
            conditions.push(format!(
                "{times} AND id >= (SELECT min(+id) FROM audit WHERE {times}) AND id <= (SELECT max(+id) FROM audit WHERE {times})"
            ));
        }
        conditions.push(rest(texts.len() + 1));
        let sql = format!("SELECT {COLUMNS} FROM audit WHERE {}", conditions.join(" AND "));
        (sql, texts)
    }
}
