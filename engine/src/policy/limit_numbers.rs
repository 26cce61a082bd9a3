//! The numbers of a limit: checks those of the document, and converts them to the meters that decide.

use crate::{
    algorithm::{FixedWindow, Meter, NUMBER_MAX, SlidingWindowCounter, SlidingWindowLog, TokenBucket},
    base::time::parse_period,
    policy::{
        compiled::StoredNumbers,
        document::{Algorithm, Limit, OnFailure, Sharing},
        error::ProblemCollector,
        timezone::{Unit, Zone},
    },
};

/// The fraction of a limit that a node grants while the store is unavailable, unless the policy has `on_failure`.
const LOCAL_FRACTION: f64 = 0.5;

/// The numbers of a limit in a snapshot.
#[derive(Default)]
pub(crate) struct CompiledNumbers {
    /// The meter that decides on a node; `None` for a limit that admits nothing.
    pub(crate) meter: Option<Meter>,
    /// The period, which a limit that admits nothing has too.
    pub(crate) period_ns: u64,
    /// The most tokens above the capacity that settlements may charge there.
    pub(crate) max_debt: u64,
    /// The numbers that the store keeps, if nodes share the limit.
    pub(crate) stored: Option<StoredNumbers>,
}

/// Returns the numbers of a limit in a domain of this time zone.
pub(crate) fn numbers(report: &mut ProblemCollector<'_>, limit: &Limit, zone: &Zone) -> CompiledNumbers {
    check_max_debt(report, limit);
    let (whole, sharing) = (meter(report, limit, zone), limit.sharing);
    let period_ns = whole.map_or(0, |meter| meter.period_ns());
    let whole = whole.filter(|_| limit.limit > 0);
    match (limit.algorithm, sharing) {
        (Algorithm::SlidingWindowLog, Sharing::Leased | Sharing::Synced) => report.field("sharing").wrong(
            "a log cannot be shared like this, since it is exact by writing down each admission as it is made; write strict, \
             or use sliding_window_counter",
        ),
        (Algorithm::LeakyBucket, Sharing::Leased) => report.field("sharing").wrong(
            "a leaky bucket tells each request its place in the queue, and a token that was taken ahead has none; write \
             strict, or use token_bucket",
        ),
        _ => {}
    }
    if sharing == Sharing::Local {
        if limit.on_failure.is_some() {
            report
                .field("on_failure")
                .wrong("this limit is not shared; leave it out, or say how it is: sharing = \"strict\"");
        }
        return CompiledNumbers { meter: whole, period_ns, max_debt: max_debt(limit), stored: None };
    }
    let on_failure = limit.on_failure.unwrap_or(OnFailure::Local(LOCAL_FRACTION));
    let fraction = match on_failure {
        OnFailure::Local(fraction) => fraction,
        OnFailure::Open | OnFailure::Closed => 1.0,
    };
    if !(fraction > 0.0 && fraction <= 1.0) {
        report.field("on_failure").field("local").wrong(format!("{fraction} is out of range; above 0, and at most 1"));
        return CompiledNumbers::default();
    }
    let Some(whole) = whole else { return CompiledNumbers { period_ns, ..CompiledNumbers::default() } };
    // At least one token, so that a node alone is slow rather than closed.
    #[expect(clippy::cast_sign_loss, reason = "a part of a whole number is not negative")]
    let part = |number: u64| ((number as f64 * fraction).ceil() as u64).clamp(1, number.max(1));
    let alone = Limit { limit: part(limit.limit), burst: limit.burst.map(part), ..limit.clone() };
    let stored = StoredNumbers { meter: whole, max_debt: max_debt(limit), sharing, on_failure };
    CompiledNumbers { meter: meter(report, &alone, zone), period_ns, max_debt: max_debt(&alone), stored: Some(stored) }
}

/// Returns the debt that the limit names, or else what one period repays.
fn max_debt(limit: &Limit) -> u64 {
    limit.max_debt.unwrap_or(limit.limit)
}

fn check_max_debt(report: &mut ProblemCollector<'_>, limit: &Limit) {
    let Some(most) = limit.max_debt else { return };
    if !is_bucket(limit) {
        report.field("max_debt").wrong("a window owes nothing after its end; leave it out, or use token_bucket");
    } else if most > NUMBER_MAX {
        report.field("max_debt").wrong(format!("{most} is out of range; from 0 to {NUMBER_MAX} fit"));
    }
}

fn is_bucket(limit: &Limit) -> bool {
    matches!(limit.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
}

/// Returns the meter of a limit in a domain of this time zone; for one that admits nothing, the meter of a limit of 1.
fn meter(report: &mut ProblemCollector<'_>, limit: &Limit, zone: &Zone) -> Option<Meter> {
    if limit.limit > NUMBER_MAX {
        report.field("limit").wrong(format!("{} is too large; at most {NUMBER_MAX} fits", limit.limit));
    }
    let unit = Unit::named(&limit.period);
    let period = match unit {
        None => parse_period(&limit.period).map_err(|why| report.field("period").wrong(why.to_string())).ok(),
        Some(unit) => {
            if limit.algorithm != Algorithm::FixedWindow {
                let instead = match unit {
                    Unit::Day => "1d",
                    Unit::Week => "7d",
                    Unit::Month => "30d",
                };
                report.field("period").wrong(format!(
                    "`{}` is a period of the calendar, for fixed_window only; write {instead}",
                    limit.period
                ));
            }
            None
        }
    };
    if limit.burst.is_some() && !is_bucket(limit) {
        report.field("burst").wrong("a window has no burst; leave it out, or use token_bucket");
    }
    let number = limit.limit.clamp(1, NUMBER_MAX);
    let bucket = |period| TokenBucket::new(number, period, limit.burst.unwrap_or(number));
    let meter = match limit.algorithm {
        Algorithm::TokenBucket => bucket(period?).map(Meter::TokenBucket),
        Algorithm::LeakyBucket => bucket(period?).map(Meter::LeakyBucket),
        Algorithm::FixedWindow => match unit {
            Some(unit) => FixedWindow::of(number, zone.calendar(unit)),
            None => FixedWindow::new(number, period?),
        }
        .map(Meter::FixedWindow),
        Algorithm::SlidingWindowCounter => SlidingWindowCounter::new(number, period?).map(Meter::SlidingWindowCounter),
        Algorithm::SlidingWindowLog => SlidingWindowLog::new(number, period?).map(Meter::SlidingWindowLog),
    };
    meter.map_err(|unfit| report.field(unfit.field).wrong(unfit.message)).ok()
}
