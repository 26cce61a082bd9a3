//! Requests in order of time, to ask policies with: made up from a few words, read from a log, or recorded.

mod log;
mod log_preview;
mod pattern;
mod recorded;
mod synthetic;

use std::io;

use tidegate::{Request, Retry, time::Nanos};

pub use log::LogTraffic;
pub use log_preview::{LogLine, LogLook, LookError, RefusedLine, look_at};
pub use pattern::{Pattern, TRIES_MAX};
pub use recorded::{RECORD_BYTES_MAX, Record, RecordedTraffic, record, recorded_at};
pub use synthetic::{CLIENTS_MAX, MADE_REQUESTS_MAX, Made, MadeTraffic, ROWS_MAX, Row, RowProblem};

/// What asks: it is given a request and its time, and answers when the client may come again.
pub type Ask<'a> = dyn FnMut(Nanos, &Request<'_>) -> Retry + 'a;

/// Requests in order of time.
pub trait Traffic {
    /// Goes a step, in which it asks at most once; false when nothing is left.
    ///
    /// # Errors
    ///
    /// What it reads from breaks off.
    fn step(&mut self, ask: &mut Ask<'_>) -> io::Result<bool>;
}
