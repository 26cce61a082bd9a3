//! The timeouts and polling timeouts of the listeners.

use std::time::Duration;

/// The timeouts and polling timeouts of the listeners. The defaults are what a server runs with and what the documentation states;
/// tests choose shorter ones, or longer ones for what must not happen while they look. Those that actix-http measures on HTTP
/// connections (`request_head` and `linger`) are a second at least, since its clock is half a second slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// The time after which an idle connection is closed: over HTTP one without a request, over gRPC one without a call
    /// or an open stream, over the Redis protocol one without a byte. On connections of worker threads it is measured
    /// in twelfths, so that a connection is closed up to a twelfth late.
    pub idle: Duration,
    /// The timeout of a TLS handshake.
    pub handshake: Duration,
    /// The time in which a connection over the Redis protocol must authenticate, where the server asks for a token.
    pub authentication: Duration,
    /// The timeout of the head of an HTTP request: for the first one of a connection from the connection's beginning,
    /// for later ones from their first byte.
    pub request_head: Duration,
    /// The timeout of the rest of a body, a message or a command that has begun.
    pub request: Duration,
    /// The period between pings of the peer of a gRPC connection. It is shorter than `idle`: a connection without
    /// answers to pings is closed although a stream is open.
    pub ping: Duration,
    /// The timeout of the answer to a ping.
    pub ping_answer: Duration,
    /// The time until a connection that is being closed is cut off: over HTTP for the rest of a request that is not read, on
    /// connections of worker threads for the responses under way.
    pub linger: Duration,
    /// The time for which a connection over the Redis protocol discards bytes after its last reply, so that the peer
    /// can read that reply.
    pub discard: Duration,
    /// The time without a byte after which the socket is closed of a peer that goes on sending after its connection has ended.
    pub quiet: Duration,
    /// The time for which a gRPC stream may go on with responses after its connection has begun to end.
    pub stream_end: Duration,
    /// The time after which the connection of a peer that reads nothing ends; and the time for which a long response,
    /// or the replies to a long command, may hold part of the body budget until they are read.
    pub unread_replies: Duration,
    /// The time after which a body or a response that holds part of the body budget may be dropped for another one.
    pub body_grace: Duration,
    /// The timeout of the query whether a token is an operator's.
    pub operator_answer: Duration,
    /// The time for which the answer to that query is trusted; the next command after it queries again.
    pub operator_trust: Duration,
    /// The period after which the files of tokens and of certificates are read again.
    pub files: Duration,
    /// The period after which the health of a service is compared for the clients that watch it over gRPC.
    pub health_watch: Duration,
    /// The period of the samples behind `/healthz`; the server's health is that of the last twelve samples.
    pub health_sample: Duration,
    /// The age up to which a scrape reads the last page of metrics: at most one page is written in this time.
    pub metrics_page: Duration,
}

impl Default for Timeouts {
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
    fn the_defaults_are_the_documented_timeouts() {
        let Timeouts {
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
        } = Timeouts::default();
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
