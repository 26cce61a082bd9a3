//! How long the server waits for others.

use std::time::Duration;

/// How long the server waits for others. Only tests have other periods than the default.
#[derive(Clone, Copy, Debug)]
pub struct Periods {
    /// How long a node may take to read a policy that it is sent; one that takes longer is told to start again.
    pub node_read_timeout: Duration,
    /// How long the name of a node that says nothing is kept from another process.
    pub node_name_timeout: Duration,
    /// The interval between two signs of life on a node's stream. They show a connection that has broken.
    pub node_heartbeat: Duration,
    /// How long a look for what other servers published may take.
    pub look_timeout: Duration,
    /// How long a stop waits for requests that are being answered: whole seconds.
    pub drain: Duration,
    /// How long the head of a request may take: of a connection's first one from its beginning, of later ones from their first
    /// byte. It is a second at least.
    pub request_head: Duration,
    /// How long a body may take to come.
    pub body_timeout: Duration,
    /// How long a body with files in it may take to come.
    pub file_timeout: Duration,
    /// How long a caller may read nothing of an answer before its connection ends; and how long the reader of an event stream may
    /// take for what it was told.
    pub unread_answers: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            node_read_timeout: Duration::from_secs(20),
            node_name_timeout: Duration::from_secs(3),
            node_heartbeat: Duration::from_secs(10),
            look_timeout: Duration::from_secs(20),
            drain: Duration::from_secs(5),
            request_head: Duration::from_secs(10),
            body_timeout: Duration::from_secs(5),
            file_timeout: Duration::from_mins(1),
            unread_answers: Duration::from_mins(1),
        }
    }
}
