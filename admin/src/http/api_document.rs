//! The description of the REST API, as it is served.

use actix_web::web::Bytes;

/// Where the document is, below that.
pub(crate) const DOCUMENT: &str = "/openapi.json";

/// The documentation of the calls, as it is served.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) json: Bytes,
    /// For people.
    pub(crate) page: Bytes,
}
