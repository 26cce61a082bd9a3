//! The time under which figures are kept.

use std::{fmt, sync::Arc};

use jiff::Timestamp;

/// What tells the time under which figures are kept: the system's clock, unless another is given, as tests do that do not
/// wait for hours. Rates are worked out by the time that really passed, whatever this says.
#[derive(Clone)]
pub struct FiguresClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Default for FiguresClock {
    fn default() -> Self {
        Self::of(Timestamp::now)
    }
}

impl FiguresClock {
    /// One that asks `now`.
    pub fn of(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Unix milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        (self.0)().as_millisecond()
    }
}

impl fmt::Debug for FiguresClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FiguresClock")
    }
}
