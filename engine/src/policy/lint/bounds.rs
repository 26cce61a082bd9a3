//! Bounds of what a limit admits, and so which other limit can never deny beside it.
//!
//! What is claimed holds for checks that cost what they said, of keys that have slots in the table, decided on one node. Where
//! numbers are too large to be sure, nothing is claimed.

use crate::{
    algorithm::refill,
    base::time::{SECOND_NS, parse_period},
    policy::{
        document::{Algorithm, Limit, Mode, Sharing},
        timezone::Unit,
    },
};

/// What a limit admits in any stretch of time: at most `at_once`, and `tokens` for each `period_ns` that pass.
struct Admits {
    at_once: u128,
    tokens: u128,
    period_ns: u128,
    /// Of windows: so many windows more than periods that were begun can be met, and what each admits.
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

/// How a bucket really comes back: every rounding goes against the client.
fn refilled(limit: &Limit) -> Option<(u128, u128)> {
    let (tokens, period_ns) = refill(limit.limit, parse_period(&limit.period).ok()?);
    Some((tokens.into(), period_ns.into()))
}

/// The least and the most that a period lasts.
fn period_ns(limit: &Limit) -> Option<(u128, u128)> {
    const DAY_NS: u128 = 86_400 * SECOND_NS as u128;
    // Days with a change of the clock.
    const CHANGE_NS: u128 = 2 * 3_600 * SECOND_NS as u128;
    let (least, most) = match Unit::named(&limit.period) {
        Some(Unit::Day) => (DAY_NS, DAY_NS),
        Some(Unit::Week) => (7 * DAY_NS, 7 * DAY_NS),
        Some(Unit::Month) => (28 * DAY_NS, 31 * DAY_NS),
        None => {
            let ns = parse_period(&limit.period).ok()?.into();
            return Some((ns, ns));
        }
    };
    Some((least - CHANGE_NS, most + CHANGE_NS))
}

/// Does `limit` admit all that `by` admits, at whatever times, where each token of `by` is `cost` of `limit`?
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
            // Where a call is rounded up by itself, many small ones lose more than one large one.
            let keeps_up = back == 1 && most.tokens.checked_mul(cost)?.checked_mul(in_ns)? <= most.period_ns;
            if !keeps_up {
                return Some(false);
            }
            (most.at_once, limit.burst.unwrap_or(limit.limit).into())
        }
        Algorithm::FixedWindow => match windows_of_the_clock(by).filter(|_| windows_of_the_clock(limit).is_some()) {
            // They begin and end together.
            Some(by_ns) if least_ns.is_multiple_of(by_ns) => (most.tokens.checked_mul(least_ns / by_ns)?, tokens),
            _ => (most.most_in(longest_ns)?, tokens),
        },
        // Two windows weighted are at most both; large counts are kept rounded up, by 0.4 % at most.
        Algorithm::SlidingWindowCounter => {
            let exact = if limit.limit < 1 << 14 { tokens } else { tokens - tokens.div_ceil(200) };
            (most.most_in(2 * longest_ns)?, exact)
        }
        // One that finds no ring counts more strictly.
        Algorithm::SlidingWindowLog => return Some(false),
    };
    Some(admitted.checked_mul(cost)? <= fit)
}

/// How long windows are that begin with the epoch.
fn windows_of_the_clock(limit: &Limit) -> Option<u128> {
    let is_of_clock = limit.algorithm == Algorithm::FixedWindow && Unit::named(&limit.period).is_none();
    period_ns(limit).filter(|_| is_of_clock).map(|(ns, _)| ns)
}

/// How many tokens a limit gives back a second, on average; none: its period cannot be read.
pub(super) fn per_second(limit: &Limit) -> Option<f64> {
    let (least_ns, longest_ns) = period_ns(limit)?;
    Some(limit.limit as f64 * SECOND_NS as f64 * 2.0 / (least_ns + longest_ns) as f64)
}

/// In the long run, where requests come evenly: does a rule with `limits`, each request `cost` of them, admit more requests
/// than `wide` does at `wide_cost` each?
pub(super) fn admits_more(limits: &[Limit], cost: u64, wide: &Limit, wide_cost: u64) -> bool {
    let more = |limit: &Limit| {
        // Each admits its tokens in each period of even traffic, a counter of windows at most twice that.
        let ((_, longest_ns), (least_ns, _)) = (period_ns(limit)?, period_ns(wide)?);
        let most = if wide.algorithm == Algorithm::SlidingWindowCounter { 2 } else { 1 };
        let ours = u128::from(limit.limit).checked_mul(least_ns)?.checked_mul(wide_cost.into())?;
        let theirs = u128::from(wide.limit).checked_mul(most * longest_ns)?.checked_mul(cost.into())?;
        // By more than buckets lose to rounding.
        Some(ours > theirs + theirs / 100)
    };
    let enforced = limits.iter().filter(|limit| limit.mode == Mode::Enforce);
    wide.sharing == Sharing::Local
        && enforced.into_iter().all(|limit| limit.sharing == Sharing::Local && more(limit) == Some(true))
}
