//! The database, `SQLite` or `PostgreSQL`, and the folder that it is in.

pub(crate) mod address;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod data_directory;
pub(crate) mod database;
pub(crate) mod database_metrics;
pub(crate) mod drafts;
pub(crate) mod error;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod rollouts;
pub(crate) mod second_factors;
pub(crate) mod secrets;
pub(crate) mod sessions;
pub(crate) mod sqlite_code;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;
pub(crate) mod users;
pub(crate) mod versions;
