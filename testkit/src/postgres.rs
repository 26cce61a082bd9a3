//! Databases of tests, on a `PostgreSQL` server.

use std::process::Command;

/// A database of a test's own on the server of `scripts/postgres`.
pub(crate) struct Database {
    name: String,
    server: String,
    pub(crate) url: String,
}

impl Database {
    pub(crate) fn new(what: &str) -> Self {
        let server = Self::server().expect("TIDEGATE_TEST_DATABASE is the address of a PostgreSQL server");
        let name = format!("tidegate_test_{what}_{}", std::process::id());
        let url = server.replace("/postgres?", &format!("/{name}?"));
        let database = Self { name, server, url };
        database.run(&format!("CREATE DATABASE {}", database.name));
        database
    }

    /// Where the tests run over `PostgreSQL`: the address of its server.
    #[expect(clippy::disallowed_methods, reason = "what the tests run over is chosen by who runs them")]
    pub(crate) fn server() -> Option<String> {
        std::env::var("TIDEGATE_TEST_DATABASE").ok()
    }

    fn run(&self, sql: &str) {
        let done = Command::new("psql").args(["--quiet", "--command", sql, &self.server]).status();
        assert!(done.expect("psql is there").success(), "{sql}");
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.run(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}
