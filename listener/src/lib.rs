//! Connections of a listener: caps, deadlines and fair turns. The data-plane and the admin server use it, independently of each
//! other.
//!
//! The modules, from the bottom up:
//!
//! - `peer`: the network by which peers are distinguished.
//! - `owner_counts`: counts by owner.
//! - `turns`: divides the time of a thread among peers.
//! - `shared_answer`: computes an answer once for all concurrent callers.
//! - `connections`: counts connections, and rejects those beyond a cap.
//! - `write_deadline`: fails writes that the peer does not read.
//! - `request_tracker`: the requests of a connection over HTTP, and when the next one is overdue.
//! - `timed_stream`: a stream that ends if the next request is overdue, and reads little ahead.
//! - `http_listener`: HTTP/1.1 on all of these.

mod connections;
mod http_listener;
mod owner_counts;
mod peer;
mod request_tracker;
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
pub use turns::{HurryGuard, PeerTurns, TurnFuture, Turns, hurry};
pub use write_deadline::WriteDeadline;
