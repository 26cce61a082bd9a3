//! `SQLite`: opening the database of a folder, and refusing to start on one that is not whole.

use std::{
    cmp::Ordering,
    fmt::Write,
    fs,
    future::ready,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sqlx::{
    AnyPool, ConnectOptions, Connection,
    any::AnyPoolOptions,
    migrate::{MigrateError, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use crate::{
    base::startup_error::StartError,
    store::{
        data_directory::DataFolder,
        database::{Patience, Place, Store},
        sqlite_code,
    },
};

pub(crate) static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// Marks a database as Tidegate's; the first migration writes it.
const APPLICATION_ID: i64 = 1_414_087_751;

impl Store {
    /// Opens the database of a folder that has one, and brings it to this build's migrations.
    pub(crate) async fn open(folder: &mut DataFolder) -> Result<Self, StartError> {
        let path = folder.database();
        let about = fs::metadata(&path).map_err(|error| other(&path, &error))?;
        if !about.is_file() {
            return Err(StartError::Foreign(name(&path)));
        }
        if about.len() == 0 {
            return Err(StartError::Damaged { database: name(&path), why: "the file is empty".to_owned() });
        }
        if about.permissions().readonly() {
            return Err(StartError::ReadOnly(name(&path)));
        }
        look(&path).await?;
        folder.mark().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StartError::InUse(path.clone()),
            _ => other(&path, &error),
        })?;
        folder.narrow();
        let store = connect(&path, SqliteJournalMode::Wal).await?;
        try_writing(&store.pool).await.map_err(|error| explain(&path, &error))?;
        migrate(&store.pool, &path).await?;
        Ok(store)
    }

    /// Makes the first database of a folder, with what `fill` puts into it. It has its name only when it is whole.
    pub(crate) async fn create(
        folder: &mut DataFolder,
        fill: impl AsyncFnOnce(&Self) -> sqlx::Result<()>,
    ) -> Result<Self, StartError> {
        let path = folder.unfinished().map_err(|error| other(&folder.database(), &error))?;
        // It is renamed when it is whole: it must be so without a second file beside it.
        let store = connect(&path, SqliteJournalMode::Delete).await?;
        migrate(&store.pool, &path).await?;
        fill(&store).await.map_err(|error| explain(&path, &error))?;
        store.close().await;
        folder.finish().map_err(|error| other(&path, &error))?;
        Self::open(folder).await
    }
}

/// Opens the database at `path` beside whoever has it.
pub(crate) async fn attach(path: &Path) -> Result<Store, StartError> {
    if !path.is_file() {
        return Err(other(
            path,
            &"there is no database; name its folder with --data, or start a server, which makes one",
        ));
    }
    look(path).await?;
    let store = connect(path, SqliteJournalMode::Wal).await?;
    let applied: i64 = sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
        .fetch_one(&store.pool)
        .await
        .map_err(|error| explain(path, &error))?;
    check_applied(applied, &name(path))?;
    Ok(store)
}

/// Refuses a database that a server of this build has not opened yet.
pub(crate) fn check_applied(applied: i64, database: &str) -> Result<(), StartError> {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    match applied.cmp(&known) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(StartError::Newer { database: database.to_owned(), found: applied, known }),
        Ordering::Less => {
            let why = "an older build has written it; start a server of this one once, which brings it up to date";
            Err(StartError::Database { database: database.to_owned(), why: why.to_owned() })
        }
    }
}

/// Which file is open under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    device: u64,
    number: u64,
}

impl OpenFile {
    fn of(path: &Path) -> io::Result<Self> {
        let about = fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), device: about.dev(), number: about.ino() })
    }

    /// Has nobody removed or replaced it?
    pub(crate) fn is_in_place(&self) -> bool {
        Self::of(&self.path).is_ok_and(|now| now == *self)
    }
}

async fn connect(path: &Path, journal: SqliteJournalMode) -> Result<Store, StartError> {
    // The journal's mode is the file's; a connection of the driver itself says what keeps it from being set.
    let options = options(path).journal_mode(journal).synchronous(SqliteSynchronous::Full);
    let explain = |error| explain(path, &error);
    options.connect().await.map_err(explain)?.close().await.map_err(explain)?;
    sqlx::any::install_default_drivers();
    let pool = AnyPoolOptions::new()
        .max_connections(4)
        .after_connect(|connection, _| {
            Box::pin(async {
                // What was acknowledged is on the disk; who comes while another writes waits its turn.
                let sql = "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000";
                sqlx::raw_sql(sql).execute(connection).await.map(drop)
            })
        })
        // A full disk ends a transaction from below, which leaves the connection counting it for ever: it is let go.
        .before_acquire(|connection, _| Box::pin(ready(Ok(!connection.is_in_transaction()))))
        .connect(&url(path))
        .await
        .map_err(explain)?;
    let file = OpenFile::of(path).map_err(|error| other(path, &error))?;
    Ok(Store {
        pool,
        place: Place::File(file),
        turn: Arc::default(),
        callers: Arc::default(),
        reads: Arc::default(),
        patience: Patience::default(),
        meter: Arc::default(),
    })
}

