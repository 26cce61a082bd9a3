//! Second factors of users: the secret of an authenticator app, and recovery codes.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sqlx::{query, query_as, query_scalar};

use crate::store::{
    audit::Audit,
    database::{Change, Store},
};

/// An app that has shown a code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFactor<'a> {
    /// The secret that was begun.
    pub(crate) secret: &'a [u8],
    /// Step of the code.
    pub(crate) step: i64,
    /// SHA-256 of each recovery code.
    pub(crate) recovery_sha256: &'a [String],
    /// Unix seconds.
    pub(crate) made_at: i64,
}

impl Store {
    /// Returns since when codes are asked of a user, in Unix seconds, and how many recovery codes are left; `None`: no codes are
    /// asked for.
    pub(crate) async fn second_factor(&self, user: i64) -> sqlx::Result<Option<(i64, i64)>> {
        query_as(
            "SELECT made_at, (SELECT count(*) FROM recovery_codes WHERE recovery_codes.user_id = second_factors.user_id)
             FROM second_factors WHERE user_id = $1 AND secret <> ''",
        )
        .bind(user)
        .fetch_optional(&self.pool)
        .await
    }

    /// Keeps the secret of an app until it has shown a code, in place of another that was begun. One that is in use stays so.
    pub(crate) async fn begin_second_factor(&self, user: i64, secret: &[u8]) -> sqlx::Result<()> {
        let mut change = self.change().await?;
        query(
            "INSERT INTO second_factors (user_id, secret, last_step, made_at, begun)
             SELECT id, '', 0, 0, $2 FROM users WHERE id = $1
             ON CONFLICT (user_id) DO UPDATE SET begun = excluded.begun",
        )
        .bind(user)
        .bind(URL_SAFE_NO_PAD.encode(secret))
        .execute(&mut *change)
        .await?;
        self.keep(change).await
    }

    /// The secret of an app that was begun.
    pub(crate) async fn begun_second_factor(&self, user: i64) -> sqlx::Result<Option<Vec<u8>>> {
        let begun: Option<String> = query_scalar("SELECT begun FROM second_factors WHERE user_id = $1 AND begun <> ''")
            .bind(user)
            .fetch_optional(&self.pool)
            .await?;
        begun.as_deref().map(read_app_secret).transpose()
    }

    /// Asks for the codes of an app that was begun from now on, and of no other. False: it is not the one that was begun last.
    pub(crate) async fn set_second_factor(
        &self,
        user: i64,
        new: NewFactor<'_>,
        audit: Audit<'_>,
    ) -> sqlx::Result<bool> {
        let mut change = self.change().await?;
        let set = query(
            "UPDATE second_factors SET secret = begun, begun = '', last_step = $1, made_at = $2
             WHERE user_id = $3 AND begun = $4",
        )
        .bind(new.step)
        .bind(new.made_at)
        .bind(user)
        .bind(URL_SAFE_NO_PAD.encode(new.secret))
        .execute(&mut *change)
        .await?;
        if set.rows_affected() == 0 {
            return Ok(false);
        }
        end_former(&mut change, user).await?;
        for sha256 in new.recovery_sha256 {
            query("INSERT INTO recovery_codes (user_id, code_sha256) VALUES ($1, $2)")
                .bind(user)
                .bind(sha256)
                .execute(&mut *change)
                .await?;
        }
        audit.write(&mut change).await?;
        self.keep(change).await?;
        Ok(true)
    }

    /// Asks a user for codes no longer. False: none were asked for.
    pub(crate) async fn remove_second_factor(&self, user: i64, audit: Audit<'_>) -> sqlx::Result<bool> {
        let mut change = self.change().await?;
        let removed = query("DELETE FROM second_factors WHERE user_id = $1 AND secret <> ''")
            .bind(user)
            .execute(&mut *change)
            .await?;
        if removed.rows_affected() == 0 {
            return Ok(false);
        }
        end_former(&mut change, user).await?;
        audit.write(&mut change).await?;
        self.keep(change).await?;
        Ok(true)
    }
}

/// Ends what held before the second factor of a user changes: recovery codes, and sign-ins that are on their way.
async fn end_former(change: &mut Change, user: i64) -> sqlx::Result<()> {
    for sql in
        ["DELETE FROM recovery_codes WHERE user_id = $1", "UPDATE users SET revision = revision + 1 WHERE id = $1"]
    {
        query(sql).bind(user).execute(&mut **change).await?;
    }
    Ok(())
}

/// Reads the secret of an app as it is written.
pub(super) fn read_app_secret(secret: &str) -> sqlx::Result<Vec<u8>> {
    let broken = |_| sqlx::Error::Decode("the secret of an authenticator app is not what was written".into());
    URL_SAFE_NO_PAD.decode(secret).map_err(broken)
}
