//! The database, `SQLite` or `PostgreSQL`: its queries by subject, and the one way to change it.
//!
//! Queries are written once for both: placeholders are `$1`, numbers `i64`, whether something is there is a row that is
//! found, and a name that one of them keeps for itself stands in quotation marks. Each has its own migrations.

pub(super) mod postgres;

pub(super) mod sqlite;

use std::{
    convert::Infallible,
    future::Future,
    ops::{Deref, DerefMut},
    path::Path,
    sync::Arc,
    time::Duration,
};

use sqlx::{Any, AnyConnection, AnyPool, Transaction, query, raw_sql};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::{Instant, timeout, timeout_at},
};

use self::{postgres::Server, sqlite::OpenFile};
use crate::{
    base::{
        caller,
        startup_error::StartError,
        user_turns::{CallerTurn, CallerTurns},
    },
    capacity::read_turns::ReadTurns,
    store::{
        address::DatabaseUrl,
        data_directory::DATABASE,
        database_metrics::{Asking, Meter},
        error::{Broken, Trouble, trouble},
    },
};

/// The database of one admin server, or in `PostgreSQL` of several.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(super) pool: AnyPool,
    pub(super) place: Place,
    /// Held by the change that is being made. Changes that wait for it hold no connection, which others could read by.
    pub(super) turn: Arc<Mutex<()>>,
    /// The turns of callers: one change of each is being made, or waits for `turn`.
    pub(super) callers: Arc<CallerTurns>,
    /// The turns of callers for reads, which calls wait for themselves.
    pub(crate) reads: Arc<ReadTurns>,
    pub(super) patience: Patience,
    pub(super) meter: Arc<Meter>,
}

/// How long the store waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The longest that a change waits for the changes of this server before it.
    pub(super) turn: Duration,
    /// The longest that the end waits for connections to be closed.
    pub(super) close: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { turn: Duration::from_secs(10), close: Duration::from_secs(5) }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Place {
    File(OpenFile),
    Server(Server),
}

/// A change, to be kept whole or not at all. Statements run on it.
#[derive(Debug)]
pub(crate) struct Change {
    transaction: Transaction<'static, Any>,
    _turn: OwnedMutexGuard<()>,
    _of_caller: Option<CallerTurn>,
}

impl Deref for Change {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.transaction
    }
}

impl DerefMut for Change {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.transaction
    }
}

impl Store {
    /// Its file, or its address without the password.
    pub(crate) fn name(&self) -> String {
        match &self.place {
            Place::File(file) => file.path.display().to_string(),
            Place::Server(server) => server.name.clone(),
        }
    }

    /// Opens the database of the folder `data`, or the one at an address, beside whoever has it: it must be there, and as this
    /// build's servers leave it.
    pub(crate) async fn attach(data: &Path, database: Option<&DatabaseUrl>) -> Result<Self, StartError> {
        match database {
            Some(url) => Self::attach_to_server(url).await,
            None => sqlite::attach(&data.join(DATABASE)).await,
        }
    }

