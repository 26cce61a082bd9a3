//! The nodes of every server, as the others know them.

use sqlx::{AnyConnection, query, query_as, query_scalar};

use super::Store;

/// A node, as the server that it is or was connected to tells the others.
#[derive(Clone, PartialEq, Eq, Debug, sqlx::FromRow)]
pub(crate) struct KnownNode {
    pub(crate) name: String,
    /// The newest schema of policies that it can read.
    #[sqlx(try_from = "i64")]
    pub(crate) schema: u64,
    /// Of the policy in force there; 0: none.
    #[sqlx(try_from = "i64")]
    pub(crate) version: u64,
    #[sqlx(try_from = "i64")]
    pub(crate) is_connected: u64,
}

/// How long one that is gone is remembered, in seconds.
const REMEMBERED_S: i64 = 86_400;
/// A server that was not sure of its nodes for so long has them no more, in seconds.
const SURE_FOR_S: i64 = 90;

impl Store {
    /// Tells the other servers of some nodes of this one, and that it still has the rest. A node that is gone here and connected
    /// to another server is that one's.
    pub(crate) async fn tell_nodes(&self, server: &str, nodes: &[KnownNode], now: i64) -> sqlx::Result<()> {
        let mut change = self.change().await?;
        for KnownNode { name, schema, version, is_connected } in nodes {
            query(
                "INSERT INTO nodes (name, server, \"schema\", version, is_connected, at) VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (name) DO UPDATE SET server = excluded.server, \"schema\" = excluded.\"schema\",
                     version = excluded.version, is_connected = excluded.is_connected, at = excluded.at
                 WHERE excluded.is_connected = 1 OR nodes.server = excluded.server",
            )
            .bind(name)
            .bind(server)
            .bind(schema.cast_signed())
            .bind(version.cast_signed())
            .bind(is_connected.cast_signed())
            .bind(now)
            .execute(&mut *change)
            .await?;
        }
        query("UPDATE nodes SET at = $1 WHERE server = $2 AND is_connected = 1")
            .bind(now)
            .bind(server)
            .execute(&mut *change)
            .await?;
        query("DELETE FROM nodes WHERE at < $1").bind(now - REMEMBERED_S).execute(&mut *change).await?;
        self.keep(change).await
    }

    /// Names of those that are connected, to whichever server.
    pub(crate) async fn connected_nodes(&self, now: i64) -> sqlx::Result<Vec<String>> {
        query_scalar("SELECT name FROM nodes WHERE is_connected = 1 AND at > $1 ORDER BY name")
            .bind(now - SURE_FOR_S)
            .fetch_all(&self.pool)
            .await
    }

    /// Forgets one that is gone.
    pub(crate) async fn forget_node(&self, name: &str) -> sqlx::Result<()> {
        let mut change = self.change().await?;
        query("DELETE FROM nodes WHERE name = $1").bind(name).execute(&mut *change).await?;
        self.keep(change).await
    }
}

/// Of the database, wherever they are or were connected.
impl KnownNode {
    pub(crate) async fn read(connection: &mut AnyConnection, name: &str) -> sqlx::Result<Option<Self>> {
        query_as("SELECT name, \"schema\", version, is_connected FROM nodes WHERE name = $1")
            .bind(name)
            .fetch_optional(connection)
            .await
    }

    /// Names of those that are connected to other servers than this one, and cannot read documents of this schema.
    pub(crate) async fn cannot_read(
        connection: &mut AnyConnection,
        server: &str,
        schema: u32,
        now: i64,
    ) -> sqlx::Result<Vec<String>> {
        query_scalar(
            "SELECT name FROM nodes WHERE server <> $1 AND is_connected = 1 AND \"schema\" < $2 AND at > $3 ORDER BY name",
        )
        .bind(server)
        .bind(i64::from(schema))
        .bind(now - SURE_FOR_S)
        .fetch_all(connection)
        .await
    }
}
