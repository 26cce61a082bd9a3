//! The protocol between nodes and the admin server: the messages of both sides, as plain serde types.
//!
//! The admin server sends server-sent events on the stream that a node opened; the constants here are the names of the
//! events. A node sends by `POST`. Either side may add fields to its messages, and a node may add parameters to the
//! query of the stream: a receiver ignores those that it does not know. Events and queries are different: a node
//! ignores an event with an unknown part, and replies to an unknown query that it does not know it.

pub(crate) mod event_reader;
pub mod payload;
mod query;
mod report;
mod stream;
pub(crate) mod truncate;

pub use self::{
    query::{
        DEADLINE_MS, DECISIONS_MAX, Decisions, FULLEST_MAX, NodeQuery, NodeReply, PeekedLimit, QueryIdentity,
        QueryMessage, QueryRequest, ReplyMessage, SeenDecision, WATCH_MS_MAX, WatchCursor,
    },
    report::{
        ERROR_KINDS_MAX, ErrorCount, HITTERS_MAX, HeavyKey, LISTENERS_MAX, ListenerAddress, NodeCounts, PARTS_MAX,
        Process, Report, ReportedCounts, SeenIdentity, StoreReport, TEXT_BYTES_MAX, bounded_errors,
    },
    stream::{
        ACKNOWLEDGEMENTS, ANSWERS, Acknowledgement, BODY_BYTES_MAX, BYE, COMMAND, CURRENT, CurrentVersion, DELTA,
        DELTAS_MAX, DeltaMessage, GOODBYES, Goodbye, Hello, NAME_BYTES_MAX, NAME_PATTERN, REPORTS, RESTART, SNAPSHOT,
        STORE_KEYS, STREAM, SnapshotMessage, StoreKeys, StreamEnd, is_name,
    },
};
