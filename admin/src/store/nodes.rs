//! The nodes of every server, as the others know them.

use std::{collections::HashSet, time::Duration};

use sqlx::{Any, AnyConnection, any::AnyArguments, query, query::Query, query_as, query_scalar};

use crate::store::database::{Place, Store};

/// Nodes that are known at once; the ones that are gone longest make room for others.
pub(crate) const NODES_MAX: usize = 10_000;

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
    /// Which start of its process.
    pub(crate) instance: String,
    /// When it connected, Unix seconds.
    pub(crate) since: i64,
}

/// Where a node is connected that is not where it was believed to be.
#[derive(Clone, PartialEq, Eq, Debug, sqlx::FromRow)]
pub(crate) struct Elsewhere {
    pub(crate) server: String,
    /// Unix seconds; 0: not known.
    pub(crate) since: i64,
}

/// What became of a node that was to be forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forgotten {
    IsGone,
    WasNone,
    /// Connected to another server.
    IsElsewhere,
}

/// Writes a node down for a server, unless another has it connected; with `$10`, also if that is the same process.
const PUT: &str = "\
INSERT INTO nodes (name, server, \"schema\", version, is_connected, instance, since, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (name) DO UPDATE SET server = excluded.server, \"schema\" = excluded.\"schema\", version = excluded.version,
    is_connected = excluded.is_connected, instance = excluded.instance, since = excluded.since, at = excluded.at
WHERE nodes.server = excluded.server OR (excluded.is_connected = 1 AND (
    nodes.is_connected = 0 OR nodes.at <= $9 OR nodes.at > $11 OR ($10 = 1 AND nodes.instance = excluded.instance)))";
/// How long one that is gone is remembered, in seconds.
const REMEMBERED_S: i64 = 86_400;
/// A server that was not sure of its nodes for so long has them no more, in seconds.
const SURE_FOR_S: i64 = 90;
/// What was written by a clock that is ahead by more says nothing of when that was, in seconds.
const AHEAD_S: i64 = 60;
/// Their names are given to other processes sooner, in seconds: these may be the same nodes, started again.
const TAKEN_FOR_S: i64 = 10;

impl Store {
    /// How often a server is to say that it still has its nodes.
    pub(crate) fn says_nodes_every(&self) -> Duration {
        match self.place {
            // Nobody else has nodes of a file.
            Place::File(_) => Duration::from_secs(30),
            Place::Server(_) => Duration::from_secs(3),
        }
    }

    /// Takes the name of a node that connects, for this server, at once and for good; answers where another process has it.
    /// The same process is let in wherever it was connected before: the other server loses it. One statement needs no turn.
    pub(crate) async fn claim_node(&self, server: &str, node: &KnownNode, now: i64) -> sqlx::Result<Option<Elsewhere>> {
        // Nobody else has nodes of a file.
        let Place::Server(_) = &self.place else { return Ok(None) };
        let claim = node.put(server, now, true);
        if claim.execute(&self.pool).await?.rows_affected() > 0 {
            return Ok(None);
        }
        let of_name = query_as("SELECT server, since FROM nodes WHERE name = $1").bind(&node.name);
        of_name.fetch_optional(&self.pool).await
    }

