//! Primary result codes of `SQLite`.

use sqlx::error::DatabaseError;

pub(crate) const BUSY: i32 = 5;
pub(crate) const READONLY: i32 = 8;
pub(crate) const IOERR: i32 = 10;
pub(crate) const CORRUPT: i32 = 11;
pub(crate) const FULL: i32 = 13;
pub(crate) const CANTOPEN: i32 = 14;
pub(crate) const NOT_A_DATABASE: i32 = 26;

/// Returns the primary code of an error.
pub(crate) fn result_code(error: &dyn DatabaseError) -> Option<i32> {
    error.code()?.parse::<i32>().ok().map(|code| code & 0xff)
}
