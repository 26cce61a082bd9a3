//! The database: opening it, and refusing to start on one that is not whole.

mod audit;
mod people;
mod versions;

use std::{fs, path::Path, str::FromStr, time::Duration};

use sqlx::{
    SqlitePool,
    error::DatabaseError,
    migrate::{MigrateError, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

pub(crate) use self::{
    audit::Audit,
    people::Session,
    versions::{Answered, FromFile, NewVersion, Revision, Version, sha256},
};
use crate::{folder::DataFolder, start::StartError};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// Marks a database as Tidegate's; the first migration writes it.
const APPLICATION_ID: i64 = 1_414_087_751;

/// `SQLite`'s primary result codes.
mod code {
    pub(super) const READONLY: i32 = 8;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const NOT_A_DATABASE: i32 = 26;
}

/// The database of one admin server.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pool: SqlitePool,
}

impl Store {
    /// Opens the database of a folder that has one, and brings it to this build's migrations.
    pub(crate) async fn open(folder: &DataFolder) -> Result<Self, StartError> {
        let path = folder.database();
        let about = fs::metadata(&path).map_err(|error| other(&path, &error))?;
        if about.len() == 0 {
            return Err(StartError::Damaged { path, why: "the file is empty".to_owned() });
        }
        if about.permissions().readonly() {
            return Err(StartError::ReadOnly(path));
        }
        let store = Self { pool: connect(&path, false).await.map_err(|error| explain(&path, &error))? };
        store.look(&path).await?;
        store.migrate(&path).await?;
        Ok(store)
    }

    /// Makes the first database of a folder, with what `fill` puts into it. It has its name only when it is whole.
    pub(crate) async fn create(
        folder: &mut DataFolder,
        fill: impl AsyncFnOnce(&Self) -> sqlx::Result<()>,
    ) -> Result<Self, StartError> {
        let path = folder.unfinished().map_err(|error| other(&folder.database(), &error))?;
        let store = Self { pool: connect(&path, true).await.map_err(|error| explain(&path, &error))? };
        store.migrate(&path).await?;
        fill(&store).await.map_err(|error| explain(&path, &error))?;
        store.close().await;
        folder.finish().map_err(|error| other(&path, &error))?;
        Self::open(folder).await
    }

    /// Is it Tidegate's, whole, and not from the future? Changes nothing.
    async fn look(&self, path: &Path) -> Result<(), StartError> {
        let explain = |error| explain(path, &error);
        let (id,): (i64,) = sqlx::query_as("PRAGMA application_id").fetch_one(&self.pool).await.map_err(explain)?;
        if id != APPLICATION_ID {
            return Err(StartError::Foreign(path.to_owned()));
        }
        let (verdict,): (String,) =
            sqlx::query_as("PRAGMA quick_check(1)").fetch_one(&self.pool).await.map_err(explain)?;
        if verdict != "ok" {
            return Err(StartError::Damaged { path: path.to_owned(), why: verdict.replace('\n', " ") });
        }
        let (found,): (i64,) = sqlx::query_as("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
            .fetch_one(&self.pool)
            .await
            .map_err(explain)?;
        let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
        if found > known {
            return Err(StartError::Newer { path: path.to_owned(), found, known });
        }
        Ok(())
    }

    async fn migrate(&self, path: &Path) -> Result<(), StartError> {
        MIGRATIONS.run(&self.pool).await.map_err(|error| match error {
            MigrateError::Execute(error) => explain(path, &error),
            error => other(path, &error),
        })
    }

    /// Ends every connection, the last of which brings the write-ahead log home.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

async fn connect(path: &Path, create: bool) -> sqlx::Result<SqlitePool> {
    let options = SqliteConnectOptions::from_str("sqlite:")?
        .filename(path)
        .create_if_missing(create)
        .journal_mode(SqliteJournalMode::Wal)
        // What was acknowledged is on the disk.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5));
    SqlitePoolOptions::new().max_connections(4).connect_with(options).await
}

fn explain(path: &Path, error: &sqlx::Error) -> StartError {
    let path = path.to_owned();
    let code = error.as_database_error().and_then(DatabaseError::code).and_then(|code| code.parse::<i32>().ok());
    match code.map(|code| code & 0xff) {
        Some(code::READONLY) => StartError::ReadOnly(path),
        Some(code::CORRUPT) => StartError::Damaged { path, why: error.to_string() },
        Some(code::NOT_A_DATABASE) => StartError::Foreign(path),
        _ => other(&path, &error),
    }
}

fn other(path: &Path, error: &dyn ToString) -> StartError {
    StartError::Database { path: path.to_owned(), why: error.to_string() }
}