    /// Tells the other servers of some nodes of this one, and that it still has the rest. What is connected to another server
    /// is that one's. Answers how many of this one's are written down as connected.
    pub(crate) async fn tell_nodes(&self, server: &str, nodes: &[KnownNode], now: i64) -> sqlx::Result<u64> {
        let mut change = self.change().await?;
        for node in nodes {
            node.put(server, now, false).execute(&mut *change).await?;
        }
        let sure = query("UPDATE nodes SET at = $1 WHERE server = $2 AND is_connected = 1").bind(now).bind(server);
        let connected = sure.execute(&mut *change).await?.rows_affected();
        query("DELETE FROM nodes WHERE at < $1").bind(now - REMEMBERED_S).execute(&mut *change).await?;
        // Of those that are gone, the ones that are gone longest make room.
        query(
            "DELETE FROM nodes WHERE is_connected = 0 AND at < (
                 SELECT at FROM nodes WHERE is_connected = 0 ORDER BY at DESC LIMIT 1 OFFSET $1)",
        )
        .bind((NODES_MAX as u64).cast_signed())
        .execute(&mut *change)
        .await?;
        self.keep(change).await?;
        Ok(connected)
    }

    /// Tells the other servers that this one has no nodes any more.
    pub(crate) async fn leave_nodes(&self, server: &str, now: i64) -> sqlx::Result<()> {
        let mut change = self.change().await?;
        let leave = query("UPDATE nodes SET is_connected = 0, at = $1 WHERE server = $2 AND is_connected = 1");
        leave.bind(now).bind(server).execute(&mut *change).await?;
        self.keep(change).await
    }

    /// Names of those that are connected to other servers than this one.
    pub(crate) async fn nodes_of_others(&self, server: &str, now: i64) -> sqlx::Result<Vec<String>> {
        let Place::Server(_) = &self.place else { return Ok(Vec::new()) };
        query_scalar("SELECT name FROM nodes WHERE server <> $1 AND is_connected = 1 AND at > $2")
            .bind(server)
            .bind(now - SURE_FOR_S)
            .fetch_all(&self.pool)
            .await
    }

    /// Names of those that are connected to this server or were last; `None`: all that it knows of.
    pub(crate) async fn nodes_of(&self, server: &str) -> sqlx::Result<Option<HashSet<String>>> {
        // Nobody else has nodes of a file.
        let Place::Server(_) = &self.place else { return Ok(None) };
        let names: Vec<String> =
            query_scalar("SELECT name FROM nodes WHERE server = $1").bind(server).fetch_all(&self.pool).await?;
        Ok(Some(names.into_iter().collect()))
    }

    /// Names of those that are connected, to whichever server.
    pub(crate) async fn connected_nodes(&self, now: i64) -> sqlx::Result<Vec<String>> {
        query_scalar("SELECT name FROM nodes WHERE is_connected = 1 AND at > $1 ORDER BY name")
            .bind(now - SURE_FOR_S)
            .fetch_all(&self.pool)
            .await
    }

    /// Forgets one that is gone; one that is connected to another server than this one stays.
    pub(crate) async fn forget_node(&self, server: &str, name: &str, now: i64) -> sqlx::Result<Forgotten> {
        // Nobody else has nodes of a file.
        let sure = if matches!(self.place, Place::Server(_)) { now - SURE_FOR_S } else { i64::MAX };
        let mut change = self.change().await?;
        let gone = "DELETE FROM nodes WHERE name = $1 AND (server = $2 OR is_connected = 0 OR at <= $3 OR at > $4)";
        let gone = query(gone).bind(name).bind(server).bind(sure).bind(now + AHEAD_S).execute(&mut *change).await?;
        let forgotten = match gone.rows_affected() {
            0 if KnownNode::read(&mut change, name).await?.is_some() => Forgotten::IsElsewhere,
            0 => Forgotten::WasNone,
            _ => Forgotten::IsGone,
        };
        self.keep(change).await?;
        Ok(forgotten)
    }
}

/// Of the database, wherever they are or were connected.
impl KnownNode {
    fn put<'q>(&'q self, server: &'q str, now: i64, is_claim: bool) -> Query<'q, Any, AnyArguments> {
        query(PUT)
            .bind(&self.name)
            .bind(server)
            .bind(self.schema.cast_signed())
            .bind(self.version.cast_signed())
            .bind(self.is_connected.cast_signed())
            .bind(&self.instance)
            .bind(self.since)
            .bind(now)
            .bind(now - TAKEN_FOR_S)
            .bind(i64::from(is_claim))
            .bind(now + AHEAD_S)
    }

    pub(crate) async fn read(connection: &mut AnyConnection, name: &str) -> sqlx::Result<Option<Self>> {
        query_as("SELECT name, \"schema\", version, is_connected, instance, since FROM nodes WHERE name = $1")
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
