//! Tries to sign in by a provider: who went there, and is not back yet.

use sqlx::{query, query_as};

use super::Store;

/// So many are open at a time: the oldest go first.
const OPEN_MAX: i64 = 1_000;

/// What a try has to come back with.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct SignIn {
    /// Of the ID token.
    pub(crate) nonce: String,
    /// Of PKCE.
    pub(crate) verifier: String,
    /// The path of the dashboard that the browser is sent to then.
    pub(crate) return_to: String,
}

impl Store {
    /// Begins a try of the browser that has this cookie; it ends at an instant in Unix seconds.
    pub(crate) async fn begin_sign_in(
        &self,
        (state_sha256, browser_sha256): (&str, &str),
        sign_in: &SignIn,
        (now, ends_at): (i64, i64),
    ) -> sqlx::Result<()> {
        let mut change = self.change().await?;
        query(
            "DELETE FROM sign_ins WHERE ends_at <= $1 OR state_sha256 NOT IN
             (SELECT state_sha256 FROM sign_ins ORDER BY ends_at DESC, state_sha256 LIMIT $2)",
        )
        .bind(now)
        .bind(OPEN_MAX - 1)
        .execute(&mut *change)
        .await?;
        query(
            "INSERT INTO sign_ins (state_sha256, browser_sha256, nonce, verifier, return_to, ends_at)
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(state_sha256)
        .bind(browser_sha256)
        .bind(&sign_in.nonce)
        .bind(&sign_in.verifier)
        .bind(&sign_in.return_to)
        .bind(ends_at)
        .execute(&mut *change)
        .await?;
        self.keep(change).await
    }

    /// Ends a try, once: `None` where it is over, or another browser's.
    pub(crate) async fn take_sign_in(
        &self,
        (state_sha256, browser_sha256): (&str, &str),
        now: i64,
    ) -> sqlx::Result<Option<SignIn>> {
        let mut change = self.change().await?;
        let taken = query_as(
            "DELETE FROM sign_ins WHERE state_sha256 = $1 AND browser_sha256 = $2 AND ends_at > $3
             RETURNING nonce, verifier, return_to",
        )
        .bind(state_sha256)
        .bind(browser_sha256)
        .bind(now)
        .fetch_optional(&mut *change)
        .await?;
        self.keep(change).await?;
        Ok(taken)
    }
}
