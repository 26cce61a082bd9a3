//! How long the listeners wait, and how often they look at what changes without them.

use std::time::Duration;

/// The periods of the listeners. The defaults are what a server runs with and what the documentation states; tests choose
/// shorter ones, or longer ones for what must not happen while they look. Those of HTTP connections that actix-http measures
/// (`request_head` and `linger`) are a second at least, since its clock is half a second slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Periods {
    /// How long a connection may rest before it is closed: over HTTP without a request, over gRPC without a call or an open
    /// stream, over the Redis protocol without a byte. On connections that worker threads watch it is measured in twelfths,
    /// so that one is closed up to a twelfth late.
    pub idle: Duration,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long a connection over the Redis protocol may take to authenticate, where the server asks for a token.
    pub authentication: Duration,
    /// How long the head of an HTTP request may take: of a connection's first one from its beginning, of later ones from their
    /// first byte.
    pub request_head: Duration,
    /// How long the rest of a body, of a message, or of a command may take once it has begun.
    pub request: Duration,
    /// How often the peer of a gRPC connection is pinged. It is shorter than `idle`: a connection over which not even answers
    /// to pings come is closed although a stream is open.
    pub ping: Duration,
    /// How long the answer to a ping may take.
    pub ping_answer: Duration,
    /// How long a connection that is being closed has until it is cut off: over HTTP for the rest of a request that is not
    /// read, on connections that worker threads watch for the answers under way.
    pub linger: Duration,
    /// How long the Redis protocol throws away what comes after its last reply, so that the peer can read that reply.
    pub discard: Duration,
    /// How long a peer that goes on sending after its connection has ended must send nothing until the socket is closed.
    pub quiet: Duration,
    /// How long a stream of gRPC may go on with answers after its connection is told to end.
    pub stream_end: Duration,
    /// How long a peer may read nothing of what is written to it before its connection ends; and how long a long answer, or the
    /// replies to a long command, may hold part of the body budget until they are read.
    pub unread_replies: Duration,
    /// How long a body or an answer holds part of the body budget until it may be dropped for another one.
    pub body_grace: Duration,
    /// How long the question whether a token is an operator's may take.
    pub operator_answer: Duration,
    /// How long the answer to that question is believed; the next command after it asks again.
    pub operator_trust: Duration,
    /// How often the files of tokens and of certificates are read again.
    pub files: Duration,
    /// How often the state of a service is compared for the clients that watch it over gRPC.
    pub health_watch: Duration,
    /// How often the counts behind `/healthz` are sampled; the server's health is that of the last twelve samples.
    pub health_sample: Duration,
    /// How old a page of metrics may be that a scrape reads: no more than one is written in this time.
    pub metrics_page: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            idle: Duration::from_mins(1),
            handshake: Duration::from_secs(10),
            authentication: Duration::from_secs(10),
            request_head: Duration::from_secs(10),
            request: Duration::from_secs(5),
            ping: Duration::from_secs(20),
            ping_answer: Duration::from_secs(20),
            linger: Duration::from_secs(5),
            discard: Duration::from_secs(2),
            quiet: Duration::from_millis(200),
            stream_end: Duration::from_secs(5),
            unread_replies: Duration::from_mins(1),
            body_grace: Duration::from_secs(1),
            operator_answer: Duration::from_secs(5),
            operator_trust: Duration::from_mins(1),
            files: Duration::from_secs(2),
            health_watch: Duration::from_secs(1),
            health_sample: Duration::from_secs(5),
            metrics_page: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation and other programs rely on these: clients keep connections for less than `idle`, for example.
    #[test]
    fn the_defaults_are_the_documented_periods() {
        let Periods {
            idle,
            handshake,
            authentication,
            request_head,
            request,
            ping,
            ping_answer,
            linger,
            discard,
            quiet,
            stream_end,
            unread_replies,
            body_grace,
            operator_answer,
            operator_trust,
            files,
            health_watch,
            health_sample,
            metrics_page,
        } = Periods::default();
        assert_eq!([idle, unread_replies, operator_trust].map(|period| period.as_millis()), [60_000; 3]);
        assert_eq!([ping, ping_answer].map(|period| period.as_millis()), [20_000; 2]);
        assert_eq!([handshake, authentication, request_head].map(|period| period.as_millis()), [10_000; 3]);
        let five = [request, linger, stream_end, operator_answer, health_sample];
        assert_eq!(five.map(|period| period.as_millis()), [5_000; 5]);
        assert_eq!([discard, files].map(|period| period.as_millis()), [2_000; 2]);
        assert_eq!(quiet.as_millis(), 200);
        assert_eq!([body_grace, health_watch, metrics_page].map(|period| period.as_millis()), [1_000; 3]);
    }
}
