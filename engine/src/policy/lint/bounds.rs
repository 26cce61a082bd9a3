//! Bounds of limits: computes the most that a limit admits in a time, to find other limits that can never deny beside it.
//!
//! The results hold for checks without settlement of another cost, of keys that have slots in the table, decided on one node. If
//! numbers are too large to be sure, there is no result.

use crate::{
    algorithm::refill,
    base::time::{SECOND_NS, parse_period, saturating_nanos},
    policy::{
        document::{Algorithm, Limit, Mode, Sharing},
        timezone::Unit,
    },
};

/// The most that a limit admits in any span of time: `at_once`, and `tokens` for each `period_ns` that passes.
struct Admits {
    at_once: u128,
    tokens: u128,
    period_ns: u128,
    /// The number of windows that a span can overlap beyond its begun periods, and what each admits; `None` for buckets.
    windows: Option<(u128, u128)>,
}

impl Admits {
    fn of(limit: &Limit) -> Option<Self> {
        let (period_ns, _) = period_ns(limit)?;
        let tokens = u128::from(limit.limit);
        let windows = |at_once, tokens, more| Self { at_once, tokens, period_ns, windows: Some((more, tokens)) };
        Some(match limit.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket if limit.limit == 0 => windows(0, 0, 0),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let (tokens, period_ns) = refilled(limit)?;
                Self { at_once: limit.burst.unwrap_or(limit.limit).into(), tokens, period_ns, windows: None }
            }
            Algorithm::FixedWindow => windows(2 * tokens, tokens, 1),
            Algorithm::SlidingWindowLog => windows(tokens, tokens, 0),
            Algorithm::SlidingWindowCounter => windows(2 * tokens, 2 * tokens, 0),
        })
    }

    fn most_in(&self, t_ns: u128) -> Option<u128> {
        let steady = self.at_once + self.tokens.checked_mul(t_ns)? / self.period_ns;
        let Some((more, tokens)) = self.windows else { return Some(steady) };
        Some(steady.min(tokens.checked_mul(t_ns.div_ceil(self.period_ns) + more)?))
    }
}

/// Returns the tokens that a bucket really refills, and in which time: every rounding is against the client.
fn refilled(limit: &Limit) -> Option<(u128, u128)> {
    let (tokens, period_ns) = refill(limit.limit, saturating_nanos(parse_period(&limit.period).ok()?));
    Some((tokens.into(), period_ns.into()))
}

/// Returns the shortest and the longest duration of a period.
fn period_ns(limit: &Limit) -> Option<(u128, u128)> {
    const DAY_NS: u128 = 86_400 * SECOND_NS as u128;
    // The most by which a change of the clock lengthens or shortens a day.
    const CHANGE_NS: u128 = 2 * 3_600 * SECOND_NS as u128;
    let (least, most) = match Unit::named(&limit.period) {
        Some(Unit::Day) => (DAY_NS, DAY_NS),
        Some(Unit::Week) => (7 * DAY_NS, 7 * DAY_NS),
        Some(Unit::Month) => (28 * DAY_NS, 31 * DAY_NS),
        None => {
            let ns = parse_period(&limit.period).ok()?.as_nanos();
            return Some((ns, ns));
        }
    };
    Some((least - CHANGE_NS, most + CHANGE_NS))
}

/// Returns whether `limit` admits all that `by` admits, at any times, if each token of `by` costs `cost` tokens of `limit`.
pub(super) fn bounds(by: &Limit, limit: &Limit, cost: u64) -> bool {
    let is_local = |limit: &Limit| limit.sharing == Sharing::Local;
    by.mode == Mode::Enforce && is_local(by) && is_local(limit) && admits_all(by, limit, cost.into()).unwrap_or(false)
}

fn admits_all(by: &Limit, limit: &Limit, cost: u128) -> Option<bool> {
    if limit.limit == 0 {
        return Some(false);
    }
    let (most, (least_ns, longest_ns)) = (Admits::of(by)?, period_ns(limit)?);
    let tokens = u128::from(limit.limit);
    let (admitted, fit) = match limit.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let (back, in_ns) = refilled(limit)?;
            // Each call is rounded up, so many small calls lose more than one large call.
            let keeps_up = back == 1 && most.tokens.checked_mul(cost)?.checked_mul(in_ns)? <= most.period_ns;
            if !keeps_up {
                return Some(false);
            }
            (most.at_once, limit.burst.unwrap_or(limit.limit).into())
        }
        Algorithm::FixedWindow => match windows_of_the_clock(by).filter(|_| windows_of_the_clock(limit).is_some()) {
            // The windows of both begin and end together.
            Some(by_ns) if least_ns.is_multiple_of(by_ns) => (most.tokens.checked_mul(least_ns / by_ns)?, tokens),
            _ => (most.most_in(longest_ns)?, tokens),
        },
        // The weighted sum of two windows is at most their sum; large counts are stored rounded up, by 0.4 % at most.
        Algorithm::SlidingWindowCounter => {
            let exact = if limit.limit < 1 << 14 { tokens } else { tokens - tokens.div_ceil(200) };
            (most.most_in(2 * longest_ns)?, exact)
        }
        // A key without a free log counts more strictly.
        Algorithm::SlidingWindowLog => return Some(false),
    };
    Some(admitted.checked_mul(cost)? <= fit)
}

/// Returns the length of the windows if they begin with the epoch.
fn windows_of_the_clock(limit: &Limit) -> Option<u128> {
    let is_of_clock = limit.algorithm == Algorithm::FixedWindow && Unit::named(&limit.period).is_none();
    period_ns(limit).filter(|_| is_of_clock).map(|(ns, _)| ns)
}

/// Returns the tokens that a limit admits a second, on average; `None` if its period is invalid.
pub(super) fn per_second(limit: &Limit) -> Option<f64> {
    let (least_ns, longest_ns) = period_ns(limit)?;
    Some(limit.limit as f64 * SECOND_NS as f64 * 2.0 / (least_ns + longest_ns) as f64)
}

/// Returns whether `limits` at `cost` for each request admit more requests than `wide` at `wide_cost`, in the long run of evenly
/// spaced requests.
pub(super) fn admits_more(limits: &[Limit], cost: u64, wide: &Limit, wide_cost: u64) -> bool {
    let more = |limit: &Limit| {
        // Under even traffic each limit admits its tokens in each period, and a sliding window counter at most twice that.
        let ((_, longest_ns), (least_ns, _)) = (period_ns(limit)?, period_ns(wide)?);
        let most = if wide.algorithm == Algorithm::SlidingWindowCounter { 2 } else { 1 };
        let ours = u128::from(limit.limit).checked_mul(least_ns)?.checked_mul(wide_cost.into())?;
        let theirs = u128::from(wide.limit).checked_mul(most * longest_ns)?.checked_mul(cost.into())?;
        // The difference must exceed what buckets lose to rounding.
        Some(ours > theirs + theirs / 100)
    };
    let enforced = limits.iter().filter(|limit| limit.mode == Mode::Enforce);
    wide.sharing == Sharing::Local
        && enforced.into_iter().all(|limit| limit.sharing == Sharing::Local && more(limit) == Some(true))
}
