//! The algorithms: pure functions from a bucket's word, the time and a cost to a verdict and the next word. They use no
//! atomics and no clock.
//!
//! * `bounds`: the ranges of a limit's numbers
//! * `verdict`: the result of a step, and the receipt of a charge
//! * `carry`: conversion of used quota when a limit's numbers change
//! * `remote_add`: a charge as an addition to a part of a word, for a store
//! * `calendar`: windows of days, weeks and months
//! * `token_bucket`: token bucket and leaky bucket, as GCRA
//! * `fixed_window`: a count for each window
//! * `sliding_window_counter`: the counts of two windows, weighted
//! * `sliding_window_log`: a log of admissions, as one word
//! * `meter`: one limit's numbers, for every algorithm
//! * `meter_text`: a meter as text
//! * `remote_step`: a step that a store makes
//! * `rate`: the numbers of a token bucket, for limiters without a policy

mod bounds;
mod calendar;
mod carry;
mod fixed_window;
mod meter;
mod meter_text;
pub(crate) mod rate;
pub(crate) mod remote_add;
pub(crate) mod remote_step;
mod sliding_window_counter;
mod sliding_window_log;
mod token_bucket;
pub(crate) mod verdict;

pub use bounds::{NUMBER_MAX, Unfit};
pub(crate) use calendar::Calendar;
pub use carry::Carry;
pub use fixed_window::FixedWindow;
#[cfg(feature = "tools")]
pub(crate) use fixed_window::LIMIT_MAX as WINDOW_LIMIT_MAX;
pub use meter::Meter;
pub use sliding_window_counter::SlidingWindowCounter;
pub use sliding_window_log::SlidingWindowLog;
pub(crate) use token_bucket::OneToken;
pub use token_bucket::TokenBucket;
#[cfg(feature = "tools")]
pub(crate) use token_bucket::refill;
pub(crate) use verdict::{Receipt, Verdict};
