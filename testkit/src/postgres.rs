//! Databases of tests on the `PostgreSQL` server that `TIDEGATE_TEST_DATABASE` is the address of. Each test has its own, which
//! is dropped with it. One that has all migrations is a copy of a template, which the first test on a server makes.

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    thread,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, migrate::Migrator, postgres::PgConnectOptions, query,
    query_scalar, raw_sql,
};
use tokio::runtime;

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/postgres");

/// Key of the advisory lock under which a template is made: "TPLT".
const LOCK: i64 = 1_414_548_564;
/// Settings of an empty database, whatever the server's own are.
const EMPTY: &str = "TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'";

/// A database of one test, dropped with it.
#[derive(Debug)]
pub struct Database {
    name: String,
    url: String,
}

impl Database {
    /// Makes a database without tables.
    ///
    /// # Panics
    ///
    /// `TIDEGATE_TEST_DATABASE` is not set, or the server refuses.
    #[must_use]
    pub fn empty() -> Self {
        Self::make(async |_| EMPTY.to_owned())
    }

    /// Makes a database with the tables of this build and no rows.
    ///
    /// # Panics
    ///
    /// `TIDEGATE_TEST_DATABASE` is not set, or the server refuses.
    #[must_use]
    pub fn migrated() -> Self {
        Self::make(async |server| format!("TEMPLATE {} STRATEGY FILE_COPY", template(server).await))
    }

    fn make(kind: impl AsyncFnOnce(&mut PgConnection) -> String) -> Self {
        let name = format!("tidegate_test_{:016x}", RandomState::new().hash_one(thread::current().id()));
        block_on(async {
            let mut server = connect().await;
            let kind = kind(&mut server).await;
            execute(&mut server, format!("CREATE DATABASE {name} {kind}")).await;
            server.close().await.expect("the connection closes");
        });
        let url = of(&name);
        Self { name, url }
    }

    /// Returns the address, with the password.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Executes `sql` from another database of the server.
    ///
    /// # Panics
    ///
    /// The server refuses.
    pub fn maintain(sql: &str) {
        block_on(async {
            let mut server = connect().await;
            execute(&mut server, sql.to_owned()).await;
            server.close().await.expect("the connection closes");
        });
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = || Self::maintain(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        if thread::panicking() {
            // The failure of the test is reported, not that of its end.
            let _ = std::panic::catch_unwind(drop);
        } else {
            drop();
        }
    }
}

/// Returns the name of the template, which is made where there is none yet. It is made under another name, so that a template
/// is whole even if the test that makes it is killed, and by one process at a time.
async fn template(server: &mut PgConnection) -> String {
    let name = format!("tidegate_template_{}", version());
    if exists(server, &name).await {
        return name;
    }
    query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut *server).await.expect("the lock");
    if !exists(server, &name).await {
        let unfinished = format!("{name}_unfinished");
        execute(server, format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)")).await;
        execute(server, format!("CREATE DATABASE {unfinished} {EMPTY}")).await;
        let options: PgConnectOptions = of(&unfinished).parse().expect("an address");
        let mut connection = options.connect().await.expect("the new database");
        MIGRATIONS.run(&mut connection).await.expect("the migrations");
        connection.close().await.expect("the connection closes");
        // A session in a template, autovacuum's too, keeps others from copying it.
        execute(server, format!("ALTER DATABASE {unfinished} ALLOW_CONNECTIONS false")).await;
        let end =
            format!("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '{unfinished}'");
        execute(server, end).await;
        execute(server, format!("ALTER DATABASE {unfinished} RENAME TO {name}")).await;
    }
    query("SELECT pg_advisory_unlock($1)").bind(LOCK).execute(server).await.expect("the lock is released");
    name
}

async fn exists(server: &mut PgConnection, name: &str) -> bool {
    let found = query_scalar::<_, i32>("SELECT 1 FROM pg_database WHERE datname = $1").bind(name);
    found.fetch_optional(server).await.expect("an answer").is_some()
}

/// Returns a hash of all migrations, as hex.
fn version() -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in MIGRATIONS.iter().flat_map(|migration| migration.checksum.iter()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// Returns the address of another database of the server.
fn of(name: &str) -> String {
    let server = server();
    let (before, parameters) = server.split_once('?').map_or((&*server, ""), |(before, rest)| (before, rest));
    let (before, _) = before.rsplit_once('/').expect("an address with a database");
    format!("{before}/{name}?{parameters}")
}

async fn connect() -> PgConnection {
    let options: PgConnectOptions = server().parse().expect("an address");
    options.connect().await.expect("the server of TIDEGATE_TEST_DATABASE runs")
}

async fn execute(server: &mut PgConnection, sql: String) {
    raw_sql(AssertSqlSafe(sql)).execute(server).await.expect("the statement is executed");
}

/// Runs a future to its end on this thread.
///
/// # Panics
///
/// The system has no descriptors for a runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

#[expect(clippy::disallowed_methods, reason = "the server is given by the command that runs the tests")]
fn server() -> String {
    std::env::var("TIDEGATE_TEST_DATABASE").expect("TIDEGATE_TEST_DATABASE is the address of a PostgreSQL server")
}
