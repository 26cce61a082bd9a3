//! The database: opening it, and refusing to start on one that is not whole.

mod audit;
mod people;
mod versions;

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    ConnectOptions, Connection, Sqlite, SqlitePool, Transaction,
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
    pub(super) const FULL: i32 = 13;
    pub(super) const NOT_A_DATABASE: i32 = 26;
}

/// The database of one admin server.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pool: SqlitePool,
    path: PathBuf,
    file: FileId,
}

impl Store {
    /// Opens the database of a folder that has one, and brings it to this build's migrations.
    pub(crate) async fn open(folder: &mut DataFolder) -> Result<Self, StartError> {
        let path = folder.database();
        let about = fs::metadata(&path).map_err(|error| other(&path, &error))?;
        if !about.is_file() {
            return Err(StartError::Foreign(path));
        }
        if about.len() == 0 {
            return Err(StartError::Damaged { path, why: "the file is empty".to_owned() });
        }
        if about.permissions().readonly() {
            return Err(StartError::ReadOnly(path));
        }
        look(&path).await?;
        folder.mark().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StartError::InUse(path.clone()),
            _ => other(&path, &error),
        })?;
        let store = Self::connect(&path, false).await?;
        store.try_writing().await.map_err(|error| explain(&path, &error))?;
        store.migrate(&path).await?;
        Ok(store)
    }

    /// Makes the first database of a folder, with what `fill` puts into it. It has its name only when it is whole.
    pub(crate) async fn create(
        folder: &mut DataFolder,
        fill: impl AsyncFnOnce(&Self) -> sqlx::Result<()>,
    ) -> Result<Self, StartError> {
        let path = folder.unfinished().map_err(|error| other(&folder.database(), &error))?;
        let store = Self::connect(&path, true).await?;
        store.migrate(&path).await?;
        fill(&store).await.map_err(|error| explain(&path, &error))?;
        store.close().await;
        folder.finish().map_err(|error| other(&path, &error))?;
        Self::open(folder).await
    }

    async fn connect(path: &Path, create: bool) -> Result<Self, StartError> {
        let options = options(path)
            .create_if_missing(create)
            // The first database is renamed when it is whole: it must be so without a second file beside it.
            .journal_mode(if create { SqliteJournalMode::Delete } else { SqliteJournalMode::Wal })
            // What was acknowledged is on the disk.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new()
            .max_connections(4)
            // A full disk ends a transaction from below, which leaves the connection counting it for ever: it is let go.
            .before_acquire(|connection, _| Box::pin(async { Ok(!connection.is_in_transaction()) }))
            .connect_with(options)
            .await
            .map_err(|error| explain(path, &error))?;
        Ok(Self { pool, path: path.to_owned(), file: FileId::of(path).map_err(|error| other(path, &error))? })
    }

    /// Fails where nothing can be written: a transaction alone would not.
    async fn try_writing(&self) -> sqlx::Result<()> {
        let sql = "BEGIN IMMEDIATE; PRAGMA user_version = 0; ROLLBACK";
        sqlx::raw_sql(sql).execute(&self.pool).await.map(drop)
    }

    /// Begins a change, of the file that has the database's name: somebody may have removed or replaced it.
    async fn change(&self) -> sqlx::Result<Transaction<'static, Sqlite>> {
        if FileId::of(&self.path).ok() != Some(self.file) {
            return Err(sqlx::Error::Io(io::ErrorKind::NotFound.into()));
        }
        self.pool.begin_with("BEGIN IMMEDIATE").await
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

/// Is it Tidegate's, whole, and not from the future? Changes nothing.
async fn look(path: &Path) -> Result<(), StartError> {
    let explain = |error| explain(path, &error);
    let mut connection = options(path).read_only(true).connect().await.map_err(explain)?;
    let (id,): (i64,) = sqlx::query_as("PRAGMA application_id").fetch_one(&mut connection).await.map_err(explain)?;
    if id != APPLICATION_ID {
        return Err(StartError::Foreign(path.to_owned()));
    }
    let (verdict,): (String,) =
        sqlx::query_as("PRAGMA quick_check(1)").fetch_one(&mut connection).await.map_err(explain)?;
    if verdict != "ok" {
        return Err(StartError::Damaged { path: path.to_owned(), why: verdict.replace('\n', " ") });
    }
    let (found,): (i64,) = sqlx::query_as("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
        .fetch_one(&mut connection)
        .await
        .map_err(explain)?;
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    if found > known {
        return Err(StartError::Newer { path: path.to_owned(), found, known });
    }
    connection.close().await.map_err(explain)
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path)
}

/// Which file has a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    fn of(path: &Path) -> io::Result<Self> {
        let about = fs::metadata(path)?;
        Ok(Self { device: about.dev(), number: about.ino() })
    }
}

fn result_code(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error().and_then(DatabaseError::code)?;
    code.parse::<i32>().ok().map(|code| code & 0xff)
}

/// Why nothing can be written, where somebody can do something about it.
pub(crate) enum Trouble {
    Full,
    /// Removed or replaced.
    Gone,
}

pub(crate) fn trouble(error: &sqlx::Error) -> Option<Trouble> {
    match error {
        sqlx::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => Some(Trouble::Gone),
        error => (result_code(error)? == code::FULL).then_some(Trouble::Full),
    }
}

fn explain(path: &Path, error: &sqlx::Error) -> StartError {
    let path = path.to_owned();
    match result_code(error) {
        Some(code::READONLY) => StartError::ReadOnly(path),
        Some(code::CORRUPT) => StartError::Damaged { path, why: error.to_string() },
        Some(code::NOT_A_DATABASE) => StartError::Foreign(path),
        _ => other(&path, &error),
    }
}

fn other(path: &Path, error: &dyn ToString) -> StartError {
    StartError::Database { path: path.to_owned(), why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::write_first;

    /// A disk that fills up ends transactions from below. When there is room again, so is everything else.
    #[tokio::test]
    async fn a_full_disk_is_survived() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = DataFolder::take(folder.path()).expect("it is free");
        let store = Store::create(&mut data, write_first).await.expect("it is made");
        let line = |object: &'static str| Audit { actor: "ana", address: "", action: "test", object, result: "done" };
        let large: &'static str = "x".repeat(1 << 20).leak();
        // As full as a disk can be to SQLite, on every connection of the pool.
        let mut connections = Vec::new();
        for _ in 0..store.pool.options().get_max_connections() {
            connections.push(store.pool.acquire().await.expect("one is free"));
        }
        for connection in &mut connections {
            sqlx::raw_sql("PRAGMA max_page_count = 1").execute(&mut **connection).await.expect("it is set");
        }
        let count = connections.len();
        drop(connections);
        // They come back by and by; until then the pool might open another.
        while store.pool.num_idle() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let change = async |object| {
            let mut change = store.change().await?;
            line(object).write(&mut change).await?;
            change.commit().await
        };
        for _ in 0..3 {
            let error = change(large).await.expect_err("there is no room");
            assert!(error.to_string().contains("full"), "{error}");
        }
        // Each that failed was let go; a new one has no such bound.
        let failures = [change("1").await, change("2").await, change("3").await].iter().filter(|o| o.is_err()).count();
        assert_eq!(failures, 0, "it works again");
    }
}
