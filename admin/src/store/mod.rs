//! The database: its queries by subject, and the one way to change it.

mod audit;
mod drafts;
mod people;
mod sqlite;
mod versions;

use std::io;

use sqlx::{Any, AnyPool, Transaction};

use self::sqlite::OpenFile;
pub(crate) use self::{
    audit::Audit,
    drafts::Draft,
    people::Session,
    versions::{Answered, Carries, FromFile, NewVersion, Revision, Version, sha256},
};

/// The database of one admin server.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pool: AnyPool,
    file: OpenFile,
}

impl Store {
    /// Begins a change; there is one at a time. It is of the file that has the database's name: somebody may have removed or
    /// replaced it.
    async fn change(&self) -> sqlx::Result<Transaction<'static, Any>> {
        if !self.file.is_in_place() {
            return Err(sqlx::Error::Io(io::ErrorKind::NotFound.into()));
        }
        self.pool.begin_with("BEGIN IMMEDIATE").await
    }

    /// Ends every connection; of `SQLite` the last one brings the write-ahead log home.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
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
        error => sqlite::is_full(error).then_some(Trouble::Full),
    }
}
