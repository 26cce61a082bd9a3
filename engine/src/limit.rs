//! A limit's numbers: from what people write to the meter that counts.

use crate::{
    algorithm::{FixedWindow, Meter, NUMBER_MAX, SlidingWindowCounter, TokenBucket},
    policy::{Algorithm, Limit, Sharing},
    problem::Report,
    time::parse_period,
};

/// The numbers of a limit; `None` also for a limit that admits nothing.
pub(crate) fn meter(report: &mut Report<'_>, limit: &Limit) -> Option<Meter> {
    if limit.sharing != Sharing::Local {
        report.field("sharing").not_built("sharing over machines", "leave it out, or write local");
    }
    if limit.on_failure.is_some() {
        report.field("on_failure").not_built("sharing over machines", "leave it out");
    }
    if limit.limit > NUMBER_MAX {
        report.field("limit").wrong(format!("{} is too large; at most {NUMBER_MAX} fits", limit.limit));
    }
    let period_ns = if matches!(limit.period.as_str(), "day" | "week" | "month") {
        report.field("period").not_built("a calendar period", "write 1d or 7d, aligned to UTC");
        return None;
    } else {
        parse_period(&limit.period).map_err(|why| report.field("period").wrong(why)).ok()
    };
    let is_bucket = matches!(limit.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    if limit.burst.is_some() && !is_bucket {
        report.field("burst").wrong("a window has no burst; leave it out, or use token_bucket");
    }
    let number = limit.limit.clamp(1, NUMBER_MAX);
    let bucket = |period_ns| TokenBucket::new(number, period_ns, limit.burst.unwrap_or(number));
    let meter = match limit.algorithm {
        Algorithm::TokenBucket => bucket(period_ns?).map(Meter::TokenBucket),
        Algorithm::LeakyBucket => bucket(period_ns?).map(Meter::LeakyBucket),
        Algorithm::FixedWindow => FixedWindow::new(number, period_ns?).map(Meter::FixedWindow),
        Algorithm::SlidingWindowCounter => {
            SlidingWindowCounter::new(number, period_ns?).map(Meter::SlidingWindowCounter)
        }
        Algorithm::SlidingWindowLog => {
            report.field("algorithm").not_built("the log", "use sliding_window_counter");
            return None;
        }
    };
    let meter = meter.map_err(|unfit| report.unfit(unfit)).ok()?;
    (limit.limit > 0).then_some(meter)
}
