//! Ours and the peers by the algorithms of windows: a fixed one, and a counter that slides.

use std::time::Duration;

use tidegate::{
    KeyedLimiter,
    algorithm::{FixedWindow, Meter, SlidingWindowCounter},
    clock::SystemClock,
    time::SECOND_NS,
};

use crate::{
    comparison::Contender,
    engine_with, key_of,
    peers::{ByHandle, by},
};

/// An algorithm of windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// `fixed_window`.
    Fixed,
    /// `sliding_window_counter`.
    SlidingCounter,
}

/// Lets everything through that a processor asks for over a thousand keys or more: the most that either algorithm of ours
/// takes is little more. Over one key, these processors ask for more than that, and are denied.
pub const WIDE: u32 = 1_000_000;

/// Lets next to nothing through.
pub const TIGHT: u32 = 1;

impl Window {
    /// Ours by handles: `limit` a second, with room for so many keys.
    #[must_use]
    pub fn tidegate(self, max_keys: usize, limit: u32) -> Contender<'static> {
        let algorithm = match self {
            Self::Fixed => "fixed_window",
            Self::SlidingCounter => "sliding_window_counter",
        };
        let limit = format!(r#"algorithm = "{algorithm}", limit = {limit}, period = "1s""#);
        Contender::new("tidegate", ByHandle(engine_with(max_keys, SystemClock::new(), &limit)))
    }

    /// Ours without a policy.
    ///
    /// # Panics
    ///
    /// Where the limit does not fit.
    #[must_use]
    pub fn keyed_limiter(self, max_keys: usize, limit: u32) -> Contender<'static> {
        let limit = limit.into();
        let meter = match self {
            Self::Fixed => FixedWindow::new(limit, SECOND_NS).map(Meter::FixedWindow),
            Self::SlidingCounter => SlidingWindowCounter::new(limit, SECOND_NS).map(Meter::SlidingWindowCounter),
        };
        let limiter = KeyedLimiter::with_max_keys(meter.expect("fits"), max_keys);
        by("tidegate, KeyedLimiter", limiter, |limiter, number| limiter.check(key_of(number)).is_allowed())
    }

    /// The only peer that has such windows, without its bound on keys.
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
        by("rate-net, u64", limiter.build(), |limiter, number| limiter.check(number).is_allow())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(window: Window, limit: u32) -> [Contender<'static>; 3] {
        [window.tidegate(1_000, limit), window.keyed_limiter(1_000, limit), window.rate_net(limit)]
    }

    #[test]
    fn windows_let_pass_up_to_their_limit_and_count_each_key_by_itself() {
        for window in [Window::Fixed, Window::SlidingCounter] {
            for contender in all(window, WIDE) {
                assert!((0..10_000).all(|_| contender.allows(0)), "{window:?}, {}", contender.name);
            }
            for contender in all(window, TIGHT) {
                // A window that ends meanwhile admits one more.
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
