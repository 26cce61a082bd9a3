//! Protobuf messages: the generated types, and a reader and a writer by hand for the messages of checks.

pub(crate) mod codec;
pub(crate) mod error;
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    rustdoc::broken_intra_doc_links
)]
pub mod generated;
pub(crate) mod reader;
pub(crate) mod writer;
