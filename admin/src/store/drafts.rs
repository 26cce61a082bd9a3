//! Change lists that somebody shares before they are published.

use schemars::JsonSchema;
use serde::Serialize;
use sqlx::{FromRow, Row, query, query_as};

use crate::store::{audit::Audit, database::Store};

/// A change list that was saved.
#[derive(Clone, Debug, Serialize, JsonSchema, sqlx::FromRow)]
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) author: String,
    /// Of the list.
    pub(crate) message: String,
    /// RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) saved_at: String,
    /// When it is forgotten; RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) ends_at: String,
}

/// The most drafts that are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftCaps {
    /// Drafts of all authors.
    pub(crate) all: i64,
    /// Drafts of one author.
    pub(crate) author: i64,
}

/// What became of a draft that was to be saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DraftOutcome {
    Saved,
    /// Its author has as many as they may have.
    AuthorFull,
    /// There are as many as there may be.
    Full,
}

impl Store {
    /// Saves a draft, unless there are too many already; forgets those that ended before `now`.
    pub(crate) async fn add_draft(
        &self,
        draft: &Draft,
        list: &str,
        now: &str,
        caps: DraftCaps,
        audit: Audit<'_>,
    ) -> sqlx::Result<DraftOutcome> {
        let mut change = self.change().await?;
        query("DELETE FROM drafts WHERE ends_at <= $1").bind(now).execute(&mut *change).await?;
        let (all, of_author): (i64, i64) =
            query_as("SELECT count(*), count(CASE WHEN author = $1 THEN 1 END) FROM drafts")
                .bind(&draft.author)
                .fetch_one(&mut *change)
                .await?;
        if of_author >= caps.author {
            return Ok(DraftOutcome::AuthorFull);
        }
        if all >= caps.all {
            return Ok(DraftOutcome::Full);
        }
        query("INSERT INTO drafts (id, author, message, list, saved_at, ends_at) VALUES ($1, $2, $3, $4, $5, $6)")
            .bind(&draft.id)
            .bind(&draft.author)
            .bind(&draft.message)
            .bind(list)
            .bind(&draft.saved_at)
            .bind(&draft.ends_at)
            .execute(&mut *change)
            .await?;
        audit.write(&mut change).await?;
        self.keep(change).await?;
        Ok(DraftOutcome::Saved)
    }

    /// Those whose author or message is like `pattern`, newest first, at most `count`, after the one that was saved at `saved_at` and has this id.
    pub(crate) async fn drafts(
        &self,
        now: &str,
        pattern: &str,
        after: (&str, &str),
        count: u32,
    ) -> sqlx::Result<Vec<Draft>> {
        query_as(
            "SELECT id, author, message, saved_at, ends_at FROM drafts
             WHERE ends_at > $1 AND (saved_at < $2 OR (saved_at = $2 AND id > $3))
             AND lower(author || ' ' || message) LIKE $5 ESCAPE '~' ORDER BY saved_at DESC, id LIMIT $4",
        )
        .bind(now)
        .bind(after.0)
        .bind(after.1)
        .bind(i64::from(count))
        .bind(pattern)
        .fetch_all(&self.pool)
        .await
    }

    /// A draft with its list.
    pub(crate) async fn draft(&self, id: &str, now: &str) -> sqlx::Result<Option<(Draft, String)>> {
        let found =
            query("SELECT id, author, message, saved_at, ends_at, list FROM drafts WHERE id = $1 AND ends_at > $2")
                .bind(id)
                .bind(now)
                .fetch_optional(&self.pool)
                .await?;
        found.map(|row| Ok((Draft::from_row(&row)?, row.try_get("list")?))).transpose()
    }

    /// False where there is none.
    pub(crate) async fn remove_draft(&self, id: &str, audit: Audit<'_>) -> sqlx::Result<bool> {
        let mut change = self.change().await?;
        let removed = query("DELETE FROM drafts WHERE id = $1").bind(id).execute(&mut *change).await?;
        if removed.rows_affected() == 0 {
            return Ok(false);
        }
        audit.write(&mut change).await?;
        self.keep(change).await?;
        Ok(true)
    }
}
