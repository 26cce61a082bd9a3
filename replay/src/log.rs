//! Reads access logs: from the bytes of a log to the requests of its lines.
//!
//! A line passes through these modules: `decode` (decompresses, decodes to UTF-8), `lines`, then `parser`, which strips what
//! other programs wrote before the line (`prefix`) and calls the module of its format (`combined`, `json`, `csv`, `w3c`,
//! `alb`). `fields` takes the values of named fields, by the names in `field_names`, and `client` the address of the client.
//! The result is a `record` and its `line_format`. `unsupported` recognizes formats that are not read, `line_error` is the
//! error of a line. `entries` does all of this for one log; `format` has the settings.

mod alb;
pub(crate) mod client;
mod combined;
mod csv;
pub(crate) mod decode;
pub(crate) mod entries;
pub(crate) mod field_names;
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
