//! Databases on the `PostgreSQL` server whose address is in `TIDEGATE_TEST_DATABASE`, as `scripts/postgres` starts it.

use std::{
    hash::{BuildHasher, RandomState},
    process::Command,
};

/// A database of a test's own. Dropped with this value.
#[derive(Debug)]
pub struct Database {
    name: String,
    server: String,
    /// The address of the database.
    pub url: String,
}

impl Database {
    /// Creates an empty database.
    ///
    /// # Panics
    ///
    /// `TIDEGATE_TEST_DATABASE` is not set, or the server cannot be reached.
    #[must_use]
    pub fn new() -> Self {
        let server =
            Self::server().expect("TIDEGATE_TEST_DATABASE is the address of a PostgreSQL server (scripts/postgres)");
        let name = format!("tidegate_test_{:016x}", RandomState::new().hash_one(std::process::id()));
        let url = server.replace("/postgres?", &format!("/{name}?"));
        let database = Self { name, server, url };
        database.run(&format!("CREATE DATABASE {}", database.name));
        database
    }

    /// Returns the address of the server, where there is one.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "scripts/postgres names the server")]
    pub fn server() -> Option<String> {
        std::env::var("TIDEGATE_TEST_DATABASE").ok()
    }

    fn run(&self, sql: &str) {
        let done = Command::new("psql").args(["--quiet", "--command", sql, &self.server]).status();
        assert!(done.expect("the Debian package postgresql-client is there").success(), "{sql}");
    }
}

impl Default for Database {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.run(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}