/// Of a database that is there. Each byte of its path is written as a number, so none means anything to whoever reads it.
fn url(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let path = bytes.iter().fold(String::with_capacity(3 * bytes.len()), |mut path, byte| {
        // Writing to a String does not fail.
        let _ = write!(path, "%{byte:02X}");
        path
    });
    format!("sqlite:{path}?mode=rw")
}

/// Fails where nothing can be written: a transaction alone would not.
async fn try_writing(pool: &AnyPool) -> sqlx::Result<()> {
    sqlx::raw_sql("BEGIN IMMEDIATE; PRAGMA user_version = 0; ROLLBACK").execute(pool).await.map(drop)
}

async fn migrate(pool: &AnyPool, path: &Path) -> Result<(), StartError> {
    MIGRATIONS.run(pool).await.map_err(|error| match error {
        MigrateError::Execute(error) => explain(path, &error),
        error => other(path, &error),
    })
}

/// Is it Tidegate's, whole, and not from the future? Changes nothing.
pub(in crate::store) async fn look(path: &Path) -> Result<(), StartError> {
    let explain = |error| explain(path, &error);
    let mut connection = options(path).read_only(true).connect().await.map_err(explain)?;
    let (id,): (i64,) = sqlx::query_as("PRAGMA application_id").fetch_one(&mut connection).await.map_err(explain)?;
    if id != APPLICATION_ID {
        return Err(StartError::Foreign(name(path)));
    }
    let (verdict,): (String,) =
        sqlx::query_as("PRAGMA quick_check(1)").fetch_one(&mut connection).await.map_err(explain)?;
    if verdict != "ok" {
        return Err(StartError::Damaged { database: name(path), why: verdict.replace('\n', " ") });
    }
    let (found,): (i64,) = sqlx::query_as("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
        .fetch_one(&mut connection)
        .await
        .map_err(explain)?;
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    if found > known {
        return Err(StartError::Newer { database: name(path), found, known });
    }
    connection.close().await.map_err(explain)
}

pub(crate) fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(5))
}

pub(crate) fn explain(path: &Path, error: &sqlx::Error) -> StartError {
    let database = name(path);
    match error.as_database_error().and_then(sqlite_code::result_code) {
        Some(sqlite_code::READONLY) => StartError::ReadOnly(database),
        Some(sqlite_code::CORRUPT) => StartError::Damaged { database, why: error.to_string() },
        Some(sqlite_code::NOT_A_DATABASE) => StartError::Foreign(database),
        _ => other(path, &error),
    }
}

fn other(path: &Path, error: &dyn ToString) -> StartError {
    StartError::Database { database: name(path), why: error.to_string() }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{publish::stored_policy::write_first, store::audit::Audit};

    /// The letters of a path mean nothing in it, and each connection is as it should be.
    #[tokio::test]
    async fn every_connection_is_set_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = DataFolder::take(&folder.path().join("a?b#c%41 ü")).expect("it is free");
        let store = Store::create(&mut data, write_first).await.expect("it is made");
        assert!(data.database().exists());
        let mut connections = Vec::new();
        for _ in 0..store.pool.options().get_max_connections() {
            connections.push(store.pool.acquire().await.expect("one is free"));
        }
        for connection in &mut connections {
            let (journal,): (String,) =
                sqlx::query_as("PRAGMA journal_mode").fetch_one(&mut **connection).await.expect("it says");
            assert_eq!(journal, "wal");
            for (sql, expected) in
                [("PRAGMA synchronous", 2), ("PRAGMA foreign_keys", 1), ("PRAGMA busy_timeout", 5_000)]
            {
                let (is,): (i64,) = sqlx::query_as(sql).fetch_one(&mut **connection).await.expect("it says");
                assert_eq!(is, expected, "{sql}");
            }
        }
    }

    /// A disk that fills up ends transactions from below. When there is room again, so is everything else.
    #[tokio::test]
    async fn a_full_disk_is_survived() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = DataFolder::take(folder.path()).expect("it is free");
        let store = Store::create(&mut data, write_first).await.expect("it is made");
        let line = |object: &'static str| Audit {
            actor: "ana",
            address: "",
            action: "test",
            object,
            result: "done",
            request_id: "",
        };
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
            store.keep(change).await
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
