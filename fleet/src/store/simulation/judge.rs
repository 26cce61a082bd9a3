//! Holds what was admitted against what a limit may admit.

use tidegate::{policy::Algorithm, time::Nanos};

use super::node::Limit;

/// Tokens that were admitted, at a time of the store's clock that lies between two: of what waited for a lease, it is not known more
/// exactly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    pub(super) limit: usize,
    pub(super) key: usize,
    pub(super) from: Nanos,
    pub(super) until: Nanos,
    /// 0: it was given back.
    pub(super) cost: u64,
}

/// Returns how many aligned windows lie between two instants, those of both included.
fn windows(limit: &Limit, from: Nanos, until: Nanos) -> u64 {
    until / limit.period_ns() - from / limit.period_ns() + 1
}

/// Returns the most tokens that a limit admits between two instants, both of them included.
fn most(limit: &Limit, from: Nanos, until: Nanos) -> u64 {
    let (period, length) = (limit.period_ns(), until - from);
    let windows = windows(limit, from, until);
    match limit.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let came_back = u128::from(limit.tokens) * u128::from(length) / u128::from(period);
            limit.burst + came_back as u64
        }
        Algorithm::SlidingWindowCounter if length < period => (windows * limit.tokens).min(2 * limit.tokens - 1),
        Algorithm::FixedWindow | Algorithm::SlidingWindowCounter => windows * limit.tokens,
        Algorithm::SlidingWindowLog => (length / period + 1) * limit.tokens,
    }
}

/// Judges the admissions of one key of a limit, which may have been exceeded by `above`. Returns by how many tokens at most it was
/// exceeded, and whether all that it has was used in some stretch of time.
pub(super) fn judge(limit: &Limit, admissions: &[Admission], above: u64) -> Result<(u64, bool), String> {
    let mut by_end: Vec<_> = admissions.iter().filter(|it| it.cost > 0).collect();
    by_end.sort_by_key(|it| it.until);
    let (mut exceeded, mut is_used_up) = (0, false);
    for first in &by_end {
        let mut sum = 0;
        for last in by_end.iter().filter(|it| it.from >= first.from) {
            sum += last.cost;
            if last.until < first.from {
                continue;
            }
            let most = most(limit, first.from, last.until);
            // An excess of a bucket is repaid; one of a window is forgotten with it.
            let above = if limit.is_bucket() { above } else { above * windows(limit, first.from, last.until) };
            exceeded = exceeded.max(sum.saturating_sub(most));
            is_used_up |= sum >= most;
            if sum > most + above {
                return Err(format!(
                    "{sum} tokens between {} and {}, where {most} and {above} may be: {limit:?}",
                    first.from, last.until
                ));
            }
        }
    }
    Ok((exceeded, is_used_up))
}
