//! Our limiters and the peer that has windows, by `fixed_window` and `sliding_window_counter`.

use std::time::Duration;

use tidegate::{
    KeyedLimiter,
    algorithm::{FixedWindow, Meter, SlidingWindowCounter},
    clock::SystemClock,
};

use crate::{
    contender::Contender,
    engine_with, key_of,
    peers::{HandleChecks, contender},
};

/// An algorithm that counts in windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowAlgorithm {
    /// `fixed_window`.
    Fixed,
    /// `sliding_window_counter`.
    SlidingCounter,
}

/// A limit that admits all checks that a processor makes over a thousand keys or more. The greatest limit of our two algorithms
/// is little more. Over one key these processors make more checks than that, which are denied.
pub const WIDE: u32 = 1_000_000;

/// A limit that denies nearly everything.
pub const TIGHT: u32 = 1;

impl WindowAlgorithm {
    /// Returns our engine, checked by handles: `limit` a second, with room for `max_keys` keys.
    #[must_use]
    pub fn tidegate(self, max_keys: usize, limit: u32) -> Contender<'static> {
        let algorithm = match self {
            Self::Fixed => "fixed_window",
            Self::SlidingCounter => "sliding_window_counter",
        };
        let limit = format!(r#"algorithm = "{algorithm}", limit = {limit}, period = "1s""#);
        Contender::new("tidegate", HandleChecks(engine_with(max_keys, SystemClock::new(), &limit)))
    }

    /// Returns our keyed limiter, which has no policy.
    ///
    /// # Panics
    ///
    /// If the limit is out of range.
    #[must_use]
    pub fn keyed_limiter(self, max_keys: usize, limit: u32) -> Contender<'static> {
        let limit = limit.into();
        let meter = match self {
            Self::Fixed => FixedWindow::new(limit, Duration::from_secs(1)).map(Meter::FixedWindow),
            Self::SlidingCounter => {
                SlidingWindowCounter::new(limit, Duration::from_secs(1)).map(Meter::SlidingWindowCounter)
            }
        };
        let limiter = KeyedLimiter::with_max_keys(meter.expect("fits"), max_keys);
        contender("tidegate, KeyedLimiter", limiter, |limiter, number| limiter.check(key_of(number)).is_allowed())
    }

    /// Returns the only peer that has such windows, without its bound on keys.
    #[must_use]
    pub fn rate_net(self, limit: u32) -> Contender<'static> {
        let algorithm = match self {
            Self::Fixed => rate_net::Algorithm::FixedWindow,
            Self::SlidingCounter => rate_net::Algorithm::SlidingWindowCounter,
        };
        let limiter = rate_net::RateLimiter::builder()
            .algorithm(algorithm)
            .quota(limit, Duration::from_secs(1))
            .eviction(rate_net::Eviction::default().without_capacity());
        contender("rate-net, u64", limiter.build(), |limiter, number| limiter.check(number).is_allow())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(window: WindowAlgorithm, limit: u32) -> [Contender<'static>; 3] {
        [window.tidegate(1_000, limit), window.keyed_limiter(1_000, limit), window.rate_net(limit)]
    }

    #[test]
    fn windows_admit_up_to_their_limit_and_count_each_key_separately() {
        for window in [WindowAlgorithm::Fixed, WindowAlgorithm::SlidingCounter] {
            for contender in all(window, WIDE) {
                assert!((0..10_000).all(|_| contender.allows(0)), "{window:?}, {}", contender.name);
            }
            for contender in all(window, TIGHT) {
                // A window that ends meanwhile admits one more check.
                let allowed = |key| (0..8).filter(|_| contender.allows(key)).count();
                let counts = [allowed(0), allowed(1)];
                assert!(
                    counts.iter().all(|count| (1..8).contains(count)),
                    "{window:?}, {}: {counts:?}",
                    contender.name
                );
            }
        }
    }
}
