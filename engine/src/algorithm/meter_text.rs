//! A meter as text. A store keeps it beside a word, so that other readers can interpret the word.

use std::{fmt, str::FromStr, time::Duration};

use super::{
    bounds::Unfit, fixed_window::FixedWindow, meter::Meter, sliding_window_counter::SlidingWindowCounter,
    sliding_window_log::SlidingWindowLog, token_bucket::TokenBucket,
};

/// Writes `ALGORITHM/LIMIT/PERIOD_NS`, and for a bucket `/BURST`, such as `token_bucket/100/60000000000/20`. A window of a
/// calendar has its mean period, and cannot be read back.
impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, period_ns) = (self.capacity(), self.period_ns());
        match self {
            Self::TokenBucket(bucket) => write!(f, "token_bucket/{bucket}"),
            Self::LeakyBucket(bucket) => write!(f, "leaky_bucket/{bucket}"),
            Self::FixedWindow(_) if self.is_of_calendar() => write!(f, "calendar/{limit}/{period_ns}"),
            Self::FixedWindow(_) => write!(f, "fixed_window/{limit}/{period_ns}"),
            Self::SlidingWindowCounter(_) => write!(f, "sliding_window_counter/{limit}/{period_ns}"),
            Self::SlidingWindowLog(_) => write!(f, "sliding_window_log/{limit}/{period_ns}"),
        }
    }
}

impl FromStr for Meter {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Self, Unfit> {
        let strange = || Unfit { field: "algorithm", message: format!("`{text}` is not known") };
        let mut parts = text.split('/');
        let algorithm = parts.next().unwrap_or_default();
        let numbers = parts.map(str::parse).collect::<Result<Vec<u64>, _>>().map_err(|_| strange())?;
        let period = Duration::from_nanos;
        Ok(match (algorithm, &numbers[..]) {
            ("token_bucket", &[limit, ns, burst]) => Self::TokenBucket(TokenBucket::new(limit, period(ns), burst)?),
            ("leaky_bucket", &[limit, ns, burst]) => Self::LeakyBucket(TokenBucket::new(limit, period(ns), burst)?),
            ("fixed_window", &[limit, ns]) => Self::FixedWindow(FixedWindow::new(limit, period(ns))?),
            ("sliding_window_counter", &[limit, ns]) => {
                Self::SlidingWindowCounter(SlidingWindowCounter::new(limit, period(ns))?)
            }
            ("sliding_window_log", &[limit, ns]) => Self::SlidingWindowLog(SlidingWindowLog::new(limit, period(ns))?),
            _ => return Err(strange()),
        })
    }
}
