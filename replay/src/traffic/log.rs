//! Traffic from an access log, in order of time.

use std::io::{self, Read};

use tidegate::{Request, Retry};

use super::{DecideFn, Traffic};
use crate::{
    log::{
        decode::{self, BoundedReader},
        entries::{LogEntries, LogEntry},
        format::LogOptions,
        record::{LogRecord, with_request},
    },
    reorder_window::{BufferedItem, ReorderWindow},
};

/// Length of the reorder window: ten minutes. Servers write a line when its request ends.
const WINDOW_NS: u64 = 600 * tidegate::time::SECOND_NS;
/// Most lines and bytes in the reorder window.
const WAITING_MAX: usize = 200_000;
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Requests of a log, gzip or plain. Lines that cannot be read are skipped.
pub struct LogTraffic<'i> {
    entries: LogEntries<BoundedReader<Box<dyn Read + 'i>>>,
    /// The kind of users.
    kind: String,
    window: ReorderWindow<PendingRequest>,
    domain: String,
    is_read: bool,
}

/// A request in the reorder window. It has one allocation, for its concatenated texts.
struct PendingRequest {
    text: Box<str>,
    client_bytes: Option<u16>,
    user_bytes: Option<u16>,
    method_bytes: Option<u8>,
    has_endpoint: bool,
}

impl<'i> LogTraffic<'i> {
    /// Creates traffic for a domain from a log. Reading fails after `bytes_max` decompressed bytes.
    pub fn new(log: impl Read + 'i, reading: &LogOptions, domain: &str, bytes_max: u64) -> io::Result<Self> {
        Ok(Self {
            entries: LogEntries::new(BoundedReader::new(decode::plain(log)?, bytes_max), reading),
            kind: reading.kind().to_owned(),
            window: ReorderWindow::new(WINDOW_NS, WAITING_MAX, WAITING_BYTES_MAX),
            domain: domain.to_owned(),
            is_read: false,
        })
    }

    /// Returns the number of lines that were later than the window, and were decided at the newest time.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.window.late
    }

    fn read_line(&mut self) -> io::Result<()> {
        match self.entries.next()? {
            Some((_, LogEntry::Request(record, _))) => self.window.put(record.time, PendingRequest::of(&record)),
            Some((_, LogEntry::Nothing | LogEntry::NoClient(_) | LogEntry::Refused(_))) => {}
            None => self.is_read = true,
        }
        Ok(())
    }
}

impl Traffic for LogTraffic<'_> {
    fn step(&mut self, decide: &mut DecideFn<'_>) -> io::Result<bool> {
        let due = self.window.take_due();
        let Some((now, visit)) = due.or_else(|| self.is_read.then(|| self.window.take()).flatten()) else {
            if self.is_read {
                return Ok(false);
            }
            return self.read_line().map(|()| true);
        };
        visit.with_request(&self.kind, |request| decide(now, &request.domain(&self.domain)));
        Ok(true)
    }
}

impl PendingRequest {
    fn of(record: &LogRecord<'_>) -> Self {
        let (client, user) = (record.client.as_deref(), record.user.as_deref());
        let (method, endpoint) = (record.target.method.as_deref(), record.target.endpoint.as_deref());
        Self {
            text: [client, user, method, endpoint].map(Option::unwrap_or_default).concat().into(),
            client_bytes: client.map(|client| client.len() as u16),
            user_bytes: user.map(|user| user.len() as u16),
            method_bytes: method.map(|method| method.len() as u8),
            has_endpoint: endpoint.is_some(),
        }
    }

    fn with_request(&self, kind: &str, run: impl FnOnce(&Request<'_>) -> Retry) {
        let (client, rest) = self.text.split_at(self.client_bytes.unwrap_or_default().into());
        let (user, rest) = rest.split_at(self.user_bytes.unwrap_or_default().into());
        let (method, endpoint) = rest.split_at(self.method_bytes.unwrap_or_default().into());
        let (client, user) = (self.client_bytes.map(|_| client), self.user_bytes.map(|_| (kind, user)));
        let method = self.method_bytes.map(|_| method);
        // The parts are valid: they made a request when the line was read.
        let _ = with_request(client, user, method, self.has_endpoint.then_some(endpoint), run);
    }
}

impl BufferedItem for PendingRequest {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use tidegate::time::Nanos;

    use super::*;

    #[test]
    fn lines_are_asked_in_order_of_time() {
        let log = r#"192.0.2.7 - ada [05/Jan/2026:09:00:01 +0000] "GET /b?x HTTP/1.1" 200 5
nonsense

{"time": "2026-01-05T09:00:00.5Z", "ip": "192.0.2.8"}
"#;
        let mut traffic =
            LogTraffic::new(log.as_bytes(), &LogOptions::default(), "web", log.len() as u64).expect("plain");
        let mut asked = Vec::new();
        let mut ask = |now: Nanos, request: &Request<'_>| {
            let parts = request.parts();
            let who: Vec<_> = parts.identities.iter().map(|who| format!("{}={}", who.kind(), who.value())).collect();
            asked.push((
                now / 1_000_000 % 10_000,
                format!("{who:?} {} {:?} {:?}", parts.domain, parts.method, parts.endpoint),
            ));
            Retry::Now
        };
        while traffic.step(&mut ask).expect("readable") {}
        assert_eq!(
            asked,
            [
                (500, r#"["ip=192.0.2.8"] web None None"#.to_owned()),
                (1_000, r#"["ip=192.0.2.7", "user=ada"] web Some("GET") Some("/b")"#.to_owned()),
            ]
        );
        assert_eq!(traffic.late(), 0);
    }

    #[test]
    fn a_log_without_an_end_ends() {
        let good = "{\"time\": \"2026-01-05T09:00:00.5Z\", \"ip\": \"192.0.2.8\"}\n";
        let mut traffic = LogTraffic::new(good.as_bytes().chain(io::repeat(0)), &LogOptions::default(), "web", 1 << 24)
            .expect("plain");
        let mut steps = 0..100;
        let end = steps.find_map(|_| traffic.step(&mut |_, _| Retry::Now).err()).expect("it breaks off");
        assert!(end.to_string().contains("more than 16777216 bytes"), "{end}");
    }
}
