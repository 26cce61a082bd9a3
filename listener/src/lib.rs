//! The connections of a listener. Both servers use it, which do not know each other.
//!
//! Its parts, from the ground up: `peer` (what tells peers apart), `owner_counts` (counts by owner), `turns` (divides the time of
//! a thread among peers), `shared_answer` (works an answer out once for all who ask), `connections` (counts connections, and
//! refuses those beyond a cap), `write_deadline` (fails writes that the peer does not read), `timed_stream` (ends a connection whose
//! next request does not come in time, and reads little ahead), `http_listener` (HTTP/1.1 on all of that).

mod connections;
mod http_listener;
mod owner_counts;
mod peer;
mod shared_answer;
mod timed_stream;
mod turns;
mod write_deadline;

pub use connections::{
    CONNECTIONS_MAX, ConnectionCaps, ConnectionCollector, ConnectionLimiter, ConnectionPermit, ConnectionRefusal,
    DEFAULT_PEER_CONNECTIONS, refuse,
};
pub use http_listener::{HttpListener, HttpPeriods};
pub use owner_counts::OwnerCounts;
pub use peer::PeerNetwork;
pub use shared_answer::SharedAnswer;
pub use turns::{Hurry, InTurns, PeerTurns, Turns, hurry};
pub use write_deadline::WriteDeadline;
