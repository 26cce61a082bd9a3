//! The version that went to some nodes first, if there is one.

use sqlx::{AnyConnection, Row, query};

use crate::{
    domain::version::Rollout,
    store::{
        audit::Audit,
        database::{Change, Store},
    },
};

impl Rollout {
    /// The one that is open.
    pub(crate) async fn read(connection: &mut AnyConnection) -> sqlx::Result<Option<Self>> {
        let found = query("SELECT version, keeps, nodes, author, since FROM rollout");
        let Some(row) = found.fetch_optional(connection).await? else { return Ok(None) };
        let number = |column: &str| row.try_get::<i64, _>(column).map(i64::cast_unsigned);
        let nodes = serde_json::from_str(row.try_get("nodes")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let (author, since) = (row.try_get("author")?, row.try_get("since")?);
        Ok(Some(Self { version: number("version")?, keeps: number("keeps")?, nodes, author, since }))
    }

    /// Makes this the one that is open, or none.
    pub(super) async fn write(rollout: Option<&Self>, change: &mut Change) -> sqlx::Result<()> {
        query("DELETE FROM rollout").execute(&mut **change).await?;
        let Some(Self { version, keeps, nodes, author, since }) = rollout else { return Ok(()) };
        let nodes = serde_json::to_string(nodes).map_err(|error| sqlx::Error::Encode(error.into()))?;
        query("INSERT INTO rollout (id, version, keeps, nodes, author, since) VALUES (1, $1, $2, $3, $4, $5)")
            .bind(version.cast_signed())
            .bind(keeps.cast_signed())
            .bind(nodes)
            .bind(author)
            .bind(since)
            .execute(&mut **change)
            .await
            .map(drop)
    }
}

impl Store {
    /// Lets the version go on: to the nodes of `rollout`, or to all.
    pub(crate) async fn go_on(
        &self,
        mut change: Change,
        rollout: Option<&Rollout>,
        audit: &[Audit<'_>],
    ) -> sqlx::Result<()> {
        Rollout::write(rollout, &mut change).await?;
        for line in audit {
            line.write(&mut change).await?;
        }
        self.announce(&mut change).await?;
        self.keep(change).await
    }
}
