//! Where a server of a test keeps what it knows: a folder with `SQLite`'s file, or a database on the `PostgreSQL` server that
//! `TIDEGATE_TEST_DATABASE` is the address of. Each test has its own, which goes away with it.

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use sqlx::{AnyConnection, AssertSqlSafe, ConnectOptions, Connection, any::AnyConnectOptions, raw_sql};
use tempfile::TempDir;
use tidegate_admin::DatabaseUrl;
use tokio::runtime;

use crate::support::Server;

/// A home of one test.
pub(crate) struct Folder {
    folder: TempDir,
    home: Home,
}

/// What a server is told of it.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) data: PathBuf,
    /// Address of the database that takes the file's place.
    url: Option<String>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let mut folder = Self::with_file();
        folder.home.url = server().map(|server| {
            let name = format!("tidegate_test_{:016x}", RandomState::new().hash_one(folder.path()));
            execute(
                &server,
                format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"),
            );
            let mut url = address(&server).database_url;
            url.set_path(&name);
            url.to_string()
        });
        folder
    }

    /// With a database on a server, and the first admin server on it.
    pub(crate) fn on_server() -> (Self, Server) {
        let folder = Self::new();
        assert!(folder.home.is_postgres(), "TIDEGATE_TEST_DATABASE must be the address of a PostgreSQL server");
        let server = Server::start(&folder.home);
        (folder, server)
    }

    /// With `SQLite`'s file, whatever the other tests run over.
    pub(crate) fn with_file() -> Self {
        let folder = TempDir::new().expect("a folder");
        let home = Home::in_file(folder.path().join("data"));
        Self { folder, home }
    }

    /// Does what has to be done from another database of the server.
    pub(crate) fn maintain(sql: &str) {
        execute(&server().expect("a server"), sql.to_owned());
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let (Some(url), Some(server)) = (&self.home.url, server()) {
            let url = address(url).database_url;
            execute(&server, format!("DROP DATABASE {} WITH (FORCE)", url.path().trim_start_matches('/')));
        }
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

fn execute(server: &str, sql: String) {
    block_on(async {
        let mut connection = address(server).connect().await.expect("the server of TIDEGATE_TEST_DATABASE runs");
        raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("it is done");
        connection.close().await.expect("it closes");
    });
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

#[expect(clippy::disallowed_methods, reason = "what the tests run over is chosen by who runs them")]
fn server() -> Option<String> {
    std::env::var("TIDEGATE_TEST_DATABASE").ok()
}
