//! Access logs: from the bytes of a log to the requests of its lines.
//!
//! The way of a line: `source` (unpacked, as UTF-8), `lines`, `parser`, which takes off what other programs wrote before it
//! (`prefix`) and asks one file for each form (`combined`, `json`, `csv`, `w3c`, `alb`); `fields` finds what fields with names
//! mean, `client` who the client is; `record` is what every form tells, `form` the form's name, `foreign` names forms that are not read, `line_error` what is wrong with a line.
//! `entries` is all of that for one log.

mod alb;
pub(crate) mod client;
mod combined;
mod csv;
pub(crate) mod decode;
pub(crate) mod entries;
pub(crate) mod fields;
pub(crate) mod format;
mod json;
pub(crate) mod line_error;
pub(crate) mod line_format;
pub(crate) mod lines;
mod parser;
mod prefix;
pub(crate) mod record;
mod unsupported;
mod w3c;
