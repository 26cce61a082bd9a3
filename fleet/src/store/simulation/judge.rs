//! Test only: checks the admissions of a run against the bound of a limit.

use tidegate::{policy::Algorithm, time::Nanos};

use super::node::SharedLimit;

/// Tokens that were admitted at a time between two instants of the store's clock. The time of a check that waited for a
/// lease is not known more exactly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    pub(super) limit: usize,
    pub(super) key: usize,
    pub(super) from: Nanos,
    pub(super) until: Nanos,
    /// The tokens; 0: the charge was given back.
    pub(super) cost: u64,
}

/// Returns how many aligned windows lie between two instants, both included.
fn windows(limit: &SharedLimit, from: Nanos, until: Nanos) -> u64 {
    until / limit.period_ns() - from / limit.period_ns() + 1
}

/// Returns the most tokens that a limit admits between two instants, both included.
fn most(limit: &SharedLimit, from: Nanos, until: Nanos) -> u64 {
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
        _ => panic!("no bound of {:?}", limit.algorithm),
    }
}

/// Checks the admissions of one key against a limit that may be exceeded by `above` tokens. Returns the tokens by which
/// it was exceeded, and whether all of it was used in some stretch of time.
pub(super) fn judge(limit: &SharedLimit, admissions: &[Admission], above: u64) -> Result<(u64, bool), String> {
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
            // The excess of a bucket is repaid; that of a window is forgotten with the window.
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
