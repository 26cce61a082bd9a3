//! The secret that identities are hashed with.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sqlx::{query, query_scalar};

use super::Store;
use crate::folder::SECRET_BYTES;

impl Store {
    /// What identities are hashed with where nobody shall read them: the same for all servers of the database, and over their
    /// restarts. It is `first` where there is none yet.
    pub(crate) async fn hashing_secret(&self, first: &[u8; SECRET_BYTES]) -> sqlx::Result<[u8; SECRET_BYTES]> {
        let mut change = self.change().await?;
        query("INSERT INTO secrets (name, value) VALUES ('hashing', $1) ON CONFLICT (name) DO NOTHING")
            .bind(URL_SAFE_NO_PAD.encode(first))
            .execute(&mut *change)
            .await?;
        let kept: String =
            query_scalar("SELECT value FROM secrets WHERE name = 'hashing'").fetch_one(&mut *change).await?;
        self.keep(change).await?;
        let bytes = URL_SAFE_NO_PAD.decode(kept).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| sqlx::Error::Decode("the secret of hashed identities is not what was written".into()))
    }
}
