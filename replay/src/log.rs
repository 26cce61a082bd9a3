//! Access logs: from the bytes of a log to the requests that its lines tell of.
//!
//! The way of a line: `source` (unpacked), `lines`, `parser`, which asks one file for each form (`combined`, `json`, `csv`);
//! `fields` finds what fields with names mean; `record` is what every form tells. `entries` is all of that for one log.

mod combined;
mod csv;
pub(crate) mod entries;
mod fields;
pub(crate) mod format;
mod json;
pub(crate) mod lines;
mod parser;
pub(crate) mod record;
pub(crate) mod source;
