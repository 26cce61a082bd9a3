//! Homes of servers: a folder with `SQLite`'s file, or a database on a `PostgreSQL` server. Each test has its own, which goes
//! away with it. `TIDEGATE_TEST_HOMES=postgres` makes `PostgreSQL` the home of every test that names none.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use sqlx::{AnyConnection, AssertSqlSafe, ConnectOptions, Connection, any::AnyConnectOptions, raw_sql};
use tempfile::TempDir;
use tidegate_admin::DatabaseUrl;

use tidegate_testkit::postgres::Database;
pub(crate) use tidegate_testkit::postgres::block_on;

use crate::support::Server;

/// A home of one test.
pub(crate) struct Folder {
    files: TempDir,
    home: Home,
    /// Dropped with the home.
    #[expect(dead_code, reason = "it lives as long as the home")]
    database: Option<Database>,
}

/// What a server is told of it.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) data: PathBuf,
    /// Address of the database that takes the file's place.
    url: Option<String>,
}

impl Folder {
    /// Makes a home in which no server was started yet. In `PostgreSQL` its tables are there already.
    pub(crate) fn new() -> Self {
        if is_postgres() { Self::with_database(Database::migrated()) } else { Self::with_file() }
    }

    /// Makes a home for a first start from nothing: without tables also in `PostgreSQL`.
    pub(crate) fn untouched() -> Self {
        if is_postgres() { Self::untouched_on_server() } else { Self::with_file() }
    }

    /// Makes a home in `PostgreSQL`, whichever the other tests have, without tables.
    pub(crate) fn untouched_on_server() -> Self {
        Self::with_database(Database::empty())
    }

    /// Makes a home in `PostgreSQL`, whichever the other tests have, and starts the first server in it.
    pub(crate) fn on_server() -> (Self, Server) {
        let folder = Self::unused_on_server();
        let server = Server::start(&folder.home);
        (folder, server)
    }

    /// Makes a home in `PostgreSQL`, whichever the other tests have.
    pub(crate) fn unused_on_server() -> Self {
        Self::with_database(Database::migrated())
    }

    fn with_database(database: Database) -> Self {
        let mut home = Self::with_file();
        home.home.url = Some(database.url().to_owned());
        Self { database: Some(database), ..home }
    }

    /// Makes a home with `SQLite`'s file, whichever the other tests have.
    pub(crate) fn with_file() -> Self {
        let files = TempDir::new().expect("a folder");
        let home = Home::in_file(files.path().join("data"));
        Self { files, home, database: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.files.path()
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }
}

impl Home {
    pub(crate) fn in_file(data: impl Into<PathBuf>) -> Self {
        Self { data: data.into(), url: None }
    }

    pub(crate) fn url(&self) -> Option<DatabaseUrl> {
        self.url.as_ref().map(DatabaseUrl::new)
    }

    /// Where the database server listens, and the address with all that is secret.
    pub(crate) fn database(&self) -> (SocketAddr, String) {
        let url = self.url.clone().expect("a database on a server");
        let (_, rest) = url.split_once('@').expect("an address with a user");
        let (host, _) = rest.split_once('/').expect("an address with a database");
        (host.parse().expect("a host and a port"), url)
    }

    /// With another address.
    pub(crate) fn altered(&self, alter: impl FnOnce(&str) -> String) -> Self {
        Self { data: self.data.clone(), url: self.url.as_deref().map(alter) }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.url.is_some()
    }

    /// A connection of the test's own.
    pub(crate) async fn connect(&self) -> AnyConnection {
        let file = || format!("sqlite:{}", self.data.join("tidegate.db").display());
        address(&self.url.clone().unwrap_or_else(file)).connect().await.expect("it opens")
    }

    /// Does what no server does.
    pub(crate) fn execute(&self, sql: &str) {
        assert!(self.is_done(sql), "{sql}");
    }

    /// Tries to.
    pub(crate) fn is_done(&self, sql: &str) -> bool {
        block_on(async {
            let mut connection = self.connect().await;
            let outcome = raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await;
            connection.close().await.expect("it closes");
            outcome.is_ok()
        })
    }
}

fn address(url: &str) -> AnyConnectOptions {
    sqlx::any::install_default_drivers();
    url.parse().expect("an address")
}

#[expect(clippy::disallowed_methods, reason = "the homes are chosen by the command that runs the tests")]
fn is_postgres() -> bool {
    let homes = std::env::var("TIDEGATE_TEST_HOMES").unwrap_or_else(|_| "sqlite".to_owned());
    assert!(["sqlite", "postgres"].contains(&&*homes), "TIDEGATE_TEST_HOMES is `{homes}`; it is sqlite or postgres");
    homes == "postgres"
}
