//! Secrets that all servers of the database have in common, and keep over their restarts.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sqlx::{query, query_scalar};

use crate::{base::secrets::SECRET_BYTES, store::database::Store};

impl Store {
    /// The secret of this name; it is `first` where there is none yet.
    pub(crate) async fn secret(&self, name: &str, first: &[u8; SECRET_BYTES]) -> sqlx::Result<[u8; SECRET_BYTES]> {
        let mut change = self.change().await?;
        query("INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING")
            .bind(name)
            .bind(URL_SAFE_NO_PAD.encode(first))
            .execute(&mut *change)
            .await?;
        let kept: String =
            query_scalar("SELECT value FROM secrets WHERE name = $1").bind(name).fetch_one(&mut *change).await?;
        self.keep(change).await?;
        let bytes = URL_SAFE_NO_PAD.decode(kept).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| sqlx::Error::Decode(format!("the secret `{name}` is not what was written").into()))
    }
}