    /// How long it takes.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(super) async fn measure<T>(
        &self,
        asking: Asking,
        what: impl Future<Output = sqlx::Result<T>>,
    ) -> sqlx::Result<T> {
        let began = Instant::now();
        let outcome = what.await;
        self.meter.took(asking, began.elapsed(), outcome.is_ok());
        outcome
    }

    /// Begins a change. There is one at a time, whichever server makes it: what is read in it stays as it is.
    /// The caller for whom it is made has one change that is being made, or waits; their further ones wait behind it.
    pub(crate) async fn change(&self) -> sqlx::Result<Change> {
        self.measure(Asking::Begin, self.begin(caller::present())).await
    }

    /// Begins a change of work that has a turn of its own, for which others wait: it does not wait behind other changes of the
    /// same caller.
    pub(crate) async fn change_in_turn(&self) -> sqlx::Result<Change> {
        self.measure(Asking::Begin, self.begin(None)).await
    }

    async fn begin(&self, caller: Option<String>) -> sqlx::Result<Change> {
        let end = Instant::now() + self.patience.turn;
        let of_caller = match caller {
            Some(caller) => Some(self.callers.turn(&caller, end).await.ok_or(Broken::Busy)?),
            None => None,
        };
        let turn = timeout_at(end, Arc::clone(&self.turn).lock_owned()).await.map_err(|_| Broken::Busy)?;
        let transaction = match &self.place {
            Place::File(file) if !file.is_in_place() => return Err(Broken::Gone.into()),
            Place::File(_) => self.pool.begin_with("BEGIN IMMEDIATE").await?,
            Place::Server(_) => {
                let mut transaction = self.pool.begin().await?;
                query("SELECT pg_advisory_xact_lock($1)").bind(postgres::LOCK).execute(&mut *transaction).await?;
                transaction
            }
        };
        Ok(Change { transaction, _turn: turn, _of_caller: of_caller })
    }

    /// Ends a change: it is on the disk when this returns.
    pub(super) async fn keep(&self, change: Change) -> sqlx::Result<()> {
        self.measure(Asking::Commit, change.transaction.commit()).await.map_err(|error| match trouble(&error) {
            // The server may have heard it, and a disk that failed may have it all the same.
            Some(Trouble::Unreachable) => Broken::Unknown(error.to_string()).into(),
            None if !matches!(error, sqlx::Error::Database(_)) => Broken::Unknown(error.to_string()).into(),
            _ => error,
        })
    }

    /// Fails where nothing can be written: writes.
    pub(crate) async fn try_writing(&self, node: &str, now: i64) -> sqlx::Result<()> {
        let mut change = self.change().await?;
        query("INSERT INTO tries (node, at) VALUES ($1, $2) ON CONFLICT (node) DO UPDATE SET at = excluded.at")
            .bind(node)
            .bind(now)
            .execute(&mut *change)
            .await?;
        self.keep(change).await
    }

    /// Begins to read: all that is read is of one instant. It ends when it is dropped.
    pub(crate) async fn reading(&self) -> sqlx::Result<Transaction<'static, Any>> {
        match self.place {
            Place::File(_) => self.pool.begin().await,
            Place::Server(_) => self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await,
        }
    }

    /// Tells `wake` whenever another server may have published. Nobody else writes into a file.
    pub(crate) async fn listen(&self, wake: impl Fn()) -> Infallible {
        match &self.place {
            Place::File(_) => std::future::pending().await,
            Place::Server(server) => server.listen(wake).await,
        }
    }

    /// Tells the other servers of what is published with `change`.
    pub(super) async fn announce(&self, change: &mut Change) -> sqlx::Result<()> {
        match &self.place {
            Place::File(_) => Ok(()),
            Place::Server(_) => raw_sql(postgres::ANNOUNCE).execute(&mut **change).await.map(drop),
        }
    }

    /// The same by connections of its own, for what is still written when the threads that answer requests have ended: a
    /// connection to a server ends with the runtime that opened it.
    pub(crate) fn apart(&self) -> Self {
        let pool = match &self.place {
            Place::File(_) => self.pool.clone(),
            Place::Server(_) => postgres::pool(2).connect_lazy_with(self.pool.connect_options().as_ref().clone()),
        };
        Self { pool, ..self.clone() }
    }

    /// Ends every connection; of `SQLite` the last one brings the write-ahead log home. One that is silent is not waited for:
    /// the pool would, whatever it last asked there.
    pub(crate) async fn close(&self) {
        // What is not closed ends with the process.
        drop(timeout(self.patience.close, self.pool.close()).await);
    }
}

/// What `lower(...) LIKE $1 ESCAPE '~'` is given to find a text anywhere. Of both databases only A to Z have a lower case: in
/// `PostgreSQL` because the texts' collation is "C".
pub(crate) fn pattern(text: &str) -> String {
    let plain = text.replace('~', "~~").replace('%', "~%").replace('_', "~_");
    format!("%{}%", plain.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_the_same_migrations() {
        let names = |migrations: &'static sqlx::migrate::Migrator| {
            migrations.iter().map(|step| (step.version, &*step.description)).collect::<Vec<_>>()
        };
        assert_eq!(names(&sqlite::MIGRATIONS), names(&postgres::MIGRATIONS));
        assert!(!sqlite::MIGRATIONS.iter().any(|step| step.migration_type.is_down_migration()), "forward only");
    }
}
