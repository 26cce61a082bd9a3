//! Traffic for simulations: requests in order of time that are generated, read from a log, or recorded.

mod log;
mod log_preview;
mod pattern;
mod recorded;
mod synthetic;

use std::io;

use tidegate::{Request, Retry, time::Nanos};

pub use log::LogTraffic;
pub use log_preview::{LogLine, LogPreview, LogPreviewError, RefusedLine, preview_log};
pub use pattern::{ArrivalPattern, TRIES_MAX};
pub use recorded::{RECORD_BYTES_MAX, RecordedRequest, RecordedTraffic, encode_request, recorded_at};
pub use synthetic::{
    CLIENTS_MAX, ROWS_MAX, RowProblem, SYNTHETIC_REQUESTS_MAX, SyntheticTraffic, TrafficPlan, TrafficRow,
};

/// Function that decides a request at a time, and returns when the client may retry.
pub type DecideFn<'a> = dyn FnMut(Nanos, &Request<'_>) -> Retry + 'a;

/// Requests in order of time.
pub trait Traffic {
    /// Advances by one step, which decides at most one request; returns false at the end.
    ///
    /// # Errors
    ///
    /// The input of the traffic cannot be read.
    fn step(&mut self, decide: &mut DecideFn<'_>) -> io::Result<bool>;
}
